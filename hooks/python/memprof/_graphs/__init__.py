"""Graph memory: one physical memory for the CUDA graphs of many shapes.

Three things would break sharing. Tensors that are live in a range when its shape ends: an error names them. Outputs: the graph
copies them to memory outside. The workspaces of cuBLAS, which torch keeps by stream beyond the graph and frees at the reset of
another one: they are made before each capture, in a pool of their own that is never released.

A graph keeps its shape alive until it is reset, captured again or collected, since it writes its outputs when it is replayed. The
shape does not keep its graphs alive, and ends with the last of them.
"""
