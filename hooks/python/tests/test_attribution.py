"""Iterations, phases, modules and labels, told from a made-up torch in a process of its own."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import pretend  # noqa: E402

IMPORTS = """
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


class AttributionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        pretend.write_torch(self.folder)

    def check(self, script, expected, level="modules"):
        """Runs the script; `expected` is what it prints, line by line."""
        path = os.pathsep.join([os.path.dirname(HERE), self.folder])
        env = dict(os.environ, PYTHONPATH=path, MEMPROF_SPOOL=self.folder, MEMPROF_ATTRIBUTION=level)
        text = textwrap.dedent(pretend.HOOK) + IMPORTS + textwrap.dedent(script)
        done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout.splitlines(), textwrap.dedent(expected).strip("\n").splitlines())

    def test_training(self):
        self.check(
            """
            weight = Parameter()
            model, optimizer = Module(fc=Module(weight=weight)), SGD(weight)
            for batch in Loader([1, 2]):
                model(batch); torch.autograd.backward(); optimizer.step()
            print(marks())
            """,
            "<data >data <forward >forward <backward >backward <optimizer >optimizer | "
            "<data >data <forward >forward <backward >backward <optimizer >optimizer | <data >data",
        )

    def test_accumulation_and_evaluation_end_nothing(self):
        self.check(
            """
            weight = Parameter()
            model, optimizer = Module(weight=weight), SGD(weight)
            for _ in range(3):
                for _ in range(4): model(); torch.autograd.backward()
                optimizer.step()
                torch._grad[0] = False
                model()
                torch._grad[0] = True
            print(marks().count("|"))
            """,
            "3",
        )

    def test_several_optimizers_make_a_round(self):
        self.check(
            """
            a, b = SGD(Parameter()), SGD(Parameter())
            for _ in range(3): a.step(); b.step()
            print(marks().count("|"))
            del a
            b.step(); b.step()
            print(marks().count("|"))
            """,
            "3\n2",
        )

    def test_a_leader_that_rests_is_replaced(self):
        self.check(
            """
            warm, main = SGD(Parameter()), SGD(Parameter())
            warm.step()
            for _ in range(30): main.step()
            print(marks().count("|"))
            warm.step(); main.step()
            print(marks().count("|"))
            """,
            "22\n1",
        )

    def test_scaler_that_leaves_a_step_out(self):
        self.check(
            """
            optimizer, scaler = SGD(Parameter()), GradScaler()
            scaler.step(optimizer)
            scaler.finite = False
            scaler.step(optimizer); scaler.step(optimizer)
            scaler.finite = True
            print(scaler.step(optimizer))
            print(marks())
            """,
            "stepped\n<optimizer >optimizer | | | <optimizer >optimizer |",
        )

    def test_inference(self):
        self.check(
            """
            model, loss = Module(weight=Parameter()), Module()
            torch._grad[0] = False
            for _ in range(3): loss(model(1))
            print(marks())
            """,
            "<forward >forward | <forward >forward <forward >forward | <forward >forward <forward >forward | <forward >forward",
        )

    def test_inference_that_could_train(self):
        self.check(
            """
            import atexit
            atexit.register(lambda: print(marks()))
            import memprof._attribution as attribution
            atexit.unregister(attribution._installed.iterations.forward_begins)
            atexit.register(lambda: (attribution._installed.iterations.forward_begins()))
            model = Module(weight=Parameter())
            model(); model()
            print(marks())
            """,
            "<forward >forward | <forward >forward\n|",
        )

    def test_training_by_hand(self):
        self.check(
            """
            model = Module(weight=Parameter())
            for _ in range(3): model(); torch.autograd.backward()
            print(marks())
            """,
            " ".join(["<forward >forward <backward >backward |"] * 3),
        )

    def test_iteration_by_the_script_is_the_only_one(self):
        self.check(
            """
            optimizer = SGD(Parameter())
            optimizer.step()
            memprof.iteration("mine")
            optimizer.step()
            print(marks())
            """,
            "<optimizer >optimizer | |mine <optimizer >optimizer",
        )

    def test_phases_survive_exceptions(self):
        self.check(
            """
            def fail(*_): raise KeyError("the job's own")
            model, optimizer = Module(weight=Parameter()), SGD(Parameter())
            broken = Module(weight=Parameter())
            broken.forward = fail
            for call in (broken, lambda: torch.autograd.backward(fail), lambda: optimizer.step(fail), lambda: next(Loader([fail]))):
                try: call()
                except KeyError as error: pass
                else: print("no error")
            print(marks())
            model()
            print(marks(), repr(context()))
            """,
            """
            <forward >forward <backward >backward <optimizer >optimizer <data >data
            <forward >forward ''
            """,
        )

    def test_phases_say_what_they_use(self):
        self.check(
            r"""
            with memprof.phase("roll\tout", uses=("kv cache", "x" * 101 + "y", 7)): pass
            with memprof.phase("x\ty", uses=()): pass
            print(marks().encode().replace(b"x" * 100, b"[100]"))
            """,
            r"b'<roll out\tuses=kv_cache [100] 7 >roll out\tuses=kv_cache [100] 7 <x\ty >x\ty'",
        )

    def test_phases_nest(self):
        self.check(
            """
            model = Module(weight=Parameter())
            optimizer = SGD(model._parameters["weight"])
            def closure():
                model(); torch.autograd.backward()
            optimizer.step(closure)
            print(marks())
            torch.autograd.backward(lambda: torch.autograd.backward(model))  # computed again
            print(marks())
            next(Loader([model]))
            print(marks())
            model.forward = torch.autograd.backward  # a gradient that is part of the model
            model()
            print(marks())
            """,
            """
            <optimizer <forward >forward <backward >backward >optimizer |
            <backward >backward
            <data >data
            <forward >forward
            """,
        )

    def test_a_step_inside_a_step_is_one(self):
        self.check(
            """
            class Mine(SGD):
                def step(self): super().step()
            SGD(Parameter())
            Mine(Parameter()).step()
            print(marks())
            """,
            "<optimizer >optimizer |",
        )

    def test_the_compilers_way_to_the_step(self):
        """Some versions of torch take the outermost wrapper of a step off and forbid others."""
        self.check(
            """
            optimizer = SGD(Parameter())
            SGD.step = SGD.step.__wrapped__
            SGD.step.hooked = True
            another = SGD(Parameter())
            optimizer.step()
            print(marks())
            torch.compiler.compiling[0] = True
            optimizer.step()
            print(repr(marks()))
            """,
            "<optimizer >optimizer |\n''",
        )

    def test_nothing_while_the_compiler_traces(self):
        self.check(
            """
            torch.compiler.compiling[0] = True
            model = Module(weight=Parameter(), part=Probe())
            model(); torch.autograd.backward(); next(Loader([1]))
            print(repr(marks()), seen)
            """,
            "'' ['']",
        )

    def test_names(self):
        self.check(
            """
            model = Module(weight=Parameter(), layers=Module(conv=Probe(), again=Module(inner=Probe())))
            model(); model._modules["layers"]()
            Probe()()
            print(seen, repr(context()))
            """,
            "['layers.conv', 'layers.again.inner', 'layers.conv', 'layers.again.inner', 'Probe'] ''",
        )

    def test_names_leave_wrappers_out(self):
        self.check(
            """
            class DistributedDataParallel(Module): pass
            class Net(Probe): pass
            net = Net(weight=Parameter(), fc=Probe())
            wrapped = DistributedDataParallel(module=Module(_orig_mod=net))
            wrapped()
            print(seen, sorted(t for t in texts if "weights" in t))
            """,
            "['Net'] ['category=weights\\tname=weight']",
        )

    def test_second_model_has_its_class_before_its_names(self):
        self.check(
            """
            class Critic(Module): pass
            model, critic = Module(weight=Parameter(), main=Probe()), Critic(weight=Parameter(), main=Probe())
            critic2 = Critic(weight=Parameter(), main=Probe())
            model(); critic(); critic2()
            whole = Critic(model=model, head=Probe())
            whole()
            print(seen)
            """,
            "['main', 'Critic.main', 'Critic.main', 'model.main', 'head']",
        )

    def test_modules_that_come_later(self):
        self.check(
            """
            class Net(Module):
                def forward(self, x=None):
                    super().forward(x)
                    Probe()()
            model = Net(weight=Parameter(), first=Probe())
            model()
            model._modules["second"] = Probe()
            model()
            print(seen)
            """,
            "['first', 'Net.Probe', 'first', 'second', 'Net.Probe']",
        )

    def test_modules_are_forgotten_with_their_ids(self):
        self.check(
            """
            import memprof._attribution as attribution
            modules = attribution._installed.modules
            for _ in range(5): Module(weight=Parameter(), part=Probe())()
            print(len(modules._contexts), len(modules._known), len(modules._roots))
            """,
            "0 0 0",
        )

    def test_threads_have_contexts_of_their_own(self):
        self.check(
            """
            import threading
            class Waits(Probe):
                def forward(self, x=None):
                    thread = threading.Thread(target=lambda: seen.append(context()))
                    thread.start(); thread.join()
                    return super().forward(x)
            Module(weight=Parameter(), part=Waits())()
            print(seen)
            """,
            "['', 'part']",
        )

    def test_gradients_of_several_kinds(self):
        self.check(
            """
            from torch import Tensor
            class Wrapper(Tensor):
                __torch_dispatch__ = classmethod(lambda *a: None)
                def __init__(self, inner): self.inner = inner
                def __tensor_flatten__(self): return ["inner"], None
            class Sparse(Tensor):
                def data_ptr(self): raise RuntimeError("sparse tensors do not have storage")
            weight, bias, table = (Parameter(1024 * i) for i in (1, 2, 3))
            model, optimizer = Module(weight=weight, bias=bias, table=table), SGD(weight, bias, table)
            model(); labels()
            weight.grad, bias.grad, table.grad = Tensor(4096), Wrapper(Tensor(8192)), Sparse(12288)
            optimizer.step()
            print(labels())
            """,
            """
            [(4096, 'gradients Module.weight'), (8192, 'gradients Module.bias')]
            """,
        )

    def test_compiled_module_is_called(self):
        self.check(
            """
            fast, slow = Probe(), Probe()
            fast._compiled_call_impl = lambda x=None: seen.append("compiled " + context().replace("module=", ""))
            Module(weight=Parameter(), fast=fast, slow=slow)()
            print(seen)
            """,
            "['compiled fast', 'slow']",
        )

    def test_labels(self):
        self.check(
            """
            from torch import Tensor
            weight, bias = Parameter(1024), Parameter(2048)
            model = Module(fc=Module(weight=weight), bias=bias)
            model._buffers["mean"] = Tensor(4096)
            optimizer = SGD(weight, bias)
            x, mask = Tensor(8192), Tensor(12288)
            model.forward = lambda x, mask: None
            model(x, mask=mask)
            print(labels())
            weight.grad, bias.grad = Tensor(16384), Tensor(20480)
            moment = Tensor(24576)
            step = Tensor(28672); step.is_cuda = False
            optimizer.state[weight] = {"step": step, "exp_avg": moment}
            optimizer.step()
            print(labels())
            optimizer.step()  # gradients may be new ones, state is where it was
            print(labels())
            moment.address = 32768
            bias.grad = None
            optimizer.step()
            print(labels())
            bias.address = 36864
            model(x, mask=mask)
            print(labels()[-5:])
            """,
            """
            [(2048, 'weights bias'), (1024, 'weights fc.weight'), (4096, 'weights mean'), (8192, 'inputs 0'), (12288, 'inputs mask')]
            [(16384, 'gradients fc.weight'), (20480, 'gradients bias'), (24576, 'optimizer fc.weight.exp_avg')]
            [(16384, 'gradients fc.weight'), (20480, 'gradients bias')]
            [(16384, 'gradients fc.weight'), (32768, 'optimizer fc.weight.exp_avg')]
            [(36864, 'weights bias'), (1024, 'weights fc.weight'), (4096, 'weights mean'), (8192, 'inputs 0'), (12288, 'inputs mask')]
            """,
        )

    def test_what_a_model_returned_is_no_input(self):
        self.check(
            """
            from torch import Tensor
            class Output(dict): pass
            encoder, decoder = Module(weight=Parameter(256)), Module(weight=Parameter(512))
            x, y = Tensor(1024), Tensor(2048)
            encoder.forward = lambda x: Output(hidden=[y])
            torch._grad[0] = False
            class Net(Module):
                def forward(self, x): return encoder(x)
            net = Net(encoder=encoder)
            decoder(net(x)["hidden"][0])
            print([l for l in labels() if "inputs" in l[1]])
            """,
            "[(1024, 'inputs 0')]",
        )

    def test_cache_of_keys_and_values(self):
        self.check(
            """
            from torch import Tensor
            class Layer:
                def __init__(self, at): self.keys, self.values = Tensor(at), Tensor(at + 256)
            class Cache: layers = [Layer(1024), Layer(2048)]
            model = Module(weight=Parameter(256))
            model.forward = lambda past_key_values: None
            model(past_key_values=Cache())
            print([l for l in labels() if "kv" in l[1]])
            """,
            "[(1024, 'kv_cache 0.keys'), (1280, 'kv_cache 0.values'), (2048, 'kv_cache 1.keys'), (2304, 'kv_cache 1.values')]",
        )

    def test_labels_of_the_scripts_own(self):
        self.check(
            """
            from torch import Tensor
            class Array: __cuda_array_interface__ = {"data": (2048, False)}
            memprof.label(Tensor(1024), "kv_cache", name="layer\t0")
            memprof.label(Array(), category="inputs")
            memprof.label("no tensor", category="inputs")
            print([c[1].decode() for c in calls if c[0] == "problem"])
            print(labels())
            try: memprof.label(Tensor(1024), "weight")
            except ValueError as error: print(error)
            """,
            """
            ["attribution: label: AttributeError: 'str' object has no attribute '__cuda_array_interface__'"]
            [(1024, 'kv_cache layer 0'), (2048, 'inputs')]
            category 'weight': want one of weights, gradients, optimizer, inputs, kv_cache
            """,
        )

    def test_tensors_are_not_kept(self):
        self.check(
            """
            import gc, weakref
            from torch import Tensor
            gc.disable()
            gone = []
            weight = Parameter()
            model, optimizer = Module(weight=weight), SGD(weight)
            x = Tensor(); weakref.finalize(x, gone.append, "input")
            y = Tensor(); weakref.finalize(y, gone.append, "output")
            model.forward = lambda x: y
            out = model(x)
            del x, y, out, model.forward
            weight.grad = Tensor(); weakref.finalize(weight.grad, gone.append, "gradient")
            optimizer.state[weight] = {"m": Tensor()}
            weakref.finalize(optimizer.state[weight]["m"], gone.append, "state")
            optimizer.step()
            weight.grad = None
            optimizer.state.clear()
            weakref.finalize(weight, gone.append, "weight")
            del weight, model, optimizer
            print(gone)
            """,
            "['input', 'output', 'gradient', 'state', 'weight']",
        )

    def test_tensors_without_data(self):
        self.check(
            """
            from torch import Tensor
            torch.Tensor.__torch_dispatch__ = None
            class Quantized(Parameter): pass
            class Fake(Tensor): __torch_dispatch__ = "of its own"
            class Wrapper(Fake):
                inner = Tensor(1024)
                def __tensor_flatten__(self): return ["inner"], None
            class Odd(Parameter):
                def data_ptr(self): raise TypeError("odd")
            model = Module(a=Quantized(512), b=Fake(256), c=Wrapper(256), d=Odd(256))
            model(Fake(256))
            print([c[1].decode() for c in calls if c[0] == "problem"])
            print(labels())
            """,
            "[]\n[(512, 'weights Module.a'), (1024, 'weights Module.c')]",
        )

    def test_trouble_of_our_own_is_not_the_jobs(self):
        self.check(
            """
            weight = Parameter()
            model, optimizer = Module(weight=weight), SGD(weight)
            del model._buffers, optimizer.param_groups
            model(1); optimizer.step(); optimizer.step()
            problems = [c[1].decode() for c in calls if c[0] == "problem"]
            print(problems)
            print(marks())
            """,
            """
            ["attribution: _describe: AttributeError: 'Module' object has no attribute '_buffers'", "attribution: gradients: AttributeError: 'SGD' object has no attribute 'param_groups'"]
            <forward >forward <optimizer >optimizer | <optimizer >optimizer |
            """,
        )

    def test_levels(self):
        script = """
            weight = Parameter()
            model, optimizer = Module(weight=weight, part=Probe()), SGD(weight)
            for batch in Loader([1]):
                model(batch); torch.autograd.backward(); optimizer.step()
            print(seen, [c for c in calls if c[0] == "label"])
            print(marks())
            """
        self.check(script, "[''] []\n|", level="none")
        self.check(script, "[''] []\n<data >data <forward >forward <backward >backward <optimizer >optimizer | <data >data", level="phases")


if __name__ == "__main__":
    unittest.main()
