/*
 * Trains a classifier of handwritten digits data-parallel, and goes on when a rank dies. The same computation as
 * the Rust trainer in ../src, in the same order: the final weights have the same bits.
 *
 *     rejoin run -n 4 --backend host -- build/examples/digits_c [--steps N] [--kernels FILE] [--data FILE]
 */
#include "check.h"
#include "dataset.h"
#include "loader.h"
#include "model.h"
#include "sha256.h"

#include <rejoin.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 2 };
static const float LEARNING_RATE = 0.3f, MOMENTUM = 0.9f;

/* Functions of the kernel module. */
typedef struct kernels {
    rejoin_handle gather_rows, dense_forward, dense_backward_weights, dense_backward_input, relu, relu_backward,
        softmax_cross_entropy, sgd_momentum;
} kernels;

/* Device memory of a rank. The gradient has one element more, for the loss. */
typedef struct buffers {
    rejoin_device_ptr images, labels, parameters, velocity, gradient, index, batch_images, batch_labels, hidden, logits,
        grad_logits, grad_hidden;
} buffers;

typedef struct trainer {
    rejoin_session *session;
    dataset *data;
    rejoin_handle stream, comm;
    kernels k;
    buffers b;
} trainer;

/* ---- launches: parameters one after the other, packed ---- */

typedef struct parameters {
    unsigned char bytes[128];
    size_t length;
} parameters;

static void put(parameters *p, const void *value, size_t bytes) {
    memcpy(p->bytes + p->length, value, bytes);
    p->length += bytes;
}

static void put_pointers(parameters *p, int count, const rejoin_device_ptr *pointers) {
    put(p, pointers, (size_t)count * sizeof *pointers);
}

static void put_numbers(parameters *p, int count, const uint32_t *numbers) {
    put(p, numbers, (size_t)count * sizeof *numbers);
}

/* One block per 256 elements: what a GPU wants; the host backend does all the work of a launch at once. */
static rejoin_status launch(const trainer *t, rejoin_handle function, uint32_t elements, const parameters *p) {
    uint32_t blocks = (elements + 255) / 256;
    return rejoin_launch_kernel(t->session, function, blocks > 0 ? blocks : 1, 1, 1, 256, 1, 1, 0, t->stream, p->bytes,
                                p->length);
}

#define POINTERS(p, ...)                                                                             \
    put_pointers(p, (int)(sizeof((rejoin_device_ptr[]){__VA_ARGS__}) / sizeof(rejoin_device_ptr)),   \
                 (rejoin_device_ptr[]){__VA_ARGS__})
#define NUMBERS(p, ...)                                                                              \
    put_numbers(p, (int)(sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)), (uint32_t[]){__VA_ARGS__})

static rejoin_status gather_rows(const trainer *t, rejoin_device_ptr src, uint32_t rows, rejoin_device_ptr dst, uint32_t row) {
    parameters p = {{0}, 0};
    POINTERS(&p, src, t->b.index, dst);
    NUMBERS(&p, t->data->train.count, rows, row);
    return launch(t, t->k.gather_rows, rows * row, &p);
}

static rejoin_status dense_forward(const trainer *t, rejoin_device_ptr x, rejoin_device_ptr w, rejoin_device_ptr b,
                                   rejoin_device_ptr y, uint32_t batch, uint32_t inputs, uint32_t outputs) {
    parameters p = {{0}, 0};
    POINTERS(&p, x, w, b, y);
    NUMBERS(&p, batch, inputs, outputs);
    return launch(t, t->k.dense_forward, batch * outputs, &p);
}

static rejoin_status dense_backward_weights(const trainer *t, rejoin_device_ptr x, rejoin_device_ptr grad_y,
                                            rejoin_device_ptr grad_w, rejoin_device_ptr grad_b, uint32_t batch,
                                            uint32_t inputs, uint32_t outputs) {
    parameters p = {{0}, 0};
    POINTERS(&p, x, grad_y, grad_w, grad_b);
    NUMBERS(&p, batch, inputs, outputs, 0);
    return launch(t, t->k.dense_backward_weights, inputs * outputs, &p);
}

static rejoin_status dense_backward_input(const trainer *t, rejoin_device_ptr grad_y, rejoin_device_ptr w,
                                          rejoin_device_ptr grad_x, uint32_t batch, uint32_t inputs, uint32_t outputs) {
    parameters p = {{0}, 0};
    POINTERS(&p, grad_y, w, grad_x);
    NUMBERS(&p, batch, inputs, outputs);
    return launch(t, t->k.dense_backward_input, batch * inputs, &p);
}

