//! The calls of MPI that this crate makes: checked, and one at a time.
//!
//! Every call takes a [`Turn`], which only the world's lock hands out: the library is started for
//! serialised threads, and so no two threads can be inside of it at once.

use std::ffi::{c_char, c_int, c_void};
use std::sync::MutexGuard;

use mpi::ffi;

/// The right to call MPI.
pub(crate) type Turn<'a> = MutexGuard<'a, ()>;

/// A call that MPI refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {text}")]
pub struct MpiError {
    call: &'static str,
    text: String,
}

fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    // Success is zero in every version of the standard.
    if code == 0 {
        return Ok(());
    }
    let mut text = vec![0u8; 1 << 10];
    let mut length = 0;
    // SAFETY: the buffer is longer than any library's longest message, and both pointers outlive
    // the call.
    let told = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let text = match told {
        0 => String::from_utf8_lossy(&text[..length.max(0) as usize]).into_owned(),
        _ => format!("error {code}"),
    };
    Err(MpiError { call, text })
}

/// A length as MPI counts; callers have bounded it.
fn count(bytes: usize) -> c_int {
    c_int::try_from(bytes).expect("groups with larger slots are refused")
}

fn byte() -> ffi::MPI_Datatype {
    // SAFETY: a constant of the library, set before the program starts.
    unsafe { ffi::RSMPI_UINT8_T }
}

/// Starts MPI; the number tells the threads that the library allows.
pub(crate) fn init() -> Result<bool, MpiError> {
    let mut provided = 0;
    // SAFETY: null arguments are allowed; the caller makes sure that this runs once a process.
    let (code, wanted) = unsafe {
        let wanted = ffi::RSMPI_THREAD_SERIALIZED;
        let (none, no_values) = (std::ptr::null_mut(), std::ptr::null_mut());
        (ffi::MPI_Init_thread(none, no_values, wanted, &mut provided), wanted)
    };
    check("MPI_Init_thread", code)?;
    Ok(provided >= wanted)
}

/// Ends MPI; nothing of it may be used afterwards.
pub(crate) fn finalize(_: &Turn<'_>) -> Result<(), MpiError> {
    // SAFETY: the world calls this once, when every group is gone.
    check("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
}

/// Ends all processes of the job.
pub(crate) fn abort(status: i32) {
    // SAFETY: allowed at any time between start and end of MPI, also while another thread is inside
    // of it: nothing goes on afterwards.
    unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, status) };
}

/// Name and version of the library.
pub(crate) fn library(_: &Turn<'_>) -> String {
    let mut text = vec![0 as c_char; 8 << 10];
    let mut length = 0;
    // SAFETY: the buffer is as long as the longest version of any library, and outlives the call.
    unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr(), &mut length) };
    let bytes: Vec<u8> = text[..length.max(0) as usize].iter().map(|&char| char as u8).collect();
    String::from_utf8_lossy(&bytes).lines().next().unwrap_or("").trim_end_matches('\0').to_owned()
}

/// A communicator.
#[derive(Clone, Copy)]
pub(crate) struct Comm(ffi::MPI_Comm);

// SAFETY: a handle, which any thread may use that has the turn.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

/// Something under way.
pub(crate) struct Request(ffi::MPI_Request);

// SAFETY: a handle, which any thread may use that has the turn.
unsafe impl Send for Request {}

/// A message that has been taken from the queue and not been received.
pub(crate) struct Matched {
    message: ffi::MPI_Message,
    pub source: usize,
    pub bytes: usize,
}

impl Comm {
    /// Every process of the job.
    pub(crate) fn world() -> Self {
        // SAFETY: a constant of the library.
        Self(unsafe { ffi::RSMPI_COMM_WORLD })
    }

    pub(crate) fn rank_and_size(self, _: &Turn<'_>) -> Result<(usize, usize), MpiError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: both places outlive the calls.
        unsafe {
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(self.0, &mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(self.0, &mut size))?;
        }
        Ok((rank as usize, size as usize))
    }

    /// Errors come back as results instead of ending the job.
    pub(crate) fn return_errors(self, _: &Turn<'_>) -> Result<(), MpiError> {
        // SAFETY: both are valid handles.
        check("MPI_Comm_set_errhandler", unsafe {
            ffi::MPI_Comm_set_errhandler(self.0, ffi::RSMPI_ERRORS_RETURN)
        })
    }

