/* What a program may do wrong with a session: calls out of order, stale and foreign handles, a second session, use after
 * close, a forked child, eight threads. Run by `rejoin run -n 2 --backend host`; each rank prints nothing but its
 * failures, and rank 0 "ok". */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"

#include <pthread.h>
#include <rejoin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static rejoin_session *session;
static rejoin_device_ptr buffer;

static void on_event(const rejoin_event *event, void *user) {
    if (event->kind == REJOIN_EVENT_KIND_ENDED) ++*(int *)user;
}

static void *copies(void *argument) {
    const uint64_t offset = *(const uint64_t *)argument;
    unsigned char sent[256], received[256];
    uintptr_t wrong = 0;
    for (int i = 0; i < 200; i++) {
        memset(sent, (int)(offset + (uint64_t)i), sizeof sent);
        if (rejoin_memcpy_htod(session, buffer + offset, sent, sizeof sent) != REJOIN_STATUS_OK) wrong++;
        if (rejoin_memcpy_dtoh(session, received, buffer + offset, sizeof received) != REJOIN_STATUS_OK) wrong++;
        if (memcmp(sent, received, sizeof sent) != 0) wrong++;
    }
    return (void *)wrong;
}

static void in_set_up(const rejoin_session_info *info, rejoin_handle *comm) {
    uint32_t step;
    rejoin_handle stream, event, made;
    rejoin_unique_id id;
    rejoin_session *second = NULL;
    memset(&id, 1, sizeof id);
    EXPECT(rejoin_session_open(NULL, &second), ACCESS, "same token");
    EXPECT(rejoin_step_begin(session, 0), WRONG_STATE, "setup_done");
    EXPECT(rejoin_step_end(session, NULL, 0), WRONG_STATE, "step_begin");
    EXPECT(rejoin_step_commit(session), WRONG_STATE, "step_end");
    EXPECT(rejoin_resume(session, &step, NULL, NULL), WRONG_STATE, "setup_done");
    EXPECT(rejoin_session_finalize(session), WRONG_STATE, NULL);
    EXPECT(rejoin_comm_init_rank(session, info->nranks, &id, info->rank, comm), INVALID_ARGUMENT, "unique id");
    EXPECT(rejoin_comm_init_rank(session, info->nranks, &id, info->nranks, comm), INVALID_ARGUMENT, "ranks go from 0");

    EXPECT(rejoin_stream_create(session, &stream, 0, 0), OK, NULL);
    EXPECT(rejoin_event_create(session, &event, 0), OK, NULL);
    EXPECT(rejoin_event_record(session, stream, stream), INVALID_ARGUMENT, "expected a Event");
    EXPECT(rejoin_event_record(session, (uint64_t)(uintptr_t)&step, stream), INVALID_ARGUMENT, "not a virtual handle");
    EXPECT(rejoin_event_record(session, event, stream), OK, NULL);
    EXPECT(rejoin_event_synchronize(session, event), OK, NULL);
    uint32_t done = 7;
    EXPECT(rejoin_event_query(session, event, &done), OK, NULL);
    if (done != 1) failures++;
    EXPECT(rejoin_event_destroy(session, event), OK, NULL);
    EXPECT(rejoin_event_record(session, event, stream), STALE_HANDLE, "stale");
    EXPECT(rejoin_memcpy_dtoh(session, &step, 4096, sizeof step), DEVICE, "memcpy");
    EXPECT(rejoin_module_load(session, &made, "no shared object", 16), DEVICE, NULL);
    EXPECT(rejoin_launch_kernel(session, stream, 1, 1, 1, 1, 1, 1, 0, stream, NULL, 0), INVALID_ARGUMENT, "Function");
    EXPECT(rejoin_comm_destroy(session, stream), UNSUPPORTED, NULL);
    EXPECT(rejoin_user_request(session, 0x8000, "a", 1), INVALID_ARGUMENT, "0x7fff");
    EXPECT(rejoin_user_request(session, 5, "a", 1), OK, NULL);

    /* Any request by its number, with a handle that it creates. */
    rejoin_request *request = NULL;
    uint64_t value = 0;
    EXPECT(rejoin_request_create(REJOIN_REQUEST_EVENT_CREATE, &request), OK, NULL);
    EXPECT(rejoin_request_send(session, request, &value), OK, NULL);
    EXPECT(rejoin_event_destroy(session, value), OK, NULL);
    EXPECT(rejoin_request_close(request), OK, NULL);
    EXPECT(rejoin_request_create(REJOIN_REQUEST_SETUP_DONE, &request), OK, NULL);
    EXPECT(rejoin_request_send(session, request, &value), UNSUPPORTED, "rejoin_setup_done");
    EXPECT(rejoin_request_close(request), OK, NULL);
    EXPECT(rejoin_request_create(REJOIN_REQUEST_MEMCPY_DTOH, &request), OK, NULL);
    EXPECT(rejoin_request_send(session, request, &value), NULL_ARGUMENT, "dst");
    EXPECT(rejoin_request_close(request), OK, NULL);

    size_t bytes;
    char small[4] = {0};
    if (info->rank == 0) {
        EXPECT(rejoin_get_unique_id(session, &id), OK, NULL);
        EXPECT(rejoin_exchange_publish(session, "id", &id, sizeof id), OK, NULL);
    }
    EXPECT(rejoin_exchange_await(session, "id", small, sizeof small, &bytes), INVALID_ARGUMENT, "128 bytes");
    EXPECT(rejoin_exchange_await(session, "id", &id, sizeof id, &bytes), OK, NULL);
    EXPECT(rejoin_comm_init_rank(session, info->nranks, &id, info->rank, comm), OK, NULL);

    EXPECT(rejoin_mem_alloc(session, 4096, &buffer), OK, NULL);
    EXPECT(rejoin_memcpy_htod_async(session, buffer, small, sizeof small, stream), OK, NULL);
    EXPECT(rejoin_stream_synchronize(session, stream), OK, NULL);
    rejoin_journal *own_journal = NULL;
    EXPECT(rejoin_session_journal(session, &own_journal), OK, NULL);
    EXPECT(rejoin_handle_resolve(own_journal, stream, REJOIN_HANDLE_KIND_STREAM, &value), OK, NULL);
    EXPECT(rejoin_journal_close(own_journal), OK, NULL);
    EXPECT(rejoin_state_register(session, "b", buffer, 4096, 9, *comm), INVALID_ARGUMENT, "rejoin_state_kind");
    EXPECT(rejoin_state_register(session, "b", buffer, 8192, REJOIN_STATE_KIND_SCRATCH, *comm), INVALID_ARGUMENT, "live allocation");
    EXPECT(rejoin_state_register(session, "b", buffer, 4096, REJOIN_STATE_KIND_REPLICATED, 0), INVALID_ARGUMENT, "communicator");
    EXPECT(rejoin_state_register(session, "b", buffer, 4096, REJOIN_STATE_KIND_SCRATCH, *comm), OK, NULL);

    /* Foreign mode: a pointer that is no stream, a buffer of the program, and state without a communicator. */
    static uint64_t no_stream[8], own[64];
    EXPECT(rejoin_stream_adopt(session, no_stream, &made), DEVICE, "no host stream");
    EXPECT(rejoin_state_register_foreign(session, "own", 0, 64, REJOIN_STATE_KIND_SCRATCH, *comm), DEVICE, "no memory");
    const rejoin_device_ptr at = (rejoin_device_ptr)(uintptr_t)own;
    EXPECT(rejoin_state_register_foreign(session, "own", at, sizeof own, 9, *comm), INVALID_ARGUMENT, "rejoin_state_kind");
    EXPECT(rejoin_state_register_foreign(session, "own", at, sizeof own, REJOIN_STATE_KIND_PER_RANK, 0), OK, NULL);

    pthread_t threads[8];
    uint64_t offsets[8];
    for (uint64_t i = 0; i < 8; i++) {
        offsets[i] = i * 256;
        if (pthread_create(&threads[i], NULL, copies, &offsets[i]) != 0) exit(1);
    }
    for (int i = 0; i < 8; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        if (wrong != NULL) failures++;
    }
}

