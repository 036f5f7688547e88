// Convolutions along packed rows as matrix products, with the norms, rectifiers, dropout and residuals around them: what a
// text encoder is made of. A convolution that widens unfolds its rows first; one that narrows folds its product: so nothing
// is ever written as wide as channels times taps but on the narrow side.
#include "aside.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>
#include <vector>

using namespace fused;

// Mirror of the Rust struct `RawDropout`.
struct Dropout {
  const Tensor* seed;  // null: nothing is dropped
  int32_t layer;
  int32_t threshold;
  float scale;
};

// Mirror of the Rust struct of the same name.
struct Programs {
  const Program* norm;     // forward, backward, sum_bias
  const Program* fold;     // fold, unfold, sum_bias
  const Program* product;  // lay, unlay, rectify
};

namespace {

constexpr int64_t WARPS = 8, TILE_WARPS = 4;                   // as in norm.cu
constexpr int64_t DEPTH = 8, LANES = 32, UNFOLD_EACH = 4;      // as in fold.cu
constexpr int64_t RECTIFY_EACH = 8, CHUNK = 512;               // as in product.cu

// Dropout as the backward pass finds it again.
struct Drop {
  Tensor seed;
  int32_t layer = 0, threshold = 0;
  float scale = 1.0f;

  Drop() = default;
  explicit Drop(const Dropout& from)
      : seed(from.seed ? *from.seed : Tensor()), layer(from.layer), threshold(from.threshold), scale(from.scale) {}

  void remember(AutogradContext* context) const {
    context->saved_data["layer"] = int64_t{layer};
    context->saved_data["threshold"] = int64_t{threshold};
    context->saved_data["scale"] = double{scale};
  }

  static Drop recall(AutogradContext* context, const Tensor& seed) {
    Drop drop;
    drop.seed = seed;
    drop.layer = static_cast<int32_t>(context->saved_data["layer"].toInt());
    drop.threshold = static_cast<int32_t>(context->saved_data["threshold"].toInt());
    drop.scale = static_cast<float>(context->saved_data["scale"].toDouble());
    return drop;
  }
};

// Which row belongs to which utterance; none where rows have no neighbours.
struct Neighbours {
  Tensor owner;
  int64_t utterances = 0;
};

void keep(AutogradContext* context, const Programs& programs) {
  context->saved_data["norm"] = reinterpret_cast<int64_t>(programs.norm);
  context->saved_data["fold"] = reinterpret_cast<int64_t>(programs.fold);
  context->saved_data["product"] = reinterpret_cast<int64_t>(programs.product);
}

Programs kept(AutogradContext* context) {
  auto program = [&](const char* name) { return reinterpret_cast<const Program*>(context->saved_data[name].toInt()); };
  return {program("norm"), program("fold"), program("product")};
}

// Blocks of `DEPTH` rows, and of vectors of 16 bytes in as few as hold a row of them, evenly.
struct Vectors {
  uint32_t blocks, lanes;

  Vectors(const Tensor& like, int64_t width) {
    auto vectors = width * like.element_size() / 16;
    blocks = shares(vectors, LANES);
    lanes = shares(vectors, blocks);
  }

