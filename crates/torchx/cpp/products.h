// Matrix products by cuBLASLt with the fastest of its kernels, found by trying: what its rules choose first takes up to a
// quarter longer on the sizes of a voice (docs/kernels.md). As with cuDNN's trials, another kernel rounds in another order,
// so nothing is tried where results must repeat. Its functions are looked up by name, and the few constants in use are
// declared here: the wheels carry no header of it, and its interface has kept them since CUDA 11.
#pragma once

#include "bind.h"
#include "user_cache.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace products {

using at::Tensor;

constexpr int COMPUTE_F32 = 68, REAL_F32 = 0, REAL_BF16 = 14;
enum DescAttribute { transpose_a = 3, transpose_b = 4, epilogue = 7, bias_pointer = 8 };
enum Epilogue : uint32_t { nothing = 1, add_bias = 4, add_bias_relu = 6 };
constexpr int PREFERENCE_WORKSPACE = 1;
constexpr size_t WORKSPACE_BYTES = 32 << 20;
constexpr int CANDIDATES = 8;

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

struct Library {
  size_t (*version)();
  int (*create)(void** handle);
  int (*desc_create)(void** desc, int compute, int scale);
  int (*desc_set)(void* desc, int attribute, const void* value, size_t size);
  int (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*preference_create)(void** preference);
  int (*preference_set)(void* preference, int attribute, const void* value, size_t size);
  int (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
                   Heuristic* results, int* count);
  int (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                const void* algorithm, void* workspace, size_t size, cudaStream_t stream);
};

inline void check(int status, const char* what) { TORCH_CHECK(status == 0, "cuBLASLt: ", what, ": status ", status); }

inline const Library& library() {
  static const Library opened = [] {
    Library library;
    bind(RTLD_DEFAULT, "cublasLtGetVersion", library.version);
    bind(RTLD_DEFAULT, "cublasLtCreate", library.create);
    bind(RTLD_DEFAULT, "cublasLtMatmulDescCreate", library.desc_create);
    bind(RTLD_DEFAULT, "cublasLtMatmulDescSetAttribute", library.desc_set);
    bind(RTLD_DEFAULT, "cublasLtMatrixLayoutCreate", library.layout_create);
    bind(RTLD_DEFAULT, "cublasLtMatmulPreferenceCreate", library.preference_create);
    bind(RTLD_DEFAULT, "cublasLtMatmulPreferenceSetAttribute", library.preference_set);
    bind(RTLD_DEFAULT, "cublasLtMatmulAlgoGetHeuristic", library.heuristic);
    bind(RTLD_DEFAULT, "cublasLtMatmul", library.matmul);
    return library;
  }();
  return opened;
}

// One handle a device, for good.
inline void* handle(c10::DeviceIndex device) {
  static std::map<c10::DeviceIndex, void*> handles;
  auto& found = handles[device];
  if (!found) check(library().create(&found), "create");
  return found;
}

// Of a matrix as it lies: rows of neighbours, or columns.
struct Side {
  int64_t stride;
  bool by_columns;

  static std::optional<Side> of(const Tensor& matrix) {
    if (matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1)) return Side{matrix.stride(0), false};
    if (matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0)) return Side{matrix.stride(1), true};
    return std::nullopt;
  }
};

// cuBLAS takes matrices by columns, so it computes outᵀ = bᵀ aᵀ. Kept for good: there are as many as a network has shapes.
struct Plan {
  void *desc = nullptr, *left = nullptr, *right = nullptr, *out = nullptr;
  Heuristic chosen{};

  Plan(const Tensor& a, Side a_side, const Tensor& b, Side b_side, Epilogue then) {
    auto rows = a.size(0), inner = a.size(1), columns = b.size(1);
    check(library().desc_create(&desc, COMPUTE_F32, REAL_F32), "description");
    set(transpose_a, int32_t{b_side.by_columns});
    set(transpose_b, int32_t{a_side.by_columns});
    set(epilogue, static_cast<uint32_t>(then));
    left = b_side.by_columns ? layout(inner, columns, b_side.stride) : layout(columns, inner, b_side.stride);
    right = a_side.by_columns ? layout(rows, inner, a_side.stride) : layout(inner, rows, a_side.stride);
    out = layout(columns, rows, columns);
  }

