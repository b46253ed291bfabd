//! Compiling the mesh form: where each tensor lives, which spans each PE keeps, which tensors are
//! one.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::mesh::MeshLayout;
use super::rule_set::RuleSet;
use super::rules::split;
use super::ties::{Alias, ties};
use super::{Layout, LayoutBuilder, Piece, Placement, Shard, TensorSpec};
use crate::dims::{Dims, NdBox};
use crate::error::LayoutError;

/// What decides a placement; tensors with equal keys share it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PlacementKey {
    rule: Option<usize>,
    shape: Dims,
    stage: Option<u64>,
    expert_at: Option<u64>,
}

/// Where a tensor lives, before its dimensions are split.
struct Home {
    stage: Option<u64>,
    expert_at: Option<u64>,
    /// What renumbering subtracts.
    first_layer: u64,
    first_expert: u64,
}

/// What PEs call a tensor, where not by its name.
type LocalNames = Vec<(u32, String)>;

pub(super) struct Compiler<'a> {
    form: &'a MeshLayout,
    rules: RuleSet<'a>,
    /// Of each tensor.
    rule_of: Vec<Option<usize>>,
    builder: LayoutBuilder,
    placements: HashMap<PlacementKey, Arc<Placement>>,
    layers: u64,
    /// Experts of every layer, by the names' common beginning.
    experts: HashMap<String, u64>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(form: &'a MeshLayout, specs: &[TensorSpec]) -> Result<Self, LayoutError> {
        let rules = RuleSet::new(&form.rules)?;
        let rule_of: Vec<Option<usize>> =
            specs.iter().map(|spec| rules.index_of(&spec.name)).collect();
        let (mut layers, mut experts) = (0, HashMap::new());
        let mut last_layer = "";
        for (spec, rule) in specs.iter().zip(&rule_of) {
            // What has a stage of its own is none of the layers that stages share.
            let has_stage = rule.is_some_and(|rule| form.rules[rule].stage.is_some());
            if let Some(layer) =
                form.numbers.layer(&spec.name).filter(|&layer| layer >= layers && !has_stage)
            {
                layers = layer.saturating_add(1);
                last_layer = &spec.name;
            }
            if let Some(expert) = form.numbers.expert(&spec.name) {
                let group = form.numbers.expert_group(&spec.name).unwrap_or_default();
                let count: &mut u64 = experts.entry(group.to_owned()).or_default();
                *count = expert.saturating_add(1).max(*count);
            }
        }
        let runs_fit = |what, runs: &Option<Vec<u64>>, found: u64, tensor: &str| {
            let placed = runs.as_ref().map_or(found, |runs| {
                runs.iter().fold(0, |sum: u64, &run| sum.saturating_add(run))
            });
            if placed == found {
                return Ok(());
            }
            Err(LayoutError::CountMismatch { what, placed, found, tensor: tensor.to_owned() })
        };
        if layers > 0 {
            runs_fit("layers", &form.mesh.stages, layers, last_layer)?;
        }
        for spec in specs {
            let (group, expert) =
                (form.numbers.expert_group(&spec.name), form.numbers.expert(&spec.name));
            // The last one of its group shows how many there are.
            if let (Some(group), Some(expert)) = (group, expert)
                && expert.saturating_add(1) == experts[group]
            {
                runs_fit("experts", &form.mesh.experts, experts[group], &spec.name)?;
            }
        }
        let (builder, placements) = (Layout::builder(), HashMap::new());
        Ok(Self { form, rules, rule_of, builder, placements, layers, experts })
    }

    pub(super) fn run(mut self, specs: &[TensorSpec]) -> Result<Layout, LayoutError> {
        let rule_of = std::mem::take(&mut self.rule_of);
        let mut ties = ties(&self.rules, specs, &rule_of)?;
        for (spec, &rule) in specs.iter().zip(&rule_of) {
            if self.rules.tied_to(&spec.name, rule).is_some() {
                continue;
            }
            let (placement, mut local_names) = self.place(&spec.name, rule, &spec.shape)?;
            let aliases = ties.remove(spec.name.as_str()).unwrap_or_default();
            let placement = self.join(spec, placement, &aliases, &mut local_names)?;
            let aliases = aliases.into_iter().map(|alias| alias.name).collect();
            self.builder.add(&spec.name, spec.dtype, placement, aliases, local_names)?;
        }
        Ok(self.builder.finish())
    }

    /// The placement of a tensor together with those tied to it: one shard a PE, under whichever
    /// name.
    fn join(
        &mut self,
        spec: &TensorSpec,
        placement: Arc<Placement>,
        aliases: &[Alias],
        local_names: &mut LocalNames,
    ) -> Result<Arc<Placement>, LayoutError> {
        if aliases.is_empty() {
            return Ok(placement);
        }
        let mut shards = placement.shards.clone();
        for Alias { name, rule } in aliases {
            let (other, other_names) = self.place(name, Some(*rule), &spec.shape)?;
            for shard in other.shards() {
                match shards.binary_search_by_key(&shard.rank, |known| known.rank) {
                    Err(at) => {
                        let renamed = other_names.binary_search_by_key(&shard.rank, |each| each.0);
                        let local = renamed.map_or(name, |at| &other_names[at].1);
                        local_names.push((shard.rank, local.clone()));
                        shards.insert(at, shard.clone());
                    }
                    Ok(at) if shards[at] == *shard => {}
                    Ok(_) => {
                        let cause = format!(
                            "it is tied to `{}` and on rank {} sharded otherwise",
                            spec.name, shard.rank
                        );
                        return Err(self.rules.misfit(name, Some(*rule), cause));
                    }
                }
            }
        }
        self.builder.placement(&spec.name, &spec.shape, shards)
    }

    /// Placement and local names, by rank, of the tensor `name`, which goes by `rule`.
    fn place(
        &mut self,
        name: &str,
        rule: Option<usize>,
        shape: &Dims,
    ) -> Result<(Arc<Placement>, LocalNames), LayoutError> {
        let home = self.home(name, rule)?;
        let key =
            PlacementKey { rule, shape: *shape, stage: home.stage, expert_at: home.expert_at };
        let placement = match self.placements.get(&key) {
            Some(placement) => Arc::clone(placement),
            None => {
                let shards = self.shards(name, shape, rule, &home)?;
                let placement = self.builder.placement(name, shape, shards)?;
                self.placements.insert(key, Arc::clone(&placement));
                placement
            }
        };
        let mut local_names = Vec::new();
        if self.form.mesh.renumber && (home.first_layer > 0 || home.first_expert > 0) {
            let local = self.form.numbers.renumber(name, home.first_layer, home.first_expert);
            local_names.extend(placement.shards().iter().map(|shard| (shard.rank, local.clone())));
        }
        Ok((placement, local_names))
    }

    fn home(&self, name: &str, rule: Option<usize>) -> Result<Home, LayoutError> {
        let mesh = &self.form.mesh;
        let rule_form = rule.map(|rule| &self.form.rules[rule]);
        let splits =
            |axis| rule_form.is_some_and(|rule| rule.shard.iter().any(|shard| shard.axis == axis));
        let mut home = Home { stage: None, expert_at: None, first_layer: 0, first_expert: 0 };
        if let Some(stage) = rule_form.and_then(|rule| rule.stage) {
            let stages = mesh.size("pp") as u32;
            let number = stage.resolve(stages).ok_or_else(|| {
                self.rules.misfit(name, rule, format!("there is no stage {stage:?} among {stages}"))
            })?;
            home.stage = Some(u64::from(number));
        } else if let Some(layer) = self.form.numbers.layer(name).filter(|_| !splits("pp")) {
            let (stage, first) = run_of(layer, self.layers, &mesh.stages, mesh.size("pp"));
            (home.stage, home.first_layer) = (Some(stage), first);
        }
        if let Some(expert) = self.form.numbers.expert(name).filter(|_| !splits("ep")) {
            let group = self.form.numbers.expert_group(name).unwrap_or_default();
            // A tied name that no tensor has is no expert that was counted.
            let count = self.experts.get(group).copied().unwrap_or(expert.saturating_add(1));
            let (at, first) = run_of(expert, count, &mesh.experts, mesh.size("ep"));
            (home.expert_at, home.first_expert) = (Some(at), first);
        }
        Ok(home)
    }

    /// What every PE of the tensor's home holds of it.
    fn shards(
        &self,
        name: &str,
        shape: &Dims,
        rule: Option<usize>,
        home: &Home,
    ) -> Result<Vec<Shard>, LayoutError> {
        let mesh = &self.form.mesh;
        let mut shards = Vec::new();
        for at in 0..mesh.world() {
            let elsewhere = |axis, place: Option<u64>| {
                place.is_some_and(|place| place != mesh.position(axis, at))
            };
            if elsewhere("pp", home.stage) || elsewhere("ep", home.expert_at) {
                continue;
            }
            let whole = |&size: &u64| std::iter::once(0..size).collect();
            let mut spans: Vec<Vec<Range<u64>>> = shape.iter().map(whole).collect();
            if let Some(rule) = rule {
                self.split_dims(name, rule, at, &mut spans)?;
            }
            shards.push(shard_of(mesh.offset + at as u32, shape, &spans));
        }
        Ok(shards)
    }

    fn split_dims(
        &self,
        name: &str,
        rule: usize,
        at: u64,
        spans: &mut [Vec<Range<u64>>],
    ) -> Result<(), LayoutError> {
        let misfit = |cause| self.rules.misfit(name, Some(rule), cause);
        let mesh = &self.form.mesh;
        let mut axes_used: Vec<&str> = Vec::new();
        for shard in &self.form.rules[rule].shard {
            let dims = spans.len() as i64;
            let dim = if shard.dim < 0 { shard.dim + dims } else { shard.dim };
            if !(0..dims).contains(&dim) {
                return Err(misfit(format!("it has no dimension {}, only {dims}", shard.dim)));
            }
            if !mesh.axes.iter().any(|(axis, _)| *axis == shard.axis) {
                return Err(misfit(format!("the mesh has no axis `{}`", shard.axis)));
            }
            if axes_used.contains(&shard.axis.as_str()) {
                return Err(misfit(format!("axis `{}` splits it twice", shard.axis)));
            }
            axes_used.push(&shard.axis);
            let dim = dim as usize;
            let position = mesh.position(&shard.axis, at);
            spans[dim] =
                shard.apply(&spans[dim], position, mesh.size(&shard.axis)).map_err(misfit)?;
        }
        Ok(())
    }
}

