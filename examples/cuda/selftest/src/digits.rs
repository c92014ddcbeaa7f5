//! The kernels of the digits classifier, on the GPU beside the host's.

use crate::gpu::{DEFAULT, bytes_of, download, finish, floats_of, upload};
use crate::table::{Checked, Verdict, fine};
use anyhow::{Context, ensure};
use digits_kernels::math;
use journal_core::backend::cuda::CudaDevice;
use journal_core::backend::{Device, DevicePtr, LaunchShape, RealHandle};

const BATCH: usize = 64;
const IN: usize = 33;
const OUT: usize = 10;
/// Results must not depend on it.
const SHAPES: [(u32, u32); 4] = [(1, 1), (3, 64), (40, 256), (2, 1000)];

struct Module<'a> {
    device: &'a CudaDevice,
    module: RealHandle,
}

impl Module<'_> {
    /// Runs a kernel for every shape on a fresh copy of `buffers`; what they hold afterwards, the same each time.
    fn run(&self, name: &str, buffers: &[Vec<u8>], order: &[usize], rest: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        let function = self.device.module_function(self.module, name)?;
        let mut first: Option<Vec<Vec<u8>>> = None;
        for (grid, block) in SHAPES {
            let addresses: Vec<DevicePtr> = buffers.iter().map(|bytes| upload(self.device, bytes)).collect::<Result<_, _>>()?;
            let mut params: Vec<u8> = order.iter().flat_map(|index| addresses[*index].0.to_le_bytes()).collect();
            params.extend_from_slice(rest);
            let shape = LaunchShape { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0 };
            self.device.launch(&function, shape, DEFAULT, &params)?;
            finish(self.device, DEFAULT)?;
            let found: Vec<_> = addresses.iter().zip(buffers).map(|(at, bytes)| download(self.device, *at, bytes.len())).collect::<Result<_, _>>()?;
            for address in addresses {
                self.device.free(address)?;
            }
            match &first {
                None => first = Some(found),
                Some(first) => ensure!(*first == found, "{name}: bits differ between shapes"),
            }
        }
        first.context("no shape")
    }
}

fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; n];
    math::uniform(&mut values, seed, 1.5);
    values
}

