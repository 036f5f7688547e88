// Memory that is cleared inside a captured graph: libraries ask for it before products, convolutions and sums that add up
// across blocks. As a node of its own kind it holds what comes next up for 6 to 10 µs (docs/kernels.md), as a kernel for
// about 2; so kernels take their places before the graph is made ready.
#pragma once

#include "nvrtc.h"

#include <map>
#include <mutex>

namespace clears {

constexpr const char* SOURCE = R"(
extern "C" __global__ void clear(unsigned* to, unsigned value, unsigned long long words) {
    const unsigned long long all = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += all)
        to[i] = value;
}
)";
constexpr uint32_t THREADS = 256, MOST_BLOCKS = 264;

// One a device, for good.
inline const nvrtc::Kernel& kernel(c10::DeviceIndex device) {
  static std::mutex lock;
  static std::map<c10::DeviceIndex, std::unique_ptr<nvrtc::Kernel>> kernels;
  std::lock_guard guard(lock);
  auto& found = kernels[device];
  const char* name = "clear";
  if (!found) found = std::move(nvrtc::compile(SOURCE, &name, 1, device)[0]);
  return *found;
}

// The nodes on one side of a node; none where an edge says more than that one goes after the other.
template <class Query>
std::optional<std::vector<cudaGraphNode_t>> beside(cudaGraphNode_t node, Query query) {
  size_t count = 0;
  C10_CUDA_CHECK(query(node, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  std::vector<cudaGraphEdgeData> edges(count);
  if (count) C10_CUDA_CHECK(query(node, nodes.data(), edges.data(), &count));
  for (const auto& edge : edges)
    if (edge.from_port || edge.to_port || edge.type) return std::nullopt;
  return nodes;
}

// Whole words in one row: all that libraries ask for. Others stay as they are.
inline void replace(cudaGraph_t graph, cudaGraphNode_t node, const nvrtc::Kernel& kernel) {
  cudaMemsetParams params;
  C10_CUDA_CHECK(cudaGraphMemsetNodeGetParams(node, &params));
  size_t bytes = params.elementSize * params.width;
  if (params.height > 1 || bytes == 0 || bytes % 4 || reinterpret_cast<uintptr_t>(params.dst) % 4) return;
  auto before = beside(node, cudaGraphNodeGetDependencies), after = beside(node, cudaGraphNodeGetDependentNodes);
  if (!before || !after) return;
  uint32_t value = params.elementSize == 1   ? (params.value & 0xff) * 0x01010101u
                   : params.elementSize == 2 ? (params.value & 0xffff) * 0x00010001u
                                             : params.value;
  uint64_t words = bytes / 4;
  void* arguments[] = {&params.dst, &value, &words};
  CUDA_KERNEL_NODE_PARAMS launch{};
  launch.func = kernel.function;
  launch.gridDimX = static_cast<uint32_t>(std::min<uint64_t>((words + THREADS - 1) / THREADS, MOST_BLOCKS));
  launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
  launch.blockDimX = THREADS;
  launch.kernelParams = arguments;
  CUgraphNode fresh = nullptr;
  nvrtc::check(nvrtc::library().graph_kernel(&fresh, graph, before->data(), before->size(), &launch), "clear");
  std::vector<cudaGraphNode_t> from(after->size(), fresh);
  if (!from.empty())
    C10_CUDA_CHECK(cudaGraphAddDependencies(graph, from.data(), after->data(), nullptr, from.size()));
  C10_CUDA_CHECK(cudaGraphDestroyNode(node));
}

// Of a graph that was captured on `device` and not made ready yet.
inline void by_kernels(cudaGraph_t graph, c10::DeviceIndex device) {
  size_t count = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count) C10_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (auto node : nodes) {
    cudaGraphNodeType type;
    C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeMemset) replace(graph, node, kernel(device));
  }
}

}  // namespace clears
