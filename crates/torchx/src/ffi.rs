//! The C functions of `cpp/`, and how their messages become errors.

use std::ffi::{CStr, c_char, c_void};
use std::marker::{PhantomData, PhantomPinned};

use tch::Tensor;

use crate::error::Error;
use crate::fused::{PlaneLayer, Program};

/// Null when the call went well, else LibTorch's message, malloc'ed.
pub(crate) type Message = *mut c_char;

/// An `at::Tensor` on the C++ side.
#[repr(C)]
pub(crate) struct RawTensor {
    _data: [u8; 0],
    _not_send: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Objects that live on the C++ side.
pub(crate) type RawStore = *mut c_void;
pub(crate) type RawGloo = *mut c_void;

unsafe extern "C" {
    pub(crate) fn torchx_copy_async(dst: *const RawTensor, src: *const RawTensor) -> Message;
    pub(crate) fn torchx_pin(source: *const RawTensor, pinned: *mut *mut RawTensor) -> Message;
    pub(crate) fn torchx_zero_grad(params: *const *const RawTensor, count: usize) -> Message;
    pub(crate) fn torchx_backward(
        losses: *const *const RawTensor,
        loss_count: usize,
        weight: *const RawTensor,
        params: *const *const RawTensor,
        count: usize,
        keep_graph: bool,
    ) -> Message;
    pub(crate) fn torchx_drop_grad(params: *const *const RawTensor, count: usize) -> Message;
    pub(crate) fn torchx_narrow(
        params: *const *const RawTensor,
        count: usize,
        like: *const RawTensor,
        copies: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_scale_grad(params: *const *const RawTensor, count: usize, factor: *const RawTensor)
    -> Message;
    pub(crate) fn torchx_lerp(
        values: *const *const RawTensor,
        towards: *const *const RawTensor,
        count: usize,
        weight: f64,
    ) -> Message;
    pub(crate) fn torchx_set_deterministic(on: bool) -> Message;
    pub(crate) fn torchx_is_deterministic() -> bool;
    pub(crate) fn torchx_set_tf32(on: bool) -> Message;
    pub(crate) fn torchx_set_tf32_products(on: bool) -> Message;
    pub(crate) fn torchx_clip_grad_norm(
        params: *const *const RawTensor,
        count: usize,
        max_norm: f64,
        norm: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_adamw(
        params: *const *const RawTensor,
        exp_avgs: *const *const RawTensor,
        exp_avg_sqs: *const *const RawTensor,
        count: usize,
        step: *const RawTensor,
        lr: *const RawTensor,
        beta1: f64,
        beta2: f64,
        weight_decay: f64,
        eps: f64,
        found_inf: *const RawTensor,
    ) -> Message;
    pub(crate) fn torchx_flash_attention(
        q: *const RawTensor,
        k: *const RawTensor,
        v: *const RawTensor,
        cu_seqlens: *const RawTensor,
        max_len: i64,
        scale: *const f64,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_efficient_attention(
        q: *const RawTensor,
        k: *const RawTensor,
        v: *const RawTensor,
        cu_seqlens: *const RawTensor,
        max_len: i64,
        scale: *const f64,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_store_open(
        host: *const c_char,
        port: u16,
        serves: bool,
        timeout_ms: i64,
        store: *mut RawStore,
    ) -> Message;
    pub(crate) fn torchx_store_close(store: RawStore);
    pub(crate) fn torchx_store_port(store: RawStore) -> u16;
    pub(crate) fn torchx_store_set(store: RawStore, key: *const c_char, bytes: *const u8, count: usize) -> Message;
    pub(crate) fn torchx_store_get(
        store: RawStore,
        key: *const c_char,
        bytes: *mut *mut u8,
        count: *mut usize,
    ) -> Message;
    pub(crate) fn torchx_gloo_join(
        store: RawStore,
        prefix: *const c_char,
        rank: i32,
        size: i32,
        address: *const c_char,
        timeout_ms: i64,
        gloo: *mut RawGloo,
    ) -> Message;
    pub(crate) fn torchx_gloo_leave(gloo: RawGloo);
    pub(crate) fn torchx_gloo_sum(gloo: RawGloo, tensor: *const RawTensor) -> Message;
    pub(crate) fn torchx_gloo_broadcast(gloo: RawGloo, tensor: *const RawTensor) -> Message;
    pub(crate) fn torchx_grad_len(params: *const *const RawTensor, count: usize) -> i64;
    pub(crate) fn torchx_gather_grad(params: *const *const RawTensor, count: usize, flat: *const RawTensor) -> Message;
    pub(crate) fn torchx_scatter_grad(
        params: *const *const RawTensor,
        count: usize,
        flat: *const RawTensor,
        adopt: bool,
    ) -> Message;
    pub(crate) fn torchx_adaln(
        program: *const Program,
        x: *const RawTensor,
        table: *const RawTensor,
        spans: RawSpans,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_gated_add(
        program: *const Program,
        x: *const RawTensor,
        y: *const RawTensor,
        gate: *const RawTensor,
        spans: RawSpans,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_depthwise(
        program: *const Program,
        x: *const RawTensor,
        weight: *const RawTensor,
        bias: *const RawTensor,
        spans: RawSpans,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_rotary(
        program: *const Program,
        qkv: *const RawTensor,
        cos: *const RawTensor,
        sin: *const RawTensor,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_bias_gelu(
        program: *const Program,
        x: *const RawTensor,
        bias: *const RawTensor,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_bias_leaky(
        program: *const Program,
        x: *const RawTensor,
        bias: *const RawTensor,
        target: *const RawTensor,
        slope: f64,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_conv_leaky(
        layer: *const PlaneLayer,
        x: *const RawTensor,
        weight: *const RawTensor,
        bias: *const RawTensor,
        target: *const RawTensor,
        slope: f64,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_operate(
        operation: RawOperation,
        inputs: *const *const RawTensor,
        count: usize,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_linear(
        program: *const Program,
        x: *const RawTensor,
        weight: *const RawTensor,
        bias: *const RawTensor,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_infill(
        program: *const Program,
        frames: *const *const RawTensor,
        content: *const RawTensor,
        layers: *const *const RawTensor,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_attention(
        program: *const Program,
        rotary: *const Program,
        qkv: *const RawTensor,
        cos: *const RawTensor,
        sin: *const RawTensor,
        spans: RawSpans,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_norm(
        program: *const Program,
        x: *const RawTensor,
        weight: *const RawTensor,
        bias: *const RawTensor,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_residual(
        program: *const Program,
        x: *const RawTensor,
        y: *const RawTensor,
        dropout: RawDropout,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_feed_forward(
        programs: Programs,
        x: *const RawTensor,
        weights: *const *const RawTensor,
        laid: *const *const RawTensor,
        spans: RawSpans,
        dropout: RawDropout,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_lay_weights(
        program: *const Program,
        weights: *const *const RawTensor,
        apart: *const bool,
        count: usize,
        like: *const RawTensor,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_conv_norm(
        programs: Programs,
        x: *const RawTensor,
        weights: *const *const RawTensor,
        laid: *const RawTensor,
        residual: bool,
        spans: RawSpans,
        dropout: RawDropout,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_refresh(
        copies: *const *const RawTensor,
        params: *const *const RawTensor,
        count: usize,
    ) -> Message;
    pub(crate) fn torchx_adopt_grad(
        params: *const *const RawTensor,
        copies: *const *const RawTensor,
        count: usize,
    ) -> Message;
    pub(crate) fn torchx_split(
        table: *const RawTensor,
        widths: *const i64,
        count: usize,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_aside(allowed: bool);
    pub(crate) fn torchx_join_aside() -> Message;
    pub(crate) fn torchx_versions(tensors: *const *const RawTensor, count: usize) -> i64;
    pub(crate) fn torchx_lay(
        program: *const Program,
        table: *const RawTensor,
        token_of_frame: *const RawTensor,
        mels: i64,
        text_owner: *const RawTensor,
        frames: RawSpans,
        outputs: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_embed(
        program: *const Program,
        table: *const RawTensor,
        index: *const RawTensor,
        scale: f64,
        bf16: bool,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_square_loss(
        program: *const Program,
        guess: *const RawTensor,
        target: *const RawTensor,
        mask: *const RawTensor,
        except: *const RawTensor,
        factor: f64,
        output: *mut *mut RawTensor,
    ) -> Message;
    pub(crate) fn torchx_count_loss(
        program: *const Program,
        predicted: *const RawTensor,
        counts: *const RawTensor,
        mask: *const RawTensor,
        output: *mut *mut RawTensor,
    ) -> Message;
}

/// Mirror of the C++ struct `Operation`.
#[repr(C)]
pub(crate) struct RawOperation {
    pub forward: unsafe extern "C" fn(*const *const RawTensor, usize, *mut *mut RawTensor) -> Message,
    pub backward: unsafe extern "C" fn(
        *const *const RawTensor,
        usize,
        *const *const RawTensor,
        *const bool,
        *mut *mut RawTensor,
    ) -> Message,
    pub outputs: usize,
}

/// Mirror of the C++ struct `Spans`.
#[repr(C)]
pub(crate) struct RawSpans {
    pub owner: *const RawTensor,
    pub starts: *const RawTensor,
    pub lens: *const RawTensor,
}

/// Mirror of the C++ struct `Dropout`. `seed`: null where nothing is dropped.
#[repr(C)]
pub(crate) struct RawDropout {
    pub seed: *const RawTensor,
    pub layer: i32,
    pub threshold: i32,
    pub scale: f32,
}

/// Mirror of the C++ struct of the same name: what convolutions are made of.
#[repr(C)]
pub(crate) struct Programs {
    pub norm: *const Program,
    pub fold: *const Program,
    pub product: *const Program,
}

pub(crate) fn raw(tensor: &Tensor) -> *const RawTensor {
    tensor.as_ptr().cast()
}

pub(crate) fn raws<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<*const RawTensor> {
    tensors.into_iter().map(raw).collect()
}

/// Takes ownership of a message that one of our C functions returned.
pub(crate) fn check(message: Message) -> Result<(), Error> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: not null, so a NUL-terminated string from strdup, which nobody else holds.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        libc::free(message.cast());
        text
    };
    Err(Error::torch(&text))
}

/// Runs a call that makes a tensor.
pub(crate) fn make(call: impl FnOnce(*mut *mut RawTensor) -> Message) -> Result<Tensor, Error> {
    let [tensor] = make_all(call)?;
    Ok(tensor)
}

/// Runs a call that makes as many.
pub(crate) fn make_list(count: usize, call: impl FnOnce(*mut *mut RawTensor) -> Message) -> Result<Vec<Tensor>, Error> {
    let mut outputs = vec![std::ptr::null_mut(); count];
    check(call(outputs.as_mut_ptr()))?;
    // SAFETY: the call went well, so each is a new `at::Tensor`, now owned by the `Tensor`.
    Ok(outputs.into_iter().map(|output| unsafe { Tensor::from_ptr(output.cast()) }).collect())
}

/// Runs a call that makes several: it writes as many as it has room for.
pub(crate) fn make_all<const N: usize>(
    call: impl FnOnce(*mut *mut RawTensor) -> Message,
) -> Result<[Tensor; N], Error> {
    Ok(make_list(N, call)?.try_into().expect("as many as there was room for"))
}