  Extent block() const { return {lanes, static_cast<uint32_t>(DEPTH), 1}; }
};

// [width] from what the blocks summed, or [parts, width]: gradients of weights, made aside.
Tensor sum_blocks(const void* reduce, const Program& program, const Tensor& partial, at::IntArrayRef size) {
  auto sums = floats(partial, size);
  Aside::lane().later({partial}, [reduce, partial, made = sums.detach(), &program] {
    launch(program, reduce, {shares(made.numel(), 32), 1, 1}, {32, 32, 1}, at_start(partial), at_start(made),
           narrow(partial.size(0)), narrow(made.numel()));
  });
  return sums;
}

// unfolded(residual + dropout(norm(x)))
Tensor normed(const Program& program, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
              const Neighbours& near, int64_t taps, const Drop& drop) {
  auto rows = x.size(0), width = x.size(1);
  auto out = at::empty({rows, taps * width}, x.options());
  launch(program, program.forward, {shares(rows, WARPS), 1, 1}, {THREADS, 1, 1}, at_start(x), at_start_if(residual),
         at_start(weight), at_start(bias), at_start_if(near.owner), at_start(out), narrow(rows),
         narrow(near.utterances), at_start_if(drop.seed), drop.layer, drop.threshold, drop.scale);
  return out;
}

// Gradients of x, to which `passed` is added, and [parts, width]: of weight, bias and, of three, of what the rectifier got.
std::pair<Tensor, Tensor> norm_backward(const Program& program, const Tensor& x, const Tensor& weight,
                                        const Tensor& grad, const Tensor& passed, const Neighbours& near,
                                        int64_t parts, const Drop& drop) {
  auto rows = x.size(0), width = x.size(1);
  auto grad_x = at::empty_like(x);
  auto blocks = shares(rows, TILE);
  auto partial = floats(x, {blocks, parts * width});
  launch(program, program.backward, {blocks, 1, 1}, {32 * TILE_WARPS, 1, 1}, at_start(x), at_start(weight), at_start(grad),
         at_start_if(passed), at_start_if(near.owner), at_start(grad_x), at_start(partial), narrow(rows),
         narrow(near.utterances), at_start_if(drop.seed), drop.layer, drop.threshold, drop.scale);
  return {grad_x, sum_blocks(program.reduce, program, partial, {parts, width})};
}

// x + dropout(folded(y) + bias)
Tensor folded(const Program& program, const Tensor& y, const Tensor& x, const Tensor& bias, const Neighbours& near,
              int64_t taps, bool mirrored, const Drop& drop) {
  auto rows = y.size(0), width = y.size(1) / taps;
  auto out = at::empty({rows, width}, y.options());
  Vectors vectors(y, width);
  launch(program, program.forward, {shares(rows, DEPTH), vectors.blocks, 1}, vectors.block(), at_start(y),
         at_start_if(x), at_start_if(bias), at_start_if(near.owner), at_start(out), narrow(rows),
         narrow(near.utterances), narrow(width), int32_t{mirrored}, at_start_if(drop.seed), drop.layer,
         drop.threshold, drop.scale);
  return out;
}

// unfolded(dropout(x)), and where `sums` is given, into it the sums of the columns of dropout(x).
Tensor unfolded(const Program& program, const Tensor& x, const Neighbours& near, int64_t taps, bool mirrored,
                const Drop& drop, Tensor* sums = nullptr) {
  auto rows = x.size(0), width = x.size(1);
  auto out = at::empty({rows, taps * width}, x.options());
  auto blocks = shares(rows, DEPTH * UNFOLD_EACH);
  auto partial = sums ? floats(x, {blocks, width}) : Tensor();
  Vectors vectors(x, width);
  launch(program, program.backward, {blocks, vectors.blocks, 1}, vectors.block(), at_start(x),
         at_start_if(near.owner), at_start(out), at_start_if(partial), narrow(rows), narrow(near.utterances),
         narrow(width), int32_t{mirrored}, at_start_if(drop.seed), drop.layer, drop.threshold, drop.scale);
  if (sums) *sums = sum_blocks(program.reduce, program, partial, {width});
  return out;
}

enum class Taps { within, apart };  // filters of channels side by side, or a matrix for each tap

// Mirror of the struct in product.cu.
struct Weights {
  static constexpr int32_t MOST = 16;

