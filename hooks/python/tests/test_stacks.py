"""Python stacks of allocations, in processes that run on the simulated GPU."""

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

START = """
import ctypes, sys, threading
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
from memprof import _calls
hook = _calls.Hook()
def allocate(size=256):
    return hook.memprof_malloc(size, 0, None)
"""

EXTENSION = """
#include <cstddef>
extern "C" void *memprof_malloc(size_t, int, void *);
#define KEEP __attribute__((noinline))                           // in the stack
#define USE(...) asm volatile("" ::__VA_ARGS__ : "memory")      // no tail call
namespace at {
KEEP void *empty(int size) { void *block = memprof_malloc((size_t)size, 0, nullptr); USE("r"(block)); return block; }
}
namespace ours {
KEEP void *alpha(size_t size) { char own[600]; void *block = memprof_malloc(size, 0, nullptr); USE("r"(own), "r"(block)); return block; }
template <class T> struct Beta {
  KEEP void *operator()(T size) { void *block = memprof_malloc((size_t)size, 0, nullptr); USE("r"(block)); return block; }
};
template struct Beta<int>;
template <class T> KEEP T *through_header(int size) { T *block = (T *)at::empty(size); USE("r"(block)); return block; }
template void *through_header<void>(int);
KEEP static void *hidden(size_t size) { char own[300]; void *block = memprof_malloc(size, 0, nullptr); USE("r"(own), "r"(block)); return block; }
}
extern "C" void call(int way, int size) {
  if (way == 0) ours::alpha(256 + size);
  else if (way == 1) ours::Beta<int>()(256 + size);
  else if (way == 2) ours::hidden(256 + size);
  else ours::through_header<void>(256 + size);
}
static void nameless(int size) { ours::hidden(256 + size); }
extern "C" { void (*entry)(int) = nameless; }
"""


