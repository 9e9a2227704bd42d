"""CUDA graphs in a dry run: what is allocated during a capture goes to the graph's pool, and a replay does nothing."""

import itertools


def install(torch, storages):
    ids = itertools.count(1)
    lib = storages.library
    release = lib.memprof_release_pool  # a graph may end when modules no longer have their names

    class CUDAGraph:
        """As torch.cuda.CUDAGraph."""

        def __new__(cls, keep_graph=False):
            return object.__new__(cls)

        def capture_begin(self, pool=None, capture_error_mode="global"):
            self._pool = tuple(pool) if pool is not None else graph_pool_handle()
            self._device = torch.cuda.current_device()
            lib.memprof_pool_hold(self._device, *self._pool)
            storages.enter_pool(self._device, self._pool)

        def capture_end(self):
            storages.leave_pool(self._device)

        def replay(self, path=None):
            pass

        instantiate = enable_debug_mode = debug_dump = replay

        def reset(self):
            if hasattr(self, "_pool"):
                release(self._device, *self._pool)
                del self._pool

        __del__ = reset

        def pool(self):
            return self._pool

    def graph_pool_handle():
        return (0, next(ids))

    cuda = torch.cuda
    for module in (cuda, cuda.graphs):
        module.CUDAGraph = CUDAGraph
        module.graph_pool_handle = graph_pool_handle
    cuda.is_current_stream_capturing = cuda.graphs.is_current_stream_capturing = storages.capturing
