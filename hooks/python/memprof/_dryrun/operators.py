"""Runs operators without a GPU: on torch's fake tensors, which have a size, a type and a device, and no values.

An operator is run so if an operand is fake, if it makes a tensor of the device, or if it would make a large tensor on
the host. Operators on small host tensors are run as they are, so that most data has the values that the script reads
or draws. Parameters are fake from the beginning: a model needs no memory of its size.
"""

import sys

from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from memprof import _dryrun
from memprof._dryrun import missing, values
from torch.utils._pytree import tree_map_only

LARGE = 4 << 20  # bytes of a host tensor that a factory makes fake

# What FakeTensorMode raises for an operator that it cannot run.
UNKNOWN = (fake_tensor.UnsupportedOperatorException, fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)


class Operators(TorchDispatchMode):
    """Sees every operator of the threads that have entered it, below autograd and autocast."""

    def __init__(self, torch, storages, values, kernels, communicators):
        super().__init__()
        self._torch = torch
        self._meta = torch.device("meta")
        self._copies = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        self._is_pinned = torch.ops.aten.is_pinned.default
        self._plain = (torch.Tensor, torch.nn.Parameter, fake_tensor.FakeTensor)
        self._storages = storages
        self._values = values
        self._kernels = kernels
        self._communicators = communicators
        self.fakes = fake_tensor.FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True)
        self.fakes._allow_unsafe_data_ptr_access = False  # C++ code that asks for a pointer raises

    @classmethod
    def _should_skip_dynamo(cls):
        """Asked by torch from 2.11 on, which wraps the next function unless this is false. The wrapper would stand between it and the engine."""
        return False

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.pop("pin_memory", False):  # a build without CUDA cannot pin
            made = self.__torch_dispatch__(operator, types, args, kwargs)
            made.pinned = True
            return made
        if operator is self._is_pinned:
            return hasattr(args[0], "pinned")
        if any(t not in self._plain for t in types):
            return NotImplemented  # a tensor of tensors, as DTensor: its class calls operators on them
        operands = list(self._operands(args))
        if kwargs:
            operands += self._operands(kwargs.values())
        fakes = [isinstance(tensor, fake_tensor.FakeTensor) for tensor in operands]
        if not any(fakes) and not self._makes_fake(operands, args, kwargs):
            return operator(*args, **kwargs)
        if operator.namespace in ("c10d", "_c10d_functional"):
            self._communicators.connect(operands)
        if operator.namespace == "c10d":
            return self._communicate(operator, args, kwargs)
        if not all(fakes):
            args, kwargs = tree_map_only(self._torch.Tensor, self._as_fake, (args, kwargs))
        if kwargs.get("generator") is not None:
            kwargs["generator"] = None  # it is of the host, and nothing is drawn
        try:
            with self.fakes:
                result = self._values.of(operator, args, kwargs)
                if result is NotImplemented:
                    result = self._kernels.run(operator, args, kwargs)
                    waits = operator in self._copies and result.device.type == "cpu" and not kwargs.get("non_blocking", False)
                else:
                    waits = True  # for a value
        except UNKNOWN as error:
            _dryrun.refuse(self._why_unknown(operator, operands, error))
        except RuntimeError as error:
            if operator.namespace in ("aten", "prims") or "fake impl" not in str(error):
                raise
            _dryrun.refuse(self._why_unknown(operator, operands, fake_tensor.UnsupportedOperatorException(operator)))
        if waits:
            self._storages.wait()
        self._values.learn(operator, args, result)
        self.note(result)
        return result

    def _communicate(self, operator, args, kwargs):
        """A collective of torch's fake process group, which touches no tensor: it gets others, and the result has the given ones."""
        given = {}

        def stand_in(tensor):
            made = self._torch.empty(1, device="cpu")
            given[id(made)] = made, tensor
            return made

        args, kwargs = tree_map_only(self._torch.Tensor, stand_in, (args, kwargs))
        result = operator(*args, **kwargs)
        return tree_map_only(self._torch.Tensor, lambda tensor: given.get(id(tensor), (None, tensor))[1], result)

    def note(self, result):
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, fake_tensor.FakeTensor):
                if value.fake_device.type == "cuda":
                    self._storages.note(value)
            elif isinstance(value, (tuple, list)):
                self.note(value)

    def _makes_fake(self, operands, args, kwargs):
        device = kwargs.get("device")
        if device is not None and device.type == "cuda":
            return True
        return not operands and device != self._meta and self._size(args, kwargs) > LARGE

    def _operands(self, values):
        for value in values:
            if isinstance(value, self._torch.Tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from self._operands(value)

    def _size(self, args, kwargs):
        """Bytes of the tensor that a factory makes, by its sizes and type."""
        dtype = kwargs.get("dtype") or self._torch.get_default_dtype()
        sizes = next((a for a in args if isinstance(a, (list, tuple))), ())
        count = 1
        for size in sizes:
            count *= size if isinstance(size, int) else 1
        return count * dtype.itemsize if sizes else 0

    def _why_unknown(self, operator, operands, error):
        """Why an operator cannot be run, where, and what would help."""
        line = values.line_of_script()
        if isinstance(error, fake_tensor.UnsupportedOperatorException):
            name = operator.name().partition(".")[0]
            helps = missing.remedy(name, operands)
            if helps:
                return "%s: %s" % (line, helps)
            return '%s: %s has no fake kernel; register one: @torch.library.register_fake("%s")' % (line, name, name)
        return "%s: the result of %s depends on values, which a dry run does not have" % (line, operator)

    def _as_fake(self, tensor):
        if isinstance(tensor, fake_tensor.FakeTensor):
            return tensor
        made = self.fake(tensor)
        made.host = tensor  # its values, for operators whose sizes depend on them
        return made

    def fake(self, tensor):
        """A fake tensor like a host tensor."""
        with self.fakes:
            return self._torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def install(torch):
    from memprof import _autograd
    from memprof._dryrun import attention, card, course, distributed, edits, foreign, graphs, kernels, patches, storages

    streams = card.Streams(storages.Driver())
    blocks = storages.Storages(torch, streams)
    fake_tensor.init_gpu_context = lambda device: None
    # torch distrusts the strides, not the sizes, of what its Fourier transforms return.
    checks = sys.modules["torch._subclasses.fake_impls"].op_implementations_checks
    checks[:] = [check for check in checks if getattr(check[0], "__name__", "") != "stride_incorrect_op"]
    kernels.keep_whole(torch)
    assumed = values.Values(torch)
    way = kernels.Kernels(torch, blocks, assumed)
    communicators = distributed.Communicators(torch, blocks, assumed.report)
    operators = Operators(torch, blocks, assumed, way, communicators)
    card.install(torch, streams, blocks)
    patches.install(torch, operators, blocks, assumed)
    attention.install(torch, way, assumed.report)
    missing.install(torch)
    graphs.install(torch, blocks)
    distributed.install(torch, assumed.report, communicators)
    edits.install(torch)
    foreign.install(torch, assumed.report)
    course.install()
    _autograd.wrap_run(way.calibrated)
    operators.__enter__()