  const void* weight[MOST];
  void* laid[MOST];
  int32_t channels[MOST], filter_stride[MOST], tap_stride[MOST], end[MOST], count = 0;
};

// Of each weight [filters, taps * channels] or [taps * filters, channels], in the kind of the activations, from [filters,
// channels, taps]; all have as many taps.
std::vector<Tensor> laid(const Program& program, const std::vector<std::pair<Tensor, Taps>>& weights, const Tensor& like) {
  std::vector<Tensor> made;
  Weights part;
  for (const auto& [weight, taps] : weights) {
    auto filters = weight.size(0), channels = weight.size(1), count = weight.size(2);
    bool within = taps == Taps::within;
    made.push_back(within ? at::empty({filters, count * channels}, like.options())
                          : at::empty({count * filters, channels}, like.options()));
    auto at = part.count++;
    part.weight[at] = at_start(weight), part.laid[at] = at_start(made.back());
    part.channels[at] = narrow(channels), part.filter_stride[at] = narrow(within ? count * channels : channels);
    part.tap_stride[at] = narrow(within ? channels : filters * channels);
    part.end[at] = narrow(filters * shares(channels, CHUNK) + (at > 0 ? part.end[at - 1] : 0));
    if (part.count < Weights::MOST && made.size() < weights.size()) continue;
    launch(program, program.forward, {static_cast<uint32_t>(part.end[at]), 1, 1}, {THREADS, 1, 1}, part);
    part.count = 0;
  }
  return made;
}

Tensor laid(const Program& program, const Tensor& weight, Taps taps, const Tensor& like) {
  return laid(program, {{dense(weight), taps}}, like)[0];
}

// The other way round, in f32.
Tensor unlaid(const Program& program, const Tensor& grad, Taps taps, at::IntArrayRef size) {
  auto filters = size[0], channels = size[1], count = size[2];
  bool within = taps == Taps::within;
  auto out = floats(grad, size);
  launch(program, program.backward, {static_cast<uint32_t>(filters), shares(channels, CHUNK), 1}, {THREADS, 1, 1},
         at_start(grad), at_start(out), narrow(channels), narrow(within ? count * channels : channels),
         narrow(within ? channels : filters * channels));
  return out;
}

// Takes `grad` back through the rectifier, in place. The sums of its columns.
Tensor rectified(const Programs& programs, const Tensor& out, const Tensor& grad) {
  auto rows = out.size(0), width = out.size(1);
  auto blocks = shares(rows, DEPTH * RECTIFY_EACH);
  auto partial = floats(out, {blocks, width});
  Vectors vectors(out, width);
  launch(*programs.product, programs.product->reduce, {blocks, vectors.blocks, 1}, vectors.block(), at_start(out),
         at_start(grad), at_start(partial), narrow(rows), narrow(width));
  return sum_blocks(programs.fold->reduce, *programs.fold, partial, {width});
}

// The norm, and x itself: gradients of both come back together, and so are added where they are read anyway.
struct Norm : Function<Norm> {
  static variable_list forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_weight,
                               const Tensor& any_bias, const Program* program) {
    context->set_materialize_grads(false);
    auto x = dense(any_x), weight = dense(any_weight), bias = dense(any_bias);
    auto out = normed(*program, x, Tensor(), weight, bias, Neighbours(), 1, Drop());
    // Below the layer that tracks views: to autograd both are outputs of this function.
    at::AutoDispatchBelowADInplaceOrView untracked;
    auto passed = x.view(x.sizes());
    remember(context, program, {x, weight});
    return {out, passed};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    if (!grads[0].defined()) return {grads[1], Tensor(), Tensor(), Tensor()};
    auto passed = grads[1].defined() ? dense(grads[1]) : Tensor();
    auto [grad_x, sums] = norm_backward(program, saved[0], saved[1], dense(grads[0]), passed, Neighbours(), 2, Drop());
    return {grad_x, sums.select(0, 0), sums.select(0, 1), Tensor()};
  }
};

struct Residual : Function<Residual> {
  static Tensor forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_y, Dropout dropout,
                        const Program* program) {
    auto x = dense(any_x), y = dense(any_y);
    Drop drop(dropout);
    remember(context, program, {drop.seed});
    drop.remember(context);
    return folded(*program, y, x, Tensor(), Neighbours(), 1, false, drop);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto drop = Drop::recall(context, context->get_saved_variables()[0]);
    auto grad_y = drop.seed.defined() ? unfolded(recall(context), dense(grads[0]), Neighbours(), 1, false, drop) : grads[0];
    return {grads[0], grad_y, Tensor(), Tensor()};
  }
};

