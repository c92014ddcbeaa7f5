/* A C program without Rejoin: processes make a communicator, one is killed, the others shrink and go on. */
#define _POSIX_C_SOURCE 200809L
#include "rejoin_host_nccl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NRANKS 3
#define VICTIM 1

#define CHECK(call)                                                                                       \
    do {                                                                                                  \
        ncclResult_t result_ = (call);                                                                    \
        if (result_ != ncclSuccess && result_ != ncclInProgress) {                                        \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(result_), \
                    ncclGetLastError(NULL));                                                              \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

static void wait_ready(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress)
        CHECK(ncclCommGetAsyncError(comm, &state));
    CHECK(state);
}

static void expect(int rank, const char *what, double found, double expected)
{
    if (found != expected) {
        fprintf(stderr, "rank %d: %s is %g, not %g\n", rank, what, found, expected);
        exit(1);
    }
}

static double sum(ncclComm_t comm, ncclHostStream_t stream, double value)
{
    CHECK(ncclAllReduce(&value, &value, 1, ncclDouble, ncclSum, comm, stream));
    wait_ready(comm);
    CHECK(ncclHostStreamSynchronize(stream));
    return value;
}

/* Runs in a child; `ready` tells the parent that the collective hangs, `go` is closed after the kill. */
static void run_rank(int rank, ncclUniqueId id, int ready, int go)
{
    ncclComm_t comm = NULL, survivors = NULL;
    ncclHostStream_t stream = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state;
    int excluded[1] = {VICTIM}, count = 0, me = -1;
    static float big[1 << 20];
    char byte = 0;

    config.blocking = 0;
    CHECK(ncclHostStreamCreate(&stream));
    CHECK(ncclCommInitRankConfig(&comm, NRANKS, id, rank, &config));
    wait_ready(comm);
    expect(rank, "sum", sum(comm, stream, rank + 1), 6);

    if (rank != VICTIM)
        CHECK(ncclAllReduce(big, big, 1 << 20, ncclFloat, ncclSum, comm, stream));
    wait_ready(comm);
    if (write(ready, &byte, 1) != 1)
        exit(1);
    if (read(go, &byte, 1) != 0)
        exit(1);

    /* The victim is dead, and nobody says so. */
    CHECK(ncclCommGetAsyncError(comm, &state));
    expect(rank, "asynchronous error", state, ncclSuccess);
    expect(rank, "stream", ncclHostStreamQuery(stream), ncclInProgress);

    CHECK(ncclCommShrink(comm, excluded, 1, &survivors, NULL, NCCL_SHRINK_ABORT));
    wait_ready(comm);
    CHECK(ncclHostStreamSynchronize(stream));
    CHECK(ncclCommAbort(comm));
    CHECK(ncclCommCount(survivors, &count));
    CHECK(ncclCommUserRank(survivors, &me));
    expect(rank, "count", count, NRANKS - 1);
    expect(rank, "new rank", me, rank > VICTIM ? rank - 1 : rank);
    expect(rank, "sum after shrink", sum(survivors, stream, rank), 2);
    CHECK(ncclCommDestroy(survivors));
    CHECK(ncclHostStreamDestroy(stream));
    exit(0);
}

int main(void)
{
    ncclUniqueId id;
    pid_t pids[NRANKS];
    int ready[2], go[2], version = 0;
    char byte;

    CHECK(ncclGetVersion(&version));
    expect(-1, "version", version, NCCL_VERSION_CODE);
    CHECK(ncclGetUniqueId(&id));
    if (pipe(ready) != 0 || pipe(go) != 0)
        return 1;
    /* Forked before this process has any communicator or thread of the library. */
    for (int rank = 0; rank < NRANKS; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            close(go[1]);
            run_rank(rank, id, ready[1], go[0]);
        }
    }
    for (int rank = 0; rank < NRANKS; rank++)
        if (read(ready[0], &byte, 1) != 1)
            return 1;
    kill(pids[VICTIM], SIGKILL);
    waitpid(pids[VICTIM], NULL, 0);
    close(go[1]);
    for (int rank = 0; rank < NRANKS; rank++) {
        int status = 0;
        if (rank == VICTIM)
            continue;
        if (waitpid(pids[rank], &status, 0) != pids[rank] || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return 1;
    }
    puts("ok");
    return 0;
}
