//! Which device serves which role. A pure rule over the GPUs that are there, whoever lists them: LibTorch for a run, the
//! driver for a look at its settings.

use super::{DataDevice, GpuList, Training};
use crate::error::{Hint, WithHint};

/// GPUs under CUDA's own numbers. Asked only where a GPU is wanted: an answer may take LibTorch half a second.
pub trait Gpus {
    /// Number of GPUs, at least one; or why none can be used.
    fn count(&self) -> anyhow::Result<usize>;
    fn name(&self, index: usize) -> anyhow::Result<String>;
}

/// GPU of each role; `None` is the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleGpus {
    pub data: Option<usize>,
    pub model: Option<usize>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("device `{name}` is not known")]
    Unknown {
        name: String,
        #[source]
        hint: Hint,
    },
    #[error("{rank}{key} asks for GPU {index}, and no GPU can be used")]
    NoneUsable {
        /// Empty, or `rank 2: `.
        rank: String,
        key: &'static str,
        index: usize,
        #[source]
        why: Hint,
    },
    #[error("{rank}{key} asks for GPU {index}; GPUs that are there: {there}")]
    Absent {
        rank: String,
        key: &'static str,
        index: usize,
        there: String,
        #[source]
        hint: Hint,
    },
}

impl Error {
    /// The same, of one of several ranks.
    fn of_rank(mut self, number: usize) -> Self {
        if let Error::NoneUsable { rank, .. } | Error::Absent { rank, .. } = &mut self {
            *rank = format!("rank {number}: ");
        }
        self
    }

    /// Whether a GPU was asked for that is not there.
    pub fn is_no_gpu(&self) -> bool {
        matches!(self, Error::NoneUsable { .. } | Error::Absent { .. })
    }
}

/// Devices that `training` asks for, or an error that lists what is there. Only `auto` chooses by itself.
pub fn choose(training: &Training, gpus: &impl Gpus) -> Result<RoleGpus, Error> {
    let data = training.data_gpu.map(|gpu| present(gpu, "data_gpu", gpus)).transpose()?;
    let model = match &training.model_gpu {
        Some(models) => Some(present(models.first(), "model_gpu", gpus)?),
        None => named(&training.device, gpus)?,
    };
    Ok(RoleGpus { data: data.or(model.filter(|_| training.data_device != DataDevice::Cpu)), model })
}

/// Devices of every rank that this machine is to start: an error names the rank whose card is missing.
pub fn choose_all(training: &Training, gpus: &impl Gpus) -> Result<Vec<RoleGpus>, Error> {
    let models = training.model_gpu.iter().flat_map(|gpus| gpus.iter());
    let of_rank = |(rank, gpu)| {
        let one = Training { model_gpu: Some(GpuList::from(gpu)), ..training.clone() };
        choose(&one, gpus).map_err(|error| error.of_rank(rank))
    };
    match training.local_ranks() {
        1 => Ok(vec![choose(training, gpus)?]),
        _ if training.model_gpu.is_some() => models.enumerate().map(of_rank).collect(),
        ranks => Ok(vec![choose(training, gpus)?; ranks]),
    }
}

/// The GPU of a rank where none is named for it: its number on this machine, unless its launcher shows it one GPU only.
pub fn of_local_rank(local_rank: usize, gpus: &impl Gpus) -> Result<usize, Error> {
    if gpus.count().is_ok_and(|count| count == 1) {
        return Ok(0);
    }
    present(local_rank, "this rank", gpus)
}

/// GPU that `auto`, `cpu`, `cuda` or `cuda:N` means; `None` is the CPU.
pub fn named(device: &str, gpus: &impl Gpus) -> Result<Option<usize>, Error> {
    let index = match device {
        "cpu" => return Ok(None),
        "auto" if gpus.count().is_err() => return Ok(None),
        "auto" | "cuda" => 0,
        name => name.strip_prefix("cuda:").and_then(|digits| digits.parse().ok()).ok_or_else(|| Error::Unknown {
            name: name.to_owned(),
            hint: Hint::new("accepted are auto, cpu, cuda and cuda:N"),
        })?,
    };
    present(index, "device", gpus).map(Some)
}

