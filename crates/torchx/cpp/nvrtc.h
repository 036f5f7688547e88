// Kernels compiled from source at run time. NVRTC and the driver are reached by name through libcaffe2_nvrtc, which
// lies beside libtorch_cuda and knows where its own NVRTC is; the wheels carry no nvrtc.h, so its part is here.
#pragma once

#include "bind.h"
#include "user_cache.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nvrtc {

using Program = struct _nvrtcProgram*;

struct Library {
  int (*version)(int* major, int* minor);
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int count, const char* const* options);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  const char* (*error_string)(int);
  decltype(&cuModuleLoadData) module_load;
  decltype(&cuModuleUnload) module_unload;
  decltype(&cuModuleGetFunction) module_function;
  decltype(&cuFuncSetAttribute) function_attribute;
  decltype(&cuLaunchKernel) launch;
  decltype(&cuGraphAddKernelNode) graph_kernel;
  decltype(&cuGetErrorString) driver_error_string;
};

inline Library open() {
  Dl_info torch_cuda;
  TORCH_CHECK(dladdr(reinterpret_cast<void*>(&at::cuda::graph_pool_handle), &torch_cuda), "libtorch_cuda has no path");
  std::string path = torch_cuda.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libcaffe2_nvrtc.so";
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  TORCH_CHECK(handle, "NVRTC: ", dlerror());
  Library library;
  bind(handle, "nvrtcVersion", library.version);
  bind(handle, "nvrtcCreateProgram", library.create);
  bind(handle, "nvrtcDestroyProgram", library.destroy);
  bind(handle, "nvrtcCompileProgram", library.compile);
  bind(handle, "nvrtcGetProgramLogSize", library.log_size);
  bind(handle, "nvrtcGetProgramLog", library.log);
  bind(handle, "nvrtcGetCUBINSize", library.cubin_size);
  bind(handle, "nvrtcGetCUBIN", library.cubin);
  bind(handle, "nvrtcGetErrorString", library.error_string);
  bind(handle, "cuModuleLoadData", library.module_load);
  bind(handle, "cuModuleUnload", library.module_unload);
  bind(handle, "cuModuleGetFunction", library.module_function);
  bind(handle, "cuFuncSetAttribute", library.function_attribute);
  bind(handle, "cuLaunchKernel", library.launch);
  bind(handle, "cuGraphAddKernelNode_v2", library.graph_kernel);  // as the header renames it
  bind(handle, "cuGetErrorString", library.driver_error_string);
  return library;
}

inline const Library& library() {
  static const Library opened = open();
  return opened;
}

inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  library().driver_error_string(result, &text);
  TORCH_CHECK(false, what, ": ", text ? text : "unknown driver error");
}

struct Module {
  CUmodule module = nullptr;
  c10::DeviceIndex device = -1;

  ~Module() {
    c10::cuda::CUDAGuard guard(device);
    if (module) library().module_unload(module);
  }
};

struct Kernel {
  std::shared_ptr<Module> module;
  CUfunction function = nullptr;
};

struct ProgramOwner {
  Program program = nullptr;
  ~ProgramOwner() {
    if (program) library().destroy(&program);
  }
};

constexpr int HOPPER = 9;

inline std::pair<int, int> capability(int device) {
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return {major, minor};
}

inline std::string architecture(int device) {
  auto [major, minor] = capability(device);
  auto own = major == HOPPER ? "a" : "";  // its own instructions, see wgmma.cuh
  return "sm_" + std::to_string(major) + std::to_string(minor) + own;
}

