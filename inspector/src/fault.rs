//! `RANK@STEP[+MICROSECONDS]` or `RANK@STEP+go|again`: where a fault is to happen, and how ranks are told.

use std::fmt;
use std::str::FromStr;

/// A place in a job at which a rank hurts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPoint {
    /// The rank.
    pub rank: u32,
    /// The step whose all-reduce it happens in.
    pub step: u32,
    /// When in it.
    pub moment: Moment,
}

/// A moment in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Microseconds after the all-reduce was issued.
    Reducing(u64),
    /// After the decision about the step, before the rank's commit.
    Decided,
    /// Right after the all-reduce was issued, and again in the replacement when its state is to be restored.
    Again,
}

/// Why a fault point was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not RANK@STEP, RANK@STEP+MICROSECONDS or RANK@STEP+go, for example 2@100 or 2@100+300")]
pub struct FaultPointError(String);

impl FromStr for FaultPoint {
    type Err = FaultPointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (rank, rest) = text.split_once('@')?;
            let (step, delay) = rest.split_once('+').unwrap_or((rest, "0"));
            let moment = |text: &str| match text {
                "go" => Some(Moment::Decided),
                "again" => Some(Moment::Again),
                _ => text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok().map(Moment::Reducing)).flatten(),
            };
            let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then_some(());
            digits(rank).and(digits(step))?;
            Some(Self { rank: rank.parse().ok()?, step: step.parse().ok()?, moment: moment(delay)? })
        };
        parse().ok_or_else(|| FaultPointError(text.to_owned()))
    }
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.rank, self.step)?;
        match self.moment {
            Moment::Reducing(0) => Ok(()),
            Moment::Reducing(us) => write!(f, "+{us}"),
            Moment::Decided => f.write_str("+go"),
            Moment::Again => f.write_str("+again"),
        }
    }
}

/// The value of `REJOIN_FAULT`: `kill:R@S+us` and `fail-device:R@S`, separated by `;`.
pub fn to_environment(kills: &[FaultPoint], failed_devices: &[FaultPoint]) -> String {
    let kills = kills.iter().map(|kill| match kill.moment {
        Moment::Again => format!("kill:{0}@{1};kill-at-setup-done:{0}@1", kill.rank, kill.step),
        _ => format!("kill:{kill}"),
    });
    let devices = failed_devices.iter().map(|fault| match fault.moment {
        Moment::Decided => format!("fail-device:{fault}"),
        Moment::Reducing(_) | Moment::Again => format!("fail-device:{}@{}", fault.rank, fault.step),
    });
    kills.chain(devices).collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_point_is_read_and_printed_alike() {
        for text in ["2@100", "0@0", "7@60+300", "1@5+go", "1@5+again"] {
            assert_eq!(text.parse::<FaultPoint>().expect(text).to_string(), text);
        }
        assert_eq!("2@100+300".parse(), Ok(FaultPoint { rank: 2, step: 100, moment: Moment::Reducing(300) }));
    }

    #[test]
    fn a_malformed_fault_point_is_refused_with_an_example() {
        for text in ["", "2", "@", "2@", "@3", "-1@3", "+1@3", "2@x", "2@3+", "2@3+-1", "2@3+1+2", "99999999999@1", " 2@3"] {
            let error = text.parse::<FaultPoint>().expect_err(text);
            assert!(error.to_string().contains("2@100+300"), "{error}");
        }
    }

    #[test]
    fn ranks_get_every_fault_in_one_variable() {
        let kills = ["0@50".parse().expect("valid"), "3@120+7".parse().expect("valid")];
        assert_eq!(to_environment(&kills, &kills[..1]), "kill:0@50;kill:3@120+7;fail-device:0@50");
    }
}
