// Convolutions over time and frequency to 32 channels, with bias and leaky rectifier (plane.cu, plane_weight.cu).
#include "fused.h"

#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <optional>

using namespace fused;

// Mirror of the Rust struct of the same name.
struct PlaneLayer {
  const Program *plane, *weight, *leaky, *leaky_matched;
  int64_t stride_t, stride_f;

  // As autograd keeps it.
  std::vector<int64_t> numbers() const {
    auto number = [](const Program* program) { return reinterpret_cast<int64_t>(program); };
    return {number(plane), number(weight), number(leaky), number(leaky_matched), stride_t, stride_f};
  }
  static PlaneLayer of(const std::vector<int64_t>& numbers) {
    auto program = [&](size_t at) { return reinterpret_cast<const Program*>(numbers[at]); };
    return {program(0), program(1), program(2), program(3), numbers[4], numbers[5]};
  }
};

namespace {

// As in plane.cuh.
struct Plane {
  int32_t batch, in_t, in_f, out_t, out_f;
};

constexpr int64_t TO = 32, TILE_F = 32, GRID_T = 8;  // as in plane.cuh and plane.cu
constexpr uint32_t PLANE_THREADS = 128, WEIGHT_THREADS = 288;  // as in plane.cu and plane_weight.cu
// Blocks go on from tile to tile. As many as an H200 has room for; another GPU takes them in turns.
constexpr int64_t MULTIPROCESSORS = 132, MOST_BLOCKS_EACH = 4, SHARED_BYTES_EACH = 227 * 1024;

int64_t whole_lines(int64_t elements) { return (elements + 63) / 64 * 64; }

// What a layer's kernels are compiled for, and what follows from it; elements are bf16.
struct Shape {
  int64_t from, channels, kt, kf, st, sf;
  Plane plane;

  Shape(const Tensor& x, const Tensor& weight, const PlaneLayer& layer)
      : from(x.size(3)), channels(weight.size(1)), kt(weight.size(2)), kf(weight.size(3)), st(layer.stride_t),
        sf(layer.stride_f) {
    auto out = [](int64_t in, int64_t kernel, int64_t stride) { return (in + kernel / 2 * 2 - kernel) / stride + 1; };
    plane = {narrow(x.size(0)), narrow(x.size(1)), narrow(x.size(2)), narrow(out(x.size(1), kt, st)),
             narrow(out(x.size(2), kf, sf))};
  }

  int64_t tile_t() const { return 8 / st; }
  int64_t whole_f() const { return from == 8 ? kf + kf % 2 : kf; }
  int64_t seen() const {
    return whole_lines(((tile_t() - 1) * st + kt) * ((TILE_F - 1) * sf + whole_f()) * from);
  }
  int64_t forward_weights() const { return kt * (from == 8 ? (kf + 1) / 2 : kf * 2) * TO * 16; }
  int64_t backward_weights() const { return kt * kf * TO * from; }
  int64_t forward_bytes() const { return 2 * (forward_weights() + seen()); }
  int64_t backward_bytes() const {
    auto beside = [](int64_t kernel, int64_t stride) {
      auto pad = kernel / 2;
      return (kernel - 1 - pad + stride - 1) / stride + (stride - 1 + pad) / stride;
    };
    return 2 * (backward_weights() + whole_lines((GRID_T + beside(kt, st)) * (TILE_F + beside(kf, sf)) * TO));
  }
  int64_t weight_bytes() const { return 2 * 2 * (seen() + tile_t() * TILE_F * TO); }

