"""Recordings that a process begins itself, with the real hook on the simulated GPU, and with made-up torch and shim.

The shim reports what its functions are told to, as torch's tracker does.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import spool  # noqa: E402
from hooked import HOOKS, LIBRARY, SIMULATION  # noqa: E402

TOOL = os.environ.get("MEMPROF") or os.path.join(os.path.dirname(HOOKS), "bin", "memprof")

SHIM = """
#include <pthread.h>
#include "memprof.h"
static const uint64_t BASE = (uint64_t)0x7f00 << 32, MiB = 1 << 20;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of the allocator
static struct memprof_watch *watch;
static struct memprof_watch_sums sums;
static uint64_t next;
static int on;
static void read_sums(int device, struct memprof_watch_sums *out) { (void)device; *out = sums; }
#define SHOWN __attribute__((visibility("default")))
SHOWN const char *memprof_torch_install(void) { return "unused"; }
SHOWN const char *memprof_torch_watch(void) {
  watch = memprof_watch_device(0, "native", read_sums);
  if (watch == 0) return "this process is not recorded";
  sums.reserved = 20 * MiB;
  memprof_watch_adopt(watch, BASE, 0);
  memprof_watch_map(watch, 0, BASE, 20 * MiB, 0, 0, 0, 0);
  for (uint64_t block = next; block-- > 0;) {
    memprof_watch_adopt_block(watch, BASE + block * 2 * MiB, 2 * MiB);
    memprof_watch_alloc(watch, 0, BASE + block * 2 * MiB, 2 * MiB, 0, 0, 0);
  }
  on = 1;
  return 0;
}
SHOWN void memprof_torch_unwatch(void) { on = 0; }
SHOWN void take(void) {
  pthread_mutex_lock(&lock);
  if (on) memprof_watch_alloc(watch, 0, BASE + next * 2 * MiB, 2 * MiB, 0, 0, 0);
  next++;
  sums.provided = sums.active = sums.provided_peak = next * 2 * MiB;
  pthread_mutex_unlock(&lock);
}
SHOWN void refuse(void) {
  if (on) memprof_watch_oom(watch, 0, 1 << 30, 0, 0, 0);
}
"""

TORCH = """
import ctypes, os, sys, types
__version__ = "9.9"
version = types.SimpleNamespace(cuda="13.0")
_C = types.SimpleNamespace()
class _Cuda(types.SimpleNamespace):
    calls, ready = [], False
    def is_initialized(self): return self.ready
    def _lazy_call(self, call): self.calls.append(call)
    def get_allocator_backend(self): return "native"
    def device_count(self): return 1
    def get_device_properties(self, i): return types.SimpleNamespace(name="Pretended", total_memory=2**34, uuid="")
    def init(self):
        driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
        for call in self.calls: call()
        self.ready = True
cuda = _Cuda()
"""

START = """
import memprof, os, sys
def torch_shim():
    import ctypes
    ctypes.CDLL(%r)  # by whose name the shim finds it
    return ctypes.CDLL(os.environ["MEMPROF_SHIM"])
