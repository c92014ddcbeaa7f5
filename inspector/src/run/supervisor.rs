//! What follows from the exit of a rank: a pure decision, so that every case can be tested without processes.

use super::evidence::Exit;
use journal_core::error::EndReason;
use std::collections::HashMap;

/// How far the members segment says that the job and the rank were, read after the exit was proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The rank has finalized.
    pub left: bool,
    /// This incarnation has opened a session.
    pub joined: bool,
    /// Every rank has passed `setup_done` once.
    pub setup_complete: bool,
    /// Why the ranks have ended the job, if they have.
    pub ended: Option<EndReason>,
    /// The open step.
    pub step: u32,
}

/// What the launcher does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The rank is done.
    Finished,
    /// Start the next incarnation of this rank.
    Replace,
    /// End all ranks and start the job anew.
    RestartJob,
    /// End the job.
    End {
        /// For the segment and the exit code.
        reason: EndReason,
        /// For the operator.
        text: String,
    },
}

/// Counts deaths and remembers where each rank died last.
#[derive(Debug)]
pub struct Supervisor {
    max_recoveries: u32,
    deaths: u32,
    last_place: HashMap<u32, Place>,
}

/// Where a rank died. Set-up counts as one place, since the job starts anew from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    SetUp,
    Step(u32),
}

impl Supervisor {
    /// Gives the job up at the death after `max_recoveries`.
    pub fn create(max_recoveries: u32) -> Self {
        Self { max_recoveries, deaths: 0, last_place: HashMap::new() }
    }

    /// Decides at the notice of a death, before the exit is known, whether `rank` is replaced at once; then the death
    /// is counted, and its exit is not to be judged. Whatever depends on the exit, or ends the job, waits for it.
    pub fn replaces_at_once(&mut self, rank: u32, standing: Standing) -> bool {
        let place = Place::Step(standing.step);
        let is_plain = standing.joined && standing.setup_complete && !standing.left && standing.ended.is_none();
        let replaces = is_plain && self.deaths < self.max_recoveries && self.last_place.get(&rank) != Some(&place);
        if replaces {
            self.deaths += 1;
            self.last_place.insert(rank, place);
        }
        replaces
    }

