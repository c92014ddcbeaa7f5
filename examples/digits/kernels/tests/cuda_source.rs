//! `digits.cu` compiled for the CPU gives the bits of the host kernels, whatever the shape of the launch.
//! That a GPU does too is shown by `examples/cuda/selftest`.

use digits_kernels::math;
use libloading::{Library, Symbol};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

type Body = unsafe extern "C" fn(*const core::ffi::c_void);
type RunLaunch = unsafe extern "C" fn(u32, u32, Body, *const core::ffi::c_void);

/// Calls a kernel.
macro_rules! call {
    ($kernel:ident($($arg:expr),*)) => {
        // SAFETY: every test passes buffers of the sizes that it names, alive until `run` returns.
        unsafe { $kernel($($arg),*) }
    };
}

const SHAPES: [(u32, u32); 4] = [(1, 1), (3, 4), (2, 7), (5, 1)];
const BATCH: usize = 37;
const IN: usize = 12;
const OUT: usize = 10;

struct Kernels {
    library: Library,
    /// The compiled file, removed at the end.
    _folder: tempfile::TempDir,
    /// Shared memory and shape are variables of the library: one launch at a time.
    one_launch: Mutex<()>,
}

impl Kernels {
    fn compile() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("libcuda_on_cpu.so");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cuda_on_cpu.cpp");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let output = Command::new(&compiler)
            .args(["-std=c++20", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
            .args([&object, &source])
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: no initializers but C++'s own.
        let library = unsafe { Library::new(&object) }.unwrap();
        Self { library, _folder: folder, one_launch: Mutex::new(()) }
    }

    fn get<F: Copy>(&self, name: &str) -> F {
        // SAFETY: callers name the type that digits.cu gives the kernel.
        let symbol: Symbol<'_, F> = unsafe { self.library.get(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"));
        *symbol
    }

    fn run<F: Fn() + Sync>(&self, (grid, block): (u32, u32), body: F) {
        unsafe extern "C" fn call<F: Fn()>(body: *const core::ffi::c_void) {
            // SAFETY: `run` passes its own body, alive until all threads have ended.
            let body = unsafe { &*body.cast::<F>() };
            body();
        }
        let _one = self.one_launch.lock().unwrap();
        let launch: RunLaunch = self.get("run_launch");
        // SAFETY: returns after every thread has; `F` may be called from any thread.
        unsafe { launch(grid, block, call::<F>, (&raw const body).cast()) };
    }
}

/// An address that threads share, as device memory is.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);
// SAFETY: the kernels divide the elements among their threads.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}
impl<T> Shared<T> {
    fn get(self) -> *mut T {
        self.0
    }
}

fn out<T>(values: &mut [T]) -> Shared<T> {
    Shared(values.as_mut_ptr())
}

fn input<T>(values: &[T]) -> Shared<T> {
    Shared(values.as_ptr().cast_mut())
}

fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; n];
    math::uniform(&mut values, seed, 1.5);
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// For every shape: `run` on a copy of `start` gives the bits of `expected`.
fn same_bits(name: &str, start: &[f32], expected: &[f32], run: impl Fn((u32, u32), Shared<f32>)) {
    for shape in SHAPES {
        let mut found = start.to_vec();
        run(shape, out(&mut found));
        assert_eq!(bits(&found), bits(expected), "{name} {shape:?}");
    }
}

#[test]
fn elementwise_kernels_have_the_bits_of_the_host() {
    let k = Kernels::compile();
    let n = 1000;
    let (a, b) = (random(n, 1), random(n, 2));

    let f: unsafe extern "C" fn(*mut f32, u64, f32) = k.get("fill");
    same_bits("fill", &a, &vec![0.25; n], |shape, dst| k.run(shape, || call!(f(dst.get(), n as u64, 0.25))));

    let f: unsafe extern "C" fn(*mut f32, u64, u64, f32) = k.get("uniform");
    let mut expected = vec![0.0; n];
    math::uniform(&mut expected, 0xFEED_F00D_0123_4567, 0.37);
    same_bits("uniform", &a, &expected, |shape, dst| {
        k.run(shape, || call!(f(dst.get(), n as u64, 0xFEED_F00D_0123_4567, 0.37)));
    });

    let f: unsafe extern "C" fn(*mut f32, u64, f32) = k.get("scale");
    let expected: Vec<_> = a.iter().map(|a| a * 0.3).collect();
    same_bits("scale", &a, &expected, |shape, x| k.run(shape, || call!(f(x.get(), n as u64, 0.3))));

    let f: unsafe extern "C" fn(*mut f32, *const f32, u64, f32) = k.get("add_scaled");
    let x = input(&b);
    let expected: Vec<_> = a.iter().zip(&b).map(|(a, b)| a + 0.3 * b).collect();
    same_bits("add_scaled", &a, &expected, |shape, y| k.run(shape, || call!(f(y.get(), x.get(), n as u64, 0.3))));

    let f: unsafe extern "C" fn(*mut f32, u64) = k.get("relu");
    let mut expected = a.clone();
    math::relu(&mut expected);
    same_bits("relu", &a, &expected, |shape, x| k.run(shape, || call!(f(x.get(), n as u64))));

    let f: unsafe extern "C" fn(*const f32, *mut f32, u64) = k.get("relu_backward");
    let y = input(&expected);
    let mut gradient = b.clone();
    math::relu_backward(&expected, &mut gradient);
    same_bits("relu_backward", &b, &gradient, |shape, grad| k.run(shape, || call!(f(y.get(), grad.get(), n as u64))));

    let f: unsafe extern "C" fn(*mut f32, *mut f32, *const f32, u64, f32, f32) = k.get("sgd_momentum");
    let grad = random(n, 3);
    let (mut parameter, mut velocity) = (a.clone(), b.clone());
    math::sgd_momentum(&mut parameter, &mut velocity, &grad, 0.07, 0.9);
    for shape in SHAPES {
        let (mut p, mut v) = (a.clone(), b.clone());
        let (pp, vp, gp) = (out(&mut p), out(&mut v), input(&grad));
        k.run(shape, || call!(f(pp.get(), vp.get(), gp.get(), n as u64, 0.07, 0.9)));
        assert_eq!((bits(&p), bits(&v)), (bits(&parameter), bits(&velocity)), "{shape:?}");
    }
}

