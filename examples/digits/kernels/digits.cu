// The kernels of the digits classifier for CUDA: same names, parameters and meaning as in src/table.rs.
//
//   nvcc -arch=sm_90 -cubin -o digits.cubin digits.cu
//
// Every result has the same bits in every run, whatever grid and block a launch has: each element of an output
// is computed by one thread in the order of the host kernels, without fused multiply-add. So all results have
// the host kernels' bits too, but for softmax_cross_entropy, whose expf and logf are CUDA's.
// Buffers of one launch must not overlap.

typedef unsigned int u32;
typedef unsigned long long u64;

// Sums over a batch are made of this many partial sums, in this order, however many threads there are.
#define LANES 256

static __device__ __forceinline__ u64 first_element() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ u64 all_threads() { return (u64)gridDim.x * blockDim.x; }

#define FOR_EACH(i, n) for (u64 i = first_element(); i < (n); i += all_threads())

// dst[i] = value
extern "C" __global__ void fill(float *dst, u64 n, float value) {
    FOR_EACH(i, n) dst[i] = value;
}

// Uniform in [-limit, limit), from the seed and the position alone: splitmix64, https://prng.di.unimi.it/splitmix64.c
extern "C" __global__ void uniform(float *dst, u64 n, u64 seed, float limit) {
    FOR_EACH(i, n) {
        u64 z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        // 24 bits: exact as a float, as are the division by a power of two and the subtraction.
        float unit = __fsub_rn((float)(u32)(z >> 40) / 8388608.0f, 1.0f);
        dst[i] = __fmul_rn(unit, limit);
    }
}

// x[i] *= factor
extern "C" __global__ void scale(float *x, u64 n, float factor) {
    FOR_EACH(i, n) x[i] = __fmul_rn(x[i], factor);
}

// y[i] += factor * x[i]
extern "C" __global__ void add_scaled(float *y, const float *x, u64 n, float factor) {
    FOR_EACH(i, n) y[i] = __fadd_rn(y[i], __fmul_rn(factor, x[i]));
}

// Rows of 32-bit elements in the order of index; a row that src does not have becomes 0.
extern "C" __global__ void gather_rows(const u32 *src, const u32 *index, u32 *dst, u32 src_rows, u32 rows, u32 row) {
    FOR_EACH(i, (u64)rows * row) {
        u32 from = index[i / row];
        dst[i] = from < src_rows ? src[(u64)from * row + i % row] : 0;
    }
}

// y = x.w + b for x [batch][inputs], w [inputs][outputs], y [batch][outputs]
extern "C" __global__ void dense_forward(const float *x, const float *w, const float *b, float *y, u32 batch, u32 inputs, u32 outputs) {
    FOR_EACH(i, (u64)batch * outputs) {
        u64 sample = i / outputs, out = i % outputs;
        float sum = b[out];
        for (u32 in = 0; in < inputs; in++)
            sum = __fadd_rn(sum, __fmul_rn(x[sample * inputs + in], w[(u64)in * outputs + out]));
        y[i] = sum;
    }
}

// grad_w = transposed x . grad_y and grad_b = sum of grad_y; added to what is there when accumulate is not 0
extern "C" __global__ void dense_backward_weights(const float *x, const float *grad_y, float *grad_w, float *grad_b, u32 batch, u32 inputs,
                                                  u32 outputs, u32 accumulate) {
    u64 weights = (u64)inputs * outputs;
    // The biases follow the weights.
    FOR_EACH(i, weights + outputs) {
        u64 in = i / outputs, out = i % outputs;
        float *to = i < weights ? grad_w + i : grad_b + out;
        float sum = accumulate ? *to : 0.0f;
        for (u32 sample = 0; sample < batch; sample++) {
            float grad = grad_y[(u64)sample * outputs + out];
            sum = __fadd_rn(sum, i < weights ? __fmul_rn(x[(u64)sample * inputs + in], grad) : grad);
        }
        *to = sum;
    }
}

