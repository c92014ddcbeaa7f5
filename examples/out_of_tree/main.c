/* A program of a stranger: nothing but the installed header and library. */
#include <rejoin.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    rejoin_journal *journal = NULL;
    rejoin_record_ref record;
    char job[32];
    snprintf(job, sizeof job, "stranger-%d", (int)getpid());
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    if (rejoin_abi_check(REJOIN_ABI_VERSION) != REJOIN_STATUS_OK ||
        rejoin_journal_create(&options, &journal) != REJOIN_STATUS_OK ||
        rejoin_journal_append(journal, REJOIN_REGION_SETUP, REJOIN_REQUEST_USER_OPAQUE, "hello", 5, &record) != REJOIN_STATUS_OK) {
        fprintf(stderr, "%s\n", rejoin_last_error());
        return 1;
    }
    printf("rejoin %s recorded %llu\n", rejoin_version(), (unsigned long long)record.sequence);
    rejoin_journal_unlink(journal);
    rejoin_journal_close(journal);
    return 0;
}
