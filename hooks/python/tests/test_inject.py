"""Tests of what waits for a module to be imported."""

import os
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from memprof import _inject


class WaitTest(unittest.TestCase):
    def setUp(self):
        self.found, before = [], list(sys.meta_path)
        self.addCleanup(sys.meta_path.__setitem__, slice(None), before)

    def wait(self, name):
        _inject.wait_for(name, self.found.append, "nothing is lost")
        self.addCleanup(sys.modules.pop, name, None)

    def test_a_module_that_is_there(self):
        module = sys.modules["memprof_test_there"] = types.ModuleType("memprof_test_there")
        self.wait("memprof_test_there")
        self.assertEqual(self.found, [module])

    def test_a_module_that_is_imported_later(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "memprof_test_later.py"), "w") as f:
                f.write("done = True\n")
            sys.path.insert(0, folder)
            self.addCleanup(sys.path.remove, folder)
            self.wait("memprof_test_later")
            self.assertEqual(self.found, [])
            import memprof_test_later
        self.assertEqual(self.found, [memprof_test_later])

    def test_a_module_that_is_being_imported(self):
        module = sys.modules["memprof_test_half"] = types.ModuleType("memprof_test_half")
        module.__spec__ = types.SimpleNamespace(_initializing=True)
        self.wait("memprof_test_half")
        self.assertEqual(self.found, [])


if __name__ == "__main__":
    unittest.main()
