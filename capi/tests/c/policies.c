/* What a full journal does, policy by policy; records for a full journal; and set-up records that are left out. */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { SMALL = 1 << 20, PIECE = 8192, PLENTY = 4 * SMALL / PIECE, PAIRS = 3000 };

static char job[48];
static unsigned char piece[PIECE];

static rejoin_journal_options small(uint32_t rank, uint32_t policy) {
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    options.rank = rank;
    options.capacity_bytes = SMALL;
    options.chunk_bytes = 16384;
    options.max_slots = 8;
    options.max_handles = 64;
    options.policy = policy;
    return options;
}

static void end(rejoin_journal *journal) {
    EXPECT(rejoin_journal_unlink(journal), OK, NULL);
    EXPECT(rejoin_journal_close(journal), OK, NULL);
}

static rejoin_status append(rejoin_journal *journal, uint32_t region, uint32_t mode) {
    rejoin_append_options options = REJOIN_APPEND_OPTIONS_INIT;
    const rejoin_part parts[] = {{piece, PIECE / 2}, {NULL, 0}, {piece, PIECE / 2}};
    rejoin_record_ref record;
    options.region = region;
    options.mode = mode;
    options.kind = REJOIN_REQUEST_USER_OPAQUE;
    return rejoin_journal_append_parts(journal, &options, parts, 3, &record);
}

/* How many pieces it took until it was full, and what it said then. */
static uint64_t fill(rejoin_journal *journal, uint32_t region, const char *says) {
    uint64_t count = 0;
    rejoin_status status;
    while ((status = append(journal, region, REJOIN_APPEND_MODE_PLAIN)) == REJOIN_STATUS_OK && count < PLENTY) count++;
    EXPECT(status, JOURNAL_FULL, says);
    return count;
}

static rejoin_reader_info about(rejoin_journal *journal) {
    rejoin_reader *reader = NULL;
    rejoin_reader_info info = REJOIN_READER_INFO_INIT;
    EXPECT(rejoin_reader_open(rejoin_journal_name(journal), &reader), OK, NULL);
    EXPECT(rejoin_reader_get_info(reader, &info), OK, NULL);
    EXPECT(rejoin_reader_close(reader), OK, NULL);
    return info;
}

static void error_keeps_room_for_what_takes_it_apart(void) {
    rejoin_journal *journal = NULL;
    rejoin_journal_options options = small(0, REJOIN_JOURNAL_POLICY_ERROR);
    memset(options.job_uuid, 7, sizeof options.job_uuid);
    EXPECT(rejoin_journal_create(&options, &journal), OK, NULL);
    TRUE(fill(journal, REJOIN_REGION_SETUP, "larger capacity") > 16);
    EXPECT(append(journal, REJOIN_REGION_SETUP, REJOIN_APPEND_MODE_VITAL), OK, NULL);
    EXPECT(append(journal, REJOIN_REGION_SETUP, 9), INVALID_ARGUMENT, "rejoin_append_mode");

    rejoin_snapshot *snapshot = NULL;
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    rejoin_obstacle obstacle = REJOIN_OBSTACLE_INIT;
    EXPECT(rejoin_journal_snapshot(journal, 0, &snapshot), OK, NULL);
    /* Bytes of the application's own are no request that could be executed again. */
    EXPECT(rejoin_snapshot_get_obstacle(snapshot, 0, &obstacle), OK, NULL);
    TRUE(obstacle.sequence == 1 && obstacle.request[0] == 0 && obstacle.reason[0] != 0);
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    EXPECT(rejoin_journal_note_dropped(journal), OK, NULL);
    EXPECT(rejoin_journal_snapshot(journal, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get_info(snapshot, &info), OK, NULL);
    TRUE(info.dropped == 1 && info.incomplete_from == info.limit && !info.whole && info.missing == 0);
    EXPECT(rejoin_snapshot_get_obstacle(snapshot, 0, &obstacle), OK, NULL);
    TRUE(obstacle.region == REJOIN_REGION_SETUP && obstacle.sequence == info.limit && strstr(obstacle.reason, "dropped") != NULL);
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);

    rejoin_reader_info known = about(journal);
    TRUE(known.policy == REJOIN_JOURNAL_POLICY_ERROR && known.growth_segments == 0 && !known.writer_ended);
    TRUE(memcmp(known.job_uuid, options.job_uuid, sizeof known.job_uuid) == 0 && known.creator_pid == (uint32_t)getpid());
    EXPECT(rejoin_journal_finish(journal), OK, NULL);
    TRUE(about(journal).writer_ended);
    end(journal);
}

