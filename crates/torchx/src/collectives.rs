//! Several processes that train one network: where they meet ([`Store`]), and what they add up together, over host
//! memory ([`Gloo`]) or between GPUs ([`Nccl`]). A collective is called by all of them in the same order.

use std::ffi::CString;
use std::time::Duration;

use tch::{Device, Tensor};

use crate::cuda;
use crate::error::Error;
use crate::ffi::{
    RawGloo, RawStore, check, raw, torchx_gloo_broadcast, torchx_gloo_join, torchx_gloo_leave, torchx_gloo_sum,
    torchx_store_close, torchx_store_get, torchx_store_open, torchx_store_port, torchx_store_set,
};
use crate::shim::{RawComm, api};

/// c10d's TCPStore: keys and values that one process keeps for all. torchrun serves the same.
pub struct Store(RawStore);

// SAFETY: the C++ object locks itself for every operation.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    /// Keeps a store of its own, at a port that is free where `port` is 0.
    pub fn serve(port: u16, timeout: Duration) -> Result<Store, Error> {
        Store::open("localhost", port, true, timeout)
    }

    /// Connects to a store, which may come up later: tries again until about `timeout`.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Store, Error> {
        // c10d tries twice, with a pause of up to two seconds between.
        Store::open(host, port, false, timeout.mul_f64(0.45))
    }

    fn open(host: &str, port: u16, serves: bool, timeout: Duration) -> Result<Store, Error> {
        let host = text(host)?;
        let mut store = std::ptr::null_mut();
        // SAFETY: a NUL-terminated name and room for one pointer, which goes back through `torchx_store_close`.
        check(unsafe { torchx_store_open(host.as_ptr(), port, serves, milliseconds(timeout), &mut store) })?;
        Ok(Store(store))
    }

    pub fn port(&self) -> u16 {
        // SAFETY: a live store.
        unsafe { torchx_store_port(self.0) }
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        let key = text(key)?;
        // SAFETY: a live store, a NUL-terminated key, and so many bytes, which are copied.
        check(unsafe { torchx_store_set(self.0, key.as_ptr(), value.as_ptr(), value.len()) })
    }

    /// The value of a key, if it is set by now.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let key = text(key)?;
        let (mut bytes, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: a live store, a NUL-terminated key, and room for a pointer and a number.
        check(unsafe { torchx_store_get(self.0, key.as_ptr(), &mut bytes, &mut count) })?;
        if bytes.is_null() {
            return Ok(None);
        }
        // SAFETY: not null, so `count` bytes that malloc gave and nobody else holds.
        Ok(Some(unsafe {
            let value = std::slice::from_raw_parts(bytes, count).to_vec();
            libc::free(bytes.cast());
            value
        }))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: made by `torchx_store_open`, and closed once.
        unsafe { torchx_store_close(self.0) }
    }
}

/// Collectives over host memory.
pub struct Gloo(RawGloo);

// SAFETY: the C++ object queues its work under a lock; not `Sync`, for the order of calls must be the same everywhere.
unsafe impl Send for Gloo {}

impl Gloo {
    /// Meets the others under `prefix` in the store. `address`: one of this machine's that they can reach.
    pub fn join(
        store: &Store,
        prefix: &str,
        (rank, size): (usize, usize),
        address: &str,
        timeout: Duration,
    ) -> Result<Gloo, Error> {
        let (prefix, address) = (text(prefix)?, text(address)?);
        let (rank, size, timeout) = (number(rank)?, number(size)?, milliseconds(timeout));
        let mut gloo = std::ptr::null_mut();
        // SAFETY: a live store, which the new object holds a share of, NUL-terminated names, and room for one pointer.
        check(unsafe { torchx_gloo_join(store.0, prefix.as_ptr(), rank, size, address.as_ptr(), timeout, &mut gloo) })
            .map_err(Error::peer)?;
        Ok(Gloo(gloo))
    }

    /// Becomes the sum of all processes' tensors, in place, added in the order of ranks. On the CPU, in one piece; waits.
    pub fn sum(&self, tensor: &Tensor) -> Result<(), Error> {
        // SAFETY: a live group and a live tensor; c10d checks its device and kind.
        check(unsafe { torchx_gloo_sum(self.0, raw(tensor)) }).map_err(Error::peer)
    }

    /// Becomes what it is in the process of rank 0. On the CPU; waits.
    pub fn broadcast(&self, tensor: &Tensor) -> Result<(), Error> {
        // SAFETY: as above.
        check(unsafe { torchx_gloo_broadcast(self.0, raw(tensor)) }).map_err(Error::peer)
    }
}

impl Drop for Gloo {
    fn drop(&mut self) {
        // SAFETY: made by `torchx_gloo_join`, and left once.
        unsafe { torchx_gloo_leave(self.0) }
    }
}

