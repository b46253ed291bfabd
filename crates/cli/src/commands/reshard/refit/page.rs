//! The page of a refit: PEs as devices, what they packed, placed and unpacked, and who waited for
//! whom.

use std::collections::{BTreeMap, HashMap, VecDeque};

use syncline::deps::EdgeKinds;
use syncline::report::{
    ReportError, RunEdge, RunLane, RunOp, RunOpKind, RunRecord, RunTiming, render,
};
use syncline::reshard::{RefitActivity, RefitEvent};

use super::pe::PeReport;
use crate::provenance::Provenance;
use crate::units;

/// Letters by which processes tell each other of activities.
const LETTERS: [(char, RefitActivity); 6] = [
    ('p', RefitActivity::Pack),
    ('u', RefitActivity::Unpack),
    ('d', RefitActivity::Place),
    ('k', RefitActivity::Keep),
    ('w', RefitActivity::Wait),
    ('m', RefitActivity::Meet),
];

/// Events in one word, as a process prints them.
pub(super) fn to_text(events: &[RefitEvent]) -> String {
    let word = |event: &RefitEvent| {
        let letter = LETTERS.iter().find(|(_, activity)| *activity == event.activity);
        let letter = letter.expect("every activity has a letter").0;
        let RefitEvent { peer, bytes, start_ns, end_ns, .. } = event;
        format!("{letter}{peer},{bytes},{start_ns},{}", end_ns - start_ns)
    };
    events.iter().map(word).collect::<Vec<_>>().join(";")
}

