// Rendezvous and collectives over host memory: c10d's store and Gloo, both inside libtorch_cpu.
#define USE_C10D_GLOO  // what LibTorch was built with; its header asks for it
#include "error.h"
#include "gradients.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Flags.h>

#include <cstdlib>
#include <cstring>

using at::Tensor;
using Store = c10::intrusive_ptr<c10d::TCPStore>;
using Gloo = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using std::chrono::milliseconds;

C10_DECLARE_int(caffe2_log_level);

namespace {

// Each gradient begins at a multiple of so many values: kernels that read 16 bytes at a time want that.
constexpr int64_t kAlignment = 64;

int64_t room(const Tensor& grad) { return (grad.numel() + kAlignment - 1) / kAlignment * kAlignment; }

// Where each gradient lies in `flat`, as views of it in the gradients' shapes.
std::vector<Tensor> views(const std::vector<Tensor>& grads, const Tensor& flat) {
  std::vector<Tensor> parts;
  int64_t start = 0;
  for (auto& grad : grads) {
    parts.push_back(flat.narrow(0, start, grad.numel()).view(grad.sizes()));
    start += room(grad);
  }
  return parts;
}

}  // namespace

extern "C" {

char* torchx_store_open(const char* host, uint16_t port, bool serves, int64_t timeout_ms, Store** store) {
  return guarded([&] {
    FLAGS_caffe2_log_level = 3;  // c10d logs what it throws, with C++ frames; the caller says it
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = serves;
    options.waitWorkers = false;
    options.timeout = milliseconds(timeout_ms);
    *store = new Store(c10::make_intrusive<c10d::TCPStore>(host, options));
  });
}

void torchx_store_close(Store* store) { delete store; }

uint16_t torchx_store_port(const Store* store) { return (*store)->getPort(); }

char* torchx_store_set(const Store* store, const char* key, const uint8_t* bytes, size_t count) {
  return guarded([&] { (*store)->set(key, std::vector<uint8_t>(bytes, bytes + count)); });
}

// `bytes` is malloc'ed; null where the key is not set. Does not wait for it.
char* torchx_store_get(const Store* store, const char* key, uint8_t** bytes, size_t* count) {
  return guarded([&] {
    *bytes = nullptr;
    if (!(*store)->check({key})) return;
    auto value = (*store)->get(key);
    *count = value.size();
    *bytes = static_cast<uint8_t*>(std::malloc(std::max<size_t>(value.size(), 1)));
    TORCH_CHECK(*bytes, "no memory for ", key);
    std::memcpy(*bytes, value.data(), value.size());
  });
}

// `address`: one of this machine's, which the others can reach.
char* torchx_gloo_join(const Store* store, const char* prefix, int rank, int size, const char* address,
                       int64_t timeout_ms, Gloo** gloo) {
  return guarded([&] {
    auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout_ms));
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
    auto keys = c10::make_intrusive<c10d::PrefixStore>(prefix, *store);
    *gloo = new Gloo(c10::make_intrusive<c10d::ProcessGroupGloo>(keys, rank, size, options));
  });
}

void torchx_gloo_leave(Gloo* gloo) { delete gloo; }

// Each process adds up one part for all, in the order of ranks: the sum does not depend on how messages travel, and is
// that of one process which adds one after the other. As many bytes travel as in a ring.
char* torchx_gloo_sum(const Gloo* gloo, const Tensor* tensor) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    int64_t size = (*gloo)->getSize(), count = tensor->numel(), part = (count + size - 1) / size;
    auto mine = at::zeros({size * part}, tensor->options()), theirs = at::empty_like(mine);
    mine.narrow(0, 0, count).copy_(tensor->view(-1));
    std::vector<int64_t> even;
    (*gloo)->alltoall_base(theirs, mine, even, even)->wait();
    auto wide = tensor->scalar_type() == at::kBFloat16 ? theirs.to(at::kFloat) : theirs;
    auto sum = wide.narrow(0, 0, part).clone();
    for (int64_t rank = 1; rank < size; ++rank) sum.add_(wide.narrow(0, rank * part, part));
    auto total = sum.to(tensor->scalar_type());
    (*gloo)->_allgather_base(mine, total)->wait();
    tensor->view(-1).copy_(mine.narrow(0, 0, count));
  });
}

char* torchx_gloo_broadcast(const Gloo* gloo, const Tensor* tensor) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    std::vector<Tensor> tensors{*tensor};
    (*gloo)->broadcast(tensors)->wait();
  });
}

int64_t torchx_grad_len(const Tensor* const* params, size_t count) {
  int64_t len = 0;
  for (auto& grad : gradients(params, count)) len += room(grad);
  return len;
}

// `flat` may be of another kind: it is converted on the way.
char* torchx_gather_grad(const Tensor* const* params, size_t count, const Tensor* flat) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto grads = gradients(params, count);
    // Faster than `cat`, which took three times as long on an H200.
    if (!grads.empty()) at::_foreach_copy_(views(grads, *flat), grads);
  });
}

// `adopt`: the parts of `flat` become the gradients, instead of being copied to where those lie.
char* torchx_scatter_grad(const Tensor* const* params, size_t count, const Tensor* flat, bool adopt) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto grads = gradients(params, count);
    auto parts = views(grads, *flat);
    if (!adopt) {
      if (!grads.empty()) at::_foreach_copy_(grads, parts);
      return;
    }
    size_t next = 0;
    for (size_t i = 0; i < count; ++i) {
      if (params[i]->grad().defined()) params[i]->mutable_grad() = parts[next++];
    }
  });
}

}  // extern "C"
