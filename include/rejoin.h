/**
 * Rejoin: keeps a multi-process GPU job running when one of its ranks fails.
 *
 * Generated from the crate rejoin-capi by cbindgen; do not edit.
 *
 *     rejoin_session *s = NULL;
 *     uint32_t step;
 *     const void *blob;
 *     size_t length;
 *     CHECK(rejoin_session_open(NULL, &s));           // under `rejoin run -n 4 -- program`
 *     ... streams, modules, communicators, memory, rejoin_state_register() ...
 *     CHECK(rejoin_setup_done(s, &step, &blob, &length));
 *     while (step < steps) {
 *         rejoin_status st = rejoin_step_begin(s, step);
 *         if (st == REJOIN_STATUS_OK) st = gradient(s);               // nothing here writes parameters
 *         if (st == REJOIN_STATUS_OK) st = rejoin_step_end(s, &loader, sizeof loader);
 *         if (st == REJOIN_STATUS_OK) st = optimizer(s);              // local: no collectives
 *         if (st == REJOIN_STATUS_OK) st = rejoin_step_commit(s);
 *         if (st == REJOIN_STATUS_REDO) { CHECK(rejoin_resume(s, &step, &blob, &length)); continue; }
 *         CHECK(st);
 *         step++;
 *     }
 *     CHECK(rejoin_session_finalize(s));              // leaving is not dying
 *     rejoin_session_close(s);
 *
 * Status. Every function that can fail returns a rejoin_status: 0 is OK. rejoin_last_error() says in a
 * sentence what went wrong in this thread and what to do. Outputs are written only on OK.
 *
 * Ownership. Objects are opaque; what _open, _create, _snapshot or _journal gives is yours and goes back to
 * its _close once. Inputs are copied unless it is said that they stay. NULL is REJOIN_STATUS_NULL_ARGUMENT
 * wherever it is not said to mean something, in every build; a closed object is REJOIN_STATUS_CLOSED, an
 * object of another kind REJOIN_STATUS_INVALID_ARGUMENT. (The last 256 closed objects of a kind are told
 * apart; a pointer older than that may be another object.)
 *
 * Threads. A function may be called from any thread at any time unless its "Threads" line says otherwise.
 * A panic of the library becomes REJOIN_STATUS_PANIC. No function is async-signal-safe but the two that say
 * so: from a signal handler, set a flag and look at it between steps.
 *
 * Fork. Objects belong to the process that opened them; in a forked child every call on them returns
 * REJOIN_STATUS_FORKED. Open a journal anew there, by its name; a session is the parent's alone. exec is fine.
 *
 * Crash. A journal and the members segment stay in shared memory when a process dies. `rejoin gc` removes what
 * nobody needs any more.
 *
 * Structs that begin with `size` and `version` are initialised with their _INIT macro. A program that was
 * compiled with an older header works with a newer library; a newer program with an older library works as
 * long as it leaves new fields alone, and gets REJOIN_STATUS_VERSION otherwise.
 *
 * What requests return. Requests are recorded in the rank's journal, then executed. They take the arguments of
 * the CUDA or NCCL call that they name; docs/requests.md has them all, with what a replay does. They return
 *   REJOIN_STATUS_OK
 *   REJOIN_STATUS_REDO              inside a step: a rank failed, so the step runs again; nothing was executed
 *   REJOIN_STATUS_WRONG_STATE       it has no place here (a collective outside of a step, for instance)
 *   REJOIN_STATUS_STALE_HANDLE      a handle was retired, or recovery has not bound it again yet
 *   REJOIN_STATUS_INVALID_ARGUMENT  a handle of another kind, or a pointer where a handle belongs
 *   REJOIN_STATUS_TIMEOUT           a stream, an event or other ranks took longer than options.peer_timeout_ms
 *   REJOIN_STATUS_DEVICE, REJOIN_STATUS_NCCL
 *   REJOIN_STATUS_JOURNAL_FULL      nothing was recorded or executed
 *   REJOIN_STATUS_UNSUPPORTED       recorded, but nothing executes it: always of those that say "recorded only"
 *   REJOIN_STATUS_EVICTED, REJOIN_STATUS_GAVE_UP, REJOIN_STATUS_CLOSED    the job is over for this process
 *   REJOIN_STATUS_NULL_ARGUMENT
 */

#ifndef REJOIN_H
#define REJOIN_H

#include <stddef.h>
#include <stdint.h>

#define REJOIN_SESSION_OPTIONS_INIT                                                                    \
    {sizeof(rejoin_session_options), 1, NULL, 0, 0, 0, 0, 0, NULL, -1, 0, 0, 0, 0, 0, 0, 0, 0, NULL}
#define REJOIN_SESSION_INFO_INIT {sizeof(rejoin_session_info), 1, 0, 0, 0, 0, 0, 0}
#define REJOIN_COMM_CONFIG_INIT                                                                        \
    {sizeof(rejoin_comm_config), 1, REJOIN_UNDEFINED, REJOIN_UNDEFINED, REJOIN_UNDEFINED, 0, NULL, NULL}
#define REJOIN_JOURNAL_OPTIONS_INIT                                                                     \
    {sizeof(rejoin_journal_options), 1, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, {0}}
