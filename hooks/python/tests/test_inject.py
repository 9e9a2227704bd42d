"""The injection, tested on a made-up torch in a process of its own; and what waits for a module, in this process."""

import os
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), PYTHON]

import pretend  # noqa: E402
from memprof import _inject  # noqa: E402


class InjectTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
        return path

    def run_python(self, script, recording=True, **environment):
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([PYTHON, self.folder.name]), **environment)
        env.pop("MEMPROF_SPOOL", None)
        if recording:
            env["MEMPROF_SPOOL"] = self.folder.name
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 0)
        return done.stdout

    def run_hooked(self, script):
        return self.run_python(textwrap.dedent(pretend.HOOK) + textwrap.dedent(script))

    def test_shadowed_sitecustomize_runs(self):
        self.write("sitecustomize.py", "import sys\nsys.shadowed = __name__\n")
        self.assertEqual(self.run_python("import sys; print(sys.shadowed)"), "sitecustomize\n")
        self.assertEqual(self.run_python("import sys; print(sys.shadowed)", recording=False), "sitecustomize\n")

    def test_one_of_another_memprof_runs_once(self):
        # As where a recorded job runs another version of memprof.
        with open(os.path.join(PYTHON, "sitecustomize.py")) as f:
            self.write("sitecustomize.py", "import sys\nsys.times = getattr(sys, 'times', 0) + 1\n" + f.read())
        self.assertEqual(self.run_python("import sys; print(sys.times)"), "1\n")

    def test_no_finder_without_recording(self):
        out = self.run_python("import sys; print([f for f in sys.meta_path if type(f).__name__ == '_Finder'])", recording=False)
        self.assertEqual(out, "[]\n")

    def test_installs_after_torch_has_run(self):
        pretend.write_torch(self.folder.name)
        out = self.run_hooked(
            """
            import torch
            print(torch.executed, calls[0])
            """
        )
        self.assertEqual(out, "True ('note_framework', b'torch 9.9')\n")

    def test_asking_for_the_spec_does_not_lose_torch(self):
        pretend.write_torch(self.folder.name)
        out = self.run_hooked(
            """
            import importlib.util
            importlib.util.find_spec("torch")
            importlib.util.find_spec("torch")
            import torch, sys
            print(calls)
            print(type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__)
            print([f for f in sys.meta_path if type(f).__name__ == "_Finder" and f._name == "torch"])
            """
        )
        self.assertEqual(out, "[('note_framework', b'torch 9.9'), ('install', '9.9')]\nSourceFileLoader SourceFileLoader\n[]\n")

    def test_marks_are_no_ops_when_not_recording(self):
        out = self.run_python(
            """
            import memprof
            memprof.iteration()
            memprof.label(None, "weights")
            with memprof.phase("x", uses=["kv_cache"]): pass
            print(memprof.recording())
            """,
            recording=False,
        )
        self.assertEqual(out, "False\n")

    def test_the_asynchronous_backend_stays(self):
        pretend.write_torch(self.folder.name)
        with open(os.path.join(self.folder.name, "torch", "cuda.py"), "w") as f:
            f.write("def get_allocator_backend(): return 'cudaMallocAsync'\n")
        with open(os.path.join(self.folder.name, "torch", "__init__.py"), "a") as f:
            f.write("from torch import cuda\n")
        out = self.run_hooked(
            """
            import torch
            print([c[0] for c in calls], calls[-1][1].decode().partition(":")[2].partition(",")[0])
            """
        )
        self.assertEqual(out, "['note_framework', 'problem']  the job has chosen backend:cudaMallocAsync\n")

    def test_a_failing_shim_does_not_fail_the_import(self):
        pretend.write_torch(self.folder.name)
        out = self.run_hooked(
            """
            def broken(torch): raise RuntimeError("no compiler")
            shim.install = broken
            import torch
            print(calls[-1])
            """
        )
        self.assertEqual(out, "('problem', b'torch: RuntimeError: no compiler; tensors are not recorded')\n")


class WaitTest(unittest.TestCase):
    def setUp(self):
        self.found, before = [], list(sys.meta_path)
        self.addCleanup(sys.meta_path.__setitem__, slice(None), before)

    def wait(self, name):
        _inject.wait_for(name, self.found.append, "nothing is lost")
        self.addCleanup(sys.modules.pop, name, None)

    def test_a_module_that_is_there(self):
        module = sys.modules["memprof_test_there"] = types.ModuleType("memprof_test_there")
        self.wait("memprof_test_there")
        self.assertEqual(self.found, [module])

    def test_a_module_that_is_imported_later(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "memprof_test_later.py"), "w") as f:
                f.write("done = True\n")
            sys.path.insert(0, folder)
            self.addCleanup(sys.path.remove, folder)
            self.wait("memprof_test_later")
            self.assertEqual(self.found, [])
            import memprof_test_later
        self.assertEqual(self.found, [memprof_test_later])

    def test_a_module_that_is_being_imported(self):
        module = sys.modules["memprof_test_half"] = types.ModuleType("memprof_test_half")
        module.__spec__ = types.SimpleNamespace(_initializing=True)
        self.wait("memprof_test_half")
        self.assertEqual(self.found, [])


if __name__ == "__main__":
    unittest.main()
