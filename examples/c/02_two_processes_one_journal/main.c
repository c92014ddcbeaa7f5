/* A writer and a reader in two processes. Pipes hand the turn over, so the output has one order. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <rejoin.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int turn_to(int fd) {
    return write(fd, "x", 1) == 1 ? 0 : 1;
}

static int await_turn(int fd) {
    char byte;
    return read(fd, &byte, 1) == 1 ? 0 : 1;
}

static rejoin_status look(rejoin_reader *reader, uint64_t after, rejoin_snapshot_info *info, rejoin_record *last) {
    rejoin_snapshot *snapshot = NULL;
    TRY(rejoin_reader_snapshot(reader, after, &snapshot));
    rejoin_status status = rejoin_snapshot_get_info(snapshot, info);
    if (status == REJOIN_STATUS_OK && info->records > 0) status = rejoin_snapshot_get(snapshot, info->records - 1, last);
    rejoin_snapshot_close(snapshot);
    return status;
}

static int child(rejoin_journal *of_parent, const char *name, int from_parent, int to_parent) {
    int result = 1;
    rejoin_reader *reader = NULL;
    rejoin_record_ref unused;
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    rejoin_record last = REJOIN_RECORD_INIT;
    rejoin_status status = rejoin_journal_append(of_parent, REJOIN_REGION_STEP, REJOIN_REQUEST_GROUP_START, NULL, 0, &unused);
    printf("child: the parent's journal: %s\n", rejoin_status_string(status));

    CHECK(rejoin_reader_open(name, &reader));
    CHECK(look(reader, 0, &info, &last));
    printf("child: %llu records\n", (unsigned long long)info.records);
    fflush(stdout);
    if (turn_to(to_parent) != 0 || await_turn(from_parent) != 0) goto cleanup;
    CHECK(look(reader, info.limit - 1, &info, &last));
    printf("child: %llu new record, sequence %llu\n", (unsigned long long)info.records, (unsigned long long)last.sequence);
    fflush(stdout);
    result = 0;
cleanup:
    rejoin_reader_close(reader);
    return result;
}

int main(void) {
    int result = 1, to_child[2], to_parent[2], ended = 1;
    rejoin_journal *journal = NULL;
    rejoin_snapshot *snapshot = NULL;
    char job[32];
    snprintf(job, sizeof job, "lesson-02-%d", (int)getpid());
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    CHECK(rejoin_journal_create(&options, &journal));

    rejoin_record_ref record;
    CHECK(rejoin_journal_append(journal, REJOIN_REGION_SETUP, REJOIN_REQUEST_USER_OPAQUE, "a", 1, &record));
    CHECK(rejoin_journal_append(journal, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, "b", 1, &record));

    const char *name = rejoin_journal_name(journal); /* asked before the fork: the object is the parent's */
    if (pipe(to_child) != 0 || pipe(to_parent) != 0) goto cleanup;
    pid_t pid = fork();
    if (pid < 0) goto cleanup;
    if (pid == 0) {
        close(to_child[1]);
        close(to_parent[0]);
        int code = child(journal, name, to_child[0], to_parent[1]);
        fflush(stdout);
        _exit(code);
    }
    close(to_child[0]);
    close(to_parent[1]);
    if (await_turn(to_parent[0]) == 0) {
        CHECK(rejoin_journal_append(journal, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, "c", 1, &record));
        if (turn_to(to_child[1]) != 0) goto cleanup;
    }
    if (waitpid(pid, &ended, 0) != pid || !WIFEXITED(ended) || WEXITSTATUS(ended) != 0) goto cleanup;

    uint64_t boundary;
    CHECK(rejoin_journal_step_commit(journal, 0, &boundary));
    CHECK(rejoin_journal_snapshot(journal, 0, &snapshot));
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    CHECK(rejoin_snapshot_get_info(snapshot, &info));
    printf("parent: after the commit %llu record counts, next step %llu\n", (unsigned long long)info.records,
           (unsigned long long)info.next_step);
    result = 0;
cleanup:
    rejoin_snapshot_close(snapshot);
    if (journal != NULL) rejoin_journal_unlink(journal);
    rejoin_journal_close(journal);
    return result;
}
