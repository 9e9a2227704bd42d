"""The workspaces of cuBLAS: torch allocates one for each handle and stream, at the first product, and keeps it.

Each thread that multiplies has a handle: the script's, and autograd's. A product with a bias goes to cuBLASLt, which
has a smaller workspace of its own. The library takes memory for each handle beside that.
"""

import os
import re
import threading

from memprof._dryrun import card

LT_WORKSPACE = 1024  # KiB; torch 2.11 asks for as much on an H200
OF_HANDLE = 32 << 20  # bytes that cuBLAS 13 takes from the driver for a handle, there, without CUBLAS_WORKSPACE_CONFIG


def ways(torch, storages):
    workspaces = _Workspaces(storages)
    torch._C._cuda_clearCublasWorkspaces = workspaces.clear
    aten = torch.ops.aten

    def multiply(operator, *args, **kwargs):
        return workspaces.serve(operator(*args, **kwargs), False)

    def multiply_and_add(operator, bias, *args, **kwargs):
        return workspaces.serve(operator(bias, *args, **kwargs), bias.dim() == 1 and kwargs.get("beta", 1) == 1)

    products = (aten.mm.default, aten.bmm.default, aten.baddbmm.default, aten.addmv.default, aten.mv.default, aten.dot.default)
    found = dict.fromkeys(products, multiply)
    found[aten.addmm.default] = multiply_and_add
    return found


def chosen_bytes(otherwise):
    """Bytes of a workspace by CUBLAS_WORKSPACE_CONFIG, pairs of :KIB:COUNT, which torch and cuBLAS both read; `otherwise` where it is not set."""
    pairs = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    return sum(1024 * int(size) * int(count) for size, count in pairs) if pairs else otherwise


def of_torch(capability):
    """Bytes of the workspace that torch gives a handle and stream without a setting."""
    return 8 * 4096 * 1024 if capability[0] in (9, 10) else 1024 * (2 * 4096 + 8 * 16)


class _Workspaces:
    def __init__(self, storages):
        self._storages = storages
        self._threads = threading.local()
        self._kept = []  # of each thread: its workspaces' addresses
        self._capability = card.seen().capability

    def serve(self, result, by_lt):
        """The product is on the device: its handle needs a workspace."""
        if result.device.type != "cuda":
            return result
        have = getattr(self._threads, "have", None)
        if have is None:
            have = self._threads.have = {}
            self._kept.append(have)
            # The library takes 1 KiB of its own for a handle, whatever the setting. For what is below a MiB the driver needs no new page.
            self._storages.take_as(b"call=cuMemAlloc\tlibrary=libcublas.so", max(chosen_bytes(OF_HANDLE) & -(1 << 20), 1024), result.device.index)
        stream = self._storages.stream()
        self._allocate(have, ("cublas", stream), result, chosen_bytes(of_torch(self._capability)))
        if by_lt:
            kib = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
            self._allocate(have, ("cublaslt", stream), result, 1024 * (int(kib) if kib.isdigit() else LT_WORKSPACE))
        return result

    def clear(self):
        """Frees all workspaces, as torch._C._cuda_clearCublasWorkspaces: the next product allocates one."""
        for have in self._kept:
            while have:
                self._storages.free(have.popitem()[1])

    def _allocate(self, have, key, result, size):
        if key not in have:
            self._storages.note(result)  # it is allocated first
            have[key] = self._storages.allocate(size, result.device.index)