    /// Those of this communicator that are on the same host; all must call it.
    pub(crate) fn split_by_host(self, _: &Turn<'_>) -> Result<Self, MpiError> {
        // SAFETY: the place of the result outlives the call.
        unsafe {
            let mut made = ffi::RSMPI_COMM_NULL;
            let (kind, info) = (ffi::RSMPI_COMM_TYPE_SHARED, ffi::RSMPI_INFO_NULL);
            let code = ffi::MPI_Comm_split_type(self.0, kind, 0, info, &mut made);
            check("MPI_Comm_split_type", code)?;
            Ok(Self(made))
        }
    }

    /// A copy, in which messages are apart from those of the original.
    ///
    /// # Safety
    /// `made` is not moved or used until the request has completed.
    pub(crate) unsafe fn duplicate(
        self,
        made: &mut Box<ffi::MPI_Comm>,
        _: &Turn<'_>,
    ) -> Result<Request, MpiError> {
        // SAFETY: the caller keeps the place of the result.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            check("MPI_Comm_idup", ffi::MPI_Comm_idup(self.0, &mut **made, &mut request))?;
            Ok(Request(request))
        }
    }

    pub(crate) fn from_raw(raw: ffi::MPI_Comm) -> Self {
        Self(raw)
    }

    pub(crate) fn null() -> ffi::MPI_Comm {
        // SAFETY: a constant of the library.
        unsafe { ffi::RSMPI_COMM_NULL }
    }

    pub(crate) fn barrier(self, _: &Turn<'_>) -> Result<Request, MpiError> {
        // SAFETY: the place of the result outlives the call.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            check("MPI_Ibarrier", ffi::MPI_Ibarrier(self.0, &mut request))?;
            Ok(Request(request))
        }
    }

    /// Everyone's `mine`, by rank, in `all`.
    ///
    /// # Safety
    /// Both stay where they are and are not touched until the request has completed; `all` has room
    /// for as many bytes from each process, and all processes pass as many.
    pub(crate) unsafe fn gather_all(
        self,
        mine: &[u8],
        all: &mut [u8],
        _: &Turn<'_>,
    ) -> Result<Request, MpiError> {
        let bytes = count(mine.len());
        // SAFETY: the caller keeps both.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let (from, to) = (mine.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
            let code =
                ffi::MPI_Iallgather(from, bytes, byte(), to, bytes, byte(), self.0, &mut request);
            check("MPI_Iallgather", code)?;
            Ok(Request(request))
        }
    }

    /// Sends `bytes` to `peer`.
    ///
    /// # Safety
    /// They stay where they are, unchanged, until the request has completed.
    pub(crate) unsafe fn send(
        self,
        bytes: &[u8],
        peer: usize,
        tag: i32,
        _: &Turn<'_>,
    ) -> Result<Request, MpiError> {
        // SAFETY: the caller keeps the bytes.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let start = bytes.as_ptr().cast::<c_void>();
            let code = ffi::MPI_Isend(
                start,
                count(bytes.len()),
                byte(),
                peer as c_int,
                tag,
                self.0,
                &mut request,
            );
            check("MPI_Isend", code)?;
            Ok(Request(request))
        }
    }

    /// The next message with `tag` from `source`, or from anybody, if there is one.
    pub(crate) fn probe(
        self,
        source: Option<usize>,
        tag: i32,
        _: &Turn<'_>,
    ) -> Result<Option<Matched>, MpiError> {
        // SAFETY: all places outlive the calls; the status is written before it is read.
        unsafe {
            let (mut found, mut length) = (0, 0);
            let mut message = ffi::RSMPI_MESSAGE_NULL;
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            let source = source.map_or(ffi::RSMPI_ANY_SOURCE, |source| source as c_int);
            let code = ffi::MPI_Improbe(source, tag, self.0, &mut found, &mut message, &mut status);
            check("MPI_Improbe", code)?;
            if found == 0 {
                return Ok(None);
            }
            check("MPI_Get_count", ffi::MPI_Get_count(&status, byte(), &mut length))?;
            let (source, bytes) = (status.MPI_SOURCE as usize, length.max(0) as usize);
            Ok(Some(Matched { message, source, bytes }))
        }
    }
}

