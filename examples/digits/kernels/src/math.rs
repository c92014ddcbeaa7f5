//! What the kernels compute, on slices.

/// `y = x·w + b`.
pub fn dense_forward(x: &[f32], w: &[f32], b: &[f32], y: &mut [f32]) {
    let (inputs, outputs) = (w.len() / b.len(), b.len());
    for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
        y.copy_from_slice(b);
        for (x, w) in x.iter().zip(w.chunks_exact(outputs)) {
            for (y, w) in y.iter_mut().zip(w) {
                *y += x * w;
            }
        }
    }
}

/// `grad_w = xᵀ·grad_y` and `grad_b = Σ grad_y`, or added to what is there.
pub fn dense_backward_weights(x: &[f32], grad_y: &[f32], grad_w: &mut [f32], grad_b: &mut [f32], accumulate: bool) {
    let (inputs, outputs) = (grad_w.len() / grad_b.len(), grad_b.len());
    if !accumulate {
        grad_w.fill(0.0);
        grad_b.fill(0.0);
    }
    for (x, grad_y) in x.chunks_exact(inputs).zip(grad_y.chunks_exact(outputs)) {
        for (x, grad_w) in x.iter().zip(grad_w.chunks_exact_mut(outputs)) {
            for (grad_w, grad_y) in grad_w.iter_mut().zip(grad_y) {
                *grad_w += x * grad_y;
            }
        }
        for (grad_b, grad_y) in grad_b.iter_mut().zip(grad_y) {
            *grad_b += grad_y;
        }
    }
}

/// `grad_x = grad_y·wᵀ`.
pub fn dense_backward_input(grad_y: &[f32], w: &[f32], grad_x: &mut [f32], outputs: usize) {
    let inputs = w.len() / outputs;
    for (grad_y, grad_x) in grad_y.chunks_exact(outputs).zip(grad_x.chunks_exact_mut(inputs)) {
        for (grad_x, w) in grad_x.iter_mut().zip(w.chunks_exact(outputs)) {
            *grad_x = grad_y.iter().zip(w).map(|(g, w)| g * w).sum();
        }
    }
}

/// Negative values become 0, in place.
pub fn relu(x: &mut [f32]) {
    for x in x {
        if *x < 0.0 {
            *x = 0.0;
        }
    }
}

/// The gradient before a relu, in place, from the values after it.
pub fn relu_backward(y: &[f32], grad: &mut [f32]) {
    for (y, grad) in y.iter().zip(grad) {
        if *y <= 0.0 {
            *grad = 0.0;
        }
    }
}

/// Sum over the batch of the cross entropy of softmax(logits), and its gradient, both times `scale`.
/// A label outside the classes counts as probability 0 of everything: no loss, gradient of the softmax alone.
pub fn softmax_cross_entropy(logits: &[f32], labels: &[i32], grad: &mut [f32], scale: f32) -> f32 {
    let classes = logits.len() / labels.len().max(1);
    let mut loss = 0.0;
    for ((logits, label), grad) in logits.chunks_exact(classes).zip(labels).zip(grad.chunks_exact_mut(classes)) {
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for (grad, logit) in grad.iter_mut().zip(logits) {
            *grad = (logit - highest).exp();
            sum += *grad;
        }
        let factor = scale / sum;
        grad.iter_mut().for_each(|grad| *grad *= factor);
        if let Some(index) = usize::try_from(*label).ok().filter(|index| *index < classes) {
            loss += sum.ln() - (logits[index] - highest);
            grad[index] -= scale;
        }
    }
    loss * scale
}