/// Collectives between GPUs, one for each process. Graphs that hold some must be dropped before it.
pub struct Nccl(RawComm);

// SAFETY: as for `Gloo`.
unsafe impl Send for Nccl {}

/// What makes a group of processes; rank 0 draws it.
pub type NcclId = [u8; 128];

impl Nccl {
    pub fn unique_id() -> Result<NcclId, Error> {
        let mut id = [0; 128];
        // SAFETY: room for the 128 bytes of an id.
        check(unsafe { (api()?.nccl_unique_id)(&mut id) })?;
        Ok(id)
    }

    /// Waits until all have come.
    pub fn join(id: &NcclId, (rank, size): (usize, usize), device: Device) -> Result<Nccl, Error> {
        let (rank, size, device) = (number(rank)?, number(size)?, cuda::index(device)?);
        let mut comm = std::ptr::null_mut();
        // SAFETY: an id, a device that exists, and room for one pointer, which goes back through `nccl_leave`.
        check(unsafe { (api()?.nccl_join)(id, rank, size, device, &mut comm) }).map_err(Error::peer)?;
        Ok(Nccl(comm))
    }

    /// Queues on the current stream, so it can be part of a graph: the sum of all processes' tensors, in place.
    pub fn sum(&self, tensor: &Tensor) -> Result<(), Error> {
        // SAFETY: a live communicator and a live tensor, whose kind and layout are checked.
        check(unsafe { (api()?.nccl_sum)(self.0, raw(tensor)) })
    }

    /// Queues on the current stream: what it is in the process of rank 0.
    pub fn broadcast(&self, tensor: &Tensor) -> Result<(), Error> {
        // SAFETY: as above.
        check(unsafe { (api()?.nccl_broadcast)(self.0, raw(tensor)) })
    }
}

impl Drop for Nccl {
    /// Does not wait for the others, of whom one may be gone.
    fn drop(&mut self) {
        if let Ok(api) = api() {
            // SAFETY: made by `nccl_join`, and left once. Nothing can be done about a failure here.
            let _ = check(unsafe { (api.nccl_leave)(self.0) });
        }
    }
}

fn text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Argument(format!("`{}` holds a NUL", text.escape_default())))
}

fn number(number: usize) -> Result<i32, Error> {
    i32::try_from(number).map_err(|_| Error::Argument(format!("{number} processes")))
}

fn milliseconds(time: Duration) -> i64 {
    time.as_millis().min(i64::MAX as u128) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[test]
    fn a_store_keeps_what_it_is_given() {
        let server = Store::serve(0, TIMEOUT).unwrap();
        let client = Store::connect("127.0.0.1", server.port(), TIMEOUT).unwrap();
        // Nobody answers to what is set: it is there a moment later.
        let soon = |store: &Store, wanted: &[u8]| {
            let began = std::time::Instant::now();
            let mut found = store.get("a").unwrap();
            while found.as_deref() != Some(wanted) && began.elapsed() < TIMEOUT {
                std::thread::sleep(Duration::from_millis(5));
                found = store.get("a").unwrap();
            }
            assert_eq!(found.as_deref(), Some(wanted));
        };
        assert_eq!(client.get("a").unwrap(), None);
        server.set("a", b"1 \0 2").unwrap();
        soon(&client, b"1 \0 2");
        client.set("a", b"").unwrap();
        soon(&server, b"");
    }

    #[test]
    fn a_store_that_nobody_serves_is_an_error_in_time() {
        let port = Store::serve(0, TIMEOUT).unwrap().port();
        let start = std::time::Instant::now();
        assert!(Store::connect("127.0.0.1", port, Duration::from_millis(500)).is_err());
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn three_add_up_and_take_over_from_the_first() {
        let store = Store::serve(0, TIMEOUT).unwrap();
        let port = store.port();
        let rank = move |rank: usize| {
            let store = Store::connect("127.0.0.1", port, TIMEOUT).unwrap();
            let gloo = Gloo::join(&store, "test", (rank, 3), "127.0.0.1", TIMEOUT).unwrap();
            // 1 + 1e8 - 1e8 is 0 in f32 where it is added from the left, and 1 in any other order.
            let tensor = Tensor::from_slice(&[rank as f32, 1.0, [1.0, 1e8, -1e8][rank], 4.0]);
            gloo.sum(&tensor).unwrap();
            let state = Tensor::from_slice(&[rank as f64 + 7.0]);
            gloo.broadcast(&state).unwrap();
            (Vec::<f32>::try_from(tensor).unwrap(), state.double_value(&[0]))
        };
        let threads: Vec<_> = (0..3).map(|number| std::thread::spawn(move || rank(number))).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), (vec![3.0, 3.0, 0.0, 12.0], 7.0));
        }
    }
}
