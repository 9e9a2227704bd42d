"""Replaces the few functions of torch that look into a tensor from outside its operators."""

import functools
import os
import sys
import threading

from torch._subclasses import fake_tensor

from memprof import _dryrun, _inject
from memprof._dryrun import values


def install(torch, operators, storages, assumed):
    report = assumed.report
    _parameters(torch, operators)
    _moved_modules(torch)
    _numbered_devices(torch)
    _tensors(torch, storages, assumed)
    _optimizers(torch)
    _files(torch, report)
    _compiling(torch, report)
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

    def refused(*_args, **_kwargs):
        _dryrun.refuse("%s: a lazy module has parameters without sizes: give them" % values.line_of_script())

    torch.nn.parameter.UninitializedParameter.__new__ = refused


def _moved_modules(torch):
    """A module moves by `parameter.data = moved`; a fake tensor has its device in an attribute of its own.

    Newer versions of torch swap fake parameters with their copies instead, which fails where something refers to one weakly:
    the mode of fake tensors does (https://github.com/pytorch/pytorch/issues/148977). Nobody uses the copy after that.
    """
    data = torch._C.TensorBase.data

    def write(tensor, value):
        data.__set__(tensor, value)
        if isinstance(tensor, fake_tensor.FakeTensor):
            tensor.fake_device = value.device

    torch.Tensor.data = property(data.__get__, write)
    swap = torch.utils.swap_tensors

    @functools.wraps(swap)
    def moved(tensor, copy):
        if not isinstance(tensor, fake_tensor.FakeTensor):
            return swap(tensor, copy)
        with torch.no_grad():
            tensor.data = copy

    torch.utils.swap_tensors = moved


def _replace(torch, function, new):
    """Replaces a function of torch, for TorchScript too, which knows its functions by their ids."""
    setattr(torch, function.__name__, new)
    known = torch.jit._builtins._get_builtin_table()
    known[id(new)] = known.get(id(function), "aten::" + function.__name__)


def _numbered_devices(torch):
    """A number alone means a device of the build's kind of accelerator: C++ code knows none. Here it is one of CUDA."""
    original = torch.device

    def named(device):
        return original("cuda", device) if type(device) is int else device

    torch.device = class_like(original, lambda *args, **options: original(*map(named, args[:1]), *args[1:], **options))

    def first(function):
        return functools.wraps(function)(lambda tensor, *args, **options: function(tensor, *map(named, args[:1]), *args[1:], **with_device(options)))

    def with_device(options):
        return dict(options, device=named(options["device"])) if "device" in options else options

    parse = torch._C._nn._parse_to
    torch._C._nn._parse_to = lambda *args, **options: parse(*map(named, args[:1]), *args[1:], **with_device(options))
    torch.Tensor.to, torch.Tensor.cuda = first(torch.Tensor.to), first(torch.Tensor.cuda)
    for make in torch.utils._device._device_constructors():
        if getattr(torch, make.__name__, None) is make:
            _replace(torch, make, functools.wraps(make)(lambda *args, _make=make, **options: _make(*args, **with_device(options))))


def class_like(original, make):
    """A class that is taken for the original, whose objects `make` makes."""

    class Kind(type):
        def __call__(cls, *args, **options):
            return make(*args, **options)

        def __instancecheck__(cls, value):
            return isinstance(value, original)

        def __eq__(cls, other):
            return other is cls or other is original

        def __hash__(cls):
            return hash(original)

    return Kind(original.__name__, (), {"__module__": "torch"})


def _tensors(torch, storages, assumed):
    Fake = fake_tensor.FakeTensor
    Fake.data_ptr = lambda tensor: storages.address(tensor)
    Fake.memprof_address = True  # labels are sent for it
    Fake.pin_memory = lambda tensor, *_, **__: tensor
    Fake.record_stream = lambda tensor, stream: storages.use(tensor, stream.cuda_stream)
    for name in ("tensor", "as_tensor", "asarray"):
        _replace(torch, getattr(torch, name), _made_on_host(torch, getattr(torch, name)))
    torch.Tensor.new_tensor = lambda tensor, data, **options: torch.tensor(data, **{"dtype": tensor.dtype, "device": tensor.device, **options})
    numpy = torch.Tensor.numpy

    Fake.numpy = lambda tensor, *args, **kwargs: numpy(assumed.host_copy(tensor), *args, **kwargs)
    Fake.__array__ = lambda tensor, *args, **kwargs: assumed.host_copy(tensor).__array__(*args, **kwargs)
    Fake.__format__ = lambda tensor, spec: format(tensor.item() if tensor.dim() == 0 else repr(tensor), spec)
    Fake.tolist = lambda tensor: assumed.host_copy(tensor).tolist()
    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor
    resize = torch.UntypedStorage.resize_

    def resize_(storage, size):
        resize(storage, size)
        storages.resized(storage)
        return storage

    torch.UntypedStorage.resize_ = resize_
    pointer = torch.UntypedStorage.data_ptr
    torch.UntypedStorage.data_ptr = lambda storage: storages.start(storage) if storage.device.type == "meta" else pointer(storage)


def _made_on_host(torch, make):
    """torch reads data into a host tensor and copies it to the device below the operators that we see. Here it does both above."""

    @functools.wraps(make)
    def made(data, *args, **options):
        device = options.get("device")
        if device is None:  # torch.get_default_device makes a tensor to see
            device = torch.utils._device.CURRENT_DEVICE or "cpu"
        device = torch.device(device) if not isinstance(device, int) else torch.device("cuda", device)
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


def _files(torch, report):
    def save(*args, **kwargs):
        report("save", "saving a checkpoint writes nothing, here and later")

    torch.save = torch.serialization.save = save
    for name, writers in (("torch.distributed.checkpoint", ("save", "async_save")), ("safetensors.torch", ("save_file", "save_model"))):
        _inject.wait_for(name, lambda module, writers=writers: [setattr(module, writer, save) for writer in writers], "checkpoints are written")
    read = torch.load

    @functools.wraps(read)
    def load(f, map_location=None, *args, **kwargs):
        """Reads onto the host. What was saved on the device goes there, or what `map_location` says."""
        given = map_location if isinstance(map_location, (str, torch.device, int)) else None
        ours = set()

        def place(storage, location):
            if isinstance(map_location, dict):
                location = str(map_location.get(location, location))
            elif given is None and map_location is not None:
                return map_location(storage, location)
            if str(location if given is None else torch.device(given)).startswith("cuda"):
                ours.add(storage._cdata)
            return storage

        return move(read(f, place, *args, **kwargs), ours)

    def move(value, ours):
        if isinstance(value, torch.Tensor):
            return value.cuda() if value.untyped_storage()._cdata in ours else value
        if isinstance(value, dict):
            for key in value:
                value[key] = move(value[key], ours)
        elif isinstance(value, list):
            value[:] = [move(element, ours) for element in value]
        return value

    torch.load = torch.serialization.load = load


def _compiling(torch, report):
    """Compiled code would be other code: it runs as it is written."""

    def compile(model=None, **_options):
        report("compile", "torch.compile is not run: the model runs as it is written")
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
