//! What a launcher says in the environment: `torchrun`'s variables.

use super::GroupAddress;

/// This process's place in a job, as `torchrun` and its relatives say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Where the group meets: at `MASTER_ADDR`, one port above `MASTER_PORT`.
    pub address: GroupAddress,
    /// `RANK`.
    pub rank: usize,
    /// `WORLD_SIZE`.
    pub size: usize,
}

/// A variable of the launcher that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no address of a group is given, and {variable} {problem}: give one, or start this program by torchrun"
)]
pub struct LaunchedError {
    variable: &'static str,
    problem: &'static str,
}

impl Launched {
    /// Reads `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`.
    ///
    /// `torch.distributed` itself listens at `MASTER_PORT`, so the group meets one port above;
    /// `SYNCLINE_PORT` names another. `TORCHELASTIC_RUN_ID` and `TORCHELASTIC_RESTART_COUNT`, where
    /// they are set, are part of the group's name: processes of a job that was restarted do not
    /// meet those of before.
    pub fn from_env() -> Result<Self, LaunchedError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, LaunchedError> {
        let need =
            |variable| get(variable).ok_or(LaunchedError { variable, problem: "is not set" });
        let number = |variable: &'static str, text: String, most: usize| {
            let number = text.parse().ok().filter(|number| *number <= most);
            number.ok_or(LaunchedError { variable, problem: "is no number that fits" })
        };
        let host = need("MASTER_ADDR")?;
        let port = match get("SYNCLINE_PORT") {
            Some(text) => number("SYNCLINE_PORT", text, 65_535)?,
            None => number("MASTER_PORT", need("MASTER_PORT")?, 65_534)? + 1,
        };
        let rank = number("RANK", need("RANK")?, usize::MAX)?;
        let size = number("WORLD_SIZE", need("WORLD_SIZE")?, usize::MAX)?;
        let run = get("TORCHELASTIC_RUN_ID").unwrap_or_default();
        let restart = get("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
        let is_sound = |char: &char| char.is_ascii_alphanumeric();
        let run: String = run.chars().filter(is_sound).take(100).collect();
        let restart: String = restart.chars().filter(is_sound).take(20).collect();
        let name = format!("torchrun-{run}-{restart}");
        let address = GroupAddress::Tcp { host, port: port as u16, name };
        Ok(Self { address, rank, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Launched, LaunchedError> {
        Launched::from_variables(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    const ALL: [(&str, &str); 4] =
        [("MASTER_ADDR", "h"), ("MASTER_PORT", "29500"), ("RANK", "3"), ("WORLD_SIZE", "8")];

    #[test]
    fn variables_of_torchrun_are_an_address() {
        let launched = read(&ALL).unwrap();
        assert_eq!((launched.rank, launched.size), (3, 8));
        assert_eq!(launched.address.to_string(), "tcp://h:29501/torchrun--");
        let more = [("SYNCLINE_PORT", "7"), ("TORCHELASTIC_RUN_ID", "a/b")];
        let launched = read(&[&ALL[..], &more].concat()).unwrap();
        assert_eq!(launched.address.to_string(), "tcp://h:7/torchrun-ab-");
    }

    #[test]
    fn a_variable_that_is_missing_or_no_number_is_named() {
        for at in 0..ALL.len() {
            let mut some = ALL.to_vec();
            let (name, _) = some.remove(at);
            let error = read(&some).unwrap_err().to_string();
            assert!(error.contains(&format!("{name} is not set")), "{error}");
            if at > 0 {
                some.push((name, "x"));
                let error = read(&some).unwrap_err().to_string();
                assert!(error.contains(&format!("{name} is no number")), "{error}");
            }
        }
        let error = read(&[ALL[0], ("MASTER_PORT", "65535"), ALL[2], ALL[3]]).unwrap_err();
        assert!(error.to_string().contains("MASTER_PORT is no number"), "{error}");
    }
}
