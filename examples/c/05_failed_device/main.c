/* Two ranks, a kernel of their own, and a device that may fail. */
#include "check.h"

#include <rejoin.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 6, N = 2 };

typedef struct rank {
    rejoin_session *session;
    rejoin_session_info info;
    rejoin_handle stream, comm, accumulate;
    rejoin_device_ptr total, gradient;
} rank;

static rejoin_status set_up(rank *r) {
    static unsigned char image[1 << 20];
    FILE *file = fopen(KERNELS, "rb");
    size_t bytes = file != NULL ? fread(image, 1, sizeof image, file) : 0;
    if (file != NULL) fclose(file);
    rejoin_handle module;
    TRY(rejoin_module_load(r->session, &module, image, bytes));
    TRY(rejoin_module_get_function(r->session, &r->accumulate, module, "accumulate"));
    TRY(rejoin_stream_create(r->session, &r->stream, 0, 0));

    rejoin_unique_id id;
    size_t length;
    if (r->info.rank == 0) {
        TRY(rejoin_get_unique_id(r->session, &id));
        TRY(rejoin_exchange_publish(r->session, "id", &id, sizeof id));
    } else {
        TRY(rejoin_exchange_await(r->session, "id", &id, sizeof id, &length));
    }
    TRY(rejoin_comm_init_rank(r->session, r->info.nranks, &id, r->info.rank, &r->comm));

    const int32_t zeros[N] = {0, 0};
    TRY(rejoin_mem_alloc(r->session, sizeof zeros, &r->total));
    TRY(rejoin_mem_alloc(r->session, sizeof zeros, &r->gradient));
    TRY(rejoin_memcpy_htod(r->session, r->total, zeros, sizeof zeros));
    TRY(rejoin_state_register(r->session, "total", r->total, sizeof zeros, REJOIN_STATE_KIND_REPLICATED, r->comm));
    return rejoin_state_register(r->session, "gradient", r->gradient, sizeof zeros, REJOIN_STATE_KIND_SCRATCH, r->comm);
}

static rejoin_status run_step(const rank *r, uint32_t step) {
    TRY(rejoin_step_begin(r->session, step));
    int32_t own[N] = {(int32_t)(step * (r->info.rank + 1)), (int32_t)(2 * step * (r->info.rank + 1))};
    TRY(rejoin_memcpy_htod(r->session, r->gradient, own, sizeof own));
    TRY(rejoin_all_reduce(r->session, r->gradient, r->gradient, N, REJOIN_DATA_TYPE_INT32, REJOIN_REDUCE_OP_SUM, r->comm,
                          r->stream));
    TRY(rejoin_step_end(r->session, NULL, 0));

    unsigned char params[2 * sizeof(rejoin_device_ptr) + sizeof(uint32_t)];
    const uint32_t n = N;
    memcpy(params, &r->total, sizeof r->total);
    memcpy(params + sizeof r->total, &r->gradient, sizeof r->gradient);
    memcpy(params + 2 * sizeof r->total, &n, sizeof n);
    TRY(rejoin_launch_kernel(r->session, r->accumulate, 1, 1, 1, N, 1, 1, 0, r->stream, params, sizeof params));
    return rejoin_step_commit(r->session);
}

int main(void) {
    int result = 1;
    uint32_t step;
    int32_t total[N];
    rank r;
    memset(&r, 0, sizeof r);
    rejoin_session_info info = REJOIN_SESSION_INFO_INIT;
    r.info = info;
    CHECK(rejoin_session_open(NULL, &r.session));
    CHECK(rejoin_session_get_info(r.session, &r.info));
    CHECK(set_up(&r));
    CHECK(rejoin_setup_done(r.session, &step, NULL, NULL));
    for (;;) {
        rejoin_status status =
            step < STEPS ? run_step(&r, step) : rejoin_memcpy_dtoh(r.session, total, r.total, sizeof total);
        if (status == REJOIN_STATUS_REDO) {
            CHECK(rejoin_resume(r.session, &step, NULL, NULL));
            continue;
        }
        CHECK(status);
        if (step == STEPS) break;
        step++;
    }
    if (r.info.rank == 0) printf("total after %d steps: %d %d\n", STEPS, (int)total[0], (int)total[1]);
    CHECK(rejoin_session_finalize(r.session));
    result = 0;
cleanup:
    rejoin_session_close(r.session);
    return result;
}
