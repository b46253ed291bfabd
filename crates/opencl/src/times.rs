//! When commands ran, from the driver's clock to the host's.

use std::time::{Duration, Instant};

use opencl3::event::{
    CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START,
    get_event_profiling_info,
};
use syncline_device::CommandTime;

use crate::api::Event;

/// The events of one hand-over to the driver, and when it was made.
///
/// Drivers tell when a command was enqueued by the same clock as when it ran. We know the former in
/// the host's time, so that no two clocks need to be compared, and none can drift.
pub(crate) struct Noted {
    /// When the first of the commands was enqueued.
    pub(crate) handed: Instant,
    /// By number of the command; several in a row may have the same.
    pub(crate) events: Vec<(u32, Event)>,
}

impl Noted {
    /// Appends when the commands of the batch of `value` ran. What the driver does not tell is left
    /// out.
    pub(crate) fn read(&self, value: u64, times: &mut Vec<CommandTime>) {
        let ask = |event: &Event, what| -> Option<u64> {
            Some(get_event_profiling_info(event.0, what).ok()?.into())
        };
        let first = self.events.first();
        let Some(queued) = first.and_then(|(_, event)| ask(event, CL_PROFILING_COMMAND_QUEUED))
        else {
            return;
        };
        let host = |at: u64| self.handed + Duration::from_nanos(at.saturating_sub(queued));
        let before = times.len();
        for (command, event) in &self.events {
            let began = ask(event, CL_PROFILING_COMMAND_START).map(host);
            let ended = ask(event, CL_PROFILING_COMMAND_END).map(host);
            let (Some(began), Some(ended)) = (began, ended) else { continue };
            match times[before..].last_mut() {
                // A command that came to several of the driver's ends with the last of them.
                Some(last) if last.command == *command => last.ended = ended,
                _ => times.push(CommandTime { value, command: *command, began, ended }),
            }
        }
    }
}
