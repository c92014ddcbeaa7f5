/* A journal through rejoin.hpp: what can be done with rejoin.h can be done with its owners, and what they give is right. */
#define _POSIX_C_SOURCE 200809L
#include <rejoin.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

void require(bool condition, const char *what) {
    if (!condition) throw std::runtime_error(std::string("not so: ") + what);
}
#define REQUIRE(condition) require(condition, #condition)

std::string text(const rejoin_record &record) {
    return std::string(static_cast<const char *>(record.payload), static_cast<size_t>(record.payload_bytes));
}

void records_and_steps(const rejoin::Journal &journal) {
    rejoin::Follower follower = rejoin::Follower::open(journal.name()).value();
    REQUIRE(follower.next(0).status().code() == REJOIN_STATUS_TIMEOUT);
    rejoin_append_options options = REJOIN_APPEND_OPTIONS_INIT;
    options.region = REJOIN_REGION_STEP;
    options.kind = REJOIN_REQUEST_USER_OPAQUE;
    options.flags = 5;
    const std::vector<rejoin_part> parts = {{"two ", 4}, {"parts", 5}};
    const rejoin_record_ref first = journal.append(options, parts).value();
    journal.complete(first, 42).check();
    journal.append(REJOIN_REGION_SETUP, REJOIN_REQUEST_USER_OPAQUE, "stays", 5).value();
    const rejoin_record told = follower.next(60000).value();
    REQUIRE(told.sequence == 1 && text(told) == "two parts" && told.flags == 5 && told.result == 42);
    REQUIRE(text(follower.next(0).value()) == "stays");

    const rejoin::Snapshot before = journal.snapshot().value();
    REQUIRE(before.info().value().records == 2 && text(before.record(0).value()) == "two parts");
    REQUIRE(before.record(2).status().code() == REJOIN_STATUS_NOT_FOUND);
    REQUIRE(before.lane(0).value().owner == REJOIN_LANE_OWNER_ALIVE);
    REQUIRE(before.missing(0).status().code() == REJOIN_STATUS_NOT_FOUND);
    REQUIRE(before.obstacle(0).value().sequence == 2);
    REQUIRE(journal.step_discard().value() == 3);
    REQUIRE(journal.step_commit(0).value() == 3);
    REQUIRE(journal.snapshot().value().info().value().records == 1);
    REQUIRE(!journal.wants_compaction() && journal.compact().value() == 0 && journal.compact({1, 2}).value() == 0);
    REQUIRE(journal.reap().value() == 0);
    journal.note_dropped().check();
    REQUIRE(journal.snapshot().value().info().value().dropped == 1);
}

void requests(const rejoin::Journal &journal) {
    const rejoin::Request request = rejoin::Request::create(REJOIN_REQUEST_USER_OPAQUE + 1).value();
    request.set(0, "abc", 3).check();
    REQUIRE(request.append(journal, REJOIN_REGION_SETUP).value().sequence == 3);
}

void what_steps_begin_with(const rejoin::Journal &journal, const rejoin::Reader &reader) {
    const std::string blob(10000, 'b');
    const std::string first(70000, 'f');
    journal.prepare_reserve(blob.size(), first.size(), 1).check();
    journal.prepare(4, blob.data(), blob.size(), {{first.data(), first.size()}}).check();
    journal.prepare(5, nullptr, 0).check();
    const rejoin::Bytes found = journal.prepared(4).value();
    REQUIRE(std::string(found.begin(), found.end()) == blob && reader.prepared(4).value() == found);
    REQUIRE(reader.prepared_part(4, 0).value().size() == first.size());
    REQUIRE(reader.prepared_part(4, 1).status().code() == REJOIN_STATUS_NOT_FOUND);
    REQUIRE(reader.prepared(5).value().empty());
    REQUIRE(journal.prepared(3).status().code() == REJOIN_STATUS_NOT_FOUND);
}

void handles(const rejoin::Journal &journal, const rejoin::Reader &reader) {
    const rejoin_handle stream = journal.reserve(REJOIN_HANDLE_KIND_STREAM).value();
    journal.bind(stream, 10).check();
    REQUIRE(journal.resolve(stream, REJOIN_HANDLE_KIND_STREAM).value() == 10);
    journal.unbind(REJOIN_HANDLE_KIND_STREAM).check();
    REQUIRE(journal.resolve(stream, REJOIN_HANDLE_KIND_STREAM).status().code() == REJOIN_STATUS_STALE_HANDLE);
    journal.rebind(stream, 20).check();
    REQUIRE(journal.handles().value().size() == 1 && reader.handles().value()[0].real == 20);
    journal.retire(stream).check();
    REQUIRE(reader.handles().value().empty());
}

void run() {
    const std::string job = "owners-" + std::to_string(getpid());
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job.c_str();
    options.policy = REJOIN_JOURNAL_POLICY_GROW;
    options.grow_limit_bytes = 16 << 20;
    rejoin::Journal journal = rejoin::Journal::create(options).value();
    const std::string name = journal.name();
    try {
        const rejoin::Reader reader = rejoin::Reader::open(name).value();
        REQUIRE(reader.info().value().policy == REJOIN_JOURNAL_POLICY_GROW && !reader.info().value().writer_ended);
        records_and_steps(journal);
        requests(journal);
        what_steps_begin_with(journal, reader);
        handles(journal, reader);
        journal.finish().check();
        REQUIRE(reader.info().value().writer_ended && reader.snapshot().value().info().value().finished);
        rejoin::Follower late = rejoin::Follower::open(name).value();
        rejoin::Status status = REJOIN_STATUS_OK;
        for (status = late.next(0).status(); status.ok(); status = late.next(0).status()) {
        }
        REQUIRE(status.code() == REJOIN_STATUS_NOT_FOUND);
        const rejoin::Journal second = rejoin::Journal::open(name).value();
        REQUIRE(second.name() == name);
    } catch (...) {
        journal.unlink();
        throw;
    }
    rejoin::Journal::remove(name).check();
    REQUIRE(rejoin::Journal::open(name).status().code() == REJOIN_STATUS_NOT_FOUND);
}

} // namespace

int main() {
    try {
        run();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::puts("ok");
    return 0;
}
