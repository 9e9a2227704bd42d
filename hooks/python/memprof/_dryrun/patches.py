"""Replaces the few functions of torch that look into a tensor from outside its operators."""

import functools
import os
import sys
import threading

from torch._subclasses import fake_tensor

from memprof import _dryrun, _hook
from memprof._dryrun import values


def install(torch, operators, storages):
    _parameters(torch, operators)
    _moved_modules(torch)
    _tensors(torch, operators, storages)
    _optimizers(torch)
    _saving(torch)
    _compiling(torch)
    _threads(operators)


def _parameters(torch, operators):
    """A parameter is fake when it is made, so that its identity stays when its module moves to the device."""
    make = torch.nn.Parameter.__new__

    @functools.wraps(make)
    def __new__(cls, data=None, requires_grad=True):
        if type(data) is torch.Tensor and data.device.type == "cpu":
            data = operators.fake(data)
        return make(cls, data, requires_grad)

    torch.nn.Parameter.__new__ = __new__


def _moved_modules(torch):
    """A module moves by `parameter.data = moved`; a fake tensor has its device in an attribute of its own."""
    data = torch._C.TensorBase.data

    def write(tensor, value):
        data.__set__(tensor, value)
        if isinstance(tensor, fake_tensor.FakeTensor):
            tensor.fake_device = value.device

    torch.Tensor.data = property(data.__get__, write)


def _tensors(torch, operators, storages):
    Fake = fake_tensor.FakeTensor
    Fake.data_ptr = lambda tensor: storages.address(tensor)
    Fake.memprof_address = True  # labels are sent for it
    Fake.pin_memory = lambda tensor, *_: tensor
    Fake.is_pinned = lambda tensor, *_: False
    Fake.record_stream = lambda tensor, stream: storages.use(tensor, stream.cuda_stream)
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(torch, name, _made_on_host(torch, getattr(torch, name)))
    torch.Tensor.new_tensor = lambda tensor, data, **options: torch.tensor(data, **{"dtype": tensor.dtype, "device": tensor.device, **options})
    numpy = torch.Tensor.numpy

    def host_copy(tensor):
        """A real tensor with the stated values."""
        with torch.utils._python_dispatch._disable_current_modes():
            return torch.ones(tensor.shape, dtype=tensor.dtype)

    Fake.numpy = lambda tensor, *args, **kwargs: numpy(host_copy(tensor), *args, **kwargs)
    Fake.__array__ = lambda tensor, *args, **kwargs: host_copy(tensor).__array__(*args, **kwargs)
    Fake.tolist = lambda tensor: host_copy(tensor).tolist()
    torch.Tensor.pin_memory = lambda tensor, *_: tensor
    resize = torch.UntypedStorage.resize_

    def resize_(storage, size):
        resize(storage, size)
        storages.resized(storage)
        return storage

    torch.UntypedStorage.resize_ = resize_


def _made_on_host(torch, make):
    """torch reads data into a host tensor and copies it to the device below the operators that we see. Here it does both above."""

    @functools.wraps(make)
    def made(data, *args, **options):
        device = options.get("device")
        device = torch.get_default_device() if device is None else torch.device(device) if not isinstance(device, int) else torch.device("cuda", device)
        if device.type != "cuda" or isinstance(data, fake_tensor.FakeTensor):
            return make(data, *args, **options)
        gradient = options.pop("requires_grad", False)
        with torch._C.DisableTorchFunction():
            return make(data, *args, **dict(options, device="cpu")).to(device).requires_grad_(gradient)

    return made


def _optimizers(torch):
    """Optimizers of parameters on the GPU use foreach functions; those of fake tensors would not."""
    module = sys.modules["torch.optim.optimizer"]
    module._foreach_supported_types.append(fake_tensor.FakeTensor)
    # torch.amp: a step is never skipped.
    scaler = sys.modules["torch.amp.grad_scaler"].GradScaler
    scaler._maybe_opt_step = lambda self, optimizer, state, *args, **kwargs: optimizer.step(*args, **kwargs)


def _saving(torch):
    def save(obj, f, *args, **kwargs):
        _hook.problem("dry run: torch.save(%r) writes nothing" % (f,))

    torch.save = torch.serialization.save = save


def _compiling(torch):
    """Compiled code would be other code: it runs as it is written."""

    def compile(model=None, **_options):
        _hook.problem("dry run: torch.compile is not run: the model runs as it is written")
        return model if model is not None else lambda function: function

    torch.compile = compile
    torch.nn.Module.compile = lambda module, *args, **kwargs: compile(module)

    def refused(*_args, **_kwargs):
        _dryrun.refuse("%s: DataParallel copies the model to other devices, and a dry run has one" % values.line_of_script())

    torch.nn.DataParallel.__init__ = refused


def _threads(operators):
    start = threading.Thread.start

    @functools.wraps(start)
    def started(thread):
        run = thread.run

        def inside():
            with operators:
                run()

        thread.run = inside
        start(thread)

    threading.Thread.start = started
    os.register_at_fork(after_in_child=lambda: operators.__exit__(None, None, None))
