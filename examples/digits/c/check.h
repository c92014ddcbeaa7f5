/* Errors of the examples: say which call failed, with its status and what Rejoin has to say about it. */
#ifndef EXAMPLES_CHECK_H
#define EXAMPLES_CHECK_H

#include <rejoin.h>
#include <stdio.h>

/* In a function with a `cleanup` label: goes there when a call fails. */
#define CHECK(call)                                                                                 \
    do {                                                                                            \
        rejoin_status check_status = (call);                                                        \
        if (check_status != REJOIN_STATUS_OK) {                                                     \
            fprintf(stderr, "%s: %s: %s\n", #call, rejoin_status_string(check_status),              \
                    rejoin_last_error());                                                           \
            goto cleanup;                                                                           \
        }                                                                                           \
    } while (0)

/* In a function that returns a status: hands it on. */
#define TRY(call)                                                                                   \
    do {                                                                                            \
        rejoin_status try_status = (call);                                                          \
        if (try_status != REJOIN_STATUS_OK) return try_status;                                      \
    } while (0)

#endif
