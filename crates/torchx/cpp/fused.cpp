// Differentiable operations on packed rows, each one kernel forward and one or two backward.
#include "aside.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sum.h>

#include <optional>

using namespace fused;

namespace {

// [utterances + 1, parts * width] from the sums of the tiles; made aside, so that nobody but
// `Split` may read it before the end.
Tensor sum_segments(const Program& program, const Tensor& partial, const Tensor& starts, const Tensor& lens,
                    const Tensor& like, int64_t tiles, int64_t parts) {
  auto utterances = starts.size(0), width = like.size(1);
  auto grad = at::empty({utterances + 1, parts * width}, like.options());
  Aside::lane().later({partial, starts, lens}, [=, made = grad.detach(), &program] {
    Extent grid = {shares(parts * width, 32), static_cast<uint32_t>(utterances + 1), 1};
    launch(program, program.reduce, grid, {32, 8, 1}, at_start(partial), at_start(starts), at_start(lens),
           at_start(made), narrow(tiles), narrow(utterances), narrow(parts), narrow(width));
  });
  return grad;
}

// Columns of a table, side by side. Their gradients may still be in the making aside.
struct Split : Function<Split> {
  static variable_list forward(AutogradContext*, const Tensor& table, at::IntArrayRef widths) {
    // Below the layer that tracks views: to autograd each is an output of this function.
    at::AutoDispatchBelowADInplaceOrView untracked;
    return table.split_with_sizes(widths, 1);
  }

  static variable_list backward(AutogradContext*, variable_list grads) {
    Aside::lane().join();
    return {at::cat(grads, 1), Tensor()};
  }
};

// Outputs: the norm, and x as it came.
struct Adaln : Function<Adaln> {
  static constexpr uint32_t TILE_THREADS = 128;  // as in adaln.cu

  static variable_list forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_table, Spans spans,
                               const Program* program) {
    auto x = dense(any_x), modulation = table(any_table);
    auto rows = x.size(0), utterances = spans.starts->size(0);
    auto out = at::empty_like(x);
    launch(*program, program->forward, {shares(rows, 8), 1, 1}, {THREADS, 1, 1}, at_start(x), at_start(modulation),
           at_start(*spans.owner), at_start(out), narrow(rows), narrow(utterances), narrow(modulation.stride(0)));
    remember(context, program, {x, modulation, *spans.owner, *spans.starts, *spans.lens});
    context->set_materialize_grads(false);
    return {out, any_x};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &x = saved[0], &modulation = saved[1], &owner = saved[2], &starts = saved[3], &lens = saved[4];
    if (!grads[0].defined()) return {grads[1], Tensor(), Tensor(), Tensor()};
    auto grad = dense(grads[0]), grad_x = at::empty_like(x);
    auto beside = grads[1].defined() ? dense(grads[1]) : Tensor();
    auto rows = x.size(0), utterances = starts.size(0), tiles = int64_t{shares(rows, TILE)};
    auto partial = floats(x, {tiles + utterances, 2 * x.size(1)});
    launch(program, program.backward, {static_cast<uint32_t>(tiles), 1, 1}, {TILE_THREADS, 1, 1}, at_start(x),
           at_start(modulation), at_start(grad), at_start_if(beside), at_start(owner), at_start(grad_x),
           at_start(partial), narrow(rows), narrow(utterances), narrow(modulation.stride(0)));
    return {grad_x, sum_segments(program, partial, starts, lens, x, tiles, 2), Tensor(), Tensor()};
  }
};

