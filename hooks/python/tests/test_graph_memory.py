"""Graph memory through the real hook, on the simulated GPU, under a made-up torch.

The made-up torch has both ways of allocating: served by the hook, where a capture's requests
go to its pool; and one that takes segments from the allocator of a MemPool.
"""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HOOKS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.join(HOOKS, "dist", "libmemprof.so")
SIMULATION = os.path.join(HOOKS, "dist", "sim", "libcuda.so.1")

TORCH = '''
import contextlib, ctypes, itertools, sys, types

class dtype:
    def __init__(self, name, itemsize): self.name, self.itemsize = name, itemsize
    def __str__(self): return "torch." + self.name

M = 2**20
hook = ctypes.CDLL(None) if HOOKED else None
if hook:
    cuda_driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda_driver.cuInit(0) == 0 and cuda_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda_driver.cuCtxSetCurrent(context) == 0
    word = ctypes.c_uint64
    hook.memprof_malloc_in_pool.restype = ctypes.c_void_p
    hook.memprof_malloc_in_pool.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, word, word]
    hook.memprof_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    for name in ("pool_begin", "pool_end", "pool_hold", "release_pool"):
        getattr(hook, "memprof_" + name).argtypes = [ctypes.c_int, word, word]
    cuda_driver.cuMemsetD8_v2.argtypes = [word, ctypes.c_ubyte, ctypes.c_size_t]
    cuda_driver.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, word, ctypes.c_size_t]
    cuda_driver.cuMemcpyDtoD_v2.argtypes = [word, word, ctypes.c_size_t]

class Stream:
    def __init__(self, device=0): self.capturing = None
streams, pools = [Stream()], [(0, 0)]
numbers = itertools.count(1)
others = {}  # without the hook: what was allocated
segments = {}  # native: address: (bytes, MemPool, [(offset, bytes)])

def pool_now():
    capture = streams[-1].capturing
    return capture.id if capture else pools[-1]

def take(size):
    pool = pool_now()
    if not hook:
        addr = 2**40 + next(numbers) * 2**30
        others[addr] = bytearray(size)
        return addr
    owner = MemPool.of.get(pool)
    if BACKEND == "native" and owner is not None and owner.allocator:
        return owner.take(size)
    addr = hook.memprof_malloc_in_pool(size, 0, None, *pool)
    assert addr, "out of memory"
    return addr

def give(addr):
    if addr in others: del others[addr]; return
    for segment, (size, pool, blocks) in segments.items():
        if segment <= addr < segment + size:
            blocks[:] = [b for b in blocks if segment + b[0] != addr]
            return
    if hook: hook.memprof_free(addr, 0, 0, None)

class Tensor:
    is_cuda = True
    made = 0
    def __init__(self, shape, dtype, base=None, offset=0):
        self.shape, self.dtype, self.base, self.offset = tuple(shape), dtype or float32, base, offset
        if base is None: self.addr = take(max(self.nbytes, 1))
    def __del__(self):
        if self.base is None and hasattr(self, "addr"): give(self.addr)
    @property
    def nbytes(self): return self.numel() * self.dtype.itemsize
    def element_size(self): return self.dtype.itemsize
    def numel(self):
        n = 1
        for size in self.shape: n *= size
        return n
    def __len__(self): return self.shape[0]
    def dim(self): return len(self.shape)
    def data_ptr(self): return (self.base.data_ptr() if self.base is not None else self.addr) + self.offset
    def narrow(self, dimension, start, size):
        assert dimension == 0 or size == self.shape[dimension], "the made-up torch cuts the first dimension only"
        row = self.nbytes // max(self.shape[0], 1) if dimension == 0 else 0
        shape = list(self.shape)
        shape[dimension] = size
        return Tensor(shape, self.dtype, self, start * row)
    def __getitem__(self, at):
        if isinstance(at, int): return Tensor(self.shape[1:], self.dtype, self, at * (self.nbytes // self.shape[0]))
        start, stop, _ = at.indices(self.shape[0])
        return self.narrow(0, start, stop - start)
    def fill(self, value):
        if hook: assert cuda_driver.cuMemsetD8_v2(self.data_ptr(), value, self.nbytes) == 0
        return self
    def zero_(self): return self.fill(0)
    def copy_(self, other):
        assert self.nbytes == other.nbytes, (self.shape, other.shape)
        if hook: assert cuda_driver.cuMemcpyDtoD_v2(self.data_ptr(), other.data_ptr(), self.nbytes) == 0
        return self
    def read(self):
        data = (ctypes.c_ubyte * self.nbytes)()
        assert cuda_driver.cuMemcpyDtoH_v2(data, self.data_ptr(), self.nbytes) == 0
        return list(data)

float32, float16, uint8 = dtype("float32", 4), dtype("float16", 2), dtype("uint8", 1)

def empty(*shape, dtype=None, device=None): return Tensor(shape[0] if isinstance(shape[0], (tuple, list)) else shape, dtype)
def zeros(*shape, dtype=None, device=None): return empty(*shape, dtype=dtype).zero_()
def empty_like(tensor, requires_grad=False): return Tensor(tensor.shape, tensor.dtype)

# cuBLAS makes a workspace for a stream once and keeps it.
workspaces = {}
def mm(a, b):
    if streams[-1] not in workspaces: workspaces[streams[-1]] = empty(8 * M, dtype=uint8)
def addmm(bias, a, b): mm(a, b)

@contextlib.contextmanager
def no_grad(): yield

class MemPool:
    of = {}
    def __init__(self, allocator=None):
        self.id, self.uses, self.allocator = (0, next(numbers)), 1, allocator
        if hook and BACKEND != "native": hook.memprof_pool_hold(0, *self.id)
        import weakref
        MemPool.of[self.id] = self if allocator is None else weakref.proxy(self)
    def use_count(self): return self.uses
    def take(self, size):
        size = (size + 511) // 512 * 512
        for segment, (room, pool, blocks) in segments.items():
            if pool != self.id: continue
            at = max([offset + bytes for offset, bytes in blocks], default=0)
            if at + size <= room:
                blocks.append((at, size))
                return segment + at
        room = 2 * M if size <= M else 20 * M if size < 10 * M else (size + 2 * M - 1) // (2 * M) * (2 * M)
        segment = self.allocator[0](room, 0, None)
        assert segment, "out of memory"
        segments[segment] = (room, self.id, [(0, size)])
        return segment
    def __del__(self):
        if self.allocator is None: return
        assert self.uses == 1, "torch would end the process"
        for segment in [s for s in segments if segments[s][1] == self.id]:
            size, _, blocks = segments.pop(segment)
            assert not blocks
            self.allocator[1](segment, size, 0, None)

class CUDAPluggableAllocator:
    def __init__(self, path, alloc, free):
        self.alloc, self.free = getattr(ctypes.CDLL(path), alloc), getattr(ctypes.CDLL(path), free)
        self.alloc.restype = ctypes.c_void_p
        self.alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    def allocator(self): return (self.alloc, self.free)

class Pool:
    def __init__(self, id): self.id = id

class CUDAGraph:
    def __init__(self): self.id = None
    def capture_begin(self, pool=None, capture_error_mode="global"):
        self.id = pool or (next(numbers), 0)
        streams[-1].capturing = Pool(self.id)
        if self.id in MemPool.of: MemPool.of[self.id].uses += 1
        if hook and BACKEND != "native": hook.memprof_pool_begin(0, *self.id)
    def capture_end(self):
        streams[-1].capturing = None
        if hook and BACKEND != "native": hook.memprof_pool_end(0, *self.id)
    def pool(self): return self.id
    def replay(self): replayed.append(self)
    def reset(self):
        if self.id is None: return
        if self.id in MemPool.of: MemPool.of[self.id].uses -= 1
        if hook and BACKEND != "native": hook.memprof_release_pool(0, *self.id)
        self.id = None
replayed = []

capture_stream = Stream()
@contextlib.contextmanager
def graph(g, pool=None):
    with stream(capture_stream):
        if pool: g.capture_begin(pool, capture_error_mode="global")
        else: g.capture_begin(capture_error_mode="global")
        try: yield
        finally: g.capture_end()

@contextlib.contextmanager
def stream(s):
    streams.append(s)
    try: yield
    finally: streams.pop()

@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    pools.append(pool.id)
    try: yield
    finally: pools.pop()

# Times of events are what the test says.
clock = []
class Event:
    def __init__(self, enable_timing=False): assert enable_timing
    def record(self, stream): self.time = clock.pop(0)
    def synchronize(self): pass
    def elapsed_time(self, other): return other.time - self.time

def memory_snapshot():
    return [{"address": s, "blocks": [{"size": b, "requested_size": b, "state": "active_allocated"} for _, b in blocks]}
            for s, (size, pool, blocks) in segments.items()]

def module(name, **parts):
    sys.modules[name] = made = types.ModuleType(name)
    made.__dict__.update(parts)
    return made

class device:
    def __init__(self, kind, index=0): self.index = index
torch = module("torch", Tensor=Tensor, dtype=dtype, float32=float32, float16=float16, uint8=uint8, empty=empty, zeros=zeros,
    empty_like=empty_like, mm=mm, addmm=addmm, no_grad=no_grad, device=device)
torch.cuda = module("torch.cuda", init=lambda: None, get_allocator_backend=lambda: BACKEND, MemPool=MemPool, CUDAGraph=CUDAGraph,
    graph=graph, stream=stream, Stream=Stream, use_mem_pool=use_mem_pool, Event=Event, memory_snapshot=memory_snapshot,
    graph_pool_handle=lambda: (0, next(numbers)), empty_cache=lambda: None, current_stream=lambda device=None: streams[-1],
    device=lambda index: contextlib.nullcontext())
torch.cuda.memory = module("torch.cuda.memory", CUDAPluggableAllocator=CUDAPluggableAllocator)

import memprof

def free():
    bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda_driver.cuMemGetInfo_v2(ctypes.byref(bytes), ctypes.byref(total)) == 0
    return bytes.value // M

def bytes_of(megabytes): return torch.empty(int(megabytes * M), dtype=uint8)

def capture(pool, name, *sizes, **options):
    graph = torch.cuda.CUDAGraph()
    with pool.shape(name, **options) as shape:
        with torch.cuda.graph(graph):
            for size in sizes: bytes_of(size)
    return graph, shape
'''


