/*
 * Rejoin for C++11 and later: the objects of rejoin.h as owners, statuses as results or exceptions.
 *
 *     rejoin::Session session = rejoin::Session::open().value();
 *     ...
 *     rejoin::Position at = session.setup_done().value();
 *     while (at.step < steps) {
 *         rejoin::Status status = run_step(session, at);          // begin, requests, end, optimizer, commit
 *         if (status.redo()) { at = session.resume().value(); continue; }
 *         status.check();
 *         at.step++;
 *     }
 *     session.finalize().check();
 *
 * Nothing throws but check() and value(). With -fno-exceptions, or where REJOIN_NO_EXCEPTIONS is defined, these two
 * print the message and abort; ask ok() first there. Requests are the functions of rejoin.h on session.get().
 *
 * No destructor leaves the job: only finalize() does. A program that unwinds out of main without it counts as dead and
 * is replaced.
 */
#ifndef REJOIN_HPP
#define REJOIN_HPP

#include "rejoin.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#if !defined(REJOIN_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define REJOIN_NO_EXCEPTIONS
#endif

#ifndef REJOIN_NO_EXCEPTIONS
#include <stdexcept>
#endif

namespace rejoin {

#ifndef REJOIN_NO_EXCEPTIONS
/* A status that is not OK, with the message of the call. */
class Error : public std::runtime_error {
public:
    Error(rejoin_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
    rejoin_status status() const noexcept { return status_; }
    /* Not a failure of the program: call Session::resume(). */
    bool redo() const noexcept { return status_ == REJOIN_STATUS_REDO; }

private:
    rejoin_status status_;
};
#endif

/* What a call ended with. Keeps the thread's message when it is not OK. */
class Status {
public:
    Status(rejoin_status status) : status_(status) {
        if (status != REJOIN_STATUS_OK) message_ = rejoin_last_error();
    }
    bool ok() const noexcept { return status_ == REJOIN_STATUS_OK; }
    /* A rank failed: call Session::resume() and run the step again. */
    bool redo() const noexcept { return status_ == REJOIN_STATUS_REDO; }
    rejoin_status code() const noexcept { return status_; }
    const std::string &message() const noexcept { return message_; }
    /* Nothing on OK; else throws Error, or prints the message and aborts. */
    void check() const {
        if (ok()) return;
        const std::string text = std::string(rejoin_status_string(status_)) + ": " + message_;
#ifdef REJOIN_NO_EXCEPTIONS
        std::fprintf(stderr, "rejoin: %s\n", text.c_str());
        std::abort();
#else
        throw Error(status_, text);
#endif
    }

private:
    rejoin_status status_;
    std::string message_;
};

/* Throws Error unless the status is OK: for the functions of rejoin.h. */
inline void check(rejoin_status status) {
    if (status != REJOIN_STATUS_OK) Status(status).check();
}

/* A value, or why there is none. */
template <typename T>
class Result {
public:
    Result(Status status, T value) : status_(std::move(status)), value_(std::move(value)) {}
    bool ok() const noexcept { return status_.ok(); }
    bool redo() const noexcept { return status_.redo(); }
    const Status &status() const noexcept { return status_; }
    /* The value; throws Error, or aborts, where there is none. */
    T value() && {
        status_.check();
        return std::move(value_);
    }

private:
    Status status_;
    T value_;
};

/* Owns an object of rejoin.h; empty when default-constructed or moved from. */
template <typename T, rejoin_status (*Close)(T *)>
class Owner {
public:
    Owner() noexcept : object_(nullptr) {}
    explicit Owner(T *object) noexcept : object_(object) {}
    Owner(Owner &&other) noexcept : object_(other.release()) {}
    Owner &operator=(Owner &&other) noexcept {
        if (this != &other) reset(other.release());
        return *this;
    }
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
    ~Owner() { Close(object_); }