struct GatedAdd : Function<GatedAdd> {
  static Tensor forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_y, const Tensor& any_gate,
                        Spans spans, const Program* program) {
    auto x = dense(any_x), y = dense(any_y), gate = table(any_gate);
    auto rows = x.size(0), width = x.size(1), utterances = spans.starts->size(0);
    auto out = at::empty_like(x);
    auto vectors = x.numel() * x.element_size() / 16;
    launch(*program, program->forward, {shares(vectors, THREADS), 1, 1}, {THREADS, 1, 1}, at_start(x), at_start(y),
           at_start(gate), at_start(*spans.owner), at_start(out), narrow(rows), narrow(utterances), narrow(width),
           narrow(gate.stride(0)));
    remember(context, program, {y, gate, *spans.owner, *spans.starts, *spans.lens});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &y = saved[0], &gate = saved[1], &owner = saved[2], &starts = saved[3], &lens = saved[4];
    auto grad = dense(grads[0]), grad_y = at::empty_like(y);
    auto rows = y.size(0), width = y.size(1), utterances = starts.size(0), tiles = int64_t{shares(rows, TILE)};
    auto partial = floats(y, {tiles + utterances, width});
    Columns columns(width * y.element_size() / 4);  // eight bytes for each thread
    launch(program, program.backward, {static_cast<uint32_t>(tiles), columns.blocks, 1}, {columns.threads, 1, 1},
           at_start(y), at_start(gate), at_start(grad), at_start(owner), at_start(grad_y), at_start(partial),
           narrow(rows), narrow(utterances), narrow(width), narrow(gate.stride(0)));
    auto sums = sum_segments(program, partial, starts, lens, y, tiles, 1);
    return {grads[0], grad_y, sums, Tensor(), Tensor()};
  }
};

struct Depthwise : Function<Depthwise> {
  static constexpr uint32_t STRETCH = 4;  // tiles of a block of the backward pass, as in depthwise.cu

  static Tensor forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_weight,
                        const Tensor& any_bias, Spans spans, const Program* program) {
    auto x = dense(any_x), weight = dense(any_weight), bias = dense(any_bias);
    auto rows = x.size(0), width = x.size(1), utterances = spans.starts->size(0);
    auto out = at::empty_like(x);
    Columns columns(width);
    launch(*program, program->forward, {shares(rows, TILE), columns.blocks, 1}, {columns.threads, 1, 1}, at_start(x),
           at_start(weight), at_start(bias), at_start(*spans.owner), at_start(out), narrow(rows), narrow(utterances),
           narrow(width));
    remember(context, program, {x, weight, *spans.owner});
    context->saved_data["utterances"] = utterances;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &owner = saved[2];
    auto grad = dense(grads[0]), grad_x = at::empty_like(x);
    Tensor grad_weight, grad_bias;
    auto rows = x.size(0), width = x.size(1), sums = weight.size(2) + 1;
    auto blocks = shares(rows, TILE * STRETCH);
    auto partial = floats(x, {blocks, sums, width});
    launch(program, program.backward, {shares(width, 64), blocks, 1}, {32, STRETCH, 1}, at_start(x), at_start(weight),
           at_start(grad), at_start(owner), at_start(grad_x), at_start(partial), narrow(rows),
           narrow(context->saved_data["utterances"].toInt()), narrow(width));
    Aside::lane().run({partial}, [&] {
      grad_weight = at::empty_like(weight), grad_bias = floats(weight, {weight.size(0)});
      launch(program, program.reduce, {shares(sums * width, 32), 1, 1}, {32, 32, 1}, at_start(partial),
             at_start(grad_weight), at_start(grad_bias), narrow(blocks), narrow(width));
    });
    return {grad_x, grad_weight, grad_bias, Tensor(), Tensor()};
  }
};

struct Rotary : Function<Rotary> {
  static uint32_t blocks(const Tensor& parts) {
    return shares(parts.numel() * parts.element_size() / 32, THREADS);  // two vectors of 16 bytes for each thread
  }

  static variable_list forward(AutogradContext* context, const Tensor& any_qkv, const Tensor& any_cos,
                               const Tensor& any_sin, const Program* program) {
    auto qkv = dense(any_qkv), cos = dense(any_cos), sin = dense(any_sin);
    auto rows = qkv.size(0), heads = qkv.size(2), head_dim = qkv.size(3);
    auto turned = at::empty({2, rows, heads, head_dim}, qkv.options());
    // Below the layer that tracks views: to autograd all three are outputs of this function.
    at::AutoDispatchBelowADInplaceOrView untracked;
    auto q = turned.select(0, 0), k = turned.select(0, 1), v = qkv.select(1, 2);
    launch(*program, program->forward, {blocks(turned), 1, 1}, {THREADS, 1, 1}, at_start(qkv), at_start(cos),
           at_start(sin), at_start(q), at_start(k), narrow(rows), narrow(heads), narrow(head_dim / 2));
    remember(context, program, {cos, sin});
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    auto q = dense(grads[0]), k = dense(grads[1]), v = dense(grads[2]);
    auto rows = q.size(0), heads = q.size(1), head_dim = q.size(2);
    auto grad = at::empty({rows, 3, heads, head_dim}, q.options());
    launch(program, program.backward, {blocks(grad), 1, 1}, {THREADS, 1, 1}, at_start(q), at_start(k), at_start(v),
           at_start(saved[0]), at_start(saved[1]), at_start(grad), narrow(rows), narrow(heads), narrow(head_dim / 2));
    return {grad, Tensor(), Tensor(), Tensor()};
  }
};

