/*
 * The digits trainer of ../c over rejoin.hpp, with exceptions: REDO is one, caught in the training loop.
 *
 *     rejoin run -n 4 --backend host -- build/examples/digits_cpp [STEPS]
 */
#include "dataset.h"
#include "loader.h"
#include "model.h"
#include "sha256.h"

#include <rejoin.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using rejoin::check;
using rejoin::Parameters;
using Pointer = rejoin_device_ptr;

const std::uint64_t SEED = 2;
const float LEARNING_RATE = 0.3f, MOMENTUM = 0.9f;

/* Kernels of a loaded module, all on one stream. */
class Kernels {
public:
    Kernels(const rejoin::Session &session, const std::string &path) : session_(session) {
        std::ifstream file(path, std::ios::binary);
        const std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        check(rejoin_stream_create(session.get(), &stream_, 0, 0));
        check(rejoin_module_load(session.get(), &module_, image.data(), image.size()));
    }
    rejoin_handle stream() const { return stream_; }
    rejoin_handle find(const char *name) const {
        rejoin_handle function = 0;
        check(rejoin_module_get_function(session_.get(), &function, module_, name));
        return function;
    }
    /* One block per 256 elements: what a GPU wants; the host backend does all the work of a launch at once. */
    void launch(rejoin_handle function, std::uint32_t elements, const Parameters &p) const {
        const std::uint32_t blocks = elements > 0 ? (elements + 255) / 256 : 1;
        check(rejoin_launch_kernel(session_.get(), function, blocks, 1, 1, 256, 1, 1, 0, stream_, p.data(), p.size()));
    }

private:
    const rejoin::Session &session_;
    rejoin_handle stream_ = 0, module_ = 0;
};

Pointer element(Pointer buffer, std::uint64_t index) {
    return buffer + 4 * index;
}

class Trainer {
public:
    /* The set-up: module, communicator, memory. A replacement does exactly the same. */
    Trainer(rejoin::Session &session, const dataset &data)
        : session_(session), data_(data), info_(session.info().value()), kernels_(session, DIGITS_KERNELS),
          gather_rows_(kernels_.find("gather_rows")), dense_forward_(kernels_.find("dense_forward")),
          dense_backward_weights_(kernels_.find("dense_backward_weights")),
          dense_backward_input_(kernels_.find("dense_backward_input")), relu_(kernels_.find("relu")),
          relu_backward_(kernels_.find("relu_backward")), softmax_(kernels_.find("softmax_cross_entropy")),
          sgd_momentum_(kernels_.find("sgd_momentum")), comm_(join()) {
        const std::size_t samples = data.train.count, part = (BATCH + info_.nranks - 1) / info_.nranks;
        images_ = buffer("images", samples * PIXELS, REJOIN_STATE_KIND_CONSTANT);
        labels_ = buffer("labels", samples, REJOIN_STATE_KIND_CONSTANT);
        parameters_ = buffer("parameters", PARAMETERS, REJOIN_STATE_KIND_REPLICATED);
        velocity_ = buffer("velocity", PARAMETERS, REJOIN_STATE_KIND_REPLICATED);
        gradient_ = buffer("gradient", PARAMETERS + 1, REJOIN_STATE_KIND_SCRATCH);
        index_ = buffer("index", part, REJOIN_STATE_KIND_SCRATCH);
        batch_images_ = buffer("batch images", part * PIXELS, REJOIN_STATE_KIND_SCRATCH);
        batch_labels_ = buffer("batch labels", part, REJOIN_STATE_KIND_SCRATCH);
        hidden_ = buffer("hidden", part * HIDDEN, REJOIN_STATE_KIND_SCRATCH);
        logits_ = buffer("logits", part * CLASSES, REJOIN_STATE_KIND_SCRATCH);
        grad_logits_ = buffer("gradient of logits", part * CLASSES, REJOIN_STATE_KIND_SCRATCH);
        grad_hidden_ = buffer("gradient of hidden", part * HIDDEN, REJOIN_STATE_KIND_SCRATCH);
        std::vector<float> initial(PARAMETERS);
        upload(images_, data.train.images, samples * PIXELS);
        upload(labels_, data.train.labels, samples);
        model_initial(SEED, initial.data());
        upload(parameters_, initial.data(), initial.size());
        upload(velocity_, std::vector<float>(PARAMETERS).data(), PARAMETERS);
    }