static void in_steps(rejoin_handle comm) {
    uint32_t step;
    const void *blob = &step;
    size_t bytes = 9;
    rejoin_handle made;
    rejoin_unique_id id;
    static char large[70000];
    EXPECT(rejoin_setup_done(session, &step, &blob, &bytes), OK, NULL);
    if (step != 0 || bytes != 0) failures++;
    EXPECT(rejoin_setup_done(session, &step, &blob, &bytes), WRONG_STATE, "once");
    EXPECT(rejoin_get_unique_id(session, &id), WRONG_STATE, "before setup_done");
    EXPECT(rejoin_comm_split(session, comm, 0, 0, NULL, &made), WRONG_STATE, "before setup_done");
    EXPECT(rejoin_all_reduce(session, buffer, buffer, 1, REJOIN_DATA_TYPE_INT8, REJOIN_REDUCE_OP_SUM, comm, 0), WRONG_STATE, "step_begin");
    EXPECT(rejoin_step_begin(session, 1), WRONG_STATE, NULL);
    EXPECT(rejoin_step_begin(session, 0), OK, NULL);
    EXPECT(rejoin_step_begin(session, 0), WRONG_STATE, NULL);
    EXPECT(rejoin_session_check(session), OK, NULL);
    EXPECT(rejoin_session_finalize(session), WRONG_STATE, NULL);
    EXPECT(rejoin_all_reduce(session, buffer, buffer, 1, 99, REJOIN_REDUCE_OP_SUM, comm, 0), NCCL, NULL);
    EXPECT(rejoin_all_reduce(session, buffer, buffer, 64, REJOIN_DATA_TYPE_INT32, REJOIN_REDUCE_OP_SUM, comm, 0), OK, NULL);
    EXPECT(rejoin_step_end(session, large, sizeof large), INVALID_ARGUMENT, "70000");
    EXPECT(rejoin_step_end(session, "next", 5), OK, NULL);
    EXPECT(rejoin_step_end(session, "next", 5), WRONG_STATE, NULL);
    EXPECT(rejoin_all_reduce(session, buffer, buffer, 1, REJOIN_DATA_TYPE_INT8, REJOIN_REDUCE_OP_SUM, comm, 0), WRONG_STATE, "local");
    EXPECT(rejoin_step_commit(session), OK, NULL);
    EXPECT(rejoin_step_commit(session), WRONG_STATE, NULL);
    uint32_t recoveries = 9;
    EXPECT(rejoin_recovery_count(session, &recoveries), OK, NULL);
    if (recoveries != 0) failures++;
    rejoin_recovery_report report = REJOIN_RECOVERY_REPORT_INIT;
    EXPECT(rejoin_recovery_get(session, 0, &report), NOT_FOUND, NULL);
}

