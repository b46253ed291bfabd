//! The whole set between two hosts that reach each other by TCP alone: two network namespaces, each
//! with a host name of its own, joined by a pair of virtual interfaces. Skipped, with a word, where
//! that is not permitted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use syncline_mpi::RankLauncher;
use syncline_testing::need;

use crate::jobs::{check, launcher};

const ADDRESSES: [&str; 2] = ["10.213.47.1", "10.213.47.2"];
/// The interface that joins them, of the same name in both.
const LINK: &str = "joint";

/// Two namespaces, removed at the end.
struct Hosts {
    names: [String; 2],
    agent: PathBuf,
}

fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Until the interface works on this host, which the kernel may notice a second after its other
/// end.
fn wait_for_link(name: &str) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let said = ip(&format!("-n {name} -brief link show {LINK}"))?;
        if said.split_whitespace().any(|word| word == "UP") {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(10) {
            return Err(format!("the link between them stays down: {said}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Hosts {
    fn new() -> Result<Self, String> {
        let id = std::process::id();
        let names = [format!("sla{id}"), format!("slb{id}")];
        let agent = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("agent-{id}"));
        let hosts = Self { names, agent };
        for name in &hosts.names {
            ip(&format!("netns add {name}"))?;
        }
        let [a, b] = &hosts.names;
        ip(&format!("link add {LINK} netns {a} type veth peer name {LINK} netns {b}"))?;
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            ip(&format!("-n {name} addr add {address}/24 dev {LINK}"))?;
            ip(&format!("-n {name} link set {LINK} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        hosts.names.iter().try_for_each(|name| wait_for_link(name))?;
        // How the launcher reaches the other host: what it takes for a remote shell, whose options
        // come before the host, enters that namespace.
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
             case \"$1\" in {}) name={a} ;; *) name={b} ;; esac\nshift\n\
             exec ip netns exec $name unshare --uts sh -c \"hostname $name; $*\"\n",
            ADDRESSES[0]
        );
        let write = || {
            fs::write(&hosts.agent, script)?;
            fs::set_permissions(&hosts.agent, fs::Permissions::from_mode(0o755))
        };
        write().map_err(|error| error.to_string())?;
        let try_names = Command::new("ip")
            .args(["netns", "exec", a, "unshare", "--uts", "hostname", a])
            .output();
        match try_names {
            Ok(output) if output.status.success() => Ok(hosts),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The launcher on the first host, for `ranks` ranks in turns on both, who have nothing but TCP
    /// between them.
    fn command(&self, launcher: &RankLauncher, ranks: usize) -> Command {
        let mut inner = launcher.command(ranks);
        let agent = self.agent.display().to_string();
        if launcher.is_open_mpi() {
            let hosts = ADDRESSES.map(|address| format!("{address}:8")).join(",");
            inner.args(["--host", &hosts, "--map-by", "node"]);
            inner.args(["--mca", "mpi_yield_when_idle", "1"]);
            inner.args(["--mca", "btl", "tcp,self,vader", "--mca", "pml", "ob1"]);
            for framework in ["btl_tcp", "oob_tcp"] {
                inner.args(["--mca", &format!("{framework}_if_include"), LINK]);
            }
            inner.args(["--mca", "plm_rsh_agent", &agent]);
            for name in [crate::jobs::SCENARIO, "OMPI_ALLOW_RUN_AS_ROOT", "LD_LIBRARY_PATH"] {
                inner.args(["-x", name]);
            }
        } else {
            inner.args(["-hosts", &ADDRESSES.join(","), "-ppn", "1", "-iface", LINK]);
            inner.args(["-launcher", "ssh", "-launcher-exec", &agent]);
            inner.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", LINK);
        }
        let mut command = Command::new("ip");
        let line = "hostname \"$0\"; exec \"$@\"";
        command.args(["netns", "exec", &self.names[0], "unshare", "--uts", "sh", "-c", line]);
        command.arg(&self.names[0]).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command.env("LD_LIBRARY_PATH", std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
        let _ = fs::remove_file(&self.agent);
    }
}

fn hosts() -> Option<(RankLauncher, Hosts)> {
    let launcher = launcher()?;
    Some((launcher, need("network namespaces", Hosts::new())?))
}

#[test]
fn two_ranks_over_tcp() {
    let Some((launcher, hosts)) = hosts() else { return };
    let said = check(hosts.command(&launcher, 2), 2, "set auto apart");
    assert!(said.stdout.contains("2 hosts, "), "{}", said.stdout);
    eprintln!("{}", said.stdout.lines().find(|line| line.contains("way: ")).unwrap_or_default());
}

#[test]
fn four_ranks_over_tcp_that_share_memory_where_they_can() {
    let Some((launcher, hosts)) = hosts() else { return };
    let said = check(hosts.command(&launcher, 4), 4, "set auto shared");
    // Not all on one host: there is something to choose.
    assert!(said.stdout.contains("2 hosts, ") && !said.stdout.contains("way: shared memory"));
}
