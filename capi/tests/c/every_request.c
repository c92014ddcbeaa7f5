/* Every request of the table by its number, with all arguments 0: always a status, never a crash; and those that no
 * backend executes say so. Run by `rejoin run -n 1 --backend host`; prints "ok". */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"

/* The functions that rejoin.h calls "recorded only": a test of the generator compares. */
static const uint16_t recorded_only[] = {
    REJOIN_REQUEST_DEVICE_RESET,
    REJOIN_REQUEST_DEVICE_COUNT,
    REJOIN_REQUEST_CONTEXT_CURRENT,
    REJOIN_REQUEST_CONTEXT_STATE,
    REJOIN_REQUEST_DEVICE_ATTRIBUTE,
    REJOIN_REQUEST_CONTEXT_SET_LIMIT,
    REJOIN_REQUEST_HOST_ALLOC,
    REJOIN_REQUEST_HOST_FREE,
    REJOIN_REQUEST_MEM_ALLOC_ASYNC,
    REJOIN_REQUEST_MEM_FREE_ASYNC,
    REJOIN_REQUEST_STREAM_GET_PRIORITY,
    REJOIN_REQUEST_MODULE_GET_GLOBAL,
    REJOIN_REQUEST_FUNCTION_SET_ATTRIBUTE,
    REJOIN_REQUEST_LIBRARY_OPEN,
    REJOIN_REQUEST_LIBRARY_LOAD,
    REJOIN_REQUEST_LIBRARY_UNLOAD,
    REJOIN_REQUEST_LIBRARY_GET_KERNEL,
    REJOIN_REQUEST_LAUNCH_COOPERATIVE,
    REJOIN_REQUEST_COMM_INIT_RANK_SCALABLE,
    REJOIN_REQUEST_COMM_INIT_ALL,
    REJOIN_REQUEST_COMM_SHRINK,
    REJOIN_REQUEST_COMM_GET_UNIQUE_ID,
    REJOIN_REQUEST_COMM_GROW,
    REJOIN_REQUEST_COMM_FINALIZE,
    REJOIN_REQUEST_COMM_DESTROY,
    REJOIN_REQUEST_COMM_ABORT,
    REJOIN_REQUEST_COMM_REVOKE,
    REJOIN_REQUEST_COMM_SUSPEND,
    REJOIN_REQUEST_COMM_RESUME,
    REJOIN_REQUEST_COMM_MEM_STATS,
    REJOIN_REQUEST_GET_LAST_ERROR,
    REJOIN_REQUEST_COMM_WINDOW_REGISTER,
    REJOIN_REQUEST_COMM_WINDOW_DEREGISTER,
    REJOIN_REQUEST_WIN_GET_USER_PTR,
    REJOIN_REQUEST_COMM_INIT_NEW_RANK,
    REJOIN_REQUEST_COMM_ADD_NEW_RANK,
    REJOIN_REQUEST_COMM_SETUP_NEW_RANK,
    REJOIN_REQUEST_PUT_SIGNAL,
    REJOIN_REQUEST_SIGNAL,
    REJOIN_REQUEST_WAIT_SIGNAL,
    REJOIN_REQUEST_GROUP_SIMULATE_END,
    REJOIN_REQUEST_HOST_CALLBACK,
    REJOIN_REQUEST_STREAM_CALLBACK,
    REJOIN_REQUEST_CAPTURE_BEGIN,
    REJOIN_REQUEST_CAPTURE_END,
    REJOIN_REQUEST_GRAPH_INSTANTIATE,
    REJOIN_REQUEST_GRAPH_LAUNCH,
    REJOIN_REQUEST_GRAPH_EXEC_DESTROY,
    REJOIN_REQUEST_IPC_GET_MEM_HANDLE,
    REJOIN_REQUEST_IPC_OPEN_MEM_HANDLE,
    REJOIN_REQUEST_IPC_CLOSE_MEM_HANDLE,
    REJOIN_REQUEST_IPC_OPEN_EVENT_HANDLE,
    REJOIN_REQUEST_MEM_IMPORT_HANDLE,
    REJOIN_REQUEST_EXTERNAL_MEMORY_IMPORT,
    REJOIN_REQUEST_UNKNOWN_CALL,
};

static int is_recorded_only(uint16_t opcode) {
    for (size_t i = 0; i < sizeof recorded_only / sizeof recorded_only[0]; i++) {
        if (recorded_only[i] == opcode) return 1;
    }
    return 0;
}

/* Sends it with all arguments 0; where it wants host memory, with the address of some. */
static rejoin_status send_plain(const rejoin_session *session, rejoin_request *request) {
    static uint64_t memory[8];
    uint64_t value;
    rejoin_status status = rejoin_request_send(session, request, &value);
    for (uint32_t position = 0; status == REJOIN_STATUS_NULL_ARGUMENT && position < 8; position++) {
        if (rejoin_request_set_word(request, position, (uint64_t)(uintptr_t)memory) != REJOIN_STATUS_OK) continue;
        status = rejoin_request_send(session, request, &value);
        if (status == REJOIN_STATUS_NULL_ARGUMENT) EXPECT(rejoin_request_set_word(request, position, 0), OK, NULL);
    }
    TRUE(status != REJOIN_STATUS_NULL_ARGUMENT && status != REJOIN_STATUS_PANIC);
    return status;
}

int main(void) {
    rejoin_session *session = NULL;
    uint32_t step;
    unsigned tried = 0;
    EXPECT(rejoin_session_open(NULL, &session), OK, NULL);
    for (uint32_t opcode = 0; opcode < REJOIN_REQUEST_USER_OPAQUE; opcode++) {
        rejoin_request *request = NULL;
        if (rejoin_request_create((uint16_t)opcode, &request) != REJOIN_STATUS_OK) continue;
        rejoin_status status = send_plain(session, request);
        int found = status == REJOIN_STATUS_UNSUPPORTED && strstr(rejoin_last_error(), "recorded but not executed") != NULL;
        if (found != is_recorded_only((uint16_t)opcode)) {
            fprintf(stderr, "%#06x: %s: %s\n", (unsigned)opcode, rejoin_status_string(status), rejoin_last_error());
            failures++;
        }
        EXPECT(rejoin_request_close(request), OK, NULL);
        tried++;
    }
    TRUE(tried > 100);
    EXPECT(rejoin_setup_done(session, &step, NULL, NULL), OK, NULL);
    EXPECT(rejoin_session_finalize(session), OK, NULL);
    EXPECT(rejoin_session_close(session), OK, NULL);
    if (failures == 0) printf("ok\n");
    return failures != 0;
}
