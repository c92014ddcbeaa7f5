// The digits trainer as one writes it with the CUDA runtime and NCCL. rejoin.cu is the same program, and survives the
// death of a rank.
//
//     for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 ID_FILE=/tmp/id ./plain 200 & done; wait
#include "dataset.h"
#include "loader.h"
#include "model.h"
#include "sha256.h"

#include "digits.cu"

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CUDA(call) do if ((call) != cudaSuccess) fail(#call, cudaGetErrorString(cudaGetLastError())); while (0)
#define NCCL(call) do if ((call) != ncclSuccess) fail(#call, ncclGetLastError(nullptr)); while (0)

static void fail(const char *call, const char *why) {
    std::fprintf(stderr, "%s: %s\n", call, why);
    std::exit(1);
}

static const float RATE = 0.3f, MOMENTUM = 0.9f;
static int rank, nranks;
static cudaStream_t stream;
static ncclComm_t comm;

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
    rank = std::atoi(std::getenv("RANK"));
    nranks = std::atoi(std::getenv("WORLD_SIZE"));
    const char *path = std::getenv("ID_FILE");
    ncclUniqueId id;
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        std::FILE *file = std::fopen((std::string(path) + ".new").c_str(), "wb");
        std::fwrite(&id, sizeof id, 1, file);
        std::fclose(file);
        std::rename((std::string(path) + ".new").c_str(), path);
    } else {
        std::FILE *file;
        while ((file = std::fopen(path, "rb")) == nullptr) {}
        if (std::fread(&id, sizeof id, 1, file) != 1) fail("fread", path);
        std::fclose(file);
    }
    NCCL(ncclCommInitRank(&comm, nranks, id, rank));
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

static void all_reduce() { NCCL(ncclAllReduce(gradient, gradient, PARAMETERS + 1, ncclFloat, ncclSum, comm, stream)); }

static void optimize() {
    sgd_momentum<<<blocks(PARAMETERS), 256, 0, stream>>>(parameters, velocity, gradient, PARAMETERS, RATE, MOMENTUM);
}

static void train(const dataset &data, u32 steps) {
    loader position = {2, 0, 0};
    for (u32 step = 0; step < steps; step++) {
        u32 batch[BATCH];
        loader_next(&position, data.train.count, batch);
        compute_gradient(data, batch);
        all_reduce();
        optimize();
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
    return 0;
}