  template <class Value>
  void set(DescAttribute attribute, Value value) {
    check(library().desc_set(desc, attribute, &value, sizeof value), "attribute");
  }

  static void* layout(int64_t rows, int64_t columns, int64_t stride) {
    void* made = nullptr;
    check(library().layout_create(&made, REAL_BF16, rows, columns, stride), "layout");
    return made;
  }

  void queue(const Heuristic& way, const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& to,
             const Tensor& room, cudaStream_t stream) {
    if (bias) set(bias_pointer, bias->data_ptr());
    const float one = 1, zero = 0;
    check(library().matmul(handle(a.device().index()), desc, &one, b.data_ptr(), left, a.data_ptr(), right, &zero,
                           to.data_ptr(), out, to.data_ptr(), out, way.algorithm, room.data_ptr(), way.workspace, stream),
          "product");
  }

  void run(const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& to) {
    // Freed at once: the next to get this memory is queued behind.
    auto room = at::empty({static_cast<int64_t>(chosen.workspace)}, a.options().dtype(at::kByte));
    queue(chosen, a, b, bias, to, room, c10::cuda::getCurrentCUDAStream(a.device().index()).stream());
  }

  std::vector<Heuristic> candidates(c10::DeviceIndex device) {
    static void* preference = [] {
      void* made = nullptr;
      check(library().preference_create(&made), "preference");
      check(library().preference_set(made, PREFERENCE_WORKSPACE, &WORKSPACE_BYTES, sizeof WORKSPACE_BYTES), "workspace");
      return made;
    }();
    std::vector<Heuristic> ways(CANDIDATES);
    int count = 0;
    if (library().heuristic(handle(device), desc, left, right, out, out, preference, CANDIDATES, ways.data(), &count))
      count = 0;
    ways.resize(count);
    return ways;
  }

  // In a graph, and each behind another kernel, as it will run: a way that wants memory cleared before it, a node more, is
  // fast in a stream alone and costs some 6 µs there. Waits for the GPU.
  float time_ms(const Heuristic& way, const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& to,
                const Tensor& room) {
    constexpr int PRODUCTS = 6, REPLAYS = 4;
    auto trial = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, a.device().index());
    auto stream = trial.stream();
    c10::cuda::CUDAStreamGuard guard(trial);
    auto other = room.narrow(0, 0, 64);
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    other.fill_(1);  // both set themselves up
    queue(way, a, b, bias, to, room, stream);
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < PRODUCTS; ++i) {
      other.fill_(1);
      queue(way, a, b, bias, to, room, stream);
    }
    C10_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    C10_CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
    cudaEvent_t marks[2];
    for (auto& mark : marks) C10_CUDA_CHECK(cudaEventCreate(&mark));
    C10_CUDA_CHECK(cudaGraphLaunch(ready, stream));
    C10_CUDA_CHECK(cudaEventRecord(marks[0], stream));
    for (int i = 0; i < REPLAYS; ++i) C10_CUDA_CHECK(cudaGraphLaunch(ready, stream));
    C10_CUDA_CHECK(cudaEventRecord(marks[1], stream));
    C10_CUDA_CHECK(cudaEventSynchronize(marks[1]));
    float ms = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, marks[0], marks[1]));
    for (auto& mark : marks) C10_CUDA_CHECK(cudaEventDestroy(mark));
    C10_CUDA_CHECK(cudaGraphExecDestroy(ready));
    C10_CUDA_CHECK(cudaGraphDestroy(graph));
    return ms;
  }
};

// What a plan depends on, on one device.
using Key = std::array<int64_t, 8>;

