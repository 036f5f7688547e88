// Operations whose forward and backward are written in Rust, for tensors on a CPU.
#include "fused.h"

#include <memory>

using namespace fused;

// Mirror of the Rust struct `RawOperation`. Both hand back a message or null; what they write is the caller's.
struct Operation {
  char* (*forward)(const Tensor* const* inputs, size_t count, Tensor** outputs);
  // `grads`: of the outputs, null where there is none; `wanted`: which inputs have a gradient. It writes none or null for others.
  char* (*backward)(const Tensor* const* inputs, size_t count, const Tensor* const* grads, const bool* wanted,
                    Tensor** outputs);
  size_t outputs;
};

namespace {

std::vector<const Tensor*> pointers(at::TensorList tensors) {
  std::vector<const Tensor*> all;
  for (auto& tensor : tensors) all.push_back(tensor.defined() ? &tensor : nullptr);
  return all;
}

variable_list taken(const std::vector<Tensor*>& made) {
  variable_list tensors;
  for (auto* tensor : made) tensors.push_back(tensor ? std::move(*std::unique_ptr<Tensor>(tensor)) : Tensor());
  return tensors;
}

struct Differentiable : Function<Differentiable> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs, Operation operation) {
    context->set_materialize_grads(false);
    context->save_for_backward(inputs.vec());
    context->saved_data["backward"] = reinterpret_cast<int64_t>(operation.backward);
    std::vector<Tensor*> made(operation.outputs);
    check(operation.forward(pointers(inputs).data(), inputs.size(), made.data()));
    return taken(made);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto backward = reinterpret_cast<decltype(Operation::backward)>(context->saved_data["backward"].toInt());
    auto inputs = context->get_saved_variables();
    auto wanted = std::make_unique<bool[]>(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) wanted[i] = context->needs_input_grad(i);
    std::vector<Tensor*> made(inputs.size());
    check(backward(pointers(inputs).data(), inputs.size(), pointers(grads).data(), wanted.get(), made.data()));
    auto all = taken(made);
    all.emplace_back();  // none for `operation`
    return all;
  }
};

}  // namespace

// `outputs`: room for as many as the operation has.
extern "C" char* torchx_operate(Operation operation, const Tensor* const* inputs, size_t count, Tensor** outputs) {
  return guarded([&] {
    std::vector<Tensor> all;
    for (size_t i = 0; i < count; ++i) all.push_back(*inputs[i]);
    auto made = Differentiable::apply(at::TensorList(all), operation);
    for (size_t i = 0; i < made.size(); ++i) outputs[i] = new Tensor(made[i]);
  });
}