// x + dropout(narrow(relu(widen(norm(x)))))
struct FeedForward : Function<FeedForward> {
  static Tensor forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_norm_weight,
                        const Tensor& any_norm_bias, const Tensor& any_widen, const Tensor& /*widen_bias*/,
                        const Tensor& any_narrow, const Tensor& any_narrow_bias, const Tensor* product_bias,
                        const Tensor* const* laid_ahead, Spans spans, Dropout dropout, Programs programs) {
    auto x = dense(any_x), norm_weight = dense(any_norm_weight), norm_bias = dense(any_norm_bias);
    auto narrow_bias = dense(any_narrow_bias);
    auto taps = any_widen.size(2);
    Neighbours near = {*spans.owner, spans.starts->size(0)};
    Drop drop(dropout);
    auto widen = laid_ahead[0] ? *laid_ahead[0] : laid(*programs.product, any_widen, Taps::within, x);
    auto narrow = laid_ahead[1] ? *laid_ahead[1] : laid(*programs.product, any_narrow, Taps::apart, x);
    auto seen = normed(*programs.norm, x, Tensor(), norm_weight, norm_bias, near, taps, Drop());
    auto wide = multiply(*programs.product, seen, widen.t(), product_bias, /*relu=*/true);
    auto apart = multiply(*programs.product, wide, narrow.t());
    auto out = folded(*programs.fold, apart, x, narrow_bias, near, taps, false, drop);
    context->save_for_backward({x, norm_weight, seen, wide, widen, narrow, near.owner, drop.seed});
    context->saved_data["utterances"] = near.utterances;
    context->saved_data["taps"] = taps;
    keep(context, programs);
    drop.remember(context);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto programs = kept(context);
    auto saved = context->get_saved_variables();
    const auto &x = saved[0], &norm_weight = saved[1], &seen = saved[2], &wide = saved[3], &widen = saved[4],
               &narrow = saved[5];
    Neighbours near = {saved[6], context->saved_data["utterances"].toInt()};
    auto drop = Drop::recall(context, saved[7]);
    auto taps = context->saved_data["taps"].toInt(), channels = x.size(1), inner = wide.size(1);
    auto grad = dense(grads[0]);
    Tensor grad_narrow_bias;
    auto grad_y = unfolded(*programs.fold, grad, near, taps, true, drop, &grad_narrow_bias);
    Tensor grad_narrow, grad_widen;
    Aside::lane().run({grad_y, wide}, [&] {
      auto by_narrow = multiply(*programs.product, grad_y.t(), wide);
      grad_narrow = unlaid(*programs.product, by_narrow, Taps::apart, {channels, inner, taps});
    });
    auto grad_wide = multiply(*programs.product, grad_y, narrow);
    auto grad_widen_bias = rectified(programs, wide, grad_wide);
    Aside::lane().run({grad_wide, seen}, [&] {
      auto by_widen = multiply(*programs.product, grad_wide.t(), seen);
      grad_widen = unlaid(*programs.product, by_widen, Taps::within, {inner, channels, taps});
    });
    auto grad_seen = multiply(*programs.product, grad_wide, widen);
    auto [grad_x, sums] = norm_backward(*programs.norm, x, norm_weight, grad_seen, grad, near, 2, Drop());
    return {grad_x,      sums.select(0, 0), sums.select(0, 1), grad_widen, grad_widen_bias,
            grad_narrow, grad_narrow_bias,  Tensor(),          Tensor(),   Tensor(),
            Tensor(),    Tensor()};
  }
};

