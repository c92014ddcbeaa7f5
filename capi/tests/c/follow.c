/* Following a journal: a writer in one process, a follower in another; what is told, what is missing, who is waited for. */
#define _POSIX_C_SOURCE 200809L
#include "own_journal.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Nothing here takes long: a wait of this length has failed. */
enum { PATIENCE_MS = 60000, STEPS = 200, A_STEP = 25, LATE = 40 };

static void append(rejoin_journal *journal, uint64_t number) {
    rejoin_record_ref record;
    EXPECT(rejoin_journal_append(journal, REJOIN_REGION_STEP, REJOIN_REQUEST_USER_OPAQUE, &number, sizeof number, &record), OK, NULL);
}

static int ended_well(pid_t pid) {
    int status = 1;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* In order, each once, or told as missing: the writer commits steps while the follower reads. */
static void every_number_is_told_once(void) {
    rejoin_journal *journal = create(0);
    rejoin_follower *follower = NULL;
    EXPECT(rejoin_follower_open(name, &follower), OK, NULL);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        rejoin_journal *own = NULL;
        rejoin_record unused = REJOIN_RECORD_INIT;
        EXPECT(rejoin_follower_next(follower, 0, &unused), FORKED, "forked");
        EXPECT(rejoin_follower_close(follower), FORKED, NULL);
        EXPECT(rejoin_journal_open(name, &own), OK, NULL);
        for (uint64_t step = 0; step < STEPS; step++) {
            uint64_t boundary;
            for (uint64_t i = 0; i < A_STEP; i++) append(own, step * A_STEP + i);
            EXPECT(rejoin_journal_step_commit(own, (uint32_t)step, &boundary), OK, NULL);
        }
        append(own, STEPS * A_STEP);
        EXPECT(rejoin_journal_finish(own), OK, NULL);
        EXPECT(rejoin_journal_close(own), OK, NULL);
        _exit(failures != 0);
    }
    uint64_t next = 1, told = 0, missing = 0, last = 0;
    rejoin_record record = REJOIN_RECORD_INIT;
    rejoin_status status;
    while ((status = rejoin_follower_next(follower, PATIENCE_MS, &record)) == REJOIN_STATUS_OK) {
        TRUE(record.sequence == next);
        if (record.outcome == REJOIN_OUTCOME_MISSING) {
            TRUE(record.missing > 0 && record.payload == NULL);
            next += record.missing;
            missing += record.missing;
        } else {
            TRUE(record.outcome == REJOIN_OUTCOME_COMMITTED && record.missing == 0 && record.payload_bytes == sizeof last);
            next++;
            told++;
            memcpy(&last, record.payload, sizeof last);
        }
        if (failures > 0) break;
    }
    EXPECT(status, NOT_FOUND, "ended");
    TRUE(ended_well(pid));
    TRUE(last == STEPS * A_STEP && told + missing == next - 1 && told + missing >= STEPS * A_STEP + 1);
    EXPECT(rejoin_follower_close(follower), OK, NULL);
    EXPECT(rejoin_follower_close(follower), CLOSED, NULL);
    EXPECT(rejoin_follower_next(follower, 0, &record), CLOSED, "closed");
    end(journal);
}

/* A follower that comes back after steps were over and their room was used again. */
static void what_is_over_is_told_as_missing(void) {
    rejoin_journal *journal = create(1);
    rejoin_follower *follower = NULL;
    rejoin_record record = REJOIN_RECORD_INIT;
    uint64_t boundary;
    EXPECT(rejoin_follower_open(name, &follower), OK, NULL);
    for (uint64_t i = 0; i < 3; i++) append(journal, i);
    EXPECT(rejoin_journal_step_commit(journal, 0, &boundary), OK, NULL);
    append(journal, LATE);
    EXPECT(rejoin_follower_next(follower, 0, &record), OK, NULL);
    TRUE(record.outcome == REJOIN_OUTCOME_MISSING && record.sequence == 1 && record.missing == 3);
    EXPECT(rejoin_follower_next(follower, 0, &record), OK, NULL);
    TRUE(record.outcome == REJOIN_OUTCOME_COMMITTED && record.sequence == 4 && record.missing == 0);
    char writer[32];
    snprintf(writer, sizeof writer, "process %d", (int)getpid());
    EXPECT(rejoin_follower_next(follower, 0, &record), TIMEOUT, writer);
    EXPECT(rejoin_follower_next(follower, 30, &record), TIMEOUT, "waited 30 ms");
    /* A caller that was compiled before `missing` was there. */
    struct {
        rejoin_record known;
        uint64_t guard;
    } older = {REJOIN_RECORD_INIT, 7};
    older.known.size = offsetof(rejoin_record, missing);
    older.known.missing = 99;
    append(journal, LATE);
    EXPECT(rejoin_follower_next(follower, PATIENCE_MS, &older.known), OK, NULL);
    TRUE(older.known.sequence == 5 && older.known.missing == 99 && older.guard == 7);
    EXPECT(rejoin_follower_close(follower), OK, NULL);
    end(journal);
    EXPECT(rejoin_follower_open(name, &follower), NOT_FOUND, NULL);
    EXPECT(rejoin_follower_open("README.md", &follower), INVALID_ARGUMENT, NULL);
}

