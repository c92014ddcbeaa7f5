/* What a killed writer leaves. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <rejoin.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Never comes back but for an error. */
static void writer(const char *job) {
    rejoin_journal *journal = NULL;
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    CHECK(rejoin_journal_create(&options, &journal));
    CHECK(rejoin_journal_prepare(journal, 5, "loader at 1280", sizeof "loader at 1280"));
    for (uint64_t i = 0; i < 3; i++) {
        rejoin_record_ref record;
        CHECK(rejoin_journal_append(journal, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, &i, sizeof i, &record));
        if (i == 2) raise(SIGKILL); /* the third call was entered and never returned */
        CHECK(rejoin_journal_complete(journal, &record, i));
    }
cleanup:
    _exit(1);
}

int main(void) {
    int result = 1, status = 0;
    rejoin_reader *reader = NULL;
    rejoin_snapshot *snapshot = NULL;
    rejoin_journal *journal = NULL;
    char job[32], name[64], blob[64];
    snprintf(job, sizeof job, "lesson-04-%d", (int)getpid());
    snprintf(name, sizeof name, "rejoin.%s.r0.0", job);

    pid_t pid = fork();
    if (pid == 0) writer(job);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return 1;
    printf("the writer was killed\n");

    CHECK(rejoin_reader_open(name, &reader));
    CHECK(rejoin_reader_snapshot(reader, 0, &snapshot));
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    CHECK(rejoin_snapshot_get_info(snapshot, &info));
    unsigned returned = 0, entered = 0;
    for (uint64_t i = 0; i < info.records; i++) {
        rejoin_record record = REJOIN_RECORD_INIT;
        CHECK(rejoin_snapshot_get(snapshot, i, &record));
        if (record.outcome != REJOIN_OUTCOME_COMMITTED) goto cleanup;
        if (record.has_result) {
            returned++;
        } else {
            entered++;
        }
    }
    printf("%llu records: %u returned, %u entered and never returned\n", (unsigned long long)info.records, returned, entered);
    printf("finished in good order: %s\n", info.finished ? "yes" : "no");
    printf("whole: %s\n", info.whole ? "yes" : "no");

    size_t length;
    CHECK(rejoin_journal_open(name, &journal));
    CHECK(rejoin_journal_prepared(journal, 5, blob, sizeof blob, &length));
    printf("step 5 begins with \"%s\"\n", blob);
    result = 0;
cleanup:
    rejoin_snapshot_close(snapshot);
    rejoin_reader_close(reader);
    if (journal != NULL) rejoin_journal_unlink(journal);
    rejoin_journal_close(journal);
    return result;
}
