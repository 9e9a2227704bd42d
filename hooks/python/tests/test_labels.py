"""What tensors are said to hold: labels of a made-up torch's weights, gradients, state, inputs and caches."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import pretend  # noqa: E402


class LabelsTest(pretend.ScriptTest):
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
            [(16384, 'gradients fc.weight'), (20480, 'gradients bias'), (24576, 'optimizer fc.weight.exp_avg\\toptimizer=SGD')]
            [(16384, 'gradients fc.weight'), (20480, 'gradients bias')]
            [(16384, 'gradients fc.weight'), (32768, 'optimizer fc.weight.exp_avg\\toptimizer=SGD')]
            [(36864, 'weights bias'), (1024, 'weights fc.weight'), (4096, 'weights mean'), (8192, 'inputs 0'), (12288, 'inputs mask')]
            """,
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
            unknown category 'weight': use one of weights, gradients, optimizer, inputs, kv_cache
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


if __name__ == "__main__":
    unittest.main()