int main(void) {
    rejoin_session_info info = REJOIN_SESSION_INFO_INIT;
    rejoin_handle comm = 0;
    EXPECT(rejoin_session_open(NULL, &session), OK, NULL);
    EXPECT(rejoin_session_get_info(session, &info), OK, NULL);
    if (info.nranks != 2 || info.incarnation != 0 || info.is_replacement != 0) failures++;
    int ended = 0;
    EXPECT(rejoin_session_on_event(session, NULL, &ended), NULL_ARGUMENT, "function");
    EXPECT(rejoin_session_on_event(session, on_event, &ended), OK, NULL);
    EXPECT(rejoin_session_on_event(session, on_event, &ended), EXISTS, NULL);
    in_set_up(&info, &comm);

    pid_t pid = fork();
    if (pid == 0) {
        EXPECT(rejoin_session_check(session), FORKED, "forked");
        EXPECT(rejoin_session_close(session), FORKED, NULL);
        /* By exec: at its exit valgrind would take for lost what only the stacks of threads lead to, and a forked child
         * has none of the parent's threads. */
        execlp(failures == 0 ? "true" : "false", "ends", (char *)NULL);
        _exit(2);
    }
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status != 0) failures++;

    in_steps(comm);
    EXPECT(rejoin_session_finalize(session), OK, NULL);
    EXPECT(rejoin_session_finalize(session), WRONG_STATE, NULL);
    EXPECT(rejoin_mem_alloc(session, 1, &buffer), WRONG_STATE, "ended");
    EXPECT(rejoin_session_close(session), OK, NULL);
    /* No call comes any more; the end of the job was told at most once. */
    if (ended > 1) failures++;
    EXPECT(rejoin_session_close(session), CLOSED, NULL);
    EXPECT(rejoin_session_check(session), CLOSED, "closed");
    if (failures == 0 && info.rank == 0) printf("ok\n");
    return failures != 0;
}
