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

# torch's hooks as far as they matter: a function before the one that raises there, and one behind it.
HOOKS = """
namespace at {
struct Hooks {
  virtual ~Hooks() {}
  virtual int before() const { return 1; }
  virtual bool hasPrimaryContext(signed char) const = 0;
  virtual int behind() const { return 3; }
};
namespace cuda { namespace detail {
struct CUDAHooks : Hooks { bool hasPrimaryContext(signed char) const override; };
bool CUDAHooks::hasPrimaryContext(signed char) const { return true; }
}}
namespace detail {
const Hooks &getCUDAHooks() { static const Hooks *hooks = new cuda::detail::CUDAHooks; return *hooks; }
}
}
extern "C" int sum() { const at::Hooks &hooks = at::detail::getCUDAHooks(); return hooks.before() + 100 * hooks.hasPrimaryContext(0) + hooks.behind(); }
"""


@unittest.skipUnless(shutil.which("c++"), "no C++ compiler")
class GuardTest(unittest.TestCase):
    def test_no_device_has_a_context(self):
        with tempfile.TemporaryDirectory() as folder:
            source, built = os.path.join(folder, "hooks.cpp"), os.path.join(folder, "libhooks.so")
            with open(source, "w") as f:
                f.write(HOOKS)
            subprocess.run(["c++", "-O2", "-shared", "-fPIC", "-o", built, source], check=True)
            library = ctypes.CDLL(built)
        self.assertEqual(library.sum(), 104)
        guard.without_contexts(library, library)
        self.assertEqual(library.sum(), 4)


if __name__ == "__main__":
    unittest.main()
