//! The kernels of the network as functions of a session: what each computes stands in `kernels/src/table.rs`.

use journal_core::Error;
use journal_core::backend::{DevicePtr, LaunchShape};
use journal_core::handle::VirtualHandle;
use journal_core::session::Session;

/// Functions of the loaded module, all on one stream.
pub struct Kernels {
    session: Session,
    stream: VirtualHandle,
    gather_rows: VirtualHandle,
    dense_forward: VirtualHandle,
    dense_backward_weights: VirtualHandle,
    dense_backward_input: VirtualHandle,
    relu: VirtualHandle,
    relu_backward: VirtualHandle,
    softmax_cross_entropy: VirtualHandle,
    sgd_momentum: VirtualHandle,
}

/// A dense layer's shape.
#[derive(Debug, Clone, Copy)]
pub struct Dense {
    /// Samples.
    pub batch: u32,
    /// Columns in.
    pub inputs: u32,
    /// Columns out.
    pub outputs: u32,
}

/// Parameters of a launch, packed one after the other.
#[derive(Default)]
struct Parameters(Vec<u8>);

impl Parameters {
    fn pointers(mut self, pointers: &[DevicePtr]) -> Self {
        pointers.iter().for_each(|pointer| self.0.extend(pointer.0.to_ne_bytes()));
        self
    }

    fn count(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn integers(mut self, values: &[u32]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    fn floats(mut self, values: &[f32]) -> Self {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    fn dense(self, shape: Dense) -> Self {
        self.integers(&[shape.batch, shape.inputs, shape.outputs])
    }
}

impl Kernels {
    /// Loads a module image and finds its functions.
    pub fn load(session: &Session, image: &[u8], stream: VirtualHandle) -> Result<Self, Error> {
        let module = session.module_load(image)?;
        let function = |name| session.module_function(module, name);
        Ok(Self {
            session: session.clone(),
            stream,
            gather_rows: function("gather_rows")?,
            dense_forward: function("dense_forward")?,
            dense_backward_weights: function("dense_backward_weights")?,
            dense_backward_input: function("dense_backward_input")?,
            relu: function("relu")?,
            relu_backward: function("relu_backward")?,
            softmax_cross_entropy: function("softmax_cross_entropy")?,
            sgd_momentum: function("sgd_momentum")?,
        })
    }

    /// One block per 256 elements: what a GPU wants; the host backend does all the work of a launch at once.
    fn launch(&self, function: VirtualHandle, elements: u32, parameters: Parameters) -> Result<(), Error> {
        let shape = LaunchShape { grid: [elements.div_ceil(256).max(1), 1, 1], block: [256, 1, 1], shared_bytes: 0 };
        self.session.launch(function, shape, self.stream, &parameters.0)
    }

    /// `dst` = the rows of `src` (which has `of` rows of `row` elements) that `index` names.
    pub fn gather_rows(&self, src: DevicePtr, of: u32, index: DevicePtr, rows: u32, dst: DevicePtr, row: u32) -> Result<(), Error> {
        let parameters = Parameters::default().pointers(&[src, index, dst]).integers(&[of, rows, row]);
        self.launch(self.gather_rows, rows * row, parameters)
    }

    /// `y = x·w + b`.
    pub fn dense_forward(&self, x: DevicePtr, w: DevicePtr, b: DevicePtr, y: DevicePtr, shape: Dense) -> Result<(), Error> {
        self.launch(self.dense_forward, shape.batch * shape.outputs, Parameters::default().pointers(&[x, w, b, y]).dense(shape))
    }

    /// Gradients of weights and biases, over what was there.
    pub fn dense_backward_weights(
        &self,
        x: DevicePtr,
        grad_y: DevicePtr,
        grad_w: DevicePtr,
        grad_b: DevicePtr,
        shape: Dense,
    ) -> Result<(), Error> {
        let parameters = Parameters::default().pointers(&[x, grad_y, grad_w, grad_b]).dense(shape).integers(&[0]);
        self.launch(self.dense_backward_weights, shape.inputs * shape.outputs, parameters)
    }

    /// Gradient of a layer's input.
    pub fn dense_backward_input(&self, grad_y: DevicePtr, w: DevicePtr, grad_x: DevicePtr, shape: Dense) -> Result<(), Error> {
        let parameters = Parameters::default().pointers(&[grad_y, w, grad_x]).dense(shape);
        self.launch(self.dense_backward_input, shape.batch * shape.inputs, parameters)
    }

    /// Negative values become 0.
    pub fn relu(&self, x: DevicePtr, n: u32) -> Result<(), Error> {
        self.launch(self.relu, n, Parameters::default().pointers(&[x]).count(n.into()))
    }

    /// The gradient before a relu, in place.
    pub fn relu_backward(&self, y: DevicePtr, grad: DevicePtr, n: u32) -> Result<(), Error> {
        self.launch(self.relu_backward, n, Parameters::default().pointers(&[y, grad]).count(n.into()))
    }

    /// Loss and gradient of the logits, both times `scale`.
    pub fn softmax_cross_entropy(
        &self,
        logits: DevicePtr,
        labels: DevicePtr,
        grad: DevicePtr,
        loss: DevicePtr,
        (batch, classes): (u32, u32),
        scale: f32,
    ) -> Result<(), Error> {
        let parameters = Parameters::default().pointers(&[logits, labels, grad, loss]);
        self.launch(self.softmax_cross_entropy, batch, parameters.integers(&[batch, classes]).floats(&[scale]))
    }

    /// One optimizer step.
    pub fn sgd_momentum(
        &self,
        parameter: DevicePtr,
        velocity: DevicePtr,
        grad: DevicePtr,
        n: u32,
        (rate, momentum): (f32, f32),
    ) -> Result<(), Error> {
        let parameters = Parameters::default().pointers(&[parameter, velocity, grad]).count(n.into());
        self.launch(self.sgd_momentum, n, parameters.floats(&[rate, momentum]))
    }
}