// dropout(norm(relu(convolution(x)))), added to x where it is `residual`.
struct ConvNorm : Function<ConvNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_weight,
                        const Tensor& any_norm_weight, const Tensor& any_norm_bias, const Tensor& /*bias*/,
                        const Tensor* product_bias, const Tensor* laid_ahead, bool residual, Spans spans,
                        Dropout dropout, Programs programs) {
    auto x = dense(any_x), norm_weight = dense(any_norm_weight), norm_bias = dense(any_norm_bias);
    auto taps = any_weight.size(2);
    Neighbours near = {*spans.owner, spans.starts->size(0)};
    Drop drop(dropout);
    auto weight = laid_ahead ? *laid_ahead : laid(*programs.product, any_weight, Taps::within, x);
    auto seen = unfolded(*programs.fold, x, near, taps, false, Drop());
    auto local = multiply(*programs.product, seen, weight.t(), product_bias, /*relu=*/true);
    auto out = normed(*programs.norm, local, residual ? x : Tensor(), norm_weight, norm_bias, Neighbours(), 1, drop);
    context->save_for_backward({norm_weight, seen, local, weight, near.owner, drop.seed});
    context->saved_data["utterances"] = near.utterances;
    context->saved_data["taps"] = taps;
    context->saved_data["residual"] = residual;
    keep(context, programs);
    drop.remember(context);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto programs = kept(context);
    auto saved = context->get_saved_variables();
    const auto &norm_weight = saved[0], &seen = saved[1], &local = saved[2], &weight = saved[3];
    Neighbours near = {saved[4], context->saved_data["utterances"].toInt()};
    auto drop = Drop::recall(context, saved[5]);
    auto taps = context->saved_data["taps"].toInt(), filters = local.size(1), channels = seen.size(1) / taps;
    auto grad = dense(grads[0]);
    auto [grad_local, sums] = norm_backward(*programs.norm, local, norm_weight, grad, Tensor(), Neighbours(), 3, drop);
    Tensor grad_weight;
    Aside::lane().run({grad_local, seen}, [&] {
      auto by_weight = multiply(*programs.product, grad_local.t(), seen);
      grad_weight = unlaid(*programs.product, by_weight, Taps::within, {filters, channels, taps});
    });
    Tensor grad_x;
    if (context->needs_input_grad(0)) {
      auto passed = context->saved_data["residual"].toBool() ? grad : Tensor();
      auto grad_seen = multiply(*programs.product, grad_local, weight);
      grad_x = folded(*programs.fold, grad_seen, passed, Tensor(), near, taps, true, Drop());
    }
    return {grad_x,   grad_weight, sums.select(0, 0), sums.select(0, 1), sums.select(0, 2), Tensor(),
            Tensor(), Tensor(),    Tensor(),          Tensor(),          Tensor()};
  }
};

}  // namespace

extern "C" {

// `outputs`: room for two, the norm and x.
char* torchx_norm(const Program* program, const Tensor* x, const Tensor* weight, const Tensor* bias, Tensor** outputs) {
  return guarded([&] {
    auto parts = Norm::apply(*x, *weight, *bias, program);
    for (size_t i = 0; i < 2; ++i) outputs[i] = new Tensor(parts[i]);
  });
}

char* torchx_residual(const Program* program, const Tensor* x, const Tensor* y, Dropout dropout, Tensor** output) {
  return guarded([&] { *output = new Tensor(Residual::apply(*x, *y, dropout, program)); });
}

// `weights`: of the norm, of the layer that widens and of the one that narrows, each with its bias; and the bias of the
// layer that widens in the kind of x. `laid`: of both layers, or null.
char* torchx_feed_forward(Programs programs, const Tensor* x, const Tensor* const* weights, const Tensor* const* laid,
                          Spans spans, Dropout dropout, Tensor** output) {
  return guarded([&] {
    *output = new Tensor(FeedForward::apply(*x, *weights[0], *weights[1], *weights[2], *weights[3], *weights[4],
                                            *weights[5], weights[6], laid, spans, dropout, programs));
  });
}

// `weights`: of the convolution and of the norm, each with its bias; and the convolution's bias in the kind of x. `laid`: the
// convolution's, or null.
char* torchx_conv_norm(Programs programs, const Tensor* x, const Tensor* const* weights, const Tensor* laid,
                       bool residual, Spans spans, Dropout dropout, Tensor** output) {
  return guarded([&] {
    *output = new Tensor(ConvNorm::apply(*x, *weights[0], *weights[2], *weights[3], *weights[1], weights[4], laid,
                                         residual, spans, dropout, programs));
  });
}

// Weights of convolutions of as many taps, in the kind of `like`, as their products want them: `apart` says of each how.
// `outputs`: room for as many.
char* torchx_lay_weights(const Program* program, const Tensor* const* weights, const bool* apart, size_t count,
                         const Tensor* like, Tensor** outputs) {
  return guarded([&] {
    std::vector<std::pair<Tensor, Taps>> all;
    for (size_t i = 0; i < count; ++i) all.emplace_back(dense(*weights[i]), apart[i] ? Taps::apart : Taps::within);
    auto made = laid(*program, all, *like);
    for (size_t i = 0; i < count; ++i) outputs[i] = new Tensor(made[i]);
  });
}

}  // extern "C"
