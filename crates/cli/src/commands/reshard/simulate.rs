//! `syncline reshard plan --simulate`: what a refit would take on a cluster that is not here.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use syncline::layout::simulate::{Cluster, LinkUse, Prediction, simulate};
use syncline::layout::{Schedule, TransferPlan};

use super::Format;
use super::plan::in_file;
use super::size::show;
use crate::input::{name_of, read_bytes};
use crate::outcome::{Failure, Outcome};
use crate::output::to_standard_output;
use crate::units::seconds as duration;

pub(super) fn run(
    path: &Path,
    plan: &TransferPlan,
    schedule: &Schedule,
    format: Format,
) -> Result<Outcome, Failure> {
    let text = String::from_utf8(read_bytes(path)?)
        .map_err(|_| Failure::Usage(format!("{}: expected UTF-8 text", name_of(path))))?;
    let cluster = Cluster::from_toml(&text).map_err(in_file(path))?;
    let prediction = simulate(plan, schedule, &cluster).map_err(in_file(path))?;
    to_standard_output(|out| {
        match format {
            Format::Json => writeln!(out, "{}", to_json(plan, &prediction))?,
            Format::Text => print(plan, schedule, &cluster, &prediction, out)?,
        }
        Ok(Outcome::Success)
    })
}

fn print(
    plan: &TransferPlan,
    schedule: &Schedule,
    cluster: &Cluster,
    prediction: &Prediction,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Prediction { seconds, seconds_min, rounds, messages, .. } = *prediction;
    let nodes = plan.world().div_ceil(cluster.pes_per_node);
    writeln!(out, "PEs          {} on {nodes} nodes", plan.world())?;
    let (moved, kept) = (show(prediction.bytes_moved), show(prediction.bytes_kept));
    writeln!(out, "bytes        {moved} moved between PEs, {kept} kept")?;
    let slot = show(schedule.slot_bytes());
    writeln!(out, "rounds       {rounds}, {messages} messages in slots of {slot}")?;
    writeln!(out, "time         {}", duration(seconds))?;
    let share = if seconds > 0.0 { seconds_min / seconds * 100.0 } else { 100.0 };
    writeln!(
        out,
        "bound        {} by the busiest link: {share:.0}% of the time",
        duration(seconds_min)
    )?;
    writeln!(out, "\nlink       links         total       busiest   carries   alone takes")?;
    for link in &prediction.links {
        let LinkUse { kind, links, busiest, seconds_min, .. } = link;
        let (total, most) = (show(link.bytes_total), show(link.bytes_max));
        let alone = duration(*seconds_min);
        writeln!(
            out,
            "{:<9}  {links:>5}  {total:>12}  {busiest:>12}  {most:>8}  {alone:>11}",
            kind.name()
        )?;
    }
    Ok(())
}

fn to_json(plan: &TransferPlan, prediction: &Prediction) -> Value {
    let link = |link: &LinkUse| {
        json!({
            "kind": link.kind.name(), "links": link.links, "bytes_total": link.bytes_total,
            "bytes_max": link.bytes_max, "busiest": link.busiest, "seconds_min": link.seconds_min,
        })
    };
    json!({
        "format": "syncline-prediction", "version": 1, "pes": plan.world(),
        "seconds": prediction.seconds, "seconds_min": prediction.seconds_min,
        "rounds": prediction.rounds, "messages": prediction.messages,
        "bytes_moved": prediction.bytes_moved, "bytes_kept": prediction.bytes_kept,
        "links": prediction.links.iter().map(link).collect::<Vec<_>>(),
    })
}
