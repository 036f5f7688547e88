// The half that needs libtorch_cuda: built as a shared object of its own and opened at run time, after that library,
// so that the program starts on machines without CUDA. It links to nothing; the loader finds its symbols by then.
#include "activity.h"
#include "clears.h"
#include "error.h"
#include "nccl.h"
#include "nvrtc.h"
#include "products.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>

#include <memory>

namespace allocator = c10::cuda::CUDACachingAllocator;
using at::Tensor;
using c10::cuda::CUDAEvent;
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;

// Mirrors of the Rust structs of the same names.
struct Facts {
  char name[256];
  char pci_bus_id[32];
  uint64_t total_bytes, free_bytes;
  int32_t major, minor;
};
struct StreamId {
  int64_t id;
  int32_t device;
};
struct PoolId {
  uint64_t first, second;
};
struct Stats {
  int64_t allocated_bytes, peak_allocated_bytes, reserved_bytes, peak_reserved_bytes;
};

namespace {

CUDAStream unpack(StreamId stream) {
  return CUDAStream::unpack3(stream.id, static_cast<c10::DeviceIndex>(stream.device), c10::DeviceType::CUDA);
}

StreamId pack(const CUDAStream& stream) { return {stream.id(), stream.device_index()}; }

// A CUDAGraph whose failed capture leaves the device usable: LibTorch's own keeps the random generator in capture
// mode then, and the allocator may go on serving the dead graph's pool. What is captured is changed before it is made ready.
struct Graph : at::cuda::CUDAGraph {
  Graph() : at::cuda::CUDAGraph(/*keep_graph=*/true) {}

  void begin(PoolId pool) {
    try {
      capture_begin({pool.first, pool.second}, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      recover(/*release=*/false);
      throw;
    }
  }

  void end() {
    try {
      capture_end();
      clears::by_kernels(graph_, capture_dev_);
      instantiate();
      C10_CUDA_CHECK(cudaGraphDestroy(graph_));
      has_graph_ = false;
    } catch (...) {
      recover(/*release=*/!capture_ended_);
      throw;
    }
  }

 private:
  void recover(bool release) noexcept {
    quietly([&] { allocator::endAllocateToPool(capture_dev_, mempool_id_); });
    if (release) quietly([&] { allocator::releasePool(capture_dev_, mempool_id_); });
    for (auto& [state, increment] : captured_generator_states_) state->capturing_ = false;
    (void)cudaGetLastError();
  }

  // The first failure is the one to report; these may fail because LibTorch has done them already.
  template <class Body>
  static void quietly(Body&& body) noexcept {
    try {
      body();
    } catch (...) {
    }
  }
};

// cuda

char* init(int32_t* device_count) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    *device_count = c10::cuda::device_count_ensure_non_zero();
  });
}

char* facts(int32_t device, Facts* out) {
  return guarded([&] {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    C10_CUDA_CHECK(cudaDeviceGetPCIBusId(out->pci_bus_id, sizeof out->pci_bus_id, device));
    CUDAGuard guard(device);
    size_t free_bytes = 0, total_bytes = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    static_assert(sizeof out->name == sizeof properties.name);
    memcpy(out->name, properties.name, sizeof out->name);
    out->total_bytes = total_bytes;
    out->free_bytes = free_bytes;
    out->major = properties.major;
    out->minor = properties.minor;
  });
}

char* can_access_peer(int32_t device, int32_t peer, int32_t* yes) {
  return guarded([&] { C10_CUDA_CHECK(cudaDeviceCanAccessPeer(yes, device, peer)); });
}

char* synchronize(int32_t device) {
  return guarded([&] {
    CUDAGuard guard(device);
    c10::cuda::device_synchronize();
  });
}

// streams and events

char* stream_from_pool(int32_t device, bool high_priority, StreamId* out) {
  return guarded([&] { *out = pack(c10::cuda::getStreamFromPool(high_priority, device)); });
}

char* stream_current(int32_t device, StreamId* out) {
  return guarded([&] { *out = pack(c10::cuda::getCurrentCUDAStream(device)); });
}

