"""Recordings that a process begins itself, of PyTorch's own allocator: memprof.watch, and MEMPROF_WATCH in the environment.

    process                                              beside it
    watch(directory)                                     collector: memprof record --finish DIRECTORY --wait
      compiles the shim, if it is not in the cache          spool -> Parquet, until no process is recorded
        (where that fails: torch's history, _history.py)
      waits until torch has initialised CUDA
      loads libmemprof.so for this module alone
      memprof_begin: the spool
      memprof_torch_watch: the trace tracker, and what torch's snapshot has
    stop()
      memprof_torch_unwatch, memprof_end

The hook is not in the global scope, so nobody's calls of CUDA reach it: what other libraries allocate is not known. Several processes may
record into one directory. MEMPROF_WATCH needs no launcher: a .pth file of the package imports this module where it is set.
"""

import atexit
import contextlib
import os
import sys
import threading

from memprof import _hook

_lock = threading.RLock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # `memprof attach` may have it, for as long as a compiler runs
_current = None  # the _Recording of this process


class WatchError(RuntimeError):
    """The process cannot be recorded. The text says why, and what to do."""


def watch(directory, stacks=False, ring=None):
    """Records this process's GPU memory into a directory, from now on until `stop()` or its end.

    PyTorch keeps its own allocator, which memprof observes. It may be called at any time: memory that is there by then is
    recorded, too. `stacks` records the Python stack of each allocation. `ring`, such as "256MiB", keeps the last events of that
    many bytes only, and has a snapshot written when a request fails. In a process that `memprof record` runs it does nothing.
    Returns the directory, which gets a number if it holds a recording that is complete.
    """
    if os.environ.get("MEMPROF_SPOOL") and _hook.active():
        return None
    with _lock:
        if _current is not None and _current.owner == os.getpid():
            raise WatchError("this process is recorded into %s already: call memprof.stop() first" % _current.directory)
        recording = _Recording(os.path.abspath(os.fspath(directory)), stacks, ring)
        recording.prepare()
        _begin(recording)
        return recording.directory


def _begin(recording):
    global _current
    _current = recording
    try:
        recording.begin_when_ready()
    except BaseException:
        _current = None
        recording.end()
        raise


def stop():
    """Ends the recording that `watch` began, completes it, and returns its directory; None where there is none."""
    global _current
    with _lock:
        recording, _current = _current, None
    if recording is None or recording.owner != os.getpid():
        return None
    recording.end()
    return recording.directory


@contextlib.contextmanager
def watching(directory, stacks=False, ring=None):
    """Records what happens inside the `with` block, as `watch` does."""
    watch(directory, stacks, ring)
    try:
        yield
    finally:
        stop()


def snapshot(to=None):
    """Writes the recording of this process, up to now, to a directory of its own, as `memprof snapshot` does. Returns it.

    Without `to` it is called after the recording. It needs the command line tool.
    """
    from memprof import _notebook

    directory = place()
    if directory is None:
        raise WatchError("this process is not recorded: call memprof.watch(DIRECTORY) first")
    if _hook.active():
        _hook.library().memprof_watch_sample()
    import json

    arguments = ["snapshot", "--json", directory] + ([] if to is None else ["-o", os.fspath(to)])
    return json.loads(_notebook._run(*arguments))["run"]


def place():
    """The directory that this process is recorded into; None: it is not."""
    with _lock:
        if _current is not None and _current.owner == os.getpid():
            return _current.directory if _current.begun else None
    spool = os.environ.get("MEMPROF_SPOOL")
    if not spool or spool == "-" or not _hook.active():
        return None
    try:  # a spool elsewhere names the recording that it belongs to
        return os.readlink(os.path.join(spool, "owner")).split(" ", 1)[1]
    except OSError:
        return os.path.dirname(spool)


def from_environment():
    """Records this process into $MEMPROF_WATCH, from torch's first use of CUDA on."""
    directory = os.environ.get("MEMPROF_WATCH")
    if not directory or os.environ.get("MEMPROF_SPOOL"):
        return
    directory = os.path.abspath(directory)
    options = dict(part.partition("=")[::2] for part in os.environ.get("MEMPROF_WATCH_OPTIONS", "").split(",") if part)

    _begin(_Recording(directory, options.get("stacks") == "python", options.get("ring"), asked=False))


def _complain(error):
    print("memprof: not recorded: %s" % error, file=sys.stderr)


