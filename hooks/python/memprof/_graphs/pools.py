"""Where cuBLAS has its workspaces while graphs of a graph memory are captured."""

import ctypes

_workspace_pools = {}  # by device; never released


def make_workspaces(torch, device):
    """Has cuBLAS allocate its workspaces for the current stream and thread now, in a pool of their own.

    torch caches them by stream beyond the graph that made them, and frees them when any graph of the
    stream is reset. So they must not lie in the range of a shape.
    """
    if device not in _workspace_pools:
        _workspace_pools[device] = torch.cuda.MemPool()
        # torch ends the process if a pool is destroyed while a graph uses it, as at exit.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_workspace_pools[device]))
    with torch.cuda.use_mem_pool(_workspace_pools[device], device=device), torch.no_grad():
        for dtype in (torch.float16, torch.float32):
            square = torch.zeros(64, 64, device="cuda:%d" % device, dtype=dtype)
            torch.mm(square, square)
            torch.addmm(square[0], square, square)
