//! Converting a checkpoint: plan, then write every destination file in chunks from several threads.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use syncline_layout::{Fingerprint, PlanOptions, TransferPlan};
use syncline_tensor::Dtype;

use crate::chunk::{Chunk, chunks};
use crate::destination::{Destination, OutputFile};
use crate::dtype::{check_dtype, config_with_dtype};
use crate::error::{CheckpointError, check_stop};
use crate::file::{create_own, open_own, open_regular, read_regular};
use crate::formats::Checksum;
use crate::journal::Partial;
use crate::map::MappedFile;
use crate::model::{CONFIG_FILE, Model, config_path};
use crate::proof::doubts;
use crate::queue::Queue;
use crate::source::{Checkpoint, LAYOUT_FILE, RELEASE_BYTES};
use crate::team::{Alone, Team};
use crate::truncation::reading;
use crate::writer::Writer;

/// Files of other checkpoint formats: not carried over, since they would not be converted.
const OTHER_WEIGHTS: [&str; 10] =
    ["safetensors", "bin", "pt", "pth", "gguf", "h5", "msgpack", "onnx", "ckpt", "distcp"];

/// Files synced at once: the disk then settles them together.
const SYNC_THREADS: usize = 8;

/// How to convert.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConversionOptions {
    /// Threads that read and write.
    pub threads: usize,
    /// Memory of each thread for what has to be put together before it is written; little enough to
    /// stay in a processor's own cache between the two.
    pub slot_bytes: u64,
    /// Element type for all float tensors; as they are if absent.
    pub dtype: Option<Dtype>,
    /// Go on with what an interrupted run left.
    pub resume: bool,
    /// Write a layout that is not known to be right for the model. The written layout says so.
    pub allow_unproven: bool,
    /// Ends the conversion with [`CheckpointError::Stopped`] soon after it was set to `true`; what
    /// was written is kept for a resume.
    pub stop: Arc<AtomicBool>,
}

impl Default for ConversionOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
        Self {
            threads,
            slot_bytes: 1 << 20,
            dtype: None,
            resume: false,
            allow_unproven: false,
            stop: Arc::default(),
        }
    }
}

/// What a conversion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tensors of the destination, counted once whatever the number of shards.
    pub tensors: u64,
    /// Files written.
    pub files: u64,
    /// Files that an earlier run had written and that were found right.
    pub files_kept: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Time taken.
    pub elapsed: Duration,
}

/// A planned conversion.
#[derive(Debug)]
pub struct Conversion<'a> {
    source: &'a Checkpoint,
    options: ConversionOptions,
    plan: TransferPlan,
    unproven: Vec<String>,
    files: Vec<OutputFile>,
    beside: Vec<(String, Vec<u8>)>,
    /// By file, then place in it.
    chunks: Vec<Chunk>,
}

impl<'a> Conversion<'a> {
    /// Plans the way from `source` to `destination`; refuses before anything is written what cannot
    /// be done, and, unless `options` allow it, a layout that is not known to be right for the
    /// model.
    pub fn new(
        source: &'a Checkpoint,
        destination: &Destination,
        options: ConversionOptions,
    ) -> Result<Self, CheckpointError> {
        let mut layout = destination.layout(source, options.dtype)?;
        let model = Model::read(source.folder());
        if let Some(dtype) = options.dtype {
            check_dtype(source, dtype, &model)?;
        }
        let unproven = doubts(&layout, &model);
        if !unproven.is_empty() && !options.allow_unproven {
            return Err(CheckpointError::Unproven { reasons: unproven });
        }
        layout.set_unproven(unproven.clone());
        let (files, beside) = destination.files(&layout, source)?;
        let allowed = match options.dtype {
            Some(_) => PlanOptions::default().convert_all(),
            None => PlanOptions::default(),
        };
        let plan = TransferPlan::new(source.layout(), &layout, &allowed)?;
        let chunks = all_chunks(&plan, &files, options.slot_bytes);
        Ok(Self { source, options, plan, unproven, files, beside, chunks })
    }

    /// Why the destination is not known to be right for the model; empty if it is.
    pub fn unproven(&self) -> &[String] {
        &self.unproven
    }

    /// Names of values of the source that are no tensors, and are left out.
    pub fn others(&self) -> &[String] {
        self.source.others()
    }

