"""Tests of the parts of _dryrun/guard.py that need no torch."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from memprof._dryrun import guard

# As in torch's c10/cuda/CUDAFunctions.cpp.
CONTEXTS = """
namespace c10 { namespace cuda {
static bool raises(signed char) { throw 1; }
namespace _internal {
static bool (*hasPrimaryContext)(signed char) = raises;
void setHasPrimaryContext(bool (*func)(signed char)) { hasPrimaryContext = func; }
}
}}
extern "C" int asked(int device) {
  try {
    return c10::cuda::_internal::hasPrimaryContext(device);
  } catch (int) {
    return -1;
  }
}
"""


@unittest.skipUnless(shutil.which("c++"), "no C++ compiler")
class GuardTest(unittest.TestCase):
    def test_no_device_has_a_context(self):
        with tempfile.TemporaryDirectory() as folder:
            source, built = os.path.join(folder, "contexts.cpp"), os.path.join(folder, "libcontexts.so")
            with open(source, "w") as f:
                f.write(CONTEXTS)
            subprocess.run(["c++", "-O2", "-shared", "-fPIC", "-o", built, source], check=True)
            library = ctypes.CDLL(built)
        self.assertEqual(library.asked(0), -1)
        guard.without_contexts(library)
        self.assertEqual(library.asked(0), 0)


if __name__ == "__main__":
    unittest.main()
