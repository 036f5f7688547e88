//! The floor plan of the README, held to what is imported: folders depend one way, and each crate's manifest names only
//! crates below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of a crate from the bottom up: those on one line may not import each other.
type Floors = Vec<Vec<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The block behind "## How it is laid out": a line at the margin names a crate's sources, indented ones its folders.
fn floor_plan(readme: &str) -> BTreeMap<String, Floors> {
    let (_, behind) = readme.split_once("## How it is laid out").expect("the README has a floor plan");
    let block = behind.split("```").nth(1).expect("it is a block of code");
    let mut plan: BTreeMap<String, Floors> = BTreeMap::new();
    let mut current = None;
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let names: Vec<String> = line.split_whitespace().map_while(module).collect();
        match (line.starts_with(' '), names.as_slice()) {
            (false, [first, ..]) if first.ends_with("src") => {
                plan.insert(first.clone(), Vec::new());
                current = Some(first.clone());
            }
            (true, [_, ..]) if current.is_some() => {
                plan.get_mut(current.as_ref().expect("checked")).expect("inserted").push(names);
            }
            _ => current = None,
        }
    }
    plan
}

/// "config/" and "simulate.rs" are modules; words of the description are not.
fn module(word: &str) -> Option<String> {
    word.strip_suffix('/').or_else(|| word.strip_suffix(".rs")).map(str::to_owned)
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Modules of its own crate that a file's program part names; tests may look upwards.
fn imports(text: &str) -> BTreeSet<String> {
    let program = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = program.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            None => found.extend([name(rest)]),
            Some(list) => found.extend(first_names(list)),
        }
    }
    found
}

/// Of "a::{b, c}, d::e, f}": a, d and f.
fn first_names(list: &str) -> Vec<String> {
    let (mut depth, mut names, mut name) = (0, Vec::new(), String::new());
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(std::mem::take(&mut name)),
            _ if depth == 0 => name.push(c),
            _ => {}
        }
    }
    names.push(name);
    let first = |name: String| name.trim().split("::").next().unwrap_or_default().to_owned();
    names.into_iter().map(first).filter(|name| !name.is_empty()).collect()
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

/// Imports of a crate that point upwards or sideways, and modules that the plan does not know.
fn violations(floors: &Floors, files: &[(String, String)]) -> Vec<String> {
    let floor = |name: &str| floors.iter().position(|floor| floor.iter().any(|module| module == name));
    let mut wrong = Vec::new();
    for (path, text) in files {
        let own = path.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        let Some(here) = floor(own) else {
            wrong.push(format!("{path}: not in the README's floor plan"));
            continue;
        };
        for other in imports(text).into_iter().filter(|other| other != own) {
            if floor(&other).is_some_and(|there| there >= here) {
                wrong.push(format!("{path} imports {other}, which is not below {own}"));
            }
        }
    }
    wrong
}

#[test]
fn folders_depend_one_way_as_the_readme_draws_them() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let plan = floor_plan(&readme);
    assert!(["crates/host/src", "src"].iter().all(|dir| plan[*dir].len() > 5), "{plan:?}");
    for (crate_dir, floors) in plan.iter().filter(|(_, floors)| !floors.is_empty()) {
        let dir = root().join(crate_dir);
        let read = |path: PathBuf| {
            let inside = path.strip_prefix(&dir).expect("found below it").to_string_lossy().into_owned();
            (inside, fs::read_to_string(path).unwrap())
        };
        let crate_root = |path: &PathBuf| ["lib.rs", "main.rs"].iter().any(|name| *path == dir.join(name));
        let bin = |path: &PathBuf| path.starts_with(dir.join("bin"));
        let files = sources(&dir).into_iter().filter(|path| !is_test(path) && !crate_root(path) && !bin(path));
        let files: Vec<_> = files.map(read).collect();
        assert!(files.len() > 5, "{crate_dir}: only {} files", files.len());
        let wrong = violations(floors, &files);
        assert!(wrong.is_empty(), "{crate_dir}:\n{}", wrong.join("\n"));
        for module in floors.iter().flatten() {
            let there = dir.join(module).is_dir() || dir.join(format!("{module}.rs")).exists();
            assert!(there, "{crate_dir}/{module} is in the README and not on disk");
        }
    }
}

#[test]
fn what_needs_no_tensor_depends_on_no_libtorch() {
    for name in ["host", "web", "cli"] {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.lines().map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default());
        let wrong: Vec<&str> =
            dependencies.filter(|name| ["tch", "torchx", "torch-sys", "myxtts"].contains(name)).collect();
        assert!(wrong.is_empty(), "{name} depends on {wrong:?}");
    }
}

/// The test itself must be able to fail.
#[test]
fn an_import_upwards_or_sideways_is_found() {
    let floors = vec![vec!["config".to_owned(), "telemetry".into()], vec!["cache".into()]];
    let file = |path: &str, text: &str| vec![(path.to_owned(), text.to_owned())];
    let found = |path: &str, text: &str| violations(&floors, &file(path, text)).len();
    assert_eq!(found("cache/mod.rs", "use crate::config::Config;\nuse crate::{config, telemetry::{clock, cpu}};"), 0);
    assert_eq!(found("config/mod.rs", "use crate::cache::Cache;"), 1);
    assert_eq!(found("config/mod.rs", "fn f() { crate::telemetry::now() }"), 1);
    assert_eq!(found("config/mod.rs", "use crate::{telemetry::{a, b}, config::x};"), 1);
    assert_eq!(found("config/mod.rs", "// crate::cache\n#[cfg(test)]\nmod tests {\n use crate::cache;\n}"), 0);
    assert_eq!(found("attic/mod.rs", ""), 1);
    let plan = floor_plan(
        "## How it is laid out\n```\nsrc/  the program\n  feed/ run.rs   words\n  train/  more\ndocs/\n  a/\n```",
    );
    assert_eq!(plan["src"], [vec!["feed".to_owned(), "run".into()], vec!["train".into()]]);
    assert_eq!(plan.len(), 1);
}
