"""torch.cuda.MemPools for graph memory, kept alive for as long as torch needs them."""

import ctypes

_workspace_pools = {}  # by device; never released


def immortal(pool):
    """Keeps a MemPool alive: torch ends the process if one is destroyed while a graph uses it, for instance at exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool


def mortal(pool):
    """Undoes `immortal`. Assign its result, None, to the last reference."""
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(pool))
    return None


def make_workspaces(torch, device):
    """Has cuBLAS allocate its workspaces for the current stream and thread now, in a pool of their own.

    torch caches them by stream beyond the graph that made them, and frees them when any graph of the
    stream is reset. So they must not lie in the range of a shape.
    """
    if device not in _workspace_pools:
        _workspace_pools[device] = immortal(torch.cuda.MemPool())
    with torch.cuda.use_mem_pool(_workspace_pools[device], device=device), torch.no_grad():
        for dtype in (torch.float16, torch.float32):
            square = torch.zeros(64, 64, device="cuda:%d" % device, dtype=dtype)
            torch.mm(square, square)
            torch.addmm(square[0], square, square)