/// Reads that word.
pub(super) fn parse(text: &str) -> Option<Vec<RefitEvent>> {
    let event = |word: &str| {
        let letter = word.chars().next()?;
        let activity = LETTERS.iter().find(|(known, _)| *known == letter)?.1;
        let numbers = word[1..].split(',').map(|number| number.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let [peer, bytes, start_ns, length_ns] = numbers[..] else { return None };
        let end_ns = start_ns.checked_add(length_ns)?;
        Some(RefitEvent { activity, peer: peer as usize, bytes, start_ns, end_ns })
    };
    text.split(';').filter(|word| !word.is_empty()).map(event).collect()
}

/// The page of the refit that `reports` tell of.
pub(super) fn page(
    reports: &[PeReport],
    title: &str,
    facts: Vec<(String, String)>,
) -> Result<String, ReportError> {
    let mut run = record(reports);
    run.title = title.to_owned();
    run.facts = facts;
    run.facts.extend(links(reports));
    run.provenance = Provenance::here().lines();
    render(&[run])
}

/// The refit as a run: an op for everything that a PE did, an edge for each message.
fn record(reports: &[PeReport]) -> RunRecord {
    let mut run = RunRecord::new("refit");
    // Messages between two PEs arrive in the order in which they were sent.
    let mut sent: HashMap<(usize, usize), VecDeque<u32>> = HashMap::new();
    let mut received: Vec<(usize, usize, u32)> = Vec::new();
    for (pe, report) in reports.iter().enumerate() {
        run.lanes.push(RunLane::new("refit", format!("PE {pe}")));
        for event in &report.events {
            let op = run.ops.len() as u32;
            let (name, args) = match event.activity {
                RefitActivity::Pack => ("pack and send", format!("to PE {}", event.peer)),
                RefitActivity::Unpack => ("unpack", format!("from PE {}", event.peer)),
                RefitActivity::Place => ("place", format!("in memory of PE {}", event.peer)),
                RefitActivity::Keep => ("keep", "within the PE".to_owned()),
                // Time in which nothing was done is no op: the page says what it was for.
                RefitActivity::Wait | RefitActivity::Meet => continue,
            };
            match event.activity {
                RefitActivity::Pack => sent.entry((pe, event.peer)).or_default().push_back(op),
                RefitActivity::Unpack => received.push((event.peer, pe, op)),
                _ => {}
            }
            let timing =
                RunTiming { lane: pe as u32, start_ns: event.start_ns, end_ns: event.end_ns };
            run.ops.push(RunOp {
                timing: Some(timing),
                bytes: event.bytes,
                args: vec![args],
                ..RunOp::new(u64::from(op), name, RunOpKind::Copy)
            });
        }
    }
    for (from, to, succ) in received {
        let pred = sent.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        let region = format!("message of PE {from} to PE {to}");
        run.edges.extend(pred.map(|pred| RunEdge { pred, succ, kinds: EdgeKinds::RAW, region }));
    }
    run
}

/// Bytes and messages of each link, and how long each PE waited for whom.
fn links(reports: &[PeReport]) -> Vec<(String, String)> {
    let mut links: BTreeMap<(usize, usize), (u64, u64, u64)> = BTreeMap::new();
    let mut waits: BTreeMap<(usize, Option<usize>), u64> = BTreeMap::new();
    for (pe, report) in reports.iter().enumerate() {
        for event in &report.events {
            let took_ns = event.end_ns - event.start_ns;
            match event.activity {
                RefitActivity::Pack | RefitActivity::Place => {
                    let link = links.entry((pe, event.peer)).or_default();
                    link.0 += event.bytes;
                    link.1 += u64::from(event.activity == RefitActivity::Pack);
                    link.2 += took_ns;
                }
                RefitActivity::Wait => *waits.entry((pe, Some(event.peer))).or_default() += took_ns,
                RefitActivity::Meet => *waits.entry((pe, None)).or_default() += took_ns,
                RefitActivity::Unpack | RefitActivity::Keep => {}
            }
        }
    }
    let link = |((from, to), (bytes, messages, took_ns)): (_, (u64, u64, u64))| {
        let rate = bytes as f64 / took_ns.max(1) as f64;
        let how = match messages {
            0 => "in place".to_owned(),
            1 => "in 1 message".to_owned(),
            _ => format!("in {messages} messages"),
        };
        let value = format!("{} {how}, {rate:.2} GB/s while it was written", units::bytes(bytes));
        (format!("link PE {from} -> PE {to}"), value)
    };
    let wait = |((pe, peer), took_ns): ((usize, Option<usize>), u64)| {
        let whom = peer.map_or("all to meet".to_owned(), |peer| format!("PE {peer}"));
        (format!("PE {pe} waited for {whom}"), units::duration(took_ns))
    };
    links.into_iter().map(link).chain(waits.into_iter().map(wait)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(
        activity: RefitActivity,
        peer: usize,
        bytes: u64,
        start_ns: u64,
        end_ns: u64,
    ) -> RefitEvent {
        RefitEvent { activity, peer, bytes, start_ns, end_ns }
    }

    fn report(events: Vec<RefitEvent>) -> PeReport {
        PeReport { events, ..PeReport::default() }
    }

    #[test]
    fn events_survive_their_word() {
        let events: Vec<RefitEvent> = (0u64..)
            .zip(LETTERS)
            .map(|(at, (_, activity))| event(activity, 3, at, 10 * at, 10 * at + 7))
            .collect();
        assert_eq!(parse(&to_text(&events)), Some(events));
        assert_eq!(parse(""), Some(Vec::new()));
        assert_eq!(parse("x1,2,3,4"), None);
    }

    #[test]
    fn messages_are_edges_and_waits_are_told_by_peer() {
        use RefitActivity::{Keep, Meet, Pack, Unpack, Wait};
        let reports = [
            report(vec![
                event(Meet, 0, 0, 0, 5),
                event(Pack, 1, 100, 5, 15),
                event(Pack, 1, 50, 15, 20),
                event(Keep, 0, 7, 20, 21),
            ]),
            report(vec![
                event(Meet, 1, 0, 0, 4),
                event(Wait, 0, 0, 4, 15),
                event(Unpack, 0, 100, 15, 18),
                event(Wait, 0, 0, 18, 20),
                event(Unpack, 0, 50, 20, 22),
            ]),
        ];
        let run = record(&reports);
        run.check().unwrap();
        let edges: Vec<_> = run.edges.iter().map(|edge| (edge.pred, edge.succ)).collect();
        assert_eq!(edges, [(0, 3), (1, 4)]);
        let told = links(&reports);
        let of = |label: &str| told.iter().find(|(name, _)| name == label).unwrap().1.clone();
        assert_eq!(of("link PE 0 -> PE 1"), "150 B in 2 messages, 10.00 GB/s while it was written");
        assert_eq!(of("PE 1 waited for PE 0"), "13 ns");
        assert_eq!(of("PE 0 waited for all to meet"), "5 ns");
    }
}