    T *get() const noexcept { return object_; }
    explicit operator bool() const noexcept { return object_ != nullptr; }
    T *release() noexcept {
        T *object = object_;
        object_ = nullptr;
        return object;
    }
    void reset(T *object = nullptr) noexcept {
        Close(object_);
        object_ = object;
    }

private:
    T *object_;
};

using Bytes = std::vector<unsigned char>;

namespace detail {

/* Handles of a journal: the number first, then as many. Others may come and go between the two calls. */
template <typename T>
Result<std::vector<rejoin_handle_entry>> handles(T *object,
                                                 rejoin_status (*list)(const T *, rejoin_handle_entry *, size_t, size_t *)) {
    std::vector<rejoin_handle_entry> entries;
    size_t count = 0;
    Status status = list(object, nullptr, 0, &count);
    if (status.ok()) {
        entries.resize(count);
        status = list(object, entries.data(), entries.size(), &count);
        if (count < entries.size()) entries.resize(count);
    }
    return Result<std::vector<rejoin_handle_entry>>(std::move(status), std::move(entries));
}

/* The length first, then as many. A writer may go on to another step between the two calls. */
template <typename Call>
Result<Bytes> bytes(Call call) {
    Bytes value;
    size_t length = 0;
    Status status = call(nullptr, size_t(0), &length);
    if (status.ok() && length > 0) {
        value.resize(length);
        status = call(value.data(), value.size(), &length);
        value.resize(status.ok() ? length : 0);
    }
    return Result<Bytes>(std::move(status), std::move(value));
}

} // namespace detail

/* Where the job stands. */
struct Position {
    Position() : step(0) {}
    /* Step to run. */
    uint32_t step;
    /* What the rank gave to the step_end() before it; empty for step 0. */
    Bytes blob;
};

/* One look at a journal. */
class Snapshot : public Owner<rejoin_snapshot, rejoin_snapshot_close> {
public:
    using Owner::Owner;

    Result<rejoin_snapshot_info> info() const {
        rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
        Status status = rejoin_snapshot_get_info(get(), &info);
        return Result<rejoin_snapshot_info>(std::move(status), info);
    }
    /* REJOIN_STATUS_NOT_FOUND behind the last one, as in the next two. */
    Result<rejoin_record> record(uint64_t index) const {
        rejoin_record record = REJOIN_RECORD_INIT;
        Status status = rejoin_snapshot_get(get(), index, &record);
        return Result<rejoin_record>(std::move(status), record);
    }
    Result<rejoin_lane> lane(uint64_t index) const {
        rejoin_lane lane = REJOIN_LANE_INIT;
        Status status = rejoin_snapshot_get_lane(get(), index, &lane);
        return Result<rejoin_lane>(std::move(status), lane);
    }
    /* What stands against a replay. Its texts are the snapshot's. */
    Result<rejoin_obstacle> obstacle(uint64_t index) const {
        rejoin_obstacle obstacle = REJOIN_OBSTACLE_INIT;
        Status status = rejoin_snapshot_get_obstacle(get(), index, &obstacle);
        return Result<rejoin_obstacle>(std::move(status), obstacle);
    }
    /* First and number of the sequence numbers that no record has. */
    Result<std::pair<uint64_t, uint64_t>> missing(uint64_t index) const {
        std::pair<uint64_t, uint64_t> range(0, 0);
        Status status = rejoin_snapshot_get_missing(get(), index, &range.first, &range.second);
        return Result<std::pair<uint64_t, uint64_t>>(std::move(status), range);
    }
};

/* A journal open for writing. */
class Journal : public Owner<rejoin_journal, rejoin_journal_close> {
public:
    using Owner::Owner;

    static Result<Journal> create(const rejoin_journal_options &options) {
        rejoin_journal *journal = nullptr;
        Status status = rejoin_journal_create(&options, &journal);
        return Result<Journal>(std::move(status), Journal(journal));
    }
    static Result<Journal> open(const std::string &name) {
        rejoin_journal *journal = nullptr;
        Status status = rejoin_journal_open(name.c_str(), &journal);
        return Result<Journal>(std::move(status), Journal(journal));
    }

