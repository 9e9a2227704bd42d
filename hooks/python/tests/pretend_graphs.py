"""A made-up torch for graph memory, over the real hook: tensors, streams, graphs and memory pools.

A capture's requests go to its pool. `TORCH` is the start of a script, to be run where HOOKED says
whether the hook is loaded.
"""

TORCH = '''
import contextlib, ctypes, itertools, sys, types
from memprof import _calls

class dtype:
    def __init__(self, name, itemsize): self.name, self.itemsize = name, itemsize
    def __str__(self): return "torch." + self.name

M = 2**20
hook = _calls.Hook() if HOOKED else None
if hook:
    cuda_driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda_driver.cuInit(0) == 0 and cuda_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda_driver.cuCtxSetCurrent(context) == 0
    word = ctypes.c_uint64
    cuda_driver.cuMemsetD8_v2.argtypes = [word, ctypes.c_ubyte, ctypes.c_size_t]
    cuda_driver.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, word, ctypes.c_size_t]
    cuda_driver.cuMemcpyDtoD_v2.argtypes = [word, word, ctypes.c_size_t]

class Stream:
    def __init__(self, device=0): self.capturing = None
streams, pools = [Stream()], [(0, 0)]
numbers = itertools.count(1)
others = {}  # without the hook: what was allocated

def pool_now():
    capture = streams[-1].capturing
    return capture.id if capture else pools[-1]

def take(size):
    pool = pool_now()
    if not hook:
        addr = 2**40 + next(numbers) * 2**30
        others[addr] = bytearray(size)
        return addr
    addr = hook.memprof_malloc_in_pool(size, 0, None, *pool)
    assert addr, "out of memory"
    return addr

def give(addr):
    if addr in others: del others[addr]; return
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

def is_current_stream_capturing(): return streams[-1].capturing is not None
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
    def __init__(self):
        self.id = (0, next(numbers))
        if hook: hook.memprof_pool_hold(0, *self.id)

class Pool:
    def __init__(self, id): self.id = id

class Captured:
    """The captured part of a graph. As in torch, it is destroyed after the callbacks of weak references to the graph."""
    id = None
    def reset(self):
        if self.id is None: return
        if hook: hook.memprof_release_pool(0, *self.id)
        self.id = None
    __del__ = reset

class CUDAGraph:
    def __init__(self): self.captured = Captured()
    def capture_begin(self, pool=None, capture_error_mode="global"):
        id = self.captured.id = pool or (next(numbers), 0)
        streams[-1].capturing = Pool(id)
        if hook: hook.memprof_pool_begin(0, *id)
    def capture_end(self):
        streams[-1].capturing = None
        if hook: hook.memprof_pool_end(0, *self.captured.id)
    def pool(self): return self.captured.id
    def replay(self): replayed.append(self)
    def reset(self): self.captured.reset()
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

def empty_cache(): assert all(s.capturing is None for s in streams), "torch would end the process"

def memory_snapshot():
    from memprof._plugin_memory import Memory
    return Memory(torch, hook).segments(0)

def module(name, **parts):
    sys.modules[name] = made = types.ModuleType(name)
    made.__dict__.update(parts)
    return made

class device:
    def __init__(self, kind, index=0): self.index = index
torch = module("torch", Tensor=Tensor, dtype=dtype, float32=float32, float16=float16, uint8=uint8, empty=empty, zeros=zeros,
    empty_like=empty_like, mm=mm, addmm=addmm, no_grad=no_grad, device=device)
torch.cuda = module("torch.cuda", init=lambda: None, get_allocator_backend=lambda: "native", MemPool=MemPool, CUDAGraph=CUDAGraph,
    graph=graph, stream=stream, Stream=Stream, use_mem_pool=use_mem_pool, Event=Event, memory_snapshot=memory_snapshot,
    graph_pool_handle=lambda: (0, next(numbers)), empty_cache=empty_cache, current_stream=lambda device=None: streams[-1],
    device=lambda index: contextlib.nullcontext(), is_current_stream_capturing=is_current_stream_capturing)

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
