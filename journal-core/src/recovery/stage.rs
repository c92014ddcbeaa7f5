//! Numbers of the barriers of an epoch.

use crate::membership::Stage;

/// All ranks are at `setup_done`.
pub(crate) const SET_UP: Stage = Stage(0);
/// Survivors have aborted their communicators.
pub(crate) const QUIESCED: Stage = Stage(1);
/// Survivors have shrunk their communicators (strategies grow and new-rank, as the two that follow).
pub(crate) const SHRUNK: Stage = Stage(7);
/// The replacements are in.
pub(crate) const ADDED: Stage = Stage(8);
/// Ranks are numbered as before.
pub(crate) const PLACED: Stage = Stage(9);
/// All ranks have their communicators.
pub(crate) const REBUILT: Stage = Stage(2);
/// All state is where it belongs.
pub(crate) const RESTORED: Stage = Stage(3);
/// Every rank that is inside the step can replay it (policy replay).
pub(crate) const REPLAYABLE: Stage = Stage(10);
/// Replicas and fingerprints are the same.
pub(crate) const VERIFIED: Stage = Stage(4);
/// The step may open.
pub(crate) const RESUME: Stage = Stage(5);
/// All ranks are at `finalize`.
pub(crate) const FINALIZE: Stage = Stage(6);