    std::string name() const { return rejoin_journal_name(get()); }
    Result<rejoin_record_ref> append(rejoin_region region, uint16_t kind, const void *payload, size_t bytes) const {
        rejoin_record_ref record = {0, 0};
        Status status = rejoin_journal_append(get(), static_cast<uint32_t>(region), kind, payload, bytes, &record);
        return Result<rejoin_record_ref>(std::move(status), record);
    }
    /* Several parts, flags, vital and absent records. */
    Result<rejoin_record_ref> append(const rejoin_append_options &options, const std::vector<rejoin_part> &parts) const {
        rejoin_record_ref record = {0, 0};
        Status status = rejoin_journal_append_parts(get(), &options, parts.data(), parts.size(), &record);
        return Result<rejoin_record_ref>(std::move(status), record);
    }
    Status complete(const rejoin_record_ref &record, uint64_t result) const {
        return rejoin_journal_complete(get(), &record, result);
    }
    Status note_dropped() const { return rejoin_journal_note_dropped(get()); }
    /* These two give the boundary: step records below it are over. */
    Result<uint64_t> step_commit(uint32_t step) const {
        uint64_t boundary = 0;
        Status status = rejoin_journal_step_commit(get(), step, &boundary);
        return Result<uint64_t>(std::move(status), boundary);
    }
    Result<uint64_t> step_discard() const {
        uint64_t boundary = 0;
        Status status = rejoin_journal_step_discard(get(), &boundary);
        return Result<uint64_t>(std::move(status), boundary);
    }
    Status prepare(uint32_t step, const void *blob, size_t bytes,
                   const std::vector<rejoin_part> &parts = std::vector<rejoin_part>()) const {
        return rejoin_journal_prepare_parts(get(), step, blob, bytes, parts.data(), parts.size());
    }
    Status prepare_reserve(size_t blob_bytes, size_t part_bytes = 0, size_t parts = 0) const {
        return rejoin_journal_prepare_reserve(get(), blob_bytes, part_bytes, parts);
    }
    Result<Bytes> prepared(uint32_t step) const {
        return detail::bytes([this, step](void *buffer, size_t room, size_t *length) {
            return rejoin_journal_prepared(get(), step, buffer, room, length);
        });
    }
    bool wants_compaction() const {
        uint32_t wants = 0;
        return rejoin_journal_wants_compaction(get(), &wants) == REJOIN_STATUS_OK && wants == 1;
    }
    /* How many records were left out. None named: those of table requests whose objects are gone. */
    Result<uint64_t> compact(const std::vector<uint64_t> &dead = std::vector<uint64_t>()) const {
        uint64_t dropped = 0;
        Status status = rejoin_journal_compact(get(), dead.data(), dead.size(), &dropped);
        return Result<uint64_t>(std::move(status), dropped);
    }
    Result<uint32_t> reap() const {
        uint32_t reaped = 0;
        Status status = rejoin_journal_reap(get(), &reaped);
        return Result<uint32_t>(std::move(status), reaped);
    }
    Status finish() const { return rejoin_journal_finish(get()); }
    Result<Snapshot> snapshot(uint64_t after = 0) const {
        rejoin_snapshot *snapshot = nullptr;
        Status status = rejoin_journal_snapshot(get(), after, &snapshot);
        return Result<Snapshot>(std::move(status), Snapshot(snapshot));
    }
    Status unlink() const { return rejoin_journal_unlink(get()); }
    static Status remove(const std::string &name) { return rejoin_journal_remove(name.c_str()); }

    Result<rejoin_handle> reserve(rejoin_handle_kind kind) const {
        rejoin_handle handle = 0;
        Status status = rejoin_handle_reserve(get(), static_cast<uint32_t>(kind), &handle);
        return Result<rejoin_handle>(std::move(status), handle);
    }
    Status bind(rejoin_handle handle, uint64_t real) const { return rejoin_handle_bind(get(), handle, real); }
    Status rebind(rejoin_handle handle, uint64_t real) const { return rejoin_handle_rebind(get(), handle, real); }
    Result<uint64_t> resolve(rejoin_handle handle, rejoin_handle_kind kind) const {
        uint64_t real = 0;
        Status status = rejoin_handle_resolve(get(), handle, static_cast<uint32_t>(kind), &real);
        return Result<uint64_t>(std::move(status), real);
    }
    Status unbind(rejoin_handle_kind kind) const { return rejoin_handle_unbind_kind(get(), static_cast<uint32_t>(kind)); }
    Status retire(rejoin_handle handle) const { return rejoin_handle_retire(get(), handle); }
    Result<std::vector<rejoin_handle_entry>> handles() const {
        return detail::handles<rejoin_journal>(get(), rejoin_journal_handles);
    }
};

/* A journal open for reading, of a live or a dead writer. */
class Reader : public Owner<rejoin_reader, rejoin_reader_close> {
public:
    using Owner::Owner;

