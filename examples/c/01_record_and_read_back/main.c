/* A journal in shared memory: append two requests, complete one, read both back. */
#include "check.h"

#include <rejoin.h>
#include <stdio.h>
#include <unistd.h>

static rejoin_status append(rejoin_journal *journal, const char *text, rejoin_record_ref *out) {
    rejoin_request *request = NULL;
    TRY(rejoin_request_create(REJOIN_REQUEST_USER_OPAQUE + 7, &request));
    rejoin_status status = rejoin_request_set_bytes(request, 0, text, 3);
    if (status == REJOIN_STATUS_OK) status = rejoin_request_append(journal, REJOIN_REGION_SETUP, request, out);
    rejoin_request_close(request);
    return status;
}

int main(void) {
    int result = 1;
    rejoin_journal *journal = NULL;
    rejoin_snapshot *snapshot = NULL;
    char job[32];
    snprintf(job, sizeof job, "lesson-01-%d", (int)getpid());

    CHECK(rejoin_abi_check(REJOIN_ABI_VERSION));
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    CHECK(rejoin_journal_create(&options, &journal));

    /* Committed on return: only then do what it says, and store what came of it. */
    rejoin_record_ref first, second;
    CHECK(append(journal, "abc", &first));
    CHECK(append(journal, "def", &second));
    CHECK(rejoin_journal_complete(journal, &first, 42));

    CHECK(rejoin_journal_snapshot(journal, 0, &snapshot));
    rejoin_snapshot_info info = REJOIN_SNAPSHOT_INFO_INIT;
    CHECK(rejoin_snapshot_get_info(snapshot, &info));
    for (uint64_t i = 0; i < info.records; i++) {
        rejoin_record record = REJOIN_RECORD_INIT;
        char words[128];
        size_t length;
        CHECK(rejoin_snapshot_get(snapshot, i, &record));
        CHECK(rejoin_request_describe(record.kind, record.payload, record.payload_bytes, words, sizeof words, &length));
        printf("%llu: %s ", (unsigned long long)record.sequence, words);
        if (record.has_result) {
            printf("gave %llu\n", (unsigned long long)record.result);
        } else {
            printf("has not returned\n");
        }
    }
    printf("whole: %s\n", info.whole ? "yes" : "no");
    result = 0;
cleanup:
    rejoin_snapshot_close(snapshot);
    if (journal != NULL) rejoin_journal_unlink(journal);
    rejoin_journal_close(journal);
    return result;
}
