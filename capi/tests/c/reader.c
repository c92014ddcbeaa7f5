/* All that a reader can tell: flags and parts of records, absent payloads, lanes of the dead, handles, what steps begin with. */
#define _POSIX_C_SOURCE 200809L
#include "own_journal.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* More than a journal takes as a payload. */
#define ELSEWHERE ((size_t)65 << 20)

static void parts_flags_and_payloads_that_are_elsewhere(void) {
    rejoin_journal *journal = create(0);
    rejoin_append_options options = REJOIN_APPEND_OPTIONS_INIT;
    rejoin_record_ref record;
    unsigned char *bytes = calloc(1, ELSEWHERE);
    if (bytes == NULL) exit(1);
    const rejoin_part parts[] = {{"lead ", 5}, {NULL, 0}, {bytes, ELSEWHERE}};
    const rejoin_part no_bytes = {NULL, 1};
    options.region = REJOIN_REGION_STEP;
    options.kind = REJOIN_REQUEST_USER_OPAQUE + 3;
    options.flags = 0x0abc;
    EXPECT(rejoin_journal_append_parts(journal, &options, &no_bytes, 1, &record), NULL_ARGUMENT, "parts[0].bytes");
    EXPECT(rejoin_journal_append_parts(journal, &options, NULL, 1, &record), NULL_ARGUMENT, "parts");
    EXPECT(rejoin_journal_append_parts(journal, &options, parts, SIZE_MAX, &record), INVALID_ARGUMENT, "address space");
    EXPECT(rejoin_journal_append_parts(journal, &options, parts, 3, &record), INVALID_ARGUMENT, "larger than");
    options.mode = REJOIN_APPEND_MODE_ABSENT;
    EXPECT(rejoin_journal_append_parts(journal, &options, parts, 3, &record), OK, NULL);
    options.mode = REJOIN_APPEND_MODE_PLAIN;
    options.flags = 0x1000;
    EXPECT(rejoin_journal_append_parts(journal, &options, parts, 1, &record), INVALID_ARGUMENT, "0xf000");
    options.flags = 1;
    const rejoin_part words[] = {{"two ", 4}, {"words", 5}};
    EXPECT(rejoin_journal_append_parts(journal, &options, words, 2, &record), OK, NULL);
    EXPECT(rejoin_journal_append_parts(journal, &options, NULL, 0, &record), OK, NULL);
    free(bytes);

    rejoin_snapshot *snapshot = NULL;
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    rejoin_record found = REJOIN_RECORD_INIT;
    uint64_t length;
    EXPECT(rejoin_journal_snapshot(journal, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get_info(snapshot, &info), OK, NULL);
    TRUE(info.records == 3 && info.whole);
    /* Length, checksum, beginning. */
    EXPECT(rejoin_snapshot_get(snapshot, 0, &found), OK, NULL);
    TRUE(found.outcome == REJOIN_OUTCOME_ABSENT && found.flags == 0x0abc && found.kind == options.kind && found.payload_bytes == 21);
    memcpy(&length, found.payload, sizeof length);
    TRUE(length == ELSEWHERE + 5 && memcmp((const char *)found.payload + 16, "lead ", 5) == 0);
    EXPECT(rejoin_snapshot_get(snapshot, 1, &found), OK, NULL);
    TRUE(found.outcome == REJOIN_OUTCOME_COMMITTED && found.flags == 1 && found.payload_bytes == 9);
    TRUE(memcmp(found.payload, "two words", 9) == 0);
    EXPECT(rejoin_snapshot_get(snapshot, 2, &found), OK, NULL);
    TRUE(found.payload_bytes == 0);
    uint64_t first, count;
    EXPECT(rejoin_snapshot_get_missing(snapshot, 0, &first, &count), NOT_FOUND, "of 0");
    rejoin_obstacle obstacle = REJOIN_OBSTACLE_INIT;
    EXPECT(rejoin_snapshot_get_obstacle(snapshot, 0, &obstacle), OK, NULL);
    TRUE(obstacle.region == REJOIN_REGION_STEP && obstacle.sequence == 1 && strstr(obstacle.reason, "bytes were not recorded") != NULL);
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    end(journal);
}

static void handles_one_by_one(void) {
    rejoin_journal *journal = create(1);
    rejoin_reader *reader = NULL;
    rejoin_handle stream, comm, gone;
    rejoin_handle_entry entries[4];
    size_t count = 9;
    EXPECT(rejoin_journal_handles(journal, NULL, 0, &count), OK, NULL);
    TRUE(count == 0);
    EXPECT(rejoin_handle_reserve(journal, REJOIN_HANDLE_KIND_STREAM, &stream), OK, NULL);
    EXPECT(rejoin_handle_reserve(journal, REJOIN_HANDLE_KIND_COMMUNICATOR, &comm), OK, NULL);
    EXPECT(rejoin_handle_reserve(journal, REJOIN_HANDLE_KIND_USER, &gone), OK, NULL);
    EXPECT(rejoin_handle_bind(journal, comm, 77), OK, NULL);
    EXPECT(rejoin_handle_bind(journal, gone, 78), OK, NULL);
    EXPECT(rejoin_handle_retire(journal, gone), OK, NULL);
    EXPECT(rejoin_reader_open(name, &reader), OK, NULL);
    for (int of_reader = 0; of_reader < 2; of_reader++) {
        memset(entries, 0xff, sizeof entries);
        if (of_reader) {
            EXPECT(rejoin_reader_handles(reader, entries, 4, &count), OK, NULL);
        } else {
            EXPECT(rejoin_journal_handles(journal, entries, 4, &count), OK, NULL);
        }
        TRUE(count == 2);
        for (size_t i = 0; i < count && count <= 4; i++) {
            if (entries[i].handle == comm) {
                TRUE(entries[i].is_bound == 1 && entries[i].real == 77 && entries[i].kind == REJOIN_HANDLE_KIND_COMMUNICATOR);
            } else {
                TRUE(entries[i].handle == stream && entries[i].is_bound == 0 && entries[i].kind == REJOIN_HANDLE_KIND_STREAM);
            }
        }
    }
    /* Less room than there is to tell. */
    memset(entries, 0xff, sizeof entries);
    EXPECT(rejoin_reader_handles(reader, entries, 1, &count), OK, NULL);
    TRUE(count == 2 && entries[0].is_bound <= 1 && entries[1].handle == UINT64_MAX);
    EXPECT(rejoin_reader_close(reader), OK, NULL);
    end(journal);
}

static void what_a_killed_writer_left(void) {
    snprintf(name, sizeof name, "rejoin.%s.r2.0", job);
    pid_t pid = fork();
    if (pid == 0) {
        rejoin_journal *own = create(2);
        rejoin_record_ref record;
        const rejoin_part parts[] = {{"first", 5}, {NULL, 0}, {"third", 5}};
        EXPECT(rejoin_journal_prepare_reserve(own, 4, 10, 3), OK, NULL);
        EXPECT(rejoin_journal_prepare_reserve(own, SIZE_MAX, 0, 0), INVALID_ARGUMENT, NULL);
        EXPECT(rejoin_journal_prepare_parts(own, 6, "blob", 4, parts, 3), OK, NULL);
        EXPECT(rejoin_journal_prepare(own, 7, "later", 5), OK, NULL);
        EXPECT(rejoin_journal_append(own, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, "a", 1, &record), OK, NULL);
        if (failures == 0) raise(SIGKILL);
        _exit(1);
    }
    int status = 0;
    TRUE(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    rejoin_reader *reader = NULL;
    rejoin_snapshot *snapshot = NULL;
    rejoin_reader_info info = REJOIN_READER_INFO_INIT;
    rejoin_lane lane = REJOIN_LANE_INIT;
    char buffer[8];
    size_t bytes;
    EXPECT(rejoin_reader_open(name, &reader), OK, NULL);
    EXPECT(rejoin_reader_get_info(reader, &info), OK, NULL);
    TRUE(info.writer_ended && info.creator_pid == (uint32_t)pid && info.rank == 2 && info.boundary == 0);
    EXPECT(rejoin_reader_prepared(reader, 6, buffer, sizeof buffer, &bytes), OK, NULL);
    TRUE(bytes == 4 && memcmp(buffer, "blob", 4) == 0);
    EXPECT(rejoin_reader_prepared(reader, 7, buffer, 2, &bytes), INVALID_ARGUMENT, "5 bytes");
    EXPECT(rejoin_reader_prepared(reader, 7, NULL, 0, &bytes), OK, NULL);
    TRUE(bytes == 5);
    EXPECT(rejoin_reader_prepared(reader, 8, buffer, sizeof buffer, &bytes), NOT_FOUND, "step 8");
    EXPECT(rejoin_reader_prepared_part(reader, 6, 2, buffer, sizeof buffer, &bytes), OK, NULL);
    TRUE(bytes == 5 && memcmp(buffer, "third", 5) == 0);
    EXPECT(rejoin_reader_prepared_part(reader, 6, 1, buffer, sizeof buffer, &bytes), OK, NULL);
    TRUE(bytes == 0);
    EXPECT(rejoin_reader_prepared_part(reader, 6, 3, buffer, sizeof buffer, &bytes), NOT_FOUND, "part 3");
    EXPECT(rejoin_reader_prepared_part(reader, 7, 0, buffer, sizeof buffer, &bytes), NOT_FOUND, "step 7");
    EXPECT(rejoin_reader_snapshot(reader, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get_lane(snapshot, 0, &lane), OK, NULL);
    TRUE(lane.owner == REJOIN_LANE_OWNER_DEAD && lane.pid == (uint32_t)pid && lane.deaths == 0 && lane.disturbed == 0);
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    EXPECT(rejoin_reader_close(reader), OK, NULL);

    /* Another process takes over what the dead one left. */
    rejoin_journal *journal = NULL;
    uint32_t reaped = 0;
    EXPECT(rejoin_journal_open(name, &journal), OK, NULL);
    EXPECT(rejoin_journal_reap(journal, &reaped), OK, NULL);
    TRUE(reaped == 1);
    EXPECT(rejoin_journal_close(journal), OK, NULL);
    EXPECT(rejoin_journal_remove(name), OK, NULL);
    EXPECT(rejoin_journal_remove("rejoin.a.members"), INVALID_ARGUMENT, "rejoin gc");
    EXPECT(rejoin_journal_remove("../passwd"), INVALID_ARGUMENT, NULL);
}

/* Requests that their row could replay, and these cannot be. */
static void marks_of_requests(void) {
    rejoin_journal *journal = create(3);
    rejoin_request *request = NULL;
    rejoin_snapshot *snapshot = NULL;
    rejoin_record_ref record;
    rejoin_obstacle obstacle = REJOIN_OBSTACLE_INIT;
    EXPECT(rejoin_request_create(REJOIN_REQUEST_MEMSET_ASYNC, &request), OK, NULL);
    EXPECT(rejoin_request_set_word(request, 3, 0x7f0000001000), OK, NULL);
    EXPECT(rejoin_request_set_foreign(request, 2), INVALID_ARGUMENT, "no stream or pointer");
    EXPECT(rejoin_request_set_foreign(request, 9), INVALID_ARGUMENT, "no argument 9");
    EXPECT(rejoin_request_set_foreign(request, 3), OK, NULL);
    EXPECT(rejoin_request_append(journal, REJOIN_REGION_STEP, request, &record), OK, NULL);
    EXPECT(rejoin_request_close(request), OK, NULL);
    EXPECT(rejoin_request_create(REJOIN_REQUEST_MEMSET, &request), OK, NULL);
    EXPECT(rejoin_request_set_reason(request, 99), INVALID_ARGUMENT, "rejoin_reason");
    EXPECT(rejoin_request_set_reason(request, REJOIN_REASON_GRAPH_CAPTURE), OK, NULL);
    EXPECT(rejoin_request_append(journal, REJOIN_REGION_STEP, request, &record), OK, NULL);
    EXPECT(rejoin_request_set_reason(request, 0), OK, NULL);
    EXPECT(rejoin_request_append(journal, REJOIN_REGION_STEP, request, &record), OK, NULL);
    EXPECT(rejoin_request_close(request), OK, NULL);
    EXPECT(rejoin_journal_snapshot(journal, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get_obstacle(snapshot, 0, &obstacle), OK, NULL);
    TRUE(obstacle.sequence == 1 && strstr(obstacle.reason, "did not make") != NULL && strstr(obstacle.request, "foreign") != NULL);
    EXPECT(rejoin_snapshot_get_obstacle(snapshot, 1, &obstacle), OK, NULL);
    TRUE(obstacle.sequence == 2 && strstr(obstacle.reason, "graph") != NULL);
    EXPECT(rejoin_snapshot_get_obstacle(snapshot, 2, &obstacle), NOT_FOUND, NULL);
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    end(journal);
}

int main(void) {
    snprintf(job, sizeof job, "reader-%d", (int)getpid());
    parts_flags_and_payloads_that_are_elsewhere();
    handles_one_by_one();
    what_a_killed_writer_left();
    marks_of_requests();
    if (failures == 0) printf("ok\n");
    return failures != 0;
}
