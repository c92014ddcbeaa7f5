/*
 * rejoin_host_nccl.h: NCCL's C ABI on CPU memory.
 *
 * librejoin_host_nccl.so stands in for libnccl.so.2 where there is no GPU: same functions, same values,
 * same arithmetic, same failures. "Device memory" is any memory of the process; a stream is a queue with a
 * thread. It claims NCCL 2.30.7. This header is Rejoin's own; nothing of NVIDIA's is in it.
 *
 *     ncclComm_t comms[2];
 *     float x[2] = {1, 2};
 *     ncclCommInitAll(comms, 2, NULL);              // two ranks in this process
 *     ncclGroupStart();
 *     for (int i = 0; i < 2; i++)
 *         ncclAllReduce(&x[i], &x[i], 1, ncclFloat32, ncclSum, comms[i], NULL);
 *     ncclGroupEnd();
 *     ncclHostStreamSynchronize(NULL);              // both are 3 now
 *     for (int i = 0; i < 2; i++)
 *         ncclCommDestroy(comms[i]);
 *
 * Failures, as between GPUs of one host:
 *   - A dead or absent rank is not noticed. ncclCommGetAsyncError stays ncclSuccess, collectives wait
 *     (asleep, not spinning) until ncclCommAbort, ncclCommRevoke or ncclCommShrink with
 *     NCCL_SHRINK_ABORT. Bring a detector of your own.
 *   - After that the stream completes as if all were well, with garbage (bytes 0x5a).
 *   - An aborted rank gives its healthy peers garbage too, in collectives of up to 512 KiB; larger ones
 *     stay hung.
 *   - With config.blocking = 0 calls return before they are done: poll ncclCommGetAsyncError until it is
 *     not ncclInProgress. Collectives are launched later than the call, so a stream that was idle before
 *     looks idle right after it.
 *   - Counts and types are not compared between ranks. A mismatch hangs or gives garbage; it never
 *     touches memory outside the caller's own buffers.
 *   - Exiting the process never waits, and aborts nothing.
 *
 * Threads: all functions, from any thread. A communicator can be aborted while another thread waits in a
 * call on it. Groups belong to a thread. After fork, the child must not use communicators of the parent.
 *
 * Ownership: a communicator is freed by ncclCommDestroy or ncclCommAbort, once; both take NULL. Buffers,
 * streams and slots for new communicators must live until the call that was given them has completed.
 *
 * Results: ncclSuccess; ncclInProgress (non-blocking); ncclInvalidArgument for NULL, stale handles and
 * values out of range; ncclInvalidUsage for a wrong order of calls; ncclSystemError with the system's
 * reason in ncclGetLastError; ncclUnhandledCudaError when a stream's device is lost.
 *
 * Environment: NCCL_COMM_BLOCKING (0, 1), NCCL_SOCKET_RETRY_CNT and NCCL_SOCKET_RETRY_SLEEP_MSEC (how long a
 * root that is gone is looked for), REJOIN_HOST_NCCL_QUIRKS (comma-separated behaviours of newer NCCL:
 * destroy-after-shrink, destroy-errored).
 */
#ifndef REJOIN_HOST_NCCL_H
#define REJOIN_HOST_NCCL_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 30
#define NCCL_PATCH 7
#define NCCL_VERSION_CODE 23007
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_SHRINK_ABORT 1

/* Most ranks of one communicator. */
#define NCCL_HOST_MAX_RANKS 1024

typedef struct ncclComm *ncclComm_t;

/* 128 opaque bytes; pass them to the other ranks. The process that made them lives until all have joined.
 * An id makes one communicator. */
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8,
    ncclNumResults = 9
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

/* Integers wrap. The average of integers truncates towards zero; floats are multiplied by 1/n before the
 * sum. Sums go in rank order: the bits are the same on every rank and in every run. */
typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = INT_MAX
} ncclRedOp_t;

typedef enum {
    ncclScalarDevice = 0,       /* read when the operation runs */
    ncclScalarHostImmediate = 1 /* read during the call */
} ncclScalarResidence_t;

/* Start from NCCL_CONFIG_INITIALIZER. Only blocking and commName have an effect here. */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char *netName;
    int splitShare;
    int trafficClass;
    const char *commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
    int graphUsageMode;
    int numRmaCtx;
    int maxP2pPeers;
    int graphStreamOrdering;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                                 \
    {                                                                                                           \
        sizeof(ncclConfig_t), 0xcafebeefu, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,     \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,         \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,         \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,         \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT          \
    }

/*
 * A stream, where NCCL has a cudaStream_t. NULL is the default stream of the communicator and its children.
 * Whoever makes a stream fills this struct (64 bytes, constant while it lives) and keeps it alive as long as
 * it has work; ncclHostStreamCreate makes one.
 */
typedef struct ncclHostStream ncclHostStream;
typedef ncclHostStream *ncclHostStream_t;
typedef void (*ncclHostWork)(void *arg);

#define NCCL_HOST_STREAM_MAGIC 0x314d525453484a52ull /* "RJHSTRM1" */
#define NCCL_HOST_STREAM_ABI 1u
#define NCCL_HOST_STREAM_OK 0
#define NCCL_HOST_STREAM_BUSY 1
#define NCCL_HOST_STREAM_LOST 2

