// The input of a decoder that fills gaps in speech: two linear layers, masks and content in one product.
#include "aside.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

using namespace fused;

namespace {

constexpr uint32_t ROWS = 8;  // of a block

struct Infill : Function<Infill> {
  static Tensor forward(AutogradContext* context, const Tensor& any_noisy, const Tensor& any_clean,
                        const Tensor& any_given, const Tensor& any_said, const Tensor& any_content,
                        const Tensor& noisy_weight, const Tensor& noisy_bias, const Tensor& clean_weight,
                        const Tensor& clean_bias, const Program* program) {
    auto noisy = dense(any_noisy), clean = dense(any_clean), given = dense(any_given), said = dense(any_said);
    auto content = dense(any_content);
    auto count = noisy.size(0), bands = noisy.size(1), own = content.size(0), width = content.size(1);
    auto columns = 2 * bands + 8;  // the mask, a 1 for the bias, and zeros up to what tensor cores take
    auto rows = at::empty({count, columns}, content.options()), sum = at::empty({count, width}, content.options());
    launch(*program, program->forward, {shares(count, ROWS), 1, 1}, {32, ROWS, 1}, at_start(noisy), at_start(clean),
           at_start(given), at_start(said), at_start(content), at_start(rows), at_start(sum), narrow(count),
           narrow(own), narrow(bands), narrow(columns), narrow(width));
    auto rest = at::zeros({width, columns - 2 * bands - 2}, content.options());
    auto weight = at::cat({noisy_weight, clean_weight, clean_bias.unsqueeze(1), noisy_bias.unsqueeze(1), rest}, 1);
    sum.addmm_(rows, weight.t());
    remember(context, program, {rows, said});
    context->saved_data["bands"] = bands;
    context->saved_data["own"] = own;
    return sum;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &rows = saved[0], &said = saved[1];
    auto grad = dense(grads[0]);
    auto count = grad.size(0), width = grad.size(1);
    auto bands = context->saved_data["bands"].toInt(), own = context->saved_data["own"].toInt();
    auto grad_content = at::empty({own, width}, grad.options());
    launch(program, program.backward, {shares(own, ROWS), 1, 1}, {32, ROWS, 1}, at_start(grad), at_start(said),
           at_start(grad_content), narrow(count), narrow(own), narrow(width));
    Tensor noisy_weight, noisy_bias, clean_weight, clean_bias, none;
    Aside::lane().run({grad, rows}, [&] {
      auto by_weight = multiply(program, grad.t(), rows);
      auto part = [&](int64_t first, int64_t columns) { return by_weight.narrow(1, first, columns).contiguous(); };
      noisy_weight = part(0, bands), clean_weight = part(bands, bands);
      clean_bias = part(2 * bands, 1).view(-1), noisy_bias = part(2 * bands + 1, 1).view(-1);
    });
    return {none, none, none, none, grad_content, noisy_weight, noisy_bias, clean_weight, clean_bias, none};
  }
};

}  // namespace

// `frames`: noisy, clean, given, said. `layers`: weight and bias of noisy frames, of clean ones.
extern "C" char* torchx_infill(const Program* program, const Tensor* const* frames, const Tensor* content,
                               const Tensor* const* layers, Tensor** output) {
  return guarded([&] {
    *output = new Tensor(Infill::apply(*frames[0], *frames[1], *frames[2], *frames[3], *content, *layers[0], *layers[1],
                                       *layers[2], *layers[3], program));
  });
}