class _Recording:
    """`asked`: by code of the job, which gets exceptions. Otherwise nothing is done before torch initialises CUDA, which many processes never do."""

    def __init__(self, directory, stacks, ring, asked=True):
        self.directory, self.stacks, self.ring, self.asked = directory, stacks, ring, asked
        self.begun = self.collected = False
        self.owner = os.getpid()

    def prepare(self, torch=None):
        """Finds all that is needed, while CUDA need not be there."""
        from memprof import _place

        try:
            _place.library()
            if self.ring and _place.tool() is None:
                raise WatchError("ring=%r needs the program memprof: put it on the PATH, or set $MEMPROF to it" % self.ring)
            os.makedirs(self.directory, exist_ok=True)
            if torch is not None:
                self._find_shim(torch)
        except (_place.PlaceError, OSError) as error:
            raise WatchError(str(error))

    def _find_shim(self, torch):
        from memprof import _shim

        try:
            self._shim_file = _shim.path(torch)
        except _shim.BuildError as error:
            self._without_shim(error)

    def _without_shim(self, error):
        from memprof import _history

        self._shim_file = None
        print("memprof: %s; until then %s" % (error, _history.COST), file=sys.stderr)

    def begin_when_ready(self):
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "cuda"):
            from memprof import _inject

            _inject.wait_for("torch", self._torch_is_there, "the process is not recorded")
            return
        self._wait_for_cuda(torch)

    def _torch_is_there(self, torch):
        global _current
        if _current is not self:
            return
        try:
            self._wait_for_cuda(torch)
        except Exception as error:  # the job imports torch, and asks for nothing
            _current = None
            _complain(error)

    def _wait_for_cuda(self, torch):
        from memprof import _watch

        if torch.version.cuda is None and not self.asked:
            return
        if torch.version.cuda is None:
            raise WatchError("torch %s is built without CUDA" % torch.__version__)
        if self.asked:
            self.prepare(torch)
        _watch.note_settings(torch)
        if torch.cuda.is_initialized():
            self._begin(torch)
        else:
            torch.cuda._lazy_call(lambda: self._begin_quietly(torch))

    def _begin_quietly(self, torch):
        # Torch calls this while it initialises CUDA. An exception would undo the initialisation.
        global _current
        if _current is not self:
            return  # stopped before
        try:
            self.owner = os.getpid()  # a forked process may be the first to use CUDA
            self._begin(torch)
        except Exception as error:
            _current = None
            _complain(error)
        if _current is not self:
            self.end()  # it failed half way, or another thread has called stop, which found it not begun

    def _begin(self, torch):
        from memprof import _attribution, _calls, _history, _inject, _place

        if _inject._asynchronous(torch):
            raise WatchError("the job has chosen backend:cudaMallocAsync, which cannot be observed")
        if not self.asked:
            self.prepare(torch)
        hook = _calls.Hook(_place.library())
        try:
            self._shim = _calls.shim(self._shim_file) if self._shim_file else None
        except OSError as error:  # one that was built elsewhere may not load here
            self._without_shim(error)
            self._shim = None
        options = "readings=1" + (",stacks=1" if self.stacks and self._shim_file else "")
        for _ in range(20):  # the collector may complete the recording of other processes meanwhile
            self.directory, spool = _place.make(self.directory, lambda: self._describe(torch))
            if hook.memprof_begin(os.fsencode(spool), options.encode()):
                break
            if os.path.isdir(spool):
                raise WatchError("the hook serves this process already, or %s cannot be written" % spool)
        else:
            raise WatchError("%s: its recording ends again and again" % self.directory)
        self._hook = hook
        self._shim = self._shim or _history.History(torch, hook, self.stacks)
        hook.memprof_note_framework(("torch " + torch.__version__).encode())
        refusal = self._shim.memprof_torch_watch()
        if refusal is not None:
            hook.memprof_end()
            raise WatchError("torch: " + refusal.decode(errors="replace"))
        _hook.adopt(hook if self._shim_file else _history.Hook(hook))
        self.begun = True
        atexit.register(_sample)
        if _attribution._installed is None:
            _attribution.install(torch, self._attribution())
        self.collected = _place.collect(self.directory, self.ring)

    def _attribution(self):
        # Each mark of a phase reads the history, and its entries do not say the module.
        return os.environ.get("MEMPROF_ATTRIBUTION") or ("modules" if self._shim_file else "none")

    def _describe(self, torch):
        from memprof import _place

        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        uuids = [str(getattr(p, "uuid", "")) for p in gpus]
        options = {"allocator": "native", "device": "real", "stacks": "python" if self.stacks else "none", "readings": _place.READINGS}
        options.update(began="in the process", attribution=self._attribution())
        if self.ring:
            options["ring"] = str(self.ring)
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            options["cuda_visible_devices"] = os.environ["CUDA_VISIBLE_DEVICES"]
        return {
            "gpus": [{"index": i, "name": p.name, "uuid": "GPU-" + u if u else "", "memory": p.total_memory} for i, (p, u) in enumerate(zip(gpus, uuids))],
            "frameworks": ["torch " + torch.__version__],
            "options": options,
        }

    def end(self):
        from memprof import _place

        if not self.begun:
            return
        self.begun = False
        self._shim.memprof_torch_unwatch()
        self._hook.memprof_end()
        atexit.unregister(_sample)
        if self.collected:
            _place.completed(self.directory, 10)


def _sample():
    """Records the allocator's own sums at the end of the script, while the allocator still exists."""
    lib = _hook.library()
    if lib is not None:
        lib.memprof_watch_sample()