/// Rows whose highest value (the first of equals) is at their label.
pub fn count_correct(logits: &[f32], labels: &[i32]) -> u32 {
    let classes = logits.len() / labels.len().max(1);
    let best = |row: &[f32]| (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
    logits.chunks_exact(classes.max(1)).zip(labels).filter(|(row, label)| usize::try_from(**label) == Ok(best(row))).count() as u32
}

/// `velocity = momentum·velocity + grad; parameter -= rate·velocity`.
pub fn sgd_momentum(parameter: &mut [f32], velocity: &mut [f32], grad: &[f32], rate: f32, momentum: f32) {
    for ((parameter, velocity), grad) in parameter.iter_mut().zip(velocity).zip(grad) {
        *velocity = momentum * *velocity + grad;
        *parameter -= rate * *velocity;
    }
}

/// The n-th value depends on `seed` and n only: uniform in [-limit, limit).
pub fn uniform(dst: &mut [f32], seed: u64, limit: f32) {
    for (n, dst) in dst.iter_mut().enumerate() {
        // splitmix64, https://prng.di.unimi.it/splitmix64.c
        let mut z = seed.wrapping_add((n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        *dst = ((z >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * limit;
    }
}

/// Rows of `src` in the order of `index`; a row that `src` does not have becomes 0.
pub fn gather_rows(src: &[u32], index: &[u32], dst: &mut [u32], row: usize) {
    for (index, dst) in index.iter().zip(dst.chunks_exact_mut(row)) {
        match src.get(*index as usize * row..(*index as usize + 1) * row) {
            Some(src) => dst.copy_from_slice(src),
            None => dst.fill(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: usize = 3;
    const IN: usize = 5;
    const OUT: usize = 4;

    fn random(n: usize, seed: u64) -> Vec<f32> {
        let mut values = vec![0.0; n];
        uniform(&mut values, seed, 1.0);
        values
    }

    fn close(a: f32, b: f32) -> bool {
        (a - b).abs() <= 2e-3 * (1.0 + a.abs().max(b.abs()))
    }

    /// The central difference of `loss` in each of `values`.
    fn differences(values: &[f32], mut loss: impl FnMut(&[f32]) -> f64) -> Vec<f32> {
        const STEP: f32 = 1.0 / 128.0;
        (0..values.len())
            .map(|at| {
                let mut moved = values.to_vec();
                moved[at] = values[at] + STEP;
                let up = loss(&moved);
                moved[at] = values[at] - STEP;
                ((up - loss(&moved)) / (2.0 * f64::from(STEP))) as f32
            })
            .collect()
    }

    fn assert_gradient(found: &[f32], expected: &[f32]) {
        assert!(found.iter().zip(expected).all(|(a, b)| close(*a, *b)), "{found:?}\n{expected:?}");
        assert!(found.iter().any(|g| g.abs() > 1e-3), "a gradient of zeros would agree with anything");
    }

    #[test]
    fn dense_forward_is_the_product_plus_the_bias() {
        let mut y = [0.0; 4];
        dense_forward(&[1.0, 2.0, 3.0, 4.0], &[1.0, 10.0, 100.0, 1000.0], &[0.5, 0.25], &mut y);
        assert_eq!(y, [201.5, 2010.25, 403.5, 4030.25]);
    }

    #[test]
    fn gradients_of_the_dense_layer_agree_with_finite_differences() {
        let (x, w, b) = (random(BATCH * IN, 1), random(IN * OUT, 2), random(OUT, 3));
        // The loss is the sum of outputs, each with a weight of its own.
        let grad_y = random(BATCH * OUT, 4);
        let loss = |x: &[f32], w: &[f32], b: &[f32]| {
            let mut y = vec![0.0; BATCH * OUT];
            dense_forward(x, w, b, &mut y);
            y.iter().zip(&grad_y).map(|(y, g)| f64::from(*y) * f64::from(*g)).sum::<f64>()
        };
        let (mut grad_w, mut grad_b, mut grad_x) = (vec![9.0; IN * OUT], vec![9.0; OUT], vec![9.0; BATCH * IN]);
        dense_backward_weights(&x, &grad_y, &mut grad_w, &mut grad_b, false);
        dense_backward_input(&grad_y, &w, &mut grad_x, OUT);
        assert_gradient(&grad_w, &differences(&w, |w| loss(&x, w, &b)));
        assert_gradient(&grad_b, &differences(&b, |b| loss(&x, &w, b)));
        assert_gradient(&grad_x, &differences(&x, |x| loss(x, &w, &b)));

        let (mut twice_w, mut twice_b) = (grad_w.clone(), grad_b.clone());
        dense_backward_weights(&x, &grad_y, &mut twice_w, &mut twice_b, true);
        assert!(twice_w.iter().zip(&grad_w).all(|(twice, once)| close(*twice, 2.0 * once)));
        assert!(twice_b.iter().zip(&grad_b).all(|(twice, once)| close(*twice, 2.0 * once)));
    }

    #[test]
    fn the_gradient_of_softmax_cross_entropy_agrees_with_finite_differences() {
        let logits = random(BATCH * OUT, 5);
        let labels = [2, 0, 3];
        let scale = 1.0 / BATCH as f32;
        let mut grad = vec![0.0; BATCH * OUT];
        let loss = softmax_cross_entropy(&logits, &labels, &mut grad, scale);
        let reference = |logits: &[f32]| {
            let rows = logits.chunks_exact(OUT).zip(labels);
            rows.map(|(row, label)| {
                let sum: f64 = row.iter().map(|l| f64::from(*l).exp()).sum();
                sum.ln() - f64::from(row[label as usize])
            })
            .sum::<f64>()
                / BATCH as f64
        };
        assert!(close(loss, reference(&logits) as f32), "{loss}");
        assert_gradient(&grad, &differences(&logits, reference));
    }

    #[test]
    fn large_logits_and_foreign_labels_stay_finite() {
        let mut grad = [0.0; 4];
        let loss = softmax_cross_entropy(&[1000.0, -1000.0, 0.0, 0.0], &[1, 7], &mut grad, 1.0);
        assert_eq!(loss, 2000.0);
        assert_eq!(grad, [1.0, -1.0, 0.5, 0.5]);
    }

    #[test]
    fn relu_and_its_gradient_pass_positive_values_only() {
        let mut x = [-1.0, 0.0, 2.0];
        relu(&mut x);
        let mut grad = [5.0, 6.0, 7.0];
        relu_backward(&x, &mut grad);
        assert_eq!((x, grad), ([0.0, 0.0, 2.0], [0.0, 0.0, 7.0]));
    }

    #[test]
    fn momentum_remembers_earlier_gradients() {
        let (mut p, mut v) = ([1.0], [0.0]);
        sgd_momentum(&mut p, &mut v, &[1.0], 0.5, 0.5);
        assert_eq!((p, v), ([0.5], [1.0]));
        sgd_momentum(&mut p, &mut v, &[1.0], 0.5, 0.5);
        assert_eq!((p, v), ([-0.25], [1.5]));
    }

    #[test]
    fn the_first_of_equal_values_counts() {
        assert_eq!(count_correct(&[1.0, 1.0, 0.0, 3.0, 2.0, 1.0], &[0, 1]), 1);
        assert_eq!(count_correct(&[1.0, 1.0, 0.0, 3.0, 2.0, 1.0], &[0, 0]), 2);
        assert_eq!(count_correct(&[1.0, 1.0], &[-1]), 0);
    }

    #[test]
    fn uniform_values_are_spread_and_depend_on_the_seed_alone() {
        let values = random(10_000, 7);
        assert_eq!(values[..100], random(100, 7));
        assert_ne!(values[..100], random(100, 8));
        assert!(values.iter().all(|v| (-1.0..1.0).contains(v)));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.05, "{mean}");
    }

    #[test]
    fn rows_are_gathered_by_index() {
        let mut dst = [9; 6];
        gather_rows(&[1, 2, 3, 4], &[1, 0, 2], &mut dst, 2);
        assert_eq!(dst, [3, 4, 1, 2, 0, 0]);
    }

    #[test]
    fn a_network_of_two_layers_learns() {
        const CLASSES: usize = 2;
        let x = random(64 * 2, 9);
        // Whether both coordinates have the same sign: not linear, so both layers and the relu are needed.
        let labels: Vec<i32> = x.chunks_exact(2).map(|x| i32::from((x[0] > 0.0) == (x[1] > 0.0))).collect();
        let (mut w1, mut b1, mut w2, mut b2) = (random(2 * 16, 10), vec![0.0; 16], random(16 * CLASSES, 11), vec![0.0; CLASSES]);
        let mut v = [vec![0.0; 32], vec![0.0; 16], vec![0.0; 32], vec![0.0; 2]];
        let (mut hidden, mut logits) = (vec![0.0; 64 * 16], vec![0.0; 64 * CLASSES]);
        let (mut g, mut gh) = (vec![0.0; 64 * CLASSES], vec![0.0; 64 * 16]);
        let (mut gw1, mut gb1, mut gw2, mut gb2) = (vec![0.0; 32], vec![0.0; 16], vec![0.0; 32], vec![0.0; 2]);
        let mut losses = Vec::new();
        for _ in 0..300 {
            dense_forward(&x, &w1, &b1, &mut hidden);
            relu(&mut hidden);
            dense_forward(&hidden, &w2, &b2, &mut logits);
            losses.push(softmax_cross_entropy(&logits, &labels, &mut g, 1.0 / 64.0));
            dense_backward_weights(&hidden, &g, &mut gw2, &mut gb2, false);
            dense_backward_input(&g, &w2, &mut gh, CLASSES);
            relu_backward(&hidden, &mut gh);
            dense_backward_weights(&x, &gh, &mut gw1, &mut gb1, false);
            let [v0, v1, v2, v3] = &mut v;
            for (p, v, g) in [(&mut w1, v0, &gw1), (&mut b1, v1, &gb1), (&mut w2, v2, &gw2), (&mut b2, v3, &gb2)] {
                sgd_momentum(p, v, g, 0.1, 0.9);
            }
        }
        let (first, last) = (losses[0], losses[losses.len() - 1]);
        assert!(last < first / 4.0, "{first} -> {last}");
        assert!(count_correct(&logits, &labels) >= 62, "{}", count_correct(&logits, &labels));
    }
}
