//! Lets `myxtts-torch` and the tests find LibTorch without environment variables.
//! A RUNPATH, not an RPATH: LD_LIBRARY_PATH goes first, so another machine's PyTorch can serve the same binary.

fn main() {
    let lib = std::env::var("DEP_TORCHX_LIB").expect("torchx's build script names LibTorch's folder");
    println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{lib}");
    println!("cargo:rerun-if-changed=build.rs");
}