struct BiasGelu : Function<BiasGelu> {
  static constexpr int64_t ROWS = 32;  // of a block, as in bias_gelu.cu

  static uint32_t columns(const Tensor& x) { return shares(x.size(1) * x.element_size(), 32 * 16); }

  static Tensor forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_bias,
                        const Program* program) {
    auto x = dense(any_x), bias = dense(any_bias), out = at::empty_like(x);
    launch(*program, program->forward, {columns(x), shares(x.size(0), ROWS), 1}, {32, 8, 1}, at_start(x),
           at_start(bias), at_start(out), narrow(x.size(0)), narrow(x.size(1)));
    remember(context, program, {x, bias});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &x = saved[0], &bias = saved[1];
    auto grad = dense(grads[0]), grad_x = at::empty_like(x);
    Tensor grad_bias;
    auto rows = x.size(0), width = x.size(1);
    auto blocks = shares(rows, ROWS);
    auto partial = floats(x, {blocks, width});
    launch(program, program.backward, {columns(x), blocks, 1}, {32, 8, 1}, at_start(x), at_start(bias), at_start(grad),
           at_start(grad_x), at_start(partial), narrow(rows), narrow(width));
    Aside::lane().run({partial}, [&] {
      grad_bias = at::empty_like(bias);
      launch(program, program.reduce, {shares(width, 32), 1, 1}, {32, 32, 1}, at_start(partial), at_start(grad_bias),
             narrow(blocks), narrow(width));
    });
    return {grad_x, grad_bias, Tensor()};
  }
};

// The bias' gradient is a sum of our own: LibTorch's takes longer than a product.
struct Linear : Function<Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const Program* program) {
    remember(context, program, {x, weight});
    context->saved_data["bias"] = bias.has_value();
    return multiply(*program, x, weight.t(), bias ? &*bias : nullptr);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    auto grad = dense(grads[0]);
    Tensor grad_weight, grad_bias;
    Aside::lane().run({grad, x}, [&] {
      grad_weight = multiply(program, grad.t(), x);
      if (context->saved_data["bias"].toBool()) grad_bias = sum_of_rows(program, grad);
    });
    auto grad_x = context->needs_input_grad(0) ? multiply(program, grad, weight) : Tensor();
    return {grad_x, grad_weight, grad_bias, Tensor()};
  }

  static Tensor sum_of_rows(const Program& program, const Tensor& grad) {
    auto rows = grad.size(0), width = grad.size(1);
    auto blocks = shares(rows, COLUMN_ROWS);
    auto partial = floats(grad, {blocks, width}), sums = at::empty({width}, grad.options());
    Columns columns(width);
    launch(program, program.forward, {blocks, columns.blocks, 1}, {columns.threads, 1, 1}, at_start(grad),
           at_start(partial), narrow(rows), narrow(width));
    launch(program, program.backward, {shares(width, 32), 1, 1}, {32, 32, 1}, at_start(partial), at_start(sums),
           narrow(blocks), narrow(width));
    return sums;
  }
};

// Outputs: the activation, and with a target its distance from it.
struct BiasLeaky : Function<BiasLeaky> {
  static int64_t vectors(const Tensor& x) { return x.numel() * x.element_size() / 16; }

