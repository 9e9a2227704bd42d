// notes.h - what torch knows about the allocations that the calling thread makes now.
#pragma once

#include <c10/core/Allocator.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memprof {

using Context = std::shared_ptr<c10::GatheredContext>;

// Texts for the entries of the history, and the stack that mappings of memory get: that of the request,
// or of the call of empty_cache, that they are made for.
struct Notes {
  std::vector<std::string> compiling;  // of torch.compile, the innermost last
  std::string metadata;                // torch.cuda.memory._set_memory_metadata
  const Context* cause = nullptr;

  static Notes& of_thread() {
    static thread_local Notes notes;
    return notes;
  }

  // torch's word for an allocation outside of torch.compile
  std::string compile_context() const { return compiling.empty() ? "N/A" : compiling.back(); }
  Context cause_or_null() const { return cause == nullptr ? nullptr : *cause; }
};

// While it lives, mappings that the thread makes have this stack.
class Cause {
 public:
  explicit Cause(const Context& context) : before_(Notes::of_thread().cause) { Notes::of_thread().cause = &context; }
  ~Cause() { Notes::of_thread().cause = before_; }
  Cause(const Cause&) = delete;
  Cause& operator=(const Cause&) = delete;

 private:
  const Context* before_;
};

}  // namespace memprof
