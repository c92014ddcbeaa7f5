/* A journal of the test's own, by the name of its job. */
#ifndef OWN_JOURNAL_H
#define OWN_JOURNAL_H
#include "expect.h"

static char job[48], name[96];

static inline rejoin_journal *create(uint32_t rank) {
    rejoin_journal *journal = NULL;
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = job;
    options.rank = rank;
    EXPECT(rejoin_journal_create(&options, &journal), OK, NULL);
    snprintf(name, sizeof name, "%s", rejoin_journal_name(journal));
    return journal;
}

static inline void end(rejoin_journal *journal) {
    EXPECT(rejoin_journal_unlink(journal), OK, NULL);
    EXPECT(rejoin_journal_close(journal), OK, NULL);
}

#endif
