//! Compiling the mesh form: where each tensor lives, which spans each PE keeps, which tensors are one.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::mesh::MeshLayout;
use super::pattern::Pattern;
use super::rules::split;
use super::{Layout, LayoutBuilder, Piece, Placement, Shard, TensorSpec};
use crate::dims::{Dims, NdBox};
use crate::error::ReshardError;

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
    patterns: Vec<Pattern>,
    builder: LayoutBuilder,
    placements: HashMap<PlacementKey, Arc<Placement>>,
    layers: u64,
    /// Experts of every layer, by the names' common beginning.
    experts: HashMap<String, u64>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(form: &'a MeshLayout, specs: &[TensorSpec]) -> Result<Self, ReshardError> {
        let patterns =
            form.rules.iter().map(|rule| Pattern::new(&rule.pattern)).collect::<Result<_, _>>()?;
        let (mut layers, mut experts) = (0, HashMap::new());
        let mut last_layer = "";
        for spec in specs {
            if let Some(layer) = form.numbers.layer(&spec.name).filter(|&layer| layer >= layers) {
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
            let placed = runs.as_ref().map_or(found, |runs| runs.iter().sum());
            if placed == found {
                return Ok(());
            }
            Err(ReshardError::CountMismatch { what, placed, found, tensor: tensor.to_owned() })
        };
        if layers > 0 {
            runs_fit("layers", &form.mesh.stages, layers, last_layer)?;
        }
        for spec in specs {
            if let Some(group) = form.numbers.expert_group(&spec.name) {
                runs_fit("experts", &form.mesh.experts, experts[group], &spec.name)?;
            }
        }
        let (builder, placements) = (Layout::builder(), HashMap::new());
        Ok(Self { form, patterns, builder, placements, layers, experts })
    }

    pub(super) fn run(mut self, specs: &[TensorSpec]) -> Result<Layout, ReshardError> {
        let mut ties = self.ties(specs)?;
        for spec in specs {
            let rule = self.rule_index(&spec.name);
            let tied_to = rule.and_then(|rule| self.form.rules[rule].tied_to.as_deref());
            if tied_to.is_some_and(|target| target != spec.name) {
                continue;
            }
            let (placement, mut local_names) = self.place(&spec.name, spec)?;
            let aliases = ties.remove(spec.name.as_str()).unwrap_or_default();
            let placement = self.join(spec, placement, &aliases, &mut local_names)?;
            self.builder.add(&spec.name, spec.dtype, placement, aliases, local_names)?;
        }
        match ties.into_iter().next() {
            None => Ok(self.builder.finish()),
            Some((target, aliases)) => Err(ReshardError::RuleDoesNotFit {
                tensor: aliases[0].clone(),
                rule: aliases[0].clone(),
                cause: format!("it is tied to `{target}`, which does not exist"),
            }),
        }
    }

    fn rule_index(&self, name: &str) -> Option<usize> {
        self.patterns.iter().position(|pattern| pattern.matches(name))
    }

    /// The names tied to each tensor: those that exist, and those that a rule names in full.
    fn ties(&self, specs: &[TensorSpec]) -> Result<HashMap<String, Vec<String>>, ReshardError> {
        let mut ties: HashMap<String, Vec<String>> = HashMap::new();
        let by_name: HashMap<&str, &TensorSpec> =
            specs.iter().map(|spec| (spec.name.as_str(), spec)).collect();
        for (index, rule) in self.form.rules.iter().enumerate() {
            let Some(target) = &rule.tied_to else { continue };
            let mut names: Vec<String> = specs
                .iter()
                .filter(|spec| self.rule_index(&spec.name) == Some(index))
                .map(|spec| spec.name.clone())
                .collect();
            let named = self.patterns[index].literals().unwrap_or_default();
            if names.is_empty() && by_name.contains_key(target.as_str()) {
                names = named;
            }
            names.retain(|name| name != target);
            for name in &names {
                let (one, other) = (by_name.get(name.as_str()), by_name.get(target.as_str()));
                if let (Some(one), Some(other)) = (one, other)
                    && (one.shape != other.shape || one.dtype != other.dtype)
                {
                    let cause = format!(
                        "it is {} of shape {}, but tied to `{target}`, which is {} of shape {}",
                        one.dtype, one.shape, other.dtype, other.shape
                    );
                    return Err(self.misfit(name, Some(index), cause));
                }
            }
            if !names.is_empty() {
                ties.entry(target.clone()).or_default().extend(names);
            }
        }
        Ok(ties)
    }

    /// The placement of a tensor together with those tied to it: one shard a PE, under whichever name.
    fn join(
        &mut self,
        spec: &TensorSpec,
        placement: Arc<Placement>,
        aliases: &[String],
        local_names: &mut LocalNames,
    ) -> Result<Arc<Placement>, ReshardError> {
        if aliases.is_empty() {
            return Ok(placement);
        }
        let mut shards = placement.shards.clone();
        for alias in aliases {
            let (other, other_names) = self.place(alias, spec)?;
            for shard in other.shards() {
                match shards.iter().find(|known| known.rank == shard.rank) {
                    None => {
                        let renamed = other_names.iter().find(|(rank, _)| *rank == shard.rank);
                        let name = renamed.map_or(alias, |(_, name)| name);
                        local_names.push((shard.rank, name.clone()));
                        shards.push(shard.clone());
                    }
                    Some(known) if known == shard => {}
                    Some(_) => {
                        let cause = format!(
                            "it is tied to `{}` and on rank {} sharded otherwise",
                            spec.name, shard.rank
                        );
                        return Err(self.misfit(alias, self.rule_index(alias), cause));
                    }
                }
            }
        }
        self.builder.placement(&spec.name, &spec.shape, shards)
    }

    /// Placement and local names of the tensor `name`, whose shape is that of `spec`.
    fn place(
        &mut self,
        name: &str,
        spec: &TensorSpec,
    ) -> Result<(Arc<Placement>, LocalNames), ReshardError> {
        let rule = self.rule_index(name);
        let home = self.home(name, rule)?;
        let key =
            PlacementKey { rule, shape: spec.shape, stage: home.stage, expert_at: home.expert_at };
        let placement = match self.placements.get(&key) {
            Some(placement) => Arc::clone(placement),
            None => {
                let shards = self.shards(name, &spec.shape, rule, &home)?;
                let placement = self.builder.placement(name, &spec.shape, shards)?;
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

    fn home(&self, name: &str, rule: Option<usize>) -> Result<Home, ReshardError> {
        let mesh = &self.form.mesh;
        let rule_form = rule.map(|rule| &self.form.rules[rule]);
        let splits =
            |axis| rule_form.is_some_and(|rule| rule.shard.iter().any(|shard| shard.axis == axis));
        let mut home = Home { stage: None, expert_at: None, first_layer: 0, first_expert: 0 };
        if let Some(stage) = rule_form.and_then(|rule| rule.stage) {
            let stages = mesh.size("pp") as u32;
            let number = stage.resolve(stages).ok_or_else(|| {
                self.misfit(name, rule, format!("there is no stage {stage:?} among {stages}"))
            })?;
            home.stage = Some(u64::from(number));
        } else if let Some(layer) = self.form.numbers.layer(name).filter(|_| !splits("pp")) {
            let (stage, first) = run_of(layer, self.layers, &mesh.stages, mesh.size("pp"));
            (home.stage, home.first_layer) = (Some(stage), first);
        }
        if let Some(expert) = self.form.numbers.expert(name).filter(|_| !splits("ep")) {
            let group = self.form.numbers.expert_group(name).unwrap_or_default();
            // A tied name that no tensor has is no expert that was counted.
            let count = self.experts.get(group).copied().unwrap_or(expert + 1);
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
    ) -> Result<Vec<Shard>, ReshardError> {
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
    ) -> Result<(), ReshardError> {
        let misfit = |cause| self.misfit(name, Some(rule), cause);
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

    fn misfit(&self, tensor: &str, rule: Option<usize>, cause: String) -> ReshardError {
        let rule = rule.map_or("", |rule| &self.form.rules[rule].pattern).to_owned();
        ReshardError::RuleDoesNotFit { tensor: tensor.to_owned(), rule, cause }
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
        if index < start + size {
            return (at, start);
        }
        start += size;
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