/// The run that item `index` of `count` is in, and the first item of that run.
fn run_of(index: u64, count: u64, runs: &Option<Vec<u64>>, parts: u64) -> (u64, u64) {
    let mut start = 0;
    for at in 0..parts {
        let size = match runs {
            Some(runs) => runs[at as usize],
            None => {
                let run = split(count, parts, at);
                run.end - run.start
            }
        };
        // Runs of layers are compared with the names only where names have layers: any sum is
        // possible.
        let end = size.saturating_add(start);
        if index < end {
            return (at, start);
        }
        start = end;
    }
    (parts.saturating_sub(1), start)
}

/// The shard with the given spans of each dimension, and a piece for every combination.
fn shard_of(rank: u32, tensor_shape: &Dims, spans: &[Vec<Range<u64>>]) -> Shard {
    let mut shape = *tensor_shape;
    for (dim, spans) in spans.iter().enumerate() {
        shape[dim] = spans.iter().map(|span| span.end - span.start).sum();
    }
    let whole = NdBox { start: shape.zeros(), size: shape };
    let mut pieces = vec![Piece { global: whole, local: shape.zeros() }];
    for (dim, spans) in spans.iter().enumerate() {
        let cut = |piece: &Piece| {
            let mut piece = *piece;
            let mut local = 0;
            spans
                .iter()
                .map(move |span| {
                    let size = span.end - span.start;
                    (piece.global.start[dim], piece.global.size[dim]) = (span.start, size);
                    piece.local[dim] = local;
                    local += size;
                    piece
                })
                .collect::<Vec<_>>()
        };
        pieces = pieces.iter().flat_map(cut).collect();
    }
    Shard { rank, shape, pieces }
}
