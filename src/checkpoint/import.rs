//! Weights from elsewhere: another run's checkpoint, or a safetensors file. By name; what does not fit stays as it is.

use super::{Checkpoint, RunKind, Tensors, read_weights, weights_file};
use crate::optimizer::ParameterGroup;
use anyhow::Result;
use host::bundled;
use host::config::{Config, Model};
use host::error::hinted;
use host::text::Tokenizer;
use std::path::PathBuf;
use tch::Tensor;
use torchx::named_parameters;

/// Where the weights that a run starts with come from.
pub enum WeightSource {
    Checkpoint(Box<Checkpoint>),
    File(PathBuf),
}

/// Which of a network's parameters a set of weights fits.
#[derive(Debug, Default, PartialEq)]
struct MatchReport {
    matched: usize,
    /// Tables of tokens or languages: (name, rows taken, rows there are).
    by_row: Vec<(String, usize, usize)>,
    other_shape: Vec<String>,
    missing: Vec<String>,
    unused: usize,
}

impl WeightSource {
    /// Opens a checkpoint, the best or newest one of a folder of them, or a safetensors file.
    pub fn open(path: PathBuf) -> Result<Self> {
        match path.is_file() {
            true => Ok(WeightSource::File(path)),
            false => Ok(WeightSource::Checkpoint(Box::new(Checkpoint::open(&path)?))),
        }
    }

    /// Whether there are weights for a group of parameters. A file has one group's, the first's.
    pub fn holds(&self, group: &str) -> bool {
        self.checkpoint().is_some_and(|checkpoint| weights_file(checkpoint.folder(), group).exists())
    }

    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        match self {
            WeightSource::Checkpoint(checkpoint) => Some(checkpoint),
            WeightSource::File(_) => None,
        }
    }
}

/// What the bundled voice is to a new run.
pub enum BundledStart {
    /// Its weights fit.
    Fits(WeightSource),
    /// It is a network of another size, or for other frames: what it is.
    Differs(String),
    Missing,
}

/// Looks whether a run with these settings can begin with the bundled voice.
pub fn bundled_start(config: &Config) -> Result<BundledStart> {
    let Some(bundled) = bundled::find() else { return Ok(BundledStart::Missing) };
    let checkpoint = Checkpoint::open(&bundled.voice())?.of_kind(RunKind::Voice)?;
    // What else is in a model's settings is how it is trained, or its vocoder's.
    let network = |model: &Model| {
        let Model { text_dim, text_layers, text_heads, decoder_dim, decoder_layers, decoder_heads, .. } = *model;
        ([text_dim, text_layers, text_heads, decoder_dim, decoder_layers, decoder_heads], model.clones())
    };
    let was = &checkpoint.config;
    Ok(match config.has_frames_of(was) && network(&config.model) == network(&was.model) {
        true => BundledStart::Fits(WeightSource::Checkpoint(Box::new(checkpoint))),
        false => {
            let Config { model, data, .. } = was;
            BundledStart::Differs(format!("{:?}, {} Hz", model.size, data.sample_rate).to_lowercase())
        }
    })
}

/// Copies what fits into the group's parameters and says what did. `tokenizer`: this run's.
pub fn load_matching_weights(
    source: &WeightSource,
    group: &ParameterGroup,
    tokenizer: Option<&Tokenizer>,
) -> Result<String> {
    let path = match source {
        WeightSource::Checkpoint(checkpoint) => weights_file(checkpoint.folder(), group.name),
        WeightSource::File(path) => path.clone(),
    };
    let tokenizers = source.checkpoint().map(|checkpoint| &checkpoint.tokenizer).zip(tokenizer);
    let report = fill(group, read_weights(&path)?, tokenizers);
    if report.matched == 0 {
        let fact = format!("{}: none of its tensors fits this network", path.display());
        return Err(hinted(fact, "names and shapes must be alike; `--model-size` sets them"));
    }
    Ok(format!("{}: {}", path.display(), report.describe()))
}

fn fill(group: &ParameterGroup, mut read: Tensors, tokenizers: Option<(&Tokenizer, &Tokenizer)>) -> MatchReport {
    let mut report = MatchReport::default();
    for (name, tensor) in named_parameters(&group.store) {
        let Some(saved) = read.remove(&name) else {
            report.missing.push(name);
            continue;
        };
        match tokenizers.and_then(|(old, new)| rows(&name, old, new)) {
            Some(pairs) if saved.size()[1..] == tensor.size()[1..] => {
                copy_rows(&tensor, &saved, &pairs);
                report.by_row.push((name, pairs.len(), tensor.size()[0] as usize));
                report.matched += 1;
            }
            _ if saved.size() == tensor.size() => {
                tch::no_grad(|| tensor.shallow_clone().copy_(&saved));
                report.matched += 1;
            }
            _ => report.other_shape.push(name),
        }
    }
    report.unused = read.len();
    report
}