char* stream_synchronize(StreamId stream) {
  return guarded([&] { unpack(stream).synchronize(); });
}

char* stream_query(StreamId stream, bool* done) {
  return guarded([&] { *done = unpack(stream).query(); });
}

char* stream_guard(StreamId stream, CUDAStreamGuard** guard) {
  return guarded([&] { *guard = new CUDAStreamGuard(unpack(stream)); });
}

void stream_unguard(CUDAStreamGuard* guard) { delete guard; }

char* record_stream(const Tensor* tensor, StreamId stream) {
  return guarded([&] { tensor->record_stream(unpack(stream).unwrap()); });
}

char* event_new(bool timing, CUDAEvent** event) {
  // Blocking: a thread that waits sleeps instead of burning a core that a worker could use.
  unsigned int flags = cudaEventBlockingSync | (timing ? cudaEventDefault : cudaEventDisableTiming);
  return guarded([&] { *event = new CUDAEvent(flags); });
}

void event_free(CUDAEvent* event) { delete event; }

char* event_record(CUDAEvent* event, StreamId stream) {
  return guarded([&] { event->record(unpack(stream)); });
}

char* event_wait(CUDAEvent* event, StreamId stream) {
  return guarded([&] { event->block(unpack(stream)); });
}

char* event_query(const CUDAEvent* event, bool* done) {
  return guarded([&] { *done = event->query(); });
}

char* event_synchronize(const CUDAEvent* event) {
  return guarded([&] { event->synchronize(); });
}

char* event_elapsed_ms(const CUDAEvent* event, const CUDAEvent* later, float* ms) {
  return guarded([&] { *ms = event->elapsed_time(*later); });
}

// graphs

char* pool_new(int32_t device, PoolId* out) {
  return guarded([&] {
    auto id = at::cuda::graph_pool_handle();
    allocator::createOrIncrefPool(device, id);
    *out = {id.first, id.second};
  });
}

char* pool_free(int32_t device, PoolId pool) {
  return guarded([&] { allocator::releasePool(device, {pool.first, pool.second}); });
}

char* graph_begin(PoolId pool, Graph** graph) {
  return guarded([&] {
    auto fresh = std::make_unique<Graph>();
    fresh->begin(pool);
    *graph = fresh.release();
  });
}

char* graph_end(Graph* graph) {
  return guarded([&] { graph->end(); });
}

char* graph_replay(Graph* graph) {
  return guarded([&] { graph->replay(); });
}

char* graph_free(Graph* graph) {
  return guarded([&] { delete graph; });
}

// memory

char* set_memory_fraction(int32_t device, double fraction) {
  return guarded([&] { allocator::setMemoryFraction(fraction, device); });
}

char* memory_stats(int32_t device, Stats* out) {
  return guarded([&] {
    auto stats = allocator::getDeviceStats(device);
    auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto& allocated = stats.allocated_bytes[all];
    const auto& reserved = stats.reserved_bytes[all];
    *out = {allocated.current, allocated.peak, reserved.current, reserved.peak};
  });
}

char* reset_peak(int32_t device) {
  return guarded([&] { allocator::resetPeakStats(device); });
}

char* empty_cache() {
  return guarded([&] { allocator::emptyCache(); });
}

// kernels

char* kernel_compile(const char* source, const char* const* names, size_t count, int32_t device,
                     nvrtc::Kernel** kernels) {
  return guarded([&] {
    auto compiled = nvrtc::compile(source, names, count, device);
    for (size_t i = 0; i < count; ++i) kernels[i] = compiled[i].release();
  });
}

char* kernel_launch(const nvrtc::Kernel* kernel, const uint32_t* grid, const uint32_t* block, uint32_t shared_bytes,
                    void** arguments) {
  return guarded([&] { nvrtc::launch(*kernel, grid, block, shared_bytes, arguments); });
}

void kernel_free(nvrtc::Kernel* kernel) { delete kernel; }

