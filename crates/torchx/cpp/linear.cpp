// Linear layers and convolutions along the rows on a CPU, by products of our own.
#include "error.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

namespace {

// Mirror of the Rust struct of the same name.
struct Matrix {
  const float* first;
  size_t rows, columns, row_stride, column_stride;

  explicit Matrix(const Tensor& tensor)
      : first(tensor.const_data_ptr<float>()),
        rows(tensor.size(0)),
        columns(tensor.size(1)),
        row_stride(tensor.stride(0)),
        column_stride(tensor.stride(1)) {}
};

using Multiply = void (*)(const Matrix* left, const Matrix* right, const float* bias, float* out);

Tensor product(Multiply multiply, const Tensor& left, const Tensor& right, const Tensor* bias = nullptr) {
  auto out = at::empty({left.size(0), right.size(1)}, left.options());
  auto whole = bias ? bias->contiguous() : Tensor();
  Matrix a(left), b(right);
  multiply(&a, &b, bias ? whole.const_data_ptr<float>() : nullptr, out.data_ptr<float>());
  return out;
}

struct Linear : Function<Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, Multiply multiply) {
    context->save_for_backward({x, weight});
    context->saved_data["multiply"] = reinterpret_cast<int64_t>(multiply);
    context->saved_data["bias"] = bias.has_value();
    return product(multiply, x, weight.t(), bias ? &*bias : nullptr);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto multiply = reinterpret_cast<Multiply>(context->saved_data["multiply"].toInt());
    auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &grad = grads[0];
    auto grad_x = context->needs_input_grad(0) ? product(multiply, grad, weight) : Tensor();
    auto grad_weight = context->needs_input_grad(1) ? product(multiply, grad.t(), x) : Tensor();
    auto grad_bias = context->saved_data["bias"].toBool() ? grad.sum(0) : Tensor();
    return {grad_x, grad_weight, grad_bias, Tensor()};
  }
};

// Each row beside its neighbours, `taps` in all, with zeros beyond both ends. Rows lie one behind the other, so that this is a
// view of them.
Tensor unfolded(const Tensor& x, int64_t taps) {
  auto rows = x.size(0), width = x.size(1);
  auto padded = at::constant_pad_nd(x.contiguous(), {0, 0, taps / 2, taps / 2});
  return padded.as_strided({rows, taps * width}, {width, 1});
}

struct Convolution : Function<Convolution> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        Multiply multiply) {
    auto to = weight.size(0), taps = weight.size(2);
    auto seen = unfolded(x, taps);
    context->save_for_backward({seen, weight});
    context->saved_data["multiply"] = reinterpret_cast<int64_t>(multiply);
    return product(multiply, seen, weight.transpose(1, 2).reshape({to, -1}).t(), &bias);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto multiply = reinterpret_cast<Multiply>(context->saved_data["multiply"].toInt());
    auto saved = context->get_saved_variables();
    const auto &seen = saved[0], &weight = saved[1], &grad = grads[0];
    auto to = weight.size(0), from = weight.size(1), taps = weight.size(2);
    Tensor grad_x;
    if (context->needs_input_grad(0)) {
      std::vector<Tensor> turned;  // what a row gave to the one behind it comes back from there
      for (auto tap = taps; tap-- > 0;) turned.push_back(weight.select(2, tap));
      grad_x = product(multiply, unfolded(grad, taps), at::cat(turned, 0));
    }
    auto by_weight = product(multiply, grad.t(), seen).view({to, taps, from}).transpose(1, 2).contiguous();
    return {grad_x, by_weight, grad.sum(0), Tensor()};
  }
};

}  // namespace

// All f32 on the CPU: `x` is `[rows, from]`, `weight` `[to, from]`, and `bias` `[to]` or null.
extern "C" char* torchx_linear_here(Multiply multiply, const Tensor* x, const Tensor* weight, const Tensor* bias,
                                    Tensor** output) {
  return guarded([&] {
    auto shift = bias ? std::optional<Tensor>(*bias) : std::nullopt;
    *output = new Tensor(Linear::apply(*x, *weight, shift, multiply));
  });
}

// The same for a `weight` of `[to, from, taps]`, of an odd number of taps.
extern "C" char* torchx_convolution_here(Multiply multiply, const Tensor* x, const Tensor* weight, const Tensor* bias,
                                         Tensor** output) {
  return guarded([&] { *output = new Tensor(Convolution::apply(*x, *weight, *bias, multiply)); });
}
