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

# As in torch's c10/cuda/CUDAFunctions.cpp and aten/src/ATen/cuda/detail/CUDAHooks.cpp.
CONTEXTS = """
namespace c10 { namespace cuda {
static bool raises(signed char) { throw 1; }
namespace _internal {
static bool (*hasPrimaryContext)(signed char) = raises;
void setHasPrimaryContext(bool (*func)(signed char)) { hasPrimaryContext = func; }
}
}}
namespace at {
struct Interface {
  virtual ~Interface() {}
  virtual bool isBuilt() const { return false; }
  virtual bool hasPrimaryContext(signed char) const = 0;
  virtual int deviceCount() const { return 0; }
};
namespace cuda { namespace detail {
struct CUDAHooks : Interface {
  bool isBuilt() const override;
  bool hasPrimaryContext(signed char) const override;
  int deviceCount() const override;
  int count = 7;
};
bool CUDAHooks::isBuilt() const { return true; }
bool CUDAHooks::hasPrimaryContext(signed char) const { throw 1; }
int CUDAHooks::deviceCount() const { return count; }
}}
namespace detail {
const Interface &getCUDAHooks() {
  static Interface *hooks = new cuda::detail::CUDAHooks;
  return *hooks;
}
}}
extern "C" int asked(int device) {
  try {
    return c10::cuda::_internal::hasPrimaryContext(device);
  } catch (int) {
    return -1;
  }
}
extern "C" int hooks_asked(int device) {
  const at::Interface &hooks = at::detail::getCUDAHooks();
  if (!hooks.isBuilt() || hooks.deviceCount() != 7) return -2;
  try {
    return hooks.hasPrimaryContext(device);
  } catch (int) {
    return -1;
  }
}
"""


HEADER = """
struct TORCH_API AcceleratorHooksInterface {
  // -Werror=non-virtual-dtor (squelched)
  virtual ~AcceleratorHooksInterface() = default;
  virtual bool isBuilt() const {
    return false;
  }
  virtual bool hasPrimaryContext(DeviceIndex device_index) const = 0;
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
            os.makedirs(os.path.join(folder, "ATen", "detail"))
            with open(os.path.join(folder, "ATen", "detail", "AcceleratorHooksInterface.h"), "w") as f:
                f.write(HEADER)
            self.assertEqual((library.asked(0), library.hooks_asked(0)), (-1, -1))
            guard.without_contexts(library, library, folder)
            with self.assertRaises(guard.Missing):
                guard.without_contexts(library, library, os.path.join(folder, "nowhere"))
        self.assertEqual((library.asked(0), library.hooks_asked(0)), (0, 0))


if __name__ == "__main__":
    unittest.main()
