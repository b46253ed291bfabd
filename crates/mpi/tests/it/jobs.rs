//! Jobs: this test binary started as ranks.
//!
//! Nothing here waits without a limit, and a job is killed when its test ends, however it ends.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use syncline_mpi::RankLauncher;
use syncline_testing::need;

pub const SCENARIO: &str = "SYNCLINE_TEST_MPI";
pub const LIMIT: Duration = Duration::from_secs(180);

/// A job that does not outlive its test.
pub struct Job(pub Child);

impl Drop for Job {
    fn drop(&mut self) {
        // The launcher passes a polite signal on to its ranks, wherever they are; a kill it could
        // not.
        let pid = self.0.id().to_string();
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("kill").args(["-TERM", &pid]).status();
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(5) {
                if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns what starts ranks, or `None` where the test is to be skipped.
pub fn launcher() -> Option<RankLauncher> {
    need("mpirun", RankLauncher::find().ok_or("install openmpi-bin or mpich"))
}

/// The start of a command line for `ranks` ranks of this host.
pub fn on_one_host(launcher: &RankLauncher, ranks: usize) -> Command {
    let mut command = launcher.command(ranks);
    if launcher.is_open_mpi() {
        command.args(["--mca", "mpi_yield_when_idle", "1"]);
    }
    command
}

/// Starts this binary as the ranks of `command`, told `scenario`.
pub fn start(mut command: Command, scenario: &str) -> Job {
    command
        .arg(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "ranks::one_rank_of_a_job", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, scenario)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Job(command.spawn().expect("the launcher was found before"))
}

/// What a job said in the end: whether it went well, standard output, standard error.
pub struct Said {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Waits for the end of a job; panics if it does not come.
pub fn wait(mut job: Job, limit: Duration) -> Said {
    let read = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            text
        })
    };
    let stdout = job.0.stdout.take().map(|pipe| read(Box::new(pipe)));
    let stderr = job.0.stderr.take().map(|pipe| read(Box::new(pipe)));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = job.0.try_wait().expect("a child can be asked") {
            break Some(status);
        }
        if started.elapsed() > limit {
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    drop(job);
    let text = |pipe: Option<std::thread::JoinHandle<String>>| {
        pipe.map(|pipe| pipe.join().unwrap_or_default()).unwrap_or_default()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    let Some(status) = status else {
        panic!("the job is still running after {limit:?}\n{stdout}\n{stderr}")
    };
    Said { success: status.success(), stdout, stderr }
}

/// Runs a job to its end; every rank must say that all went well.
#[track_caller]
pub fn check(command: Command, ranks: usize, scenario: &str) -> Said {
    let said = wait(start(command, scenario), LIMIT);
    let ended = said.stdout.matches("RESULT done").count();
    assert!(
        said.success && ended == ranks,
        "{scenario} on {ranks} ranks: {ended} ended well\n{}\n{}",
        said.stdout,
        said.stderr
    );
    said
}