// Which of cuBLASLt's ways was the fastest, by what was tried before: in a file for each kind of GPU and version of the
// library, so that a run need not try again. A line that is not whole is none.
class Known {
 public:
  explicit Known(c10::DeviceIndex device) {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    file_ = user_cache::file("products of " + std::string(properties.name) + " " + std::to_string(library().version()));
    std::ifstream stream(file_);
    for (std::string line; std::getline(stream, line);) {
      std::istringstream numbers(line);
      Key key;
      size_t way = 0;
      std::string end;
      for (auto& number : key) numbers >> number;
      if (numbers >> way >> end && end == ".") ways_[key] = way;
    }
  }

  std::optional<size_t> way(const Key& key) const {
    auto found = ways_.find(key);
    return found == ways_.end() ? std::nullopt : std::optional(found->second);
  }

  void add(const Key& key, size_t way) {
    ways_[key] = way;
    std::ostringstream line;
    for (auto number : key) line << number << ' ';
    line << way << " .\n";
    std::ofstream(file_, std::ios::app) << line.str();
  }

 private:
  std::filesystem::path file_;
  std::map<Key, size_t> ways_;
};

// The plans of a device, for good.
class Plans {
 public:
  explicit Plans(c10::DeviceIndex device) : device_(device), known_(device) {}

  // The plan for these matrices, tried if it is new; none where cuBLASLt has no way, or a graph is captured and nothing known.
  Plan* of(const Tensor& a, const Tensor& b, const Tensor* bias, bool relu, const Tensor& to) {
    auto a_side = Side::of(a), b_side = Side::of(b);
    if (!a_side || !b_side) return nullptr;
    auto then = relu ? add_bias_relu : bias ? add_bias : nothing;
    Key key = {a.size(0), a.size(1), b.size(1), a_side->stride, a_side->by_columns, b_side->stride, b_side->by_columns,
               then};
    std::lock_guard guard(lock_);
    if (auto found = plans_.find(key); found != plans_.end()) return found->second.get();
    if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) return nullptr;
    auto made = std::make_unique<Plan>(a, *a_side, b, *b_side, then);
    if (bias) made->set(bias_pointer, bias->data_ptr());  // its alignment counts when ways are looked for
    auto ways = made->candidates(device_);
    if (ways.empty()) return plans_.emplace(key, nullptr).first->second.get();
    auto way = known_.way(key);
    if (!way || *way >= ways.size()) known_.add(key, *(way = fastest(*made, ways, a, b, bias, to)));
    made->chosen = ways[*way];
    return plans_.emplace(key, std::move(made)).first->second.get();
  }

 private:
  static size_t fastest(Plan& plan, const std::vector<Heuristic>& ways, const Tensor& a, const Tensor& b,
                        const Tensor* bias, const Tensor& to) {
    auto room = at::empty({static_cast<int64_t>(WORKSPACE_BYTES)}, a.options().dtype(at::kByte));
    std::vector<float> times;
    for (const auto& way : ways) times.push_back(plan.time_ms(way, a, b, bias, to, room));
    return std::min_element(times.begin(), times.end()) - times.begin();
  }

  c10::DeviceIndex device_;
  Known known_;
  std::mutex lock_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

inline Plans& plans(c10::DeviceIndex device) {
  static std::mutex lock;
  static std::map<c10::DeviceIndex, std::unique_ptr<Plans>> all;
  std::lock_guard guard(lock);
  auto& found = all[device];
  if (!found) found = std::make_unique<Plans>(device);
  return *found;
}

inline bool may_try(const Tensor& a) {
  const auto& context = at::globalContext();
  return a.scalar_type() == at::kBFloat16 && context.benchmarkCuDNN() && !context.deterministicAlgorithms();
}

// a · b, with a bias for each column, and then what lies below zero cut off.
inline Tensor multiply(const Tensor& a, const Tensor& b, const Tensor* bias, bool relu) {
  if (may_try(a)) {
    c10::cuda::CUDAGuard guard(a.device());
    auto to = at::empty({a.size(0), b.size(1)}, a.options());
    if (auto* found = plans(a.device().index()).of(a, b, bias, relu, to)) {
      found->run(a, b, bias, to);
      return to;
    }
  }
  if (!bias) return at::mm(a, b);
  return relu ? at::_addmm_activation(*bias, a, b) : at::addmm(*bias, a, b);
}

}  // namespace products
