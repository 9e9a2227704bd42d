"""MemPools of torch's own that graph memory needs, and keeps alive as long as torch needs them."""

import ctypes

_workspace_pools = {}  # by device; never released


def immortal(pool):
    """Keeps a MemPool alive: torch ends the process when one dies while a graph has it, as at exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool


def mortal(pool):
    """Undoes that; its result, None, is to be assigned to the last reference."""
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(pool))
    return None


def make_workspaces(torch, device):
    """Has cuBLAS make its workspaces for the current stream and thread now.

    They are cached by stream, outlive the graph they were made in, and are cleared when any
    graph of the stream is reset. In a pool of their own nobody else can get their memory.
    """
    if device not in _workspace_pools:
        _workspace_pools[device] = immortal(torch.cuda.MemPool())
    with torch.cuda.use_mem_pool(_workspace_pools[device], device=device), torch.no_grad():
        for dtype in (torch.float16, torch.float32):
            square = torch.zeros(64, 64, device="cuda:%d" % device, dtype=dtype)
            torch.mm(square, square)
            torch.addmm(square[0], square, square)
