// The digits trainer of plain.cu, which survives the death of a rank.
//
//     rejoin run -n 4 --backend cuda -- ./rejoin_digits 200
#include "dataset.h"
#include "loader.h"
#include "model.h"
#include "sha256.h"

#include "digits.cu"

#include <cuda_runtime.h>
#include <rejoin.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CUDA(call) do if ((call) != cudaSuccess) fail(#call, cudaGetErrorString(cudaGetLastError())); while (0)
#define REJOIN(call) do if ((call) != REJOIN_STATUS_OK) fail(#call, rejoin_last_error()); while (0)

static void fail(const char *call, const char *why) {
    std::fprintf(stderr, "%s: %s\n", call, why);
    std::exit(1);
}

static const float RATE = 0.3f, MOMENTUM = 0.9f;
static int rank, nranks;
static cudaStream_t stream;
static rejoin_session *session;
static rejoin_handle comm, collectives;

static float *parameters, *velocity, *gradient, *images, *batch_images, *hidden, *logits, *grad_logits, *grad_hidden;
static u32 *labels, *batch_labels, *indices;

template <typename T> static T *allocate(size_t elements) {
    T *memory = nullptr;
    CUDA(cudaMalloc(&memory, elements * sizeof(T)));
    CUDA(cudaMemset(memory, 0, elements * sizeof(T)));
    return memory;
}
template <typename T> static void upload(T *to, const T *from, size_t elements) {
    CUDA(cudaMemcpyAsync(to, from, elements * sizeof(T), cudaMemcpyHostToDevice, stream));
}
static u32 blocks(u32 elements) { return elements > 0 ? (elements + 255) / 256 : 1; }

static void join() {
    rejoin_session_info info = REJOIN_SESSION_INFO_INIT;
    REJOIN(rejoin_session_open(NULL, &session));
    REJOIN(rejoin_session_get_info(session, &info));
    rank = (int)info.rank;
    nranks = (int)info.nranks;
    rejoin_unique_id id;
    size_t bytes;
    if (rank == 0) {
        REJOIN(rejoin_get_unique_id(session, &id));
        REJOIN(rejoin_exchange_publish(session, "id", &id, sizeof id));
    } else {
        REJOIN(rejoin_exchange_await(session, "id", &id, sizeof id, &bytes));
    }
    REJOIN(rejoin_comm_init_rank(session, info.nranks, &id, info.rank, &comm));
    REJOIN(rejoin_stream_adopt(session, stream, &collectives));
}

// What must be right after a recovery: only these two; everything else is made again in every step.
static void tell_state() {
    const size_t bytes = sizeof(float) * PARAMETERS;
    REJOIN(rejoin_state_register_foreign(session, "parameters", (rejoin_device_ptr)parameters, bytes, REJOIN_STATE_KIND_REPLICATED, comm));
    REJOIN(rejoin_state_register_foreign(session, "velocity", (rejoin_device_ptr)velocity, bytes, REJOIN_STATE_KIND_REPLICATED, comm));
}

static void set_up(const dataset &data) {
    CUDA(cudaStreamCreate(&stream));
    join();
    const size_t samples = data.train.count, part = BATCH;
    images = allocate<float>(samples * PIXELS);
    labels = allocate<u32>(samples);
    parameters = allocate<float>(PARAMETERS);
    velocity = allocate<float>(PARAMETERS);
    gradient = allocate<float>(PARAMETERS + 1);
    indices = allocate<u32>(part);
    batch_images = allocate<float>(part * PIXELS);
    batch_labels = allocate<u32>(part);
    hidden = allocate<float>(part * HIDDEN);
    logits = allocate<float>(part * CLASSES);
    grad_logits = allocate<float>(part * CLASSES);
    grad_hidden = allocate<float>(part * HIDDEN);
    std::vector<float> initial(PARAMETERS);
    model_initial(2, initial.data());
    upload(images, data.train.images, samples * PIXELS);
    upload(labels, data.train.labels, samples);
    upload(parameters, initial.data(), initial.size());
    CUDA(cudaStreamSynchronize(stream));
    tell_state();
}

