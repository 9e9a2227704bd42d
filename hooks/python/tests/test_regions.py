"""Regions and pauses through the real hook, on the simulated GPU, in a process of its own."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HOOKS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.join(HOOKS, "dist", "libmemprof.so")
SIMULATION = os.path.join(HOOKS, "dist", "sim", "libcuda.so.1")

START = """
import ctypes, memprof, threading
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
hook = memprof._hook.library()
M = 2**20

def take(megabytes):
    return hook.memprof_malloc(megabytes * M, 0, None)

def free():
    bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(bytes), ctypes.byref(total)) == 0
    return bytes.value // M

def fill(ptr, value, megabytes):
    return cuda.cuMemsetD8_v2(ctypes.c_uint64(ptr), ctypes.c_ubyte(value), ctypes.c_size_t(megabytes * M))

def first(ptr):
    value = ctypes.c_ubyte()
    assert cuda.cuMemcpyDtoH_v2(ctypes.byref(value), ctypes.c_uint64(ptr), ctypes.c_size_t(1)) == 0
    return value.value
"""


@unittest.skipUnless(os.path.exists(LIBRARY) and os.path.exists(SIMULATION), "the hook is not built: make -C hooks dist")
class RegionsTest(unittest.TestCase):
    def run_script(self, script, hooked=True):
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, PYTHONPATH=os.path.join(HOOKS, "python"))
            if hooked:
                links = os.path.join(folder, "sim")
                os.mkdir(links)
                os.symlink(SIMULATION, os.path.join(links, "libcuda.so.1"))
                env.update(LD_PRELOAD=LIBRARY, LD_LIBRARY_PATH=links, MEMPROF_SPOOL=folder, MEMPROF_OPTIONS="headroom=0,growth=needed")
            text = (START if hooked else "import memprof\n") + textwrap.dedent(script)
            done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.stderr, "")
            return done.stdout.split()

    def test_pause_and_resume(self):
        out = self.run_script(
            """
            with memprof.region("kv"):
                kv = take(64)
                with memprof.region("weights", backup="host"):
                    weights = take(32)
                with memprof.region(None):
                    take(8)
                take(2)
            fill(weights, 7, 32)
            before = free()
            memprof.pause("kv")
            print(free() - before, memprof.usage()["kv"]["paused"] // M, memprof.usage()["weights"]["paused"] // M)
            memprof.pause()
            print(free() - before, memprof.usage()["weights"]["copied"] // M)
            memprof.resume("weights", "kv")
            print(free() - before, first(weights), fill(kv, 1, 64))
            """
        )
        self.assertEqual(out, ["66", "66", "0", "98", "32", "0", "7", "0"])

    def test_errors_say_what_was_wrong(self):
        out = self.run_script(
            """
            def code(call, *tags):
                try:
                    call(*tags)
                except memprof.PauseError as error:
                    print(error.code, "nobody" in str(error) or "kv" in str(error))
            code(memprof.pause, "nobody")
            with memprof.region("kv"): take(2)
            code(memprof.resume, "kv")
            memprof.pause("kv")
            code(memprof.pause, "kv")
            try:
                with memprof.region("x", backup="disk"): pass
            except ValueError:
                print("ValueError")
            """
        )
        self.assertEqual(out, ["2", "True", "3", "True", "3", "True", "ValueError"])

    def test_regions_are_the_threads_and_lent_to_backward(self):
        out = self.run_script(
            """
            import sys, types
            def engine():
                worker = threading.Thread(target=take, args=(4,))
                worker.start(); worker.join()
            for name in ("torch", "torch.autograd", "torch.autograd.graph"):
                sys.modules[name] = types.ModuleType(name)
            graph = sys.modules["torch.autograd.graph"]
            graph._engine_run_backward = sys.modules["torch.autograd"]._engine_run_backward = engine
            with memprof.region("grads"):
                engine()
                print(memprof.usage()["grads"]["live"] // M)
                graph._engine_run_backward()
                sys.modules["torch.autograd"]._engine_run_backward()
            graph._engine_run_backward()
            print(memprof.usage()["grads"]["live"] // M)
            """
        )
        self.assertEqual(out, ["0", "8"])

    def test_compatible_interface(self):
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            with saver.region(tag="a", enable_cpu_backup=True):
                x = take(16)
                with saver.disable():
                    take(16)
            fill(x, 9, 16)
            before = free()
            saver.pause("a"); print(free() - before)
            saver.resume("a"); print(free() - before, first(x))
            saver.pause(); saver.resume(); print(first(x))
            """
        )
        self.assertEqual(out, ["16", "0", "9", "9"])

    def test_compatible_interface_on_what_is_wrong(self):
        # A server pauses tags that it may have no memory of: there, too, nothing happens.
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import configure_subprocess, torch_memory_saver as saver
            saver.hook_mode, saver.memory_margin_bytes = "preload", 1 << 30
            with configure_subprocess(): pass
            saver.pause("cuda_graph"); saver.resume("cuda_graph"); saver.pause(); saver.resume()
            with saver.region(tag="a", cpu_backup_backend="pinned"): x = take(16)
            saver.resume("b")
            saver.pause("a")
            for wrong in (lambda: saver.pause("a"), lambda: saver.pause(), lambda: saver.resume("a") or saver.resume("a"), lambda: saver.region(enable_disk_backup=True)):
                try:
                    wrong()
                except (memprof.PauseError, NotImplementedError) as error:
                    print(type(error).__name__)
            """
        )
        self.assertEqual(out, ["PauseError"] * 3 + ["NotImplementedError"])
        out = self.run_script(
            """
            from memprof.compat.torch_memory_saver import torch_memory_saver as saver
            try:
                saver.pause("weights")
            except memprof.PauseError as error:
                print(error.code == error.NOT_ACTIVE)
            """,
            hooked=False,
        )
        self.assertEqual(out, ["True"])

    def test_shared_tag(self):
        # The simulation knows only its own process's memory: the other process is this one.
        out = self.run_script(
            """
            import pickle
            with memprof.region("weights"):
                x, y = take(64), take(3)
            fill(x, 5, 64), fill(y, 6, 3)
            shared = pickle.loads(pickle.dumps(memprof.share("weights")))
            with memprof.attach(shared) as weights:
                print(first(weights.address(x)), first(weights.address(y + 3 * M - 1)), weights.address(x) != x)
                print(weights.array(y, (3, 2), "<f4").__cuda_array_interface__["data"][0] == weights.address(y))
                fill(weights.address(x), 9, 1)
            print(first(x), first(x + M))
            import warnings
            weights = memprof.attach(shared)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                memprof.pause("weights")
                print(len(said), "yet only 0.00 GiB more are free" in str(said[0].message), said[0].filename)
                weights.close()
                memprof.resume("weights"); memprof.pause("weights")
                print(len(said))
            for wrong in (lambda: memprof.share("nobody"), lambda: weights.address(x), lambda: memprof.attach([("memprof-arena no 10", 16, 16)])):
                try:
                    wrong()
                except (RuntimeError, ValueError) as error:
                    print(type(error).__name__)
            """
        )
        self.assertEqual(out, ["5", "6", "True", "True", "9", "5", "1", "True", "<string>", "1", "RuntimeError", "ValueError", "RuntimeError"])

    def test_without_the_hook(self):
        out = self.run_script(
            """
            with memprof.region("kv", backup="host"): print("inside")
            print(memprof.usage())
            try:
                memprof.pause()
            except memprof.PauseError as error:
                print(error.code == memprof.PauseError.NOT_ACTIVE)
            """,
            hooked=False,
        )
        self.assertEqual(out, ["inside", "{}", "True"])


if __name__ == "__main__":
    unittest.main()
