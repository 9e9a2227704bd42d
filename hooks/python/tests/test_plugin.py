"""Torch's plug-in allocator, where there is no compiler: a made-up torch on the real hook and the simulated GPU."""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import spool  # noqa: E402

HOOKS = os.path.dirname(os.path.dirname(HERE))
LIBRARY = os.path.join(HOOKS, "dist", "libmemprof.so")
DRIVER = os.path.join(HOOKS, "dist", "sim", "libcuda.so.1")

# The symbols of torch's libraries that the hook throws by.
EXCEPTION = """
void _ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(void) {}
void _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_(void) {}
void _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev(void) {}
void _ZN3c105ErrorD1Ev(void) {}
void __cxa_allocate_exception(void) {}
void __cxa_throw(void) {}
"""
# The types of the exceptions that the plug-in throws.
TYPE = "char _ZTIN3c1016OutOfMemoryErrorE[16], _ZTIN3c105ErrorE[16];\n"

# As much of torch as the package touches. Its allocator calls the C functions that it was given, as torch's does.
TORCH = {
    "__init__.py": """
        __version__ = "9.9"
        from torch import _C, backends, cuda, nn, version
    """,
    "version.py": "cuda = '13.0'\n",
    "nn/__init__.py": "class Module: pass\n",
    "backends/__init__.py": "from torch.backends import cudnn\n",
    "backends/cudnn.py": """
        import sys, types
        from torch import _C
        class Flag:
            def __init__(self, read, write): self.read, self.write = read, write
            def __get__(self, module, kind): return self.read()
            def __set__(self, module, value): self.write(value)
        class Cudnn(types.ModuleType):
            benchmark = Flag(_C._get_cudnn_benchmark, _C._set_cudnn_benchmark)
        sys.modules[__name__] = Cudnn(__name__)
    """,
    "cuda/__init__.py": """
        import torch
        from torch.cuda import memory
        from torch.cuda.memory import MemPool
        def is_initialized(): return True
        def _lazy_call(call): call()
        def device_count(): return 1
        def current_device(): return 0
        def mem_get_info(device=0): return (1 << 29, 1 << 30)
        handles = [0]
        def graph_pool_handle():
            handles[0] += 1
            return (0, handles[0])
    """,
    "cuda/memory.py": """
        import torch
        class MemPool:
            def __init__(self): raise RuntimeError("CUDAPluggableAllocator does not yet support createOrIncrefPool")
        def memory_allocated(): return torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["current"]
    """,
    "_inductor/__init__.py": "",
    "_inductor/config.py": "class triton: cudagraph_trees = True\n",
    "_C/__init__.py": """
        import ctypes, os
        _GLIBCXX_USE_CXX11_ABI = True
        __file__ = os.environ["EXCEPTION"]
        ctypes.CDLL(__file__)
        lacks = os.environ.get("LACKS", "").split()
        class Allocator:
            def __getattr__(self, name):
                if not name.startswith("set_") or name in lacks: raise AttributeError(name)
                return lambda address: functions.__setitem__(name, address)
        functions, current = {}, []
        def _cuda_customAllocator(allocate, free):
            functions.update(allocate=allocate, free=free)
            return Allocator()
        def _cuda_changeCurrentAllocator(allocator):
            if os.environ.get("LATE"): raise RuntimeError("Can't swap an already initialized allocator")
            current.append(allocator)
        def raising(*arguments): raise RuntimeError("CUDAPluggableAllocator does not yet support it")
        _cuda_memoryStats = _cuda_getMemoryFraction = _cuda_memorySnapshot = _cuda_record_memory_history = raising
        _cuda_resetPeakMemoryStats = _cuda_setMemoryFraction = _cuda_isHistoryEnabled = raising
        asked = [False]
        def _get_cudnn_benchmark(): return asked[0]
        def _set_cudnn_benchmark(value): asked[0] = value
    """,
}

START = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
import torch  # sitecustomize has been waiting for it
U, P, I = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int
def function(name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)(torch._C.functions[name])
def allocate(size, stream=None): return function("allocate", P, ctypes.c_size_t, I, P)(size, 0, stream)
def free(ptr): function("free", None, P, ctypes.c_size_t, I, P)(ptr, 0, 0, None)
M = 1 << 20
"""

# A std::function<bool(cudaStream_t)> as libstdc++ lays it out, which accepts one stream.
FILTER = """
Manage = ctypes.CFUNCTYPE(I, P, P, I)
Call = ctypes.CFUNCTYPE(I, P, ctypes.POINTER(P))
class Filter(ctypes.Structure): _fields_ = [("state", P * 2), ("manage", Manage), ("call", Call)]
operations = []
def manage(to, source, operation):
    operations.append(operation)
    if operation == 2: ctypes.memmove(to, source, 16)
    return 0
def accepting(stream):
    return Filter((stream, None), Manage(manage), Call(lambda state, asked: P.from_address(state).value == asked[0]))
def begin(pool, filter): function("set_begin_allocate_to_pool", None, I, U, U, P)(0, 0, pool, ctypes.addressof(filter))
def end(pool): function("set_end_allocate_to_pool_fn", None, I, U, U)(0, 0, pool)
def release(pool): function("set_release_pool", None, I, U, U)(0, 0, pool)
def pools(): return {b["address"]: s["segment_pool_id"] for s in torch._C._cuda_memorySnapshot()["segments"] for b in s["blocks"]}
"""


@unittest.skipUnless(os.path.exists(LIBRARY) and os.path.exists(DRIVER), "the hook is not built (make hook)")
@unittest.skipUnless(shutil.which("cc"), "no C compiler, for a library with the symbols of torch's")
class PluginTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, text in TORCH.items():
            self.write(os.path.join("site", "torch", name), textwrap.dedent(text))
        self.tools = os.path.join(self.folder, "bin")  # all that PATH has: no compiler
        os.mkdir(self.tools)
        os.symlink(sys.executable, os.path.join(self.tools, "python3"))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        return path

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.complete, cls.untyped = (os.path.join(folder.name, name) for name in ("complete.so", "untyped.so"))
        for path, text in ((cls.complete, EXCEPTION + TYPE), (cls.untyped, EXCEPTION)):
            subprocess.run(["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-xc", "-o", path, "-"], input=text, text=True, check=True)

    def run_script(self, script, **environment):
        """What the script prints, as lines. The problems of the recording are in self.problems."""
        spooled = tempfile.mkdtemp(dir=self.folder)
        env = dict(os.environ, LD_PRELOAD=LIBRARY, LD_LIBRARY_PATH=os.path.dirname(DRIVER), MEMPROF_SPOOL=spooled)
        for name in ("CXX", "MEMPROF_SHIM", "MEMPROF_HOOKS", "MEMPROF_ALLOCATOR"):
            env.pop(name, None)
        env.update(MEMPROF_OPTIONS="headroom=0,preset=compact,handle=2097152", MEMPROF_SIM_MEMORY=str(1 << 30), PATH=self.tools, EXCEPTION=self.complete)
        env.update(PYTHONPATH=os.pathsep.join([os.path.dirname(HERE), os.path.join(self.folder, "site")]), MEMPROF_ATTRIBUTION="none")
        env.update(MEMPROF_SHIM_CACHE=os.path.join(self.folder, "cache"))
        env.update(environment)
        text = START + textwrap.dedent(script)
        done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.stderr, "")
        self.events, self.problems = [], ""
        for name in os.listdir(spooled):
            with open(os.path.join(spooled, name, "problems")) as f:
                self.problems = f.read().rstrip("\0")
            self.events = spool.read(spooled)
        return done.stdout.splitlines()

    def test_allocations_are_recorded_and_what_is_missing_is_said(self):
        out = self.run_script(
            """
            block = allocate(4 * M)
            print(torch.cuda.memory.memory_allocated() // M, allocate(0))
            free(block)
            print(torch.cuda.memory.memory_allocated(), torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"] // M)
            torch._C._cuda_resetPeakMemoryStats(0)
            print(torch._C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"])
            """
        )
        self.assertEqual(out, ["4 None", "0 4", "0"])
        self.assertEqual([(e["kind"], e["requested"]) for e in self.events if e["kind"] in ("alloc", "free")], [("alloc", 4 << 20), ("free", 4 << 20)])
        self.assertEqual(len(self.problems.splitlines()), 1)
        self.assertIn("torch 9.9: no C++ compiler found; install one, or build the shim elsewhere with `memprof doctor hooks build`", self.problems)
        self.assertIn("recorded by torch's plug-in allocator, without memory history, ", self.problems)

    def test_a_read_only_home(self):
        home = "/proc/self/home"  # nobody can make it, not even root
        self.run_script("allocate(M)", HOME=home, MEMPROF_SHIM_CACHE=os.path.join(home, "cache"), TMPDIR=self.folder)
        self.assertEqual([e["kind"] for e in self.events if e["kind"] == "alloc"], ["alloc"])
        self.assertEqual(len(self.problems.splitlines()), 1)

    def test_a_shim_that_cannot_be_loaded(self):
        self.run_script("allocate(M)", MEMPROF_SHIM=self.write("shim.so", "no library"))
        self.assertEqual([e["kind"] for e in self.events if e["kind"] == "alloc"], ["alloc"])
        self.assertRegex(self.problems, "shim.so: .*; recorded by torch's plug-in allocator")

    def test_streams_of_record_stream(self):
        out = self.run_script(
            """
            stream = P()
            assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
            block = allocate(M)
            driver.simcuda_hold_stream(stream)
            function("set_record_stream_fn", None, P, P)(block, stream)
            free(block)
            print(allocate(M) == block, [b["state"] for s in torch._C._cuda_memorySnapshot()["segments"] for b in s["blocks"] if b["address"] == block])
            driver.simcuda_release_stream(stream)
            """
        )
        self.assertEqual(out, ["False ['active_pending_free']"])

    def test_mem_pools(self):
        out = self.run_script(
            """
            pool = torch.cuda.MemPool()
            print(pool.id, pool.use_count(), pool.snapshot(), torch.cuda.MemPool is torch.cuda.memory.MemPool)
            other = torch.cuda.MemPool(allocator=object())
            print(other.id)
            """
        )
        self.assertEqual(out, ["(0, 1) 1 [] True", "(0, 2)"])
        self.assertIn("the allocator of a MemPool, which is not a CUDAPluggableAllocator, has no effect", self.problems)

    def test_a_mem_pool_takes_its_memory_from_the_jobs_plugin(self):
        out = self.run_script(
            FILTER
            + textwrap.dedent(
                """
                asked, freed = [], []
                def own_allocate(size, device, stream):
                    block = P()
                    assert driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)) == 0
                    asked.append((size, block.value))
                    return block.value
                def own_free(block, size, device, stream):
                    freed.append((size, block))
                    driver.cuMemFree_v2(P(block))
                own = ctypes.CFUNCTYPE(P, ctypes.c_size_t, I, P)(own_allocate), ctypes.CFUNCTYPE(None, P, ctypes.c_size_t, I, P)(own_free)
                hook = dict(torch._C.functions)
                plugin = torch._C._cuda_customAllocator(*(ctypes.cast(f, P).value for f in own))
                torch._C.functions.update(hook)
                pool = torch.cuda.MemPool(allocator=plugin)
                any_stream = accepting(None)
                begin(pool.id[1], any_stream)
                inside = allocate(M)
                end(pool.id[1])
                before = len(asked)  # 2 if the first was not at a page
                print(asked[-1][1] <= inside < asked[-1][1] + asked[-1][0], pools()[inside] == pool.id, allocate(M) != inside, len(asked) == before)
                free(inside)
                release(pool.id[1])
                del pool
                print(sorted(freed) == sorted(asked))
                """
            )
        )
        self.assertEqual(out, ["True True True True", "True"])
        self.assertEqual(self.problems.count("\n"), 1, self.problems)

    def test_limits(self):
        out = self.run_script(
            """
            print(torch._C._cuda_getMemoryFraction(0))
            torch._C._cuda_setMemoryFraction(0.25, 0)
            print(torch._C._cuda_getMemoryFraction(0), allocate(255 * M) is not None)
            """
        )
        self.assertEqual(out, ["1.0", "0.25 True"])

    def test_snapshots_tile_what_is_mapped(self):
        out = self.run_script(
            """
            blocks = [allocate(5000) for _ in range(3000)]
            for block in blocks[::2]: free(block)
            segments = torch._C._cuda_memorySnapshot()["segments"]
            at = [b["address"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
            print(len(at), set(at) == set(blocks[1::2]))
            print(all(s["address"] + s["total_size"] == s["blocks"][-1]["address"] + s["blocks"][-1]["size"] for s in segments))
            stats = torch._C._cuda_memoryStats(0)
            sums = dict(total_size="reserved_bytes", requested_size="requested_bytes", allocated_size="allocated_bytes", active_size="active_bytes")
            for key, stat in sums.items():
                by_pool = {pool: sum(s[key] for s in segments if s["segment_type"] == pool) for pool in ("small", "large")}
                print(key, by_pool["small"] + by_pool["large"] == stats[stat]["all"]["current"],
                      *[bytes == stats[stat][pool + "_pool"]["current"] for pool, bytes in by_pool.items()])
            """
        )
        self.assertEqual(out[:2], ["1500 True", "True"])
        self.assertEqual(out[2:], [key + " True True True" for key in ("total_size", "requested_size", "allocated_size", "active_size")])

    def test_what_torch_would_ask_and_raise(self):
        out = self.run_script(
            """
            allocate(M)
            torch._C._cuda_record_memory_history("all"); torch._C._cuda_record_memory_history(None)
            torch.backends.cudnn.benchmark = True
            print(torch.backends.cudnn.benchmark, torch._C._get_cudnn_benchmark(), torch._C.asked)
            import torch._inductor.config as config
            print(config.triton.cudagraph_trees, torch._C._cuda_isHistoryEnabled())
            """
        )
        self.assertEqual(out, ["True True [False]", "False False"])
        self.assertEqual(self.problems.count("_record_memory_history has no effect"), 1)

    def test_replaced_functions_are_pythons_own(self):
        out = self.run_script(
            """
            replaced = [f for name, f in vars(torch._C).items() if name.startswith("_cuda_") and name not in ("_cuda_customAllocator", "_cuda_changeCurrentAllocator")]
            print(len(replaced), len(set(replaced)), {type(f).__name__ for f in replaced})
            """
        )
        self.assertEqual(out, ["7 7 {'function'}"])

    def test_refusals_leave_torch_as_it_is(self):
        show = "print(torch._C.current, torch._C._cuda_memoryStats is torch._C.raising, torch.backends.cudnn.benchmark)"
        for problem, extra in (
            ("torch's libraries do not export the exception for failed requests", dict(EXCEPTION=self.untyped)),
            ("torch's plug-in allocator has no set_begin_allocate_to_pool, set_release_pool", dict(LACKS="set_begin_allocate_to_pool set_release_pool")),
            ("Can't swap an already initialized allocator", dict(LATE="1")),
        ):
            self.assertEqual(self.run_script(show, **extra), ["[] True False"])
            # Without CUDA there is no spool, so the problem is read from a process that uses it.
            self.run_script("driver.cuMemAlloc_v2(ctypes.byref(P()), M)", **extra)
            self.assertIn(problem, self.problems)
            self.assertIn("tensors are not recorded", self.problems)


if __name__ == "__main__":
    unittest.main()
