//! The same transfers packed and sent by torch over gloo, in as many processes: what one would
//! write in Python.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use syncline_layout::{PlanOptions, Schedule, TransferPlan, write_transfers};

use super::model::Case;
use crate::measure::{Figure, figure};
use crate::peers;

/// Larger than what any pair of PEs exchanges: transfers stay whole.
const SLOT_BYTES: u64 = 1 << 40;

/// A Python whose torch has gloo.
pub(crate) struct Gloo {
    python: String,
}

impl Gloo {
    /// What its figures stand beside.
    pub(crate) const NAME: &str = "packed gloo, torch";

    /// `None`, with a word, where there is no such Python.
    pub(crate) fn find() -> Option<Self> {
        let has_gloo = "from torch import distributed; assert distributed.is_gloo_available()";
        let python = peers::python("torch with gloo", has_gloo)?;
        Some(Self { python })
    }

    /// Milliseconds of `rounds` refits of `case`.
    pub(crate) fn measure(&self, case: &Case, rounds: usize) -> Figure {
        let folder = Folder::new();
        write_plan(case, &folder.0);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/gloo.py");
        let mut command = Command::new(&self.python);
        command.arg(script).arg(&folder.0).arg(rounds.to_string());
        // Otherwise it takes the interface of the host's name, which may lead out of the machine or
        // nowhere.
        command.env("GLOO_SOCKET_IFNAME", "lo");
        let output = command.output().expect("it has just been run");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        figure(text.lines().map(|line| line.trim().parse().expect("a number")).collect())
    }
}

/// The layouts and the plan as everybody exchanges them.
fn write_plan(case: &Case, folder: &Path) {
    let (from, to) = case.layouts();
    let plan = TransferPlan::new(&from, &to, &PlanOptions::default()).expect("a plan");
    let schedule = Schedule::new(&plan, SLOT_BYTES).expect("slots of whole lines");
    fs::write(folder.join("from.json"), from.to_json()).expect("room on the disk");
    fs::write(folder.join("to.json"), to.to_json()).expect("room on the disk");
    let file = File::create(folder.join("transfers.json")).expect("room on the disk");
    let mut file = BufWriter::new(file);
    write_transfers(&plan, &schedule, &mut file).expect("room on the disk");
    file.into_inner().expect("room on the disk");
}

/// Where plan and processes meet, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("syncline-gloo-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effort;

    /// The peer compares every element of what it received. Torch takes a second to start: the
    /// first and the last case do.
    #[test]
    fn it_moves_large_and_small_tensors() {
        let Some(gloo) = Gloo::find() else { return };
        let mut cases = Case::all(Effort::Smoke);
        for case in [cases.remove(0), cases.remove(cases.len() - 1)] {
            assert!(gloo.measure(&case, 1).median > 0.0, "{}", case.describe());
        }
    }
}
