"""A made-up torch and a made-up hook, for tests of what the package puts around torch.

`write_torch` lays down as much of torch as the package touches: modules, optimizers,
autograd's engine, a GradScaler and a DataLoader that do nothing but call what they should.
`HOOK` is the start of a script: it stands in for the capture hook and keeps every call in
`calls`; `marks()` are those that the recording would have, in words. A `ScriptTest` runs
scripts behind both, in a process of its own.
"""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

TORCH = {
    "__init__.py": """
        __version__ = "9.9"
        executed = True
        from torch import _C, version
        class Tensor:
            grad = grad_fn = None
            is_cuda, is_sparse = True, False
            made = 0
            def __init__(self, address=None):
                Tensor.made += 256
                self.address = address or Tensor.made
            def data_ptr(self): return self.address
        _grad = [True]
        def is_grad_enabled(): return _grad[0]
        from torch import autograd, compiler, nn, optim
        import torch.amp.grad_scaler
        import torch.utils.data.dataloader
    """,
    "version.py": "cuda = '13.0'\n",
    "_C.py": "def _get_tracing_state(): return None\n",
    "compiler.py": """
        compiling = [False]
        def is_compiling(): return compiling[0]
    """,
    "nn/__init__.py": """
        import torch
        class Parameter(torch.Tensor): pass
        from torch.nn import parameter
        class Module:
            def __init__(self, **parts):
                self._parameters, self._buffers, self._modules = {}, {}, {}
                for name, part in parts.items():
                    (self._modules if isinstance(part, Module) else self._parameters)[name] = part
            def named_modules(self, prefix=""):
                yield prefix, self
                for name, part in self._modules.items():
                    yield from part.named_modules(prefix + "." + name if prefix else name)
            def parameters(self):
                for _, part in self.named_modules(): yield from part._parameters.values()
            _compiled_call_impl = None
            def _wrapped_call_impl(self, *args, **kwargs):
                if self._compiled_call_impl is not None:
                    return self._compiled_call_impl(*args, **kwargs)
                else:
                    return self._call_impl(*args, **kwargs)
            def _call_impl(self, *args, **kwargs): return self.forward(*args, **kwargs)
            __call__ = _wrapped_call_impl
            def forward(self, x=None):
                for part in self._modules.values(): x = part(x)
                return x
    """,
    "nn/parameter.py": "",
    "optim/__init__.py": "import torch.optim.optimizer\noptimizer = 'rebound'\n",
    "optim/optimizer.py": """
        import functools
        class Optimizer:
            def __init__(self, *parameters):
                self.param_groups = [{"params": list(parameters)}]
                self.state = {}
                if not getattr(type(self).step, "hooked", False):
                    step = type(self).step
                    @functools.wraps(step)
                    def profiled(self, *a, **k): return step(self, *a, **k)
                    profiled.hooked = True
                    type(self).step = profiled
        class SGD(Optimizer):
            def step(self, closure=None):
                return closure() if closure else "stepped"
    """,
    "autograd/__init__.py": """
        from torch.autograd.graph import _engine_run_backward
        def backward(work=None): return _engine_run_backward(work)
    """,
    "autograd/graph.py": "def _engine_run_backward(work): return work() if work else None\n",
    "amp/__init__.py": "",
    "amp/grad_scaler.py": """
        class GradScaler:
            finite = True
            def step(self, optimizer): return optimizer.step() if self.finite else None
    """,
    "utils/__init__.py": "",
    "utils/data/__init__.py": "",
    "utils/data/dataloader.py": """
        class _BaseDataLoaderIter:
            def __init__(self, batches): self.batches = iter(batches)
            def __iter__(self): return self
            def __next__(self):
                batch = next(self.batches)
                return batch() if callable(batch) else batch
    """,
}

HOOK = """
import ctypes, threading
import memprof._hook as loaded, memprof._shim as shim
calls, texts, cells = [], [""], {}

class Library:
    def memprof_context_cell(self):
        return ctypes.addressof(cells.setdefault(threading.get_ident(), ctypes.c_uint32()))
    def memprof_context(self, text):
        if text.decode() not in texts: texts.append(text.decode())
        return texts.index(text.decode())
    def memprof_label_many(self, count, addresses, contexts):
        for i in range(count):
            address = ctypes.c_uint64.from_address(addresses + 8 * i).value
            if address: calls.append(("label", address, texts[ctypes.c_uint32.from_address(contexts + 4 * i).value]))
    def __getattr__(self, name):
        return lambda *a: calls.append((name[len("memprof_"):],) + a) or 1

hook = Library()
loaded.library = lambda: hook
shim.install = lambda torch: calls.append(("install", torch.__version__))

def context():
    cell = cells.get(threading.get_ident())
    return texts[cell.value] if cell else ""

def marks():
    words = {"iteration": "|", "phase_begin": "<", "phase_end": ">"}
    said = [words[c[0]] + c[1].decode() for c in calls if c[0] in words]
    del calls[:]
    return " ".join(said)

def labels():
    said = [(c[1], c[2].replace("category=", "").replace("\\tname=", " ")) for c in calls if c[0] == "label"]
    del calls[:]
    return said
"""

# What every script of a ScriptTest begins with, behind HOOK.
NAMES = """
import torch, memprof
from torch.nn import Module, Parameter
from torch.optim.optimizer import Optimizer, SGD
from torch.amp.grad_scaler import GradScaler
from torch.utils.data.dataloader import _BaseDataLoaderIter as Loader
del calls[:]

class Probe(Module):
    def forward(self, x=None):
        seen.append(context().replace("module=", ""))
        return x
seen = []
"""


def write_torch(folder):
    """Writes the made-up torch below `folder`."""
    for name, text in TORCH.items():
        path = os.path.join(folder, "torch", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))


class ScriptTest(unittest.TestCase):
    """A test of what scripts under the made-up torch and hook make of it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        write_torch(self.folder)

    def check(self, script, expected, level="modules"):
        """Runs the script; `expected` is what it prints, line by line."""
        path = os.pathsep.join([os.path.dirname(HERE), self.folder])
        env = dict(os.environ, PYTHONPATH=path, MEMPROF_SPOOL=self.folder, MEMPROF_ATTRIBUTION=level)
        text = textwrap.dedent(HOOK) + NAMES + textwrap.dedent(script)
        done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout.splitlines(), textwrap.dedent(expected).strip("\n").splitlines())