static rejoin_status relu(const trainer *t, rejoin_device_ptr x, uint64_t n) {
    parameters p = {{0}, 0};
    POINTERS(&p, x);
    put(&p, &n, sizeof n);
    return launch(t, t->k.relu, (uint32_t)n, &p);
}

static rejoin_status relu_backward(const trainer *t, rejoin_device_ptr y, rejoin_device_ptr grad, uint64_t n) {
    parameters p = {{0}, 0};
    POINTERS(&p, y, grad);
    put(&p, &n, sizeof n);
    return launch(t, t->k.relu_backward, (uint32_t)n, &p);
}

static rejoin_status softmax_cross_entropy(const trainer *t, rejoin_device_ptr loss, uint32_t batch) {
    float scale = 1.0f / BATCH;
    parameters p = {{0}, 0};
    POINTERS(&p, t->b.logits, t->b.batch_labels, t->b.grad_logits, loss);
    NUMBERS(&p, batch, CLASSES);
    put(&p, &scale, sizeof scale);
    return launch(t, t->k.softmax_cross_entropy, batch, &p);
}

static rejoin_status sgd_momentum(const trainer *t) {
    uint64_t n = PARAMETERS;
    parameters p = {{0}, 0};
    POINTERS(&p, t->b.parameters, t->b.velocity, t->b.gradient);
    put(&p, &n, sizeof n);
    put(&p, &LEARNING_RATE, sizeof LEARNING_RATE);
    put(&p, &MOMENTUM, sizeof MOMENTUM);
    return launch(t, t->k.sgd_momentum, PARAMETERS, &p);
}

/* ---- set-up: module, communicator, memory. A replacement does exactly the same. ---- */

static rejoin_status load_kernels(trainer *t, const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return REJOIN_STATUS_NOT_FOUND;
    }
    rejoin_status status = REJOIN_STATUS_IO;
    unsigned char *image = NULL;
    if (fseek(file, 0, SEEK_END) != 0) goto cleanup;
    long size = ftell(file);
    rewind(file);
    image = size > 0 ? malloc((size_t)size) : NULL;
    if (image == NULL || fread(image, 1, (size_t)size, file) != (size_t)size) {
        fprintf(stderr, "cannot read %s\n", path);
        goto cleanup;
    }
    rejoin_handle module;
    status = rejoin_module_load(t->session, &module, image, (size_t)size);
    struct {
        const char *name;
        rejoin_handle *function;
    } functions[] = {{"gather_rows", &t->k.gather_rows},
                     {"dense_forward", &t->k.dense_forward},
                     {"dense_backward_weights", &t->k.dense_backward_weights},
                     {"dense_backward_input", &t->k.dense_backward_input},
                     {"relu", &t->k.relu},
                     {"relu_backward", &t->k.relu_backward},
                     {"softmax_cross_entropy", &t->k.softmax_cross_entropy},
                     {"sgd_momentum", &t->k.sgd_momentum}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions && status == REJOIN_STATUS_OK; i++) {
        status = rejoin_module_get_function(t->session, functions[i].function, module, functions[i].name);
    }
cleanup:
    free(image);
    fclose(file);
    return status;
}

static rejoin_status join(trainer *t, const rejoin_session_info *info) {
    rejoin_unique_id id;
    size_t bytes;
    if (info->rank == 0) {
        TRY(rejoin_get_unique_id(t->session, &id));
        TRY(rejoin_exchange_publish(t->session, "digits", &id, sizeof id));
    } else {
        TRY(rejoin_exchange_await(t->session, "digits", &id, sizeof id, &bytes));
    }
    rejoin_comm_config config = REJOIN_COMM_CONFIG_INIT;
    config.comm_name = "digits";
    return rejoin_comm_init_rank_config(t->session, info->nranks, &id, info->rank, &config, &t->comm);
}

static rejoin_status buffer(const trainer *t, const char *name, size_t elements, rejoin_state_kind kind, rejoin_device_ptr *out) {
    uint64_t bytes = 4 * (uint64_t)elements;
    TRY(rejoin_mem_alloc(t->session, bytes, out));
    return rejoin_state_register(t->session, name, *out, bytes, kind, t->comm);
}

