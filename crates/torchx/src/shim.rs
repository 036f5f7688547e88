//! The CUDA half of the C++: embedded in the program, opened after libtorch_cuda, and called through one table.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::error::{Error, Unavailable};
use crate::ffi::{Message, RawTensor, check};

static SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtorchx_cuda.so"));

/// Mirrors of the C++ structs of the same names.
#[repr(C)]
pub(crate) struct Facts {
    pub name: [c_char; 256],
    pub pci_bus_id: [c_char; 32],
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub major: i32,
    pub minor: i32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StreamId {
    pub id: i64,
    pub device: i32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolId {
    pub first: u64,
    pub second: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    pub device: u32,
    pub stream: u32,
    /// An index into the names; `u32::MAX` for copies and fills.
    pub name: u32,
}

#[repr(C)]
pub(crate) struct Recording {
    pub spans: *const Span,
    pub span_count: usize,
    pub names: *const *const c_char,
    pub name_count: usize,
    pub start_ns: u64,
    pub end_ns: u64,
    pub dropped: u64,
}

/// Objects that live on the C++ side.
pub(crate) type Guard = *mut c_void;
pub(crate) type RawEvent = *mut c_void;
pub(crate) type RawGraph = *mut c_void;
pub(crate) type RawKernel = *mut c_void;
pub(crate) type RawComm = *mut c_void;

pub(crate) type Launch = unsafe extern "C" fn(RawKernel, *const u32, *const u32, u32, *const *const c_void) -> Message;

pub(crate) type Multiply = unsafe extern "C" fn(
    a: *const RawTensor,
    b: *const RawTensor,
    bias: *const RawTensor,
    relu: bool,
    out: *mut RawTensor,
) -> Message;

/// Mirror of the C++ struct `Api`, in the same order.
#[repr(C)]
pub(crate) struct Api {
    init: unsafe extern "C" fn(*mut i32) -> Message,
    pub facts: unsafe extern "C" fn(i32, *mut Facts) -> Message,
    pub can_access_peer: unsafe extern "C" fn(i32, i32, *mut i32) -> Message,
    pub synchronize: unsafe extern "C" fn(i32) -> Message,
    pub stream_from_pool: unsafe extern "C" fn(i32, bool, *mut StreamId) -> Message,
    pub stream_current: unsafe extern "C" fn(i32, *mut StreamId) -> Message,
    pub stream_synchronize: unsafe extern "C" fn(StreamId) -> Message,
    pub stream_query: unsafe extern "C" fn(StreamId, *mut bool) -> Message,
    pub stream_guard: unsafe extern "C" fn(StreamId, *mut Guard) -> Message,
    pub stream_unguard: unsafe extern "C" fn(Guard),
    pub record_stream: unsafe extern "C" fn(*const RawTensor, StreamId) -> Message,
    pub event_new: unsafe extern "C" fn(bool, *mut RawEvent) -> Message,
    pub event_free: unsafe extern "C" fn(RawEvent),
    pub event_record: unsafe extern "C" fn(RawEvent, StreamId) -> Message,
    pub event_wait: unsafe extern "C" fn(RawEvent, StreamId) -> Message,
    pub event_query: unsafe extern "C" fn(RawEvent, *mut bool) -> Message,
    pub event_synchronize: unsafe extern "C" fn(RawEvent) -> Message,
    pub event_elapsed_ms: unsafe extern "C" fn(RawEvent, RawEvent, *mut f32) -> Message,
    pub pool_new: unsafe extern "C" fn(i32, *mut PoolId) -> Message,
    pub pool_free: unsafe extern "C" fn(i32, PoolId) -> Message,
    pub graph_begin: unsafe extern "C" fn(PoolId, *mut RawGraph) -> Message,
    pub graph_end: unsafe extern "C" fn(RawGraph) -> Message,
    pub graph_replay: unsafe extern "C" fn(RawGraph) -> Message,
    pub graph_free: unsafe extern "C" fn(RawGraph) -> Message,
    pub set_memory_fraction: unsafe extern "C" fn(i32, f64) -> Message,
    pub memory_stats: unsafe extern "C" fn(i32, *mut crate::memory::Stats) -> Message,
    pub reset_peak: unsafe extern "C" fn(i32) -> Message,
    pub empty_cache: unsafe extern "C" fn() -> Message,
    pub kernel_compile:
        unsafe extern "C" fn(*const c_char, *const *const c_char, usize, i32, *mut RawKernel) -> Message,
    pub kernel_launch: Launch,
    pub kernel_free: unsafe extern "C" fn(RawKernel),
    pub multiply: Multiply,
    pub activity_start: unsafe extern "C" fn() -> Message,
    pub activity_stop: unsafe extern "C" fn(*mut Recording) -> Message,
    pub activity_clear: unsafe extern "C" fn(),
    pub nccl_unique_id: unsafe extern "C" fn(*mut [u8; 128]) -> Message,
    pub nccl_join: unsafe extern "C" fn(*const [u8; 128], i32, i32, i32, *mut RawComm) -> Message,
    pub nccl_sum: unsafe extern "C" fn(RawComm, *const RawTensor) -> Message,
    pub nccl_broadcast: unsafe extern "C" fn(RawComm, *const RawTensor) -> Message,
    pub nccl_leave: unsafe extern "C" fn(RawComm) -> Message,
}

pub(crate) struct Shim {
    pub api: &'static Api,
    pub device_count: usize,
}

/// The table, opened on the first call; the reason when this machine has no use for it.
pub(crate) fn shim() -> Result<&'static Shim, Error> {
    static SHIM: OnceLock<Result<Shim, Unavailable>> = OnceLock::new();
    SHIM.get_or_init(open).as_ref().map_err(|reason| reason.clone().into())
}

pub(crate) fn api() -> Result<&'static Api, Error> {
    Ok(shim()?.api)
}

