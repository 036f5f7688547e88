//! The layers above the device boundary do without LibTorch because they do not list it.

use std::process::Command;

#[test]
fn neither_host_nor_cli_depends_on_libtorch() {
    let crates = ["-p", "myxtts-host", "-p", "myxtts-cli"];
    let args = ["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p}", "--edges", "all"];
    let output = Command::new(env!("CARGO")).args(args).args(crates).output().unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let has = |name: &str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    for name in ["myxtts-host", "myxtts-cli", "clap", "nvml-wrapper"] {
        assert!(has(name), "{name} is not in the tree: {}", String::from_utf8_lossy(&output.stderr));
    }
    for name in ["tch", "torch-sys", "torchx"] {
        assert!(!has(name), "{name} is below host or cli:\n{tree}");
    }
}