#define REJOIN_RECORD_INIT {sizeof(rejoin_record), 1, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_SNAPSHOT_INFO_INIT                                                                       \
    {sizeof(rejoin_snapshot_info), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_RECOVERY_REPORT_INIT                                                                    \
    {sizeof(rejoin_recovery_report), 1, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_FAILED_RANK_INIT {sizeof(rejoin_failed_rank), 1, 0, 0, 0, 0, 0, -1, {0}}
#define REJOIN_APPEND_OPTIONS_INIT {sizeof(rejoin_append_options), 1, 0, 0, 0, 0, 0}
#define REJOIN_LANE_INIT {sizeof(rejoin_lane), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_OBSTACLE_INIT {sizeof(rejoin_obstacle), 1, 0, 0, 0, NULL, NULL}
#define REJOIN_READER_INFO_INIT                                                                        \
    {sizeof(rejoin_reader_info), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}

/** Grows with every incompatible change of this header; also the number in the soname. */
#define REJOIN_ABI_VERSION 0

/** The package, which is not the ABI and not the journal's format. */
#define REJOIN_VERSION_MAJOR 0

/** The package. */
#define REJOIN_VERSION_MINOR 1

/** The package. */
#define REJOIN_VERSION_PATCH 0

/** A field of rejoin_comm_config that is left to NCCL. */
#define REJOIN_UNDEFINED INT32_MIN

#define REJOIN_REQUEST_DEVICE_SET 0x0101
#define REJOIN_REQUEST_DEVICE_RESET 0x0102
#define REJOIN_REQUEST_DEVICE_COUNT 0x0103
#define REJOIN_REQUEST_CONTEXT_CURRENT 0x0104
#define REJOIN_REQUEST_CONTEXT_STATE 0x0105
#define REJOIN_REQUEST_DEVICE_SYNCHRONIZE 0x0106
#define REJOIN_REQUEST_DEVICE_ATTRIBUTE 0x0107
#define REJOIN_REQUEST_CONTEXT_SET_LIMIT 0x0108
#define REJOIN_REQUEST_MEM_ALLOC 0x0201
#define REJOIN_REQUEST_MEM_FREE 0x0202
#define REJOIN_REQUEST_HOST_REGISTER 0x0203
#define REJOIN_REQUEST_HOST_UNREGISTER 0x0204
#define REJOIN_REQUEST_MEMCPY_HTOD 0x0205
#define REJOIN_REQUEST_MEMCPY_HTOD_DIGEST 0x0206
#define REJOIN_REQUEST_MEMCPY_DTOH 0x0207
#define REJOIN_REQUEST_MEMCPY_DTOD 0x0208
#define REJOIN_REQUEST_MEMCPY_HTOD_ASYNC 0x0209
#define REJOIN_REQUEST_MEMCPY_HTOD_ASYNC_DIGEST 0x020a
#define REJOIN_REQUEST_MEMCPY_DTOH_ASYNC 0x020b
#define REJOIN_REQUEST_MEMCPY_DTOD_ASYNC 0x020c
#define REJOIN_REQUEST_MEMSET 0x020d
#define REJOIN_REQUEST_MEMSET_ASYNC 0x020e
#define REJOIN_REQUEST_MEM_INFO 0x020f
#define REJOIN_REQUEST_NCCL_MEM_ALLOC 0x0210
#define REJOIN_REQUEST_NCCL_MEM_FREE 0x0211
#define REJOIN_REQUEST_HOST_ALLOC 0x0212
#define REJOIN_REQUEST_HOST_FREE 0x0213
#define REJOIN_REQUEST_MEM_ALLOC_ASYNC 0x0214
#define REJOIN_REQUEST_MEM_FREE_ASYNC 0x0215
#define REJOIN_REQUEST_STREAM_CREATE 0x0301
#define REJOIN_REQUEST_STREAM_DESTROY 0x0302
#define REJOIN_REQUEST_STREAM_SYNCHRONIZE 0x0303
#define REJOIN_REQUEST_STREAM_QUERY 0x0304
#define REJOIN_REQUEST_STREAM_WAIT_EVENT 0x0305
#define REJOIN_REQUEST_STREAM_GET_PRIORITY 0x0306
#define REJOIN_REQUEST_STREAM_ADOPT 0x0307
#define REJOIN_REQUEST_EVENT_CREATE 0x0401
#define REJOIN_REQUEST_EVENT_DESTROY 0x0402
#define REJOIN_REQUEST_EVENT_RECORD 0x0403
#define REJOIN_REQUEST_EVENT_SYNCHRONIZE 0x0404
#define REJOIN_REQUEST_EVENT_QUERY 0x0405
#define REJOIN_REQUEST_EVENT_ELAPSED 0x0406
#define REJOIN_REQUEST_MODULE_LOAD 0x0501
#define REJOIN_REQUEST_MODULE_UNLOAD 0x0502
#define REJOIN_REQUEST_MODULE_GET_FUNCTION 0x0503
#define REJOIN_REQUEST_MODULE_GET_GLOBAL 0x0504
#define REJOIN_REQUEST_FUNCTION_SET_ATTRIBUTE 0x0505
#define REJOIN_REQUEST_LIBRARY_OPEN 0x0506
#define REJOIN_REQUEST_LIBRARY_LOAD 0x0507
#define REJOIN_REQUEST_LIBRARY_UNLOAD 0x0508
#define REJOIN_REQUEST_LIBRARY_GET_KERNEL 0x0509
#define REJOIN_REQUEST_LAUNCH_KERNEL 0x0601
#define REJOIN_REQUEST_LAUNCH_COOPERATIVE 0x0602
#define REJOIN_REQUEST_GET_UNIQUE_ID 0x0701
#define REJOIN_REQUEST_COMM_INIT_RANK 0x0702
#define REJOIN_REQUEST_COMM_INIT_RANK_CONFIG 0x0703
#define REJOIN_REQUEST_COMM_INIT_RANK_SCALABLE 0x0704
#define REJOIN_REQUEST_COMM_INIT_ALL 0x0705
#define REJOIN_REQUEST_COMM_SPLIT 0x0706
#define REJOIN_REQUEST_COMM_SHRINK 0x0707
#define REJOIN_REQUEST_COMM_GET_UNIQUE_ID 0x0708
#define REJOIN_REQUEST_COMM_GROW 0x0709
#define REJOIN_REQUEST_COMM_FINALIZE 0x070a
#define REJOIN_REQUEST_COMM_DESTROY 0x070b
#define REJOIN_REQUEST_COMM_ABORT 0x070c
#define REJOIN_REQUEST_COMM_REVOKE 0x070d
#define REJOIN_REQUEST_COMM_SUSPEND 0x070e
#define REJOIN_REQUEST_COMM_RESUME 0x070f
#define REJOIN_REQUEST_COMM_COUNT 0x0710
#define REJOIN_REQUEST_COMM_CU_DEVICE 0x0711
#define REJOIN_REQUEST_COMM_USER_RANK 0x0712
#define REJOIN_REQUEST_COMM_GET_ASYNC_ERROR 0x0713
#define REJOIN_REQUEST_COMM_MEM_STATS 0x0714
#define REJOIN_REQUEST_GET_LAST_ERROR 0x0715
#define REJOIN_REQUEST_COMM_REGISTER 0x0716
#define REJOIN_REQUEST_COMM_DEREGISTER 0x0717
#define REJOIN_REQUEST_COMM_WINDOW_REGISTER 0x0718
#define REJOIN_REQUEST_COMM_WINDOW_DEREGISTER 0x0719
#define REJOIN_REQUEST_WIN_GET_USER_PTR 0x071a
#define REJOIN_REQUEST_REDOP_CREATE_PRE_MUL_SUM 0x071b
#define REJOIN_REQUEST_REDOP_DESTROY 0x071c
#define REJOIN_REQUEST_COMM_INIT_NEW_RANK 0x071d
#define REJOIN_REQUEST_COMM_ADD_NEW_RANK 0x071e
#define REJOIN_REQUEST_COMM_SETUP_NEW_RANK 0x071f
#define REJOIN_REQUEST_ALL_REDUCE 0x0801
#define REJOIN_REQUEST_BROADCAST 0x0802
#define REJOIN_REQUEST_BCAST 0x0803
#define REJOIN_REQUEST_REDUCE 0x0804
#define REJOIN_REQUEST_ALL_GATHER 0x0805
#define REJOIN_REQUEST_REDUCE_SCATTER 0x0806
#define REJOIN_REQUEST_ALL_TO_ALL 0x0807
#define REJOIN_REQUEST_GATHER 0x0808
#define REJOIN_REQUEST_SCATTER 0x0809
#define REJOIN_REQUEST_SEND 0x0901
#define REJOIN_REQUEST_RECV 0x0902
#define REJOIN_REQUEST_PUT_SIGNAL 0x0903
#define REJOIN_REQUEST_SIGNAL 0x0904
#define REJOIN_REQUEST_WAIT_SIGNAL 0x0905
#define REJOIN_REQUEST_GROUP_START 0x0a01
#define REJOIN_REQUEST_GROUP_END 0x0a02
#define REJOIN_REQUEST_GROUP_SIMULATE_END 0x0a03
#define REJOIN_REQUEST_HOST_CALLBACK 0x0b01
#define REJOIN_REQUEST_STREAM_CALLBACK 0x0b02
#define REJOIN_REQUEST_CAPTURE_BEGIN 0x0b03
#define REJOIN_REQUEST_CAPTURE_END 0x0b04
#define REJOIN_REQUEST_GRAPH_INSTANTIATE 0x0b05
#define REJOIN_REQUEST_GRAPH_LAUNCH 0x0b06
#define REJOIN_REQUEST_GRAPH_EXEC_DESTROY 0x0b07
#define REJOIN_REQUEST_IPC_GET_MEM_HANDLE 0x0b08
#define REJOIN_REQUEST_IPC_OPEN_MEM_HANDLE 0x0b09
#define REJOIN_REQUEST_IPC_CLOSE_MEM_HANDLE 0x0b0a
#define REJOIN_REQUEST_IPC_OPEN_EVENT_HANDLE 0x0b0b
#define REJOIN_REQUEST_MEM_IMPORT_HANDLE 0x0b0c
#define REJOIN_REQUEST_EXTERNAL_MEMORY_IMPORT 0x0b0d
#define REJOIN_REQUEST_UNKNOWN_CALL 0x0b0e
#define REJOIN_REQUEST_EXCHANGE 0x0c01
#define REJOIN_REQUEST_STATE_REGISTER 0x0c02
#define REJOIN_REQUEST_SETUP_DONE 0x0c03
#define REJOIN_REQUEST_STEP_BEGIN 0x0c04
#define REJOIN_REQUEST_STEP_END 0x0c05
#define REJOIN_REQUEST_STEP_COMMIT 0x0c06
#define REJOIN_REQUEST_USER_OPAQUE 0x8000

/** What a call ended with. Numbers are fixed and never reused, hundreds by stage; new ones may be added. */
enum rejoin_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** Done. */
    REJOIN_STATUS_OK = 0,
    /** Not a failure of the program: a rank failed, so the step runs again. Call rejoin_resume(). */
    REJOIN_STATUS_REDO = 1,
    /** A pointer or handle that may not be NULL is. */
    REJOIN_STATUS_NULL_ARGUMENT = 100,
    /** An argument is wrong; the message says which and what is expected. */
    REJOIN_STATUS_INVALID_ARGUMENT = 101,
    /** The call has no place here; the message says what comes first. */
    REJOIN_STATUS_WRONG_STATE = 102,
    /** The object was closed, or the job is over. */
    REJOIN_STATUS_CLOSED = 103,
    /** The object belongs to the process that forked this one. */
    REJOIN_STATUS_FORKED = 104,
    /** This backend or version cannot do it. */
    REJOIN_STATUS_UNSUPPORTED = 105,
    /** A defect of Rejoin; nothing is known about what the call did. */
    REJOIN_STATUS_PANIC = 106,
    /** Something asked for by name does not exist. */
    REJOIN_STATUS_NOT_FOUND = 200,
    /** The name is taken. */
    REJOIN_STATUS_EXISTS = 201,
    /** Not allowed for this user or process. */
    REJOIN_STATUS_ACCESS = 202,
    /** Shared memory, address space or the handle table is full. */
    REJOIN_STATUS_NO_SPACE = 203,
    /** Written by, or asked of, a version that does not fit this one. */
    REJOIN_STATUS_VERSION = 204,
    /** Bytes are not what Rejoin wrote. */
    REJOIN_STATUS_CORRUPT = 205,
    /** A system call failed. */
    REJOIN_STATUS_IO = 206,
    /** Nothing was written: the journal has no room. */
    REJOIN_STATUS_JOURNAL_FULL = 300,
    /** The handle's object is gone, or recovery has not bound it again yet. */
    REJOIN_STATUS_STALE_HANDLE = 301,
    /** The device failed the call. */
    REJOIN_STATUS_DEVICE = 400,
    /** NCCL failed the call. */
    REJOIN_STATUS_NCCL = 401,
    /** A library is missing or too old. */
    REJOIN_STATUS_LIBRARY = 402,
    /** A wait passed its deadline; the message says who was waited for. */
    REJOIN_STATUS_TIMEOUT = 500,
    /** This process was declared failed and replaced; it must end. */
    REJOIN_STATUS_EVICTED = 501,
    /** The job ended without success. */
    REJOIN_STATUS_GAVE_UP = 502,
    /** State was lost that nobody holds. */
    REJOIN_STATUS_NOT_RECOVERABLE = 503,
    /** Ranks disagree about what must be the same. */
    REJOIN_STATUS_MISMATCH = 504,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_status rejoin_status;
#else
typedef int32_t rejoin_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** The library behind a session. */
enum rejoin_backend
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** CPU memory and librejoin_host_nccl.so. */
    REJOIN_BACKEND_HOST = 1,
    /** The CUDA driver and NVIDIA's NCCL. */
    REJOIN_BACKEND_CUDA = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_backend rejoin_backend;
#else
typedef int32_t rejoin_backend;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** Where a buffer's content comes from after a recovery. */
enum rejoin_state_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** The same on all ranks of its communicator; from one of them. Written only after GO. */
    REJOIN_STATE_KIND_REPLICATED = 1,
    /** The rank's own, final at rejoin_step_end(); from the copy made there. */
    REJOIN_STATE_KIND_PER_RANK = 2,
    /** Zeroed whenever a step begins. */
    REJOIN_STATE_KIND_SCRATCH = 3,
    /** Written in set-up only; a replacement's own set-up writes it again, and its content is compared. */
    REJOIN_STATE_KIND_CONSTANT = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_state_kind rejoin_state_kind;
#else
typedef uint32_t rejoin_state_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** Element types, with the numbers of ncclDataType_t. */
enum rejoin_data_type
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    REJOIN_DATA_TYPE_INT8 = 0,
    REJOIN_DATA_TYPE_UINT8 = 1,
    REJOIN_DATA_TYPE_INT32 = 2,
    REJOIN_DATA_TYPE_UINT32 = 3,
    REJOIN_DATA_TYPE_INT64 = 4,
    REJOIN_DATA_TYPE_UINT64 = 5,
    REJOIN_DATA_TYPE_FLOAT16 = 6,
    REJOIN_DATA_TYPE_FLOAT32 = 7,
    REJOIN_DATA_TYPE_FLOAT64 = 8,
    REJOIN_DATA_TYPE_BFLOAT16 = 9,
    REJOIN_DATA_TYPE_FLOAT8E4M3 = 10,
    REJOIN_DATA_TYPE_FLOAT8E5M2 = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_data_type rejoin_data_type;
#else
typedef int32_t rejoin_data_type;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** Reduction operators, with the numbers of ncclRedOp_t. */
enum rejoin_reduce_op
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    REJOIN_REDUCE_OP_SUM = 0,
    REJOIN_REDUCE_OP_PROD = 1,
    REJOIN_REDUCE_OP_MAX = 2,
    REJOIN_REDUCE_OP_MIN = 3,
    REJOIN_REDUCE_OP_AVG = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_reduce_op rejoin_reduce_op;
#else
typedef int32_t rejoin_reduce_op;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** What a virtual handle stands for. */
enum rejoin_handle_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** ncclComm_t. */
    REJOIN_HANDLE_KIND_COMMUNICATOR = 1,
    /** CUstream. */
    REJOIN_HANDLE_KIND_STREAM = 2,
    /** CUevent. */
    REJOIN_HANDLE_KIND_EVENT = 3,
    /** CUmodule. */
    REJOIN_HANDLE_KIND_MODULE = 4,
    /** CUfunction. */
    REJOIN_HANDLE_KIND_FUNCTION = 5,
    /** CUgraphExec. */
    REJOIN_HANDLE_KIND_GRAPH_EXEC = 6,
    /** CUlibrary. */
    REJOIN_HANDLE_KIND_LIBRARY = 7,
    /** ncclRedOp_t made by the application. */
    REJOIN_HANDLE_KIND_REDOP = 8,
    /** What ncclCommRegister gives. */
    REJOIN_HANDLE_KIND_REGISTRATION = 9,
    /** ncclWindow_t. */
    REJOIN_HANDLE_KIND_WINDOW = 10,
    /** The application's own. */
    REJOIN_HANDLE_KIND_USER = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_handle_kind rejoin_handle_kind;
#else
typedef uint32_t rejoin_handle_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** How long a record counts. */
enum rejoin_region
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** For the life of the journal. */
    REJOIN_REGION_SETUP = 0,
    /** Until the step's commit. */
    REJOIN_REGION_STEP = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_region rejoin_region;
#else
typedef uint32_t rejoin_region;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** What a reader can say about a record. */
enum rejoin_outcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** Whole; its call may have been issued. */
    REJOIN_OUTCOME_COMMITTED = 1,
    /** Being written by a live thread; its call has not been issued. */
    REJOIN_OUTCOME_IN_FLIGHT = 2,
    /** Its thread died while writing it; its call was never issued. */
    REJOIN_OUTCOME_TORN = 3,
    /** It took a number and was never committed. */
    REJOIN_OUTCOME_LOST = 4,
    /** Its checksum is wrong: something else wrote here. */
    REJOIN_OUTCOME_CORRUPT = 5,
    /** Whole, but for its payload, which was left out when it was appended: see REJOIN_APPEND_MODE_ABSENT. */
    REJOIN_OUTCOME_ABSENT = 6,
    /** No record: numbers that rejoin_follower_next() will not tell. */
    REJOIN_OUTCOME_MISSING = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_outcome rejoin_outcome;
#else
typedef uint32_t rejoin_outcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** How a rank failed. */
enum rejoin_cause
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** Its device is lost, its process lives on. */
    REJOIN_CAUSE_DEVICE_LOST = 1,
    /** Its process died. */
    REJOIN_CAUSE_DIED = 2,
    /** Its process did not go on. */
    REJOIN_CAUSE_HUNG = 3,
    /** It was declared failed for another reason. */
    REJOIN_CAUSE_EVICTED = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_cause rejoin_cause;
#else
typedef uint32_t rejoin_cause;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** How communicators were rebuilt. */
enum rejoin_strategy
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** Not decided. */
    REJOIN_STRATEGY_AUTO = 1,
    /** A fresh unique id with the original ranks. */
    REJOIN_STRATEGY_REINIT = 2,
    /** Shrink, then grow by the replacement. */
    REJOIN_STRATEGY_GROW = 3,
    /** The three new-rank calls. */
    REJOIN_STRATEGY_NEW_RANK = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_strategy rejoin_strategy;
#else
typedef uint32_t rejoin_strategy;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** How a recovery ended. */
enum rejoin_recovery_outcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** The job goes on. */
    REJOIN_RECOVERY_OUTCOME_RECOVERED = 1,
    /** A further failure; the next report continues. */
    REJOIN_RECOVERY_OUTCOME_SUPERSEDED = 2,
    /** The job ended. */
    REJOIN_RECOVERY_OUTCOME_GAVE_UP = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_recovery_outcome rejoin_recovery_outcome;
#else
typedef uint32_t rejoin_recovery_outcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** What has happened. */
enum rejoin_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** A rank has failed: the job has a new epoch, and the open step is doomed. */
    REJOIN_EVENT_KIND_REDO = 1,
    /** A communicator was rebuilt; its handle is good again. */
    REJOIN_EVENT_KIND_REBOUND = 2,
    /** A recovery is done; the job goes on with `step`. */
    REJOIN_EVENT_KIND_RECOVERED = 3,
    /** The job is over, or this rank is out of it. The last event. */
    REJOIN_EVENT_KIND_ENDED = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_event_kind rejoin_event_kind;
#else
typedef uint32_t rejoin_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** What an append does when the journal is full. */
enum rejoin_journal_policy
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** Returns REJOIN_STATUS_JOURNAL_FULL. */
    REJOIN_JOURNAL_POLICY_ERROR = 1,
    /** In the step region: waits for a step's commit to make room. In the set-up region, as ERROR. */
    REJOIN_JOURNAL_POLICY_BLOCK = 2,
    /** Makes further segments in shared memory. */
    REJOIN_JOURNAL_POLICY_GROW = 3,
    /** Makes further segments as files, with the capacity of a disk. */
    REJOIN_JOURNAL_POLICY_SPILL = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_journal_policy rejoin_journal_policy;
#else
typedef uint32_t rejoin_journal_policy;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** What rejoin_setup_done() does about live device memory that no rejoin_state_register() has named. */
enum rejoin_unregistered
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** Returns REJOIN_STATUS_WRONG_STATE; register or free it and call again. */
    REJOIN_UNREGISTERED_REFUSE = 1,
    /** The launcher prints it, and the job goes on. For memory whose content nobody reads after a recovery. */
    REJOIN_UNREGISTERED_WARN = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_unregistered rejoin_unregistered;
#else
typedef uint32_t rejoin_unregistered;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** How a record is appended. */
enum rejoin_append_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** As rejoin_journal_append(). */
    REJOIN_APPEND_MODE_PLAIN = 0,
    /** For what takes a full journal apart, such as the end of an object: uses room that is kept back for it. */
    REJOIN_APPEND_MODE_VITAL = 1,
    /**
     * The payload stays away, since its bytes can be had elsewhere: the record keeps its length, its checksum and at
     * most 256 bytes of the first part. Readers see REJOIN_OUTCOME_ABSENT; no replay executes it.
     */
    REJOIN_APPEND_MODE_ABSENT = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_append_mode rejoin_append_mode;
#else
typedef uint32_t rejoin_append_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** Who holds a lane. */
enum rejoin_lane_owner
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** The last owner gave it back. */
    REJOIN_LANE_OWNER_NONE = 1,
    /** A thread that lives, stopped ones too. */
    REJOIN_LANE_OWNER_ALIVE = 2,
    /** A thread that died, and nobody has taken the lane over. */
    REJOIN_LANE_OWNER_DEAD = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_lane_owner rejoin_lane_owner;
#else
typedef uint32_t rejoin_lane_owner;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** Why a request cannot be replayed. Numbers are in records. */
enum rejoin_reason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /** It calls a function of the application. */
    REJOIN_REASON_HOST_CALLBACK = 1,
    /** Work goes into a graph instead of being done. */
    REJOIN_REASON_GRAPH_CAPTURE = 2,
    /** It maps memory or an event of another process. */
    REJOIN_REASON_IPC_IMPORT = 3,
    /** The call is not in the table. */
    REJOIN_REASON_UNKNOWN_CALL = 4,
    /** A stream or pointer that Rejoin did not make. */
    REJOIN_REASON_FOREIGN_ARGUMENT = 5,
    /** Only size and checksum of the bytes were recorded. */
    REJOIN_REASON_BYTES_NOT_RECORDED = 6,
    /** It changes communicators inside a step. */
    REJOIN_REASON_COMMUNICATOR_IN_STEP = 7,
    /** It accesses a window of another rank. */
    REJOIN_REASON_ONE_SIDED = 8,
    /** The application reset the device itself. */
    REJOIN_REASON_DEVICE_RESET = 9,
    /** It is the application's own, without a replay function. */
    REJOIN_REASON_USER_REQUEST = 10,
    /** Several devices in one process. */
    REJOIN_REASON_SEVERAL_DEVICES = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rejoin_reason rejoin_reason;
#else
typedef uint32_t rejoin_reason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** Reads a journal as it is written. */
typedef struct rejoin_follower rejoin_follower;

/** A journal open for writing. */
typedef struct rejoin_journal rejoin_journal;

/** A journal open for reading. */
typedef struct rejoin_reader rejoin_reader;

/** A request that is being put together. */
typedef struct rejoin_request rejoin_request;

/** A rank of a job in this process. */
typedef struct rejoin_session rejoin_session;

/** One look at a journal: its records do not change any more. */
typedef struct rejoin_snapshot rejoin_snapshot;

/** How a session is opened. Initialise it with REJOIN_SESSION_OPTIONS_INIT. */
typedef struct rejoin_session_options {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /**
     * Job name, [A-Za-z0-9_-]{1,64}. NULL: job, rank, nranks, incarnation, token and backend come from the
     * environment that `rejoin run` sets, and the fields of these names do not matter.
     */
    const char *job;
    /** This process's rank. */
    uint32_t rank;
    /** Ranks of the job. */
    uint32_t nranks;
    /** The n-th process that holds the rank, from 0. */
    uint32_t incarnation;
    /** A rejoin_backend. */
    int32_t backend;
    /** Proof that the job's launcher started this process. */
    uint64_t token;
    /** NCCL to load; NULL: REJOIN_NCCL, else libnccl.so.2 or the host library. */
    const char *nccl;
    /** Device number; -1: REJOIN_DEVICE, else the local rank. */
    int32_t device;
    /** 0. */
    uint32_t reserved;
    /** Device memory to reserve, the same in every incarnation; 0: the default. */
    uint64_t window_bytes;
    /** Bytes of the journal; 0: the default, 4 MiB. */
    uint64_t journal_bytes;
    /** Longest wait for peers in set-up and in a step; 0: the default, half an hour. */
    uint64_t peer_timeout_ms;
    /** A rejoin_journal_policy for the rank's journal; 0: what the environment says where `job` is NULL, else ERROR. */
    uint32_t journal_policy;
    /** A rejoin_unregistered; 0: what the environment's REJOIN_UNREGISTERED says, else REFUSE. */
    uint32_t unregistered;
    /** Policy BLOCK: longest wait. */
    uint64_t block_timeout_ms;
    /** Policy GROW: bytes of all segments together. */
    uint64_t grow_limit_bytes;
    /** Policy SPILL: an existing folder, by its absolute path of at most 255 bytes. */
    const char *spill_directory;
} rejoin_session_options;

/** What a session says about itself. Initialise it with REJOIN_SESSION_INFO_INIT. */
typedef struct rejoin_session_info {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** This process's rank. */
    uint32_t rank;
    /** Ranks of the job. */
    uint32_t nranks;
    /** The n-th process that holds the rank, from 0. */
    uint32_t incarnation;
    /** Grows with every change of membership. */
    uint32_t epoch;
    /** 1: this process replaces one that died. */
    uint32_t is_replacement;
    /** 0. */
    uint32_t reserved;
} rejoin_session_info;

/** Names a communicator that is to be made; stays good when its maker dies. Copied by value, sent by any way. */
typedef struct rejoin_unique_id {
    /** Opaque. */
    uint8_t bytes[128];
} rejoin_unique_id;

/** A virtual handle: never 0, never the value of a pointer. */
typedef uint64_t rejoin_handle;

/** What may be chosen for a communicator. Initialise it with REJOIN_COMM_CONFIG_INIT. */
typedef struct rejoin_comm_config {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** Thread blocks in a cluster, or REJOIN_UNDEFINED. */
    int32_t cga_cluster_size;
    /** Fewest thread blocks, or REJOIN_UNDEFINED. */
    int32_t min_ctas;
    /** Most thread blocks, or REJOIN_UNDEFINED. */
    int32_t max_ctas;
    /** 0. */
    uint32_t reserved;
    /** Network plugin, at most 64 bytes; NULL: NCCL's choice. */
    const char *net_name;
    /** Name in logs, at most 64 bytes; may be NULL. */
    const char *comm_name;
} rejoin_comm_config;

/** An address in the device's window: the same in every incarnation with the same set-up. */
typedef uint64_t rejoin_device_ptr;

/** One recovery. Initialise it with REJOIN_RECOVERY_REPORT_INIT. */
typedef struct rejoin_recovery_report {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** Its epoch. */
    uint32_t epoch;
    /** How many ranks failed. */
    uint32_t failed_total;
    /** The first of them. */
    uint32_t failed_rank;
    /** Which process of that rank. */
    uint32_t failed_incarnation;
    /** A rejoin_cause. */
    uint32_t cause;
    /** A rejoin_strategy. */
    uint32_t strategy;
    /** A rejoin_recovery_outcome. */
    uint32_t outcome;
    /** Step that the job went on with. */
    uint32_t resumed_step;
    /** Rank that gave state; -1: none. */
    int32_t donor;
    /** 1: the total starts at the kill, 0: at its detection. */
    uint32_t from_kill;
    /** Requests replayed, by all ranks. */
    uint64_t replayed_requests;
    /** Bytes of state restored. */
    uint64_t restored_bytes;
    /** From the failure to the next committed step; 0 until then. */
    uint64_t total_ns;
    /** The longest of any rank, as the following ones. */
    uint64_t detect_ns;
    /** Agreeing on who failed. */
    uint64_t agree_ns;
    /** Proving that they are gone. */
    uint64_t fence_ns;
    /** Aborting what hung. */
    uint64_t quiesce_ns;
    /** Making the communicators again. */
    uint64_t rebuild_ns;
    /** Executing recorded requests again. */
    uint64_t replay_ns;
    /** Copying state. */
    uint64_t restore_ns;
    /** Comparing replicas and the fingerprint. */
    uint64_t verify_ns;
    /** From the notice of a death until the replacement took part; beside the stages above, not one of them. */
    uint64_t start_ns;
} rejoin_recovery_report;

/** A process that failed in a recovery. Initialise it with REJOIN_FAILED_RANK_INIT. */
typedef struct rejoin_failed_rank {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** Its rank. */
    uint32_t rank;
    /** The n-th process that held the rank. */
    uint32_t incarnation;
    /** A rejoin_cause. */
    uint32_t cause;
    /** 1: the launcher has seen it end, and one of the following says how. */
    uint32_t has_exit;
    /** The signal that killed it; 0: none did. */
    int32_t signal;
    /** What it exited with; -1: it did not exit by itself. */
    int32_t exit_code;
    /** The last request of its journal in words, cut; with a terminating zero. */
    char last_request[72];
} rejoin_failed_rank;

/** An event. Fields that its kind does not have are 0. */
typedef struct rejoin_event {
    /** Of this struct, as the library knows it. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** A rejoin_event_kind. */
    uint32_t kind;
    /** The job's epoch. */
    uint32_t epoch;
    /** The handle of a rebound communicator. */
    uint64_t comm;
    /** The step to go on with. */
    uint32_t step;
    /** 0. */
    uint32_t reserved;
} rejoin_event;

/**
 * Is told about an event, on a thread of Rejoin. Must not wait for recovery, and must not throw: an exception that
 * leaves it ends the process (SIGABRT), as one that leaves main() does. rejoin.hpp catches them.
 */
typedef void (*rejoin_event_function)(const struct rejoin_event *event, void *user);

/** Names a record, to store its result. */
typedef struct rejoin_record_ref {
    /** Its place in the journal's order, from 1. */
    uint64_t sequence;
    /** Where it is. */
    uint64_t position;
} rejoin_record_ref;

/** How a journal is created. Initialise it with REJOIN_JOURNAL_OPTIONS_INIT. */
typedef struct rejoin_journal_options {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** Job name, [A-Za-z0-9_-]{1,64}. */
    const char *job;
    /** Rank that writes. */
    uint32_t rank;
    /** The n-th process that holds the rank. */
    uint32_t incarnation;
    /** Bytes of shared memory; 0: 4 MiB. */
    uint64_t capacity_bytes;
    /** Bytes of a chunk, a power of two; 0: 64 KiB. */
    uint64_t chunk_bytes;
    /** Threads that may append at the same time; 0: 64. */
    uint32_t max_slots;
    /** Handles that may live at the same time; 0: 4,096. */
    uint32_t max_handles;
    /** A rejoin_journal_policy; 0: REJOIN_JOURNAL_POLICY_ERROR. */
    uint32_t policy;
    /** 0. */
    uint32_t reserved;
    /** Policy BLOCK: longest wait. */
    uint64_t block_timeout_ms;
    /** Policy GROW: bytes of all segments together. */
    uint64_t grow_limit_bytes;
    /** Policy SPILL: an existing folder, by its absolute path of at most 255 bytes. */
    const char *spill_directory;
    /** Tells jobs of one name apart; all 0 is fine. */
    uint8_t job_uuid[16];
} rejoin_journal_options;

/** How a record is appended. Initialise it with REJOIN_APPEND_OPTIONS_INIT. */
typedef struct rejoin_append_options {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** A rejoin_region. */
    uint32_t region;
    /** A rejoin_append_mode. */
    uint32_t mode;
    /** As in rejoin_journal_append(). */
    uint16_t kind;
    /** The lower 12 bits are yours; readers get them back. */
    uint16_t flags;
    /** 0. */
    uint32_t reserved;
} rejoin_append_options;

/** A piece of a payload. */
typedef struct rejoin_part {
    /** NULL only where there are none. */
    const void *bytes;
    /** How many. */
    size_t length;
} rejoin_part;

/** What a snapshot says about its journal. Initialise it with REJOIN_SNAPSHOT_INFO_INIT. */
typedef struct rejoin_snapshot_info {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** Records that rejoin_snapshot_get() gives. */
    uint64_t records;
    /** Every record below was looked for: what to pass as `after` next, plus one. */
    uint64_t limit;
    /** Step records below it are over. */
    uint64_t boundary;
    /** Step to run next; 0: none was committed. */
    uint64_t next_step;
    /** Sequence numbers that dead threads took with them. */
    uint64_t lost;
    /** Records that a policy dropped. */
    uint64_t dropped;
    /** Process that created the journal. */
    uint32_t creator_pid;
    /** Rank that writes it. */
    uint32_t rank;
    /** The n-th process that held the rank. */
    uint32_t incarnation;
    /** 1: the writer ended in good order. */
    uint32_t finished;
    /** 1: nothing is corrupt, damaged, dropped or missing without a reason. */
    uint32_t whole;
    /** 0. */
    uint32_t reserved;
    /** A record from this sequence on was dropped, so the journal cannot be replayed; 0: none was. */
    uint64_t incomplete_from;
    /** Sequence numbers of the open step that no record has, `lost` ones and those of records in flight. */
    uint64_t missing;
} rejoin_snapshot_info;

/** One record. Initialise it with REJOIN_RECORD_INIT. */
typedef struct rejoin_record {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** Place in the journal's order, from 1; 0: never committed. */
    uint64_t sequence;
    /** What the call gave. For a session's requests: bit 61 set and the rejoin_status where it failed. */
    uint64_t result;
    /** The snapshot's, valid until its close; or the follower's, until its next call. */
    const void *payload;
    /** Length of the payload. */
    uint64_t payload_bytes;
    /** A rejoin_outcome. */
    uint32_t outcome;
    /** A rejoin_region. */
    uint32_t region;
    /** 1: the call has returned, and `result` is set. */
    uint32_t has_result;
    /** REJOIN_REQUEST_…. */
    uint16_t kind;
    /** Slot whose thread wrote it. */
    uint16_t slot;
    /** With REJOIN_OUTCOME_MISSING: how many numbers, from `sequence` on. */
    uint64_t missing;
    /** The writer's own, 12 bits. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} rejoin_record;

/** The records of one writing thread. Initialise it with REJOIN_LANE_INIT. */
typedef struct rejoin_lane {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** As in rejoin_record. */
    uint32_t slot;
    /** A rejoin_lane_owner. */
    uint32_t owner;
    /** The owner's process; 0 without one. */
    uint32_t pid;
    /** The owner's thread; 0 without one. */
    uint32_t tid;
    /** Owners that died in it and were reaped. */
    uint64_t deaths;
    /** At most so many sequence numbers were lost by them. */
    uint64_t lost;
    /** Set-up records that compaction has left out. */
    uint64_t compacted;
    /** Byte of the journal where its records stop making sense; 0: nowhere. */
    uint64_t damaged_at;
    /** 1: its owner was too fast for this snapshot, and its records are not in it. Nothing is wrong with them. */
    uint32_t disturbed;
    /** 0. */
    uint32_t reserved;
} rejoin_lane;

/** A reason why a journal cannot be replayed. Initialise it with REJOIN_OBSTACLE_INIT. */
typedef struct rejoin_obstacle {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** A rejoin_region: SETUP matters when a device fails, STEP only under policy replay. */
    uint32_t region;
    /** 0. */
    uint32_t reserved;
    /** The record's place; 0: it is not about one record. */
    uint64_t sequence;
    /** The request in words, empty where it cannot be told; the snapshot's, valid until its close. */
    const char *request;
    /** Why, and what to do instead; the snapshot's, valid until its close. */
    const char *reason;
} rejoin_obstacle;

/** What a journal says about itself. Initialise it with REJOIN_READER_INFO_INIT. */
typedef struct rejoin_reader_info {
    /** Of this struct. */
    uint32_t size;
    /** Of this struct. */
    uint32_t version;
    /** Rank that writes it. */
    uint32_t rank;
    /** The n-th process that held the rank. */
    uint32_t incarnation;
    /** Process that created it. */
    uint32_t creator_pid;
    /**
     * 1: nobody will write any more. The writer finished in good order, or it and all who held a lane are gone; a
     * copy of a journal has ended. A process that only opened it and has not appended yet is not seen.
     */
    uint32_t writer_ended;
    /** Step records below it are over. */
    uint64_t boundary;
    /** Step to run next; 0: none was committed. */
    uint64_t next_step;
    /** A rejoin_journal_policy. */
    uint32_t policy;
    /** Segments that it has grown by. */
    uint32_t growth_segments;
    /** Bytes of them. */
    uint64_t growth_bytes;
    /** Policy BLOCK: longest wait. */
    uint64_t block_timeout_ms;
    /** Policy GROW: bytes of all segments together. */
    uint64_t grow_limit_bytes;
    /** Tells jobs of one name apart. */
    uint8_t job_uuid[16];
} rejoin_reader_info;

/** A handle that is in use, in a journal's table. */
typedef struct rejoin_handle_entry {
    /** The handle. */
    rejoin_handle handle;
    /** Its object, by its value. */
    uint64_t real;
    /** A rejoin_handle_kind. */
    uint32_t kind;
    /** 1: it has an object now, `real`. */
    uint32_t is_bound;
} rejoin_handle_entry;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, such as "0.1.0".
 *
 * @return static text, never NULL
 * Threads: any, concurrently. Async-signal-safe.
 */
const char *rejoin_version(void);

/**
 * Checks that the library speaks the ABI that the program was compiled for.
 *
 *     if (rejoin_abi_check(REJOIN_ABI_VERSION) != REJOIN_STATUS_OK) exit(1);
 *
 * @param abi_version  REJOIN_ABI_VERSION
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_VERSION
 * Threads: any, concurrently.
 */
rejoin_status rejoin_abi_check(uint32_t abi_version);

/**
 * A short text for a status; "unknown status" for any other number.
 *
 * @param status  any number
 * @return static text, never NULL
 * Threads: any, concurrently. Async-signal-safe.
 */
const char *rejoin_status_string(int32_t status);

/**
 * What this thread's last failing call has to say, in a sentence that says what to do.
 *
 * @return UTF-8, never NULL, empty before the thread's first failure; valid until the thread's next call
 * Threads: any; each has its own message.
 */
const char *rejoin_last_error(void);

/**
 * Joins a job as the rank that the launcher has given to this process: opens device, NCCL and journal, and
 * starts the threads that watch the other ranks. One session a process. A replacement waits here until the
 * process that it replaces is proven gone, since that may still hold device memory. After a failure the rank's token
 * may be used up: end the process, so that the launcher goes on.
 *
 * @param options      how; NULL: all from the environment that `rejoin run` sets
 * @param out_session  set on OK; leave with rejoin_session_finalize(), then give it to rejoin_session_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (not under `rejoin run`, for instance);
 *         REJOIN_STATUS_ACCESS (the launcher did not start this process); REJOIN_STATUS_NOT_FOUND (no such
 *         job); REJOIN_STATUS_EXISTS; REJOIN_STATUS_NO_SPACE; REJOIN_STATUS_DEVICE; REJOIN_STATUS_LIBRARY;
 *         REJOIN_STATUS_TIMEOUT (the replaced process, which the message names, has not ended within
 *         `rejoin run --stage-timeout`); REJOIN_STATUS_VERSION; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one.
 */
rejoin_status rejoin_session_open(const struct rejoin_session_options *options,
                                  struct rejoin_session **out_session);

/**
 * Leaves the job: waits until all ranks have come here. Without it the end of this process is a death, and
 * the launcher starts another one in its place.
 *
 * @param session  between steps; afterwards only rejoin_session_close() is left to do
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (inside a step); REJOIN_STATUS_TIMEOUT;
 *         REJOIN_STATUS_CLOSED; REJOIN_STATUS_EVICTED; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one; waits for all ranks, at most options.peer_timeout_ms.
 */
rejoin_status rejoin_session_finalize(struct rejoin_session *session);

/**
 * Frees the session. Not the way to leave a job: see rejoin_session_finalize().
 *
 * @param session  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
rejoin_status rejoin_session_close(struct rejoin_session *session);

/**
 * Says who this process is.
 *
 * @param session   open
 * @param out_info  initialised with REJOIN_SESSION_INFO_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_session_get_info(const struct rejoin_session *session,
                                      struct rejoin_session_info *out_info);

/**
 * Asks whether the open step still counts, so that a long computation on the CPU can stop early.
 *
 * @param session  open
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO (doomed); REJOIN_STATUS_EVICTED; REJOIN_STATUS_CLOSED,
 *         REJOIN_STATUS_GAVE_UP and others (the job is over; the message says why);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. One load where all is well.
 */
rejoin_status rejoin_session_check(const struct rejoin_session *session);

/**
 * The journal of this rank, for its handles and for records of the application's own. Its steps and what they begin
 * with are the session's: do not commit, discard, prepare or compact by yourself.
 *
 * @param session      open
 * @param out_journal  set on OK; give it to rejoin_journal_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_session_journal(const struct rejoin_session *session,
                                     struct rejoin_journal **out_journal);

/**
 * Publishes bytes under a key for all ranks, for a rendezvous of the application's own. A replacement that
 * publishes or awaits the key again gets along with what stands there.
 *
 * @param session  open
 * @param key      UTF-8
 * @param value    copied; at most 64 KiB a rank in all
 * @param value_bytes  its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NO_SPACE; REJOIN_STATUS_NULL_ARGUMENT;
 *         REJOIN_STATUS_INVALID_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_exchange_publish(const struct rejoin_session *session,
                                      const char *key,
                                      const void *value,
                                      size_t value_bytes);

/**
 * Waits for what a rank publishes under a key.
 *
 * @param session     open
 * @param key         UTF-8
 * @param buffer      gets the value
 * @param capacity    of the buffer; 64 KiB is always enough
 * @param out_bytes   set on OK: length of the value
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_TIMEOUT (nobody published it within options.peer_timeout_ms);
 *         REJOIN_STATUS_INVALID_ARGUMENT (the buffer is too small; the message says what it needs);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_exchange_await(const struct rejoin_session *session,
                                    const char *key,
                                    void *buffer,
                                    size_t capacity,
                                    size_t *out_bytes);

/**
 * ncclGetUniqueId: makes an id on one rank. Hand it to the others, by rejoin_exchange_publish() for instance.
 * A replacement that asks again in the same order gets the same one.
 *
 * @param session  in set-up
 * @param out_id   set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; the order must be the same in every incarnation.
 */
rejoin_status rejoin_get_unique_id(const struct rejoin_session *session, struct rejoin_unique_id *out_id);

/**
 * ncclCommInitRank: makes a communicator together with its other ranks. In set-up.
 *
 * @param session   in set-up
 * @param nranks    ranks of the communicator
 * @param id        of one of this job's rejoin_get_unique_id(); copied
 * @param rank      this process's rank in the communicator
 * @param out_comm  set on OK: a virtual handle, good for the life of the job
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (after set-up); REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_TIMEOUT; REJOIN_STATUS_NCCL; REJOIN_STATUS_MISMATCH (a replacement asks for
 *         something else than its predecessor); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one at a time; waits for the other ranks, at most options.peer_timeout_ms.
 */
rejoin_status rejoin_comm_init_rank(const struct rejoin_session *session,
                                    uint32_t nranks,
                                    const struct rejoin_unique_id *id,
                                    uint32_t rank,
                                    rejoin_handle *out_comm);

/**
 * ncclCommInitRankConfig: as rejoin_comm_init_rank(), with a configuration.
 *
 * @param session   in set-up
 * @param nranks    ranks of the communicator
 * @param id        of one of this job's rejoin_get_unique_id(); copied
 * @param rank      this process's rank in the communicator
 * @param config    copied; NULL: the default
 * @param out_comm  set on OK
 * @return as rejoin_comm_init_rank(); REJOIN_STATUS_VERSION (config sets a field of a newer header)
 * Threads: one at a time; waits for the other ranks, at most options.peer_timeout_ms.
 */
rejoin_status rejoin_comm_init_rank_config(const struct rejoin_session *session,
                                           uint32_t nranks,
                                           const struct rejoin_unique_id *id,
                                           uint32_t rank,
                                           const struct rejoin_comm_config *config,
                                           rejoin_handle *out_comm);

/**
 * ncclCommSplit: divides a communicator by color. In set-up, on all its ranks.
 *
 * @param session   in set-up
 * @param comm      to be divided; stays
 * @param color     ranks of one color form a communicator; negative: this rank is in none
 * @param key       orders the ranks of a color
 * @param config    copied; NULL: the parent's
 * @param out_comm  set on OK; 0 for a negative color
 * @return as rejoin_comm_init_rank(); REJOIN_STATUS_STALE_HANDLE
 * Threads: one at a time; waits for the other ranks, at most options.peer_timeout_ms.
 */
rejoin_status rejoin_comm_split(const struct rejoin_session *session,
                                rejoin_handle comm,
                                int32_t color,
                                int32_t key,
                                const struct rejoin_comm_config *config,
                                rejoin_handle *out_comm);

/**
 * Tells recovery about a device buffer. In set-up, after the communicator was made.
 *
 * @param session  in set-up
 * @param name     UTF-8, 1 to 64 bytes, unique in the rank
 * @param address  within one live allocation
 * @param bytes    its length
 * @param kind     a rejoin_state_kind
 * @param comm     whose ranks hold replicas; 0 where there are none
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (after set-up); REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_STALE_HANDLE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; the order must be the same in every incarnation.
 */
rejoin_status rejoin_state_register(const struct rejoin_session *session,
                                    const char *name,
                                    rejoin_device_ptr address,
                                    uint64_t bytes,
                                    uint32_t kind,
                                    rejoin_handle comm);

/**
 * Takes up a stream that the application made by itself, so that collectives can run on it and a recovery waits
 * for it. In set-up. The application goes on using its own stream for its own work. Every stream that carries
 * collectives or writes state must be adopted, except the default stream, which is known. From here on the
 * application is in foreign mode: what it does on the device by itself is in no journal, so policy replay is
 * refused, and a device fault ends the process (another one takes its rank).
 *
 * @param session     in set-up
 * @param stream      a cudaStream_t or CUstream; on the host backend an ncclHostStream_t. Lives until
 *                    rejoin_stream_destroy(), which forgets it and does not destroy it, or until the session is closed
 * @param out_stream  set on OK: what collectives get
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (after set-up); REJOIN_STATUS_UNSUPPORTED (policy replay);
 *         REJOIN_STATUS_DEVICE (not a stream of this device); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; the order must be the same in every incarnation.
 */
rejoin_status rejoin_stream_adopt(const struct rejoin_session *session,
                                  void *stream,
                                  rejoin_handle *out_stream);

/**
 * rejoin_state_register() for device memory that the application got by itself (cudaMalloc). It need not be at the
 * same address in every incarnation. Starts foreign mode, see rejoin_stream_adopt(). After REDO, per-rank buffers
 * come back in rejoin_resume(), which first waits for the adopted streams.
 *
 * @param session  in set-up
 * @param name     UTF-8, 1 to 64 bytes, unique in the rank
 * @param address  device memory of the session's device that lives until the session is closed
 * @param bytes    its length
 * @param kind     a rejoin_state_kind
 * @param comm     whose ranks hold replicas; 0 where there are none
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (after set-up); REJOIN_STATUS_UNSUPPORTED (policy replay);
 *         REJOIN_STATUS_DEVICE (no memory of this device); REJOIN_STATUS_INVALID_ARGUMENT (kind, name, communicator);
 *         REJOIN_STATUS_STALE_HANDLE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; the order must be the same in every incarnation.
 */
rejoin_status rejoin_state_register_foreign(const struct rejoin_session *session,
                                            const char *name,
                                            rejoin_device_ptr address,
                                            uint64_t bytes,
                                            uint32_t kind,
                                            rejoin_handle comm);

/**
 * Ends the set-up. Waits for all ranks; on a replacement, until recovery has restored its state.
 *
 * @param session         in set-up
 * @param out_step        set on OK: the step to run first, 0 or where the job stands
 * @param out_blob        set on OK: what the rank gave to the rejoin_step_end() before that step, empty for
 *                        step 0; the session's, valid until the next rejoin_resume() or the close. May be
 *                        NULL together with out_blob_bytes
 * @param out_blob_bytes  set on OK: its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (a second time, or device memory is no registered state: the
 *         message lists it); REJOIN_STATUS_MISMATCH (a replacement's set-up is another one);
 *         REJOIN_STATUS_TIMEOUT; REJOIN_STATUS_GAVE_UP; REJOIN_STATUS_NOT_RECOVERABLE;
 *         REJOIN_STATUS_JOURNAL_FULL; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one; waits for all ranks, at most options.peer_timeout_ms.
 */
rejoin_status rejoin_setup_done(struct rejoin_session *session,
                                uint32_t *out_step,
                                const void **out_blob,
                                size_t *out_blob_bytes);

/**
 * Begins a step: scratch buffers are zeroed. Until rejoin_step_end() nothing may write replicated state.
 *
 * @param session  between steps
 * @param step     the one that setup_done, commit or resume led to
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO; REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one.
 */
rejoin_status rejoin_step_begin(struct rejoin_session *session, uint32_t step);

/**
 * Ends the open step: waits for this rank's work, keeps the blob and the per-rank buffers for the next step,
 * votes, and returns what the job decides.
 *
 * @param session          inside a step
 * @param next_blob        what this rank needs to begin the next step (random state, position in the data);
 *                         copied, opaque, at most 64 KiB
 * @param next_blob_bytes  its length
 * @return REJOIN_STATUS_OK: GO, run the optimizer and commit; REJOIN_STATUS_REDO: call rejoin_resume();
 *         REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_TIMEOUT;
 *         REJOIN_STATUS_GAVE_UP; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one; waits for all ranks, at most options.peer_timeout_ms.
 */
rejoin_status rejoin_step_end(struct rejoin_session *session, const void *next_blob, size_t next_blob_bytes);

/**
 * Commits the step that was decided GO, after the optimizer. The next step is one higher.
 *
 * @param session  after a rejoin_step_end() that returned REJOIN_STATUS_OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO (the device failed in the optimizer);
 *         REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one.
 */
rejoin_status rejoin_step_commit(struct rejoin_session *session);

/**
 * After REJOIN_STATUS_REDO from any call: waits until the job has recovered, and says which step to run now.
 *
 * @param session         inside or between steps
 * @param out_step        set on OK: the step to begin
 * @param out_blob        set on OK, as in rejoin_setup_done()
 * @param out_blob_bytes  set on OK: its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_GAVE_UP; REJOIN_STATUS_NOT_RECOVERABLE; REJOIN_STATUS_EVICTED;
 *         REJOIN_STATUS_TIMEOUT; REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one; waits for recovery, at most twice options.peer_timeout_ms.
 */
rejoin_status rejoin_resume(struct rejoin_session *session,
                            uint32_t *out_step,
                            const void **out_blob,
                            size_t *out_blob_bytes);

/**
 * How many recoveries are on record: the last 64 at most.
 *
 * @param session    open
 * @param out_count  set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_recovery_count(const struct rejoin_session *session, uint32_t *out_count);

/**
 * What a recovery did and where its time went.
 *
 * @param session     open
 * @param index       from 0, the oldest
 * @param out_report  initialised with REJOIN_RECOVERY_REPORT_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_recovery_get(const struct rejoin_session *session,
                                  uint32_t index,
                                  struct rejoin_recovery_report *out_report);

/**
 * A process that failed in a recovery. rejoin_recovery_report has the first of them, and how many failed.
 *
 * @param session     open
 * @param index       of the recovery, as in rejoin_recovery_get()
 * @param nth         from 0; the first 16 are described
 * @param out_failed  initialised with REJOIN_FAILED_RANK_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (no such recovery, or no more of them);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_recovery_get_failed(const struct rejoin_session *session,
                                         uint32_t index,
                                         uint32_t nth,
                                         struct rejoin_failed_rank *out_failed);

/**
 * Has a function told about what happens to the job from now on: once a session.
 *
 * @param session   open
 * @param function  called on a thread of Rejoin, one event at a time; must not call functions that
 *                  wait for recovery, and must not throw (that ends the process)
 * @param user      passed on to it; stays until the session is closed, may be NULL
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_EXISTS (a second function); REJOIN_STATUS_IO (no thread);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any. After rejoin_session_close() has returned no more calls come, unless it was called by the
 *          function itself.
 */
rejoin_status rejoin_session_on_event(struct rejoin_session *session,
                                      rejoin_event_function function,
                                      void *user);

/**
 * cuMemcpyHtoD: copies to the device and waits. In set-up the bytes are recorded; in a step under policy redo
 * their size and checksum.
 *
 * @param session     open
 * @param dst         in a live allocation
 * @param data        copied
 * @param data_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_memcpy_htod(const struct rejoin_session *session,
                                 rejoin_device_ptr dst,
                                 const void *data,
                                 size_t data_bytes);

/**
 * cuMemcpyHtoDAsync: enqueues a copy to the device.
 *
 * @param session     open
 * @param dst         in a live allocation
 * @param data        stays valid and unchanged until the copy has completed on the stream
 * @param data_bytes  its length
 * @param stream      0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_memcpy_htod_async(const struct rejoin_session *session,
                                       rejoin_device_ptr dst,
                                       const void *data,
                                       size_t data_bytes,
                                       rejoin_handle stream);

/**
 * cuCtxSetCurrent: recorded, then executed.
 *
 * @param session  open
 * @param ordinal  by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_device_set(const struct rejoin_session *session, uint32_t ordinal);

/**
 * cuDevicePrimaryCtxReset: recorded only, no backend executes it.
 *
 * @param session  open
 * @param ordinal  by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_device_reset(const struct rejoin_session *session, uint32_t ordinal);

/**
 * cuDeviceGetCount: recorded only, no backend executes it.
 *
 * @param session    open
 * @param out_count  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_device_count(const struct rejoin_session *session, int32_t *out_count);

/**
 * cuCtxGetCurrent: recorded only, no backend executes it.
 *
 * @param session      open
 * @param out_context  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_context_current(const struct rejoin_session *session, void **out_context);

/**
 * cuDevicePrimaryCtxGetState: recorded only, no backend executes it.
 *
 * @param session     open
 * @param ordinal     by value
 * @param out_active  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_context_state(const struct rejoin_session *session,
                                   uint32_t ordinal,
                                   int32_t *out_active);

/**
 * cuCtxSynchronize: recorded, then executed.
 * Waits for all streams, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO.
 *
 * @param session  open
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_device_synchronize(const struct rejoin_session *session);

/**
 * cuDeviceGetAttribute: recorded only, no backend executes it.
 *
 * @param session    open
 * @param attribute  by value
 * @param ordinal    by value
 * @param out_value  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_device_attribute(const struct rejoin_session *session,
                                      int32_t attribute,
                                      uint32_t ordinal,
                                      int32_t *out_value);

/**
 * cuCtxSetLimit: recorded only, no backend executes it.
 *
 * @param session  open
 * @param limit    by value
 * @param value    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_context_set_limit(const struct rejoin_session *session, int32_t limit, uint64_t value);

/**
 * cuMemAlloc: recorded, then executed.
 * The address is the same in every incarnation with the same set-up.
 *
 * @param session      open
 * @param bytes        by value
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_mem_alloc(const struct rejoin_session *session,
                               uint64_t bytes,
                               rejoin_device_ptr *out_address);

/**
 * cuMemFree: recorded, then executed.
 *
 * @param session  open
 * @param address  in a live allocation
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_mem_free(const struct rejoin_session *session, rejoin_device_ptr address);

/**
 * cuMemHostRegister: recorded, then executed.
 *
 * @param session  open
 * @param host     host memory, not NULL; stays until the call's work is done
 * @param bytes    by value
 * @param flags    as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_host_register(const struct rejoin_session *session,
                                   void *host,
                                   uint64_t bytes,
                                   uint32_t flags);

/**
 * cuMemHostUnregister: recorded, then executed.
 *
 * @param session  open
 * @param host     host memory, not NULL; stays until the call's work is done
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_host_unregister(const struct rejoin_session *session, void *host);

/**
 * cuMemcpyDtoH: recorded, then executed.
 *
 * @param session  open
 * @param dst      host memory, not NULL; stays until the call's work is done
 * @param src      in a live allocation
 * @param bytes    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_memcpy_dtoh(const struct rejoin_session *session,
                                 void *dst,
                                 rejoin_device_ptr src,
                                 uint64_t bytes);

/**
 * cuMemcpyDtoD: recorded, then executed.
 *
 * @param session  open
 * @param dst      in a live allocation
 * @param src      in a live allocation
 * @param bytes    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_memcpy_dtod(const struct rejoin_session *session,
                                 rejoin_device_ptr dst,
                                 rejoin_device_ptr src,
                                 uint64_t bytes);

/**
 * cuMemcpyDtoHAsync: recorded, then executed.
 *
 * @param session  open
 * @param dst      host memory, not NULL; stays until the call's work is done
 * @param src      in a live allocation
 * @param bytes    by value
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_memcpy_dtoh_async(const struct rejoin_session *session,
                                       void *dst,
                                       rejoin_device_ptr src,
                                       uint64_t bytes,
                                       rejoin_handle stream);

/**
 * cuMemcpyDtoDAsync: recorded, then executed.
 *
 * @param session  open
 * @param dst      in a live allocation
 * @param src      in a live allocation
 * @param bytes    by value
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_memcpy_dtod_async(const struct rejoin_session *session,
                                       rejoin_device_ptr dst,
                                       rejoin_device_ptr src,
                                       uint64_t bytes,
                                       rejoin_handle stream);

/**
 * cuMemsetD8: recorded, then executed.
 *
 * @param session  open
 * @param dst      in a live allocation
 * @param value    by value
 * @param bytes    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_memset(const struct rejoin_session *session,
                            rejoin_device_ptr dst,
                            uint32_t value,
                            uint64_t bytes);

/**
 * cuMemsetD8Async: recorded, then executed.
 *
 * @param session  open
 * @param dst      in a live allocation
 * @param value    by value
 * @param bytes    by value
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_memset_async(const struct rejoin_session *session,
                                  rejoin_device_ptr dst,
                                  uint32_t value,
                                  uint64_t bytes,
                                  rejoin_handle stream);

/**
 * cuMemGetInfo: recorded, then executed.
 * The most that rejoin_mem_alloc() can still give.
 *
 * @param session   open
 * @param out_free  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_mem_info(const struct rejoin_session *session, uint64_t *out_free);

/**
 * ncclMemAlloc: recorded, then executed.
 *
 * @param session      open
 * @param bytes        by value
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_nccl_mem_alloc(const struct rejoin_session *session,
                                    uint64_t bytes,
                                    rejoin_device_ptr *out_address);

/**
 * ncclMemFree: recorded, then executed.
 *
 * @param session  open
 * @param address  in a live allocation
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_nccl_mem_free(const struct rejoin_session *session, rejoin_device_ptr address);

/**
 * cuMemHostAlloc: recorded only, no backend executes it.
 *
 * @param session   open
 * @param bytes     by value
 * @param flags     as in CUDA or NCCL
 * @param out_host  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_host_alloc(const struct rejoin_session *session,
                                uint64_t bytes,
                                uint32_t flags,
                                void **out_host);

/**
 * cuMemFreeHost: recorded only, no backend executes it.
 *
 * @param session  open
 * @param host     host memory, not NULL; stays until the call's work is done
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_host_free(const struct rejoin_session *session, void *host);

/**
 * cuMemAllocAsync: recorded only, no backend executes it.
 *
 * @param session      open
 * @param bytes        by value
 * @param stream       handle; 0: the default stream
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_mem_alloc_async(const struct rejoin_session *session,
                                     uint64_t bytes,
                                     rejoin_handle stream,
                                     rejoin_device_ptr *out_address);

/**
 * cuMemFreeAsync: recorded only, no backend executes it.
 *
 * @param session  open
 * @param address  in a live allocation
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_mem_free_async(const struct rejoin_session *session,
                                    rejoin_device_ptr address,
                                    rejoin_handle stream);

/**
 * cuStreamCreateWithPriority: recorded, then executed.
 *
 * @param session     open
 * @param out_stream  set on OK: a virtual handle
 * @param flags       as in CUDA or NCCL
 * @param priority    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_stream_create(const struct rejoin_session *session,
                                   rejoin_handle *out_stream,
                                   uint32_t flags,
                                   int32_t priority);

/**
 * cuStreamDestroy: recorded, then executed.
 *
 * @param session  open
 * @param stream   handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_stream_destroy(const struct rejoin_session *session, rejoin_handle stream);

/**
 * cuStreamSynchronize: recorded, then executed.
 * Waits, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO.
 *
 * @param session  open
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_stream_synchronize(const struct rejoin_session *session, rejoin_handle stream);

/**
 * cuStreamQuery: recorded, then executed.
 *
 * @param session   open
 * @param stream    handle; 0: the default stream
 * @param out_done  set on OK: 1 when everything has completed, else 0
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_stream_query(const struct rejoin_session *session,
                                  rejoin_handle stream,
                                  uint32_t *out_done);

/**
 * cuStreamWaitEvent: recorded, then executed.
 *
 * @param session  open
 * @param stream   handle; 0: the default stream
 * @param event    handle
 * @param flags    as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_stream_wait_event(const struct rejoin_session *session,
                                       rejoin_handle stream,
                                       rejoin_handle event,
                                       uint32_t flags);

/**
 * cuStreamGetPriority: recorded only, no backend executes it.
 *
 * @param session       open
 * @param stream        handle; 0: the default stream
 * @param out_priority  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_stream_get_priority(const struct rejoin_session *session,
                                         rejoin_handle stream,
                                         int32_t *out_priority);

/**
 * cuEventCreate: recorded, then executed.
 *
 * @param session    open
 * @param out_event  set on OK: a virtual handle
 * @param flags      as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_event_create(const struct rejoin_session *session,
                                  rejoin_handle *out_event,
                                  uint32_t flags);

/**
 * cuEventDestroy: recorded, then executed.
 *
 * @param session  open
 * @param event    handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_event_destroy(const struct rejoin_session *session, rejoin_handle event);

/**
 * cuEventRecord: recorded, then executed.
 *
 * @param session  open
 * @param event    handle
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_event_record(const struct rejoin_session *session,
                                  rejoin_handle event,
                                  rejoin_handle stream);

/**
 * cuEventSynchronize: recorded, then executed.
 * Waits, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO.
 *
 * @param session  open
 * @param event    handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_event_synchronize(const struct rejoin_session *session, rejoin_handle event);

/**
 * cuEventQuery: recorded, then executed.
 *
 * @param session   open
 * @param event     handle
 * @param out_done  set on OK: 1 when everything has completed, else 0
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_event_query(const struct rejoin_session *session,
                                 rejoin_handle event,
                                 uint32_t *out_done);

/**
 * cuEventElapsedTime: recorded, then executed.
 *
 * @param session           open
 * @param start             handle
 * @param end               handle
 * @param out_milliseconds  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_event_elapsed(const struct rejoin_session *session,
                                   rejoin_handle start,
                                   rejoin_handle end,
                                   float *out_milliseconds);

/**
 * cuModuleLoadData: recorded, then executed.
 * On the host backend the image is a shared object, see rejoin_kernel.h.
 *
 * @param session      open
 * @param out_module   set on OK: a virtual handle
 * @param image        copied
 * @param image_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_module_load(const struct rejoin_session *session,
                                 rejoin_handle *out_module,
                                 const void *image,
                                 size_t image_bytes);

/**
 * cuModuleUnload: recorded, then executed.
 *
 * @param session  open
 * @param module   handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_module_unload(const struct rejoin_session *session, rejoin_handle module);

/**
 * cuModuleGetFunction: recorded, then executed.
 *
 * @param session       open
 * @param out_function  set on OK: a virtual handle
 * @param module        handle
 * @param name          UTF-8
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_module_get_function(const struct rejoin_session *session,
                                         rejoin_handle *out_function,
                                         rejoin_handle module,
                                         const char *name);

/**
 * cuModuleGetGlobal: recorded only, no backend executes it.
 *
 * @param session      open
 * @param module       handle
 * @param name         UTF-8
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_module_get_global(const struct rejoin_session *session,
                                       rejoin_handle module,
                                       const char *name,
                                       rejoin_device_ptr *out_address);

/**
 * cuFuncSetAttribute: recorded only, no backend executes it.
 *
 * @param session    open
 * @param function   handle
 * @param attribute  by value
 * @param value      by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_function_set_attribute(const struct rejoin_session *session,
                                            rejoin_handle function,
                                            int32_t attribute,
                                            int32_t value);

/**
 * dlopen: recorded only, no backend executes it.
 *
 * @param session  open
 * @param path     UTF-8
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_library_open(const struct rejoin_session *session, const char *path);

/**
 * cuLibraryLoadData: recorded only, no backend executes it.
 *
 * @param session      open
 * @param out_library  set on OK: a virtual handle
 * @param image        copied
 * @param image_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_library_load(const struct rejoin_session *session,
                                  rejoin_handle *out_library,
                                  const void *image,
                                  size_t image_bytes);

/**
 * cuLibraryUnload: recorded only, no backend executes it.
 *
 * @param session  open
 * @param library  handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_library_unload(const struct rejoin_session *session, rejoin_handle library);

/**
 * cuLibraryGetKernel: recorded only, no backend executes it.
 *
 * @param session       open
 * @param out_function  set on OK: a virtual handle
 * @param library       handle
 * @param name          UTF-8
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_library_get_kernel(const struct rejoin_session *session,
                                        rejoin_handle *out_function,
                                        rejoin_handle library,
                                        const char *name);

/**
 * cuLaunchKernel: recorded, then executed.
 *
 * @param session       open
 * @param function      handle
 * @param grid_x        by value
 * @param grid_y        by value
 * @param grid_z        by value
 * @param block_x       by value
 * @param block_y       by value
 * @param block_z       by value
 * @param shared_bytes  by value
 * @param stream        handle; 0: the default stream
 * @param params        parameters one after the other, packed; copied
 * @param params_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_launch_kernel(const struct rejoin_session *session,
                                   rejoin_handle function,
                                   uint32_t grid_x,
                                   uint32_t grid_y,
                                   uint32_t grid_z,
                                   uint32_t block_x,
                                   uint32_t block_y,
                                   uint32_t block_z,
                                   uint32_t shared_bytes,
                                   rejoin_handle stream,
                                   const void *params,
                                   size_t params_bytes);

/**
 * cuLaunchCooperativeKernel: recorded only, no backend executes it.
 *
 * @param session       open
 * @param function      handle
 * @param grid_x        by value
 * @param grid_y        by value
 * @param grid_z        by value
 * @param block_x       by value
 * @param block_y       by value
 * @param block_z       by value
 * @param shared_bytes  by value
 * @param stream        handle; 0: the default stream
 * @param params        parameters one after the other, packed; copied
 * @param params_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_launch_cooperative(const struct rejoin_session *session,
                                        rejoin_handle function,
                                        uint32_t grid_x,
                                        uint32_t grid_y,
                                        uint32_t grid_z,
                                        uint32_t block_x,
                                        uint32_t block_y,
                                        uint32_t block_z,
                                        uint32_t shared_bytes,
                                        rejoin_handle stream,
                                        const void *params,
                                        size_t params_bytes);

/**
 * ncclCommInitRankScalable: recorded only, no backend executes it.
 *
 * @param session   open
 * @param out_comm  set on OK: a virtual handle
 * @param nranks    by value
 * @param rank      by value
 * @param nid       by value
 * @param ids       copied
 * @param ids_len   how many
 * @param config    copied; NULL: the default
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_init_rank_scalable(const struct rejoin_session *session,
                                             rejoin_handle *out_comm,
                                             int32_t nranks,
                                             int32_t rank,
                                             int32_t nid,
                                             const struct rejoin_unique_id *ids,
                                             size_t ids_len,
                                             const struct rejoin_comm_config *config);

/**
 * ncclCommInitAll: recorded only, no backend executes it.
 *
 * @param session      open
 * @param ndev         by value
 * @param devices      copied
 * @param devices_len  how many
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_init_all(const struct rejoin_session *session,
                                   int32_t ndev,
                                   const int32_t *devices,
                                   size_t devices_len);

/**
 * ncclCommShrink: recorded only, no backend executes it.
 *
 * @param session         open
 * @param comm            handle
 * @param excluded        copied
 * @param excluded_len    how many
 * @param excluded_count  by value
 * @param out_newcomm     set on OK: a virtual handle
 * @param config          copied; NULL: the default
 * @param flags           as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_shrink(const struct rejoin_session *session,
                                 rejoin_handle comm,
                                 const int32_t *excluded,
                                 size_t excluded_len,
                                 int32_t excluded_count,
                                 rejoin_handle *out_newcomm,
                                 const struct rejoin_comm_config *config,
                                 uint32_t flags);

/**
 * ncclCommGrow: recorded only, no backend executes it.
 *
 * @param session      open
 * @param comm         handle; may be 0
 * @param nranks       by value
 * @param id           copied
 * @param id_len       how many
 * @param rank         by value
 * @param out_newcomm  set on OK: a virtual handle
 * @param config       copied; NULL: the default
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_grow(const struct rejoin_session *session,
                               rejoin_handle comm,
                               int32_t nranks,
                               const struct rejoin_unique_id *id,
                               size_t id_len,
                               int32_t rank,
                               rejoin_handle *out_newcomm,
                               const struct rejoin_comm_config *config);

/**
 * ncclCommFinalize: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_finalize(const struct rejoin_session *session, rejoin_handle comm);

/**
 * ncclCommDestroy: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_destroy(const struct rejoin_session *session, rejoin_handle comm);

/**
 * ncclCommAbort: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_abort(const struct rejoin_session *session, rejoin_handle comm);

/**
 * ncclCommRevoke: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @param flags    as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_revoke(const struct rejoin_session *session, rejoin_handle comm, uint32_t flags);

/**
 * ncclCommSuspend: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @param flags    as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_suspend(const struct rejoin_session *session, rejoin_handle comm, uint32_t flags);

/**
 * ncclCommResume: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_resume(const struct rejoin_session *session, rejoin_handle comm);

/**
 * ncclCommCount: recorded, then executed.
 *
 * @param session    open
 * @param comm       handle
 * @param out_count  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_count(const struct rejoin_session *session, rejoin_handle comm, int32_t *out_count);

/**
 * ncclCommCuDevice: recorded, then executed.
 *
 * @param session     open
 * @param comm        handle
 * @param out_device  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_cu_device(const struct rejoin_session *session,
                                    rejoin_handle comm,
                                    int32_t *out_device);

/**
 * ncclCommUserRank: recorded, then executed.
 *
 * @param session   open
 * @param comm      handle
 * @param out_rank  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_user_rank(const struct rejoin_session *session,
                                    rejoin_handle comm,
                                    int32_t *out_rank);

/**
 * ncclCommGetAsyncError: recorded, then executed.
 *
 * @param session          open
 * @param comm             handle
 * @param out_async_error  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_get_async_error(const struct rejoin_session *session,
                                          rejoin_handle comm,
                                          int32_t *out_async_error);

/**
 * ncclCommMemStats: recorded only, no backend executes it.
 *
 * @param session    open
 * @param comm       handle
 * @param stat       by value
 * @param out_value  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_mem_stats(const struct rejoin_session *session,
                                    rejoin_handle comm,
                                    int32_t stat,
                                    uint64_t *out_value);

/**
 * ncclGetLastError: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle; may be 0
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_get_last_error(const struct rejoin_session *session, rejoin_handle comm);

/**
 * ncclCommRegister: recorded, then executed.
 *
 * @param session           open
 * @param comm              handle
 * @param buffer            in a live allocation
 * @param bytes             by value
 * @param out_registration  set on OK: a virtual handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_register(const struct rejoin_session *session,
                                   rejoin_handle comm,
                                   rejoin_device_ptr buffer,
                                   uint64_t bytes,
                                   rejoin_handle *out_registration);

/**
 * ncclCommDeregister: recorded, then executed.
 *
 * @param session       open
 * @param comm          handle
 * @param registration  handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_deregister(const struct rejoin_session *session,
                                     rejoin_handle comm,
                                     rejoin_handle registration);

/**
 * ncclCommWindowRegister: recorded only, no backend executes it.
 *
 * @param session     open
 * @param comm        handle
 * @param buffer      in a live allocation
 * @param bytes       by value
 * @param out_window  set on OK: a virtual handle
 * @param flags       as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_window_register(const struct rejoin_session *session,
                                          rejoin_handle comm,
                                          rejoin_device_ptr buffer,
                                          uint64_t bytes,
                                          rejoin_handle *out_window,
                                          uint32_t flags);

/**
 * ncclCommWindowDeregister: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @param window   handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_window_deregister(const struct rejoin_session *session,
                                            rejoin_handle comm,
                                            rejoin_handle window);

/**
 * ncclWinGetUserPtr: recorded only, no backend executes it.
 *
 * @param session      open
 * @param comm         handle
 * @param window       handle
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_win_get_user_ptr(const struct rejoin_session *session,
                                      rejoin_handle comm,
                                      rejoin_handle window,
                                      rejoin_device_ptr *out_address);

/**
 * ncclRedOpCreatePreMulSum: recorded, then executed.
 *
 * @param session       open
 * @param out_op        set on OK: a virtual handle
 * @param scalar        copied
 * @param scalar_bytes  its length
 * @param datatype      a rejoin_data_type
 * @param residence     by value
 * @param comm          handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_redop_create_pre_mul_sum(const struct rejoin_session *session,
                                              rejoin_handle *out_op,
                                              const void *scalar,
                                              size_t scalar_bytes,
                                              int32_t datatype,
                                              int32_t residence,
                                              rejoin_handle comm);

/**
 * ncclRedOpDestroy: recorded, then executed.
 *
 * @param session  open
 * @param op       handle; stale afterwards
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_redop_destroy(const struct rejoin_session *session,
                                   rejoin_handle op,
                                   rejoin_handle comm);

/**
 * ncclCommInitNewRank: recorded only, no backend executes it.
 *
 * @param session      open
 * @param out_newcomm  set on OK: a virtual handle
 * @param nranks       by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_init_new_rank(const struct rejoin_session *session,
                                        rejoin_handle *out_newcomm,
                                        int32_t nranks);

/**
 * ncclCommAddNewRank: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_add_new_rank(const struct rejoin_session *session, rejoin_handle comm);

/**
 * ncclCommSetupNewRank: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_comm_setup_new_rank(const struct rejoin_session *session, rejoin_handle comm);

/**
 * ncclAllReduce: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param op        a rejoin_reduce_op, or the handle of one of the application's own
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_all_reduce(const struct rejoin_session *session,
                                rejoin_device_ptr sendbuff,
                                rejoin_device_ptr recvbuff,
                                uint64_t count,
                                int32_t datatype,
                                uint64_t op,
                                rejoin_handle comm,
                                rejoin_handle stream);

/**
 * ncclBroadcast: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_broadcast(const struct rejoin_session *session,
                               rejoin_device_ptr sendbuff,
                               rejoin_device_ptr recvbuff,
                               uint64_t count,
                               int32_t datatype,
                               int32_t root,
                               rejoin_handle comm,
                               rejoin_handle stream);

/**
 * ncclBcast: recorded, then executed.
 *
 * @param session   open
 * @param buff      in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_bcast(const struct rejoin_session *session,
                           rejoin_device_ptr buff,
                           uint64_t count,
                           int32_t datatype,
                           int32_t root,
                           rejoin_handle comm,
                           rejoin_handle stream);

/**
 * ncclReduce: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param op        a rejoin_reduce_op, or the handle of one of the application's own
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_reduce(const struct rejoin_session *session,
                            rejoin_device_ptr sendbuff,
                            rejoin_device_ptr recvbuff,
                            uint64_t count,
                            int32_t datatype,
                            uint64_t op,
                            int32_t root,
                            rejoin_handle comm,
                            rejoin_handle stream);

/**
 * ncclAllGather: recorded, then executed.
 *
 * @param session    open
 * @param sendbuff   in a live allocation
 * @param recvbuff   in a live allocation
 * @param sendcount  by value
 * @param datatype   a rejoin_data_type
 * @param comm       handle
 * @param stream     handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_all_gather(const struct rejoin_session *session,
                                rejoin_device_ptr sendbuff,
                                rejoin_device_ptr recvbuff,
                                uint64_t sendcount,
                                int32_t datatype,
                                rejoin_handle comm,
                                rejoin_handle stream);

/**
 * ncclReduceScatter: recorded, then executed.
 *
 * @param session    open
 * @param sendbuff   in a live allocation
 * @param recvbuff   in a live allocation
 * @param recvcount  by value
 * @param datatype   a rejoin_data_type
 * @param op         a rejoin_reduce_op, or the handle of one of the application's own
 * @param comm       handle
 * @param stream     handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_reduce_scatter(const struct rejoin_session *session,
                                    rejoin_device_ptr sendbuff,
                                    rejoin_device_ptr recvbuff,
                                    uint64_t recvcount,
                                    int32_t datatype,
                                    uint64_t op,
                                    rejoin_handle comm,
                                    rejoin_handle stream);

/**
 * ncclAlltoAll: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_all_to_all(const struct rejoin_session *session,
                                rejoin_device_ptr sendbuff,
                                rejoin_device_ptr recvbuff,
                                uint64_t count,
                                int32_t datatype,
                                rejoin_handle comm,
                                rejoin_handle stream);

/**
 * ncclGather: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_gather(const struct rejoin_session *session,
                            rejoin_device_ptr sendbuff,
                            rejoin_device_ptr recvbuff,
                            uint64_t count,
                            int32_t datatype,
                            int32_t root,
                            rejoin_handle comm,
                            rejoin_handle stream);

/**
 * ncclScatter: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_scatter(const struct rejoin_session *session,
                             rejoin_device_ptr sendbuff,
                             rejoin_device_ptr recvbuff,
                             uint64_t count,
                             int32_t datatype,
                             int32_t root,
                             rejoin_handle comm,
                             rejoin_handle stream);

/**
 * ncclSend: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param peer      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_send(const struct rejoin_session *session,
                          rejoin_device_ptr sendbuff,
                          uint64_t count,
                          int32_t datatype,
                          int32_t peer,
                          rejoin_handle comm,
                          rejoin_handle stream);

/**
 * ncclRecv: recorded, then executed.
 *
 * @param session   open
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param peer      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_recv(const struct rejoin_session *session,
                          rejoin_device_ptr recvbuff,
                          uint64_t count,
                          int32_t datatype,
                          int32_t peer,
                          rejoin_handle comm,
                          rejoin_handle stream);

/**
 * ncclPutSignal: recorded only, no backend executes it.
 *
 * @param session    open
 * @param localbuff  in a live allocation
 * @param count      by value
 * @param datatype   a rejoin_data_type
 * @param peer       by value
 * @param window     handle
 * @param offset     by value
 * @param signal     by value
 * @param context    by value
 * @param flags      as in CUDA or NCCL
 * @param comm       handle
 * @param stream     handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_put_signal(const struct rejoin_session *session,
                                rejoin_device_ptr localbuff,
                                uint64_t count,
                                int32_t datatype,
                                int32_t peer,
                                rejoin_handle window,
                                uint64_t offset,
                                int32_t signal,
                                int32_t context,
                                uint32_t flags,
                                rejoin_handle comm,
                                rejoin_handle stream);

/**
 * ncclSignal: recorded only, no backend executes it.
 *
 * @param session  open
 * @param peer     by value
 * @param signal   by value
 * @param context  by value
 * @param flags    as in CUDA or NCCL
 * @param comm     handle
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_signal(const struct rejoin_session *session,
                            int32_t peer,
                            int32_t signal,
                            int32_t context,
                            uint32_t flags,
                            rejoin_handle comm,
                            rejoin_handle stream);

/**
 * ncclWaitSignal: recorded only, no backend executes it.
 *
 * @param session            open
 * @param count              by value
 * @param descriptors        copied
 * @param descriptors_bytes  its length
 * @param comm               handle
 * @param stream             handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_wait_signal(const struct rejoin_session *session,
                                 int32_t count,
                                 const void *descriptors,
                                 size_t descriptors_bytes,
                                 rejoin_handle comm,
                                 rejoin_handle stream);

/**
 * ncclGroupStart: recorded, then executed.
 * Collectives of this thread are issued together by its rejoin_group_end().
 *
 * @param session  open
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_group_start(const struct rejoin_session *session);

/**
 * ncclGroupEnd: recorded, then executed.
 * Issues what this thread has collected since rejoin_group_start().
 *
 * @param session  open
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_group_end(const struct rejoin_session *session);

/**
 * ncclGroupSimulateEnd: recorded only, no backend executes it.
 *
 * @param session  open
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_group_simulate_end(const struct rejoin_session *session);

/**
 * cuLaunchHostFunc: recorded only, no backend executes it.
 *
 * @param session   open
 * @param stream    handle; 0: the default stream
 * @param function  host memory, not NULL; stays until the call's work is done
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_host_callback(const struct rejoin_session *session,
                                   rejoin_handle stream,
                                   void *function);

/**
 * cuStreamAddCallback: recorded only, no backend executes it.
 *
 * @param session   open
 * @param stream    handle; 0: the default stream
 * @param function  host memory, not NULL; stays until the call's work is done
 * @param flags     as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_stream_callback(const struct rejoin_session *session,
                                     rejoin_handle stream,
                                     void *function,
                                     uint32_t flags);

/**
 * cuStreamBeginCapture: recorded only, no backend executes it.
 *
 * @param session  open
 * @param stream   handle; 0: the default stream
 * @param mode     by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_capture_begin(const struct rejoin_session *session, rejoin_handle stream, int32_t mode);

/**
 * cuStreamEndCapture: recorded only, no backend executes it.
 *
 * @param session    open
 * @param stream     handle; 0: the default stream
 * @param out_graph  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_capture_end(const struct rejoin_session *session,
                                 rejoin_handle stream,
                                 void **out_graph);

/**
 * cuGraphInstantiate: recorded only, no backend executes it.
 *
 * @param session   open
 * @param out_exec  set on OK: a virtual handle
 * @param graph     host memory, not NULL; stays until the call's work is done
 * @param flags     by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_graph_instantiate(const struct rejoin_session *session,
                                       rejoin_handle *out_exec,
                                       void *graph,
                                       uint64_t flags);

/**
 * cuGraphLaunch: recorded only, no backend executes it.
 *
 * @param session  open
 * @param exec     handle
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_graph_launch(const struct rejoin_session *session,
                                  rejoin_handle exec,
                                  rejoin_handle stream);

/**
 * cuGraphExecDestroy: recorded only, no backend executes it.
 *
 * @param session  open
 * @param exec     handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_graph_exec_destroy(const struct rejoin_session *session, rejoin_handle exec);

/**
 * cuIpcGetMemHandle: recorded only, no backend executes it.
 *
 * @param session  open
 * @param address  in a live allocation
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_ipc_get_mem_handle(const struct rejoin_session *session, rejoin_device_ptr address);

/**
 * cuIpcOpenMemHandle: recorded only, no backend executes it.
 *
 * @param session       open
 * @param handle        copied
 * @param handle_bytes  its length
 * @param flags         as in CUDA or NCCL
 * @param out_address   set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_ipc_open_mem_handle(const struct rejoin_session *session,
                                         const void *handle,
                                         size_t handle_bytes,
                                         uint32_t flags,
                                         rejoin_device_ptr *out_address);

/**
 * cuIpcCloseMemHandle: recorded only, no backend executes it.
 *
 * @param session  open
 * @param address  in a live allocation
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_ipc_close_mem_handle(const struct rejoin_session *session, rejoin_device_ptr address);

/**
 * cuIpcOpenEventHandle: recorded only, no backend executes it.
 *
 * @param session       open
 * @param out_event     set on OK: a virtual handle
 * @param handle        copied
 * @param handle_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_ipc_open_event_handle(const struct rejoin_session *session,
                                           rejoin_handle *out_event,
                                           const void *handle,
                                           size_t handle_bytes);

/**
 * cuMemImportFromShareableHandle: recorded only, no backend executes it.
 *
 * @param session       open
 * @param handle        copied
 * @param handle_bytes  its length
 * @param handle_type   by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_mem_import_handle(const struct rejoin_session *session,
                                       const void *handle,
                                       size_t handle_bytes,
                                       int32_t handle_type);

/**
 * cuImportExternalMemory: recorded only, no backend executes it.
 *
 * @param session           open
 * @param descriptor        copied
 * @param descriptor_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_external_memory_import(const struct rejoin_session *session,
                                            const void *descriptor,
                                            size_t descriptor_bytes);

/**
 * unknown call: recorded only, no backend executes it.
 *
 * @param session          open
 * @param name             UTF-8
 * @param arguments        copied
 * @param arguments_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
rejoin_status rejoin_unknown_call(const struct rejoin_session *session,
                                  const char *name,
                                  const void *arguments,
                                  size_t arguments_bytes);

/**
 * Begins a request by its number. All arguments are 0 or empty.
 *
 * @param opcode       REJOIN_REQUEST_…, or REJOIN_REQUEST_USER_OPAQUE + a number of your own
 * @param out_request  set on OK; give it to rejoin_request_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (no such number); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_request_create(uint16_t opcode, struct rejoin_request **out_request);

/**
 * Frees a request. What was sent or appended stays.
 *
 * @param request  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
rejoin_status rejoin_request_close(struct rejoin_request *request);

/**
 * Sets an argument that is a number, a handle or a pointer. Signed numbers and floats by their 32 bits.
 *
 * @param request   open
 * @param position  from 0, as in docs/requests.md
 * @param word      its value
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (that argument is bytes);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
rejoin_status rejoin_request_set_word(struct rejoin_request *request, uint32_t position, uint64_t word);

/**
 * Sets an argument that is bytes or text (without a terminating zero).
 *
 * @param request      open
 * @param position     from 0, as in docs/requests.md
 * @param value        copied
 * @param value_bytes  its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (that argument is a word);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
rejoin_status rejoin_request_set_bytes(struct rejoin_request *request,
                                       uint32_t position,
                                       const void *value,
                                       size_t value_bytes);

/**
 * Says that an argument is foreign: a stream or pointer of CUDA's own instead of a handle or an address of the
 * session. It is passed through as it is; no replay executes the request.
 *
 * @param request   open
 * @param position  from 0, as in docs/requests.md
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (a size or bytes, which cannot be foreign);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
rejoin_status rejoin_request_set_foreign(struct rejoin_request *request,
                                         uint32_t position);

/**
 * Says why a request cannot be replayed, although its row can: `rejoin verify` and rejoin_snapshot_get_obstacle()
 * tell it.
 *
 * @param request  open
 * @param reason   a rejoin_reason; 0: as its row says
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
rejoin_status rejoin_request_set_reason(struct rejoin_request *request,
                                        uint32_t reason);

/**
 * Records and executes a request. A handle that it creates is reserved first.
 *
 * @param session    open
 * @param request    stays; may be sent again
 * @param out_value  set on OK: the handle that was created, else the request's result, else 0
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO; REJOIN_STATUS_UNSUPPORTED (it has a function of its own,
 *         which the message names, or this backend cannot do it); REJOIN_STATUS_INVALID_ARGUMENT; all that
 *         the request itself can return; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently with other requests.
 */
rejoin_status rejoin_request_send(const struct rejoin_session *session,
                                  const struct rejoin_request *request,
                                  uint64_t *out_value);

/**
 * Appends a request to a journal without executing it, as rejoin_journal_append() does with bytes.
 *
 * @param journal     open for writing
 * @param region      a rejoin_region
 * @param request     stays; may be appended again
 * @param out_record  set on OK
 * @return as rejoin_journal_append()
 * Threads: any, concurrently.
 */
rejoin_status rejoin_request_append(const struct rejoin_journal *journal,
                                    uint32_t region,
                                    const struct rejoin_request *request,
                                    struct rejoin_record_ref *out_record);

/**
 * Records a request of the application's own in the rank's journal. Rejoin executes nothing.
 *
 * @param session        open
 * @param number         below 0x8000
 * @param payload        copied, opaque
 * @param payload_bytes  its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO; REJOIN_STATUS_JOURNAL_FULL;
 *         REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_user_request(const struct rejoin_session *session,
                                  uint16_t number,
                                  const void *payload,
                                  size_t payload_bytes);

/**
 * A record in words, such as `ncclAllReduce(sendbuff=0x400000000000, count=1024, …)`.
 *
 * @param kind           of the record
 * @param payload        of the record
 * @param payload_bytes  its length
 * @param buffer         gets UTF-8 with a terminating zero, cut where it is too long
 * @param capacity       of the buffer; 0: only the length is wanted
 * @param out_length     set on OK: length of the whole text, without the zero
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (it is not a request of this version);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_request_describe(uint16_t kind,
                                      const void *payload,
                                      size_t payload_bytes,
                                      char *buffer,
                                      size_t capacity,
                                      size_t *out_length);

/**
 * Creates and publishes a journal in shared memory, where it outlives this process. Its name is
 * rejoin.JOB.rRANK.INCARNATION; `rejoin show` prints it.
 *
 * @param options      copied
 * @param out_journal  set on OK; give it to rejoin_journal_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_EXISTS; REJOIN_STATUS_NO_SPACE; REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_VERSION (a field of a newer header is set); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_journal_create(const struct rejoin_journal_options *options,
                                    struct rejoin_journal **out_journal);

/**
 * Opens a published journal to append to it, from this or another process of the same user.
 *
 * @param name         such as rejoin.JOB.r0.0
 * @param out_journal  set on OK; give it to rejoin_journal_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_ACCESS; REJOIN_STATUS_VERSION;
 *         REJOIN_STATUS_CORRUPT; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_journal_open(const char *name, struct rejoin_journal **out_journal);

/**
 * Closes a journal in this process. The journal stays in shared memory: see rejoin_journal_unlink().
 *
 * @param journal  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
rejoin_status rejoin_journal_close(struct rejoin_journal *journal);

/**
 * Removes the journal's name from shared memory. Those who have it open keep it.
 *
 * @param journal  open
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_journal_unlink(const struct rejoin_journal *journal);

/**
 * Removes a journal by its name, its further segments and spill files too: of a dead writer, or one that this library
 * cannot open.
 *
 * @param name  such as rejoin.JOB.r0.0
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_ACCESS; REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Those who have it open keep it.
 */
rejoin_status rejoin_journal_remove(const char *name);

/**
 * The journal's published name.
 *
 * @param journal  open
 * @return UTF-8, the journal's, valid until its close; empty where `journal` is none
 * Threads: any, concurrently.
 */
const char *rejoin_journal_name(const struct rejoin_journal *journal);

/**
 * Appends one record; returns after it is committed and visible to readers. Only then do what it says.
 *
 * @param journal        open for writing
 * @param region         a rejoin_region
 * @param kind           REJOIN_REQUEST_USER_OPAQUE + a number of your own; for requests of the table use
 *                       rejoin_request_append(), which makes the payload that `rejoin show` and replays read
 * @param payload        copied, opaque
 * @param payload_bytes  its length
 * @param out_record     set on OK: its place, for rejoin_journal_complete()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_JOURNAL_FULL (nothing was written);
 *         REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Lock-free; no allocation for payloads below a chunk; not async-signal-safe.
 */
rejoin_status rejoin_journal_append(const struct rejoin_journal *journal,
                                    uint32_t region,
                                    uint16_t kind,
                                    const void *payload,
                                    size_t payload_bytes,
                                    struct rejoin_record_ref *out_record);

/**
 * Stores beside a record what its call gave. Without it readers see "entered, never returned".
 *
 * @param journal  open for writing
 * @param record   as rejoin_journal_append() set it
 * @param result   at most 63 bits
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (its step is over); REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: the one that appended it, or any before the step's commit. Lock-free.
 */
rejoin_status rejoin_journal_complete(const struct rejoin_journal *journal,
                                      const struct rejoin_record_ref *record,
                                      uint64_t result);

/**
 * Ends a step: its records no longer count. A crash leaves the old boundary or the new one.
 *
 * @param journal       open for writing
 * @param step          the one that ends
 * @param out_sequence  set on OK: records of the step region below it are over
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_TIMEOUT (another thread is stopped in such a call);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
rejoin_status rejoin_journal_step_commit(const struct rejoin_journal *journal,
                                         uint32_t step,
                                         uint64_t *out_sequence);

/**
 * Drops the records of a step that runs again, without ending it.
 *
 * @param journal       open for writing
 * @param out_sequence  set on OK: records of the step region below it are over
 * @return as rejoin_journal_step_commit()
 * Threads: any; one at a time is served.
 */
rejoin_status rejoin_journal_step_discard(const struct rejoin_journal *journal, uint64_t *out_sequence);

/**
 * Seals what dead threads and processes left in the journal.
 *
 * @param journal     open for writing
 * @param out_reaped  set on OK: slots that were reaped
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CORRUPT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_journal_reap(const struct rejoin_journal *journal, uint32_t *out_reaped);

/**
 * Marks the journal as brought to a good end: readers need not suspect a death.
 *
 * @param journal  open for writing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_journal_finish(const struct rejoin_journal *journal);

/**
 * What a reader of this journal would see now.
 *
 * @param journal       open for writing
 * @param after         only records with a higher sequence; 0: all
 * @param out_snapshot  set on OK; give it to rejoin_snapshot_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; slows no writer.
 */
rejoin_status rejoin_journal_snapshot(const struct rejoin_journal *journal,
                                      uint64_t after,
                                      struct rejoin_snapshot **out_snapshot);

/**
 * Appends one record whose payload is several parts, one after the other; otherwise as rejoin_journal_append().
 *
 * @param journal     open for writing
 * @param options     copied
 * @param parts       copied, with what they lead to
 * @param part_count  how many
 * @param out_record  set on OK: its place, for rejoin_journal_complete()
 * @return as rejoin_journal_append(); REJOIN_STATUS_VERSION (options sets a field of a newer header)
 * Threads: any, concurrently. Lock-free; not async-signal-safe.
 */
rejoin_status rejoin_journal_append_parts(const struct rejoin_journal *journal,
                                          const struct rejoin_append_options *options,
                                          const struct rejoin_part *parts,
                                          size_t part_count,
                                          struct rejoin_record_ref *out_record);

/**
 * Says that the caller goes on without a record that a full journal refused. From now on the journal counts as
 * incomplete, and nobody replays it: see `dropped` and `incomplete_from` of rejoin_snapshot_info.
 *
 * @param journal  open for writing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Lock-free.
 */
rejoin_status rejoin_journal_note_dropped(const struct rejoin_journal *journal);

/**
 * Keeps a blob that a step begins with. The one for the step before stays readable; older ones go.
 *
 * @param journal     open for writing
 * @param step        that begins with it
 * @param blob        copied
 * @param blob_bytes  its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_JOURNAL_FULL; REJOIN_STATUS_TIMEOUT (the message names the thread
 *         that is stopped in such a call); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served. A crash leaves the old content or the new one.
 */
rejoin_status rejoin_journal_prepare(const struct rejoin_journal *journal,
                                     uint32_t step,
                                     const void *blob,
                                     size_t blob_bytes);

/**
 * As rejoin_journal_prepare(), with buffers beside the blob, which rejoin_reader_prepared_part() gives back one by one.
 *
 * @param journal     open for writing
 * @param step        that begins with it
 * @param blob        copied
 * @param blob_bytes  its length
 * @param parts       copied, with what they lead to
 * @param part_count  how many; they are numbered from 0
 * @return as rejoin_journal_prepare()
 * Threads: any; one at a time is served. A crash leaves the old content or the new one.
 */
rejoin_status rejoin_journal_prepare_parts(const struct rejoin_journal *journal,
                                           uint32_t step,
                                           const void *blob,
                                           size_t blob_bytes,
                                           const struct rejoin_part *parts,
                                           size_t part_count);

/**
 * Makes room, so that later calls of rejoin_journal_prepare() and rejoin_journal_prepare_parts() cannot find the
 * journal full.
 *
 * @param journal     open for writing
 * @param blob_bytes  the largest blob
 * @param part_bytes  the largest sum of all parts
 * @param part_count  the most parts
 * @return as rejoin_journal_prepare(); REJOIN_STATUS_INVALID_ARGUMENT (more than any journal has)
 * Threads: any; one at a time is served.
 */
rejoin_status rejoin_journal_prepare_reserve(const struct rejoin_journal *journal,
                                             size_t blob_bytes,
                                             size_t part_bytes,
                                             size_t part_count);

/**
 * Reads the blob that a step begins with.
 *
 * @param journal    open for writing
 * @param step       that begins with it
 * @param buffer     gets it
 * @param capacity   of the buffer; 0: only the length is wanted
 * @param out_bytes  set on OK: its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_INVALID_ARGUMENT (the buffer is too
 *         small; the message says what it needs); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_journal_prepared(const struct rejoin_journal *journal,
                                      uint32_t step,
                                      void *buffer,
                                      size_t capacity,
                                      size_t *out_bytes);

/**
 * As rejoin_journal_prepared(), of a live writer or a dead one.
 *
 * @param reader     open
 * @param step       that begins with it
 * @param buffer     gets it
 * @param capacity   of the buffer; 0: only the length is wanted
 * @param out_bytes  set on OK: its length
 * @return as rejoin_journal_prepared(); REJOIN_STATUS_CORRUPT (the file was cut)
 * Threads: any, concurrently; slows no writer.
 */
rejoin_status rejoin_reader_prepared(const struct rejoin_reader *reader,
                                     uint32_t step,
                                     void *buffer,
                                     size_t capacity,
                                     size_t *out_bytes);

/**
 * Reads a buffer that was kept beside the blob. In the journal of a session these are the per-rank buffers, in the
 * order of their registration.
 *
 * @param reader     open
 * @param step       that begins with it
 * @param part       its number, from 0
 * @param buffer     gets it
 * @param capacity   of the buffer; 0: only the length is wanted
 * @param out_bytes  set on OK: its length
 * @return as rejoin_reader_prepared()
 * Threads: any, concurrently; slows no writer.
 */
rejoin_status rejoin_reader_prepared_part(const struct rejoin_reader *reader,
                                          uint32_t step,
                                          uint32_t part,
                                          void *buffer,
                                          size_t capacity,
                                          size_t *out_bytes);

/**
 * Whether this thread's set-up records have grown enough for rejoin_journal_compact() to be worth a try.
 *
 * @param journal    open for writing
 * @param out_wants  set on OK: 1 or 0
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; each has records of its own. A few loads.
 */
rejoin_status rejoin_journal_wants_compaction(const struct rejoin_journal *journal, uint32_t *out_wants);

/**
 * Leaves out set-up records of this thread, below the last step boundary, that no replay needs: if they are more
 * than half of its bytes there. Call it between steps, after the results of the remaining records were stored: they
 * get another place, so a rejoin_record_ref from before is not good any more. A crash leaves the records as they
 * were or without the dead ones. A session does this by itself in rejoin_step_commit().
 *
 * @param journal      open for writing
 * @param dead         sequence numbers of the records; others' records and newer ones are kept all the same
 * @param dead_count   how many; 0: those of table requests whose objects are gone, as the table says
 * @param out_dropped  set on OK: records left out; 0: it was not worth it, or no room is free to copy into
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_JOURNAL_FULL (more threads than max_slots); REJOIN_STATUS_CORRUPT;
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; each compacts its own records. Readers are not held up.
 */
rejoin_status rejoin_journal_compact(const struct rejoin_journal *journal,
                                     const uint64_t *dead,
                                     size_t dead_count,
                                     uint64_t *out_dropped);

/**
 * Opens a journal for reading, read-only: its writer may live or be dead, and is never disturbed.
 *
 * @param name        such as rejoin.JOB.r0.0 in shared memory, or the path of a copy (with a slash)
 * @param out_reader  set on OK; give it to rejoin_reader_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_ACCESS; REJOIN_STATUS_VERSION;
 *         REJOIN_STATUS_CORRUPT; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_reader_open(const char *name, struct rejoin_reader **out_reader);

/**
 * Closes a reader. Its snapshots stay.
 *
 * @param reader  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
rejoin_status rejoin_reader_close(struct rejoin_reader *reader);

/**
 * Takes a snapshot. To look at what is new, pass the limit of the snapshot before, minus one; as long as a snapshot
 * has a record in flight, stay at its `after`, since that record may get a lower number. To be told each record once,
 * use rejoin_follower_open().
 *
 * @param reader        open
 * @param after         only records with a higher sequence; 0: all
 * @param out_snapshot  set on OK; give it to rejoin_snapshot_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CORRUPT (the file was cut); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; slows no writer.
 */
rejoin_status rejoin_reader_snapshot(const struct rejoin_reader *reader,
                                     uint64_t after,
                                     struct rejoin_snapshot **out_snapshot);

/**
 * Frees a snapshot and the payloads that its records point to.
 *
 * @param snapshot  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
rejoin_status rejoin_snapshot_close(struct rejoin_snapshot *snapshot);

/**
 * What the snapshot says about its journal.
 *
 * @param snapshot  open
 * @param out_info  initialised with REJOIN_SNAPSHOT_INFO_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_snapshot_get_info(const struct rejoin_snapshot *snapshot,
                                       struct rejoin_snapshot_info *out_info);

/**
 * One record of a snapshot. Records come in the order of their sequence, unfinished ones last.
 *
 * @param snapshot    open
 * @param index       from 0
 * @param out_record  initialised with REJOIN_RECORD_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (there are no more); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_snapshot_get(const struct rejoin_snapshot *snapshot,
                                  uint64_t index,
                                  struct rejoin_record *out_record);

/**
 * Who writes the journal, lane by lane, and whether each lives.
 *
 * @param snapshot  open
 * @param index     from 0
 * @param out_lane  initialised with REJOIN_LANE_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (there are no more); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_snapshot_get_lane(const struct rejoin_snapshot *snapshot,
                                       uint64_t index,
                                       struct rejoin_lane *out_lane);

/**
 * Ranges of sequence numbers of the open step that no record has: of records in flight, or lost by a death.
 *
 * @param snapshot   open
 * @param index      from 0
 * @param out_first  set on OK
 * @param out_count  set on OK: how many, from the first on
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (there are no more); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_snapshot_get_missing(const struct rejoin_snapshot *snapshot,
                                          uint64_t index,
                                          uint64_t *out_first,
                                          uint64_t *out_count);

/**
 * What stands against a replay of this journal, as `rejoin verify` tells it: nothing, if the first call says
 * REJOIN_STATUS_NOT_FOUND. It looks at all of the journal, whatever `after` the snapshot was taken with.
 *
 * @param snapshot      open
 * @param index         from 0, in the journal's order
 * @param out_obstacle  initialised with REJOIN_OBSTACLE_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (there are no more); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_snapshot_get_obstacle(const struct rejoin_snapshot *snapshot,
                                           uint64_t index,
                                           struct rejoin_obstacle *out_obstacle);

/**
 * Whose journal it is, where it stands, and whether anybody will still write. Cheap: reads no records.
 *
 * @param reader    open
 * @param out_info  initialised with REJOIN_READER_INFO_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; slows no writer.
 */
rejoin_status rejoin_reader_get_info(const struct rejoin_reader *reader, struct rejoin_reader_info *out_info);

/**
 * Opens a journal to follow it: every record once, in the journal's order, while it is written. It begins with the
 * first set-up record and the open step. Writers are never disturbed and never wait for a follower.
 *
 * @param name          as in rejoin_reader_open()
 * @param out_follower  set on OK; give it to rejoin_follower_close()
 * @return as rejoin_reader_open()
 * Threads: any, concurrently.
 */
rejoin_status rejoin_follower_open(const char *name,
                                   struct rejoin_follower **out_follower);

/**
 * Closes a follower. A thread that waits in rejoin_follower_next() comes back with REJOIN_STATUS_CLOSED.
 *
 * @param follower  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any.
 */
rejoin_status rejoin_follower_close(struct rejoin_follower *follower);

/**
 * The next record; waits until there is one. Its call may not have returned yet: `has_result` is as it was seen.
 *
 * A record with the outcome REJOIN_OUTCOME_MISSING stands for `missing` sequence numbers from `sequence` on that will
 * not come: a death took them, or their step was over before this follower was there to read them.
 *
 *     for (;;) {
 *         rejoin_status st = rejoin_follower_next(follower, 1000, &record);
 *         if (st == REJOIN_STATUS_NOT_FOUND) break;                 // the writer has ended, all was told
 *         if (st == REJOIN_STATUS_TIMEOUT) continue;                // it lives, and has nothing to say
 *         CHECK(st);
 *         ...
 *     }
 *
 * @param follower    open
 * @param timeout_ms  longest wait; 0: none; UINT64_MAX: until there is something to tell
 * @param out_record  initialised with REJOIN_RECORD_INIT; set on OK. Its payload is the follower's, valid until the
 *                    next call on it or its close
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_TIMEOUT (the message says who was waited for);
 *         REJOIN_STATUS_NOT_FOUND (all was told, and the writer finished or is dead; a later call looks again);
 *         REJOIN_STATUS_CORRUPT (the file was cut); REJOIN_STATUS_WRONG_STATE (another thread is in here);
 *         REJOIN_STATUS_CLOSED; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, one at a time. Signals do not interrupt it: one that ends the process does so at once, for others
 *          choose a timeout and look at a flag after it.
 */
rejoin_status rejoin_follower_next(struct rejoin_follower *follower,
                                   uint64_t timeout_ms,
                                   struct rejoin_record *out_record);

/**
 * Makes a handle that has no object yet. It is in shared memory: readers of the journal see it.
 *
 * @param journal     open for writing
 * @param kind        a rejoin_handle_kind
 * @param out_handle  set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NO_SPACE (max_handles are in use); REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Lock-free.
 */
rejoin_status rejoin_handle_reserve(const struct rejoin_journal *journal,
                                    uint32_t kind,
                                    rejoin_handle *out_handle);

/**
 * Gives a handle its object.
 *
 * @param journal  whose handle it is
 * @param handle   reserved, or unbound by recovery
 * @param real     the object, by its value
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_STALE_HANDLE; REJOIN_STATUS_INVALID_ARGUMENT (not a handle of
 *         this table); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Lock-free.
 */
rejoin_status rejoin_handle_bind(const struct rejoin_journal *journal, rejoin_handle handle, uint64_t real);

/**
 * Gives a handle another object. Every thread sees the old one or the new one.
 *
 * @param journal  whose handle it is
 * @param handle   live or unbound
 * @param real     the new object
 * @return as rejoin_handle_bind()
 * Threads: any, concurrently. Lock-free.
 */
rejoin_status rejoin_handle_rebind(const struct rejoin_journal *journal, rejoin_handle handle, uint64_t real);

/**
 * The object behind a handle.
 *
 * @param journal   whose handle it is
 * @param handle    live
 * @param kind      the rejoin_handle_kind that it must have
 * @param out_real  set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_STALE_HANDLE (retired, or without an object now);
 *         REJOIN_STATUS_INVALID_ARGUMENT (another kind, or no handle at all); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. A few loads; no lock, no system call.
 */
rejoin_status rejoin_handle_resolve(const struct rejoin_journal *journal,
                                    rejoin_handle handle,
                                    uint32_t kind,
                                    uint64_t *out_real);

/**
 * Takes the objects of all live handles of a kind away, until they are rebound.
 *
 * @param journal  whose handles they are
 * @param kind     a rejoin_handle_kind
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
rejoin_status rejoin_handle_unbind_kind(const struct rejoin_journal *journal, uint32_t kind);

/**
 * Ends a handle: from now on it is stale, also when its slot is used again.
 *
 * @param journal  whose handle it is
 * @param handle   not retired yet
 * @return as rejoin_handle_bind()
 * Threads: any, concurrently. Lock-free.
 */
rejoin_status rejoin_handle_retire(const struct rejoin_journal *journal, rejoin_handle handle);

/**
 * The kind of a handle, from its value alone.
 *
 * @param handle    any value
 * @param out_kind  set on OK: a rejoin_handle_kind
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (a pointer, for instance);
 *         REJOIN_STATUS_NULL_ARGUMENT (0)
 * Threads: any, concurrently.
 */
rejoin_status rejoin_handle_get_kind(rejoin_handle handle, uint32_t *out_kind);

/**
 * The handles that are in use in a journal, bound or not.
 *
 * @param journal    open for writing
 * @param entries    gets as many as it has room for
 * @param capacity   of it, in entries; 0: only the number is wanted
 * @param out_count  set on OK: how many there are
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; each entry is whole, but others may come and go meanwhile.
 */
rejoin_status rejoin_journal_handles(const struct rejoin_journal *journal,
                                     struct rejoin_handle_entry *entries,
                                     size_t capacity,
                                     size_t *out_count);

/**
 * As rejoin_journal_handles(), of a live writer or a dead one.
 *
 * @param reader     open
 * @param entries    gets as many as it has room for
 * @param capacity   of it, in entries; 0: only the number is wanted
 * @param out_count  set on OK: how many there are
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CORRUPT (the file was cut); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; slows no writer.
 */
rejoin_status rejoin_reader_handles(const struct rejoin_reader *reader,
                                    struct rejoin_handle_entry *entries,
                                    size_t capacity,
                                    size_t *out_count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REJOIN_H */