fn open() -> Result<Shim, Unavailable> {
    if SHIM.is_empty() {
        return Err(Unavailable::BuiltWithout);
    }
    number_devices_by_bus();
    // The driver goes first: it is small, and without it half a gigabyte of libraries would be read for nothing.
    find_driver()?;
    open_torch_cuda()?;
    let api = open_shim().map_err(Unavailable::Start)?;
    let mut count = 0;
    // SAFETY: `init` writes one i32.
    check(unsafe { (api.init)(&mut count) }).map_err(|e| Unavailable::Start(e.to_string()))?;
    Ok(Shim { api, device_count: count.max(0) as usize })
}

/// Device numbers as `nvidia-smi` and NVML give them, unless the user chose otherwise. CUDA reads this when it starts.
fn number_devices_by_bus() {
    if std::env::var_os("CUDA_DEVICE_ORDER").is_none() {
        // SAFETY: Rust's own readers of the environment share its lock; C code that reads it here is CUDA's, which
        // starts below, after this line.
        unsafe { std::env::set_var("CUDA_DEVICE_ORDER", "PCI_BUS_ID") };
    }
}

fn find_driver() -> Result<(), Unavailable> {
    let driver = dlopen(c"libcuda.so.1", libc::RTLD_LAZY).map_err(Unavailable::NoDriver)?;
    let init = dlsym(driver, c"cuInit").map_err(Unavailable::NoDriver)?;
    // SAFETY: the driver API declares `CUresult cuInit(unsigned int)`.
    let code = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32) -> c_int>(init)(0) };
    match code {
        0 => Ok(()),
        100 => Err(Unavailable::NoGpu("CUDA_ERROR_NO_DEVICE; see nvidia-smi and CUDA_VISIBLE_DEVICES".into())),
        code => Err(Unavailable::NoGpu(format!("cuInit failed with error {code}; see nvidia-smi"))),
    }
}

/// Beside the CPU library first: the two must be of one build.
fn open_torch_cuda() -> Result<(), Unavailable> {
    let flags = libc::RTLD_LAZY | libc::RTLD_GLOBAL;
    let beside = torch_folder().map(|dir| dir.join("libtorch_cuda.so")).filter(|path| path.exists());
    let name = match beside {
        Some(path) => CString::new(path.into_os_string().into_encoded_bytes()).expect("a path from the loader"),
        None => c"libtorch_cuda.so".to_owned(),
    };
    dlopen(&name, flags).map(drop).map_err(Unavailable::NoLibrary)
}

/// Where the loader found libtorch_cpu: it is linked in, so it is there.
fn torch_folder() -> Option<PathBuf> {
    let handle = dlopen(c"libtorch_cpu.so", libc::RTLD_LAZY | libc::RTLD_NOLOAD).ok()?;
    let mut origin = [0 as c_char; libc::PATH_MAX as usize];
    // SAFETY: the handle is open, and for RTLD_DI_ORIGIN the loader writes at most PATH_MAX bytes with their NUL.
    let found = unsafe { libc::dlinfo(handle, libc::RTLD_DI_ORIGIN, origin.as_mut_ptr().cast()) } == 0;
    // SAFETY: the array was zeroed, so it ends in a NUL.
    found.then(|| PathBuf::from(unsafe { CStr::from_ptr(origin.as_ptr()) }.to_string_lossy().into_owned()))
}

fn open_shim() -> Result<&'static Api, String> {
    let handle = match memory_file() {
        Ok(file) => dlopen_path(&format!("/proc/self/fd/{}", file.as_raw_fd())),
        Err(_) => open_from_disk(),
    }?;
    let entry = dlsym(handle, c"torchx_cuda_api")?;
    // SAFETY: cuda.cpp declares `const Api* torchx_cuda_api()`, a static that lives as long as the library: for good.
    Ok(unsafe { &*std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const Api>(entry)() })
}

fn memory_file() -> io::Result<File> {
    // SAFETY: a plain system call on a literal name.
    let fd = unsafe { libc::memfd_create(c"torchx_cuda".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(SHIM)?;
    Ok(file)
}

/// For kernels that refuse memory files: a temporary one, gone again once it is open.
fn open_from_disk() -> Result<*mut c_void, String> {
    let path = std::env::temp_dir().join(format!("torchx_cuda-{}.so", std::process::id()));
    let write = || OpenOptions::new().write(true).create_new(true).open(&path)?.write_all(SHIM);
    write().map_err(|e| format!("{}: {e}", path.display()))?;
    let handle = dlopen_path(&path.to_string_lossy());
    let _ = fs::remove_file(&path);
    handle
}

fn dlopen_path(path: &str) -> Result<*mut c_void, String> {
    let path = CString::new(path).map_err(|e| e.to_string())?;
    dlopen(&path, libc::RTLD_NOW)
}

fn dlopen(name: &CStr, flags: c_int) -> Result<*mut c_void, String> {
    // SAFETY: a NUL-terminated name; the libraries opened here run no constructor that touches Rust.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if handle.is_null() { Err(dlerror()) } else { Ok(handle) }
}

fn dlsym(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: an open handle and a NUL-terminated name.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if symbol.is_null() { Err(dlerror()) } else { Ok(symbol) }
}

fn dlerror() -> String {
    // SAFETY: the loader's message of this thread, valid until its next dl* call.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() { "unknown loader error".into() } else { CStr::from_ptr(message).to_string_lossy().into() }
    }
}
