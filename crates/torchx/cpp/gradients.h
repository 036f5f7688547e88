// The gradients that there are.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

inline std::vector<at::Tensor> gradients(const at::Tensor* const* params, size_t count) {
  std::vector<at::Tensor> grads;
  for (size_t i = 0; i < count; ++i) {
    if (params[i]->grad().defined()) grads.push_back(params[i]->grad());
  }
  return grads;
}
