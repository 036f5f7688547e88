// What operations made of kernels of our own share. The kernels are compiled by the Rust half and launched through a
// pointer into the CUDA half, so that these files need the CPU library alone. Each call is queued on the current stream,
// takes its memory from LibTorch's allocator and never waits: it can be part of a graph.
#pragma once

#include "error.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Mirror of the Rust struct of the same name; lives for good.
struct Program {
  char* (*multiply)(const Tensor* a, const Tensor* b, const Tensor* bias, bool relu, Tensor* out);
  char* (*launch)(const void* kernel, const uint32_t* grid, const uint32_t* block, uint32_t shared_bytes,
                  void** arguments);
  const void* forward;
  const void* backward;
  const void* reduce;  // adds what the blocks of `backward` summed up
};

// Mirror of the Rust struct `RawSpans`.
struct Spans {
  const Tensor* owner;
  const Tensor* starts;
  const Tensor* lens;
};

namespace fused {

using Extent = std::array<uint32_t, 3>;

constexpr int64_t TILE = 16;    // rows, as in prelude.cuh
constexpr uint32_t THREADS = 256;
constexpr int64_t COLUMN_ROWS = 64;  // for each block, as in linear.cu
constexpr int64_t VECTORS = 16;  // for each thread of the backward pass, as in bias_leaky.cu

inline uint32_t shares(int64_t total, int64_t share) { return static_cast<uint32_t>((total + share - 1) / share); }

inline void check(char* message) {
  if (!message) return;
  std::string text = message;
  free(message);
  TORCH_CHECK(false, text);
}

// a · b, with a bias for each column, and then what lies below zero cut off.
inline Tensor multiply(const Program& program, const Tensor& a, const Tensor& b, const Tensor* bias = nullptr,
                       bool relu = false) {
  Tensor out;
  check(program.multiply(&a, &b, bias, relu, &out));
  return out;
}

// Arguments go as they lie: pointers, numbers of 32 bits, and structs of these.
template <class... Arguments>
void launch_with(const Program& program, const void* kernel, Extent grid, Extent block, int64_t shared_bytes,
                 Arguments... arguments) {
  void* pointers[] = {&arguments...};
  check(program.launch(kernel, grid.data(), block.data(), static_cast<uint32_t>(shared_bytes), pointers));
}

template <class... Arguments>
void launch(const Program& program, const void* kernel, Extent grid, Extent block, Arguments... arguments) {
  launch_with(program, kernel, grid, block, 0, arguments...);
}

inline int32_t narrow(int64_t value) {
  TORCH_CHECK(value >= 0 && value <= INT32_MAX, "fused: ", value, " is too large for a kernel");
  return static_cast<int32_t>(value);
}

inline void* at_start(const Tensor& tensor) { return tensor.data_ptr(); }
inline void* at_start_if(const Tensor& tensor) { return tensor.defined() ? at_start(tensor) : nullptr; }

// Rows in one piece, at an address that 16-byte loads take.
inline Tensor dense(const Tensor& tensor) {
  auto whole = tensor.contiguous();
  return reinterpret_cast<uintptr_t>(whole.data_ptr()) % 16 ? whole.clone() : whole;
}

// The same of a table, whose rows may lie apart: a part of a wider one needs no copy.
inline Tensor table(const Tensor& tensor) {
  bool fits = tensor.stride(1) == 1 && tensor.stride(0) % 8 == 0 && tensor.stride(0) >= tensor.size(1) &&
              reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16 == 0;
  return fits ? tensor : dense(tensor);
}

inline Tensor floats(const Tensor& like, at::IntArrayRef size) { return at::empty(size, like.options().dtype(at::kFloat)); }

// Threads for each two columns, in as few blocks as hold them, evenly.
struct Columns {
  uint32_t blocks, threads;

  explicit Columns(int64_t width) {
    auto pairs = width / 2;
    blocks = shares(pairs, THREADS);
    threads = shares(shares(pairs, blocks), 32) * 32;
  }
};

inline void remember(AutogradContext* context, const Program* program, variable_list tensors) {
  context->save_for_backward(std::move(tensors));
  context->saved_data["program"] = reinterpret_cast<int64_t>(program);
}

inline const Program& recall(AutogradContext* context) {
  return *reinterpret_cast<const Program*>(context->saved_data["program"].toInt());
}

}  // namespace fused