@unittest.skipUnless(os.path.exists(LIBRARY) and os.path.exists(SIMULATION), "the hook is not built: make -C hooks dist")
class GraphMemoryTest(unittest.TestCase):
    def run_script(self, script, backend="pluggable", hooked=True):
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, PYTHONPATH=os.path.join(HOOKS, "python"))
            env.pop("MEMPROF_SPOOL", None)
            if hooked:
                links = os.path.join(folder, "sim")
                os.mkdir(links)
                os.symlink(SIMULATION, os.path.join(links, "libcuda.so.1"))
                env.update(LD_PRELOAD=LIBRARY, LD_LIBRARY_PATH=links, MEMPROF_SPOOL=folder, MEMPROF_OPTIONS="headroom=0,growth=needed")
            text = "BACKEND, HOOKED = %r, %r\n" % (backend, hooked) + TORCH + textwrap.dedent(script)
            done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.stderr, "")
            return done.stdout.split()

    ORDERS = """
        for order in ((1, 5, 3), (5, 3, 1), (1, 3, 5)):
            pool = memprof.GraphMemory()
            made = [capture(pool, "bs%d" % size, 2 * size, size) for size in order]
            print(pool.physical // M, pool.usage()["ranges"], [shape.extent // M for graph, shape in made])
            for graph, shape in made: shape.reset()
            print(pool.physical, pool.usage()["ranges"])
            pool.close()
        """

    def test_as_large_as_the_largest_in_any_order(self):
        out = self.run_script(self.ORDERS)
        self.assertEqual(" ".join(out), "10 3 [2, 10, 6] 0 0 10 3 [10, 6, 2] 0 0 10 3 [2, 6, 10] 0 0")

    def test_as_the_allocator_of_a_native_pool(self):
        # In segments: one of 20 MiB for what is below 10 MiB, and of 10 for 10.
        out = self.run_script(self.ORDERS, backend="native")
        self.assertEqual(" ".join(out), "20 3 [20, 10, 20] 0 0 20 3 [10, 20, 20] 0 0 20 3 [20, 20, 10] 0 0")

    BOTH = ("pluggable", "native")

    def test_what_lives_in_a_range_is_named(self):
        for backend in self.BOTH:
            out = self.run_script(
                """
                pool = memprof.GraphMemory()
                graph = torch.cuda.CUDAGraph()
                try:
                    with pool.shape("bs8"):
                        with torch.cuda.graph(graph):
                            bytes_of(4)
                            logits = bytes_of(1)
                except memprof.GraphMemoryError as error:
                    print(str(error).split(":")[0], len(error.blocks), error.blocks[0][1] // M, "uint8 [1048576]" in str(error), error.blocks[0][0] == logits.data_ptr())
                print(list(pool.shapes), pool.usage()["ranges"])
                graph.reset()
                del logits
                print(pool.usage()["ranges"] if BACKEND == "native" else hook.memprof_empty_cache(0) and 0)
                capture(pool, "bs8", 1)
                print(pool.usage()["ranges"])
                """,
                backend,
            )
            self.assertEqual(" ".join(out), "bs8 1 1 True True [] 1 0 1", backend)

    def test_outputs_are_outside(self):
        for backend in self.BOTH:
            out = self.run_script(
                """
                pool = memprof.GraphMemory()
                kept = pool.persistent(logits=((64, 4), uint8))
                graph = torch.cuda.CUDAGraph()
                with pool.shape("free") as shape:
                    with torch.cuda.graph(graph):
                        hidden, more = shape.output((bytes_of(1).fill(7), {"x": bytes_of(2).fill(8), "n": 3}))
                print(hidden.read()[0], more["x"].read()[-1], more["n"])
                with pool.shape("declared", outputs=kept) as shape:
                    with torch.cuda.graph(graph):
                        logits = shape.output(torch.empty(16, 4, dtype=uint8).fill(5))
                        try:
                            shape.output(bytes_of(1))
                        except ValueError as error:
                            print("more outputs" in str(error))
                print(logits.data_ptr() == kept.logits.data_ptr(), logits.shape[0], kept.logits.read()[63:65])
                with pool.shape("other", outputs=[kept.logits]) as shape:
                    try:
                        shape.output(torch.empty(65, 4, dtype=uint8))
                    except ValueError as error:
                        print("does not fit" in str(error))
                # What another shape does in its range does not reach them.
                graph2 = torch.cuda.CUDAGraph()
                with pool.shape("next"):
                    with torch.cuda.graph(graph2):
                        bytes_of(9).fill(1)
                print(hidden.read()[0], more["x"].read()[-1], kept.logits.read()[63:65])
                """,
                backend,
            )
            self.assertEqual(" ".join(out), "7 8 3 True True 16 [5, 0] True 7 8 [5, 0]", backend)

    def test_workspaces_stay_out_of_the_range(self):
        for backend in self.BOTH:
            out = self.run_script(
                """
                pool = memprof.GraphMemory()
                graphs = []
                for name in ("a", "b"):
                    graphs.append(torch.cuda.CUDAGraph())
                    with pool.shape(name) as shape:
                        with torch.cuda.graph(graphs[-1]):
                            mm(None, None)
                            bytes_of(1)
                    print(shape.extent // M)
                    workspaces.clear()
                    workspace = None
                """,
                backend,
            )
            self.assertEqual(out, ["2", "2"], backend)

    def test_piecewise_captures_share_a_range(self):
        for backend in self.BOTH:
            out = self.run_script(
                """
                pool = memprof.GraphMemory()
                first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
                with pool.shape("pieces") as shape:
                    with torch.cuda.graph(first):
                        between = bytes_of(0.5).fill(3)
                    with torch.cuda.graph(second):
                        other = bytes_of(0.5).fill(4)
                        print(between.read()[0], other.data_ptr() != between.data_ptr())
                    del between, other
                print(first.pool() == second.pool() == shape.pool, shape.extent // M)
                pool.release("pieces")
                first.reset()
                print(pool.usage()["ranges"])
                second.reset()
                print(pool.usage()["ranges"], list(pool.shapes))
                """,
                backend,
            )
            self.assertEqual(" ".join(out), "3 True True 2 1 0 []", backend)

    def test_two_replays_in_flight_are_named(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory(check=True)
            (a, _), (b, _) = capture(pool, "a", 1), capture(pool, "b", 1)
            other = torch.cuda.CUDAGraph()
            with torch.cuda.graph(other): pass
            clock[:] = [0, 10, 5, 15]
            a.replay(); b.replay()                        # on one stream
            second = Stream()
            clock[:] = [16, 20, 21, 25]
            with stream(second): a.replay()
            b.replay()                                    # the second waited
            clock[:] = [24, 30]
            with stream(second):
                try:
                    a.replay()
                except memprof.GraphMemoryError as error:
                    print("replay of a began before the replay of b was through" in str(error))
                other.replay()                            # is none of ours
            print(len(replayed), clock)
            """
        )
        self.assertEqual(" ".join(out), "True 6 []")

    def test_wrong_uses(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            capture(pool, "a", 1)
            for wrong in (lambda: capture(pool, "a", 1), lambda: pool.persistent(x=(4,)).update(x=torch.empty(5)), lambda: pool.persistent(x=(4,)).slices(5)):
                try:
                    wrong()
                except ValueError as error:
                    print(str(error).split()[-1])
            with pool.shape("b"):
                try:
                    capture(pool, "c", 1)
                except ValueError as error:
                    print(str(error).split()[-1])
            pool.close()
            try:
                capture(pool, "d", 1)
            except memprof.GraphMemoryError as error:
                print(str(error))
            print(list(pool.shapes))
            """
        )
        self.assertEqual(" ".join(out), "first 5 5 b d: the graph memory is closed []")

    def test_no_addresses_left(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory(reserve=2**20)
            try:
                capture(pool, "large", 3)
            except AssertionError as error:
                print(error)
            print(pool.usage()["physical"], pool.usage()["ranges"], list(pool.shapes))
            print(capture(pool, "small", 1)[1].extent // M)
            """
        )
        self.assertEqual(" ".join(out), "out of memory 0 1 [] 2")

    def test_persistent_buffers(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            buffers = pool.persistent(tokens=(6, 2), mask=((6,), uint8), like=torch.empty(6, dtype=uint8))
            print(buffers.tokens.dtype, buffers.mask.dtype, buffers.bytes)
            buffers.mask.fill(9)
            now = buffers.update(4, mask=torch.empty(3, dtype=uint8).fill(1), like=torch.empty(4, dtype=uint8).fill(2))
            print(len(now.mask), buffers.mask.read(), buffers.like.read(), hasattr(now, "tokens"))
            print(len(buffers.update(mask=torch.empty(2, dtype=uint8)).mask), len(buffers.slices(5).tokens))
            print(len(pool.persistent(tokens=7).tokens))
            try:
                pool.persistent(update=(4,))
            except ValueError as error:
                print("cannot be called update" in str(error))
            """
        )
        self.assertEqual(" ".join(out), "torch.float32 torch.uint8 60 4 [1, 1, 1, 0, 9, 9] [2, 2, 2, 2, 0, 0] False 2 5 7 True")

    def test_captures_are_named(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            buffers = pool.persistent(tokens=((100,), uint8), mask=((100, 2), uint8))
            library, said = memprof._graph_memory._library(), []
            library.memprof_capture_name = lambda *call: said.append(call)
            graph = torch.cuda.CUDAGraph()
            with pool.shape("bs 8") as shape:
                buffers.slices(8), buffers.slices(5)
                with torch.cuda.graph(graph): pass
            print(said == [(b"bs 8", *shape.pool, 24), (None, 0, 0, 0)])
            """
        )
        self.assertEqual(out, ["True"])

    def test_without_the_hook(self):
        out = self.run_script(
            """
            pool = memprof.GraphMemory()
            (a, first), (b, second) = capture(pool, "a", 1), capture(pool, "b", 1)
            print(pool.sharing, pool.physical, a.pool() == first.pool != second.pool == b.pool(), first.extent)
            first.reset(); pool.close(); print(list(pool.shapes))
            """,
            hooked=False,
        )
        self.assertEqual(" ".join(out), "False 0 True 0 []")


if __name__ == "__main__":
    unittest.main()
