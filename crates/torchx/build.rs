//! Compiles the two C++ halves: the CPU half into the crate, the CUDA half into a shared object that the crate embeds.
//! Also names LibTorch's library folder to the crates above, as `DEP_TORCHX_LIB`.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let libtorch = env::var("LIBTORCH").expect("LIBTORCH is set by .cargo/config.toml");
    let torch = Path::new(&libtorch).join("torch");
    let torch = torch.canonicalize().unwrap_or_else(|e| panic!("{}: {e}; run scripts/libtorch.sh", torch.display()));
    let lib = torch.join("lib");
    println!("cargo:lib={}", lib.display());
    // A RUNPATH, not an RPATH: LD_LIBRARY_PATH goes first, so another machine's PyTorch can serve the same binary.
    println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{}", lib.display());

    // c10d's headers want those of LibTorch's C++ interface, and Gloo's, which the wheel lacks.
    let mut collectives = compiler(&torch);
    collectives.flag("-isystem").flag(torch.join("include/torch/csrc/api/include"));
    collectives.flag("-isystem").flag("cpp/gloo-stub").file("cpp/collectives.cpp").compile("torchx_collectives");
    let halves = ["cpu", "operation", "fused", "attention", "infill", "convolution", "plane", "text"];
    compiler(&torch).files(halves.map(|name| format!("cpp/{name}.cpp"))).compile("torchx_cpu");
    let object = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("libtorchx_cuda.so");
    match cuda_include(&torch) {
        Some(cuda) => compile_cuda(&torch, &cuda, &object),
        // An empty file: the crate then reports that it was built without CUDA.
        None => fs::write(&object, []).unwrap_or_else(|e| panic!("{}: {e}", object.display())),
    }
}

fn compiler(torch: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    // LibTorch's headers warn a lot; with -isystem only our own files do.
    build.cpp(true).pic(true).std("c++20").flag("-isystem").flag(torch.join("include"));
    build
}

/// The CUDA headers: those of the wheels beside torch, or those of an installed toolkit.
fn cuda_include(torch: &Path) -> Option<PathBuf> {
    if !torch.join("include/c10/cuda/CUDAStream.h").exists() {
        return None;
    }
    println!("cargo:rerun-if-env-changed=CUDA_HOME");
    let wheels = torch.parent().map(|site| site.join("nvidia/cu13/include"));
    let toolkit = env::var("CUDA_HOME").unwrap_or_else(|_| "/usr/local/cuda".into());
    wheels.into_iter().chain([Path::new(&toolkit).join("include")]).find(|dir| dir.join("cuda_runtime_api.h").exists())
}

fn compile_cuda(torch: &Path, cuda: &Path, object: &Path) {
    let mut command = compiler(torch).get_compiler().to_command();
    command.arg("-isystem").arg(cuda).args(["-shared", "-s", "cpp/cuda.cpp", "-o"]).arg(object);
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
