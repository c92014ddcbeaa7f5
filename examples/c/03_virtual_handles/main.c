/* A handle whose object is replaced under it. */
#include "check.h"

#include <rejoin.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    int result = 1;
    rejoin_journal *journal = NULL;
    char job[32];
    snprintf(job, sizeof job, "lesson-03-%d", (int)getpid());
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    CHECK(rejoin_journal_create(&options, &journal));

    const uint32_t kind = REJOIN_HANDLE_KIND_COMMUNICATOR;
    rejoin_handle comm, next;
    uint64_t real;
    CHECK(rejoin_handle_reserve(journal, kind, &comm));
    CHECK(rejoin_handle_bind(journal, comm, 1000));
    CHECK(rejoin_handle_resolve(journal, comm, kind, &real));
    printf("first object: %llu\n", (unsigned long long)real);

    /* What a recovery does: take all objects of a kind away, make new ones, bind them. */
    CHECK(rejoin_handle_unbind_kind(journal, kind));
    rejoin_status unbound = rejoin_handle_resolve(journal, comm, kind, &real);
    CHECK(rejoin_handle_rebind(journal, comm, 2000));
    CHECK(rejoin_handle_resolve(journal, comm, kind, &real));
    printf("second object: %llu\n", (unsigned long long)real);
    printf("unbound: %s\n", rejoin_status_string(unbound));

    CHECK(rejoin_handle_retire(journal, comm));
    CHECK(rejoin_handle_reserve(journal, kind, &next));
    CHECK(rejoin_handle_bind(journal, next, 3000));
    printf("retired: %s\n", rejoin_status_string(rejoin_handle_resolve(journal, comm, kind, &real)));
    printf("another kind: %s\n", rejoin_status_string(rejoin_handle_resolve(journal, next, REJOIN_HANDLE_KIND_STREAM, &real)));
    printf("a pointer: %s\n", rejoin_status_string(rejoin_handle_resolve(journal, (uint64_t)(uintptr_t)&real, kind, &real)));
    result = 0;
cleanup:
    if (journal != NULL) rejoin_journal_unlink(journal);
    rejoin_journal_close(journal);
    return result;
}