fn present(index: usize, key: &'static str, gpus: &impl Gpus) -> Result<usize, Error> {
    let count = gpus.count().hint("`--device cpu` trains without one");
    let count = count.map_err(|why| Error::NoneUsable { rank: String::new(), key, index, why })?;
    if index < count {
        return Ok(index);
    }
    let name = |gpu| gpus.name(gpu).map_or_else(|_| gpu.to_string(), |name| format!("{gpu}: {name}"));
    let names: Vec<String> = (0..count).map(name).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Error::Absent { rank: String::new(), key, index, there, hint: Hint::new("`myxtts devices` shows them all") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::error::Explained;
    use std::path::Path;

    struct Cards(usize);

    impl Gpus for Cards {
        fn count(&self) -> anyhow::Result<usize> {
            if self.0 > 0 { Ok(self.0) } else { anyhow::bail!("no NVIDIA driver") }
        }

        fn name(&self, _: usize) -> anyhow::Result<String> {
            Ok("Some GPU".into())
        }
    }

    fn chosen(training: &str, cards: usize) -> Result<(Option<usize>, Option<usize>), String> {
        let config = Config::parse(&format!("training: {{{training}}}"), Path::new("a.yaml")).unwrap();
        let roles = choose(&config.training, &Cards(cards)).map_err(|error| Explained::of(&error).to_string())?;
        Ok((roles.data, roles.model))
    }

    #[test]
    fn only_auto_chooses_by_itself() {
        assert_eq!(chosen("device: auto", 0), Ok((None, None)));
        assert_eq!(chosen("device: auto", 2), Ok((Some(0), Some(0))));
        assert_eq!(chosen("device: cpu", 2), Ok((None, None)));
        assert_eq!(chosen("device: cuda:1", 2), Ok((Some(1), Some(1))));
        assert_eq!(chosen("device: cuda, data_device: cpu", 1), Ok((None, Some(0))));
        assert_eq!(chosen("data_gpu: 1, model_gpu: 0", 2), Ok((Some(1), Some(0))));
        assert_eq!(chosen("model_gpu: 1", 2), Ok((Some(1), Some(1))));
        assert_eq!(chosen("model_gpu: [1, 0], data_device: cpu", 2), Ok((None, Some(1))));
    }

    #[test]
    fn a_rank_without_a_card_is_named() {
        let config = Config::parse("training: {model_gpu: [0, 1, 5]}", Path::new("a.yaml")).unwrap();
        let absent = choose_all(&config.training, &Cards(2)).unwrap_err().to_string();
        assert!(absent.starts_with("rank 2: model_gpu asks for GPU 5"), "{absent}");
        let there = choose_all(&config.training, &Cards(6)).unwrap();
        assert_eq!(there.iter().map(|roles| roles.model).collect::<Vec<_>>(), [Some(0), Some(1), Some(5)]);
    }

    #[test]
    fn a_gpu_that_is_not_there_is_named_with_those_that_are() {
        let none =
            "device asks for GPU 0, and no GPU can be used: no NVIDIA driver\nhint: `--device cpu` trains without one";
        assert_eq!(chosen("device: cuda", 0), Err(none.into()));
        let absent = "model_gpu asks for GPU 2; GPUs that are there: 0: Some GPU, 1: Some GPU\n\
                      hint: `myxtts devices` shows them all";
        assert_eq!(chosen("data_gpu: 1, model_gpu: 2", 2), Err(absent.into()));
        let unknown = Explained::of(&named("gpu", &Cards(1)).unwrap_err()).to_string();
        assert_eq!(unknown, "device `gpu` is not known\nhint: accepted are auto, cpu, cuda and cuda:N");
    }
}