// `bias` may be null; `relu` goes with one.
char* multiply(const Tensor* a, const Tensor* b, const Tensor* bias, bool relu, Tensor* out) {
  return guarded([&] { *out = products::multiply(*a, *b, bias, relu); });
}

// activity

char* activity_start() {
  return guarded([] { activity::start(); });
}

char* activity_stop(Recording* out) {
  return guarded([&] { *out = activity::stop(); });
}

void activity_clear() { activity::clear(); }

}  // namespace

char* nccl_unique_id(nccl::Id* id) {
  return guarded([&] { nccl::check(nccl::library().unique_id(id)); });
}

char* nccl_join(const nccl::Id* id, int32_t rank, int32_t size, int32_t device, nccl::Comm* comm) {
  return guarded([&] {
    CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    nccl::check(nccl::library().init_rank(comm, size, *id, rank));
  });
}

char* nccl_sum(nccl::Comm comm, const Tensor* tensor) {
  return guarded([&] { nccl::sum(comm, *tensor); });
}

char* nccl_broadcast(nccl::Comm comm, const Tensor* tensor) {
  return guarded([&] { nccl::broadcast(comm, *tensor); });
}

char* nccl_leave(nccl::Comm comm) {
  return guarded([&] { nccl::check(nccl::library().abort(comm)); });
}

// Mirror of the Rust struct `Api`, in the same order.
struct Api {
  decltype(&init) init_;
  decltype(&facts) facts_;
  decltype(&can_access_peer) can_access_peer_;
  decltype(&synchronize) synchronize_;
  decltype(&stream_from_pool) stream_from_pool_;
  decltype(&stream_current) stream_current_;
  decltype(&stream_synchronize) stream_synchronize_;
  decltype(&stream_query) stream_query_;
  decltype(&stream_guard) stream_guard_;
  decltype(&stream_unguard) stream_unguard_;
  decltype(&record_stream) record_stream_;
  decltype(&event_new) event_new_;
  decltype(&event_free) event_free_;
  decltype(&event_record) event_record_;
  decltype(&event_wait) event_wait_;
  decltype(&event_query) event_query_;
  decltype(&event_synchronize) event_synchronize_;
  decltype(&event_elapsed_ms) event_elapsed_ms_;
  decltype(&pool_new) pool_new_;
  decltype(&pool_free) pool_free_;
  decltype(&graph_begin) graph_begin_;
  decltype(&graph_end) graph_end_;
  decltype(&graph_replay) graph_replay_;
  decltype(&graph_free) graph_free_;
  decltype(&set_memory_fraction) set_memory_fraction_;
  decltype(&memory_stats) memory_stats_;
  decltype(&reset_peak) reset_peak_;
  decltype(&empty_cache) empty_cache_;
  decltype(&kernel_compile) kernel_compile_;
  decltype(&kernel_launch) kernel_launch_;
  decltype(&kernel_free) kernel_free_;
  decltype(&multiply) multiply_;
  decltype(&activity_start) activity_start_;
  decltype(&activity_stop) activity_stop_;
  decltype(&activity_clear) activity_clear_;
  decltype(&nccl_unique_id) nccl_unique_id_;
  decltype(&nccl_join) nccl_join_;
  decltype(&nccl_sum) nccl_sum_;
  decltype(&nccl_broadcast) nccl_broadcast_;
  decltype(&nccl_leave) nccl_leave_;
};

extern "C" const Api* torchx_cuda_api() {
  static const Api api = {
      init, facts, can_access_peer, synchronize,
      stream_from_pool, stream_current, stream_synchronize, stream_query, stream_guard, stream_unguard, record_stream,
      event_new, event_free, event_record, event_wait, event_query, event_synchronize, event_elapsed_ms,
      pool_new, pool_free, graph_begin, graph_end, graph_replay, graph_free,
      set_memory_fraction, memory_stats, reset_peak, empty_cache,
      kernel_compile, kernel_launch, kernel_free, multiply,
      activity_start, activity_stop, activity_clear,
      nccl_unique_id, nccl_join, nccl_sum, nccl_broadcast, nccl_leave,
  };
  return &api;
}