#[test]
fn matrix_kernels_have_the_bits_of_the_host() {
    let k = Kernels::compile();
    let (x, w, b, grad_y) = (random(BATCH * IN, 4), random(IN * OUT, 5), random(OUT, 6), random(BATCH * OUT, 7));
    let (px, pw, pb, pg) = (input(&x), input(&w), input(&b), input(&grad_y));
    let (batch, inputs, outputs) = (BATCH as u32, IN as u32, OUT as u32);

    let f: unsafe extern "C" fn(*const f32, *const f32, *const f32, *mut f32, u32, u32, u32) = k.get("dense_forward");
    let mut expected = vec![0.0; BATCH * OUT];
    math::dense_forward(&x, &w, &b, &mut expected);
    same_bits("dense_forward", &vec![9.0; BATCH * OUT], &expected, |shape, y| {
        k.run(shape, || call!(f(px.get(), pw.get(), pb.get(), y.get(), batch, inputs, outputs)));
    });

    let f: unsafe extern "C" fn(*const f32, *const f32, *mut f32, u32, u32, u32) = k.get("dense_backward_input");
    let mut expected = vec![0.0; BATCH * IN];
    math::dense_backward_input(&grad_y, &w, &mut expected, OUT);
    same_bits("dense_backward_input", &vec![9.0; BATCH * IN], &expected, |shape, grad_x| {
        k.run(shape, || call!(f(pg.get(), pw.get(), grad_x.get(), batch, inputs, outputs)));
    });

    let f: unsafe extern "C" fn(*const f32, *const f32, *mut f32, *mut f32, u32, u32, u32, u32) = k.get("dense_backward_weights");
    for accumulate in [0, 1] {
        let (start_w, start_b) = (random(IN * OUT, 8), random(OUT, 9));
        let (mut expected_w, mut expected_b) = (start_w.clone(), start_b.clone());
        math::dense_backward_weights(&x, &grad_y, &mut expected_w, &mut expected_b, accumulate != 0);
        for shape in SHAPES {
            let (mut gw, mut gb) = (start_w.clone(), start_b.clone());
            let (pgw, pgb) = (out(&mut gw), out(&mut gb));
            k.run(shape, || call!(f(px.get(), pg.get(), pgw.get(), pgb.get(), batch, inputs, outputs, accumulate)));
            assert_eq!((bits(&gw), bits(&gb)), (bits(&expected_w), bits(&expected_b)), "{accumulate} {shape:?}");
        }
    }

    let f: unsafe extern "C" fn(*const u32, *const u32, *mut u32, u32, u32, u32) = k.get("gather_rows");
    let src: Vec<u32> = (0..60).collect();
    let index = [5, 0, 6, 2, u32::MAX, 2];
    let mut expected = [9; 60];
    math::gather_rows(&src, &index, &mut expected, 10);
    for shape in SHAPES {
        let mut found = [7; 60];
        let (ps, pi, pd) = (input(&src), input(&index), out(&mut found));
        k.run(shape, || call!(f(ps.get(), pi.get(), pd.get(), 6, 6, 10)));
        assert_eq!(found, expected, "{shape:?}");
    }
}

#[test]
fn the_loss_is_the_hosts_but_for_rounding_and_does_not_depend_on_the_launch() {
    // More samples than lanes of the partial sums.
    const MANY: usize = 700;
    let k = Kernels::compile();
    let logits: Vec<_> = random(MANY * OUT, 10).iter().map(|l| l * 8.0).collect();
    let labels: Vec<i32> = (0..MANY as i32).map(|n| n % 12 - 1).collect();
    let scale = 1.0 / MANY as f32;
    let mut expected = vec![0.0; MANY * OUT];
    let expected_loss = math::softmax_cross_entropy(&logits, &labels, &mut expected, scale);
    let (pl, pn) = (input(&logits), input(&labels));

    let f: unsafe extern "C" fn(*const f32, *const i32, *mut f32, *mut f32, u32, u32, f32) = k.get("softmax_cross_entropy");
    let count: unsafe extern "C" fn(*const f32, *const i32, *mut u32, u32, u32) = k.get("count_correct");
    let mut first = None;
    for shape in SHAPES {
        let (mut grad, mut loss, mut correct) = (vec![9.0; MANY * OUT], [9.0], [9]);
        let (pg, po, pc) = (out(&mut grad), out(&mut loss), out(&mut correct));
        k.run(shape, || call!(f(pl.get(), pn.get(), pg.get(), po.get(), MANY as u32, OUT as u32, scale)));
        k.run(shape, || call!(count(pl.get(), pn.get(), pc.get(), MANY as u32, OUT as u32)));
        assert_eq!(correct[0], math::count_correct(&logits, &labels));
        assert!(correct[0] > 0);
        assert!((loss[0] - expected_loss).abs() < 1e-5 * expected_loss, "{} {expected_loss}", loss[0]);
        assert!(grad.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-8), "{shape:?}");
        let found = (bits(&grad), loss[0].to_bits());
        assert_eq!(*first.get_or_insert(found.clone()), found, "{shape:?}");
    }
}