/// Pairs of rows (saved, this network's) of a table whose rows have meanings; `None` for other parameters.
fn rows(name: &str, old: &Tokenizer, new: &Tokenizer) -> Option<Vec<(i64, i64)>> {
    let (from, to): (Vec<String>, Vec<String>) = match name {
        "encoder.embedding" => (old.names(), new.names()),
        "encoder.languages.embedding" => (old.languages().to_vec(), new.languages().to_vec()),
        _ => return None,
    };
    let place = |name: &String| from.iter().position(|other| other == name);
    let pairs = to.iter().enumerate().filter_map(|(here, name)| Some((place(name)? as i64, here as i64)));
    Some(pairs.collect())
}

fn copy_rows(tensor: &Tensor, saved: &Tensor, pairs: &[(i64, i64)]) {
    let (from, to): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
    let [from, to] = [from, to].map(|rows| Tensor::from_slice(&rows));
    let values = saved.index_select(0, &from).to_kind(tensor.kind()).to_device(tensor.device());
    let _ = tch::no_grad(|| tensor.shallow_clone().index_copy_(0, &to.to_device(tensor.device()), &values));
}

impl MatchReport {
    fn describe(&self) -> String {
        let total = self.matched + self.other_shape.len() + self.missing.len();
        let mut text = format!("{} of {total} tensors taken", self.matched);
        for (name, taken, rows) in &self.by_row {
            text += &format!("; {taken} of {rows} rows of {name}");
        }
        for (what, names) in [("of another shape", &self.other_shape), ("not there", &self.missing)] {
            if !names.is_empty() {
                text += &format!("; {} {what}: {}", names.len(), some(names));
            }
        }
        if self.unused > 0 {
            text += &format!("; {} of its tensors not used", self.unused);
        }
        text
    }
}

/// The first few names.
fn some(names: &[String]) -> String {
    let first = names.iter().take(4).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 4 { format!("{first}, …") } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::nn::{Init, VarStore};
    use tch::{Device, Kind};

    fn group(rows: i64) -> ParameterGroup {
        let store = VarStore::new(Device::Cpu);
        let _ = store.root().sub("encoder").var("embedding", &[rows, 2], Init::Const(0.0));
        let _ = store.root().var("same", &[3], Init::Const(0.0));
        let _ = store.root().var("wider", &[4], Init::Const(0.0));
        let _ = store.root().var("fresh", &[1], Init::Const(0.0));
        ParameterGroup::new("model", store, &Config::default().training, false).unwrap()
    }

    #[test]
    fn rows_go_by_meaning_and_the_rest_by_name_and_shape() {
        let old = Tokenizer::fit([("ab", "de")].into_iter());
        let new = Tokenizer::fit([("abß", "de"), ("ab", "en")].into_iter()).joined(&old).unwrap();
        let (from, to) = (old.names(), new.names());
        let group = group(to.len() as i64);
        let count = from.len() as i64;
        let read = [
            // Published weights are often of half width.
            ("encoder.embedding".to_owned(), Tensor::arange(2 * count, (Kind::Half, Device::Cpu)).view([count, 2])),
            ("same".to_owned(), Tensor::from_slice(&[1f32, 2.0, 3.0]).to_kind(Kind::Half)),
            ("wider".to_owned(), Tensor::from_slice(&[1f32])),
            ("other".to_owned(), Tensor::from_slice(&[1f32])),
        ];
        let report = fill(&group, read.into_iter().collect(), Some((&old, &new)));
        assert_eq!((report.matched, report.unused), (2, 1));
        assert_eq!((report.other_shape, report.missing), (vec!["wider".to_owned()], vec!["fresh".to_owned()]));
        let table =
            &named_parameters(&group.store).into_iter().find(|(name, _)| name == "encoder.embedding").unwrap().1;
        for (here, name) in to.iter().enumerate() {
            let wanted = from.iter().position(|other| other == name).map_or(0.0, |there| 2.0 * there as f64);
            assert_eq!(table.double_value(&[here as i64, 0]), wanted, "{name}");
        }
    }
}
