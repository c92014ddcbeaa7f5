/* What a program may do wrong with a journal: always a status and a message, never a crash. Run under ASAN. */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"

#include <pthread.h>
#include <rejoin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char job[48];

static rejoin_journal *create(uint32_t rank) {
    rejoin_journal *journal = NULL;
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    options.rank = rank;
    EXPECT(rejoin_journal_create(&options, &journal), OK, NULL);
    return journal;
}

static void end(rejoin_journal *journal) {
    EXPECT(rejoin_journal_unlink(journal), OK, NULL);
    EXPECT(rejoin_journal_close(journal), OK, NULL);
}

static void options_of_other_versions(void) {
    struct {
        rejoin_journal_options known;
        uint64_t added;
    } newer = {REJOIN_JOURNAL_OPTIONS_INIT, 0};
    rejoin_journal *journal = NULL;
    newer.known.job = job;
    newer.known.size = sizeof newer;
    newer.known.version = 2;
    newer.added = 1;
    EXPECT(rejoin_journal_create(&newer.known, &journal), VERSION, "newer rejoin.h");
    newer.added = 0;
    EXPECT(rejoin_journal_create(&newer.known, &journal), OK, NULL);
    end(journal);
    /* An older one ends behind the job's name. */
    newer.known.size = offsetof(rejoin_journal_options, rank);
    newer.known.rank = 99;
    EXPECT(rejoin_journal_create(&newer.known, &journal), OK, NULL);
    if (strstr(rejoin_journal_name(journal), ".r0.0") == NULL) failures++;
    end(journal);
    newer.known.size = 0;
    EXPECT(rejoin_journal_create(&newer.known, &journal), INVALID_ARGUMENT, "_INIT");

    rejoin_session *session = NULL;
    rejoin_session_options options = REJOIN_SESSION_OPTIONS_INIT;
    EXPECT(rejoin_session_open(NULL, &session), INVALID_ARGUMENT, "rejoin run");
    options.job = "nobody-has-this-job";
    EXPECT(rejoin_session_open(&options, &session), INVALID_ARGUMENT, "REJOIN_BACKEND_HOST");
    options.backend = REJOIN_BACKEND_HOST;
    options.nranks = 1;
    EXPECT(rejoin_session_open(&options, &session), NOT_FOUND, NULL);
    struct {
        rejoin_session_options known;
        uint64_t added;
    } newer_session = {REJOIN_SESSION_OPTIONS_INIT, 1};
    newer_session.known.size = sizeof newer_session;
    EXPECT(rejoin_session_open(&newer_session.known, &session), VERSION, "newer rejoin.h");
    /* An older one ends before the policy: what lies behind it is not read. */
    options.size = offsetof(rejoin_session_options, journal_policy);
    options.journal_policy = options.unregistered = 99;
    EXPECT(rejoin_session_open(&options, &session), NOT_FOUND, NULL);
    options.size = sizeof options;
    EXPECT(rejoin_session_open(&options, &session), INVALID_ARGUMENT, "rejoin_journal_policy");
    options.journal_policy = 0;
    EXPECT(rejoin_session_open(&options, &session), INVALID_ARGUMENT, "rejoin_unregistered");
    EXPECT(rejoin_abi_check(REJOIN_ABI_VERSION + 1), VERSION, "compile it again");
}

