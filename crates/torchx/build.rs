use std::path::Path;
fn main() {
    let libtorch = std::env::var("LIBTORCH").expect("LIBTORCH is set by .cargo/config.toml");
    let lib = Path::new(&libtorch).join("torch/lib");
    let lib = lib.canonicalize().unwrap_or_else(|e| panic!("{}: {e}; run scripts/libtorch.sh", lib.display()));
    println!("cargo:lib={}", lib.display());
    println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{}", lib.display());
    println!("cargo:rerun-if-changed=build.rs");
}
