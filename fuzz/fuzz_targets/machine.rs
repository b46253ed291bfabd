//! Any text given to the readers of machines and of clusters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_layout::simulate::Cluster;

fuzz_target!(|text: &str| {
    let _ = syncline_program::machine_from_toml(text);
    if let Ok(cluster) = Cluster::from_toml(text) {
        let _ = cluster.node(7);
    }
});
