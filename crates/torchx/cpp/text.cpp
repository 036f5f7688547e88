// Differentiable operations between a text and its frames: rows of tables, and losses. Each is one kernel or two forward,
// and one or two backward.
#include "fused.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>

using namespace fused;

namespace {

int64_t vectors(const Tensor& rows) { return rows.numel() * rows.element_size() / 16; }

// Outputs: mean frames (f32) and content along the frames, and the frames of each token.
struct Lay : Function<Lay> {
  static constexpr int64_t LONG = 32, LANES = 16;  // as in lay.cu

  static variable_list forward(AutogradContext* context, const Tensor& any_table, const Tensor& any_tokens, int64_t mels,
                               const Tensor* text_owner, Spans frame_spans, const Program* program) {
    auto table = dense(any_table), tokens = any_tokens.contiguous();
    auto text = table.size(0), width = table.size(1) - mels, frames = tokens.size(0);
    auto mean = floats(table, {frames, mels}), content = at::empty({frames, width}, table.options());
    auto lasted = floats(table, {text, 1}), firsts = at::empty({text}, tokens.options());
    auto row_vectors = table.size(1) * table.element_size() / 16;
    auto blocks = shares(text, THREADS) + shares(frames * row_vectors, THREADS);
    launch(*program, program->forward, {blocks, 1, 1}, {THREADS, 1, 1}, at_start(table), at_start(tokens),
           at_start(*text_owner), at_start(*frame_spans.starts), at_start(*frame_spans.lens), at_start(mean),
           at_start(content), at_start(lasted), at_start(firsts), narrow(frames), narrow(text),
           narrow(frame_spans.starts->size(0)), narrow(mels), narrow(width));
    remember(context, program, {lasted, firsts, tokens});
    context->saved_data["mels"] = mels;
    context->saved_data["width"] = width;
    context->saved_data["kind"] = table.scalar_type();
    context->mark_non_differentiable({lasted});
    context->set_materialize_grads(false);  // or the frames would get zeros for theirs
    return {mean, content, lasted};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    auto text = saved[0].size(0), mels = context->saved_data["mels"].toInt();
    auto width = context->saved_data["width"].toInt(), frames = saved[2].size(0);
    auto kind = context->saved_data["kind"].toScalarType();
    auto some = grads[0].defined() ? grads[0] : grads[1];
    auto given = [&](const Tensor& grad, int64_t columns, at::ScalarType kind) {
      return grad.defined() ? dense(grad) : at::zeros({frames, columns}, some.options().dtype(kind));
    };
    auto by_mean = given(grads[0], mels, at::kFloat), by_content = given(grads[1], width, kind);
    auto grad = at::empty({text, mels + width}, by_content.options());
    auto groups = shares((mels + width) * grad.element_size() / 16, LANES);
    launch(program, program.backward, {shares(frames, LONG) * groups + shares(vectors(grad), THREADS), 1, 1},
           {THREADS, 1, 1}, at_start(by_mean), at_start(by_content), at_start(saved[2]), at_start(saved[0]),
           at_start(saved[1]), at_start(grad), narrow(frames), narrow(text), narrow(mels), narrow(width));
    return {grad, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct Embed : Function<Embed> {
  static constexpr int64_t ROOM = 256;     // as in embed.cu
  static constexpr int64_t STRETCHES = 64;  // at most: each writes a table

  static Tensor forward(AutogradContext* context, const Tensor& any_table, const Tensor& any_index, double scale,
                        at::ScalarType kind, const Program* program) {
    auto table = dense(any_table), index = any_index.contiguous();
    auto rows = index.size(0), width = table.size(1);
    auto out = at::empty({rows, width}, table.options().dtype(kind));
    launch(*program, program->forward, {shares(vectors(out), THREADS), 1, 1}, {THREADS, 1, 1}, at_start(table),
           at_start(index), at_start(out), narrow(rows), narrow(table.size(0)), narrow(width),
           static_cast<float>(scale));
    remember(context, program, {index});
    context->saved_data["scale"] = scale;
    context->saved_data["entries"] = table.size(0);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto index = context->get_saved_variables()[0];
    auto grad = dense(grads[0]);
    auto rows = grad.size(0), width = grad.size(1), entries = context->saved_data["entries"].toInt();
    auto stretch = std::max<int64_t>(64, (rows + STRETCHES - 1) / STRETCHES);
    auto stretches = shares(rows, stretch);
    auto partial = floats(grad, {stretches, entries, width}), grad_table = floats(grad, {entries, width});
    launch(program, program.backward, {stretches, shares(width, 32), shares(entries, ROOM)}, {32, 1, 1}, at_start(grad),
           at_start(index), at_start(partial), narrow(rows), narrow(stretch), narrow(entries), narrow(width));
    launch(program, program.reduce, {shares(entries * width, 4 * THREADS), 1, 1}, {THREADS, 1, 1}, at_start(partial),
           at_start(grad_table), narrow(stretches), narrow(entries * width),
           static_cast<float>(context->saved_data["scale"].toDouble()));
    return {grad_table, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// The rows' masks may be [rows, 1]. `except` may be undefined.
struct SquareLoss : Function<SquareLoss> {
  static constexpr int64_t BLOCKS = 264;  // as in square_loss.cu

  static void* at_start_if(const Tensor& tensor) { return tensor.defined() ? at_start(tensor) : nullptr; }

  static Tensor forward(AutogradContext* context, const Tensor& any_guess, const Tensor& any_target,
                        const Tensor& any_mask, const std::optional<Tensor>& any_except, double factor,
                        const Program* program) {
    auto guess = dense(any_guess), target = dense(any_target), mask = any_mask.contiguous();
    auto except = any_except ? any_except->contiguous() : Tensor();
    auto rows = narrow(guess.size(0)), width = narrow(guess.size(1));
    auto partial = floats(guess, {2, BLOCKS}), loss = floats(guess, {}), share = floats(guess, {});
    launch(*program, program->forward, {static_cast<uint32_t>(BLOCKS), 1, 1}, {THREADS, 1, 1}, at_start(guess),
           at_start(target), at_start(mask), at_start_if(except), at_start(partial), rows, width);
    launch(*program, program->reduce, {1, 1, 1}, {THREADS, 1, 1}, at_start(partial), at_start(loss), at_start(share),
           width, static_cast<float>(factor));
    remember(context, program, {guess, target, mask, except, share});
    return loss;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    const auto &guess = saved[0], &target = saved[1], &mask = saved[2], &except = saved[3], &share = saved[4];
    auto grad_guess = at::empty_like(guess), grad = grads[0].contiguous();
    launch(program, program.backward, {shares(vectors(guess), THREADS), 1, 1}, {THREADS, 1, 1}, at_start(guess),
           at_start(target), at_start(mask), at_start_if(except), at_start(share), at_start(grad), at_start(grad_guess),
           narrow(guess.size(0)), narrow(guess.size(1)));
    return {grad_guess, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct CountLoss : Function<CountLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& any_predicted, const Tensor& any_counts,
                        const Tensor& any_mask, const Program* program) {
    auto predicted = any_predicted.contiguous(), counts = any_counts.contiguous(), mask = any_mask.contiguous();
    auto loss = floats(predicted, {}), share = floats(predicted, {});
    launch(*program, program->forward, {1, 1, 1}, {1024, 1, 1}, at_start(predicted), at_start(counts), at_start(mask),
           at_start(loss), at_start(share), narrow(predicted.numel()));
    remember(context, program, {predicted, counts, mask, share});
    return loss;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& program = recall(context);
    auto saved = context->get_saved_variables();
    auto grad = grads[0].contiguous(), grad_predicted = at::empty_like(saved[0]);
    auto rows = saved[0].numel();
    launch(program, program.backward, {shares(rows, THREADS), 1, 1}, {THREADS, 1, 1}, at_start(saved[0]),
           at_start(saved[1]), at_start(saved[2]), at_start(saved[3]), at_start(grad), at_start(grad_predicted),
           narrow(rows));
    return {grad_predicted, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

extern "C" {

// `outputs`: room for three.
char* torchx_lay(const Program* program, const Tensor* table, const Tensor* token_of_frame, int64_t mels,
                 const Tensor* text_owner, Spans frames, Tensor** outputs) {
  return guarded([&] {
    auto parts = Lay::apply(*table, *token_of_frame, mels, text_owner, frames, program);
    for (size_t i = 0; i < 3; ++i) outputs[i] = new Tensor(parts[i]);
  });
}

char* torchx_embed(const Program* program, const Tensor* table, const Tensor* index, double scale, bool bf16,
                   Tensor** output) {
  auto kind = bf16 ? at::kBFloat16 : at::kFloat;
  return guarded([&] { *output = new Tensor(Embed::apply(*table, *index, scale, kind, program)); });
}

// `except` may be null.
char* torchx_square_loss(const Program* program, const Tensor* guess, const Tensor* target, const Tensor* mask,
                         const Tensor* except, double factor, Tensor** output) {
  return guarded([&] {
    auto taken = except ? std::optional<Tensor>(*except) : std::nullopt;
    *output = new Tensor(SquareLoss::apply(*guess, *target, *mask, taken, factor, program));
  });
}

char* torchx_count_loss(const Program* program, const Tensor* predicted, const Tensor* counts, const Tensor* mask,
                        Tensor** output) {
  return guarded([&] { *output = new Tensor(CountLoss::apply(*predicted, *counts, *mask, program)); });
}

}  // extern "C"
