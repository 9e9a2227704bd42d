"""What memprof._interface reads of torch's headers, held against made-up ones and the shim's source."""

import os
import re
import sys
import tempfile
import unittest

HOOKS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(HOOKS, "python"))

from memprof import _interface  # noqa: E402

CUDA = """
struct Other {
  virtual void ofAnother() = 0;
};
class CUDAAllocator : public DeviceAllocator {
 public:
  virtual void* raw_alloc(size_t bytes) = 0;
  // virtual void commented(int) = 0;
  virtual std::vector<std::pair<size_t, bool>> getNews(
      c10::DeviceIndex device) = 0;
  virtual void allocateWithAddress(size_t, void*) {
    TORCH_CHECK(false, "not yet");
  }
  void recordStream(const DataPtr& ptr, c10::Stream stream) override {}
  /* virtual void
     commentedToo() = 0; */
};
class Behind { virtual void behind(); };
"""
CORE = """
struct C10_API DeviceAllocator : public c10::Allocator {
  virtual bool initialized() = 0;
  virtual void emptyCache(MempoolId_t pool = {0, 0}) = 0;
};
"""


class InterfaceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, *texts):
        for name, text in zip(_interface.HEADERS, texts):
            path = os.path.join(self.folder, "include", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)

    def test_virtual_functions_of_the_allocators(self):
        self.write(CUDA, CORE)
        self.assertEqual(_interface.functions(self.folder), ["raw_alloc", "getNews", "allocateWithAddress", "initialized", "emptyCache"])

    def test_without_the_newer_header(self):
        self.write(CUDA)
        self.assertEqual(_interface.functions(self.folder), ["raw_alloc", "getNews", "allocateWithAddress"])

    def test_what_the_shim_lacks(self):
        self.write(CUDA, CORE)
        self.assertEqual(_interface.missing(self.folder), ["getNews (not known to this memprof)", "allocateWithAddress (tensors resized to an address)"])

    def test_without_headers(self):
        (line,) = _interface.missing(self.folder)
        self.assertIn("torch's headers are not in " + self.folder, line)

    def test_tables_are_of_functions_that_the_shim_has_not(self):
        with open(os.path.join(HOOKS, "torch", "shim.cpp")) as f:
            served = set(re.findall(r"\b(\w+)\(", f.read()))
        self.assertEqual(served & set(_interface.LACKED), set())
        self.assertEqual(served & set(_interface.INHERITED), set())


if __name__ == "__main__":
    unittest.main()