    /// Bytes of tensors that will be written.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(Chunk::bytes).sum()
    }

    /// Writes the destination; `progress` is told the bytes done, from any thread.
    ///
    /// `folder` appears when everything is on disk. An error or a kill leaves a directory beside it
    /// that a run with [`resume`](ConversionOptions::resume) goes on with; the source is only read.
    pub fn run(
        &self,
        folder: &Path,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Summary, CheckpointError> {
        self.run_with(&Alone, folder, progress)
    }

    /// Writes the destination together with others, who have planned the same; `progress` is told
    /// the bytes that this PE has done.
    ///
    /// Every PE reaches both directories. Each reads what it needs for its share of the bytes and
    /// writes that; the first makes the directory and, when all are done, gives it its name.
    pub fn run_with(
        &self,
        team: &dyn Team,
        folder: &Path,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Summary, CheckpointError> {
        let done = self.run_part(team, folder, progress);
        if let Err(error) = &done {
            team.fail(&error.to_string());
        }
        done
    }

    /// Bytes of tensors that `team`'s PE writes if nothing is there yet.
    pub fn bytes_of(&self, team: &dyn Team) -> u64 {
        let nothing = vec![false; self.files.len()];
        self.chunks[self.share(team, &nothing)].iter().map(Chunk::bytes).sum()
    }

    fn run_part(
        &self,
        team: &dyn Team,
        folder: &Path,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Summary, CheckpointError> {
        let start = Instant::now();
        let is_first = team.rank() == 0;
        let partial = match is_first {
            true => Partial::open(folder, &self.fingerprint(), self.options.resume)?,
            false => Partial::visit(folder)?,
        };
        let mut kept = vec![false; self.files.len()];
        let mut writers = Vec::new();
        if is_first {
            kept = self.complete_files(&partial);
            check_stop(&self.options.stop)?;
            writers = self.open_files(&kept, |file| Writer::create(&partial, file))?;
        }
        meet(team)?;
        if !is_first {
            // What was found complete has its name; the first PE has made the others.
            let is_kept = |file: &OutputFile| partial.has(&file.name);
            kept = self.files.iter().map(is_kept).collect();
            writers = self.open_files(&kept, |file| Writer::open(&partial, file))?;
        }
        // No PE gives a file its name before every PE has checked which ones have theirs.
        meet(team)?;
        self.write_files(&writers, self.share(team, &kept), progress)?;
        if team.size() > 1 {
            // Where PEs are on several machines, only the one that wrote can see to it that it is
            // on disk.
            writers.iter().flatten().try_for_each(Writer::sync)?;
        }
        // Every PE has read: what any of them read of a file that was changed must not be named.
        self.source.check_unchanged()?;
        meet(team)?;
        if is_first {
            writers.iter().flatten().try_for_each(Writer::finish)?;
            let sums = || self.files.iter().try_for_each(|file| write_sums(&partial, file));
            reading(sums)?;
            for (name, text) in &self.beside {
                partial.text(name, text)?;
            }
            self.copy_others(&partial)?;
            partial.finish(SYNC_THREADS)?;
        }
        meet(team)?;
        let files_kept = kept.iter().filter(|kept| **kept).count() as u64;
        let written = |chunk: &&Chunk| !kept[chunk.file];
        Ok(Summary {
            tensors: self.plan.tensors().len() as u64,
            files: self.files.len() as u64 - files_kept,
            files_kept,
            bytes: self.chunks.iter().filter(written).map(Chunk::bytes).sum(),
            elapsed: start.elapsed(),
        })
    }

    /// The chunks that are this PE's: as many bytes as every other's, one after the other.
    fn share(&self, team: &dyn Team, kept: &[bool]) -> Range<usize> {
        let bytes = |chunk: &Chunk| if kept[chunk.file] { 0 } else { chunk.bytes() };
        let total: u64 = self.chunks.iter().map(bytes).sum();
        let bound = |rank: usize| {
            let before = (u128::from(total) * rank as u128 / team.size() as u128) as u64;
            let mut sum = 0;
            let mut is_before = |chunk: &Chunk| {
                sum += bytes(chunk);
                sum <= before
            };
            self.chunks.iter().map_while(|chunk| is_before(chunk).then_some(())).count()
        };
        let last = team.rank() + 1 == team.size();
        bound(team.rank())..if last { self.chunks.len() } else { bound(team.rank() + 1) }
    }

    /// A writer for each file that is not there yet.
    fn open_files<'f>(
        &'f self,
        kept: &[bool],
        open: impl Fn(&'f OutputFile) -> Result<Writer<'f>, CheckpointError>,
    ) -> Result<Vec<Option<Writer<'f>>>, CheckpointError> {
        let files = self.files.iter().zip(kept);
        files.map(|(file, kept)| (!kept).then(|| open(file)).transpose()).collect()
    }

    /// Differs whenever the result or the source does.
    fn fingerprint(&self) -> String {
        let state = self.source.state();
        let names: String = self.files.iter().map(|file| file.name.as_str()).collect();
        let mut hasher = Fingerprint::new(self.plan.fingerprint());
        hasher.text(&state);
        hasher.text(&names);
        format!("{:016x}-{:016x}", self.plan.fingerprint(), hasher.finish())
    }

    /// Which files an earlier run has written, and found right, every byte.
    fn complete_files(&self, partial: &Partial) -> Vec<bool> {
        let complete: Vec<AtomicBool> = self.files.iter().map(|_| AtomicBool::new(false)).collect();
        let next = AtomicUsize::new(0);
        let work = || loop {
            let file = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = complete.get(file) else { return };
            if check_stop(&self.options.stop).is_err() {
                return;
            }
            let is_complete = reading(|| self.is_complete(partial, file));
            place.store(is_complete, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            for _ in 1..self.options.threads.clamp(1, self.files.len().max(1)) {
                scope.spawn(work);
            }
            work();
        });
        complete.into_iter().map(AtomicBool::into_inner).collect()
    }

    fn is_complete(&self, partial: &Partial, file: usize) -> bool {
        let output = &self.files[file];
        let Ok(written) = MappedFile::open_own(&partial.folder.join(&output.name)) else {
            return false;
        };
        let bytes = written.bytes();
        let holds = |(start, fixed): &(u64, Vec<u8>)| bytes[*start as usize..].starts_with(fixed);
        if bytes.len() as u64 != output.bytes || !output.fixed.iter().all(holds) {
            return false;
        }
        let mut slot = Vec::new();
        self.chunks.iter().filter(|chunk| chunk.file == file).all(|chunk| {
            let expected = chunk.read(&self.plan, self.source, &mut slot);
            bytes[chunk.offset as usize..][..expected.len()] == *expected
        })
    }

    /// Writes the chunks of `share`; a file of which all are written gets its name.
    fn write_files(
        &self,
        writers: &[Option<Writer<'_>>],
        share: Range<usize>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), CheckpointError> {
        for chunk in &self.chunks {
            if let Some(writer) = &writers[chunk.file] {
                writer.expect();
            }
        }
        let work = &Queue::new(&self.chunks[share]);
        let done = &AtomicU64::new(0);
        let stop = &AtomicBool::new(false);
        let failure = Mutex::new(None);
        let fail = |error: CheckpointError| {
            stop.store(true, Ordering::Relaxed);
            failure.lock().expect("no thread panics with it").get_or_insert(error);
        };
        std::thread::scope(|scope| {
            // The system refuses to write what a source file no longer has.
            let or_changed = |error| self.source.check_unchanged().err().unwrap_or(error);
            let write = move || {
                let (mut slot, mut file) = (Vec::new(), None);
                while !stop.load(Ordering::Relaxed) {
                    if let Err(stopped) = check_stop(&self.options.stop) {
                        return fail(stopped);
                    }
                    let Some(chunk) = work.next(&mut file) else { return };
                    if let Some(writer) = &writers[chunk.file] {
                        let bytes = chunk.read(&self.plan, self.source, &mut slot);
                        match writer.write(&bytes, chunk.offset).map_err(or_changed) {
                            Ok(false) => {}
                            // The disk takes a file that is complete while others are being
                            // written.
                            Ok(true) => {
                                drop(scope.spawn(move || writer.sync().unwrap_or_else(fail)))
                            }
                            Err(error) => return fail(error),
                        }
                    }
                    let before = done.fetch_add(chunk.bytes(), Ordering::Relaxed);
                    self.source.release_after(before, chunk.bytes());
                    progress(before + chunk.bytes());
                }
            };
            for _ in 1..self.options.threads.max(1) {
                scope.spawn(move || reading(write));
            }
            reading(write);
        });
        failure.into_inner().expect("no thread panics with it").map_or(Ok(()), Err)
    }

    /// Carries over the files beside the weights: the model's configuration, the tokenizer and the
    /// like.
    fn copy_others(&self, partial: &Partial) -> Result<(), CheckpointError> {
        let folder = self.source.folder();
        if folder.is_file() {
            // Of the files beside a single file, only the configuration is known to belong to it.
            let config = config_path(folder);
            return if config.is_file() { self.copy_other(&config, partial) } else { Ok(()) };
        }
        let Ok(entries) = folder.read_dir() else { return Ok(()) };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let extension = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
            let ours = name == LAYOUT_FILE || name.ends_with(".index.json");
            if ours
                || name.starts_with('.')
                || OTHER_WEIGHTS.contains(&extension)
                || !path.is_file()
            {
                continue;
            }
            self.copy_other(&path, partial)?;
        }
        Ok(())
    }

    /// Carries over one file; where elements are converted, the configuration says so.
    fn copy_other(&self, path: &Path, partial: &Partial) -> Result<(), CheckpointError> {
        let name = path.file_name().unwrap_or_default();
        let to = partial.folder.join(name);
        let read = |source| CheckpointError::Read { file: path.to_owned(), source };
        let write = |source| CheckpointError::Write { file: to.clone(), source };
        let mut from = open_regular(path).map_err(read)?;
        let mut file = create_own(&to).map_err(write)?;
        if let Some(dtype) = self.options.dtype.filter(|_| name == CONFIG_FILE) {
            let text = read_regular(path).map_err(read)?;
            let text = config_with_dtype(&text, dtype).map_err(|error| {
                CheckpointError::Damaged { file: path.to_owned(), cause: error.to_string() }
            })?;
            file.write_all(text.as_bytes()).map_err(write)?;
        } else {
            io::copy(&mut from, &mut file).map_err(write)?;
        }
        let mode = from.metadata().map_err(read)?.permissions();
        file.set_permissions(mode).map_err(write)
    }
}

fn all_chunks(plan: &TransferPlan, files: &[OutputFile], slot_bytes: u64) -> Vec<Chunk> {
    // The plan's transfers are by tensor, then receiver: those of a shard stand together.
    let mut ops_of = std::collections::HashMap::new();
    let mut first = 0;
    for group in plan.ops().chunk_by(|one, next| (one.tensor, one.dst) == (next.tensor, next.dst)) {
        ops_of.insert((plan.tensor(&group[0]).to, group[0].dst), first..first + group.len());
        first += group.len();
    }
    let mut found = Vec::new();
    for (at, file) in files.iter().enumerate() {
        for output in &file.tensors {
            let Some(ops) = ops_of.get(&output.place) else { continue };
            let tensor = plan.tensor(&plan.ops()[ops.start]);
            let dtypes = (tensor.src_dtype, tensor.dst_dtype);
            let mut offset = output.offset;
            for part in chunks(&output.shape, dtypes.1.bytes(), slot_bytes) {
                let chunk = Chunk { file: at, offset, part, ops: ops.clone(), dtypes };
                offset += chunk.bytes();
                found.push(chunk);
            }
        }
    }
    found
}

/// Fills in the checksums of a file, all of whose tensors are there.
fn write_sums(partial: &Partial, output: &OutputFile) -> Result<(), CheckpointError> {
    if output.sums.is_empty() {
        return Ok(());
    }
    let path = partial.folder.join(&output.name);
    let written = MappedFile::open_own(&path)?;
    let failed = |source| CheckpointError::Write { file: path.clone(), source };
    let file = open_own(&path, File::options().write(true)).map_err(failed)?;
    for Checksum { bytes, at } in &output.sums {
        let mut hasher = crc32fast::Hasher::new();
        let tensor = &written.bytes()[bytes.start as usize..bytes.end as usize];
        for part in tensor.chunks(RELEASE_BYTES as usize) {
            hasher.update(part);
            written.release();
        }
        let sum = hasher.finalize();
        for at in at {
            file.write_all_at(&sum.to_le_bytes(), *at).map_err(failed)?;
        }
    }
    Ok(())
}

/// Waits for the others.
fn meet(team: &dyn Team) -> Result<(), CheckpointError> {
    team.meet().map_err(CheckpointError::Team)
}
