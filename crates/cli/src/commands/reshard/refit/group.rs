//! The group that `--group` names.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use syncline::transport::Transport;
use syncline_group::{GroupOptions, Token, join_group};

use crate::outcome::Failure;

/// The most bytes of a token.
const TOKEN_MAX: u64 = 64 << 10;

/// Arguments that make this process one PE of a group.
#[derive(Args)]
pub(super) struct GroupArgs {
    /// Join a group as one PE: tcp://HOST:PORT/NAME, shm:NAME or mpi:; without a value, the group
    /// of torchrun's variables.
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["transport", "pes"]
    )]
    group: Option<String>,
    /// This process in the group.
    #[arg(long, value_name = "R", requires = "group")]
    rank: Option<usize>,
    /// Processes of the group.
    #[arg(long, value_name = "N", requires = "group")]
    size: Option<usize>,
    /// File with the token that members of a group over TCP share.
    #[arg(long, value_name = "FILE", requires = "group")]
    token_file: Option<PathBuf>,
}

impl GroupArgs {
    /// How its PEs reach each other.
    pub(super) fn name(&self) -> &str {
        match self.group.as_deref().and_then(|address| address.split_once(':')) {
            Some((transport, _)) => transport,
            None => "tcp",
        }
    }

    /// Joins the group, if one is asked for.
    pub(super) fn join(
        &self,
        (depth, slot_bytes): (usize, usize),
        timeout_s: u64,
    ) -> Result<Option<Box<dyn Transport>>, Failure> {
        let Some(address) = &self.group else { return Ok(None) };
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let options = GroupOptions {
            rank: self.rank,
            size: self.size,
            depth: Some(depth),
            slot_bytes: Some(slot_bytes),
            token: token.unwrap_or_default(),
            timeout: Duration::from_secs(timeout_s),
        };
        let address = Some(address.as_str()).filter(|address| !address.is_empty());
        let joined = join_group(address, &options);
        joined.map(Some).map_err(|error| Failure::Usage(error.to_string()))
    }
}

/// Reads a token, without the end of its last line.
fn read_token(path: &Path) -> Result<Token, Failure> {
    let refuse = |problem: &str| Failure::Usage(format!("{}: {problem}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(TOKEN_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| refuse(&error.to_string()))?;
    let token = bytes.trim_ascii_end();
    match token.len() as u64 {
        0 => Err(refuse("a token has at least one byte")),
        1..=TOKEN_MAX => Ok(Token::new(token)),
        _ => Err(refuse("a token has at most 64 KiB")),
    }
}