static void names_and_sizes(void) {
    rejoin_journal *journal = NULL;
    rejoin_reader *reader = NULL;
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = "no/such name";
    EXPECT(rejoin_journal_create(&options, &journal), INVALID_ARGUMENT, "valid name");
    options.job = "\xff\xfe";
    EXPECT(rejoin_journal_create(&options, &journal), INVALID_ARGUMENT, "UTF-8");
    EXPECT(rejoin_journal_open("rejoin.no-such-job.r0.0", &journal), NOT_FOUND, NULL);
    EXPECT(rejoin_reader_open("/no/such/folder/rejoin.a.r0.0", &reader), NOT_FOUND, NULL);
    EXPECT(rejoin_reader_open("README.md", &reader), INVALID_ARGUMENT, NULL);

    rejoin_record_ref record, wrong = {1, 8};
    uint64_t value;
    size_t bytes;
    char byte;
    journal = create(1);
    options.job = job;
    options.rank = 1;
    rejoin_journal *second = NULL;
    EXPECT(rejoin_journal_create(&options, &second), EXISTS, NULL);
    EXPECT(rejoin_journal_append(journal, 7, REJOIN_REQUEST_USER_OPAQUE, "a", 1, &record), INVALID_ARGUMENT, "REJOIN_REGION_STEP");
    EXPECT(rejoin_journal_append(journal, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, &byte, SIZE_MAX, &record), INVALID_ARGUMENT, NULL);
    EXPECT(rejoin_journal_append(journal, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, "a", 1, &record), OK, NULL);
    EXPECT(rejoin_journal_complete(journal, &record, UINT64_MAX), INVALID_ARGUMENT, "63 bits");
    EXPECT(rejoin_journal_complete(journal, &wrong, 1), NOT_FOUND, NULL);
    wrong.position = UINT64_MAX;
    EXPECT(rejoin_journal_complete(journal, &wrong, 1), INVALID_ARGUMENT, NULL);
    EXPECT(rejoin_journal_complete(journal, &record, 1), OK, NULL);
    EXPECT(rejoin_journal_prepared(journal, 3, &byte, 1, &bytes), NOT_FOUND, "step 3");
    EXPECT(rejoin_journal_prepare(journal, 3, "abc", 3), OK, NULL);
    EXPECT(rejoin_journal_prepared(journal, 3, &byte, 1, &bytes), INVALID_ARGUMENT, "3 bytes");
    EXPECT(rejoin_handle_reserve(journal, 0, &value), INVALID_ARGUMENT, "rejoin_handle_kind");
    EXPECT(rejoin_handle_bind(journal, 12345, 1), INVALID_ARGUMENT, "not a virtual handle");
    uint32_t number = 0;
    EXPECT(rejoin_handle_get_kind(12345, &number), INVALID_ARGUMENT, "not a virtual handle");
    EXPECT(rejoin_handle_reserve(journal, REJOIN_HANDLE_KIND_USER, &value), OK, NULL);
    EXPECT(rejoin_handle_get_kind(value, &number), OK, NULL);
    if (number != REJOIN_HANDLE_KIND_USER) failures++;
    /* A step that runs again: its records no longer count. */
    EXPECT(rejoin_journal_step_discard(journal, &value), OK, NULL);
    if (value != record.sequence + 1) failures++;
    EXPECT(rejoin_journal_reap(journal, &number), OK, NULL);
    if (number != 0) failures++;

    /* A journal of one size is full one day, and says so; nothing else breaks. */
    static char large[1 << 20];
    rejoin_status status = REJOIN_STATUS_OK;
    for (int i = 0; i < 16 && status == REJOIN_STATUS_OK; i++) {
        status = rejoin_journal_append(journal, REJOIN_REGION_SETUP, REJOIN_REQUEST_USER_OPAQUE, large, sizeof large, &record);
    }
    EXPECT(status, JOURNAL_FULL, "larger capacity");

    rejoin_snapshot *snapshot = NULL;
    rejoin_record out = REJOIN_RECORD_INIT;
    EXPECT(rejoin_journal_snapshot(journal, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get(snapshot, UINT64_MAX, &out), NOT_FOUND, NULL);
    out.size = 4;
    EXPECT(rejoin_snapshot_get(snapshot, 0, &out), INVALID_ARGUMENT, "REJOIN_RECORD_INIT");
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_close(snapshot), CLOSED, NULL);
    EXPECT(rejoin_journal_finish(journal), OK, NULL);
    end(journal);
    EXPECT(rejoin_journal_append(journal, REJOIN_REGION_STEP, 1, NULL, 0, &record), CLOSED, "was closed");
    EXPECT(rejoin_journal_close(journal), CLOSED, NULL);
    if (rejoin_journal_name(journal)[0] != 0) failures++;
}