@unittest.skipUnless(os.path.exists(LIBRARY) and os.path.exists(DRIVER), "the hook is not built (make hook)")
@unittest.skipIf(sys.version_info < (3, 9), "frames are read from Python 3.9 on")
class StacksTest(unittest.TestCase):
    def record(self, script, options="stacks=1"):
        """Runs START and the script as job.py; its events."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path, spooled = os.path.join(folder.name, "job.py"), os.path.join(folder.name, "spool")
        os.mkdir(spooled)
        with open(path, "w") as f:
            f.write(START.lstrip() + textwrap.dedent(script))
        self.source = (START.lstrip() + textwrap.dedent(script)).splitlines()
        env = dict(os.environ, LD_PRELOAD=LIBRARY, LD_LIBRARY_PATH=os.path.dirname(DRIVER), MEMPROF_SPOOL=spooled)
        env.update(MEMPROF_OPTIONS=options, MEMPROF_SIM_MEMORY=str(1 << 30), PYTHONPATH=os.path.dirname(HERE))
        done = subprocess.run([sys.executable, path], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 0)
        self.output = done.stdout
        for name in os.listdir(spooled):
            with open(os.path.join(spooled, name, "problems")) as f:
                self.assertEqual(f.read().rstrip("\0"), "")
        return spool.read(spooled)

    def stacks(self, events):
        """Of each allocation the frames as `function: source line`, outermost first."""
        said = []
        for event in events:
            if event["kind"] != "alloc":
                continue
            frames = []
            for frame in spool.stack_of(events, event):
                name, _, place = frame.partition(" (")
                frames.append("%s: %s" % (name, self.source[int(place.rstrip(")").rpartition(":")[2]) - 1].strip()))
            said.append(frames)
        return said

    def test_only_while_wanted(self):
        for options in ("", "stacks=1"):
            events = self.record(
                """
                import memprof
                memprof.stacks(False)
                allocate()
                memprof.stacks()
                allocate()
                memprof.stacks(False)
                allocate()
                """,
                options,
            )
            leaf = "allocate: return hook.memprof_malloc(size, 0, None)"
            self.assertEqual(self.stacks(events), [[], ["<module>: allocate()", leaf], []])

    def test_functions_and_lines(self):
        events = self.record(
            """
            def inner():
                allocate()
                return allocate()
            def outer():
                inner()
                allocate(
                )
            outer()
            class C:
                def __init__(self): inner()
            [C() for _ in range(1)]
            """
        )
        leaf = "allocate: return hook.memprof_malloc(size, 0, None)"
        module, outer = "<module>: outer()", "outer: inner()"
        first, second = "inner: allocate()", "inner: return allocate()"
        made = ["<module>: [C() for _ in range(1)]", "C.__init__: def __init__(self): inner()"]
        # Comprehensions have had frames of their own, and classes no part in a name.
        found = [["C." + f if f.startswith("__init__") else f for f in s if not f.startswith("<listcomp>")] for s in self.stacks(events)]
        self.assertEqual(
            found,
            [
                [module, outer, first, leaf],
                [module, outer, second, leaf],
                [module, "outer: allocate(", leaf],
                made + [first, leaf],
                made + [second, leaf],
            ],
        )

    def test_each_node_once_and_before_its_use(self):
        events = self.record(
            """
            def a(): return allocate()
            def b(): return allocate()
            for i in range(1000): hook.memprof_free((a if i % 2 else b)(), 0, 0, None)
            """
        )
        nodes = [e for e in events if e["kind"] == "stack"]
        # The module; a and b; allocate in each.
        self.assertEqual([n["requested"] for n in nodes], [1, 2, 3, 4, 5])
        self.assertEqual([n["provided"] for n in nodes], [0, 1, 2, 1, 4])
        self.assertEqual(len([e for e in events if e["kind"] == "alloc"]), 1000)
        known = set()
        for event in events:
            if event["kind"] == "stack":
                known.add(event["requested"])
            if event["kind"] == "alloc":
                self.assertIn(int(event["context"].partition("stack=")[2]), known)

    def test_recursion_and_generators(self):
        events = self.record(
            """
            def down(n):
                return down(n - 1) if n else allocate()
            down(3)
            def steps():
                yield allocate()
            list(steps())
            def deep(n):
                return deep(n - 1) if n else allocate()
            deep(400)
            """
        )
        stacks = self.stacks(events)
        self.assertEqual([f.partition(":")[0] for f in stacks[0]], ["<module>"] + ["down"] * 4 + ["allocate"])
        self.assertEqual([f.partition(":")[0] for f in stacks[1]], ["<module>", "steps", "allocate"])
        self.assertEqual([f.partition(":")[0] for f in stacks[2]], ["deep"] * 255 + ["allocate"])  # the innermost

    def test_threads(self):
        events = self.record(
            """
            def work(n):
                for _ in range(n): hook.memprof_free(allocate(), 0, 0, None)
            threads = [threading.Thread(target=work, args=(500,), name=str(i)) for i in range(4)]
            for t in threads: t.start()
            for t in threads: t.join()
            allocate()
            """
        )
        stacks = self.stacks_of_names(events)
        self.assertEqual(stacks.pop(), ["<module>", "allocate"])
        self.assertEqual(len(stacks), 2000)
        for stack in stacks:
            self.assertEqual(stack[-2:], ["work", "allocate"])
            self.assertNotIn("<module>", stack)

    def stacks_of_names(self, events):
        return [[f.partition(" (")[0] for f in spool.stack_of(events, e)] for e in events if e["kind"] == "alloc"]

    def test_code_that_comes_and_goes(self):
        """An address of code that was freed never means the old code."""
        events = self.record(
            """
            for i in range(300):
                scope = {"allocate": allocate}
                exec("def made_%d(): return allocate()" % i, scope)
                hook.memprof_free(scope["made_%d" % i](), 0, 0, None)
            """
        )
        self.assertEqual(self.stacks_of_names(events), [["<module>", "made_%d" % i, "allocate"] for i in range(300)])

    def test_more_steps_than_a_table_begins_with(self):
        events = self.record(
            """
            scope = {"allocate": allocate}
            exec("\\n".join("def made_%d(): return allocate()" % i for i in range(3000)), scope)
            for _ in range(2):
                for i in range(3000): hook.memprof_free(scope["made_%d" % i](), 0, 0, None)
            """
        )
        self.assertEqual(self.stacks_of_names(events), 2 * [["<module>", "made_%d" % i, "allocate"] for i in range(3000)])

    def test_beside_the_module(self):
        events = self.record(
            """
            hook.memprof_set_context(b"module=fc")
            allocate()
            """
        )
        (alloc,) = [e for e in events if e["kind"] == "alloc"]
        self.assertEqual(alloc["context"], "module=fc\tstack=2")

    def test_off(self):
        events = self.record("allocate()", options="")
        self.assertEqual([e["context"] for e in events if e["kind"] == "alloc"], [""])
        self.assertEqual([e for e in events if e["kind"] == "stack"], [])

    def test_our_own_frames_are_left_out(self):
        events = self.record(
            """
            from memprof import _hook
            _hook.harmless(allocate)()
            """
        )
        self.assertEqual(self.stacks_of_names(events), [["<module>", "allocate"]])

    @unittest.skipUnless(shutil.which("c++"), "no C++ compiler")
    def test_functions_of_extensions(self):
        """Of an extension of torch the innermost function is named, for each way that one line of Python takes to it."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)

        def build(name, text, *arguments):
            path = os.path.join(folder.name, name)
            command = ["c++", "-O1", "-fPIC", "-shared", "-x", "c++", "-", "-x", "none", "-Wl,--no-as-needed", *arguments, "-o", path]
            subprocess.run(command, input=text, text=True, check=True)
            return path

        torch = build("libc10.so", "", "-Wl,-soname,libc10.so")
        extension = build("fused.cpython-311.so", EXTENSION, torch, LIBRARY, "-Wl,-rpath," + folder.name)
        build("plain.so", EXTENSION, LIBRARY)  # needs nothing of torch
        events = self.record(
            f"""
            allocate()
            plain = ctypes.CDLL({os.path.join(folder.name, "plain.so")!r})
            plain.call(0, 0)
            fused = ctypes.CDLL({extension!r})
            for way in (0, 1, 2, 0, 3):
                for _ in range(20): fused.call(way, 100 * way)
            ctypes.CFUNCTYPE(None, ctypes.c_int)(ctypes.c_void_p.in_dll(fused, "entry").value)(7)
            allocate()
            """
        )
        names = [spool.stack_of(events, e)[-1] for e in events if e["kind"] == "alloc"]
        self.assertRegex(names.pop(0), r"^allocate \(.*job.py:")
        self.assertRegex(names.pop(0), r"^<module> \(.*job.py:")
        self.assertRegex(names.pop(), r"^allocate \(.*job.py:")
        self.assertRegex(names.pop(), r"^\+0x[0-9a-f]+ \(fused.so\)$")  # none of the functions has a symbol
        functions = ["ours::alpha", "ours::Beta<int>::operator()", "call", "ours::alpha", "ours::through_header<void>"]
        self.assertEqual(names, [name + " (fused.so)" for name in functions for _ in range(20)])
        self.assertEqual(len([e for e in events if e["kind"] == "stack"]), 12)

    def test_while_python_goes_down(self):
        events = self.record(
            """
            class Last:
                def __del__(self, allocate=allocate): allocate()
            import atexit
            atexit.register(allocate)
            sys.last = Last()
            """
        )
        self.assertGreaterEqual(len([e for e in events if e["kind"] == "alloc"]), 1)


if __name__ == "__main__":
    unittest.main()
