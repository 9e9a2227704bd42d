"""Graph memory: one physical memory for the CUDA graphs of many shapes."""
