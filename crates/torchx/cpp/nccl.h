// NCCL, reached by name in the library that libtorch_cuda has loaded: no header is needed for what data parallelism
// asks of it, whose interface has stood since 2.10. Its calls go to the current stream and can be captured.
#pragma once

#include "bind.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <dlfcn.h>

#include <string>

namespace nccl {

using Comm = struct ncclComm*;
struct Id {
  char bytes[128];
};
enum Kind { kFloat = 7, kDouble = 8, kBFloat16 = 9 };
constexpr int kSum = 0;

struct Library {
  int (*unique_id)(Id*);
  int (*init_rank)(Comm*, int size, Id, int rank);
  int (*all_reduce)(const void*, void*, size_t, int kind, int op, Comm, cudaStream_t);
  int (*broadcast)(const void*, void*, size_t, int kind, int root, Comm, cudaStream_t);
  int (*abort)(Comm);
  const char* (*error_string)(int);
  const char* (*last_error)(Comm);
};

inline const Library& library() {
  static const Library found = [] {
    void* handle = dlopen("libnccl.so.2", RTLD_LAZY);
    TORCH_CHECK(handle, "NCCL: ", dlerror());
    Library library;
    bind(handle, "ncclGetUniqueId", library.unique_id);
    bind(handle, "ncclCommInitRank", library.init_rank);
    bind(handle, "ncclAllReduce", library.all_reduce);
    bind(handle, "ncclBroadcast", library.broadcast);
    bind(handle, "ncclCommAbort", library.abort);
    bind(handle, "ncclGetErrorString", library.error_string);
    bind(handle, "ncclGetLastError", library.last_error);
    return library;
  }();
  return found;
}

inline void check(int code, Comm comm = nullptr) {
  if (code == 0) return;
  std::string more = library().last_error(comm);
  TORCH_CHECK(false, "NCCL: ", library().error_string(code), more.empty() ? "" : ": ", more);
}

inline int kind(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return kFloat;
    case at::kDouble: return kDouble;
    case at::kBFloat16: return kBFloat16;
    default: TORCH_CHECK(false, "NCCL: tensors of ", tensor.scalar_type(), " are not sent here");
  }
}

inline cudaStream_t stream(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "NCCL: a tensor in one piece is needed");
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

inline void sum(Comm comm, const at::Tensor& tensor) {
  c10::cuda::CUDAGuard guard(tensor.device());
  auto* data = tensor.data_ptr();
  check(library().all_reduce(data, data, tensor.numel(), kind(tensor), kSum, comm, stream(tensor)), comm);
}

inline void broadcast(Comm comm, const at::Tensor& tensor) {
  c10::cuda::CUDAGuard guard(tensor.device());
  auto* data = tensor.data_ptr();
  check(library().broadcast(data, data, tensor.numel(), kind(tensor), /*root=*/0, comm, stream(tensor)), comm);
}

}  // namespace nccl
