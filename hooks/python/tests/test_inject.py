"""The injection, tested on a made-up torch in a process of its own."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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

    def fake_torch(self):
        self.write("torch/__init__.py", "import torch.optim\n__version__ = '9.9'\nexecuted = True\n")
        self.write("torch/optim/__init__.py", "import torch.optim.optimizer\noptimizer = 'rebound'\n")
        self.write(
            "torch/optim/optimizer.py",
            """
            hooks = {}

            class Handle:
                def __init__(self, key): self.key = key
                def remove(self): del hooks[self.key]

            def register_optimizer_step_post_hook(hook):
                hooks[len(hooks)] = hook
                return Handle(len(hooks) - 1)

            class Optimizer:
                def step(self):
                    for hook in list(hooks.values()): hook(self, (), {})
            """,
        )

    # A stand-in for the hook, so that the calls can be seen.
    WATCH = """
    import memprof._native as native, memprof._shim as shim
    calls = []
    class Library:
        def __getattr__(self, name):
            return lambda *a: calls.append((name[len("memprof_"):],) + a) or 1
    native.library = lambda: Library()
    shim.install = lambda torch: calls.append(("install", torch.__version__))
    """

    def watched(self, script):
        return self.run_python(textwrap.dedent(self.WATCH) + textwrap.dedent(script))

    def test_shadowed_sitecustomize_runs(self):
        self.write("sitecustomize.py", "import sys\nsys.shadowed = __name__\n")
        self.assertEqual(self.run_python("import sys; print(sys.shadowed)"), "sitecustomize\n")
        self.assertEqual(self.run_python("import sys; print(sys.shadowed)", recording=False), "sitecustomize\n")

    def test_no_finder_without_recording(self):
        out = self.run_python("import sys; print([f for f in sys.meta_path if type(f).__name__ == '_Finder'])", recording=False)
        self.assertEqual(out, "[]\n")

    def test_installs_after_torch_has_run(self):
        self.fake_torch()
        out = self.watched(
            """
            import torch
            torch.version = None
            print(torch.executed, calls[0])
            """
        )
        self.assertEqual(out, "True ('note_framework', b'torch 9.9')\n")

    def test_asking_for_the_spec_does_not_lose_torch(self):
        self.fake_torch()
        self.write("torch/version.py", "cuda = '13.0'\n")
        self.write("torch/__init__.py", "import torch.optim, torch.version\n__version__ = '9.9'\n")
        out = self.watched(
            """
            import importlib.util
            importlib.util.find_spec("torch")
            importlib.util.find_spec("torch")
            import torch, sys
            print(calls)
            print(type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__)
            print([f for f in sys.meta_path if type(f).__name__ == "_Finder"])
            """
        )
        self.assertEqual(out, "[('note_framework', b'torch 9.9'), ('install', '9.9')]\nSourceFileLoader SourceFileLoader\n[]\n")

    def test_iterations_follow_the_first_optimizer(self):
        self.fake_torch()
        self.write("torch/version.py", "cuda = '13.0'\n")
        self.write("torch/__init__.py", "import torch.optim, torch.version\n__version__ = '9.9'\n")
        out = self.watched(
            """
            import torch, memprof
            from torch.optim import optimizer  # the rebound name
            import sys
            Optimizer = sys.modules["torch.optim.optimizer"].Optimizer
            a, b = Optimizer(), Optimizer()
            del calls[:]
            for _ in range(3): a.step(); b.step()
            print(len(calls))
            del a
            b.step(); b.step()
            print(len(calls))
            memprof.iteration("mine")
            b.step()
            print(calls[-1], len(calls))
            """
        )
        self.assertEqual(out, "3\n5\n('iteration', b'mine') 6\n")

    def test_marks_are_no_ops_when_not_recording(self):
        out = self.run_python(
            """
            import memprof
            memprof.iteration()
            with memprof.phase("x"): pass
            print(memprof.recording())
            """,
            recording=False,
        )
        self.assertEqual(out, "False\n")

    def test_a_failing_shim_does_not_fail_the_import(self):
        self.fake_torch()
        self.write("torch/version.py", "cuda = '13.0'\n")
        self.write("torch/__init__.py", "import torch.optim, torch.version\n__version__ = '9.9'\n")
        out = self.watched(
            """
            def broken(torch): raise RuntimeError("no compiler")
            shim.install = broken
            import torch
            print(calls[-1])
            """
        )
        self.assertEqual(out, "('problem', b'torch: RuntimeError: no compiler; tensors are not recorded')\n")


if __name__ == "__main__":
    unittest.main()