    static Result<Reader> open(const std::string &name) {
        rejoin_reader *reader = nullptr;
        Status status = rejoin_reader_open(name.c_str(), &reader);
        return Result<Reader>(std::move(status), Reader(reader));
    }
    Result<rejoin_reader_info> info() const {
        rejoin_reader_info info = REJOIN_READER_INFO_INIT;
        Status status = rejoin_reader_get_info(get(), &info);
        return Result<rejoin_reader_info>(std::move(status), info);
    }
    Result<Snapshot> snapshot(uint64_t after = 0) const {
        rejoin_snapshot *snapshot = nullptr;
        Status status = rejoin_reader_snapshot(get(), after, &snapshot);
        return Result<Snapshot>(std::move(status), Snapshot(snapshot));
    }
    Result<Bytes> prepared(uint32_t step) const {
        return detail::bytes([this, step](void *buffer, size_t room, size_t *length) {
            return rejoin_reader_prepared(get(), step, buffer, room, length);
        });
    }
    Result<Bytes> prepared_part(uint32_t step, uint32_t part) const {
        return detail::bytes([this, step, part](void *buffer, size_t room, size_t *length) {
            return rejoin_reader_prepared_part(get(), step, part, buffer, room, length);
        });
    }
    Result<std::vector<rejoin_handle_entry>> handles() const {
        return detail::handles<rejoin_reader>(get(), rejoin_reader_handles);
    }
};

/* A journal as it is written: every record once. */
class Follower : public Owner<rejoin_follower, rejoin_follower_close> {
public:
    using Owner::Owner;

    static Result<Follower> open(const std::string &name) {
        rejoin_follower *follower = nullptr;
        Status status = rejoin_follower_open(name.c_str(), &follower);
        return Result<Follower>(std::move(status), Follower(follower));
    }
    /* REJOIN_STATUS_TIMEOUT: the writer lives and has nothing to say; REJOIN_STATUS_NOT_FOUND: it has ended, all was
     * told. The payload is good until the next call. */
    Result<rejoin_record> next(uint64_t timeout_ms) const {
        rejoin_record record = REJOIN_RECORD_INIT;
        Status status = rejoin_follower_next(get(), timeout_ms, &record);
        return Result<rejoin_record>(std::move(status), record);
    }
};

/* A rank of a job. */
class Session : public Owner<rejoin_session, rejoin_session_close> {
public:
    using Owner::Owner;

    /* Joins by the environment that `rejoin run` sets. */
    static Result<Session> open() { return open_with(nullptr); }
    static Result<Session> open(const rejoin_session_options &options) { return open_with(&options); }

    Result<rejoin_session_info> info() const {
        rejoin_session_info info = REJOIN_SESSION_INFO_INIT;
        Status status = rejoin_session_get_info(get(), &info);
        return Result<rejoin_session_info>(std::move(status), info);
    }
    /* OK while the open step counts. */
    Status check() const { return rejoin_session_check(get()); }

    Status publish(const std::string &key, const void *value, size_t bytes) const {
        return rejoin_exchange_publish(get(), key.c_str(), value, bytes);
    }
    Result<Bytes> await(const std::string &key) const {
        Bytes value(64 * 1024);
        size_t bytes = 0;
        Status status = rejoin_exchange_await(get(), key.c_str(), value.data(), value.size(), &bytes);
        value.resize(bytes);
        return Result<Bytes>(std::move(status), std::move(value));
    }
    Status state_register(const std::string &name, rejoin_device_ptr address, uint64_t bytes, rejoin_state_kind kind,
                          rejoin_handle comm) const {
        return rejoin_state_register(get(), name.c_str(), address, bytes, static_cast<uint32_t>(kind), comm);
    }

    /* Foreign mode: memory and streams that the application got by itself. */
    Status state_register_foreign(const std::string &name, void *address, uint64_t bytes, rejoin_state_kind kind,
                                  rejoin_handle comm) const {
        return rejoin_state_register_foreign(get(), name.c_str(), reinterpret_cast<rejoin_device_ptr>(address), bytes,
                                             static_cast<uint32_t>(kind), comm);
    }
    Result<rejoin_handle> stream_adopt(void *stream) const {
        rejoin_handle handle = 0;
        Status status = rejoin_stream_adopt(get(), stream, &handle);
        return Result<rejoin_handle>(std::move(status), handle);
    }

    Result<Position> setup_done() { return position(rejoin_setup_done); }
    Status step_begin(uint32_t step) { return rejoin_step_begin(get(), step); }
    /* OK is GO: run the optimizer, then commit. */
    Status step_end(const void *next_blob = nullptr, size_t bytes = 0) { return rejoin_step_end(get(), next_blob, bytes); }
    Status step_commit() { return rejoin_step_commit(get()); }
    Result<Position> resume() { return position(rejoin_resume); }
    /* Leaves the job together with all ranks. */
    Status finalize() { return rejoin_session_finalize(get()); }

