"""Tests of the script that drives torch's allocator, with a torch that only counts; no GPU and no torch is needed."""

import contextlib
import importlib
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

JOBS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "jobs")


class OutOfMemoryError(Exception):
    pass


class Card:
    """A torch of tensors with addresses. It refuses what exceeds the card, and pools that end within their scope."""

    def __init__(self, total):
        self.total, self.used, self.next, self.emptied, self.pools = total, 0, 1 << 40, 0, 0
        card = self

        class Tensor:
            size = 0

            def __init__(self, size):
                if card.used + size > card.total:
                    raise OutOfMemoryError()
                card.used += size
                self.size, self.addr = size, card.next
                card.next += size

            def __del__(self):
                card.used -= self.size

            def data_ptr(self):
                return self.addr

            def record_stream(self, stream):
                pass

        class MemPool:
            def __init__(self):
                card.pools += 1

        def empty_cache():
            card.emptied += 1

        def stats(_):
            return {name: {"all": {"current": card.used}} for name in ("reserved_bytes", "active_bytes", "allocated_bytes", "requested_bytes")}

        class Stream:
            cuda_stream = 0

            def synchronize(self):
                pass

        self.torch = types.ModuleType("torch")
        self.torch.__version__ = "2.11.0"
        self.torch.OutOfMemoryError, self.torch.uint8, self.torch.int32 = OutOfMemoryError, None, None
        self.torch.empty = lambda size, **_: Tensor(size)
        self.torch._C = types.SimpleNamespace(_cuda_memoryStats=stats)
        self.torch.cuda = types.SimpleNamespace(
            Stream=Stream, stream=lambda _: contextlib.nullcontext(), MemPool=MemPool, use_mem_pool=lambda _: contextlib.nullcontext(),
            empty_cache=empty_cache, init=lambda: None, mem_get_info=lambda: (total, total), set_per_process_memory_fraction=lambda _: None)


class Gate:
    """The gate without a driver."""

    def __init__(self):
        self.held = set()

    def hold(self, stream):
        self.held.add(stream)

    def open(self):
        self.held.clear()


class Operations(unittest.TestCase):
    def twin(self, operations, *flags, total=1 << 40):
        card = Card(total)
        with mock.patch.dict(sys.modules, {"torch": card.torch}), mock.patch.object(sys, "path", [JOBS] + sys.path):
            sys.modules.pop("allocator_twin", None)
            script = importlib.import_module("allocator_twin")
            with tempfile.TemporaryDirectory() as folder, mock.patch.object(script, "Gate", Gate):
                path = os.path.join(folder, "twin.txt")
                with mock.patch.object(sys, "argv", ["allocator_twin.py", "--operations", str(operations), "-o", path, *flags]):
                    script.main()
                with open(path) as f:
                    return card, f.read().splitlines()

    def test_as_many_as_asked(self):
        for flags in ((), ("--pools",), ("--fraction", "0.01"), ("--pools", "--fraction", "0.01"), ("--live", "1")):
            for operations in (1, 2, 50, 1000):
                for seed in ("1", "2"):
                    card, lines = self.twin(operations, "--seed", seed, *flags)
                    self.assertEqual(len(lines) - 1, operations, f"{flags}, seed {seed}")
                    self.assertIn(f" operations={operations} conf=", lines[0])

    def test_kinds(self):
        card, lines = self.twin(6000, "--pools", total=1 << 30)
        kinds = {kind: sum(line.split()[0] == kind for line in lines[1:]) for kind in "aoufhsendbc"}
        for kind, count in kinds.items():
            self.assertGreater(count, 0, f"{kind} of {kinds}")
        self.assertEqual(kinds["e"], card.emptied)
        self.assertEqual(kinds["n"], card.pools)
        slots = {"a": set(), "f": set()}
        for line in lines[1:]:
            words = line.split()
            if words[0] in slots:
                self.assertNotIn(words[1], slots[words[0]])
                slots[words[0]].add(words[1])
        self.assertLessEqual(slots["f"], slots["a"])


if __name__ == "__main__":
    unittest.main()
