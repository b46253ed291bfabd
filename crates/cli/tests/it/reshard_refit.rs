//! `reshard refit`: a made-up model between processes and between threads.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Run, command, directory, finished, run, write_text};

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

fn mesh(axes: &str, dim: usize) -> String {
    format!(
        r#"
[mesh]
axes = {axes}

[[tensor]]
match = "layers.*.w"
shard = [{{dim = {dim}, axis = "tp"}}]

[[weight]]
name = "layers.{{0..3}}.w"
dtype = "bf16"
shape = [24, 40]

[[weight]]
name = "scale"
dtype = "f32"
shape = []
"#
    )
}

#[test]
fn every_element_arrives_over_every_transport() {
    let folder = directory("reshard_refit");
    let from = write_text(&folder, "a.toml", &mesh(r#"[["tp", 4]]"#, 0));
    let to = write_text(&folder, "b.toml", &mesh(r#"[["tp", 2], ["dp", 2]]"#, 1));
    for transport in ["local", "shm"] {
        let base = ["reshard", "refit", "--from", &from, "--to", &to, "--transport", transport];
        let text = run(&[&base[..], &["--repeat", "2"]].concat()).success();
        assert!(text.contains("every element is right"), "{text}");
        let args = [&base[..], &["--json", "--checksums", "--slot-bytes", "128"]].concat();
        let result: Value = serde_json::from_str(&run(&args).success()).unwrap();
        assert_eq!((result["pes"].as_u64(), result["wrong_tensors"].as_u64()), (Some(4), Some(0)));
        // Twice the model, and the scale on every PE.
        let expected = 2 * 4 * 24 * 40 * 2 + 4 * 4;
        assert_eq!(result["bytes_total"].as_u64(), Some(expected));
    }
}

#[test]
fn the_page_of_a_refit_shows_pes_messages_and_waits() {
    let folder = directory("reshard_refit_page");
    let from = write_text(&folder, "a.toml", &mesh(r#"[["tp", 4]]"#, 0));
    let to = write_text(&folder, "b.toml", &mesh(r#"[["tp", 2], ["dp", 2]]"#, 1));
    let file = folder.join("refit.html");
    let page = file.to_str().expect("a plain path");
    for transport in ["local", "shm"] {
        let base = ["reshard", "refit", "--from", &from, "--to", &to, "--transport", transport];
        let json = run(&[&base[..], &["--json", "--report", page]].concat()).success();
        let result: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&result["format"], &result["version"]),
            (&Value::from("syncline-refit"), &Value::from(1))
        );
        let text = fs::read_to_string(&file).unwrap();
        let (_, rest) = text.split_once("id=\"data\">").unwrap();
        let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
        let refit = &data["runs"][0];
        let lanes = refit["lanes"].as_array().unwrap();
        let devices: Vec<&str> = lanes.iter().filter_map(|lane| lane["device"].as_str()).collect();
        assert_eq!(devices, ["PE 0", "PE 1", "PE 2", "PE 3"], "{transport}");
        // What left each PE for another adds up to what the plan moves.
        let ops = &refit["ops"];
        let strings = refit["strings"].as_array().unwrap();
        let all = ops["name"].as_array().unwrap().iter().zip(ops["bytes"].as_array().unwrap());
        let left: u64 = all
            .filter(|(name, _)| {
                let name = strings[name.as_u64().unwrap() as usize].as_str().unwrap();
                ["pack and send", "place"].contains(&name)
            })
            .map(|(_, bytes)| bytes.as_u64().unwrap())
            .sum();
        let moved = result["bytes_moved"].as_u64().unwrap();
        assert!(left >= moved, "{transport}: {left} of {moved}");
        let facts = refit["facts"].to_string();
        assert!(facts.contains("link PE 0 -> PE ") && facts.contains("waited for"), "{facts}");
    }
}

/// Starts a process for each rank of a group, with the token file of each.
fn by_group(group: &str, layouts: [&str; 2], tokens: &[&str], timeout: &str) -> Vec<Run> {
    let size = tokens.len().to_string();
    let start = |(rank, token): (usize, &&str)| {
        let (rank, [from, to]) = (rank.to_string(), layouts);
        let start = ["reshard", "refit", "--from", from, "--to", to, "--group", group];
        let rest = ["--rank", &rank, "--size", &size, "--token-file", token, "--timeout", timeout];
        let mut command = command(&[&start[..], &rest].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<Child> = tokens.iter().enumerate().map(start).collect();
    processes.into_iter().map(|process| finished(process.wait_with_output().unwrap())).collect()
}

#[test]
fn processes_that_know_an_address_refit_and_one_with_another_token_does_not() {
    let folder = directory("reshard_refit_group");
    let from = write_text(&folder, "a.toml", &mesh(r#"[["tp", 3]]"#, 0));
    let to = write_text(&folder, "b.toml", &mesh(r#"[["tp", 2]]"#, 1));
    let token = write_text(&folder, "token", "secret\n");
    let other = write_text(&folder, "other", "Secret\n");
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let group = format!("tcp://127.0.0.1:{}/policy", free());
    let runs = by_group(&group, [&from, &to], &[&token, &token, &token], "60");
    let mut texts = runs.into_iter().map(Run::success);
    let text = texts.next().unwrap();
    assert!(text.contains("3 PEs over tcp") && text.contains("every element is right"), "{text}");
    assert!(texts.all(|text| text.is_empty()));
    let group = format!("tcp://127.0.0.1:{}/policy", free());
    // Which of the two listens first is open: the other is refused, and it waits in vain.
    let runs = by_group(&group, [&from, &to], &[&token, &other], "3");
    let errors: Vec<String> = runs.into_iter().map(Run::refusal).collect();
    let is_refused = |error: &String| error.contains("another token than the group");
    assert!(errors.iter().any(is_refused), "{errors:?}");
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let folder = directory("reshard_refit_no_group");
    let from = write_text(&folder, "a.toml", &mesh(r#"[["tp", 2]]"#, 0));
    let empty = write_text(&folder, "empty", "\n");
    let base = ["reshard", "refit", "--from", &from, "--to", &from];
    for (args, says) in [
        (&["--group", "udp://a:1/b", "--rank", "0", "--size", "2"][..], "no address of a group"),
        (&["--group", "shm:a"], "needs a rank and a size"),
        (&["--group"], "MASTER_ADDR is not set"),
        (&["--group", "shm:a", "--token-file", &empty], "at least one byte"),
        (&["--group", "shm:lonely", "--rank", "0", "--size", "1"], "pass --size 2"),
    ] {
        let mut command = command(&[&base[..], args].concat());
        let run = finished(command.env_remove("MASTER_ADDR").output().unwrap());
        let refused = run.refusal();
        assert!(refused.contains(says), "{refused}");
    }
    let alone = run(&[&base[..], &["--rank", "0"]].concat());
    assert_eq!(alone.status, Some(2), "{alone:?}");
}

/// Two names of one tensor become two tensors: both have its values.
#[test]
fn what_was_tied_arrives_under_both_names() {
    let folder = directory("reshard_refit_tied");
    let weight =
        |name: &str| format!("[[weight]]\nname = \"{name}\"\ndtype = \"bf16\"\nshape = [64, 8]\n");
    let tied = "[[tensor]]\nmatch = \"head\"\nstage = \"last\"\ntied_to = \"embed\"\n";
    let from =
        format!("mesh = {{axes = [[\"pp\", 2]]}}\n{tied}{}{}", weight("embed"), weight("head"));
    let to = format!("mesh = {{axes = [[\"tp\", 3]]}}\n{}{}", weight("embed"), weight("head"));
    let from = write_text(&folder, "from.toml", &from);
    let to = write_text(&folder, "to.toml", &to);
    let text = run(&["reshard", "refit", "--from", &from, "--to", &to]).success();
    assert!(text.contains("every element is right"), "{text}");
}

#[test]
fn what_cannot_be_refitted_is_refused_in_one_line() {
    let folder = directory("reshard_refit_refused");
    let from = write_text(&folder, "a.toml", &mesh(r#"[["tp", 4]]"#, 0));
    let base = ["reshard", "refit", "--from", &from, "--to", &from];
    let few = run(&[&base[..], &["--pes", "2"]].concat()).refusal();
    assert!(few.contains("the layouts place tensors on 4 PEs"), "{few}");
    let slots = run(&[&base[..], &["--slot-bytes", "100"]].concat()).refusal();
    assert!(slots.contains("multiple of 64"), "{slots}");
    let full = run(&[&base[..], &["--slot-bytes", "1048576GiB"]].concat()).refusal();
    assert!(full.contains("no room for"), "{full}");
}

/// A refit that goes on until it is ended, and the processes of its PEs.
#[allow(clippy::zombie_processes, reason = "the caller ends it and waits for it")]
fn endless(test: &str) -> (Child, Vec<i32>) {
    let folder = directory(test);
    let from = write_text(&folder, "a.toml", &mesh(r#"[["tp", 4]]"#, 0));
    let to = write_text(&folder, "b.toml", &mesh(r#"[["tp", 2], ["dp", 2]]"#, 1));
    let args = ["reshard", "refit", "--from", &from, "--to", &to, "--repeat", "100000000"];
    let mut command = command(&args);
    let parent = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    loop {
        // A thread's list has what that thread started: the PEs come from the first.
        let list = format!("/proc/{0}/task/{0}/children", parent.id());
        let list = fs::read_to_string(list).expect("the kernel lists children");
        let children: Vec<i32> =
            list.split_whitespace().map(|child| child.parse().unwrap()).collect();
        if children.len() == 4 {
            return (parent, children);
        }
        assert!(started.elapsed() < LIMIT, "{} PEs after {LIMIT:?}", children.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(process: i32) {
    let process = rustix::process::Pid::from_raw(process).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
}

/// True if it is gone, or only its exit status is left.
fn has_ended(process: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.starts_with(" Z"))
}

#[test]
fn a_killed_pe_ends_the_command_which_says_so() {
    for (round, delay_ms) in [0, 30, 200].into_iter().enumerate() {
        let (parent, children) = endless("reshard_refit_killed");
        std::thread::sleep(Duration::from_millis(delay_ms));
        kill(children[round]);
        let file = format!("/dev/shm/syncline-pes-{}", parent.id());
        let output = parent.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said, format!("syncline: PE {round} was ended by signal 9\n"));
        assert!(children.iter().all(|child| has_ended(*child)));
        assert!(!fs::exists(&file).unwrap(), "{file} is left behind");
    }
}

#[test]
fn pes_end_with_the_command_that_started_them() {
    let (mut parent, children) = endless("reshard_refit_orphans");
    std::thread::sleep(Duration::from_millis(100));
    parent.kill().unwrap();
    parent.wait().unwrap();
    let killed = Instant::now();
    while !children.iter().all(|child| has_ended(*child)) {
        assert!(killed.elapsed() < LIMIT, "a PE goes on without the one that started it");
        std::thread::sleep(Duration::from_millis(5));
    }
}
