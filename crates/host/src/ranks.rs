//! Which of several processes that train together this one is, by what its launcher says in the environment.

use crate::error::hinted;
use anyhow::{Context, Result};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// Port of the store where a launcher names none; that of PyTorch.
const USUAL_PORT: u16 = 29500;

/// The place of this process among those that train together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub rank: usize,
    pub size: usize,
    /// Among the ranks on this machine.
    pub local_rank: usize,
    /// Ranks on this machine, where the launcher tells.
    pub local_size: Option<usize>,
    /// Where the store is that all of them meet at.
    pub host: String,
    pub port: u16,
    /// Whether the launcher serves the store; otherwise rank 0 does.
    pub is_served: bool,
    /// How often the launcher has started all of them again.
    pub attempt: u64,
    /// Who started it, for messages.
    pub launcher: &'static str,
}

/// One of several equal parts of some work, each done by another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Counted from 0.
    pub number: usize,
    pub of: usize,
}

impl Part {
    /// Which of so many things are this part's: neighbours.
    pub fn range(&self, things: usize) -> std::ops::Range<usize> {
        things * self.number / self.of..things * (self.number + 1) / self.of
    }

    /// What a user typed: `3/16`, counted from 1, or `auto` for the place in a SLURM array or among the processes of a
    /// launcher.
    pub fn named(text: &str) -> Result<Self> {
        Self::of_text(text, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn of_text(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let hint = "3/16 is the third of sixteen parts; `auto` takes it from a SLURM array, srun, mpirun or torchrun";
        if text == "auto" {
            return Self::of_process(variable)?.ok_or_else(|| hinted("no launcher says which part this is", hint));
        }
        let numbers = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((part, of)) if (1..=of).contains(&part) => Ok(Part { number: part - 1, of }),
            Some((part, of)) => Err(hinted(format!("part {part} of {of}: parts count from 1 to {of}"), hint)),
            None => Err(hinted(format!("`{text}` is no part"), hint)),
        }
    }

    fn of_process(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let number = |name: &str| -> Result<Option<usize>> {
            let parse = |text: String| text.trim().parse().with_context(|| format!("{name} is `{text}`, not a number"));
            variable(name).map(parse).transpose()
        };
        let (id, count) = (number("SLURM_ARRAY_TASK_ID")?, number("SLURM_ARRAY_TASK_COUNT")?);
        if let (Some(id), Some(of)) = (id, count) {
            let (first, step) = (number("SLURM_ARRAY_TASK_MIN")?, number("SLURM_ARRAY_TASK_STEP")?);
            let number = id.saturating_sub(first.unwrap_or(0)) / step.unwrap_or(1).max(1);
            if number >= of {
                let fact = format!("SLURM_ARRAY_TASK_ID is {id}, of an array of {of} that is not evenly spaced");
                return Err(hinted(fact, "name the part: --shard 3/16"));
            }
            return Ok(Some(Part { number, of }));
        }
        Ok(Membership::of(variable)?.map(|me| Part { number: me.rank, of: me.size }))
    }
}

/// Names of the variables that a launcher sets.
struct Variables {
    launcher: &'static str,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static [&'static str],
    local_size: &'static [&'static str],
}