// grad_x = grad_y . transposed w
extern "C" __global__ void dense_backward_input(const float *grad_y, const float *w, float *grad_x, u32 batch, u32 inputs, u32 outputs) {
    FOR_EACH(i, (u64)batch * inputs) {
        u64 sample = i / inputs, in = i % inputs;
        // What Rust's sum of floats begins with: it leaves every first term as it is.
        float sum = -0.0f;
        for (u32 out = 0; out < outputs; out++)
            sum = __fadd_rn(sum, __fmul_rn(grad_y[sample * outputs + out], w[in * outputs + out]));
        grad_x[i] = sum;
    }
}

// Negative values become 0, in place.
extern "C" __global__ void relu(float *x, u64 n) {
    FOR_EACH(i, n) if (x[i] < 0.0f) x[i] = 0.0f;
}

// The gradient before a relu, in place, from the values y after it
extern "C" __global__ void relu_backward(const float *y, float *grad, u64 n) {
    FOR_EACH(i, n) if (y[i] <= 0.0f) grad[i] = 0.0f;
}

static __device__ float highest_of(const float *row, u32 classes) {
    float highest = -INFINITY;
    for (u32 at = 0; at < classes; at++) highest = fmaxf(highest, row[at]);
    return highest;
}

// loss[0] = sum over the batch of the cross entropy, grad its gradient, both times scale. A label outside the
// classes counts as probability 0 of everything.
extern "C" __global__ void softmax_cross_entropy(const float *logits, const int *labels, float *grad, float *loss, u32 batch, u32 classes,
                                                 float scale) {
    __shared__ float partial[LANES];
    FOR_EACH(sample, batch) {
        const float *row = logits + sample * classes;
        float *out = grad + sample * classes;
        float highest = highest_of(row, classes), sum = 0.0f;
        for (u32 at = 0; at < classes; at++) {
            out[at] = expf(__fsub_rn(row[at], highest));
            sum = __fadd_rn(sum, out[at]);
        }
        float factor = __fdiv_rn(scale, sum);
        for (u32 at = 0; at < classes; at++) out[at] = __fmul_rn(out[at], factor);
        u32 label = (u32)labels[sample];
        if (label < classes) out[label] = __fsub_rn(out[label], scale);
    }
    if (blockIdx.x != 0) return;
    // The loss is the first block's alone, which reads the logits once more.
    for (u32 lane = threadIdx.x; lane < LANES; lane += blockDim.x) {
        float total = 0.0f;
        for (u64 sample = lane; sample < batch; sample += LANES) {
            const float *row = logits + sample * classes;
            u32 label = (u32)labels[sample];
            if (label >= classes) continue;
            float highest = highest_of(row, classes), sum = 0.0f;
            for (u32 at = 0; at < classes; at++) sum = __fadd_rn(sum, expf(__fsub_rn(row[at], highest)));
            total = __fadd_rn(total, __fsub_rn(logf(sum), __fsub_rn(row[label], highest)));
        }
        partial[lane] = total;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = 0.0f;
    for (u32 lane = 0; lane < LANES; lane++) total = __fadd_rn(total, partial[lane]);
    *loss = __fmul_rn(total, scale);
}

// correct[0] = rows whose highest logit, the first of equals, is at the label; the first block's work alone
extern "C" __global__ void count_correct(const float *logits, const int *labels, u32 *correct, u32 batch, u32 classes) {
    __shared__ u32 partial[LANES];
    if (blockIdx.x != 0) return;
    for (u32 lane = threadIdx.x; lane < LANES; lane += blockDim.x) {
        u32 total = 0;
        for (u64 sample = lane; sample < batch; sample += LANES) {
            const float *row = logits + sample * classes;
            u32 best = 0;
            for (u32 at = 1; at < classes; at++)
                if (row[at] > row[best]) best = at;
            total += (u32)labels[sample] == best;
        }
        partial[lane] = total;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    u32 total = 0;
    for (u32 lane = 0; lane < LANES; lane++) total += partial[lane];
    *correct = total;
}

// velocity = momentum * velocity + grad; parameter -= rate * velocity
extern "C" __global__ void sgd_momentum(float *parameter, float *velocity, const float *grad, u64 n, float rate, float momentum) {
    FOR_EACH(i, n) {
        velocity[i] = __fadd_rn(__fmul_rn(momentum, velocity[i]), grad[i]);
        parameter[i] = __fsub_rn(parameter[i], __fmul_rn(rate, velocity[i]));
    }
}