    /// Decides what follows from the exit of `rank`.
    pub fn judge(&mut self, rank: u32, exit: Exit, standing: Standing) -> Verdict {
        if standing.left {
            return Verdict::Finished;
        }
        match standing.ended {
            // It died on its way out, with nothing left to do.
            Some(EndReason::Finished) => return Verdict::Finished,
            // The others gave the set-up up because of a death: this may be that death, or one of them.
            Some(EndReason::SetUpFailed) | None => {}
            Some(reason) => return Verdict::End { reason, text: reason.to_string() },
        }
        let is_consequence = standing.ended.is_some() && matches!(exit, Exit::Code(_));
        if !standing.joined && exit == Exit::Code(0) {
            let text = format!(
                "rank {rank} exited with code 0 before it opened a session: the program does not use Rejoin, \
                 or its arguments made it return early"
            );
            return Verdict::End { reason: EndReason::SetUpFailed, text };
        }
        self.deaths += 1;
        let place = if standing.setup_complete { Place::Step(standing.step) } else { Place::SetUp };
        let again = !is_consequence && self.last_place.insert(rank, place) == Some(place);
        if self.deaths > self.max_recoveries {
            let text = format!("{} deaths, and --max-recoveries is {}", self.deaths, self.max_recoveries);
            return Verdict::End { reason: EndReason::TooManyRecoveries, text };
        }
        match place {
            _ if again => {
                let place = match place {
                    Place::SetUp => "before set-up was complete".to_owned(),
                    Place::Step(step) => format!("in step {step}"),
                };
                let text = format!("rank {rank} died twice {place}; another try would end the same way");
                Verdict::End { reason: EndReason::SameStepTwice, text }
            }
            Place::SetUp => Verdict::RestartJob,
            Place::Step(_) => Verdict::Replace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: Exit = Exit::Signal(9);
    const IN_STEP: Standing = Standing { left: false, joined: true, setup_complete: true, ended: None, step: 100 };

    fn end(verdict: Verdict) -> Option<EndReason> {
        match verdict {
            Verdict::End { reason, .. } => Some(reason),
            _ => None,
        }
    }

    #[test]
    fn a_rank_that_finalized_is_done_whatever_its_code() {
        let mut supervisor = Supervisor::create(8);
        let left = Standing { left: true, ..IN_STEP };
        assert_eq!(supervisor.judge(0, Exit::Code(0), left), Verdict::Finished);
        assert_eq!(supervisor.judge(1, Exit::Code(3), left), Verdict::Finished);
        assert_eq!(supervisor.deaths, 0);
    }

    #[test]
    fn a_death_that_is_known_before_its_exit_counts_the_same() {
        // Every history of three deaths of two ranks in two steps: the early decision is the later one's, or is left to it.
        for history in 0..64u32 {
            let (mut early, mut late) = (Supervisor::create(2), Supervisor::create(2));
            for death in 0..3 {
                let (rank, step) = (history >> (2 * death) & 1, history >> (2 * death + 1) & 1);
                let standing = Standing { step, ..IN_STEP };
                let verdict = late.judge(rank, KILLED, standing);
                let at_once = early.replaces_at_once(rank, standing);
                assert_eq!(at_once, verdict == Verdict::Replace, "{history:#b}, death {death}");
                if !at_once {
                    assert_eq!(early.judge(rank, KILLED, standing), verdict, "{history:#b}, death {death}");
                    break;
                }
                assert_eq!((early.deaths, &early.last_place), (late.deaths, &late.last_place));
            }
        }
    }

    #[test]
    fn what_depends_on_the_exit_or_ends_the_job_waits_for_the_exit() {
        let mut supervisor = Supervisor::create(8);
        for standing in [
            Standing { left: true, ..IN_STEP },
            Standing { joined: false, ..IN_STEP },
            Standing { setup_complete: false, ..IN_STEP },
            Standing { ended: Some(EndReason::StateLost), ..IN_STEP },
            Standing { ended: Some(EndReason::Finished), ..IN_STEP },
        ] {
            assert!(!supervisor.replaces_at_once(0, standing), "{standing:?}");
        }
        assert_eq!(supervisor.deaths, 0, "nothing was counted");
    }

    #[test]
    fn exit_without_finalize_is_a_death() {
        assert_eq!(Supervisor::create(8).judge(0, Exit::Code(0), IN_STEP), Verdict::Replace);
    }

    #[test]
    fn a_death_before_set_up_is_complete_restarts_the_job() {
        let early = Standing { setup_complete: false, step: 0, ..IN_STEP };
        assert_eq!(Supervisor::create(8).judge(1, KILLED, early), Verdict::RestartJob);
        let never_joined = Standing { joined: false, ..early };
        assert_eq!(Supervisor::create(8).judge(1, KILLED, never_joined), Verdict::RestartJob);
    }

    #[test]
    fn the_same_rank_twice_in_a_step_ends_the_job() {
        let mut supervisor = Supervisor::create(8);
        assert_eq!(supervisor.judge(2, KILLED, IN_STEP), Verdict::Replace);
        assert_eq!(supervisor.judge(3, KILLED, IN_STEP), Verdict::Replace);
        let verdict = supervisor.judge(2, KILLED, IN_STEP);
        assert!(matches!(&verdict, Verdict::End { text, .. } if text.contains("rank 2") && text.contains("step 100")));
        assert_eq!(end(verdict), Some(EndReason::SameStepTwice));
    }

    #[test]
    fn the_same_rank_in_another_step_is_replaced_again() {
        let mut supervisor = Supervisor::create(8);
        assert_eq!(supervisor.judge(2, KILLED, IN_STEP), Verdict::Replace);
        assert_eq!(supervisor.judge(2, KILLED, Standing { step: 101, ..IN_STEP }), Verdict::Replace);
        assert_eq!(supervisor.judge(2, KILLED, IN_STEP), Verdict::Replace);
    }

    #[test]
    fn a_program_that_always_dies_in_set_up_is_given_up_after_two_tries_of_a_rank() {
        let mut supervisor = Supervisor::create(8);
        let early = Standing { setup_complete: false, joined: false, ..IN_STEP };
        assert_eq!(supervisor.judge(0, Exit::Code(1), early), Verdict::RestartJob);
        assert_eq!(end(supervisor.judge(0, Exit::Code(1), early)), Some(EndReason::SameStepTwice));
    }

    #[test]
    fn ranks_that_leave_a_failed_set_up_are_not_blamed_for_it() {
        let mut supervisor = Supervisor::create(8);
        let given_up = Standing { setup_complete: false, ended: Some(EndReason::SetUpFailed), ..IN_STEP };
        for _ in 0..2 {
            assert_eq!(supervisor.judge(0, Exit::Code(1), given_up), Verdict::RestartJob);
        }
        assert_eq!(supervisor.judge(1, KILLED, given_up), Verdict::RestartJob);
        assert_eq!(end(supervisor.judge(1, KILLED, given_up)), Some(EndReason::SameStepTwice));
    }

    #[test]
    fn deaths_beyond_the_limit_give_up() {
        let mut supervisor = Supervisor::create(2);
        for step in 0..2 {
            assert_eq!(supervisor.judge(step, KILLED, Standing { step, ..IN_STEP }), Verdict::Replace);
        }
        assert_eq!(end(supervisor.judge(0, KILLED, IN_STEP)), Some(EndReason::TooManyRecoveries));
        assert_eq!(end(Supervisor::create(0).judge(0, KILLED, IN_STEP)), Some(EndReason::TooManyRecoveries));
    }

    #[test]
    fn a_program_that_never_opened_a_session_is_named_at_once() {
        let stranger = Standing { joined: false, setup_complete: false, ..IN_STEP };
        assert_eq!(end(Supervisor::create(8).judge(0, Exit::Code(0), stranger)), Some(EndReason::SetUpFailed));
    }

    #[test]
    fn a_job_ended_by_its_ranks_is_not_continued() {
        let ended = |reason| Standing { ended: Some(reason), ..IN_STEP };
        let judge = |reason| Supervisor::create(8).judge(0, Exit::Code(1), ended(reason));
        assert_eq!(end(judge(EndReason::StateLost)), Some(EndReason::StateLost));
        assert_eq!(judge(EndReason::Finished), Verdict::Finished);
    }
}