    /* The rank's journal, for its handles and for records of the application's own. */
    Result<Journal> journal() const {
        rejoin_journal *journal = nullptr;
        Status status = rejoin_session_journal(get(), &journal);
        return Result<Journal>(std::move(status), Journal(journal));
    }
    /* What the recoveries did, the oldest first. */
    Result<std::vector<rejoin_recovery_report>> recoveries() const {
        std::vector<rejoin_recovery_report> reports;
        uint32_t count = 0;
        Status status = rejoin_recovery_count(get(), &count);
        while (status.ok() && reports.size() < count) {
            rejoin_recovery_report report = REJOIN_RECOVERY_REPORT_INIT;
            status = rejoin_recovery_get(get(), static_cast<uint32_t>(reports.size()), &report);
            if (status.ok()) reports.push_back(report);
        }
        return Result<std::vector<rejoin_recovery_report>>(std::move(status), std::move(reports));
    }
    /* Who failed in one of them; REJOIN_STATUS_NOT_FOUND behind the last. */
    Result<rejoin_failed_rank> failed(uint32_t recovery, uint32_t nth) const {
        rejoin_failed_rank failed = REJOIN_FAILED_RANK_INIT;
        Status status = rejoin_recovery_get_failed(get(), recovery, nth, &failed);
        return Result<rejoin_failed_rank>(std::move(status), failed);
    }

    /* Has a function told about what happens to the job: called on a thread of Rejoin, and must outlive the session.
     * What it throws is dropped. Once a session. */
    Status on_event(const std::function<void(const rejoin_event &)> &function) {
        return rejoin_session_on_event(get(), &Session::tell, const_cast<void *>(static_cast<const void *>(&function)));
    }

private:
    static void tell(const rejoin_event *event, void *user) {
        const std::function<void(const rejoin_event &)> &function =
            *static_cast<const std::function<void(const rejoin_event &)> *>(user);
#ifdef REJOIN_NO_EXCEPTIONS
        function(*event);
#else
        try {
            function(*event);
        } catch (...) {
            /* It may not go on into the library. */
        }
#endif
    }
    static Result<Session> open_with(const rejoin_session_options *options) {
        rejoin_session *session = nullptr;
        Status status = rejoin_session_open(options, &session);
        return Result<Session>(std::move(status), Session(session));
    }
    template <typename Call>
    Result<Position> position(Call call) {
        Position at;
        const void *blob = nullptr;
        size_t bytes = 0;
        Status status = call(get(), &at.step, &blob, &bytes);
        if (status.ok() && bytes > 0) {
            const unsigned char *first = static_cast<const unsigned char *>(blob);
            at.blob.assign(first, first + bytes);
        }
        return Result<Position>(std::move(status), std::move(at));
    }
};

/* A request by its number. */
class Request : public Owner<rejoin_request, rejoin_request_close> {
public:
    using Owner::Owner;

    static Result<Request> create(uint16_t opcode) {
        rejoin_request *request = nullptr;
        Status status = rejoin_request_create(opcode, &request);
        return Result<Request>(std::move(status), Request(request));
    }
    Status set(uint32_t position, uint64_t word) const { return rejoin_request_set_word(get(), position, word); }
    Status set(uint32_t position, const void *value, size_t bytes) const {
        return rejoin_request_set_bytes(get(), position, value, bytes);
    }
    Status set_foreign(uint32_t position) const { return rejoin_request_set_foreign(get(), position); }
    Status set_reason(rejoin_reason reason) const { return rejoin_request_set_reason(get(), static_cast<uint32_t>(reason)); }
    Result<rejoin_record_ref> append(const Journal &journal, rejoin_region region) const {
        rejoin_record_ref record = {0, 0};
        Status status = rejoin_request_append(journal.get(), static_cast<uint32_t>(region), get(), &record);
        return Result<rejoin_record_ref>(std::move(status), record);
    }
    Result<uint64_t> send(const Session &session) const {
        uint64_t value = 0;
        Status status = rejoin_request_send(session.get(), get(), &value);
        return Result<uint64_t>(std::move(status), value);
    }
};

/* Parameters of a kernel, one after the other, packed. */
class Parameters {
public:
    template <typename T>
    Parameters &add(const T &value) {
        const unsigned char *first = reinterpret_cast<const unsigned char *>(&value);
        bytes_.insert(bytes_.end(), first, first + sizeof value);
        return *this;
    }
    const void *data() const noexcept { return bytes_.data(); }
    size_t size() const noexcept { return bytes_.size(); }

private:
    std::vector<unsigned char> bytes_;
};

} // namespace rejoin

#endif