fn ints(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Loads the file named by REJOIN_DIGITS_KERNELS and compares.
pub fn kernels(device: &CudaDevice) -> Checked {
    let Some(path) = std::env::var_os("REJOIN_DIGITS_KERNELS") else {
        return Ok(Verdict::Skipped("REJOIN_DIGITS_KERNELS is not set; see README.md".into()));
    };
    let image = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
    let m = Module { device, module: device.module_load(&image)? };
    let same = |name: &str, found: &[u8], expected: &[f32]| -> anyhow::Result<()> {
        ensure!(found == bytes_of(expected), "{name}: not the host's bits");
        Ok(())
    };
    let n = 1000usize;
    let count = (n as u64).to_le_bytes();
    let (a, b, c) = (random(n, 1), random(n, 2), random(n, 3));

    let found = m.run("fill", &[bytes_of(&a)], &[0], &[&count[..], &0.25f32.to_le_bytes()].concat())?;
    same("fill", &found[0], &vec![0.25; n])?;
    let mut expected = vec![0.0; n];
    math::uniform(&mut expected, 77, 0.37);
    let found = m.run("uniform", &[bytes_of(&a)], &[0], &[&count[..], &77u64.to_le_bytes(), &0.37f32.to_le_bytes()].concat())?;
    same("uniform", &found[0], &expected)?;
    let found = m.run("scale", &[bytes_of(&a)], &[0], &[&count[..], &0.3f32.to_le_bytes()].concat())?;
    same("scale", &found[0], &a.iter().map(|a| a * 0.3).collect::<Vec<_>>())?;
    let found = m.run("add_scaled", &[bytes_of(&a), bytes_of(&b)], &[0, 1], &[&count[..], &0.3f32.to_le_bytes()].concat())?;
    same("add_scaled", &found[0], &a.iter().zip(&b).map(|(a, b)| a + 0.3 * b).collect::<Vec<_>>())?;
    let mut y = a.clone();
    math::relu(&mut y);
    same("relu", &m.run("relu", &[bytes_of(&a)], &[0], &count)?[0], &y)?;
    let mut expected = b.clone();
    math::relu_backward(&y, &mut expected);
    same("relu_backward", &m.run("relu_backward", &[bytes_of(&y), bytes_of(&b)], &[0, 1], &count)?[1], &expected)?;
    let (mut p, mut v) = (a.clone(), b.clone());
    math::sgd_momentum(&mut p, &mut v, &c, 0.07, 0.9);
    let rest = [&count[..], &0.07f32.to_le_bytes(), &0.9f32.to_le_bytes()].concat();
    let found = m.run("sgd_momentum", &[bytes_of(&a), bytes_of(&b), bytes_of(&c)], &[0, 1, 2], &rest)?;
    same("sgd_momentum", &found[0], &p)?;
    same("sgd_momentum", &found[1], &v)?;

    let (x, w, bias, gy) = (random(BATCH * IN, 4), random(IN * OUT, 5), random(OUT, 6), random(BATCH * OUT, 7));
    let sizes = ints(&[BATCH as u32, IN as u32, OUT as u32]);
    let mut expected = vec![0.0; BATCH * OUT];
    math::dense_forward(&x, &w, &bias, &mut expected);
    let found = m.run("dense_forward", &[bytes_of(&x), bytes_of(&w), bytes_of(&bias), bytes_of(&gy)], &[0, 1, 2, 3], &sizes)?;
    same("dense_forward", &found[3], &expected)?;
    let mut expected = vec![0.0; BATCH * IN];
    math::dense_backward_input(&gy, &w, &mut expected, OUT);
    let found = m.run("dense_backward_input", &[bytes_of(&gy), bytes_of(&w), bytes_of(&x)], &[0, 1, 2], &sizes)?;
    same("dense_backward_input", &found[2], &expected)?;
    for accumulate in [0u32, 1] {
        let (mut gw, mut gb) = (w.clone(), bias.clone());
        math::dense_backward_weights(&x, &gy, &mut gw, &mut gb, accumulate != 0);
        let rest = [&sizes[..], &accumulate.to_le_bytes()].concat();
        let found = m.run("dense_backward_weights", &[bytes_of(&x), bytes_of(&gy), bytes_of(&w), bytes_of(&bias)], &[0, 1, 2, 3], &rest)?;
        same("dense_backward_weights", &found[2], &gw)?;
        same("dense_backward_weights", &found[3], &gb)?;
    }

    let src: Vec<u32> = (0..60).collect();
    let index = [5, 0, 6, 2, u32::MAX, 2];
    let mut expected = [9; 60];
    math::gather_rows(&src, &index, &mut expected, 10);
    let found = m.run("gather_rows", &[ints(&src), ints(&index), ints(&[7; 60])], &[0, 1, 2], &ints(&[6, 6, 10]))?;
    ensure!(found[2] == ints(&expected), "gather_rows");

    let many = 700usize;
    let logits: Vec<_> = random(many * OUT, 10).iter().map(|l| l * 8.0).collect();
    let labels: Vec<i32> = (0..many as i32).map(|n| n % 12 - 1).collect();
    let label_bytes: Vec<u8> = labels.iter().flat_map(|label| label.to_le_bytes()).collect();
    let scale = 1.0 / many as f32;
    let mut grad = vec![0.0; many * OUT];
    let loss = math::softmax_cross_entropy(&logits, &labels, &mut grad, scale);
    let shape = ints(&[many as u32, OUT as u32]);
    let buffers = [bytes_of(&logits), label_bytes.clone(), bytes_of(&vec![9.0; many * OUT]), bytes_of(&[9.0])];
    let found = m.run("softmax_cross_entropy", &buffers, &[0, 1, 2, 3], &[&shape[..], &scale.to_le_bytes()].concat())?;
    let found_loss = floats_of(&found[3])[0];
    ensure!((found_loss - loss).abs() < 1e-4 * loss, "loss {found_loss}, host {loss}");
    let worst = floats_of(&found[2]).iter().zip(&grad).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    ensure!(worst <= 1e-7, "gradient differs by {worst}");
    let found = m.run("count_correct", &[bytes_of(&logits), label_bytes, ints(&[9])], &[0, 1, 2], &shape)?;
    ensure!(found[2] == ints(&[math::count_correct(&logits, &labels)]), "count_correct");
    device.module_unload(m.module)?;
    fine(format!("12 kernels have the host's bits for {} shapes; softmax differs by {worst:.1e}", SHAPES.len()))
}
