"""Puts a guard that needs no driver in the place of CUDA's.

For each type of device C++ code of torch asks a guard which device and stream are current: autograd does at each
node. A build without CUDA has no guard for it and ends the process; that of a build with CUDA asks the driver. torch
has a guard that does nothing, for meta tensors. CUDA's place in torch's table of guards gets a copy of it with other
answers: the current device, how many there are, and one stream for each, its default one. With streams of the meta device
autograd would record events, which that device does not have. Events that autograd records between devices have no effect.

A build with CUDA asks, too, which devices have a context, and raises where the driver has no device: c10 by a function that can be
set, autograd by a virtual function of CUDA's hooks, whose object gets a copy of its virtual table with another one.
"""

import ctypes
import os
import re

TABLE = "_ZN3c104impl26device_guard_impl_registryE"  # c10::impl::device_guard_impl_registry, an array by c10::DeviceType
CUDA, META = 1, 14  # of c10::DeviceType

# Of the virtual functions of c10::impl::DeviceGuardImplInterface, in the order of their declaration.
GET_DEVICE, GET_STREAM, GET_DEFAULT_STREAM, FUNCTIONS = 2, 5, 6, 32
DESTROY_EVENT, RECORD, BLOCK = -4, -3, -2  # from deviceCount
BEFORE = 2  # words of a virtual table before its first function

# c10::cuda::_internal::setHasPrimaryContext(bool (*)(signed char)), of libc10_cuda
SET_HAS_CONTEXT = "_ZN3c104cuda9_internal20setHasPrimaryContextEPFbaE"
GET_HOOKS = "_ZN2at6detail12getCUDAHooksEv"  # at::detail::getCUDAHooks(), of libtorch_cpu
HOOKS = 200  # words of the hooks' virtual table that are copied; it has some 60


class Missing(Exception):
    """This torch has no such table or guard."""


def _keep(*things):
    """torch uses the copies, and what they call, to the end of the process, which is behind that of Python."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def install(torch, current_device, count, stream):
    """`current_device` returns the index of the current device, of `count`. `stream` is the address of memprof_torch_stream."""
    table = _table(torch)
    if not table[META]:
        raise Missing("torch %s has no guard for meta tensors" % torch.__version__)
    word = ctypes.sizeof(ctypes.c_void_p)
    functions = ctypes.c_void_p.from_address(table[META]).value
    copied = (ctypes.c_void_p * (BEFORE + FUNCTIONS)).from_buffer_copy(ctypes.string_at(functions - BEFORE * word, (BEFORE + FUNCTIONS) * word))
    copied[BEFORE + GET_STREAM] = copied[BEFORE + GET_DEFAULT_STREAM] = stream
    answer = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p)(lambda _: current_device() << 8 | CUDA)  # a c10::Device
    copied[BEFORE + GET_DEVICE] = ctypes.cast(answer, ctypes.c_void_p).value
    devices = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(lambda _: count)
    # A build without CUDA runs a single device's nodes in the calling thread; one with CUDA has a thread for each device.
    if count > 1 or torch.version.cuda is not None:
        place = _device_count(copied, torch)
        copied[BEFORE] = copied[place]  # its type: 1, which is CUDA. Autograd counts devices whose type is not META
        copied[place] = ctypes.cast(devices, ctypes.c_void_p).value
        copied[place + RECORD] = copied[place + BLOCK] = copied[place + DESTROY_EVENT]  # which does nothing
    guard = ctypes.c_void_p(ctypes.addressof(copied) + BEFORE * word)  # an object of one word, without data
    _keep(copied, answer, devices, guard)
    table[CUDA] = ctypes.addressof(guard)


def _device_count(copied, torch):
    """The place of deviceCount. Versions of torch have it at several: it is the first function behind GET_DEFAULT_STREAM
    whose code is `return 1`, which is that of the guard's type, `return META`, with another number."""
    code = ctypes.string_at(copied[BEFORE], 16)
    code = code[: code.index(b"\xc3") + 1] if b"\xc3" in code else code  # ret
    wanted = code.replace(bytes([META]), b"\x01", 1)
    for place in range(BEFORE + GET_DEFAULT_STREAM + 1, BEFORE + 21):
        if ctypes.string_at(copied[place], len(wanted)) == wanted:
            return place
    raise Missing("torch %s does not say where its guard counts devices" % torch.__version__)


def without_contexts(c10, cpu, headers):
    """Has a build with CUDA say that no device has a context: its libc10_cuda and libtorch_cpu. `headers` is torch's folder of headers."""
    place = _place_of_context(headers)
    none = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int8)(lambda _device: False)
    no = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda _hooks, _device: False)
    getattr(c10, SET_HAS_CONTEXT)(none)
    hooks = ctypes.c_void_p.from_address(ctypes.CFUNCTYPE(ctypes.c_void_p)((GET_HOOKS, cpu))())
    word = ctypes.sizeof(ctypes.c_void_p)
    copied = (ctypes.c_void_p * (BEFORE + HOOKS)).from_buffer_copy(ctypes.string_at(hooks.value - BEFORE * word, (BEFORE + HOOKS) * word))
    copied[BEFORE + place] = ctypes.cast(no, ctypes.c_void_p).value
    hooks.value = ctypes.addressof(copied) + BEFORE * word
    _keep(none, no, copied)


def _place_of_context(headers):
    """The place of hasPrimaryContext among the virtual functions of CUDA's hooks. Versions of torch have it at several, and no name of it
    is exported. The destructor, the first, has two."""
    path = os.path.join(headers, "ATen", "detail", "AcceleratorHooksInterface.h")
    try:
        with open(path) as f:
            declared = re.findall(r"\bvirtual\s[^;{(]*?(~?\w+)\s*\(", f.read())
        return 1 + declared.index("hasPrimaryContext")
    except (OSError, ValueError):
        raise Missing("%s does not declare what CUDA's hooks have" % path)


def library(name):
    """The library of that name in this process, or None."""
    with open("/proc/self/maps") as maps:
        path = next((line.split(None, 5)[5].strip() for line in maps if "/%s.so" % name in line), None)
    return path and ctypes.CDLL(path)


def _table(torch):
    try:
        return (ctypes.c_void_p * (META + 1)).in_dll(library("libc10"), TABLE)
    except (ValueError, TypeError, OSError):
        raise Missing("torch %s does not export its table of device guards" % torch.__version__)
