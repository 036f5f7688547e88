// What the GPUs ran and when, from CUPTI's activity records. libtorch_cpu needs libcupti itself, so it is loaded; its
// functions are looked up by name, and the few record fields in use are declared here, because their place has been the
// same from CUDA 12.0 to 13 while the structs grew.
#pragma once

#include "bind.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <cxxabi.h>
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

// Mirrors of the Rust structs of the same names.
struct Span {
  uint64_t start_ns, end_ns;
  uint32_t device, stream;
  // An index into the names; `UINT32_MAX` for copies and fills.
  uint32_t name;
};
struct Recording {
  const Span* spans;
  size_t span_count;
  const char* const* names;
  size_t name_count;
  uint64_t start_ns, end_ns, dropped;
};

namespace activity {

enum Kind : uint32_t { copy = 1, fill = 2, kernel = 10, peer_copy = 22 };
constexpr Kind kinds[] = {copy, fill, kernel, peer_copy};

struct KernelRecord {
  uint32_t kind, config[3];
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3], shared_bytes[2];
  uint32_t local_bytes[2], correlation;
  int64_t grid_id;
  const char* name;
};
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, device) == 40);
static_assert(offsetof(KernelRecord, stream) == 48 && offsetof(KernelRecord, name) == 104);

// Of copies, copies between devices, and fills.
struct CopyRecord {
  uint32_t kind, config;
  uint64_t bytes, start, end;
  uint32_t device, context, stream;
};
static_assert(offsetof(CopyRecord, start) == 16 && offsetof(CopyRecord, device) == 32);
static_assert(offsetof(CopyRecord, stream) == 40);

using RequestBuffer = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
using CompleteBuffer = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);

struct Library {
  int (*version)(uint32_t*);
  int (*register_callbacks)(RequestBuffer, CompleteBuffer);
  int (*enable)(uint32_t kind);
  int (*disable)(uint32_t kind);
  int (*flush)(uint32_t flags);
  int (*next)(uint8_t* buffer, size_t valid, const uint32_t** record);
  int (*dropped)(void* context, uint32_t stream, size_t* count);
  int (*timestamp)(uint64_t*);
  int (*error_string)(int, const char**);
};

const Library& library();

inline void check(int result, const char* what) {
  if (result == 0) return;
  const char* text = nullptr;
  library().error_string(result, &text);
  TORCH_CHECK(false, "CUPTI: ", what, ": ", text ? text : "unknown error");
}

struct Log {
  std::atomic<bool> running = false;
  std::mutex lock;  // of what is below
  std::vector<Span> spans;
  std::vector<std::string> names;
  std::vector<const char*> name_pointers;
  std::unordered_map<std::string, uint32_t> numbers;
  uint64_t start_ns = 0, dropped = 0;

  void clear() {
    spans = {};
    names = {};
    name_pointers = {};
    numbers = {};
    dropped = 0;
  }

  uint32_t number(const char* mangled) {
    auto [entry, is_new] = numbers.try_emplace(mangled, static_cast<uint32_t>(names.size()));
    if (is_new) {
      int status = 0;
      char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
      names.emplace_back(readable ? readable : mangled);
      free(readable);
    }
    return entry->second;
  }

  void add(const uint32_t* record) {
    if (*record == Kind::kernel) {
      const auto& kernel = *reinterpret_cast<const KernelRecord*>(record);
      spans.push_back({kernel.start, kernel.end, kernel.device, kernel.stream, number(kernel.name)});
    } else if (*record == Kind::copy || *record == Kind::fill || *record == Kind::peer_copy) {
      const auto& copy = *reinterpret_cast<const CopyRecord*>(record);
      spans.push_back({copy.start, copy.end, copy.device, copy.stream, UINT32_MAX});
    }
  }
};

// Never destroyed: CUPTI's thread may hand over a buffer while the process ends.
inline Log& log() {
  static Log* log = new Log;
  return *log;
}

constexpr size_t buffer_bytes = 4 << 20;

inline void request_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *max_records = 0;  // as many as fit
}

// On a thread of CUPTI's, or inside `flush`: nothing may be thrown from here.
inline void complete_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  try {
    std::lock_guard guard(log().lock);
    const uint32_t* record = nullptr;
    while (library().next(buffer, valid, &record) == 0) log().add(record);
    size_t dropped = 0;
    if (library().dropped(nullptr, 0, &dropped) == 0) log().dropped += dropped;
  } catch (...) {
  }
  free(buffer);
}

inline Library open() {
  void* handle = RTLD_DEFAULT;  // a null pointer, like a failed dlopen
  if (!dlsym(handle, "cuptiActivityEnable")) {
    handle = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_LOCAL);
    TORCH_CHECK(handle, "CUPTI: ", dlerror());
  }
  Library library;
  bind(handle, "cuptiGetVersion", library.version);
  bind(handle, "cuptiActivityRegisterCallbacks", library.register_callbacks);
  bind(handle, "cuptiActivityEnable", library.enable);
  bind(handle, "cuptiActivityDisable", library.disable);
  bind(handle, "cuptiActivityFlushAll", library.flush);
  bind(handle, "cuptiActivityGetNextRecord", library.next);
  bind(handle, "cuptiActivityGetNumDroppedRecords", library.dropped);
  bind(handle, "cuptiGetTimestamp", library.timestamp);
  bind(handle, "cuptiGetResultString", library.error_string);
  uint32_t version = 0;
  library.version(&version);
  // 19 is CUDA 12.0; from 13.0 on, major · 10000 + minor · 100 + patch.
  TORCH_CHECK(version >= 19 && version < 140000, "CUPTI: API version ", version, " is not known; known are CUDA 12 and 13");
  return library;
}

inline const Library& library() {
  static const Library opened = open();
  return opened;
}

inline void synchronize_all() {
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
    if (!c10::cuda::hasPrimaryContext(device)) continue;
    c10::cuda::CUDAGuard guard(device);
    c10::cuda::device_synchronize();
  }
}

inline uint64_t now() {
  uint64_t ns = 0;
  check(library().timestamp(&ns), "timestamp");
  return ns;
}

// Hands over what is complete and ends the recording; without the lock, which `complete_buffer` takes.
inline int finish() {
  constexpr uint32_t forced = 1;
  auto flushed = library().flush(forced);
  for (auto kind : kinds) library().disable(kind);
  return flushed;
}

// Also ends a recording that was never stopped.
inline void clear() {
  finish();
  std::lock_guard guard(log().lock);
  log().clear();
  log().running = false;
}

// Records kernels one by one, those of replayed graphs too: that is CUPTI's way unless graph-level tracing is asked for.
inline void start() {
  static const int registered = library().register_callbacks(request_buffer, complete_buffer);
  check(registered, "callbacks");
  TORCH_CHECK(!log().running.exchange(true), "CUPTI: a recording is under way already");
  try {
    synchronize_all();
    for (auto kind : kinds) check(library().enable(kind), "enable");
    log().start_ns = now();
  } catch (...) {
    clear();
    throw;
  }
}

// Waits for what was queued. The recording stays valid until `clear`.
inline Recording stop() {
  synchronize_all();
  auto end_ns = now();
  check(finish(), "flush");
  std::lock_guard guard(log().lock);
  auto& all = log();
  for (const auto& name : all.names) all.name_pointers.push_back(name.c_str());
  return {all.spans.data(), all.spans.size(), all.name_pointers.data(), all.names.size(),
          all.start_ns,     end_ns,           all.dropped};
}

}  // namespace activity
