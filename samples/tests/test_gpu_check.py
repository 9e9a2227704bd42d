"""Tests of the acceptance suite's own command line; no GPU and no torch is needed."""

import os
import subprocess
import sys
import tempfile
import unittest

SUITE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gpu_check.py")


class Listing(unittest.TestCase):
    def test_without_pytest(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "pytest.py"), "w") as f:
                f.write("raise ImportError('there is no pytest')\n")
            environment = dict(os.environ, PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")
            done = subprocess.run([sys.executable, SUITE, "--list"], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("pair_cost", done.stdout)


if __name__ == "__main__":
    unittest.main()