static atomic_int appended;

static void *append_plenty(void *argument) {
    uintptr_t refused = 0;
    for (int i = 0; i < PLENTY; i++) refused += append(argument, REJOIN_REGION_STEP, REJOIN_APPEND_MODE_PLAIN) != REJOIN_STATUS_OK;
    atomic_store(&appended, 1);
    return (void *)refused;
}

static void block_waits_for_the_end_of_a_step(void) {
    rejoin_journal *journal = NULL;
    rejoin_journal_options options = small(1, REJOIN_JOURNAL_POLICY_BLOCK);
    EXPECT(rejoin_journal_create(&options, &journal), INVALID_ARGUMENT, "block_timeout_ms");
    options.block_timeout_ms = 20;
    EXPECT(rejoin_journal_create(&options, &journal), OK, NULL);
    fill(journal, REJOIN_REGION_STEP, "waited 20 ms");
    TRUE(about(journal).policy == REJOIN_JOURNAL_POLICY_BLOCK && about(journal).block_timeout_ms == 20);
    end(journal);

    /* More than fits, while another thread ends steps. */
    options.block_timeout_ms = 60000;
    EXPECT(rejoin_journal_create(&options, &journal), OK, NULL);
    pthread_t thread;
    void *refused = NULL;
    if (pthread_create(&thread, NULL, append_plenty, journal) != 0) exit(1);
    for (uint32_t step = 0; !atomic_load(&appended) && failures == 0; step++) {
        uint64_t boundary = 0;
        EXPECT(rejoin_journal_step_commit(journal, step, &boundary), OK, NULL);
        sched_yield();
    }
    pthread_join(thread, &refused);
    TRUE(refused == NULL);
    end(journal);
}

