//! Converting a checkpoint: plan, then write every destination file in chunks from several threads.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use syncline_deps::Dtype;
use syncline_reshard::convert::is_supported;
use syncline_reshard::{PlanOptions, TransferPlan};

use crate::chunk::{Chunk, chunks};
use crate::destination::{Destination, OutputFile};
use crate::error::CheckpointError;
use crate::journal::Partial;
use crate::map::MappedFile;
use crate::source::Checkpoint;

/// Files of other checkpoint formats: not carried over, since they would not be converted.
const OTHER_WEIGHTS: [&str; 9] =
    ["safetensors", "bin", "pt", "pth", "gguf", "h5", "msgpack", "onnx", "ckpt"];

/// Files synced at once: the disk then settles them together.
const SYNC_THREADS: usize = 8;

/// How to convert.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConversionOptions {
    /// Threads that read and write.
    pub threads: usize,
    /// Memory of each thread for what has to be put together before it is written.
    pub slot_bytes: u64,
    /// Element type for all float tensors; as they are if absent.
    pub dtype: Option<Dtype>,
    /// Go on with what an interrupted run left.
    pub resume: bool,
}

impl Default for ConversionOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
        Self { threads, slot_bytes: 8 << 20, dtype: None, resume: false }
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
    files: Vec<OutputFile>,
    beside: Vec<(String, String)>,
    /// By file, then place in it.
    chunks: Vec<Chunk>,
}

/// All conversions of element types that can be done.
pub(crate) fn all_conversions() -> PlanOptions {
    let mut options = PlanOptions::default();
    for from in Dtype::ALL {
        for to in Dtype::ALL {
            if from != to && is_supported(from, to) {
                options = options.convert(from, to);
            }
        }
    }
    options
}

impl<'a> Conversion<'a> {
    /// Plans the way from `source` to `destination`; refuses what cannot be done before anything is written.
    pub fn new(
        source: &'a Checkpoint,
        destination: &Destination,
        options: ConversionOptions,
    ) -> Result<Self, CheckpointError> {
        let layout = destination.layout(source, options.dtype)?;
        let (files, beside) = destination.files(&layout, source)?;
        let allowed =
            if options.dtype.is_some() { all_conversions() } else { PlanOptions::default() };
        let plan = TransferPlan::new(source.layout(), &layout, &allowed)?;
        let chunks = all_chunks(&plan, &files, options.slot_bytes);
        Ok(Self { source, options, plan, files, beside, chunks })
    }