struct ncclHostStream {
    uint64_t magic;
    uint32_t abi;
    uint32_t size;
    /* Appends work(arg): called once, in order, on the stream's thread. LOST: the caller keeps arg. */
    int32_t (*enqueue)(ncclHostStream_t stream, ncclHostWork work, void *arg);
    /* OK when everything enqueued has run, else BUSY or LOST; never blocks. */
    int32_t (*query)(ncclHostStream_t stream);
    void *owner;
    /* May be NULL. Like enqueue, but drop(arg) is called for work that will never run. With it, abort and
     * shrink wait for queued work, as NCCL's do; without it only for work that has begun. */
    int32_t (*enqueue_or_drop)(ncclHostStream_t stream, ncclHostWork work, ncclHostWork drop, void *arg);
    uint64_t reserved[2];
};

/* ---- Making communicators ---- */

ncclResult_t ncclGetVersion(int *version);

/* Makes an id. This process creates the memory of the communicator (anonymous, not in /dev/shm). */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);

/* Collective over nranks callers. *comm is stored at once, and NULL again when a blocking call fails.
 * An id of a process that is gone: ncclRemoteError after the retries of NCCL. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config);
/* Only the first id is used. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids, ncclUniqueId *ids,
                                      ncclConfig_t *config);
/* All ranks in this process. devices may be NULL; they are only reported by ncclCommCuDevice. */
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndevices, const int *devices);

/* All ranks call. Ordered by key, then rank. NCCL_SPLIT_NOCOLOR gets NULL. With a non-blocking parent
 * *newcomm is stored when ncclCommGetAsyncError(comm) is no longer ncclInProgress. config NULL: the parent's. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);

/* All ranks that are not in the list call, with the same list (it is sorted in place; duplicates and ranks
 * that do not exist give a wrong size, as with NCCL). NCCL_SHRINK_ABORT ends what is under way on comm
 * first, and waits for it. Otherwise as ncclCommSplit. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags);

/* One rank makes an id for one ncclCommGrow of comm. */
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);

/* Existing ranks: comm, rank -1, id NULL (the maker, and the only rank of a parent of one, pass it). New
 * ranks: comm NULL, the id, and ranks from the parent's size on. comm lives on. */
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config);

/* Adding one rank to an existing communicator in place: the new process calls InitNewRank and becomes rank
 * nranks - 1, the others call AddNewRank; then all call SetupNewRank, which waits for all. They meet under
 * the id of ncclHostSetNewRankRendezvous. Nothing may be under way on comm. */
ncclResult_t ncclCommInitNewRank(ncclComm_t *newcomm, int nranks);
ncclResult_t ncclCommAddNewRank(ncclComm_t comm);
ncclResult_t ncclCommSetupNewRank(ncclComm_t comm);

/* ---- Ending communicators ---- */

/* Waits for what was launched; then no more work is accepted. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
/* As finalize, and frees. With an error or in progress: returns that and frees nothing; abort instead. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
/* Ends everything under way, waits until it has left its streams, frees. In a group the flags of all
 * communicators are set before any is waited for: do that when several hang on one stream. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
/* Ends everything under way and refuses further work; shrink, split and destroy remain. flags is 0. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);

/* ---- Queries ---- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);
/* Never NULL. */
const char *ncclGetErrorString(ncclResult_t result);
/* The last message of any thread; never NULL; valid until this thread asks again. comm is not used. */
const char *ncclGetLastError(ncclComm_t comm);

/* ---- Memory and operators ---- */

ncclResult_t ncclMemAlloc(void **ptr, size_t size);
ncclResult_t ncclMemFree(void *ptr);
/* Registering has no effect here. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);
/* Each contribution is multiplied by *scalar before the sum. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- Collectives: enqueued on the stream, in the same order on all ranks ---- */

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, ncclHostStream_t stream);
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, ncclHostStream_t stream);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, ncclHostStream_t stream);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, ncclHostStream_t stream);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       ncclHostStream_t stream);
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, ncclHostStream_t stream);
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, ncclHostStream_t stream);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, ncclHostStream_t stream);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, ncclHostStream_t stream);
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      ncclHostStream_t stream);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      ncclHostStream_t stream);

/* ---- Groups ---- */

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* ---- Only here ---- */

/* The id under which new-rank calls of this process meet; NULL clears it. */
ncclResult_t ncclHostSetNewRankRendezvous(const ncclUniqueId *id);
/* While hold is not 0, calls on non-blocking communicators stay in progress: finds callers that do not poll. */
ncclResult_t ncclHostHoldLaunches(int hold);
ncclResult_t ncclHostStreamCreate(ncclHostStream_t *stream);
/* What is queued still runs. */
ncclResult_t ncclHostStreamDestroy(ncclHostStream_t stream);
/* NULL: all streams that this library made, the default ones included. */
ncclResult_t ncclHostStreamSynchronize(ncclHostStream_t stream);
/* ncclInProgress while work is queued or running. */
ncclResult_t ncclHostStreamQuery(ncclHostStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
