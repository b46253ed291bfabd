//! How this program is started again: for commands whose parts are processes of their own.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::OnceLock;

static STARTED_AS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says which command starts this program, where that is not its executable: a Python module is
/// started by its interpreter. The first call counts; an empty command says nothing.
pub fn set_this_program(command: Vec<OsString>) {
    if !command.is_empty() {
        // A second call comes from the same program.
        let _ = STARTED_AS.set(command);
    }
}

/// Returns the command that starts this program, without arguments for it.
pub fn this_program() -> io::Result<Command> {
    let Some([program, arguments @ ..]) = STARTED_AS.get().map(Vec::as_slice) else {
        return Ok(Command::new(std::env::current_exe()?));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}
