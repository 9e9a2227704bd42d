"""Tests of the parts of _dryrun/guard.py that need no torch."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import hooked
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


# As in torch's c10/core/impl/DeviceGuardImplInterface.h, of 2.11.
GUARDS = """
#include <cstdint>
struct Device { signed char type, index; };
struct Stream { Device device; int64_t id; };
struct Interface {
  virtual signed char type() const = 0;
  virtual Device exchangeDevice(Device) const = 0;
  virtual Device getDevice() const = 0;
  virtual void setDevice(Device) const = 0;
  virtual void uncheckedSetDevice(Device) const noexcept = 0;
  virtual Stream getStream(Device) const noexcept = 0;
  virtual Stream getDefaultStream(Device) const { throw 1; }
  virtual Stream getStreamFromGlobalPool(Device, bool = false) const { throw 1; }
  virtual Stream getNewStream(Device, int = 0) const { throw 1; }
  virtual Stream exchangeStream(Stream) const noexcept = 0;
  virtual void destroyEvent(void *, signed char) const noexcept {}
  virtual void record(void **, const Stream &, signed char, int) const { throw 1; }
  virtual void block(void *, const Stream &) const { throw 1; }
  virtual bool queryEvent(void *) const { throw 1; }
  virtual signed char deviceCount() const noexcept = 0;
  virtual int getDeviceCapability(Device) const { throw 1; }
  virtual bool queryStream(const Stream &) const { throw 1; }
  virtual ~Interface() {}
};
struct Nothing final : Interface {
  signed char type() const override { return 14; }
  Device exchangeDevice(Device) const override { return {14, -1}; }
  Device getDevice() const override { return {14, -1}; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return {{14, -1}, 0}; }
  Stream getNewStream(Device, int) const override { return {{14, -1}, 0}; }
  Stream exchangeStream(Stream) const noexcept override { return {{14, -1}, 0}; }
  signed char deviceCount() const noexcept override { return 1; }
  void record(void **, const Stream &, signed char, int) const override { throw 14; }
  void block(void *, const Stream &) const override { throw 14; }
  bool queryEvent(void *) const override { throw 14; }
  void destroyEvent(void *, signed char) const noexcept override {}
  bool queryStream(const Stream &) const override { return true; }
};
namespace c10 { namespace impl { const Interface *device_guard_impl_registry[20] = {}; } }
extern "C" void begin() { c10::impl::device_guard_impl_registry[14] = new Nothing; }
extern "C" long asked(int what, int index) {
  const Interface *guard = c10::impl::device_guard_impl_registry[1];
  const Stream stream = what == 5 ? guard->getDefaultStream({1, (signed char)index}) : guard->getStream({1, (signed char)index});
  void *event = &event;
  try {
    if (what == 0) return guard->type();
    if (what == 1) return guard->deviceCount();
    if (what == 2) return guard->getDevice().type * 256 + guard->getDevice().index;
    if (what == 3) return (guard->record(&event, stream, index, 0), guard->block(event, stream), event == &event);
    return stream.id != 0 ? -2 : stream.device.type * 256 + stream.device.index;
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
            os.makedirs(os.path.join(folder, "ATen", "detail"))
            with open(os.path.join(folder, "ATen", "detail", "AcceleratorHooksInterface.h"), "w") as f:
                f.write(HEADER)
            self.assertEqual((library.asked(0), library.hooks_asked(0)), (-1, -1))
            guard.without_contexts(library, library, folder)
            with self.assertRaises(guard.Missing):
                guard.without_contexts(library, library, os.path.join(folder, "nowhere"))
        self.assertEqual((library.asked(0), library.hooks_asked(0)), (0, 0))

    def test_the_guard_has_streams_of_the_device_and_events_without_effect(self):
        with tempfile.TemporaryDirectory() as folder:
            source, built = os.path.join(folder, "guards.cpp"), os.path.join(folder, "libc10.so")
            with open(source, "w") as f:
                f.write(GUARDS)
            subprocess.run(["c++", "-O2", "-w", "-shared", "-fPIC", "-o", built, source], check=True)
            library = ctypes.CDLL(built)
            library.begin()
            stream = ctypes.cast(ctypes.CDLL(hooked.LIBRARY).memprof_torch_stream, ctypes.c_void_p).value
            torch = types.SimpleNamespace(__version__="2.11.0", version=types.SimpleNamespace(cuda="13.0"))
            guard.install(torch, lambda: 2, 3, stream)
        type_, count, device, event = (library.asked(what, 0) for what in range(4))
        self.assertEqual((type_, count, device, event), (1, 3, 256 + 2, 1))
        self.assertEqual([library.asked(what, index) for what in (4, 5) for index in (0, 2)], [256, 258, 256, 258])


if __name__ == "__main__":
    unittest.main()
