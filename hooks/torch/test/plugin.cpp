// plugin.cpp - the hook's plug-in functions throw and copy C++ objects as a C++ compiler makes them.
//
// c10 here is a reduced set of what the hook finds in torch's libraries by name. The program is linked with
// -rdynamic, so that its own file stands for a library of torch's.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memprof.h"

namespace c10 {

struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

class Error : public std::exception {
 public:
  Error(SourceLocation where, std::string text);
  ~Error() override;
  const char* what() const noexcept override;

 private:
  std::string text_;
  std::vector<std::string> context_;
  std::shared_ptr<int> trace_;
};

static int alive = 0;
Error::Error(SourceLocation where, std::string text) : text_(std::move(text)), context_{where.function, where.file}, trace_(new int(1)) { alive++; }
Error::~Error() { alive--; }
const char* Error::what() const noexcept { return text_.c_str(); }

class OutOfMemoryError : public Error {
  using Error::Error;
};

}  // namespace c10

static int failures = 0;

#define CHECK(what)                                              \
  do {                                                           \
    if (!(what)) std::printf("%s:%d: %s\n", __FILE__, __LINE__, #what), failures++; \
  } while (0)

using Filter = std::function<bool(void*)>;

// As torch calls its setters' functions: through a std::function, the pool as a pair, the filter by value.
using Begin = void(int, std::pair<unsigned long long, unsigned long long>, Filter);
using End = void(int, std::pair<unsigned long long, unsigned long long>);
static std::function<void*(size_t, int, void*)> allocate = memprof_plugin_malloc;
static std::function<Begin> begin = reinterpret_cast<Begin*>(&memprof_plugin_pool_begin);
static std::function<End> end = reinterpret_cast<End*>(&memprof_plugin_pool_end);

// Keeps the typeinfo of the exception in this file, as torch's own throw does in torch's.
__attribute__((noinline)) void throw_it() { throw c10::OutOfMemoryError({"f", "g", 1}, "text"); }

static void failed_request(bool wanted) {
  const char* what = nullptr;
  bool thrown = false;
  std::string text;
  try {
    CHECK(allocate(static_cast<size_t>(1) << 50, 0, nullptr) == nullptr);
  } catch (const c10::OutOfMemoryError& error) {
    thrown = true;
    text = (what = error.what());
  }
  CHECK(thrown == wanted);
  if (wanted) CHECK(text.rfind("CUDA out of memory. Tried to allocate", 0) == 0);
  CHECK(c10::alive == 0);
}

// Work on the GPU has failed: torch gets an error that is not of memory.
static void fault() {
  bool thrown = false;
  void (*fail)(int) = nullptr;
  *reinterpret_cast<void**>(&fail) = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "simcuda_fault");
  fail(700);
  try {
    allocate(static_cast<size_t>(900) << 20, 0, nullptr);
  } catch (const c10::OutOfMemoryError&) {
  } catch (const c10::Error& error) {
    thrown = std::strstr(error.what(), "CUDA error 700") != nullptr;
  }
  fail(0);
  CHECK(thrown);
  CHECK(c10::alive == 0);
}

static void filters() {
  static int copies = 0;
  struct Counted {  // too large for the buffer of a std::function, so it is allocated
    Counted() { copies++; }
    Counted(const Counted& other) : stream(other.stream) { copies++; }
    ~Counted() { copies--; }
    void* stream = nullptr;
    char more[64] = {};
  };
  void* const mine = reinterpret_cast<void*>(16);
  {
    Counted counted;
    counted.stream = mine;
    begin(0, {0, 7}, [counted](void* stream) { return stream == counted.stream; });
    CHECK(copies == 2);
  }
  CHECK(copies == 1);
  void* inside = allocate(1 << 20, 0, mine);
  void* beside = allocate(1 << 20, 0, reinterpret_cast<void*>(32));
  begin(0, {0, 8}, Filter());  // accepts every stream
  void* any = allocate(1 << 20, 0, mine);
  end(0, {0, 8});
  begin(0, {0, 9}, [](void*) -> bool { throw std::string("a filter that throws"); });
  bool thrown = false;
  try {
    allocate(1 << 20, 0, mine);
  } catch (const std::string&) {
    thrown = true;
  }
  CHECK(thrown);
  end(0, {0, 9});
  end(0, {0, 7});
  CHECK(copies == 1);  // the thread that threw still counts as a user
  memprof_listed chunks[64];
  const size_t count = memprof_list(0, chunks, 64);
  CHECK(count <= 64);
  std::uint64_t pools[3] = {99, 99, 99};
  void* const blocks[3] = {inside, beside, any};
  for (size_t i = 0; i < count && i < 64; i++) {
    for (int k = 0; k < 3; k++) {
      if (chunks[i].addr == reinterpret_cast<std::uint64_t>(blocks[k])) pools[k] = chunks[i].pool1;
    }
  }
  CHECK(pools[0] == 7 && pools[1] == 0 && pools[2] == 8);
}

// Torch's plug-in lets one GPU reach another by the runtime's function alone, which has no effect on mapped memory.
static void peers() {
  struct {
    int type, device;
  } const zero = {1, 0};
  int (*access)(unsigned long long*, const void*, unsigned long long) = nullptr;
  int (*enable)(int, unsigned) = nullptr;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  *reinterpret_cast<void**>(&access) = dlsym(driver, "cuMemGetAccess");
  *reinterpret_cast<void**>(&enable) = dlsym(RTLD_DEFAULT, "cudaDeviceEnablePeerAccess");
  const auto there = reinterpret_cast<unsigned long long>(allocate(1 << 20, 1, nullptr));
  unsigned long long flags = 9;
  CHECK(access(&flags, &zero, there) == 0 && flags == 0);
  CHECK(enable(1, 0) == 0);
  CHECK(access(&flags, &zero, there) == 0 && flags == 3);
}

int main(int count, char** arguments) {
  if (count == 99) throw_it();
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set)(void*) = nullptr;
  void* context = nullptr;
  *reinterpret_cast<void**>(&init) = dlsym(driver, "cuInit");
  *reinterpret_cast<void**>(&retain) = dlsym(driver, "cuDevicePrimaryCtxRetain");
  *reinterpret_cast<void**>(&set) = dlsym(driver, "cuCtxSetCurrent");
  CHECK(init(0) == 0 && retain(&context, 0) == 0 && set(context) == 0);
  (void)arguments;
  failed_request(false);
  CHECK(memprof_plugin_prepare("no such library") == 0);
  CHECK(memprof_plugin_prepare(nullptr) == 1);  // the program itself
  failed_request(true);
  failed_request(true);
  fault();
  filters();
  peers();
  std::printf("plugin: %d failed\n", failures);
  return failures != 0;
}
