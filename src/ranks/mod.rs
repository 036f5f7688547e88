//! Processes that train one network together, a GPU for each: they meet at a store, agree on what they do, watch each
//! other, and add up their gradients.
//!
//! Whatever ends one of them ends all, in time and with its reason: see [`watch`]. Each speaks of itself by its rank.

mod exchange;
mod files;
mod launch;
mod watch;

pub use exchange::Exchange;
pub use launch::launch;

use anyhow::{Context, Result};
use host::error::{Explained, WithHint, hinted};
use host::machine;
use host::ranks::Membership;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tch::Tensor;
use torchx::collectives::{Gloo, Store};
use watch::Watch;

/// A collective may wait for a rank that is alive and busy, with a checkpoint for example: whether it is alive, the watch
/// knows.
const PATIENCE: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_millis(20);
/// Whoever waits longer says what for.
const SILENCE: Duration = Duration::from_secs(3);

/// This process among those that train together.
pub struct Ranks {
    pub me: Membership,
    store: Store,
    /// Keys of this attempt begin with it: another one finds the store as this one left it.
    prefix: String,
    gloo: Mutex<Gloo>,
    watch: Watch,
    /// By rank: where each one is.
    homes: Vec<Home>,
    /// Exchanges that were begun: each has keys of its own.
    exchanges: AtomicU64,
}

/// Where a rank is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Home {
    version: String,
    machine: String,
    pid: u32,
}

impl Ranks {
    /// Meets the others; an error names those that have not come within `timeout`.
    pub fn join(mut me: Membership, timeout: Duration) -> Result<Ranks> {
        let store = open_store(&me, timeout)?;
        me.port = store.port();
        let prefix = format!("myxtts/{}", me.attempt);
        let home =
            Home { version: env!("CARGO_PKG_VERSION").into(), machine: machine::name(), pid: std::process::id() };
        let homes = meet(&store, &prefix, &me, home, timeout)?;
        let names = homes.iter().enumerate().map(|(rank, home)| home.of(rank)).collect();
        let watch = Watch::start(&me, &prefix, names, timeout)?;
        let address = me.address()?.to_string();
        let place = (me.rank, me.size);
        let gloo = Gloo::join(&store, &format!("{prefix}/gloo"), place, &address, PATIENCE)
            .context("the ranks cannot reach each other")?;
        let ranks = Ranks { me, store, prefix, gloo: Mutex::new(gloo), watch, homes, exchanges: AtomicU64::new(0) };
        let [mine, first] = [ranks.me.rank, 0].map(|rank| &ranks.homes[rank].version);
        if mine != first {
            let error = unlike(format!("version {mine}, and rank 0 has {first}"));
            ranks.fail(&error);
            return Err(error);
        }
        Ok(ranks)
    }

    /// A group of this process alone: what several cost, without the others.
    pub fn alone(timeout: Duration) -> Result<Ranks> {
        Ranks::join(Membership::alone(), timeout)
    }

    /// The one that writes and speaks for all.
    pub fn is_first(&self) -> bool {
        self.me.rank == 0
    }

    /// How messages call a rank.
    pub fn name(&self, rank: usize) -> String {
        self.homes[rank].of(rank)
    }

    /// The machine of each rank.
    pub fn machine_names(&self) -> Vec<&str> {
        self.homes.iter().map(|home| &*home.machine).collect()
    }

