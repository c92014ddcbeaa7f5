/* Tests of the C ABI: a call, the status that it must have, and what its message must say. */
#ifndef EXPECT_H
#define EXPECT_H

#include <rejoin.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect_at(int line, const char *what, rejoin_status found, rejoin_status wanted, const char *says) {
    if (found != wanted || (says != NULL && strstr(rejoin_last_error(), says) == NULL)) {
        fprintf(stderr, "line %d: %s: %s (%s), expected %s with \"%s\"\n", line, what, rejoin_status_string(found),
                rejoin_last_error(), rejoin_status_string(wanted), says != NULL ? says : "");
        failures++;
    }
}
#define EXPECT(call, wanted, says) expect_at(__LINE__, #call, (call), REJOIN_STATUS_##wanted, says)

/* What is no status. */
#define TRUE(condition)                                                    \
    do {                                                                   \
        if (!(condition)) {                                                \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
            failures++;                                                    \
        }                                                                  \
    } while (0)

#endif
