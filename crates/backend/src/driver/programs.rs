//! Compiled programs, kept by their text, and the functions in them that kernels start.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};

use syncline_device::{DeviceError, KernelSource};
use syncline_sync::lock;

/// Above this many programs or functions the cache is emptied: a process that makes sources without
/// end must not keep all of them. Work that was prepared keeps what it uses.
const KEPT_MAX: usize = 4_096;

/// The programs of type `P` of one device, each compiled once, and the functions of type `F` in
/// them.
pub struct ProgramCache<P, F> {
    /// By text: sources with the same text share a program.
    programs: Mutex<HashMap<Arc<str>, CompiledProgram<P>>>,
    /// By the key of the source, which a dispatch looks up.
    functions: Mutex<HashMap<usize, Arc<F>>>,
}

/// A program that was compiled. Clones are handles of the same program.
pub struct CompiledProgram<P>(Arc<OnceLock<Result<P, Arc<str>>>>);

impl<P, F> ProgramCache<P, F> {
    /// An empty cache.
    pub fn new() -> Self {
        Self { programs: Mutex::default(), functions: Mutex::default() }
    }

    /// Returns the function that `source` of `kernel` starts: looked up, or found by `find` in the
    /// program that `compile` makes of the source's text. Other programs are compiled at the same
    /// time; a thread that needs this one waits for it.
    ///
    /// # Errors
    /// What `compile` or `find` returns, or that the function's name is not one.
    pub fn get(
        &self,
        kernel: &Arc<str>,
        source: &KernelSource,
        compile: impl FnOnce(&str) -> Result<P, Arc<str>>,
        find: impl FnOnce(CompiledProgram<P>, CString) -> Result<F, String>,
    ) -> Result<Arc<F>, DeviceError> {
        if let Some(found) = lock(&self.functions).get(&source.key()) {
            return Ok(found.clone());
        }
        let failed = |message: Arc<str>| DeviceError::KernelFailed {
            kernel: kernel.clone(),
            task: None,
            message,
        };
        let program = kept(&self.programs, source.text().clone(), CompiledProgram::default);
        program.0.get_or_init(|| compile(source.text())).as_ref().map_err(|log| {
            // Kept like a program: compiling it again would say the same.
            failed(log.clone())
        })?;
        let name = CString::new(&**source.entry()).map_err(|_| {
            failed(format!("`{}` cannot be a function's name", source.entry()).into())
        })?;
        let function = Arc::new(find(program, name).map_err(|message| failed(message.into()))?);
        Ok(kept(&self.functions, source.key(), || function))
    }
}

/// Returns the value under `key`; where there is none, keeps what `make` returns. Empties the cache
/// first where it is full.
fn kept<K: Eq + Hash, V: Clone>(
    cache: &Mutex<HashMap<K, V>>,
    key: K,
    make: impl FnOnce() -> V,
) -> V {
    let mut cache = lock(cache);
    let is_full = cache.len() >= KEPT_MAX && !cache.contains_key(&key);
    let dropped = if is_full { std::mem::take(&mut *cache) } else { HashMap::new() };
    let value = cache.entry(key).or_insert_with(make).clone();
    drop(cache);
    // Under no lock: the driver releases programs.
    drop(dropped);
    value
}

impl<P> Deref for CompiledProgram<P> {
    type Target = P;

    fn deref(&self) -> &P {
        match self.0.get() {
            Some(Ok(program)) => program,
            _ => unreachable!("given out when it has been compiled"),
        }
    }
}

impl<P> Clone for CompiledProgram<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P> Default for CompiledProgram<P> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<P, F> Default for ProgramCache<P, F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P, F> fmt::Debug for ProgramCache<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramCache({} programs)", lock(&self.programs).len())
    }
}

impl<P> fmt::Debug for CompiledProgram<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompiledProgram")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use syncline_device::Backend;

    use super::*;

    fn source(text: &str, entry: &str) -> KernelSource {
        // SAFETY: it is never launched.
        unsafe { KernelSource::native(Backend::OpenCl, text, entry, [1; 3]) }
    }

    /// A cache whose programs are their text, and functions their text and name.
    #[derive(Default)]
    struct Counted {
        cache: ProgramCache<String, (CompiledProgram<String>, CString)>,
        compiled: Cell<u32>,
        found: Cell<u32>,
    }

    impl Counted {
        fn get(&self, source: &KernelSource) -> Result<(String, String), String> {
            let compile = |text: &str| {
                self.compiled.set(self.compiled.get() + 1);
                match text {
                    "wrong" => Err("line 1".into()),
                    _ => Ok(text.to_owned()),
                }
            };
            let find = |program: CompiledProgram<String>, name: CString| {
                self.found.set(self.found.get() + 1);
                match name.as_bytes() {
                    b"none" => Err("no such function".to_owned()),
                    _ => Ok((program, name)),
                }
            };
            let got = self.cache.get(&"kernel".into(), source, compile, find);
            let got = got.map_err(|error| error.to_string())?;
            Ok((String::clone(&got.0), got.1.to_str().unwrap().to_owned()))
        }

        fn counts(&self) -> (u32, u32) {
            (self.compiled.get(), self.found.get())
        }
    }

    #[test]
    fn a_text_is_compiled_once_and_a_source_found_once() {
        let counted = Counted::default();
        let (one, two) = (source("text", "f"), source("text", "g"));
        for _ in 0..3 {
            assert_eq!(counted.get(&one), Ok(("text".to_owned(), "f".to_owned())));
            assert_eq!(counted.get(&two), Ok(("text".to_owned(), "g".to_owned())));
        }
        assert_eq!(counted.counts(), (1, 2));
    }

    #[test]
    fn failures_name_the_kernel_and_are_not_functions() {
        let counted = Counted::default();
        for _ in 0..2 {
            let error = counted.get(&source("wrong", "f")).unwrap_err();
            assert!(error.contains("line 1") && error.contains("kernel"), "{error}");
        }
        assert_eq!(counted.counts(), (1, 0), "the log is kept");
        let error = counted.get(&source("text", "f\0g")).unwrap_err();
        assert!(error.contains("function's name"), "{error}");
        let missing = source("text", "none");
        for _ in 0..2 {
            assert!(counted.get(&missing).unwrap_err().contains("no such function"));
        }
        assert_eq!(counted.counts(), (2, 2));
    }

    #[test]
    fn sources_without_end_are_not_kept() {
        let counted = Counted::default();
        let first = source("text 0", "f");
        counted.get(&first).unwrap();
        for number in 1..=KEPT_MAX {
            counted.get(&source(&format!("text {number}"), "f")).unwrap();
        }
        let kept = lock(&counted.cache.programs).len() + lock(&counted.cache.functions).len();
        assert!(kept <= 2 * KEPT_MAX, "{kept}");
        let before = counted.counts().0;
        counted.get(&first).unwrap();
        assert_eq!(counted.counts().0, before + 1, "it was given up");
    }
}