static rejoin_status allocate(trainer *t, uint32_t nranks) {
    const samples *train = &t->data->train;
    size_t part = (BATCH + nranks - 1) / nranks;
    buffers *b = &t->b;
    TRY(buffer(t, "images", (size_t)train->count * PIXELS, REJOIN_STATE_KIND_CONSTANT, &b->images));
    TRY(buffer(t, "labels", train->count, REJOIN_STATE_KIND_CONSTANT, &b->labels));
    TRY(buffer(t, "parameters", PARAMETERS, REJOIN_STATE_KIND_REPLICATED, &b->parameters));
    TRY(buffer(t, "velocity", PARAMETERS, REJOIN_STATE_KIND_REPLICATED, &b->velocity));
    TRY(buffer(t, "gradient", PARAMETERS + 1, REJOIN_STATE_KIND_SCRATCH, &b->gradient));
    TRY(buffer(t, "index", part, REJOIN_STATE_KIND_SCRATCH, &b->index));
    TRY(buffer(t, "batch images", part * PIXELS, REJOIN_STATE_KIND_SCRATCH, &b->batch_images));
    TRY(buffer(t, "batch labels", part, REJOIN_STATE_KIND_SCRATCH, &b->batch_labels));
    TRY(buffer(t, "hidden", part * HIDDEN, REJOIN_STATE_KIND_SCRATCH, &b->hidden));
    TRY(buffer(t, "logits", part * CLASSES, REJOIN_STATE_KIND_SCRATCH, &b->logits));
    TRY(buffer(t, "gradient of logits", part * CLASSES, REJOIN_STATE_KIND_SCRATCH, &b->grad_logits));
    TRY(buffer(t, "gradient of hidden", part * HIDDEN, REJOIN_STATE_KIND_SCRATCH, &b->grad_hidden));

    float initial[PARAMETERS];
    TRY(rejoin_memcpy_htod(t->session, b->images, train->images, 4 * (size_t)train->count * PIXELS));
    TRY(rejoin_memcpy_htod(t->session, b->labels, train->labels, 4 * (size_t)train->count));
    model_initial(SEED, initial);
    TRY(rejoin_memcpy_htod(t->session, b->parameters, initial, sizeof initial));
    memset(initial, 0, sizeof initial);
    return rejoin_memcpy_htod(t->session, b->velocity, initial, sizeof initial);
}

/* ---- a step ---- */

static rejoin_device_ptr element(rejoin_device_ptr buffer, uint64_t index) {
    return buffer + 4 * index;
}

/* Forward and backward over this rank's part of the batch. Each sample counts 1/256, however many ranks there are. */
static rejoin_status compute_gradient(const trainer *t, const uint32_t batch[BATCH]) {
    /* The rank within the communicator: recovery may be told to renumber. */
    int32_t rank, nranks;
    TRY(rejoin_comm_user_rank(t->session, t->comm, &rank));
    TRY(rejoin_comm_count(t->session, t->comm, &nranks));
    uint32_t first = (uint32_t)(BATCH * rank / nranks), n = (uint32_t)(BATCH * (rank + 1) / nranks) - first;
    if (n == 0) return REJOIN_STATUS_OK;
    const buffers *b = &t->b;
    rejoin_device_ptr w1 = element(b->parameters, W1), b1 = element(b->parameters, B1);
    rejoin_device_ptr w2 = element(b->parameters, W2), b2 = element(b->parameters, B2);
    TRY(rejoin_memcpy_htod(t->session, b->index, batch + first, n * sizeof *batch));
    TRY(gather_rows(t, b->images, n, b->batch_images, PIXELS));
    TRY(gather_rows(t, b->labels, n, b->batch_labels, 1));
    TRY(dense_forward(t, b->batch_images, w1, b1, b->hidden, n, PIXELS, HIDDEN));
    TRY(relu(t, b->hidden, (uint64_t)n * HIDDEN));
    TRY(dense_forward(t, b->hidden, w2, b2, b->logits, n, HIDDEN, CLASSES));
    TRY(softmax_cross_entropy(t, element(b->gradient, PARAMETERS), n));
    TRY(dense_backward_weights(t, b->hidden, b->grad_logits, element(b->gradient, W2), element(b->gradient, B2), n, HIDDEN, CLASSES));
    TRY(dense_backward_input(t, b->grad_logits, w2, b->grad_hidden, n, HIDDEN, CLASSES));
    TRY(relu_backward(t, b->hidden, b->grad_hidden, (uint64_t)n * HIDDEN));
    return dense_backward_weights(t, b->batch_images, b->grad_hidden, element(b->gradient, W1), element(b->gradient, B1), n, PIXELS, HIDDEN);
}