static void compute_gradient(const dataset &data, const u32 *batch) {
    CUDA(cudaMemsetAsync(gradient, 0, sizeof(float) * (PARAMETERS + 1), stream));
    const u32 first = BATCH * rank / nranks, n = BATCH * (rank + 1) / nranks - first;
    if (n == 0) return;
    upload(indices, batch + first, n);
    gather_rows<<<blocks(n * PIXELS), 256, 0, stream>>>((u32 *)images, indices, (u32 *)batch_images, data.train.count, n, PIXELS);
    gather_rows<<<blocks(n), 256, 0, stream>>>(labels, indices, batch_labels, data.train.count, n, 1);
    dense_forward<<<blocks(n * HIDDEN), 256, 0, stream>>>(batch_images, parameters + W1, parameters + B1, hidden, n, PIXELS, HIDDEN);
    relu<<<blocks(n * HIDDEN), 256, 0, stream>>>(hidden, n * HIDDEN);
    dense_forward<<<blocks(n * CLASSES), 256, 0, stream>>>(hidden, parameters + W2, parameters + B2, logits, n, HIDDEN, CLASSES);
    softmax_cross_entropy<<<blocks(n), 256, 0, stream>>>(logits, (int *)batch_labels, grad_logits, gradient + PARAMETERS, n, CLASSES, 1.0f / BATCH);
    dense_backward_weights<<<blocks(HIDDEN * CLASSES), 256, 0, stream>>>(hidden, grad_logits, gradient + W2, gradient + B2, n, HIDDEN, CLASSES, 0);
    dense_backward_input<<<blocks(n * HIDDEN), 256, 0, stream>>>(grad_logits, parameters + W2, grad_hidden, n, HIDDEN, CLASSES);
    relu_backward<<<blocks(n * HIDDEN), 256, 0, stream>>>(hidden, grad_hidden, n * HIDDEN);
    dense_backward_weights<<<blocks(PIXELS * HIDDEN), 256, 0, stream>>>(batch_images, grad_hidden, gradient + W1, gradient + B1, n, PIXELS, HIDDEN, 0);
}

static rejoin_status all_reduce() {
    const rejoin_device_ptr at = (rejoin_device_ptr)gradient;
    return rejoin_all_reduce(session, at, at, PARAMETERS + 1, REJOIN_DATA_TYPE_FLOAT32, REJOIN_REDUCE_OP_SUM, comm, collectives);
}

static void optimize() {
    sgd_momentum<<<blocks(PARAMETERS), 256, 0, stream>>>(parameters, velocity, gradient, PARAMETERS, RATE, MOMENTUM);
}

static void train(const dataset &data, u32 steps) {
    const loader start = {2, 0, 0};
    u32 step;
    const void *blob;
    size_t bytes;
    REJOIN(rejoin_setup_done(session, &step, &blob, &bytes));
    loader position = bytes == sizeof position ? *(const loader *)blob : start;
    while (step < steps) {
        u32 batch[BATCH];
        loader next = position;
        loader_next(&next, data.train.count, batch);
        rejoin_status status = rejoin_step_begin(session, step);
        if (status == REJOIN_STATUS_OK) {
            compute_gradient(data, batch);
            status = all_reduce();
        }
        if (status == REJOIN_STATUS_OK) status = rejoin_step_end(session, &next, sizeof next);
        if (status == REJOIN_STATUS_OK) {
            optimize();
            status = rejoin_step_commit(session);
            position = next;
            step++;
        }
        if (status == REJOIN_STATUS_REDO) {
            REJOIN(rejoin_resume(session, &step, &blob, &bytes));
            position = bytes == sizeof position ? *(const loader *)blob : start;
        } else if (status != REJOIN_STATUS_OK) {
            fail("a step", rejoin_last_error());
        }
    }
}

int main(int argc, char **argv) {
    const u32 steps = argc > 1 ? std::atoi(argv[1]) : 200;
    dataset *data = new dataset;
    if (dataset_load(DIGITS_DATA, data) != 0) return 1;
    set_up(*data);
    train(*data, steps);
    std::vector<float> weights(PARAMETERS);
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(weights.data(), parameters, sizeof(float) * PARAMETERS, cudaMemcpyDeviceToHost));
    if (rank == 0) {
        char hash[65];
        sha256_hex(weights.data(), sizeof(float) * PARAMETERS, hash);
        std::printf("%u of %u test images are right, weights %s\n", model_count_correct(weights.data(), &data->test), data->test.count, hash);
    }
    REJOIN(rejoin_session_finalize(session));
    REJOIN(rejoin_session_close(session));
    return 0;
}