static void grow_makes_segments_up_to_its_limit(void) {
    rejoin_journal *journal = NULL;
    rejoin_journal_options options = small(2, REJOIN_JOURNAL_POLICY_GROW);
    EXPECT(rejoin_journal_create(&options, &journal), INVALID_ARGUMENT, "grow_limit_bytes");
    options.grow_limit_bytes = 3 * SMALL;
    EXPECT(rejoin_journal_create(&options, &journal), OK, NULL);
    uint64_t count = fill(journal, REJOIN_REGION_SETUP, "no growth beyond");
    rejoin_reader_info info = about(journal);
    TRUE(count * PIECE > SMALL && info.growth_segments > 0 && info.growth_bytes + SMALL <= 3 * SMALL);
    TRUE(info.policy == REJOIN_JOURNAL_POLICY_GROW && info.grow_limit_bytes == 3 * SMALL);
    rejoin_snapshot *snapshot = NULL;
    rejoin_snapshot_info look = REJOIN_SNAPSHOT_INFO_INIT;
    EXPECT(rejoin_journal_snapshot(journal, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get_info(snapshot, &look), OK, NULL);
    TRUE(look.records == count && look.whole);
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    end(journal);
}

static void spill_makes_files(void) {
    rejoin_journal *journal = NULL;
    rejoin_journal_options options = small(3, REJOIN_JOURNAL_POLICY_SPILL);
    char folder[] = "/tmp/rejoin-spill-XXXXXX";
    if (mkdtemp(folder) == NULL) exit(1);
    EXPECT(rejoin_journal_create(&options, &journal), NULL_ARGUMENT, "spill_directory");
    options.spill_directory = "relative";
    EXPECT(rejoin_journal_create(&options, &journal), INVALID_ARGUMENT, "absolute");
    options.spill_directory = folder;
    EXPECT(rejoin_journal_create(&options, &journal), OK, NULL);
    for (int i = 0; i < PLENTY / 2; i++) EXPECT(append(journal, REJOIN_REGION_SETUP, REJOIN_APPEND_MODE_PLAIN), OK, NULL);
    TRUE(about(journal).growth_segments > 0 && about(journal).policy == REJOIN_JOURNAL_POLICY_SPILL);
    TRUE(rmdir(folder) != 0);
    end(journal);
    TRUE(rmdir(folder) == 0);
    options.policy = 5;
    EXPECT(rejoin_journal_create(&options, &journal), INVALID_ARGUMENT, "rejoin_journal_policy");
}

static uint64_t record_event(rejoin_journal *journal, uint16_t opcode, rejoin_handle event) {
    rejoin_request *request = NULL;
    rejoin_record_ref record = {0, 0};
    EXPECT(rejoin_request_create(opcode, &request), OK, NULL);
    EXPECT(rejoin_request_set_word(request, 0, event), OK, NULL);
    EXPECT(rejoin_request_append(journal, REJOIN_REGION_SETUP, request, &record), OK, NULL);
    EXPECT(rejoin_journal_complete(journal, &record, 0), OK, NULL);
    EXPECT(rejoin_request_close(request), OK, NULL);
    return record.sequence;
}

static uint64_t compacted(rejoin_journal *journal, uint64_t *records) {
    rejoin_snapshot *snapshot = NULL;
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    rejoin_lane lane = REJOIN_LANE_INIT;
    EXPECT(rejoin_journal_snapshot(journal, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get_info(snapshot, &info), OK, NULL);
    EXPECT(rejoin_snapshot_get_lane(snapshot, 0, &lane), OK, NULL);
    TRUE(info.whole && lane.owner == REJOIN_LANE_OWNER_ALIVE && lane.pid == (uint32_t)getpid() && lane.damaged_at == 0);
    EXPECT(rejoin_snapshot_get_lane(snapshot, 1, &lane), NOT_FOUND, "of 1");
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    *records = info.records;
    return lane.compacted;
}

static void records_of_what_is_gone_are_left_out(void) {
    rejoin_journal *journal = NULL;
    rejoin_journal_options options = small(4, 0);
    rejoin_handle event, stays;
    uint64_t boundary, dropped = 7, records = 0;
    uint32_t wants = 7;
    static uint64_t dead[PAIRS];
    EXPECT(rejoin_journal_create(&options, &journal), OK, NULL);
    EXPECT(rejoin_handle_reserve(journal, REJOIN_HANDLE_KIND_EVENT, &event), OK, NULL);
    EXPECT(rejoin_handle_reserve(journal, REJOIN_HANDLE_KIND_EVENT, &stays), OK, NULL);
    EXPECT(rejoin_journal_wants_compaction(journal, &wants), OK, NULL);
    TRUE(wants == 0);
    record_event(journal, REJOIN_REQUEST_EVENT_CREATE, stays);
    record_event(journal, REJOIN_REQUEST_EVENT_CREATE, event);
    record_event(journal, REJOIN_REQUEST_EVENT_DESTROY, event);
    /* Of the application's own: it names what is dead. */
    for (int i = 0; i < PAIRS; i++) {
        rejoin_record_ref record = {0, 0};
        EXPECT(rejoin_journal_append(journal, REJOIN_REGION_SETUP, REJOIN_REQUEST_USER_OPAQUE, piece, 64, &record), OK, NULL);
        EXPECT(rejoin_journal_complete(journal, &record, 0), OK, NULL);
        dead[i] = record.sequence;
        if (failures > 0) return;
    }
    EXPECT(rejoin_journal_wants_compaction(journal, &wants), OK, NULL);
    TRUE(wants == 1);
    /* Above the boundary nothing is left out. */
    EXPECT(rejoin_journal_compact(journal, dead, PAIRS, &dropped), OK, NULL);
    TRUE(dropped == 0);
    EXPECT(rejoin_journal_step_commit(journal, 0, &boundary), OK, NULL);
    EXPECT(rejoin_journal_compact(journal, dead, PAIRS, &dropped), OK, NULL);
    TRUE(dropped == PAIRS);
    compacted(journal, &records);
    TRUE(records == 3);

    /* By the table: what made and destroyed the same event. */
    for (int i = 0; i < PAIRS; i++) {
        record_event(journal, REJOIN_REQUEST_EVENT_CREATE, event);
        record_event(journal, REJOIN_REQUEST_EVENT_DESTROY, event);
        if (failures > 0) return;
    }
    EXPECT(rejoin_journal_step_commit(journal, 1, &boundary), OK, NULL);
    EXPECT(rejoin_journal_compact(journal, NULL, 0, &dropped), OK, NULL);
    TRUE(dropped == 2 * PAIRS + 2);
    compacted(journal, &records);
    TRUE(records == 1);
    end(journal);
}

int main(void) {
    snprintf(job, sizeof job, "policies-%d", (int)getpid());
    error_keeps_room_for_what_takes_it_apart();
    block_waits_for_the_end_of_a_step();
    grow_makes_segments_up_to_its_limit();
    spill_makes_files();
    records_of_what_is_gone_are_left_out();
    if (failures == 0) printf("ok\n");
    return failures != 0;
}