    /// Bytes of tensors that will be written.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(Chunk::bytes).sum()
    }

    /// Writes the destination; `progress` is told the bytes done, from any thread.
    ///
    /// `folder` appears when everything is on disk. An error or a kill leaves a directory beside it that
    /// a run with [`resume`](ConversionOptions::resume) goes on with; the source is only read.
    pub fn run(
        &self,
        folder: &Path,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Summary, CheckpointError> {
        let start = Instant::now();
        let partial = Partial::open(folder, &self.fingerprint(), self.options.resume)?;
        let kept: Vec<bool> =
            (0..self.files.len()).map(|file| self.is_complete(&partial, file)).collect();
        self.write_files(&partial, &kept, progress)?;
        for (name, text) in &self.beside {
            partial.text(name, text.as_bytes())?;
        }
        self.copy_others(&partial)?;
        partial.finish(SYNC_THREADS)?;
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

    /// Differs whenever the result or the source does.
    fn fingerprint(&self) -> String {
        let state = self.source.state();
        let names: String = self.files.iter().map(|file| file.name.as_str()).collect();
        let hash = |text: &str| {
            text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        format!("{:016x}-{:016x}", self.plan.fingerprint(), hash(&state) ^ hash(&names))
    }

    /// True if an earlier run has written this file, and every byte of it is what it shall be.
    fn is_complete(&self, partial: &Partial, file: usize) -> bool {
        let output = &self.files[file];
        let Ok(written) = MappedFile::open(&partial.folder.join(&output.name)) else {
            return false;
        };
        let bytes = written.bytes();
        if bytes.len() as u64 != output.header.file_bytes()
            || !bytes.starts_with(&output.header_bytes)
        {
            return false;
        }
        let mut slot = Vec::new();
        self.chunks.iter().filter(|chunk| chunk.file == file).all(|chunk| {
            let expected = chunk.read(&self.plan, self.source, &mut slot);
            bytes[chunk.offset as usize..][..expected.len()] == *expected
        })
    }

    fn write_files(
        &self,
        partial: &Partial,
        kept: &[bool],
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), CheckpointError> {
        let writers: Vec<Option<Writer<'_>>> = self
            .files
            .iter()
            .zip(kept)
            .map(|(file, kept)| (!kept).then(|| Writer::create(partial, file)).transpose())
            .collect::<Result<_, _>>()?;
        for chunk in &self.chunks {
            if let Some(writer) = &writers[chunk.file] {
                writer.chunks_left.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Files without a chunk have nothing to wait for.
        for writer in writers.iter().flatten() {
            if writer.chunks_left.load(Ordering::Relaxed) == 0 {
                writer.finish()?;
            }
        }
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let stop = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let work = || {
            let mut slot = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let Some(chunk) = self.chunks.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return;
                };
                let written = match &writers[chunk.file] {
                    Some(writer) => {
                        writer.write(&chunk.read(&self.plan, self.source, &mut slot), chunk.offset)
                    }
                    None => Ok(()),
                };
                if let Err(error) = written {
                    stop.store(true, Ordering::Relaxed);
                    failure.lock().expect("no thread panics with it").get_or_insert(error);
                    return;
                }
                progress(done.fetch_add(chunk.bytes(), Ordering::Relaxed) + chunk.bytes());
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.options.threads.max(1) {
                scope.spawn(work);
            }
            work();
        });
        failure.into_inner().expect("no thread panics with it").map_or(Ok(()), Err)
    }

    /// Carries over what is beside the weights: the model's configuration, the tokenizer and the like.
    fn copy_others(&self, partial: &Partial) -> Result<(), CheckpointError> {
        let folder = self.source.folder();
        let Ok(entries) = folder.read_dir() else { return Ok(()) };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let extension = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
            let ours = name == "layout.json" || name.ends_with(".index.json");
            if ours
                || name.starts_with('.')
                || OTHER_WEIGHTS.contains(&extension)
                || !path.is_file()
            {
                continue;
            }
            let to = partial.folder.join(name);
            fs::copy(&path, &to).map_err(|source| CheckpointError::Write { file: to, source })?;
        }
        Ok(())
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
        for (entry, place) in file.header.tensors.iter().zip(&file.tensors) {
            let Some(ops) = ops_of.get(place) else { continue };
            let tensor = plan.tensor(&plan.ops()[ops.start]);
            let dtypes = (tensor.src_dtype, tensor.dst_dtype);
            let mut offset = file.header.data_start + entry.start;
            for part in chunks(&entry.stored_shape, dtypes.1.bytes(), slot_bytes) {
                let chunk = Chunk { file: at, offset, part, ops: ops.clone(), dtypes };
                offset += chunk.bytes();
                found.push(chunk);
            }
        }
    }
    found
}

/// A destination file, under another name until all of it is on disk.
struct Writer<'a> {
    file: File,
    partial: &'a Partial,
    name: &'a str,
    chunks_left: AtomicUsize,
}

impl<'a> Writer<'a> {
    fn create(partial: &'a Partial, output: &'a OutputFile) -> Result<Self, CheckpointError> {
        let name = output.name.as_str();
        let path = partial.folder.join(format!("{name}.part"));
        let bytes = output.header.file_bytes();
        // Room is reserved first: a disk that is too small is found out before the work.
        let create = || {
            let file = File::create(&path)?;
            match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes)?,
                reserved => reserved?,
            }
            file.write_all_at(&output.header_bytes, 0)?;
            Ok(file)
        };
        let failed = |source: io::Error| CheckpointError::Write { file: path.clone(), source };
        let file = create().map_err(failed)?;
        Ok(Self { file, partial, name, chunks_left: AtomicUsize::new(0) })
    }

    /// Writes a chunk; the last one closes the file.
    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), CheckpointError> {
        self.file.write_all_at(bytes, offset).map_err(|source| self.failed(source))?;
        // AcqRel: whoever closes the file must see that the others' writes are done.
        if self.chunks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish()?;
        }
        Ok(())
    }

    /// Gives the file its name. It need not be on disk yet: a resumed run checks every byte that it keeps.
    fn finish(&self) -> Result<(), CheckpointError> {
        let folder = &self.partial.folder;
        let from = folder.join(format!("{}.part", self.name));
        fs::rename(from, folder.join(self.name)).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> CheckpointError {
        CheckpointError::Write { file: self.partial.folder.join(self.name), source }
    }
}
