/* A function for events that throws, every time and not only what derives from std::exception: the job goes on, and the
 * next event comes all the same. Run by `rejoin run -n 2 --backend host`: rank 1 kills itself in step 3; each rank prints
 * its failures, and rank 0 "ok". No rank waits for another inside a step. With the argument "raw" it is the function of
 * C that throws, which ends the process. */
#define _POSIX_C_SOURCE 200809L
#include <rejoin.hpp>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>

namespace {

std::mutex mutex;
std::condition_variable changed;
bool doomed, recovered;

void on_event(const rejoin_event &event) {
    {
        std::lock_guard<std::mutex> lock(mutex);
        doomed = doomed || event.kind == REJOIN_EVENT_KIND_REDO;
        recovered = recovered || event.kind == REJOIN_EVENT_KIND_RECOVERED;
    }
    changed.notify_all();
    if (event.kind == REJOIN_EVENT_KIND_REDO) throw std::runtime_error("thrown by the application");
    throw 7;
}

void raw(const rejoin_event *, void *) { throw std::runtime_error("thrown into C"); }

rejoin::Status run_step(rejoin::Session &session, uint32_t step) {
    rejoin::Status status = session.step_begin(step);
    if (status.ok()) status = session.step_end();
    if (status.ok()) status = session.step_commit();
    return status;
}

int run(bool is_raw) {
    rejoin::Session session = rejoin::Session::open().value();
    const rejoin_session_info info = session.info().value();
    const std::function<void(const rejoin_event &)> function = on_event;
    if (is_raw) {
        rejoin::check(rejoin_session_on_event(session.get(), raw, nullptr));
    } else {
        session.on_event(function).check();
    }
    rejoin::Position at = session.setup_done().value();
    while (at.step < 6) {
        if (at.step == 3 && info.rank == 1 && !info.is_replacement) std::raise(SIGKILL);
        rejoin::Status status = run_step(session, at.step);
        if (status.redo()) {
            at = session.resume().value();
            continue;
        }
        status.check();
        at.step++;
    }
    if (!info.is_replacement) {
        /* Nobody waits that long: events are there soon, or never come. */
        std::unique_lock<std::mutex> lock(mutex);
        if (!changed.wait_for(lock, std::chrono::seconds(60), [] { return doomed && recovered; })) {
            std::fprintf(stderr, "rank %u: no event after the one that threw\n", info.rank);
            return 1;
        }
    }
    session.finalize().check();
    session.reset();
    if (info.rank == 0) std::puts("ok");
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    try {
        return run(argc > 1 && std::strcmp(argv[1], "raw") == 0);
    } catch (const rejoin::Error &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