/* A writer that is killed: what it committed is told, and then that nobody will write. */
static void a_killed_writer_ends_the_wait(void) {
    int ready[2];
    char byte;
    if (pipe(ready) != 0) exit(1);
    snprintf(name, sizeof name, "rejoin.%s.r2.0", job);
    pid_t pid = fork();
    if (pid == 0) {
        rejoin_journal *own = create(2);
        append(own, 1);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        pause();
        _exit(1);
    }
    rejoin_follower *follower = NULL;
    rejoin_record record = REJOIN_RECORD_INIT;
    TRUE(read(ready[0], &byte, 1) == 1);
    EXPECT(rejoin_follower_open(name, &follower), OK, NULL);
    EXPECT(rejoin_follower_next(follower, PATIENCE_MS, &record), OK, NULL);
    EXPECT(rejoin_follower_next(follower, 0, &record), TIMEOUT, NULL);
    TRUE(kill(pid, SIGKILL) == 0);
    EXPECT(rejoin_follower_next(follower, UINT64_MAX, &record), NOT_FOUND, "ended");
    int status;
    TRUE(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    EXPECT(rejoin_follower_close(follower), OK, NULL);
    EXPECT(rejoin_journal_remove(name), OK, NULL);
    EXPECT(rejoin_journal_remove(name), NOT_FOUND, NULL);
    close(ready[0]);
    close(ready[1]);
}

static void yield_a_moment(void) {
    const struct timespec moment = {0, 1000000};
    nanosleep(&moment, NULL);
}

/* 'S': it sleeps. */
static int sleeps(pid_t pid) {
    char path[32], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    int known = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *state = strrchr(line, ')');
    return known && state != NULL && state[1] == ' ' && state[2] == 'S';
}

/* A process that waits without a limit can be ended by a signal. */
static void a_blocked_follower_can_be_killed(void) {
    rejoin_journal *journal = create(3);
    int ready[2];
    char byte;
    if (pipe(ready) != 0) exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        rejoin_follower *own = NULL;
        rejoin_record record = REJOIN_RECORD_INIT;
        if (rejoin_follower_open(name, &own) != REJOIN_STATUS_OK || write(ready[1], "x", 1) != 1) _exit(1);
        rejoin_follower_next(own, UINT64_MAX, &record);
        _exit(2);
    }
    TRUE(read(ready[0], &byte, 1) == 1);
    int looks = 0;
    while (!sleeps(pid) && looks++ < PATIENCE_MS) yield_a_moment();
    TRUE(looks < PATIENCE_MS);
    TRUE(kill(pid, SIGTERM) == 0);
    int status;
    TRUE(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    close(ready[0]);
    close(ready[1]);
    end(journal);
}

static void *wait_for_ever(void *argument) {
    rejoin_record record = REJOIN_RECORD_INIT;
    rejoin_status status;
    /* The other thread may be in there for a moment. */
    while ((status = rejoin_follower_next(argument, UINT64_MAX, &record)) == REJOIN_STATUS_WRONG_STATE) yield_a_moment();
    return (void *)(intptr_t)status;
}

/* One thread at a time, and a close ends its wait. */
static void a_close_ends_the_wait_of_another_thread(void) {
    rejoin_journal *journal = create(4);
    rejoin_follower *follower = NULL;
    rejoin_record record = REJOIN_RECORD_INIT;
    pthread_t thread;
    EXPECT(rejoin_follower_open(name, &follower), OK, NULL);
    if (pthread_create(&thread, NULL, wait_for_ever, follower) != 0) exit(1);
    int looks = 0;
    while (rejoin_follower_next(follower, 0, &record) == REJOIN_STATUS_TIMEOUT && looks++ < PATIENCE_MS) yield_a_moment();
    EXPECT(rejoin_follower_next(follower, 0, &record), WRONG_STATE, "another thread");
    EXPECT(rejoin_follower_close(follower), OK, NULL);
    void *found = NULL;
    pthread_join(thread, &found);
    TRUE((rejoin_status)(intptr_t)found == REJOIN_STATUS_CLOSED);
    end(journal);
}

int main(void) {
    snprintf(job, sizeof job, "follow-%d", (int)getpid());
    every_number_is_told_once();
    what_is_over_is_told_as_missing();
    a_killed_writer_ends_the_wait();
    a_blocked_follower_can_be_killed();
    a_close_ends_the_wait_of_another_thread();
    if (failures == 0) printf("ok\n");
    return failures != 0;
}
