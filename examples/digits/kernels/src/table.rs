//! The kernels as the host backend loads them. Grid and block are ignored: a launch does all the work.

use crate::math;
use core::slice::{from_raw_parts, from_raw_parts_mut};

rejoin_host_stream::kernels! {
    /// `dst[i] = value`.
    ///
    /// # Safety
    /// `dst` has `n` floats.
    unsafe fn fill(_launch, dst: *mut f32, n: u64, value: f32) {
        // SAFETY: as promised above.
        unsafe { from_raw_parts_mut(dst, n as usize) }.fill(value);
    }

    /// Uniform in [-limit, limit), from the seed and the position alone.
    ///
    /// # Safety
    /// `dst` has `n` floats.
    unsafe fn uniform(_launch, dst: *mut f32, n: u64, seed: u64, limit: f32) {
        // SAFETY: as promised above.
        math::uniform(unsafe { from_raw_parts_mut(dst, n as usize) }, seed, limit);
    }

    /// `x[i] *= factor`.
    ///
    /// # Safety
    /// `x` has `n` floats.
    unsafe fn scale(_launch, x: *mut f32, n: u64, factor: f32) {
        // SAFETY: as promised above.
        unsafe { from_raw_parts_mut(x, n as usize) }.iter_mut().for_each(|x| *x *= factor);
    }

    /// `y[i] += factor * x[i]`.
    ///
    /// # Safety
    /// `x` and `y` have `n` floats each.
    unsafe fn add_scaled(_launch, y: *mut f32, x: *const f32, n: u64, factor: f32) {
        // SAFETY: as promised above.
        let y = unsafe { from_raw_parts_mut(y, n as usize) };
        // SAFETY: as promised above.
        let x = unsafe { from_raw_parts(x, n as usize) };
        y.iter_mut().zip(x).for_each(|(y, x)| *y += factor * x);
    }

    /// Copies rows of 32-bit elements in the order of `index` (`rows` entries); `src` has `src_rows`.
    ///
    /// # Safety
    /// `src` has `src_rows * row` elements, `index` has `rows`, `dst` has `rows * row`.
    unsafe fn gather_rows(_launch, src: *const u32, index: *const u32, dst: *mut u32, src_rows: u32, rows: u32, row: u32) {
        let row = row as usize;
        // SAFETY: as promised above.
        let src = unsafe { from_raw_parts(src, src_rows as usize * row) };
        // SAFETY: as promised above.
        let index = unsafe { from_raw_parts(index, rows as usize) };
        // SAFETY: as promised above.
        let dst = unsafe { from_raw_parts_mut(dst, rows as usize * row) };
        math::gather_rows(src, index, dst, row);
    }

    /// `y = x·w + b`, for x `[batch][inputs]`, w `[inputs][outputs]`, y `[batch][outputs]`.
    ///
    /// # Safety
    /// The buffers have these sizes.
    unsafe fn dense_forward(_launch, x: *const f32, w: *const f32, b: *const f32, y: *mut f32, batch: u32, inputs: u32, outputs: u32) {
        let (batch, inputs, outputs) = (batch as usize, inputs as usize, outputs as usize);
        // SAFETY: as promised above.
        let x = unsafe { from_raw_parts(x, batch * inputs) };
        // SAFETY: as promised above.
        let w = unsafe { from_raw_parts(w, inputs * outputs) };
        // SAFETY: as promised above.
        let b = unsafe { from_raw_parts(b, outputs) };
        // SAFETY: as promised above.
        let y = unsafe { from_raw_parts_mut(y, batch * outputs) };
        math::dense_forward(x, w, b, y);
    }

    /// `grad_w = xᵀ·grad_y` and `grad_b = Σ grad_y`; added to what is there when `accumulate` is not 0.
    ///
    /// # Safety
    /// The buffers have the sizes of [`dense_forward`]'s.
    unsafe fn dense_backward_weights(
        _launch, x: *const f32, grad_y: *const f32, grad_w: *mut f32, grad_b: *mut f32, batch: u32, inputs: u32, outputs: u32,
        accumulate: u32,
    ) {
        let (batch, inputs, outputs) = (batch as usize, inputs as usize, outputs as usize);
        // SAFETY: as promised above.
        let x = unsafe { from_raw_parts(x, batch * inputs) };
        // SAFETY: as promised above.
        let grad_y = unsafe { from_raw_parts(grad_y, batch * outputs) };
        // SAFETY: as promised above.
        let grad_w = unsafe { from_raw_parts_mut(grad_w, inputs * outputs) };
        // SAFETY: as promised above.
        let grad_b = unsafe { from_raw_parts_mut(grad_b, outputs) };
        math::dense_backward_weights(x, grad_y, grad_w, grad_b, accumulate != 0);
    }

    /// `grad_x = grad_y·wᵀ`.
    ///
    /// # Safety
    /// The buffers have the sizes of [`dense_forward`]'s.
    unsafe fn dense_backward_input(_launch, grad_y: *const f32, w: *const f32, grad_x: *mut f32, batch: u32, inputs: u32, outputs: u32) {
        let (batch, inputs, outputs) = (batch as usize, inputs as usize, outputs as usize);
        // SAFETY: as promised above.
        let grad_y = unsafe { from_raw_parts(grad_y, batch * outputs) };
        // SAFETY: as promised above.
        let w = unsafe { from_raw_parts(w, inputs * outputs) };
        // SAFETY: as promised above.
        let grad_x = unsafe { from_raw_parts_mut(grad_x, batch * inputs) };
        math::dense_backward_input(grad_y, w, grad_x, outputs);
    }

    /// Negative values become 0, in place.
    ///
    /// # Safety
    /// `x` has `n` floats.
    unsafe fn relu(_launch, x: *mut f32, n: u64) {
        // SAFETY: as promised above.
        math::relu(unsafe { from_raw_parts_mut(x, n as usize) });
    }

    /// The gradient before a relu, in place, from the values `y` after it.
    ///
    /// # Safety
    /// `y` and `grad` have `n` floats each.
    unsafe fn relu_backward(_launch, y: *const f32, grad: *mut f32, n: u64) {
        // SAFETY: as promised above.
        let y = unsafe { from_raw_parts(y, n as usize) };
        // SAFETY: as promised above.
        let grad = unsafe { from_raw_parts_mut(grad, n as usize) };
        math::relu_backward(y, grad);
    }

    /// `loss[0]` = sum over the batch of the cross entropy, `grad` its gradient, both times `scale`
    /// (1 / size of the whole batch over all ranks).
    ///
    /// # Safety
    /// `logits` and `grad` have `batch * classes` floats, `labels` has `batch` integers, `loss` one float.
    unsafe fn softmax_cross_entropy(
        _launch, logits: *const f32, labels: *const i32, grad: *mut f32, loss: *mut f32, batch: u32, classes: u32, scale: f32,
    ) {
        let (batch, values) = (batch as usize, batch as usize * classes as usize);
        // SAFETY: as promised above.
        let logits = unsafe { from_raw_parts(logits, values) };
        // SAFETY: as promised above.
        let labels = unsafe { from_raw_parts(labels, batch) };
        // SAFETY: as promised above.
        let grad = unsafe { from_raw_parts_mut(grad, values) };
        // SAFETY: as promised above.
        unsafe { *loss = math::softmax_cross_entropy(logits, labels, grad, scale) };
    }

    /// `correct[0]` = number of rows whose highest logit is at the label.
    ///
    /// # Safety
    /// `logits` has `batch * classes` floats, `labels` has `batch` integers, `correct` one.
    unsafe fn count_correct(_launch, logits: *const f32, labels: *const i32, correct: *mut u32, batch: u32, classes: u32) {
        // SAFETY: as promised above.
        let logits = unsafe { from_raw_parts(logits, batch as usize * classes as usize) };
        // SAFETY: as promised above.
        let labels = unsafe { from_raw_parts(labels, batch as usize) };
        // SAFETY: as promised above.
        unsafe { *correct = math::count_correct(logits, labels) };
    }

    /// `velocity = momentum·velocity + grad; parameter -= rate·velocity`.
    ///
    /// # Safety
    /// The three buffers have `n` floats each.
    unsafe fn sgd_momentum(_launch, parameter: *mut f32, velocity: *mut f32, grad: *const f32, n: u64, rate: f32, momentum: f32) {
        // SAFETY: as promised above.
        let parameter = unsafe { from_raw_parts_mut(parameter, n as usize) };
        // SAFETY: as promised above.
        let velocity = unsafe { from_raw_parts_mut(velocity, n as usize) };
        // SAFETY: as promised above.
        let grad = unsafe { from_raw_parts(grad, n as usize) };
        math::sgd_momentum(parameter, velocity, grad, rate, momentum);
    }
}