  uint32_t tiles() const { return plane.batch * shares(plane.out_t, tile_t()) * shares(plane.out_f, TILE_F); }
  uint32_t grid_tiles() const {
    return plane.batch * shares(shares(plane.in_t, st), GRID_T) * shares(shares(plane.in_f, sf), TILE_F);
  }
};

uint32_t blocks_for(uint32_t tiles, int64_t shared_bytes) {
  auto each = std::clamp<int64_t>(SHARED_BYTES_EACH / (shared_bytes + 1024), 1, MOST_BLOCKS_EACH);
  return std::min(tiles, static_cast<uint32_t>(each * MULTIPROCESSORS));
}

// Outputs: the activation, and with a target its distance from it.
struct ConvLeaky : Function<ConvLeaky> {
  static variable_list forward(AutogradContext* context, const Tensor& any_x, const Tensor& any_weight,
                               const Tensor& any_bias, const std::optional<Tensor>& any_target, double slope,
                               PlaneLayer layer) {
    auto x = dense(any_x), weight = dense(any_weight), bias = dense(any_bias);
    auto target = any_target ? dense(*any_target) : Tensor();
    Shape shape(x, weight, layer);
    auto laid = at::empty({shape.forward_weights() + shape.backward_weights()}, x.options());
    launch(*layer.plane, layer.plane->reduce, {shares(TO * shape.from * shape.kt * shape.whole_f(), THREADS), 1, 1},
           {THREADS, 1, 1}, at_start(weight), at_start(laid), narrow(shape.channels));
    auto out = at::empty({x.size(0), shape.plane.out_t, shape.plane.out_f, TO}, x.options());
    auto blocks = blocks_for(shape.tiles(), shape.forward_bytes());
    auto partial = target.defined() ? floats(x, {blocks}) : Tensor();
    launch_with(*layer.plane, layer.plane->forward, {blocks, 1, 1}, {PLANE_THREADS, 1, 1}, shape.forward_bytes(),
                at_start(x), at_start(laid), at_start(bias), at_start_if(target), at_start(out), at_start_if(partial),
                shape.plane, static_cast<float>(slope));
    context->save_for_backward({x, weight, bias, laid, out, target});
    context->saved_data["layer"] = layer.numbers();
    context->saved_data["slope"] = slope;
    context->set_materialize_grads(false);
    if (!target.defined()) return {out};
    return {out, at::sum(partial).div_(out.numel())};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto layer = PlaneLayer::of(context->saved_data["layer"].toIntVector());
    auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &bias = saved[2], &laid = saved[3], &out = saved[4], &target = saved[5];
    Shape shape(x, weight, layer);
    auto grad = dense(grads[0].defined() ? grads[0] : at::zeros_like(out)), before = at::empty_like(out);
    // A distance that nobody asks about pulls at nothing.
    bool matched = target.defined() && grads[1].defined();
    auto grad_distance = matched ? dense(grads[1]) : Tensor();
    const auto& leaky = matched ? *layer.leaky_matched : *layer.leaky;
    auto vectors = out.numel() * out.element_size() / 16;
    auto blocks = shares(vectors, THREADS * VECTORS);
    Tensor partial, grad_x, grad_weight, grad_bias;
    if (context->needs_input_grad(2)) partial = floats(out, {blocks, TO}), grad_bias = at::empty_like(bias);
    launch(leaky, leaky.backward, {blocks, 1, 1}, {THREADS, 1, 1}, at_start(out), matched ? at_start(target) : nullptr,
           at_start(grad), at_start_if(grad_distance), at_start(before), at_start_if(partial), narrow(vectors), narrow(TO),
           static_cast<float>(context->saved_data["slope"].toDouble()));
    if (partial.defined())
      launch(leaky, leaky.reduce, {1, 1, 1}, {32, 32, 1}, at_start(partial), at_start(grad_bias), narrow(blocks),
             narrow(TO));
    if (context->needs_input_grad(0)) {
      grad_x = at::empty_like(x);
      auto count = blocks_for(shape.grid_tiles(), shape.backward_bytes());
      launch_with(*layer.plane, layer.plane->backward, {count, 1, 1}, {PLANE_THREADS, 1, 1}, shape.backward_bytes(),
                  at_start(before), at_start(laid), at_start(grad_x), shape.plane);
    }
    if (context->needs_input_grad(1)) {
      grad_weight = at::empty_like(weight);
      auto columns = shape.kt * shape.kf * TO * shape.from;
      auto count = std::min(shape.tiles(), static_cast<uint32_t>(MULTIPROCESSORS));
      auto sums = floats(x, {count, columns});
      launch_with(*layer.weight, layer.weight->forward, {count, 1, 1}, {WEIGHT_THREADS, 1, 1}, shape.weight_bytes(),
                  at_start(x), at_start(before), at_start(sums), shape.plane);
      launch(*layer.weight, layer.weight->backward, {shares(columns, 32), 1, 1}, {32, 8, 1}, at_start(sums),
             at_start(grad_weight), narrow(count), narrow(shape.channels));
    }
    return {grad_x, grad_weight, grad_bias, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

extern "C" {

// `target` may be null; `outputs`: room for two, of which the second is made for a target.
char* torchx_conv_leaky(const PlaneLayer* layer, const Tensor* x, const Tensor* weight, const Tensor* bias,
                        const Tensor* target, double slope, Tensor** outputs) {
  return guarded([&] {
    auto wanted = target ? std::optional<Tensor>(*target) : std::nullopt;
    auto parts = ConvLeaky::apply(*x, *weight, *bias, wanted, slope, *layer);
    for (size_t i = 0; i < parts.size(); ++i) outputs[i] = new Tensor(parts[i]);
  });
}

}  // extern "C"