static void requests_by_number(void) {
    rejoin_request *request = NULL;
    rejoin_record_ref record;
    rejoin_journal *journal = create(2);
    char words[16];
    size_t length;
    EXPECT(rejoin_request_create(0x7fff, &request), INVALID_ARGUMENT, "not in this version");
    EXPECT(rejoin_request_create(REJOIN_REQUEST_MEMCPY_HTOD, &request), OK, NULL);
    EXPECT(rejoin_request_set_word(request, 9, 1), INVALID_ARGUMENT, "no argument 9");
    EXPECT(rejoin_request_set_word(request, 1, 1), INVALID_ARGUMENT, "set_bytes");
    EXPECT(rejoin_request_set_bytes(request, 0, "a", 1), INVALID_ARGUMENT, "set_word");
    EXPECT(rejoin_request_set_bytes(request, 1, "abc", 3), OK, NULL);
    EXPECT(rejoin_request_append(journal, REJOIN_REGION_STEP, request, &record), OK, NULL);
    EXPECT(rejoin_request_close(request), OK, NULL);
    EXPECT(rejoin_request_create(REJOIN_REQUEST_DEVICE_SET, &request), OK, NULL);
    EXPECT(rejoin_request_set_word(request, 0, UINT64_MAX), OK, NULL);
    EXPECT(rejoin_request_append(journal, REJOIN_REGION_STEP, request, &record), INVALID_ARGUMENT, "ordinal");
    EXPECT(rejoin_request_close(request), OK, NULL);
    EXPECT(rejoin_request_describe(REJOIN_REQUEST_ALL_REDUCE, "nonsense", 8, words, sizeof words, &length), INVALID_ARGUMENT, NULL);
    end(journal);
}

static void in_a_forked_child(void) {
    rejoin_journal *journal = create(3);
    const char *name = rejoin_journal_name(journal);
    rejoin_record_ref record;
    EXPECT(rejoin_journal_append(journal, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, "p", 1, &record), OK, NULL);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        rejoin_journal *own = NULL;
        EXPECT(rejoin_journal_append(journal, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, "c", 1, &record), FORKED, "forked");
        EXPECT(rejoin_journal_close(journal), FORKED, NULL);
        EXPECT(rejoin_journal_open(name, &own), OK, NULL);
        EXPECT(rejoin_journal_append(own, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, "c", 1, &record), OK, NULL);
        EXPECT(rejoin_journal_close(own), OK, NULL);
        fflush(stdout);
        _exit(failures != 0);
    }
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status != 0) failures++;
    rejoin_snapshot *snapshot = NULL;
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    EXPECT(rejoin_journal_snapshot(journal, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get_info(snapshot, &info), OK, NULL);
    if (info.records != 2 || !info.whole) failures++;
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    end(journal);
}

enum { THREADS = 8, EACH = 2000 };
static rejoin_journal *shared;

static void *append_many(void *argument) {
    uint64_t number = *(const uint64_t *)argument;
    char expected[32];
    uintptr_t wrong = 0;
    for (uint64_t i = 0; i < EACH; i++) {
        rejoin_record_ref record;
        if (rejoin_journal_append(shared, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, &number, sizeof number, &record) != REJOIN_STATUS_OK) wrong++;
        if (rejoin_journal_complete(shared, &record, i) != REJOIN_STATUS_OK) wrong++;
        /* Each thread has its own message. */
        uint64_t unused;
        snprintf(expected, sizeof expected, "kind %llu", (unsigned long long)(100 + number));
        if (rejoin_handle_reserve(shared, (uint32_t)(100 + number), &unused) != REJOIN_STATUS_INVALID_ARGUMENT) wrong++;
        if (strstr(rejoin_last_error(), expected) == NULL) wrong++;
    }
    return (void *)wrong;
}

static void eight_threads(void) {
    pthread_t threads[THREADS];
    uint64_t numbers[THREADS];
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    options.rank = 4;
    options.capacity_bytes = 16 << 20;
    EXPECT(rejoin_journal_create(&options, &shared), OK, NULL);
    for (uint64_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, append_many, &numbers[i]) != 0) exit(1);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong != NULL) failures++;
    }
    rejoin_snapshot *snapshot = NULL;
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    EXPECT(rejoin_journal_snapshot(shared, 0, &snapshot), OK, NULL);
    EXPECT(rejoin_snapshot_get_info(snapshot, &info), OK, NULL);
    if (info.records != THREADS * EACH || !info.whole) failures++;
    for (uint64_t i = 0; i < info.records; i++) {
        rejoin_record record = REJOIN_RECORD_INIT;
        if (rejoin_snapshot_get(snapshot, i, &record) != REJOIN_STATUS_OK || record.sequence != i + 1 || !record.has_result) failures++;
    }
    EXPECT(rejoin_snapshot_close(snapshot), OK, NULL);
    end(shared);
}

int main(void) {
    snprintf(job, sizeof job, "abuse-%d", (int)getpid());
    options_of_other_versions();
    names_and_sizes();
    requests_by_number();
    in_a_forked_child();
    eight_threads();
    if (failures == 0) printf("ok\n");
    return failures != 0;
}
