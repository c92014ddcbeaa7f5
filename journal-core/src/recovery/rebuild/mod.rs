//! Rebuild: the communicators of the job around the replacements, by strategy.
//!
//! ```text
//! reinit     all: init with a fresh id and the original ranks
//! grow       survivors: shrink │ all: grow            │ all: split by original rank
//! new-rank   survivors: shrink │ InitNewRank/AddNewRank │ all: SetupNewRank, split by original rank
//!                              barrier                barrier
//! ```
//!
//! A stage that fails anywhere fails everywhere (its barrier carries one outcome), and then everybody goes
//! on with *reinit* in the same epoch.

mod grow;
mod new_rank;
mod reinit;

use std::collections::HashMap;

use super::attempt::Attempt;
use super::stage;
use crate::error::Error;
use crate::membership::{Clique, JobStrategy, Rank, Stage};
use crate::nccl::clique::CliqueKey;
use crate::nccl::{CommConfig, Progress, RealCommunicator};

/// Communicators between two stages.
pub(super) type Halfway = HashMap<CliqueKey, RealCommunicator>;

impl Attempt<'_> {
    pub(super) fn rebuild(&mut self) -> Result<(), Error> {
        if self.strategy != JobStrategy::Reinit {
            match self.rebuild_in_stages() {
                Ok(()) => return Ok(()),
                // Only a failed stage of an epoch that stands is answered by reinit.
                Err(error) => {
                    if let Some(moved) = self.moved() {
                        return Err(moved);
                    }
                    if matches!(error, Error::Timeout { .. }) {
                        return Err(error);
                    }
                    tracing::warn!(strategy = self.strategy.as_str(), %error, "falling back to reinit");
                    self.fall_back_to_reinit()?;
                }
            }
        }
        self.reinit(|_| true)?;
        self.barrier(stage::REBUILT, true, &self.all)
    }

    /// What is half-made goes; the strategy of this attempt is reinit from here on.
    fn fall_back_to_reinit(&mut self) -> Result<(), Error> {
        self.strategy = JobStrategy::Reinit;
        self.abort(self.core.take_communicators());
        self.check()
    }

    fn rebuild_in_stages(&mut self) -> Result<(), Error> {
        let cliques = self.membership().cliques()?;
        let shrunk = self.collect(&cliques, |clique| self.shrink(clique));
        let mut shrunk = self.meet(stage::SHRUNK, shrunk)?;
        let grown = match self.strategy {
            JobStrategy::NewRank => self.collect(&cliques, |clique| self.add_new_rank(clique, &mut shrunk)),
            _ => self.collect(&cliques, |clique| self.grow(clique, &mut shrunk)),
        };
        self.abort(shrunk.into_values().collect());
        let mut grown = self.meet(stage::ADDED, grown)?;
        let placed = self.collect(&cliques, |clique| {
            let Some(real) = grown.remove(&CliqueKey(clique.description.key)) else { return Ok(None) };
            let real = if self.strategy == JobStrategy::NewRank { self.set_up_new_rank(clique, real)? } else { real };
            self.place_by_original_rank(clique, real).map(Some)
        });
        self.abort(grown.into_values().collect());
        let reinitialised = match &placed {
            Ok(_) => self.reinit(|clique| self.in_stages(clique).is_none()),
            Err(_) => Ok(()),
        };
        let placed = self.meet(stage::PLACED, reinitialised.and(placed))?;
        for (key, real) in placed {
            if self.membership().options().renumber {
                let index = cliques.iter().find(|c| c.description.key == key.0).map_or(u32::MAX, |c| c.index);
                self.membership().renumber_clique(index, real.user_rank()? as u32)?;
            }
            self.core.install(key, real)?;
        }
        self.barrier(stage::REBUILT, true, &self.all)
    }

    /// Does `step` for each clique of this rank, in the order of the job's table. What was made before an
    /// error is aborted.
    fn collect(
        &self,
        cliques: &[Clique],
        mut step: impl FnMut(&Clique) -> Result<Option<RealCommunicator>, Error>,
    ) -> Result<Halfway, Error> {
        let mut made = Halfway::new();
        for clique in cliques.iter().filter(|c| c.rank_of(self.me).is_some() && self.in_stages(c).is_some()) {
            match step(clique) {
                Ok(real) => made.extend(real.map(|real| (CliqueKey(clique.description.key), real))),
                Err(error) => {
                    self.abort(made.into_values().collect());
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    /// The barrier of a stage; an error of this rank is everybody's.
    fn meet(&self, stage: Stage, made: Result<Halfway, Error>) -> Result<Halfway, Error> {
        let outcome = self.barrier(stage, made.is_ok(), &self.all);
        match (made, outcome) {
            (Ok(made), Ok(())) => Ok(made),
            (Ok(made), Err(error)) => {
                self.abort(made.into_values().collect());
                Err(error)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// The failed members of a clique that can be rebuilt in stages; `None`: by reinit. With no failed
    /// member there is nothing to exclude, with fewer than two survivors nothing to grow; the new-rank
    /// calls add one rank.
    fn in_stages(&self, clique: &Clique) -> Option<Vec<Rank>> {
        let members: Vec<Rank> = clique.members.iter().flatten().copied().collect();
        let (survivors, failed): (Vec<Rank>, Vec<Rank>) = members.into_iter().partition(|r| self.healthy.contains(*r));
        let most = if self.strategy == JobStrategy::NewRank { 1 } else { usize::MAX };
        (survivors.len() >= 2 && !failed.is_empty() && failed.len() <= most).then_some(failed)
    }

    /// Who gives: the lowest healthy member.
    pub(in crate::recovery) fn lowest_survivor(&self, clique: &Clique) -> Option<Rank> {
        clique.members.iter().flatten().copied().filter(|r| self.healthy.contains(*r)).min()
    }

    /// Survivors: the parent without the failed ranks; the parent is released by abort, never by destroy.
    fn shrink(&self, clique: &Clique) -> Result<Option<RealCommunicator>, Error> {
        if !self.healthy.contains(self.me) {
            return Ok(None);
        }
        let key = CliqueKey(clique.description.key);
        let failed = self.in_stages(clique).unwrap_or_default();
        let exclude: Vec<i32> = failed.iter().filter_map(|r| clique.rank_of(*r)).map(|r| r as i32).collect();
        let (_, communicator) = self.core.communicator_of(key).ok_or(Error::NotFound { what: format!("communicator {key}") })?;
        let parent = communicator.lock().take().ok_or(Error::NotFound { what: format!("the parent of communicator {key}") })?;
        let config = CommConfig::from_bytes(&clique.description.config);
        let shrunk = parent
            .shrink(&exclude, false, &config)
            .map_err(Error::from)
            .and_then(|real| self.await_ready(&format!("shrink of communicator {key}"), real));
        self.abort(vec![parent]);
        shrunk.map(Some)
    }

    /// A split by the original rank restores the numbering that shrink and grow have changed; under
    /// `--renumber` the new numbering stays.
    fn place_by_original_rank(&self, clique: &Clique, grown: RealCommunicator) -> Result<RealCommunicator, Error> {
        if self.membership().options().renumber {
            return Ok(grown);
        }
        let key = CliqueKey(clique.description.key);
        let rank = clique.rank_of(self.me).map_or(-1, |r| r as i32);
        let config = CommConfig::from_bytes(&clique.description.config);
        let placed = match grown.split(0, rank, &config) {
            Ok(Some(real)) => self.await_ready(&format!("split of communicator {key}"), real),
            Ok(None) => Err(Error::Mismatch { what: "a split with color 0 gave no communicator".into() }),
            Err(error) => Err(error.into()),
        };
        self.abort(vec![grown]);
        let placed = placed?;
        let found = placed.user_rank()?;
        if found != rank {
            self.abort(vec![placed]);
            return Err(Error::Mismatch { what: format!("rank {found} in communicator {key} after the rebuild, {rank} before") });
        }
        Ok(placed)
    }

    /// Polls a new communicator until it can be used. On an error it is aborted, so that nothing is left
    /// half-made behind.
    pub(super) fn await_ready(&self, what: &str, mut real: RealCommunicator) -> Result<RealCommunicator, Error> {
        let outcome = self.until(what, self.deadline(), || match real.progress() {
            Progress::Ready => Ok(true),
            Progress::InProgress => Ok(false),
            Progress::Failed(error) => Err(error.into()),
        });
        match outcome {
            Ok(()) => Ok(real),
            Err(error) => {
                self.abort(vec![real]);
                Err(error)
            }
        }
    }

    /// Ends what is not needed any more. That it fails, or takes its time, is no reason to stop a rebuild.
    fn abort(&self, communicators: Vec<RealCommunicator>) {
        if let Err(error) = self.core.agent.abort(communicators, self.deadline()) {
            tracing::warn!(%error, "abort in the rebuild");
        }
    }
}