  static variable_list forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_bias,
                               const std::optional<Tensor>& any_target, double slope, const Program* program) {
    auto x = dense(any_x), bias = dense(any_bias), out = at::empty_like(x);
    Tensor target = any_target ? dense(*any_target) : Tensor(), partial;
    auto blocks = shares(vectors(x), THREADS);
    if (target.defined()) partial = floats(x, {blocks});
    launch(*program, program->forward, {blocks, 1, 1}, {THREADS, 1, 1}, at_start(x), at_start(bias),
           at_start_if(target), at_start(out), at_start_if(partial), narrow(vectors(x)), narrow(x.size(1)),
           static_cast<float>(slope));
    remember(context, program, {out, bias, target});
    context->saved_data["slope"] = slope;
    if (!target.defined()) return {out};
    return {out, at::sum(partial).div_(x.numel())};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &out = saved[0], &bias = saved[1], &target = saved[2];
    auto grad = dense(grads[0]), grad_x = at::empty_like(out);
    auto grad_distance = target.defined() ? dense(grads[1]) : Tensor();
    auto width = out.size(1);
    auto blocks = shares(vectors(out), THREADS * VECTORS);
    Tensor partial, grad_bias;
    if (context->needs_input_grad(1)) partial = floats(out, {blocks, width}), grad_bias = at::empty_like(bias);
    launch(program, program.backward, {blocks, 1, 1}, {THREADS, 1, 1}, at_start(out), at_start_if(target),
           at_start(grad), at_start_if(grad_distance), at_start(grad_x), at_start_if(partial), narrow(vectors(out)),
           narrow(width), static_cast<float>(context->saved_data["slope"].toDouble()));
    if (partial.defined())
      launch(program, program.reduce, {shares(width, 32), 1, 1}, {32, 32, 1}, at_start(partial), at_start(grad_bias),
             narrow(blocks), narrow(width));
    return {grad_x, grad_bias, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

extern "C" {

// From now on gradients of weights are made aside, or no longer.
void torchx_aside(bool allowed) { Aside::lane().allow(allowed); }

// Before anything reads them.
char* torchx_join_aside() {
  return guarded([] { Aside::lane().join(); });
}

// `outputs`: room for two.
char* torchx_adaln(const Program* program, const Tensor* x, const Tensor* table, Spans spans, Tensor** outputs) {
  return guarded([&] {
    auto parts = Adaln::apply(*x, *table, spans, program);
    for (size_t i = 0; i < 2; ++i) outputs[i] = new Tensor(parts[i]);
  });
}

char* torchx_gated_add(const Program* program, const Tensor* x, const Tensor* y, const Tensor* gate, Spans spans,
                       Tensor** output) {
  return guarded([&] { *output = new Tensor(GatedAdd::apply(*x, *y, *gate, spans, program)); });
}

char* torchx_depthwise(const Program* program, const Tensor* x, const Tensor* weight, const Tensor* bias, Spans spans,
                       Tensor** output) {
  return guarded([&] { *output = new Tensor(Depthwise::apply(*x, *weight, *bias, spans, program)); });
}

// `outputs`: room for as many as there are widths.
char* torchx_split(const Tensor* table, const int64_t* widths, size_t count, Tensor** outputs) {
  return guarded([&] {
    auto parts = Split::apply(*table, at::IntArrayRef(widths, count));
    for (size_t i = 0; i < count; ++i) outputs[i] = new Tensor(parts[i]);
  });
}

// `outputs`: room for three.
char* torchx_rotary(const Program* program, const Tensor* qkv, const Tensor* cos, const Tensor* sin,
                    Tensor** outputs) {
  return guarded([&] {
    auto parts = Rotary::apply(*qkv, *cos, *sin, program);
    for (size_t i = 0; i < 3; ++i) outputs[i] = new Tensor(parts[i]);
  });
}

char* torchx_bias_gelu(const Program* program, const Tensor* x, const Tensor* bias, Tensor** output) {
  return guarded([&] { *output = new Tensor(BiasGelu::apply(*x, *bias, program)); });
}

// `bias` may be null.
char* torchx_linear(const Program* program, const Tensor* x, const Tensor* weight, const Tensor* bias, Tensor** output) {
  return guarded([&] {
    auto added = bias ? std::optional<Tensor>(*bias) : std::nullopt;
    *output = new Tensor(Linear::apply(*x, *weight, added, program));
  });
}

// `target` may be null; `outputs`: room for two, of which the second is made for a target.
char* torchx_bias_leaky(const Program* program, const Tensor* x, const Tensor* bias, const Tensor* target,
                        double slope, Tensor** outputs) {
  return guarded([&] {
    auto wanted = target ? std::optional<Tensor>(*target) : std::nullopt;
    auto parts = BiasLeaky::apply(*x, *bias, wanted, slope, program);
    for (size_t i = 0; i < parts.size(); ++i) outputs[i] = new Tensor(parts[i]);
  });
}

}  // extern "C"