const LAUNCHERS: [Variables; 4] = [
    Variables {
        launcher: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: &["LOCAL_RANK"],
        local_size: &["LOCAL_WORLD_SIZE"],
    },
    Variables {
        launcher: "mpirun",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    // Before PMI, which srun sets too.
    Variables {
        launcher: "srun",
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
    },
    Variables {
        launcher: "mpiexec",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
        local_size: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
    },
];

impl Membership {
    /// What the environment says; `None` where this process trains alone.
    pub fn of_process() -> Result<Option<Membership>> {
        Self::of(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Membership>> {
        // A batch script has the variables of its tasks but is none of them: only what srun starts is a step.
        let in_script = variable("SLURM_JOB_ID").is_some() && variable("SLURM_STEP_ID").is_none();
        let is_set = |names: &&Variables| {
            variable(names.rank).is_some()
                && variable(names.size).is_some()
                && !(names.launcher == "srun" && in_script)
                && !(names.launcher == "mpiexec" && in_script)
        };
        let Some(names) = LAUNCHERS.iter().find(is_set) else { return Ok(None) };
        let number = |name: &str| -> Result<Option<u64>> {
            let parse = |text: String| {
                let wrong = || format!("{name} is `{text}`, not a number; {} sets it", names.launcher);
                text.trim().parse().with_context(wrong)
            };
            variable(name).map(parse).transpose()
        };
        let first = |all: &[&str]| all.iter().find_map(|name| number(name).transpose()).transpose();
        let rank = number(names.rank)?.unwrap_or(0) as usize;
        let size = number(names.size)?.unwrap_or(1) as usize;
        if rank >= size {
            return Err(hinted(format!("{} is {rank} and {} is {size}", names.rank, names.size), "ranks count from 0"));
        }
        let local_size = first(names.local_size)?.map(|size| size as usize);
        let all_here = size == 1 || local_size == Some(size);
        let local_rank = first(names.local_rank)?.map_or(if all_here { rank } else { 0 }, |rank| rank as usize);
        let host = match variable("MASTER_ADDR").or_else(|| first_node(&variable)) {
            Some(host) => host,
            None if all_here => Ipv4Addr::LOCALHOST.to_string(),
            None => {
                let fact = format!("{} started {size} ranks and does not say where rank 0 is", names.launcher);
                return Err(hinted(fact, "set MASTER_ADDR to the name of rank 0's machine, the same for all ranks"));
            }
        };
        let port = match number("MASTER_PORT")? {
            Some(port) => u16::try_from(port).with_context(|| format!("MASTER_PORT is {port}"))?,
            // Two jobs on one machine must not meet.
            None => number("SLURM_JOB_ID")?.map_or(USUAL_PORT, |job| 20_000 + (job % 9_000) as u16),
        };
        Ok(Some(Membership {
            rank,
            size,
            local_rank,
            local_size,
            host,
            port,
            is_served: variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True"),
            attempt: number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0),
            launcher: names.launcher,
        }))
    }

    /// One process that keeps its own store, at a port that is free.
    pub fn alone() -> Membership {
        Membership {
            rank: 0,
            size: 1,
            local_rank: 0,
            local_size: Some(1),
            host: Ipv4Addr::LOCALHOST.to_string(),
            port: 0,
            is_served: false,
            attempt: 0,
            launcher: "this program",
        }
    }

    /// The variables of rank `rank` of `size` on this machine, whose launcher serves the store at `port`.
    pub fn variables(rank: usize, size: usize, port: u16) -> [(&'static str, String); 7] {
        [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", size.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("LOCAL_WORLD_SIZE", size.to_string()),
            ("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string()),
            ("MASTER_PORT", port.to_string()),
            ("TORCHELASTIC_USE_AGENT_STORE", "True".into()),
        ]
    }

    /// The address of this machine that leads to the store's: the others can reach it, where a host name may stand for a
    /// loopback.
    pub fn address(&self) -> Result<IpAddr> {
        let route = || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect((&*self.host, self.port))?; // sends nothing: it only finds the way
            Ok::<_, std::io::Error>(socket.local_addr()?.ip())
        };
        let hint = "MASTER_ADDR names the machine of rank 0";
        let fact = || format!("{}: cannot be reached", self.host);
        crate::error::WithHint::hint(route(), hint).with_context(fact)
    }
}

/// The first machine of a SLURM job: `node[07-09,12],login` is node07.
fn first_node(variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let list = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST"))?;
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (stem, rest) = list.split_at(end);
    let numbers = rest.strip_prefix('[').unwrap_or_default();
    let number = numbers.split([',', '-', ']']).next().unwrap_or_default();
    Some(format!("{stem}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Explained;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Membership>, String> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| v.to_string());
        Membership::of(variable).map_err(|error| Explained::of(error.as_ref()).to_string())
    }

    fn found(variables: &[(&str, &str)]) -> Membership {
        of(variables).unwrap().unwrap()
    }

    #[test]
    fn a_process_by_itself_is_none() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("RANK", "3")]), Ok(None));
        // A batch script that srun did not start.
        let script = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_LOCALID", "0")];
        assert_eq!(of(&script), Ok(None));
    }

    #[test]
    fn parts_are_typed_or_found_and_cover_everything_once() {
        let part = |text: &str, variables: &[(&str, &str)]| {
            let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| v.to_string());
            Part::of_text(text, variable).map_err(|error| Explained::of(error.as_ref()).to_string())
        };
        assert_eq!(part("3/16", &[]), Ok(Part { number: 2, of: 16 }));
        let array = [("SLURM_ARRAY_TASK_ID", "7"), ("SLURM_ARRAY_TASK_COUNT", "4"), ("SLURM_ARRAY_TASK_MIN", "1")];
        let step = [("SLURM_ARRAY_TASK_STEP", "2")];
        assert_eq!(part("auto", &[array.as_slice(), &step].concat()), Ok(Part { number: 3, of: 4 }));
        assert_eq!(
            part("auto", &[("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")]),
            Ok(Part { number: 1, of: 2 })
        );
        let wrong = [
            ("0/4", &[][..], "part 0 of 4: parts count from 1"),
            ("5/4", &[], "part 5 of 4: parts count from 1"),
            ("half", &[], "`half` is no part\nhint: 3/16"),
            ("auto", &[], "no launcher says which part this is\nhint:"),
            ("auto", &array, "SLURM_ARRAY_TASK_ID is 7, of an array of 4"),
        ];
        for (text, variables, said) in wrong {
            let error = part(text, variables).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
        for (things, of) in [(0, 3), (2, 5), (100, 7), (16, 16)] {
            let all: Vec<usize> = (0..of).flat_map(|number| Part { number, of }.range(things)).collect();
            assert!(all.into_iter().eq(0..things), "{things} in {of}");
        }
    }

    #[test]
    fn torchrun_is_understood() {
        let torchrun = found(&[
            ("RANK", "9"),
            ("WORLD_SIZE", "16"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "8"),
            ("MASTER_ADDR", "node1"),
            ("MASTER_PORT", "4321"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
        ]);
        let wanted = Membership {
            rank: 9,
            size: 16,
            local_rank: 1,
            local_size: Some(8),
            host: "node1".into(),
            port: 4321,
            is_served: true,
            attempt: 2,
            launcher: "torchrun",
        };
        assert_eq!(torchrun, wanted);
    }

    #[test]
    fn srun_is_understood() {
        let job = [("SLURM_JOB_ID", "91234"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NODELIST", "gpu[07-09,12],x")];
        let task = [("SLURM_PROCID", "5"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "1"), ("PMI_RANK", "5")];
        let srun = found(&[job.as_slice(), &task].concat());
        assert_eq!((srun.rank, srun.size, srun.local_rank, srun.launcher), (5, 8, 1, "srun"));
        assert_eq!((&*srun.host, srun.port, srun.is_served), ("gpu07", 21_234, false));
        let by_hand = found(&[task.as_slice(), &[("MASTER_ADDR", "a"), ("MASTER_PORT", "5")]].concat());
        assert_eq!((&*by_hand.host, by_hand.port), ("a", 5));
        for (list, first) in [("one", "one"), ("a,b", "a"), ("n[3]", "n3"), ("n[010-12]", "n010")] {
            assert_eq!(first_node(&|_: &str| Some(list.into())).as_deref(), Some(first));
        }
    }

    #[test]
    fn mpirun_is_understood_and_must_say_where_rank_0_is() {
        let all = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")];
        let here = found(&[all.as_slice(), &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")]].concat());
        assert_eq!((here.rank, here.local_rank, &*here.host, here.port), (1, 1, "127.0.0.1", 29500));
        let apart = of(&[all.as_slice(), &[("OMPI_COMM_WORLD_LOCAL_SIZE", "1")]].concat()).unwrap_err();
        assert!(apart.contains("does not say where rank 0 is\nhint: set MASTER_ADDR"), "{apart}");
        let intel = found(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1"), ("MASTER_ADDR", "b")]);
        assert_eq!((intel.local_rank, &*intel.host, intel.launcher), (1, "b", "mpiexec"));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let wrong = of(&[("RANK", "two"), ("WORLD_SIZE", "2")]).unwrap_err();
        assert!(wrong.starts_with("RANK is `two`, not a number; torchrun sets it"), "{wrong}");
        let beyond = of(&[("RANK", "2"), ("WORLD_SIZE", "2")]).unwrap_err();
        assert!(beyond.starts_with("RANK is 2 and WORLD_SIZE is 2"), "{beyond}");
    }

    #[test]
    fn what_the_launcher_sets_is_what_ranks_read() {
        let variables = Membership::variables(1, 3, 4000);
        let read = Membership::of(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone()));
        let read = read.unwrap().unwrap();
        assert_eq!((read.rank, read.size, read.local_rank, read.local_size), (1, 3, 1, Some(3)));
        assert!(read.is_served && read.port == 4000 && read.address().unwrap().is_loopback());
    }
}