// Machine code for this very device, so that loading it compiles nothing more.
inline std::string cubin(const char* source, const char* name, const std::string& architecture) {
  auto option = "--gpu-architecture=" + architecture;
  const char* options[] = {option.c_str(), "--std=c++17"};
  const auto& nvrtc = library();
  ProgramOwner owner;
  int made = nvrtc.create(&owner.program, source, name, 0, nullptr, nullptr);
  TORCH_CHECK(made == 0, "kernel ", name, ": ", nvrtc.error_string(made));
  int compiled = nvrtc.compile(owner.program, 2, options);
  if (compiled != 0) {
    size_t size = 0;
    nvrtc.log_size(owner.program, &size);
    std::string log(size, '\0');
    nvrtc.log(owner.program, log.data());
    TORCH_CHECK(false, "kernel ", name, ": ", nvrtc.error_string(compiled), "\n", log.c_str());
  }
  size_t size = 0;
  nvrtc.cubin_size(owner.program, &size);
  std::string code(size, '\0');
  nvrtc.cubin(owner.program, code.data());
  return code;
}

// The same, as an earlier run compiled it: compiling is most of the way to a first step. A file begins with a hash of what
// follows; one that is not whole is as good as none.
class CodeCache {
 public:
  static std::string compiled(const char* source, const char* name, int device) {
    auto kind = architecture(device);
    auto file = user_cache::file(kind + '\n' + version() + '\n' + source);
    auto code = read(file);
    if (code.empty()) write(file, code = cubin(source, name, kind));
    return code;
  }

 private:
  static constexpr size_t HASH = 32;

  static std::string version() {
    int major = 0, minor = 0;
    library().version(&major, &minor);
    return std::to_string(major) + '.' + std::to_string(minor);
  }

  static std::string read(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    std::string all((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    if (all.size() <= HASH || user_cache::hash(all.substr(HASH)) != all.substr(0, HASH)) return {};
    return all.substr(HASH);
  }

  static void write(const std::filesystem::path& file, const std::string& code) {
    if (file.empty()) return;
    auto part = file;
    part += "." + std::to_string(getpid());
    std::error_code ignored;
    bool whole = static_cast<bool>(std::ofstream(part, std::ios::binary) << user_cache::hash(code) << code << std::flush);
    if (whole) std::filesystem::rename(part, file, ignored);
    std::filesystem::remove(part, ignored);
  }
};

// One kernel for each name; they share the module.
inline std::vector<std::unique_ptr<Kernel>> compile(const char* source, const char* const* names, size_t count,
                                                    int device) {
  auto code = CodeCache::compiled(source, names[0], device);
  c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  C10_CUDA_CHECK(cudaFree(nullptr));  // the driver calls below need the runtime's context to be current
  auto module = std::make_shared<Module>();
  module->device = static_cast<c10::DeviceIndex>(device);
  check(library().module_load(&module->module, code.data()), names[0]);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (size_t i = 0; i < count; ++i) {
    kernels.push_back(std::make_unique<Kernel>(Kernel{module}));
    check(library().module_function(&kernels[i]->function, module->module, names[i]), names[i]);
  }
  return kernels;
}

// The driver's calls take the context that is current in their thread, which the runtime makes so at its first call there; a
// thread of a backward pass may begin with one of ours.
inline void enter_context(c10::DeviceIndex device) {
  thread_local c10::DeviceIndex entered = -1;
  if (entered != device) C10_CUDA_CHECK(cudaSetDevice(device));
  entered = device;
}

inline void launch(const Kernel& kernel, const uint32_t* grid, const uint32_t* block, uint32_t shared_bytes,
                   void** arguments) {
  constexpr uint32_t shared_bytes_without_asking = 48 * 1024;
  c10::cuda::CUDAGuard guard(kernel.module->device);
  enter_context(kernel.module->device);
  if (shared_bytes > shared_bytes_without_asking) {
    auto attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    check(library().function_attribute(kernel.function, attribute, static_cast<int>(shared_bytes)), "shared memory");
  }
  auto stream = c10::cuda::getCurrentCUDAStream(kernel.module->device);
  check(library().launch(kernel.function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes,
                         stream.stream(), arguments, nullptr),
        "kernel launch");
}

}  // namespace nvrtc