""" % LIBRARY


@unittest.skipUnless(os.path.exists(LIBRARY) and os.path.exists(SIMULATION) and shutil.which("cc"), "the hook is not built: make -C hooks dist")
class RecordingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.shim = os.path.join(folder.name, "shim.so")
        source = os.path.join(folder.name, "shim.c")
        with open(source, "w") as f:
            f.write(SHIM)
        command = ["cc", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I", os.path.join(HOOKS, "capture"), source, "-o", cls.shim, "-L", os.path.dirname(LIBRARY), "-l:libmemprof.so"]
        subprocess.run(command, check=True)
        cls.sim = os.path.join(folder.name, "sim")
        os.mkdir(cls.sim)
        os.symlink(SIMULATION, os.path.join(cls.sim, "libcuda.so.1"))
        os.mkdir(os.path.join(folder.name, "torch"))
        with open(os.path.join(folder.name, "torch", "__init__.py"), "w") as f:
            f.write(TORCH)
        cls.modules = folder.name

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_directory = os.path.join(folder.name, "run")

    def script(self, text, tool=False, expect="", **more):
        path = os.pathsep.join([os.path.join(HOOKS, "python"), self.modules])
        env = dict(os.environ, PYTHONPATH=path, LD_LIBRARY_PATH=self.sim, MEMPROF_SHIM=self.shim, RUN=self.run_directory, MEMPROF_ATTRIBUTION="none", PATH="/usr/bin:/bin", **more)
        env.pop("MEMPROF", None)
        if tool:
            env["MEMPROF"] = TOOL
        done = subprocess.run([sys.executable, "-c", START + textwrap.dedent(text)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.stderr, expect)
        return done.stdout.split()

    def events(self, directory=None):
        return [e for e in spool.read(os.path.join(directory or self.run_directory, "spool")) if e["kind"] != "stack"]

    def test_from_torchs_first_use_of_cuda(self):
        self.script(
            """
            import torch
            assert memprof.watch(os.environ["RUN"]) == os.environ["RUN"] and not memprof.recording()
            torch.cuda.init()
            assert memprof.recording()
            torch_shim().take()
            memprof.iteration("one")
            torch_shim().take()
            assert memprof.stop() == os.environ["RUN"] and not memprof.recording() and memprof.stop() is None
            torch_shim().take()
            """
        )
        events = self.events()
        self.assertEqual([e["kind"] for e in events], ["alloc", "iteration", "alloc"])
        with open(os.path.join(self.run_directory, "run.json")) as f:
            info = json.load(f)
        self.assertEqual((info["schema_version"], info["options"]["allocator"], info["gpus"][0]["memory"], info["frameworks"]), (1, "native", 2**34, ["torch 9.9"]))

    @unittest.skipIf(os.geteuid(), "only root can make another user's folder")
    def test_the_recording_of_another_user_is_not_joined(self):
        os.makedirs(os.path.join(self.run_directory, "spool"))
        os.chown(os.path.join(self.run_directory, "spool"), 65534, -1)
        said = "memprof: not recorded: %s: user 65534 records there, who would get this process's events\n" % self.run_directory
        self.script("import memprof._start\nimport torch\ntorch.cuda.init()\nassert not memprof.recording()", MEMPROF_WATCH=self.run_directory, expect=said)
        self.assertEqual(os.listdir(os.path.join(self.run_directory, "spool")), [])

    def test_before_torch_is_imported(self):
        self.script(
            """
            with memprof.watching(os.environ["RUN"]):
                import torch
                torch.cuda.init()
                torch_shim().take()
            """
        )
        self.assertEqual([e["kind"] for e in self.events()], ["alloc"])

    def test_in_the_middle_and_again(self):
        self.script(
            """
            import torch
            torch.cuda.init()
            torch_shim().take()
            memprof.watch(os.environ["RUN"])
            torch_shim().take()
            memprof.stop()
            torch_shim().take()
            memprof.watch(os.environ["RUN"] + "2")
            torch_shim().take()
            """
        )
        self.assertEqual([e["addr"] >> 20 & 0xFF for e in self.events()], [0, 2])
        self.assertEqual([e["addr"] >> 20 & 0xFF for e in self.events(self.run_directory + "2")], [4, 2, 0, 6])

    def test_a_process_that_ends_does_not_wait(self):
        """The driver's readings end at its exit, and again when the hook is unloaded."""
        (last,) = self.script(
            """
            import time, torch
            torch.cuda.init()
            memprof.watch(os.environ["RUN"])
            torch_shim().take()
            time.sleep(0.3)
            print(time.time())
            """
        )
        self.assertLess(time.time() - float(last), 0.8)

    def test_stacks_of_the_first_recording_only(self):
        self.script(
            """
            import torch
            torch.cuda.init()
            shim = torch_shim()
            for name, stacks in (("", True), ("2", False), ("3", True)):
                with memprof.watching(os.environ["RUN"] + name, stacks=stacks): shim.take()
            """
        )
        for name, expected in (("", True), ("2", False), ("3", True)):
            self.assertEqual("stack=" in self.events(self.run_directory + name)[-1]["context"], expected, name)

    def test_a_beginning_that_fails_or_is_stopped(self):
        """Nothing of it stays in the process, and another recording may begin."""
        self.script(
            """
            import torch
            from memprof import _place
            def refuse(*given): raise OSError("no process")
            collect, _place.collect = _place.collect, refuse
            describe = _place._os_name
            def stop_meanwhile():
                threading.Thread(target=memprof.stop).start()
                while _recording.place() is not None or _recording._current: time.sleep(0.001)
                return describe()
            import threading, time
            from memprof import _recording
            memprof.watch(os.environ["RUN"])
            _place._os_name = stop_meanwhile
            _place.collect = collect
            torch.cuda.init()
            assert not memprof.recording()
            _place._os_name, _place.collect = describe, refuse
            try: memprof.watch(os.environ["RUN"])
            except OSError: pass
            else: raise AssertionError
            assert not memprof.recording()
            _place.collect = collect
            memprof.watch(os.environ["RUN"])
            assert memprof.recording()
            """
        )

    def test_fork_while_another_thread_begins(self):
        self.script(
            """
            import signal, threading, warnings
            from memprof import _recording
            warnings.simplefilter("ignore")
            held, ended = threading.Event(), threading.Event()
            def begin():
                with _recording._lock: held.set(), ended.wait()
            threading.Thread(target=begin).start()
            held.wait()
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                os._exit(memprof.stop() is not None)
            ended.set()
            assert os.waitpid(child, 0)[1] == 0
            """
        )

    def test_nobody_requested_what_is_there_by_then(self):
        self.script(
            """
            import torch
            torch.cuda.init()
            shim = torch_shim()
            shim.take()
            memprof.watch(os.environ["RUN"], stacks=True)
            shim.take()
            """
        )
        self.assertEqual(["stack=" in e["context"] for e in self.events()], [False, True])

    def stacks(self, script):
        self.printed = self.script(
            """
            import ctypes, gc, threading, torch
            torch.cuda.init()
            shim = torch_shim()
            memprof.watch(os.environ["RUN"], stacks=True)
            """ + script
        )
        events = spool.read(os.path.join(self.run_directory, "spool"))
        return [[f.partition(" (")[0] for f in spool.stack_of(events, e)] for e in events if e["kind"] == "alloc"]

    def test_stacks(self):
        found = self.stacks(
            """
            def inner(): shim.take()  # ctypes releases the interpreter's lock, as torch does
            class Model:
                def forward(self):
                    inner()
            for _ in range(3): Model().forward()
            def grün(): inner()
            grün()
            """
        )
        name = "Model.forward" if sys.version_info >= (3, 11) else "forward"
        self.assertEqual(found, [["<module>", name, "inner"]] * 3 + [["<module>", "grün", "inner"]])

    def test_stacks_of_code_that_comes_and_goes(self):
        """An address of code that was freed never means the old code, in any thread."""
        script = """
            def work(n):
                for i in range(n):
                    scope = {"shim": shim}
                    exec("def made_%d(): shim.take()" % i, scope)
                    scope["made_%d" % i]()
                    del scope
            """
        expected = [["made_%d" % i] for i in range(300)]
        self.assertEqual([s[-1:] for s in self.stacks(script + """
            work(300)
            """)], expected)
        shutil.rmtree(self.run_directory)
        self.assertEqual([s[-1:] for s in self.stacks(script + """
            thread = threading.Thread(target=work, args=(300,))
            thread.start()
            thread.join()
            """)], expected)

    def test_stacks_while_the_main_thread_waits(self):
        """Frames of a thread are known after a while, although the main thread runs no instruction: a pair is cheap then."""
        script = """
            import time
            def model(depth):
                return model(depth - 1) if depth else shim.take()
            def work():
                for _ in range(4):
                    begun = time.perf_counter()
                    for _ in range(2000): model(40)
                    took.append(time.perf_counter() - begun)
                    time.sleep(0.3)
            took = []
            thread = threading.Thread(target=work)
            thread.start()
            ctypes.CDLL(None).sleep(2)
            thread.join()
            print(*took)
            """
        found = self.stacks(script)
        self.assertEqual({tuple(s[-42:]) for s in found}, {("work",) + ("model",) * 41})
        took = [float(t) for t in self.printed]
        self.assertLess(min(took[1:]), 2000 * 15e-6, took)  # each a call of 41 functions

    def test_stacks_wait_for_nothing(self):
        """A thread has the interpreter's lock and waits for the allocator's, while the other's frames are new."""
        found = self.stacks(
            """
            holding = ctypes.PyDLL(os.environ["MEMPROF_SHIM"])
            def hold():
                holding.take()
                begun.set()
                for _ in range(5000): any(t.is_alive() for t in workers) and holding.take()
            def work():
                begun.wait()
                for i in range(1000):
                    scope = {"shim": shim}
                    exec("def made(): shim.take()", scope)
                    scope["made"]()
            begun = threading.Event()
            workers = [threading.Thread(target=work) for _ in range(3)]
            sys.setswitchinterval(1e-5)
            for t in workers: t.start()
            hold()
            """
        )
        self.assertEqual(sorted({s[-1] for s in found}), ["hold", "made"])
        self.assertEqual([s[-1] for s in found].count("made"), 3000)

    def test_wrong_use(self):
        out = self.script(
            """
            import torch
            torch.cuda.init()
            memprof.watch(os.environ["RUN"])
            for wrong in (lambda: memprof.watch("other"), lambda: memprof.snapshot()):
                try: wrong()
                except (memprof.WatchError, FileNotFoundError) as error: print(type(error).__name__)
            memprof.stop()
            try: memprof.snapshot()
            except memprof.WatchError as error: print(error)
            """
        )
        self.assertEqual(out[:2], ["WatchError", "FileNotFoundError"])
        self.assertEqual(" ".join(out[2:]), "this process is not recorded: call memprof.watch(DIRECTORY) first")

    def test_by_the_environment(self):
        text = """
            import memprof._start
            import torch
            torch.cuda.init()
            torch_shim().take()
            """
        self.script(text, MEMPROF_WATCH=self.run_directory)
        self.assertEqual([e["kind"] for e in self.events()], ["alloc"])
        self.script(text, MEMPROF_WATCH=self.run_directory)  # another process, into the same directory
        self.assertEqual(len(os.listdir(os.path.join(self.run_directory, "spool"))), 2)

    def test_environment_that_cannot_be_recorded(self):
        blocked = os.path.join(self.modules, "blocked")
        with open(blocked, "w"):
            pass
        out = self.script("import memprof._start, torch\ntorch.cuda.init()\nprint('ok')", MEMPROF_WATCH=os.path.join(blocked, "run"),
                          expect="memprof: not recorded: [Errno 20] Not a directory: '%s/run'\n" % blocked)
        self.assertEqual(out, ["ok"])

    def test_start_costs_nothing_without_the_variable(self):
        with open(os.path.join(HOOKS, "python", "memprof.pth")) as f:
            line = f.read()
        out = self.script("""
            import time
            line = %r
            before = set(sys.modules)
            start = time.perf_counter()
            for _ in range(100): exec(line)
            print((time.perf_counter() - start) / 100 < 1e-3, set(sys.modules) - before)
            """ % line)
        self.assertEqual(out, ["True", "set()"])

    @unittest.skipUnless(os.path.exists(TOOL), "the command line tool is not built")
    def test_collected_and_completed(self):
        out = self.script(
            """
            import torch
            torch.cuda.init()
            torch_shim().take()
            memprof.watch(os.environ["RUN"])
            torch_shim().take()
            memprof.iteration()
            print(memprof.snapshot())
            torch_shim().take()
            print(memprof.stop())
            memprof.watch(os.environ["RUN"])
            torch_shim().take()
            print(memprof.stop())
            """,
            tool=True,
        )
        self.assertEqual(out, [self.run_directory + "-snapshot", self.run_directory, self.run_directory + "-2"])
        for directory, allocs in zip(out, (2, 3, 4)):
            done = subprocess.run([TOOL, "report", "--json", directory], check=True, stdout=subprocess.PIPE)
            (device,) = json.loads(done.stdout)["processes"][0]["devices"]
            self.assertEqual((device["allocs"], device["peak"]["requested"]), (allocs, allocs << 21), directory)
            subprocess.run([TOOL, "verify", directory], check=True, stdout=subprocess.PIPE)
            self.assertIn("the process began the recording itself", json.dumps(device["accounting"]))
            self.assertIn([b["what"] for b in device["summary"]["beside"]], ([], ["all else in use"]))

    @unittest.skipUnless(os.path.exists(TOOL), "the command line tool is not built")
    def test_attach(self):
        out = self.script(
            """
            import stat, subprocess, torch
            from memprof import _control
            run, tool = os.environ["RUN"], os.environ["MEMPROF"]
            def attach(*words):
                done = subprocess.run([tool, "attach", str(os.getpid()), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                print(done.returncode, (done.stdout or done.stderr).replace(str(os.getpid()), "N").replace(" ", "_").split("\\n")[0])
            attach()
            torch.cuda.init()
            socket = os.path.join(_control.folder(), "%d.sock" % os.getpid())
            print(oct(stat.S_IMODE(os.stat(socket).st_mode)), oct(stat.S_IMODE(os.stat(_control.folder()).st_mode)))
            import socket as sockets
            with sockets.socket(sockets.AF_UNIX) as wrong:  # it does not end the thread that answers
                wrong.connect(socket)
                wrong.sendall(b"[" * 60000 + b"\\n")
                assert wrong.recv(1) == b""
            attach()
            attach("start", run)
            torch_shim().take()
            attach("start", run)
            attach("snapshot", run + "-now")
            torch_shim().take()
            attach("stop")
            attach("snapshot", run + "-then")
            import warnings; warnings.simplefilter("ignore")  # the process has a thread more, as each that uses CUDA has
            if os.fork() == 0: os._exit(_control._listening is not None)
            print(os.wait()[1])
            """,
            tool=True,
        )
        self.assertIn("process_N_has_no_memprof_in_it_that_listens", out[1])
        self.assertEqual([out[0]] + out[2:5], ["2", "0o600", "0o700", "0"])
        self.assertEqual(out[5], "process_N_is_not_recorded;_next:_memprof_attach_N_start_DIR")
        self.assertEqual(out[6:8], ["0", "process_N_is_recorded_into_%s;_next:_memprof_top_%s,_memprof_attach_N_stop" % ((self.run_directory,) * 2)])
        self.assertEqual(out[8:10], ["2", "memprof:_process_N:_this_process_is_recorded_into_%s_already:_call_memprof.stop()_first" % self.run_directory])
        self.assertEqual(out[10], "0")
        self.assertEqual(out[12:14], ["0", "process_N_is_not_recorded_any_more;_next:_memprof_report_%s" % self.run_directory])
        self.assertEqual(out[14:], ["2", "memprof:_process_N_is_not_recorded:_memprof_attach_N_start_DIR_does_so", "0"])
        for directory, allocs in ((self.run_directory + "-now", 1), (self.run_directory, 2)):
            done = subprocess.run([TOOL, "report", "--json", directory], check=True, stdout=subprocess.PIPE)
            self.assertEqual(json.loads(done.stdout)["processes"][0]["devices"][0]["allocs"], allocs)

    @unittest.skipUnless(os.path.exists(TOOL), "the command line tool is not built")
    def test_ring(self):
        self.script(
            """
            import torch
            torch.cuda.init()
            memprof.watch(os.environ["RUN"], ring="16MiB")
            torch_shim().take()
            torch_shim().refuse()
            memprof.stop()
            """,
            tool=True,
        )
        done = subprocess.run([TOOL, "report", "--json", self.run_directory + "-snapshot"], check=True, stdout=subprocess.PIPE)
        (device,) = json.loads(done.stdout)["processes"][0]["devices"]
        self.assertEqual(len(device["ooms"]), 1)


if __name__ == "__main__":
    unittest.main()
