/* What a recovery is reported as, on every rank of the job. Run by `rejoin run -n 2 --backend host`: rank 1 kills itself
 * in step 2; each rank prints its failures, and rank 0 "ok". */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"

#include <signal.h>

enum { STEPS = 4 };

static void check_report(const rejoin_session *session) {
    uint32_t count = 0;
    EXPECT(rejoin_recovery_count(session, &count), OK, NULL);
    TRUE(count == 1);
    rejoin_recovery_report report = REJOIN_RECOVERY_REPORT_INIT;
    EXPECT(rejoin_recovery_get(session, 0, &report), OK, NULL);
    TRUE(report.epoch == 1 && report.failed_total == 1 && report.failed_rank == 1 && report.failed_incarnation == 0);
    TRUE(report.cause == REJOIN_CAUSE_DIED && report.outcome == REJOIN_RECOVERY_OUTCOME_RECOVERED && report.resumed_step == 2);
    TRUE(report.strategy != 0 && report.start_ns > 0 && report.fence_ns > 0);
    /* A caller that was compiled before `start_ns` was there. */
    rejoin_recovery_report older = REJOIN_RECOVERY_REPORT_INIT;
    older.size = offsetof(rejoin_recovery_report, start_ns);
    older.start_ns = 77;
    EXPECT(rejoin_recovery_get(session, 0, &older), OK, NULL);
    TRUE(older.start_ns == 77 && older.fence_ns == report.fence_ns && older.size == offsetof(rejoin_recovery_report, start_ns));

    rejoin_failed_rank failed = REJOIN_FAILED_RANK_INIT;
    EXPECT(rejoin_recovery_get_failed(session, 0, 0, &failed), OK, NULL);
    TRUE(failed.rank == 1 && failed.incarnation == 0 && failed.cause == REJOIN_CAUSE_DIED);
    TRUE(failed.has_exit && failed.signal == SIGKILL && failed.exit_code == -1);
    TRUE(failed.last_request[0] != 0 && memchr(failed.last_request, 0, sizeof failed.last_request) != NULL);
    EXPECT(rejoin_recovery_get_failed(session, 0, 1, &failed), NOT_FOUND, "failed process 1");
    EXPECT(rejoin_recovery_get_failed(session, 1, 0, &failed), NOT_FOUND, "of 1");
    EXPECT(rejoin_recovery_get(session, 1, &report), NOT_FOUND, NULL);
}

int main(void) {
    rejoin_session *session = NULL;
    rejoin_session_info info = REJOIN_SESSION_INFO_INIT;
    uint32_t step = 0;
    EXPECT(rejoin_session_open(NULL, &session), OK, NULL);
    EXPECT(rejoin_session_get_info(session, &info), OK, NULL);
    EXPECT(rejoin_setup_done(session, &step, NULL, NULL), OK, NULL);
    while (step < STEPS && failures == 0) {
        rejoin_status status = rejoin_step_begin(session, step);
        if (step == 2 && info.rank == 1 && !info.is_replacement) raise(SIGKILL);
        if (status == REJOIN_STATUS_OK) status = rejoin_step_end(session, NULL, 0);
        if (status == REJOIN_STATUS_OK) status = rejoin_step_commit(session);
        if (status == REJOIN_STATUS_REDO) {
            EXPECT(rejoin_resume(session, &step, NULL, NULL), OK, NULL);
            continue;
        }
        EXPECT(status, OK, NULL);
        step++;
    }
    check_report(session);
    EXPECT(rejoin_session_finalize(session), OK, NULL);
    EXPECT(rejoin_session_close(session), OK, NULL);
    if (failures == 0 && info.rank == 0) printf("ok\n");
    return failures != 0;
}