    /* Trains to the last step; the final parameters. */
    std::vector<float> train(std::uint32_t steps) {
        rejoin::Position at = session_.setup_done().value();
        std::vector<float> weights(PARAMETERS);
        for (;;) {
            try {
                if (at.step == steps) {
                    check(rejoin_memcpy_dtoh(session_.get(), weights.data(), parameters_, 4 * PARAMETERS));
                    return weights;
                }
                run_step(at);
            } catch (const rejoin::Error &error) {
                if (!error.redo()) throw;
                at = session_.resume().value();
            }
        }
    }

    std::uint32_t rank() const { return info_.rank; }

private:
    rejoin_handle join() const {
        rejoin_unique_id id;
        if (info_.rank == 0) {
            check(rejoin_get_unique_id(session_.get(), &id));
            session_.publish("digits", &id, sizeof id).check();
        } else {
            const std::vector<unsigned char> bytes = session_.await("digits").value();
            if (bytes.size() != sizeof id) throw std::runtime_error("a unique id has 128 bytes");
            std::memcpy(&id, bytes.data(), sizeof id);
        }
        rejoin_comm_config config = REJOIN_COMM_CONFIG_INIT;
        config.comm_name = "digits";
        rejoin_handle comm = 0;
        check(rejoin_comm_init_rank_config(session_.get(), info_.nranks, &id, info_.rank, &config, &comm));
        return comm;
    }

    Pointer buffer(const char *name, std::size_t elements, rejoin_state_kind kind) const {
        Pointer address = 0;
        check(rejoin_mem_alloc(session_.get(), 4 * elements, &address));
        session_.state_register(name, address, 4 * elements, kind, comm_).check();
        return address;
    }

    template <typename T>
    void upload(Pointer to, const T *values, std::size_t count) const {
        check(rejoin_memcpy_htod(session_.get(), to, values, count * sizeof(T)));
    }

    /* One step; moves the position behind it. */
    void run_step(rejoin::Position &at) {
        loader next = {SEED, 0, 0};
        if (!at.blob.empty()) {
            if (at.blob.size() != sizeof next) throw std::runtime_error("a loader position has 24 bytes");
            std::memcpy(&next, at.blob.data(), sizeof next);
        }
        std::uint32_t batch[BATCH];
        loader_next(&next, data_.train.count, batch);
        session_.step_begin(at.step).check();
        compute_gradient(batch);
        check(rejoin_all_reduce(session_.get(), gradient_, gradient_, PARAMETERS + 1, REJOIN_DATA_TYPE_FLOAT32,
                                REJOIN_REDUCE_OP_SUM, comm_, kernels_.stream()));
        session_.step_end(&next, sizeof next).check();
        const std::uint64_t n = PARAMETERS;
        kernels_.launch(sgd_momentum_, PARAMETERS,
                        Parameters().add(parameters_).add(velocity_).add(gradient_).add(n).add(LEARNING_RATE).add(MOMENTUM));
        session_.step_commit().check();
        at.step++;
        const unsigned char *first = reinterpret_cast<const unsigned char *>(&next);
        at.blob.assign(first, first + sizeof next);
    }

