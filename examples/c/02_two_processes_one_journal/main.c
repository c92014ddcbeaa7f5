/* A writer and a reader in two processes. The reader follows: it is told each record once, as it is written. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <rejoin.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Longest time that the other process may take; nothing here takes long. */
enum { PATIENCE_MS = 60000 };

static int child(rejoin_journal *of_parent, const char *name, int told) {
    int result = 1;
    rejoin_follower *follower = NULL;
    rejoin_record_ref unused;
    rejoin_record record = REJOIN_RECORD_INIT;
    rejoin_status status = rejoin_journal_append(of_parent, REJOIN_REGION_STEP, REJOIN_REQUEST_GROUP_START, NULL, 0, &unused);
    printf("child: the parent's journal: %s\n", rejoin_status_string(status));

    CHECK(rejoin_follower_open(name, &follower));
    printf("child: nothing yet: %s\n", rejoin_status_string(rejoin_follower_next(follower, 0, &record)));
    fflush(stdout);
    if (write(told, "x", 1) != 1) goto cleanup;
    for (;;) {
        status = rejoin_follower_next(follower, PATIENCE_MS, &record);
        if (status == REJOIN_STATUS_NOT_FOUND) break;
        CHECK(status);
        if (record.outcome == REJOIN_OUTCOME_MISSING) {
            printf("child: %llu records missing\n", (unsigned long long)record.missing);
        } else {
            printf("child: %llu \"%.*s\"\n", (unsigned long long)record.sequence, (int)record.payload_bytes,
                   (const char *)record.payload);
        }
        fflush(stdout);
        /* The parent goes on when this one has been told. */
        if (write(told, "x", 1) != 1) goto cleanup;
    }
    printf("child: the writer has ended\n");
    fflush(stdout);
    result = 0;
cleanup:
    rejoin_follower_close(follower);
    return result;
}

static int await_told(int fd) {
    char byte;
    return read(fd, &byte, 1) == 1 ? 0 : 1;
}

int main(void) {
    int result = 1, told[2], ended = 1;
    rejoin_journal *journal = NULL;
    rejoin_snapshot *snapshot = NULL;
    char job[32];
    snprintf(job, sizeof job, "lesson-02-%d", (int)getpid());
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    CHECK(rejoin_journal_create(&options, &journal));

    const char *name = rejoin_journal_name(journal); /* asked before the fork: the object is the parent's */
    if (pipe(told) != 0) goto cleanup;
    pid_t pid = fork();
    if (pid < 0) goto cleanup;
    if (pid == 0) {
        close(told[0]);
        int code = child(journal, name, told[1]);
        fflush(stdout);
        _exit(code);
    }
    close(told[1]);
    if (await_told(told[0]) != 0) goto cleanup;

    rejoin_record_ref record;
    static const struct {
        uint32_t region;
        char letter;
    } records[] = {{REJOIN_REGION_SETUP, 'a'}, {REJOIN_REGION_STEP, 'b'}, {REJOIN_REGION_STEP, 'c'}};
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        CHECK(rejoin_journal_append(journal, records[i].region, REJOIN_REQUEST_USER_OPAQUE, &records[i].letter, 1, &record));
        if (await_told(told[0]) != 0) goto cleanup;
    }
    uint64_t boundary;
    CHECK(rejoin_journal_step_commit(journal, 0, &boundary));
    CHECK(rejoin_journal_finish(journal));
    if (waitpid(pid, &ended, 0) != pid || !WIFEXITED(ended) || WEXITSTATUS(ended) != 0) goto cleanup;

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
