// The half that needs no CUDA library: calls that go through LibTorch's dispatcher, whatever the device.
#include "error.h"
#include "gradients.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

using at::Tensor;

namespace {

std::vector<Tensor> list(const Tensor* const* tensors, size_t count) {
  std::vector<Tensor> values;
  for (size_t i = 0; i < count; ++i) values.push_back(*tensors[i]);
  return values;
}

// These gradients in a wider kind; those that are not there stay so.
std::vector<Tensor> widen(const std::vector<Tensor>& grads, at::ScalarType kind) {
  std::vector<Tensor> wide(grads.size()), from, to;
  for (size_t i = 0; i < grads.size(); ++i) {
    auto& grad = grads[i];
    if (!grad.defined()) continue;
    // In one piece, like the parameter: LibTorch then keeps it as the gradient without a copy.
    wide[i] = at::empty(grad.sizes(), grad.options().dtype(kind));
    if (grad.is_contiguous()) {
      from.push_back(grad);
      to.push_back(wide[i]);
    } else {  // one odd layout among them would send all through single copies
      wide[i].copy_(grad);
    }
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  return wide;
}

// One node for all parameters: one launch forward and one backward for many tensors, instead of two for each.
struct Narrow : torch::autograd::Function<Narrow> {
  static std::vector<Tensor> forward(torch::autograd::AutogradContext* context, at::TensorList params,
                                     at::ScalarType kind) {
    context->set_materialize_grads(false);  // a copy that nobody used has no gradient
    context->saved_data["kind"] = params[0].scalar_type();
    std::vector<Tensor> copies;
    for (auto& param : params) copies.push_back(at::empty_like(param, param.options().dtype(kind)));
    at::_foreach_copy_(copies, params);
    return copies;
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, std::vector<Tensor> grads) {
    auto wide = widen(grads, context->saved_data["kind"].toScalarType());
    wide.emplace_back();  // none for `kind`
    return wide;
  }
};

std::optional<double> optional(const double* value) {
  return value ? std::optional<double>(*value) : std::nullopt;
}

}  // namespace

extern "C" {

char* torchx_copy_async(const Tensor* dst, const Tensor* src) {
  return guarded([&] { dst->copy_(*src, /*non_blocking=*/true); });
}

char* torchx_pin(const Tensor* source, Tensor** pinned) {
  return guarded([&] { *pinned = new Tensor(source->pin_memory()); });
}

// Of all the losses, each times `weight`, which may be null; by all leaves where no parameters are given.
char* torchx_backward(const Tensor* const* losses, size_t loss_count, const Tensor* weight, const Tensor* const* params,
                      size_t count, bool keep_graph) {
  return guarded([&] {
    auto weights = weight ? std::vector<Tensor>(loss_count, *weight) : std::vector<Tensor>();
    torch::autograd::backward(list(losses, loss_count), weights, keep_graph, /*create_graph=*/false, list(params, count));
  });
}

char* torchx_zero_grad(const Tensor* const* params, size_t count) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto grads = gradients(params, count);
    if (!grads.empty()) at::_foreach_zero_(grads);
  });
}

char* torchx_drop_grad(const Tensor* const* params, size_t count) {
  return guarded([&] {
    for (size_t i = 0; i < count; ++i) params[i]->mutable_grad().reset();
  });
}

// `copies` has room for `count` new tensors, each of the kind of `like`. All parameters are of one kind.
char* torchx_narrow(const Tensor* const* params, size_t count, const Tensor* like, Tensor** copies) {
  return guarded([&] {
    if (!count) return;
    auto all = list(params, count);
    auto made = Narrow::apply(at::TensorList(all), like->scalar_type());
    for (size_t i = 0; i < count; ++i) copies[i] = new Tensor(std::move(made[i]));
  });
}

// Writes the parameters' values to copies that stay.
char* torchx_refresh(const Tensor* const* copies, const Tensor* const* params, size_t count) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    if (count) at::_foreach_copy_(list(copies, count), list(params, count));
  });
}

// The gradients of the copies become their parameters', or are added to what those have.
char* torchx_adopt_grad(const Tensor* const* params, const Tensor* const* copies, size_t count) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    std::vector<Tensor> grads;
    for (size_t i = 0; i < count; ++i) grads.push_back(copies[i]->grad());
    if (!count) return;
    auto wide = widen(grads, params[0]->scalar_type());
    for (size_t i = 0; i < count; ++i) {
      if (!wide[i].defined()) continue;
      auto& grad = params[i]->mutable_grad();
      if (grad.defined()) grad.add_(wide[i]);
      else grad = wide[i];
      copies[i]->mutable_grad().reset();
    }
  });
}