/* One step. Nothing writes parameters before the whole job has decided GO, which rejoin_step_end() returns as OK. */
static rejoin_status run_step(const trainer *t, uint32_t step, loader *at) {
    loader next = *at;
    uint32_t batch[BATCH];
    loader_next(&next, t->data->train.count, batch);
    TRY(rejoin_step_begin(t->session, step));
    TRY(compute_gradient(t, batch));
    TRY(rejoin_all_reduce(t->session, t->b.gradient, t->b.gradient, PARAMETERS + 1, REJOIN_DATA_TYPE_FLOAT32,
                          REJOIN_REDUCE_OP_SUM, t->comm, t->stream));
    TRY(rejoin_step_end(t->session, &next, sizeof next));
    TRY(sgd_momentum(t));
    TRY(rejoin_step_commit(t->session));
    *at = next;
    return REJOIN_STATUS_OK;
}

/* Takes the loader's position out of the blob that belongs to a step; the start where it is empty. */
static int position(const void *blob, size_t bytes, loader *at) {
    *at = (loader){SEED, 0, 0};
    if (bytes == 0) return 0;
    if (bytes != sizeof *at) {
        fprintf(stderr, "a loader position has %zu bytes, not %zu\n", sizeof *at, bytes);
        return 1;
    }
    memcpy(at, blob, bytes);
    return 0;
}

static int train(const trainer *t, uint32_t steps, float weights[PARAMETERS]) {
    uint32_t step;
    const void *blob;
    size_t bytes;
    loader at;
    CHECK(rejoin_setup_done(t->session, &step, &blob, &bytes));
    if (position(blob, bytes, &at) != 0) goto cleanup;
    for (;;) {
        rejoin_status status = step < steps ? run_step(t, step, &at)
                                            : rejoin_memcpy_dtoh(t->session, weights, t->b.parameters, 4 * PARAMETERS);
        if (status == REJOIN_STATUS_REDO) {
            CHECK(rejoin_resume(t->session, &step, &blob, &bytes));
            if (position(blob, bytes, &at) != 0) goto cleanup;
            continue;
        }
        CHECK(status);
        if (step == steps) return 0;
        step++;
    }
cleanup:
    return 1;
}

int main(int argc, char **argv) {
    uint32_t steps = 200;
    const char *kernel_path = DIGITS_KERNELS, *data_path = DIGITS_DATA;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value != NULL && strcmp(argv[i], "--steps") == 0) {
            steps = (uint32_t)strtoul(value, NULL, 10);
        } else if (value != NULL && strcmp(argv[i], "--kernels") == 0) {
            kernel_path = value;
        } else if (value != NULL && strcmp(argv[i], "--data") == 0) {
            data_path = value;
        } else {
            fprintf(stderr, "usage: rejoin run -n 4 --backend host -- %s [--steps N] [--kernels FILE] [--data FILE]\n", argv[0]);
            return 2;
        }
    }
    int result = 1;
    rejoin_session_info info = REJOIN_SESSION_INFO_INIT;
    float weights[PARAMETERS];
    char hash[65];
    trainer t;
    memset(&t, 0, sizeof t);
    t.data = malloc(sizeof *t.data);
    if (t.data == NULL || dataset_load(data_path, t.data) != 0) goto cleanup;

    CHECK(rejoin_session_open(NULL, &t.session));
    CHECK(rejoin_session_get_info(t.session, &info));
    CHECK(rejoin_stream_create(t.session, &t.stream, 0, 0));
    CHECK(load_kernels(&t, kernel_path));
    CHECK(join(&t, &info));
    CHECK(allocate(&t, info.nranks));
    if (train(&t, steps, weights) != 0) goto cleanup;
    if (info.rank == 0) {
        sha256_hex(weights, sizeof weights, hash);
        printf("%u of %u test images are right, weights %s\n", (unsigned)model_count_correct(weights, &t.data->test),
               (unsigned)t.data->test.count, hash);
    }
    CHECK(rejoin_session_finalize(t.session));
    result = 0;
cleanup:
    rejoin_session_close(t.session);
    free(t.data);
    return result;
}
