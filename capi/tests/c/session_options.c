/* A session that is opened by options instead of the environment. Run by `rejoin run -n 2 --backend host`; each rank prints
 * its failures, and rank 0 "ok". */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"

#include <stdlib.h>

enum { JOURNAL_BYTES = 1 << 20, LIMIT = 8 << 20, WINDOW = 1 << 26 };

static uint64_t number(const char *name) {
    const char *text = getenv(name);
    if (text == NULL) {
        fprintf(stderr, "%s is not set: run this under `rejoin run`\n", name);
        exit(1);
    }
    return strtoull(text, NULL, 10);
}

static void check_journal(const rejoin_session *session) {
    rejoin_journal *journal = NULL;
    rejoin_reader *reader = NULL;
    rejoin_reader_info info = REJOIN_READER_INFO_INIT;
    rejoin_record_ref record;
    static char piece[64 << 10];
    EXPECT(rejoin_session_journal(session, &journal), OK, NULL);
    /* More than its first segment has. */
    for (int i = 0; i < 2 * JOURNAL_BYTES / (int)sizeof piece; i++) {
        EXPECT(rejoin_journal_append(journal, REJOIN_REGION_SETUP, REJOIN_REQUEST_USER_OPAQUE, piece, sizeof piece, &record), OK, NULL);
    }
    EXPECT(rejoin_reader_open(rejoin_journal_name(journal), &reader), OK, NULL);
    EXPECT(rejoin_reader_get_info(reader, &info), OK, NULL);
    TRUE(info.policy == REJOIN_JOURNAL_POLICY_GROW && info.grow_limit_bytes == LIMIT && info.growth_segments > 0);
    EXPECT(rejoin_reader_close(reader), OK, NULL);
    EXPECT(rejoin_journal_close(journal), OK, NULL);
}

int main(void) {
    rejoin_session *session = NULL;
    rejoin_session_info info = REJOIN_SESSION_INFO_INIT;
    rejoin_session_options options = REJOIN_SESSION_OPTIONS_INIT;
    rejoin_device_ptr forgotten;
    uint64_t available = 0;
    uint32_t step;
    number("REJOIN_TOKEN");
    options.job = getenv("REJOIN_JOB");
    options.rank = (uint32_t)number("REJOIN_RANK");
    options.nranks = (uint32_t)number("REJOIN_NRANKS");
    options.incarnation = (uint32_t)number("REJOIN_INCARNATION");
    options.token = number("REJOIN_TOKEN");
    options.backend = REJOIN_BACKEND_HOST;
    options.window_bytes = WINDOW;
    options.journal_bytes = JOURNAL_BYTES;
    options.journal_policy = REJOIN_JOURNAL_POLICY_GROW;
    EXPECT(rejoin_session_open(&options, &session), INVALID_ARGUMENT, "grow_limit_bytes");
    options.grow_limit_bytes = LIMIT;
    options.unregistered = options.rank == 0 ? REJOIN_UNREGISTERED_REFUSE : REJOIN_UNREGISTERED_WARN;
    options.token++;
    EXPECT(rejoin_session_open(&options, &session), ACCESS, NULL);
    options.token--;
    EXPECT(rejoin_session_open(&options, &session), OK, NULL);
    if (session == NULL) return 1;
    EXPECT(rejoin_session_get_info(session, &info), OK, NULL);
    TRUE(info.rank == options.rank && info.nranks == 2 && info.incarnation == 0);
    check_journal(session);
    EXPECT(rejoin_mem_info(session, &available), OK, NULL);
    TRUE(available > 0 && available <= WINDOW);

    /* Memory that no recovery would restore. */
    EXPECT(rejoin_mem_alloc(session, 4096, &forgotten), OK, NULL);
    if (options.rank == 0) {
        EXPECT(rejoin_setup_done(session, &step, NULL, NULL), WRONG_STATE, "4096");
        EXPECT(rejoin_mem_free(session, forgotten), OK, NULL);
    }
    EXPECT(rejoin_setup_done(session, &step, NULL, NULL), OK, NULL);
    EXPECT(rejoin_session_finalize(session), OK, NULL);
    EXPECT(rejoin_session_close(session), OK, NULL);
    if (failures == 0 && options.rank == 0) printf("ok\n");
    return failures != 0;
}
