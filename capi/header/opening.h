/*
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