    /* Forward and backward over this rank's part of the batch. */
    void compute_gradient(const std::uint32_t *batch) const {
        /* The rank within the communicator: recovery may be told to renumber. */
        std::int32_t rank = 0, nranks = 0;
        check(rejoin_comm_user_rank(session_.get(), comm_, &rank));
        check(rejoin_comm_count(session_.get(), comm_, &nranks));
        const std::uint32_t first = static_cast<std::uint32_t>(BATCH * rank / nranks);
        const std::uint32_t n = static_cast<std::uint32_t>(BATCH * (rank + 1) / nranks) - first;
        if (n == 0) return;
        const std::uint32_t pixels = PIXELS, hidden = HIDDEN, classes = CLASSES, one = 1, zero = 0, count = data_.train.count;
        const Pointer w1 = element(parameters_, W1), b1 = element(parameters_, B1);
        const Pointer w2 = element(parameters_, W2), b2 = element(parameters_, B2);
        const std::uint64_t units = std::uint64_t(n) * HIDDEN;
        const float scale = 1.0f / BATCH;
        upload(index_, batch + first, n);
        kernels_.launch(gather_rows_, n * pixels, Parameters().add(images_).add(index_).add(batch_images_).add(count).add(n).add(pixels));
        kernels_.launch(gather_rows_, n, Parameters().add(labels_).add(index_).add(batch_labels_).add(count).add(n).add(one));
        kernels_.launch(dense_forward_, n * hidden, Parameters().add(batch_images_).add(w1).add(b1).add(hidden_).add(n).add(pixels).add(hidden));
        kernels_.launch(relu_, n * hidden, Parameters().add(hidden_).add(units));
        kernels_.launch(dense_forward_, n * classes, Parameters().add(hidden_).add(w2).add(b2).add(logits_).add(n).add(hidden).add(classes));
        kernels_.launch(softmax_, n, Parameters().add(logits_).add(batch_labels_).add(grad_logits_).add(element(gradient_, PARAMETERS))
                                         .add(n).add(classes).add(scale));
        kernels_.launch(dense_backward_weights_, hidden * classes,
                        Parameters().add(hidden_).add(grad_logits_).add(element(gradient_, W2)).add(element(gradient_, B2))
                            .add(n).add(hidden).add(classes).add(zero));
        kernels_.launch(dense_backward_input_, n * hidden,
                        Parameters().add(grad_logits_).add(w2).add(grad_hidden_).add(n).add(hidden).add(classes));
        kernels_.launch(relu_backward_, n * hidden, Parameters().add(hidden_).add(grad_hidden_).add(units));
        kernels_.launch(dense_backward_weights_, pixels * hidden,
                        Parameters().add(batch_images_).add(grad_hidden_).add(element(gradient_, W1)).add(element(gradient_, B1))
                            .add(n).add(pixels).add(hidden).add(zero));
    }

    rejoin::Session &session_;
    const dataset &data_;
    rejoin_session_info info_;
    Kernels kernels_;
    rejoin_handle gather_rows_, dense_forward_, dense_backward_weights_, dense_backward_input_, relu_, relu_backward_, softmax_,
        sgd_momentum_, comm_;
    Pointer images_ = 0, labels_ = 0, parameters_ = 0, velocity_ = 0, gradient_ = 0, index_ = 0, batch_images_ = 0,
            batch_labels_ = 0, hidden_ = 0, logits_ = 0, grad_logits_ = 0, grad_hidden_ = 0;
};

} // namespace

int main(int argc, char **argv) {
    try {
        const std::uint32_t steps = argc > 1 ? static_cast<std::uint32_t>(std::strtoul(argv[1], nullptr, 10)) : 200;
        const std::unique_ptr<dataset> data(new dataset);
        if (dataset_load(DIGITS_DATA, data.get()) != 0) return 1;
        /* Before the session, so that it outlives it. */
        const std::function<void(const rejoin_event &)> report = [](const rejoin_event &event) {
            if (event.kind == REJOIN_EVENT_KIND_RECOVERED)
                std::fprintf(stderr, "event: recovered, epoch %u, step %u\n", event.epoch, event.step);
        };
        rejoin::Session session = rejoin::Session::open().value();
        session.on_event(report).check();
        Trainer trainer(session, *data);
        const std::vector<float> weights = trainer.train(steps);
        if (trainer.rank() == 0) {
            char hash[65];
            sha256_hex(weights.data(), 4 * weights.size(), hash);
            std::printf("%u of %u test images are right, weights %s\n", model_count_correct(weights.data(), &data->test),
                        data->test.count, hash);
        }
        session.finalize().check();
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