    /// Number of machines.
    pub fn machines(&self) -> usize {
        self.machine_names().into_iter().collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Ranks on this machine, this one included, from the lowest.
    pub fn neighbours(&self) -> impl Iterator<Item = usize> {
        let here = &self.homes[self.me.rank].machine;
        (0..self.me.size).filter(move |&rank| self.homes[rank].machine == *here)
    }

    /// Shows the others a value under a name of this rank's own; the last one counts.
    pub fn show<T: Serialize>(&self, name: &str, value: &T) -> Result<()> {
        Ok(self.store.set(&self.key(name, self.me.rank), &serde_json::to_vec(value)?)?)
    }

    /// What a rank shows by now.
    pub fn shown<T: DeserializeOwned>(&self, name: &str, rank: usize) -> Result<Option<T>> {
        let value = self.store.get(&self.key(name, rank))?;
        Ok(value.map(|value| serde_json::from_slice(&value)).transpose()?)
    }

    /// Waits until a rank shows something under this name. How long that takes is the rank's affair: that it is alive, the
    /// watch knows. Who speaks for all says every so often whom it waits for.
    pub fn wait_for<T: DeserializeOwned>(&self, name: &str, rank: usize) -> Result<T> {
        let (start, mut told) = (Instant::now(), SILENCE);
        loop {
            if let Some(value) = self.shown(name, rank)? {
                return Ok(value);
            }
            if start.elapsed() > told {
                told *= 2;
                cli::say(format!("waiting for {}, {:.0} s", self.name(rank), start.elapsed().as_secs_f64()));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until all have come here.
    pub fn meet(&self, name: &str) -> Result<()> {
        self.show(name, &true)?;
        (0..self.me.size).try_for_each(|rank| self.wait_for::<bool>(name, rank).map(drop))
    }

    /// What rank 0 has; the others wait for it.
    pub fn of_first<T: Serialize + DeserializeOwned>(&self, name: &str, value: &T) -> Result<T> {
        if self.is_first() {
            self.show(name, value)?;
        }
        self.wait_for(name, 0)
    }

    /// An error where this rank's value is not that of rank 0; `differs` makes the sentence of rank 0's.
    pub fn same<T>(&self, name: &str, mine: &T, differs: impl FnOnce(&T) -> String) -> Result<()>
    where
        T: Serialize + DeserializeOwned + PartialEq,
    {
        let first = self.of_first(name, mine)?;
        if first == *mine {
            return Ok(());
        }
        Err(unlike(differs(&first)))
    }

    /// The sum over all ranks, in place; on the CPU.
    pub fn sum(&self, tensor: &Tensor) -> Result<()> {
        Ok(self.gloo().sum(tensor)?)
    }

    /// Becomes what rank 0 has, in place; on the CPU.
    pub fn broadcast(&self, tensor: &Tensor) -> Result<()> {
        Ok(self.gloo().broadcast(tensor)?)
    }

    /// Bytes that rank 0 has, for all.
    pub fn broadcast_bytes(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let length = Tensor::from_slice(&[bytes.len() as i64]);
        self.broadcast(&length)?;
        let data = match self.is_first() {
            true => Tensor::from_slice(bytes),
            false => Tensor::zeros([length.int64_value(&[0])], (tch::Kind::Uint8, tch::Device::Cpu)),
        };
        self.broadcast(&data)?;
        Ok(Vec::try_from(data)?)
    }

    /// Tells the others why this one ends, so that they end with that reason. Where it ends because another one has gone,
    /// the watch finds out which, and this process ends with that.
    pub fn fail(&self, error: &anyhow::Error) {
        let is_gone =
            |cause: &(dyn std::error::Error + 'static)| matches!(cause.downcast_ref(), Some(torchx::Error::Peer(_)));
        if error.chain().any(is_gone) {
            self.watch.find_gone();
        }
        self.watch.fail(&Explained::of(error.as_ref()).to_string());
    }

    /// The end of a run that went well: the one that keeps the store stays until all have got here.
    pub fn leave(&self) -> Result<()> {
        self.watch.done();
        if self.is_first() && !self.me.is_served {
            self.meet("end")?;
        } else {
            self.show("end", &true)?;
        }
        self.watch.stop();
        Ok(())
    }

    fn gloo(&self) -> std::sync::MutexGuard<'_, Gloo> {
        self.gloo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, name: &str, rank: usize) -> String {
        format!("{}/{name}/{rank}", self.prefix)
    }
}

impl Home {
    fn of(&self, rank: usize) -> String {
        format!("rank {rank} ({}, process {})", self.machine, self.pid)
    }
}

fn unlike(fact: String) -> anyhow::Error {
    hinted(fact, "all ranks need the same program, settings and corpus")
}

fn open_store(me: &Membership, timeout: Duration) -> Result<Store> {
    let Membership { host, port, .. } = me;
    if me.rank == 0 && !me.is_served {
        return Store::serve(*port, timeout)
            .hint("another program may hold it: MASTER_PORT names another one, the same for all ranks")
            .with_context(|| format!("port {port} cannot be opened for the other ranks"));
    }
    Store::connect(host, *port, timeout)
        .hint("is rank 0 up, and can its machine be reached? --rank-timeout gives it longer")
        .with_context(|| format!("{host}, port {port}: nobody answered within {:.0} s", timeout.as_secs_f64()))
}

/// Waits until all ranks have come, and says where they are.
fn meet(store: &Store, prefix: &str, me: &Membership, home: Home, timeout: Duration) -> Result<Vec<Home>> {
    let key = |rank: usize| format!("{prefix}/home/{rank}");
    store.set(&key(me.rank), &serde_json::to_vec(&home)?)?;
    let mut homes: Vec<Option<Home>> = vec![None; me.size];
    let mut told = None;
    let start = Instant::now();
    loop {
        for (rank, home) in homes.iter_mut().enumerate().filter(|(_, home)| home.is_none()) {
            *home = store.get(&key(rank))?.map(|home| serde_json::from_slice(&home)).transpose()?;
        }
        let missing: Vec<String> = (0..me.size).filter(|&rank| homes[rank].is_none()).map(|r| r.to_string()).collect();
        if missing.is_empty() {
            return Ok(homes.into_iter().flatten().collect());
        }
        if start.elapsed() > timeout {
            let ranks = if missing.len() == 1 { "rank" } else { "ranks" };
            let fact = format!(
                "{ranks} {} of {} did not come within {:.0} s",
                missing.join(", "),
                me.size,
                timeout.as_secs_f64()
            );
            return Err(hinted(fact, "see what they say where they were started; --rank-timeout gives them longer"));
        }
        if me.rank == 0 && start.elapsed() > SILENCE && told.as_ref() != Some(&missing) {
            cli::say(format!("waiting for ranks {} of {}", missing.join(", "), me.size));
            told = Some(missing);
        }
        std::thread::sleep(POLL);
    }
}
