//! Where a group meets, and as what this process joins it.

use std::env;
use std::time::Duration;

use pyo3::prelude::*;
use syncline::device::CancelToken;
use syncline::reshard::{CopyService, ServiceOptions};
use syncline_group::{GroupOptions, Token, join_group_until};

use crate::errors::{GroupError, Raise};

/// What a process says when it joins a group.
pub(crate) struct Address {
    address: Option<String>,
    rank: Option<usize>,
    size: Option<usize>,
    token: Option<String>,
}

fn number(name: &str) -> PyResult<Option<usize>> {
    let Ok(text) = env::var(name) else { return Ok(None) };
    let wrong =
        |_| GroupError::new_err(format!("the variable {name} is `{text}`: expected a number"));
    text.parse().map(Some).map_err(wrong)
}

impl Address {
    /// Finds out where to meet: torchrun's variables stand in for absent arguments.
    pub(crate) fn find(
        address: Option<String>,
        rank: Option<usize>,
        size: Option<usize>,
        token: Option<String>,
    ) -> PyResult<Self> {
        if address.as_deref().is_some_and(|address| address.starts_with("mpi:")) {
            return Self { address, rank, size, token }.checked();
        }
        let rank = rank.map_or_else(|| number("RANK"), |rank| Ok(Some(rank)))?;
        let size = size.map_or_else(|| number("WORLD_SIZE"), |size| Ok(Some(size)))?;
        let address = match address {
            None if size.is_some() && number("LOCAL_WORLD_SIZE")? == size => on_one_host()?,
            other => other,
        };
        Self { address, rank, size, token }.checked()
    }

    /// Refuses a token where nothing would ask for it.
    fn checked(self) -> PyResult<Self> {
        let is_tcp = self.address.as_deref().is_none_or(|address| address.starts_with("tcp:"));
        match self.token.is_some() && !is_tcp {
            true => Err(GroupError::new_err(
                "token: only groups at tcp:// addresses take one; leave it out",
            )),
            false => Ok(self),
        }
    }

    /// Joins the group there.
    pub(crate) fn join(
        self,
        options: ServiceOptions,
        timeout: Duration,
        cancel: &CancelToken,
    ) -> PyResult<CopyService> {
        let Self { address, rank, size, token } = self;
        let token = token.map(Token::new).unwrap_or_default();
        let group = GroupOptions { rank, size, timeout, token, ..GroupOptions::default() };
        let transport = join_group_until(address.as_deref(), &group, cancel).or_group()?;
        Ok(CopyService::of(transport, options))
    }
}

/// The group of the processes that torchrun has started, all of them on this machine.
fn on_one_host() -> PyResult<Option<String>> {
    let Ok(port) = env::var("MASTER_PORT") else { return Ok(None) };
    let plain = |name: &str| -> String {
        let text = env::var(name).unwrap_or_default();
        text.chars().filter(char::is_ascii_alphanumeric).take(64).collect()
    };
    let (run, restart) = (plain("TORCHELASTIC_RUN_ID"), plain("TORCHELASTIC_RESTART_COUNT"));
    Ok(Some(format!("shm:torchrun-{port}-{run}-{restart}")))
}