// Grows with every change in place that LibTorch makes to one of them.
int64_t torchx_versions(const Tensor* const* tensors, size_t count) {
  int64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += tensors[i]->_version();
  return sum;
}

char* torchx_scale_grad(const Tensor* const* params, size_t count, const Tensor* factor) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto grads = gradients(params, count);
    if (!grads.empty()) at::_foreach_mul_(grads, *factor);
  });
}

char* torchx_lerp(const Tensor* const* values, const Tensor* const* towards, size_t count, double weight) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    if (count) at::_foreach_lerp_(list(values, count), list(towards, count), weight);
  });
}

char* torchx_set_deterministic(bool on) {
  return guarded([&] {
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
    at::globalContext().setDeterministicCuDNN(on);
  });
}

bool torchx_is_deterministic() { return at::globalContext().deterministicAlgorithms(); }

char* torchx_set_tf32(bool on) {
  return guarded([&] { at::globalContext().setAllowTF32CuDNN(on); });
}

char* torchx_set_tf32_products(bool on) {
  return guarded([&] { at::globalContext().setAllowTF32CuBLAS(on); });
}

char* torchx_clip_grad_norm(const Tensor* const* params, size_t count, double max_norm, Tensor** norm) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto grads = gradients(params, count);
    if (grads.empty()) {
      auto device = count ? params[0]->device() : at::Device(at::kCPU);
      *norm = new Tensor(at::zeros({}, at::TensorOptions(at::kFloat).device(device)));
      return;
    }
    auto norms = at::_foreach_norm(grads, 2, at::kFloat);
    auto total = at::linalg_vector_norm(at::stack(norms), 2);
    auto scale = total.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
    at::_foreach_mul_(grads, scale);
    *norm = new Tensor(total);
  });
}

// `found_inf` may be null. Every parameter shares one step counter: the kernels only read it.
char* torchx_adamw(const Tensor* const* params, const Tensor* const* exp_avgs, const Tensor* const* exp_avg_sqs,
                   size_t count, const Tensor* step, const Tensor* lr, double beta1, double beta2,
                   double weight_decay, double eps, const Tensor* found_inf) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    std::vector<Tensor> values, grads, firsts, seconds;
    for (size_t i = 0; i < count; ++i) {
      if (!params[i]->grad().defined()) continue;
      values.push_back(*params[i]);
      grads.push_back(params[i]->grad());
      firsts.push_back(*exp_avgs[i]);
      seconds.push_back(*exp_avg_sqs[i]);
    }
    if (values.empty()) return;
    std::vector<Tensor> steps(values.size(), *step);
    auto skip = found_inf ? std::optional<Tensor>(*found_inf) : std::nullopt;
    at::_fused_adamw_(values, grads, firsts, seconds, /*max_exp_avg_sqs=*/{}, steps, *lr, beta1, beta2,
                      weight_decay, eps, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt, skip);
  });
}

// q, k, v: [total, heads, head_dim] in bf16 or f16.
char* torchx_flash_attention(const Tensor* q, const Tensor* k, const Tensor* v, const Tensor* cu_seqlens,
                             int64_t max_len, const double* scale, Tensor** output) {
  return guarded([&] {
    auto result = at::_flash_attention_forward(*q, *k, *v, *cu_seqlens, *cu_seqlens, max_len, max_len,
                                               /*dropout_p=*/0.0, /*is_causal=*/false, /*return_debug_mask=*/false,
                                               optional(scale));
    *output = new Tensor(std::get<0>(result));
  });
}

// The same in f32, which flash attention does not take.
char* torchx_efficient_attention(const Tensor* q, const Tensor* k, const Tensor* v, const Tensor* cu_seqlens,
                                 int64_t max_len, const double* scale, Tensor** output) {
  return guarded([&] {
    bool differentiable =
        at::GradMode::is_enabled() && (q->requires_grad() || k->requires_grad() || v->requires_grad());
    int64_t longest = std::min(max_len, q->size(0));  // its backward refuses a bound above the number of rows
    auto result = at::_efficient_attention_forward(
        q->unsqueeze(0), k->unsqueeze(0), v->unsqueeze(0), /*bias=*/std::nullopt, *cu_seqlens, *cu_seqlens, longest,
        longest, /*dropout_p=*/0.0, /*custom_mask_type=*/0, /*compute_log_sumexp=*/differentiable, optional(scale));
    *output = new Tensor(std::get<0>(result).squeeze(0));
  });
}

}  // extern "C"
