"""Watching torch's own allocator, on a made-up torch and a made-up shim."""

import os
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from memprof import _calls, _hook, _inject, _shim, _watch  # noqa: E402


class Torch:
    """As much of torch as the injection looks at; `initialize` is its lazy initialisation."""

    __version__ = "9.9"

    class version:
        cuda = "13.0"

    def __init__(self, initialized=False):
        self.cuda = self._C = self
        self._initialized = initialized
        self._queued = [(lambda: self.seen.append("torch's own"))]
        self.seen = []

    def is_initialized(self):
        return self._initialized

    def _lazy_call(self, call):
        self._queued.append(call)

    def initialize(self):
        self.seen.append("initialized")
        for call in self._queued:
            call()
        self._initialized = True


class Shim:
    def __init__(self, seen, refusal=None, error=None):
        self._seen, self._refusal, self._error = seen, refusal, error

    def memprof_torch_watch(self):
        self._seen.append("attached")
        if self._error:
            raise self._error
        return self._refusal


class WatchTest(unittest.TestCase):
    def setUp(self):
        self.problems = []
        self.library = mock.Mock()
        self.at_exit = []
        for target, name, value in (
            (_hook, "library", lambda: self.library),
            (_hook, "problem", self.problems.append),
            (_shim, "path", lambda torch: "shim.so"),
        ):
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        patch = mock.patch("atexit.register", self.at_exit.append)
        patch.start()
        self.addCleanup(patch.stop)

    def install(self, torch, **shim):
        with mock.patch.object(_calls, "shim", lambda path: Shim(torch.seen, **shim)):
            _watch.install(torch)

    def test_attaches_when_cuda_is_initialized(self):
        torch = Torch()
        self.install(torch)
        self.assertEqual(torch.seen, [])
        torch.initialize()
        torch._lazy_call(lambda: torch.seen.append("the job's"))
        self.assertEqual(torch.seen, ["initialized", "torch's own", "attached"])
        self.assertEqual(self.at_exit, [self.library.memprof_watch_sample])
        self.assertEqual(self.problems, [])

    def test_attaches_at_once_when_it_has_been(self):
        torch = Torch(initialized=True)
        self.install(torch)
        self.assertEqual(torch.seen, ["attached"])

    def test_refusal_does_not_reach_the_job(self):
        torch = Torch()
        self.install(torch, refusal=b"cudaMallocAsync has no tracker")
        torch.initialize()
        self.assertEqual(self.problems, ["torch: cudaMallocAsync has no tracker; tensors are not recorded"])
        self.assertEqual(self.at_exit, [])

    def test_error_does_not_reach_the_job(self):
        torch = Torch()
        self.install(torch, error=OSError("undefined symbol"))
        torch.initialize()
        self.assertEqual(self.problems, ["torch: OSError: undefined symbol; tensors are not recorded"])

    def test_notes_settings_in_code_once(self):
        torch = Torch()
        torch._cuda_cudaCachingAllocator_set_allocator_settings = torch.seen.append
        _watch._note.cache_clear()
        self.install(torch)
        change = torch._cuda_cudaCachingAllocator_set_allocator_settings
        change("expandable_segments:True")
        self.assertEqual(self.problems, [])
        for text in ("expandable_segments:True,max_split_size_mb:40", ""):
            change(text)
            self.assertEqual(self.problems, ["torch: the job changes settings of the allocator in its code, which verify does not follow"])
        self.assertEqual(torch.seen, ["expandable_segments:True", "expandable_segments:True,max_split_size_mb:40", ""])

    def test_which_of_the_two_is_installed(self):
        for allocator, expected in ((None, "shim"), ("bfc", "shim"), ("native", "watch")):
            seen = []
            environment = {} if allocator is None else {"MEMPROF_ALLOCATOR": allocator}
            with mock.patch.dict(os.environ, environment), mock.patch.object(_shim, "install", lambda t: seen.append("shim")), mock.patch.object(
                _watch, "install", lambda t: seen.append("watch")
            ):
                if allocator is None:
                    os.environ.pop("MEMPROF_ALLOCATOR", None)
                _inject._on_torch(Torch())
            self.assertEqual(seen, [expected], allocator)


if __name__ == "__main__":
    unittest.main()
