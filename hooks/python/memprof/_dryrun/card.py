"""The card that a script sees: what torch.cuda and torch's C functions of CUDA answer."""

import ctypes
import functools
import os
import threading
import time
import types
import warnings

from memprof import _hook
from memprof._dryrun import patches


class Card:
    """What a script can ask about it. MEMPROF_DRY_RUN is NAME,BYTES,MAJOR.MINOR,MULTIPROCESSORS."""

    def __init__(self, text):
        self.name, memory, capability, processors = text.split(",")
        self.memory = int(memory)
        self.capability = tuple(int(n) for n in capability.split("."))
        self.processors = int(processors)


@functools.lru_cache(None)
def seen():
    """The card of this process."""
    return Card(os.environ["MEMPROF_DRY_RUN"])


class Streams:
    """The current stream of each thread, by the driver's handle; None is the default stream."""

    def __init__(self, driver):
        self.driver = driver
        self._threads = threading.local()

    def current_handle(self):
        return getattr(self._threads, "handle", None)

    def current(self):
        return getattr(self._threads, "stream", None)

    def set(self, stream):
        self._threads.stream = stream
        self._threads.handle = stream.cuda_stream if stream is not None and stream.cuda_stream else None


def install(torch, streams, storages):
    from memprof import _calls, _plugin_memory
    from memprof._dryrun import guard

    card = seen()
    lib = _hook.library()
    state = types.SimpleNamespace(device=0)
    count = int(os.environ.get("MEMPROF_SIM_DEVICES", "1"))
    guard.install(torch, lambda: state.device, count, _calls.address("memprof_torch_stream"))
    c10 = guard.library("libc10_cuda")
    if c10 is not None:
        warnings.filterwarnings("ignore", message="CUDA initialization: ")  # of the runtime, which finds no device
        # RNNs run cell by cell, as in a build without CUDA: their choice of cuDNN asks the driver. Scripts read and set it as before.
        torch._C._set_cudnn_enabled(False)
        type(torch.backends.cudnn).enabled = True
        torch.backends.cudnn.is_acceptable = lambda _: False
        guard.without_contexts(c10, guard.library("libtorch_cpu"), os.path.join(os.path.dirname(torch.__file__), "include"))

    def set_device(device):
        if device >= 0:
            state.device = device

    def exchange_device(device):
        before = state.device
        set_device(device)
        return before

    cuda = torch.cuda
    functions = {
        **dict.fromkeys(("_cuda_init", "_cuda_ipc_collect", "_cuda_lock_mutex", "_cuda_unlock_mutex"), lambda: None),
        **dict.fromkeys(("_cuda_getDeviceCount", "_accelerator_deviceCount"), lambda: count),
        **dict.fromkeys(("_cuda_getDevice", "_accelerator_getDeviceIndex"), lambda: state.device),
        **dict.fromkeys(("_cuda_setDevice", "_accelerator_setDeviceIndex"), set_device),
        **dict.fromkeys(("_cuda_exchangeDevice", "_cuda_maybeExchangeDevice"), exchange_device),
        "_cuda_isInBadFork": lambda: False,
        "_cuda_getArchFlags": lambda: "sm_%d%d" % card.capability,
        "_cuda_getCompiledVersion": lambda: 12060,
        "_cuda_emptyCache": lambda: lib.memprof_empty_cache(state.device),
        "_cuda_getCurrentBlasHandle": lambda: 1,
        "_cuda_hasPrimaryContext": lambda device: True,
        **dict.fromkeys(("_get_accelerator", "_accelerator_getAccelerator"), lambda *_: torch.device("cuda")),
        **dict.fromkeys(("_cuda_synchronize", "_accelerator_synchronizeDevice"), lambda *_: storages.wait()),
    }
    functions.update(_plugin_memory.Memory(torch, lib).functions())
    for name, function in functions.items():
        setattr(torch._C, name, function)
    properties = types.SimpleNamespace(
        name=card.name, total_memory=card.memory, major=card.capability[0], minor=card.capability[1],
        multi_processor_count=card.processors, warp_size=32, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
        is_integrated=False, is_multi_gpu_board=False, gcnArchName="", L2_cache_size=50 << 20, uuid="dry-run",
    )
    cuda._lazy_init = lambda: None
    cuda.is_available = cuda.is_initialized = lambda: True
    cuda._initialized = True
    cuda._exchange_device = cuda._maybe_exchange_device = exchange_device
    cuda.device_count = lambda: count
    cuda.get_device_properties = cuda._get_device_properties = lambda device=None: properties
    cuda.is_bf16_supported = lambda including_emulation=True: card.capability[0] >= 8 or including_emulation
    cuda.can_device_access_peer = lambda device, peer: True
    cuda.nccl.version = lambda: (2, 21, 5)
    cuda.nvtx._nvtx = types.SimpleNamespace(**dict.fromkeys(("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA"), lambda *_: 0))
    cuda.synchronize = lambda device=None: storages.wait()

    def mem_get_info(device=None):
        from memprof import _calls

        ours = _calls.Stats()
        lib.memprof_get_stats(state.device, ctypes.byref(ours))
        return max(0, card.memory - ours.reserved_bytes.current), card.memory

    torch.version.cuda = torch.version.cuda or "12.6"
    torch.backends.cuda.is_built = lambda: True
    cuda.mem_get_info = cuda.memory.mem_get_info = mem_get_info
    _randomness(torch)
    _streams(torch, streams, state, storages.wait)


