// Attention inside each utterance, from the output of the common projection of queries, keys and values.
#include "fused.h"

#include <cmath>

using namespace fused;

namespace {

constexpr int64_t TILE_ROWS = 64;  // as in attention.cu
constexpr uint32_t TILE_THREADS = 128;
constexpr int64_t ROOM_BYTES = 6 * TILE_ROWS * 64 * 2 + 4 * TILE_ROWS * 4;

// Mirror of the struct in attention.cu.
struct Utterances {
  const void *starts, *lens;
  int32_t count;

  Utterances(const Tensor& starts, const Tensor& lens)
      : starts(at_start(starts)), lens(at_start(lens)), count(narrow(starts.size(0))) {}
};

struct Attention : Function<Attention> {
  static Extent grid(int64_t rows, int64_t heads, const Utterances& utterances, uint32_t sides) {
    // No more tiles than that, however long the utterances are: the host does not know.
    return {static_cast<uint32_t>(rows / TILE_ROWS + utterances.count), static_cast<uint32_t>(heads), sides};
  }

  static void* values(const Tensor& qkv) {
    return static_cast<char*>(qkv.data_ptr()) + 2 * qkv.stride(1) * qkv.element_size();
  }

  static Tensor forward(AutogradContext* context, const Tensor& any_qkv, const Tensor& any_cos, const Tensor& any_sin,
                        Spans spans, const Program* program, const Program* rotary) {
    auto qkv = dense(any_qkv), cos = dense(any_cos), sin = dense(any_sin);
    auto rows = qkv.size(0), heads = qkv.size(2), dim = qkv.size(3);
    Utterances utterances(*spans.starts, *spans.lens);
    auto turned = at::empty({2, rows, heads, dim}, qkv.options());
    auto q = turned.select(0, 0), k = turned.select(0, 1);
    auto vectors = turned.numel() * turned.element_size() / 32;
    launch(*rotary, rotary->forward, {shares(vectors, THREADS), 1, 1}, {THREADS, 1, 1}, at_start(qkv), at_start(cos),
           at_start(sin), at_start(q), at_start(k), narrow(rows), narrow(heads), narrow(dim / 2));
    auto out = at::empty({rows, heads * dim}, qkv.options());
    auto logs = floats(qkv, {heads, rows});
    auto scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(dim)));
    launch(*program, program->forward, grid(rows, heads, utterances, 1), {TILE_THREADS, 1, 1}, at_start(q), at_start(k),
           values(qkv), utterances, at_start(out), at_start(logs), narrow(rows), narrow(heads), narrow(qkv.stride(0)),
           scale);
    remember(context, program, {qkv, turned, cos, sin, *spans.starts, *spans.lens, out, logs});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &qkv = saved[0], &turned = saved[1], &cos = saved[2], &sin = saved[3], &out = saved[6], &logs = saved[7];
    Utterances utterances(saved[4], saved[5]);
    auto rows = qkv.size(0), heads = qkv.size(2), dim = qkv.size(3);
    auto grad = dense(grads[0]), dots = at::empty_like(logs), grad_qkv = at::empty_like(qkv);
    launch(program, program.reduce, {shares(rows * heads, THREADS / 8), 1, 1}, {THREADS, 1, 1}, at_start(out),
           at_start(grad), at_start(dots), narrow(rows), narrow(heads));
    auto q = turned.select(0, 0), k = turned.select(0, 1);
    auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
    launch_with(program, program.backward, grid(rows, heads, utterances, 2), {TILE_THREADS, 1, 1}, ROOM_BYTES,
                at_start(q), at_start(k), values(qkv), at_start(grad), utterances, at_start(logs), at_start(dots),
                at_start(cos), at_start(sin), at_start(grad_qkv), narrow(rows), narrow(heads), narrow(qkv.stride(0)),
                scale);
    return {grad_qkv, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

extern "C" char* torchx_attention(const Program* program, const Program* rotary, const Tensor* qkv, const Tensor* cos,
                                  const Tensor* sin, Spans spans, Tensor** output) {
  return guarded([&] { *output = new Tensor(Attention::apply(*qkv, *cos, *sin, spans, program, rotary)); });
}