impl Matched {
    /// Receives into `place`, which is as long as the message.
    ///
    /// # Safety
    /// It stays where it is, untouched, until the request has completed.
    pub(crate) unsafe fn receive(
        mut self,
        place: &mut [u8],
        _: &Turn<'_>,
    ) -> Result<Request, MpiError> {
        assert!(place.len() >= self.bytes, "{} bytes for {}", place.len(), self.bytes);
        // SAFETY: the caller keeps the place, which is long enough.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let start = place.as_mut_ptr().cast::<c_void>();
            let code =
                ffi::MPI_Imrecv(start, count(self.bytes), byte(), &mut self.message, &mut request);
            check("MPI_Imrecv", code)?;
            Ok(Request(request))
        }
    }
}

impl Request {
    /// Whether it has completed; once it has, it stays so.
    pub(crate) fn is_done(&mut self, _: &Turn<'_>) -> Result<bool, MpiError> {
        let mut done = 0;
        // SAFETY: the request is valid or, once completed, null, for which the answer is yes.
        let code = unsafe { ffi::MPI_Test(&mut self.0, &mut done, ffi::RSMPI_STATUS_IGNORE) };
        check("MPI_Test", code)?;
        Ok(done != 0)
    }
}

/// Memory of each process that all others can put into.
pub(crate) struct RemoteMemory {
    window: ffi::MPI_Win,
    start: *mut u8,
    pub bytes: usize,
}

// SAFETY: a handle, which any thread may use that has the turn, and an address whose users argue
// for themselves.
unsafe impl Send for RemoteMemory {}
// SAFETY: as above.
unsafe impl Sync for RemoteMemory {}

impl RemoteMemory {
    /// Allocates `bytes` on every process; all must call it.
    pub(crate) fn allocate(comm: Comm, bytes: usize, _: &Turn<'_>) -> Result<Self, MpiError> {
        let mut start: *mut u8 = std::ptr::null_mut();
        // SAFETY: the places of the results outlive the calls. Everyone may put at any time from
        // here on, because all are locked for shared access.
        unsafe {
            let mut window = ffi::RSMPI_WIN_NULL;
            let place = (&raw mut start).cast::<c_void>();
            let size = bytes as ffi::MPI_Aint;
            let code =
                ffi::MPI_Win_allocate(size, 1, ffi::RSMPI_INFO_NULL, comm.0, place, &mut window);
            check("MPI_Win_allocate", code)?;
            let code = ffi::MPI_Win_set_errhandler(window, ffi::RSMPI_ERRORS_RETURN);
            check("MPI_Win_set_errhandler", code)?;
            check("MPI_Win_lock_all", ffi::MPI_Win_lock_all(0, window))?;
            Ok(Self { window, start, bytes })
        }
    }

    /// The first byte of this process's part.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Puts `bytes` at `offset` of `peer`'s part, and returns when they are there.
    pub(crate) fn put(
        &self,
        bytes: &[u8],
        peer: usize,
        offset: usize,
        _: &Turn<'_>,
    ) -> Result<(), MpiError> {
        assert!(offset + bytes.len() <= self.bytes, "{offset} + {}", bytes.len());
        let (length, peer) = (count(bytes.len()), peer as c_int);
        // SAFETY: the bytes stay until the flush has returned; the target range was just checked,
        // and each process has as many bytes.
        unsafe {
            let (start, at) = (bytes.as_ptr().cast::<c_void>(), offset as ffi::MPI_Aint);
            let code = ffi::MPI_Put(start, length, byte(), peer, at, length, byte(), self.window);
            check("MPI_Put", code)?;
            check("MPI_Win_flush", ffi::MPI_Win_flush(peer, self.window))
        }
    }

    /// Makes what others have put visible to this process.
    pub(crate) fn sync(&self, _: &Turn<'_>) -> Result<(), MpiError> {
        // SAFETY: a valid window.
        check("MPI_Win_sync", unsafe { ffi::MPI_Win_sync(self.window) })
    }

    /// Gives the memory back; all must call it, and nobody may hold addresses in it.
    pub(crate) fn free(mut self, _: &Turn<'_>) -> Result<(), MpiError> {
        // SAFETY: the window is locked by `allocate` and not used afterwards.
        unsafe {
            check("MPI_Win_unlock_all", ffi::MPI_Win_unlock_all(self.window))?;
            check("MPI_Win_free", ffi::MPI_Win_free(&mut self.window))
        }
    }
}