def _randomness(torch):
    cuda, host = torch.cuda, torch.Generator
    torch.Generator = patches.class_like(host, lambda device=None: host())  # operators on the device are given none
    generator = host()
    cuda.default_generators = (generator,) * 16
    for module in (cuda, cuda.random):
        module.manual_seed = module.manual_seed_all = lambda seed: None
        module.seed = module.seed_all = module.initial_seed = lambda: 0
        module.get_rng_state = lambda device="cuda": torch.zeros(16, dtype=torch.uint8)
        module.set_rng_state = lambda state, device="cuda": None
        module.get_rng_state_all = lambda: [module.get_rng_state()]
        module.set_rng_state_all = lambda states: None


def _streams(torch, streams, state, wait):
    class Stream:
        """As torch.cuda.Stream."""

        def __new__(cls, device=None, priority=0, **given):
            stream = object.__new__(cls)
            stream.device = torch.device("cuda", state.device)
            stream.device_index, stream.device_type = state.device, 1
            stream.cuda_stream = given["stream_ptr"] if "stream_ptr" in given else streams.driver.make_stream(state.device)
            stream.stream_id = stream.cuda_stream
            stream.priority = priority
            return stream

        def wait_stream(self, other=None):
            pass

        wait_event = wait_stream

        def synchronize(self):
            wait()

        def record_event(self, event=None):
            event = event or Event()
            event.record(self)
            return event

        def query(self):
            return True

        def __eq__(self, other):
            return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

        def __hash__(self):
            return hash(self.cuda_stream)

        def __enter__(self):
            self._context = stream_context(self)
            self._context.__enter__()
            return self

        def __exit__(self, *problem):
            self._context.__exit__(*problem)

        @staticmethod
        def priority_range():
            return 0, -1

    class Event:
        """As torch.cuda.Event. Times are the host's."""

        def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
            self._time = None
            self.cuda_event = 0

        def record(self, stream=None):
            self._time = time.perf_counter()

        def wait(self, stream=None):
            pass

        def synchronize(self):
            wait()

        def query(self):
            return True

        def elapsed_time(self, end):
            return 1e3 * ((end._time or 0) - (self._time or 0))

    default = Stream(stream_ptr=0)

    class stream_context:
        """As torch.cuda.stream(s)."""

        def __init__(self, stream):
            self._stream = stream

        def __enter__(self):
            self._before = streams.current()
            if self._stream is not None:
                streams.set(self._stream)

        def __exit__(self, *problem):
            if self._stream is not None:
                streams.set(self._before)

    cuda = torch.cuda
    cuda.Stream = cuda.streams.Stream = Stream
    cuda.Event = cuda.streams.Event = Event
    cuda.stream = cuda.StreamContext = stream_context
    cuda.current_stream = lambda device=None: streams.current() or default
    cuda.default_stream = lambda device=None: default
    cuda.set_stream = streams.set
