//! The host's access to buffers: reads and writes that wait for pending work, and maps that keep
//! work off.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use syncline_copy::{CopyError, CopyPlan};
use syncline_tensor::{Region, View};

use super::uses::HostUse;
use super::{Buffer, BufferView};
use crate::element::{as_bytes, as_bytes_mut};
use crate::{Deadline, DeviceError, Element};

impl Buffer {
    /// `count` elements from byte `offset` on, after all work that writes this buffer.
    ///
    /// # Errors
    /// Bytes outside, or the failure of work that should have written them.
    pub fn read<T: Element>(&self, offset: u64, count: usize) -> Result<Vec<T>, DeviceError> {
        self.check(offset, (count as u64).saturating_mul(size_of::<T>() as u64))?;
        // A buffer larger than any memory is refused here, before room for a copy of it is asked
        // for.
        self.allocate()?;
        // SAFETY: all bits zero are a value of an `Element`.
        let mut elements = vec![unsafe { std::mem::zeroed::<T>() }; count];
        self.read_into(offset, &mut elements, Deadline::NEVER)?;
        Ok(elements)
    }

    /// As [`Buffer::read`], into `target`, and no longer than `deadline`.
    pub fn read_into<T: Element>(
        &self,
        offset: u64,
        target: &mut [T],
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        let target = as_bytes_mut(target);
        let end = self.check(offset, target.len() as u64)?;
        let _entered = self.enter(HostUse::new(false, false), deadline)?;
        let memory = self.allocate()?;
        self.refuse_failed(offset, end)?;
        // SAFETY: the range was checked; work and hosts that write are kept off while `_entered`
        // lives.
        unsafe { memory.read(offset, target) }
    }

    /// Writes `source` at byte `offset`, after all work that uses this buffer.
    pub fn write<T: Element>(&self, offset: u64, source: &[T]) -> Result<(), DeviceError> {
        self.write_from(offset, source, Deadline::NEVER)
    }

    /// As [`Buffer::write`], and no longer than `deadline`.
    pub fn write_from<T: Element>(
        &self,
        offset: u64,
        source: &[T],
        deadline: Deadline,
    ) -> Result<(), DeviceError> {
        let source = as_bytes(source);
        let end = self.check(offset, source.len() as u64)?;
        let _entered = self.enter(HostUse::new(true, false), deadline)?;
        let memory = self.allocate()?;
        // SAFETY: the range was checked; all other users are kept off while `_entered` lives.
        unsafe { memory.write(offset, source) }?;
        self.hazards().forgive(&bytes_at(offset, end));
        Ok(())
    }

    /// The bytes, to read in place. While the map lives, work that writes the buffer is refused; so
    /// is what the thread that made the map would have to wait for it for: [`Buffer::write`],
    /// [`Buffer::map_mut`].
    ///
    /// # Errors
    /// Also where the host cannot reach the device's memory.
    pub fn map(&self, deadline: Deadline) -> Result<Map<'_>, DeviceError> {
        let entered = self.enter(HostUse::new(false, true), deadline)?;
        let pointer = self.mapped_pointer()?;
        self.refuse_failed(0, self.bytes())?;
        Ok(Map { pointer, entered })
    }

    /// The bytes, to read and write in place. While the map lives, work on the buffer is refused;
    /// so are other reads, writes and maps by the thread that made it, which would wait for
    /// themselves. What failed work left behind is the caller's to overwrite.
    pub fn map_mut(&self, deadline: Deadline) -> Result<MapMut<'_>, DeviceError> {
        let entered = self.enter(HostUse::new(true, true), deadline)?;
        let pointer = self.mapped_pointer()?;
        self.hazards().forgive(&bytes_at(0, self.bytes()));
        Ok(MapMut(Map { pointer, entered }))
    }

    /// The sole right to give work to this buffer, or to read it if `writes` is false, until the
    /// claim is dropped.
    ///
    /// Waits for work and hosts that use the buffer. From then on both are kept off as by a map,
    /// but the memory need not be within the host's reach: the holder works on it with
    /// `submit_claimed` of its lanes, which leaves no traces in the books that order work.
    ///
    /// # Errors
    /// As [`Buffer::map`] and [`Buffer::map_mut`], except for memory that the host cannot reach.
    pub fn claim(&self, writes: bool, deadline: Deadline) -> Result<Claim<'_>, DeviceError> {
        let entered = self.enter(HostUse::new(writes, true), deadline)?;
        self.allocate()?;
        match writes {
            true => self.hazards().forgive(&bytes_at(0, self.bytes())),
            false => self.refuse_failed(0, self.bytes())?,
        }
        Ok(Claim(entered))
    }

    fn mapped_pointer(&self) -> Result<*mut u8, DeviceError> {
        let pointer = self.allocate()?.host_pointer();
        pointer.map(|pointer| pointer.as_ptr()).ok_or_else(|| DeviceError::Unsupported {
            device: self.device(),
            what: "mapping a buffer that the host cannot reach (use `read` and `write`)".into(),
        })
    }

    pub(super) fn enter(
        &self,
        host: HostUse,
        deadline: Deadline,
    ) -> Result<Entered<'_>, DeviceError> {
        self.0.uses.enter(self, host, deadline)?;
        Ok(Entered { buffer: self, host, _not_send: PhantomData })
    }

    fn check(&self, start: u64, bytes: u64) -> Result<u64, DeviceError> {
        match start.checked_add(bytes) {
            Some(end) if end <= self.bytes() => Ok(end),
            end => Err(DeviceError::OutOfBounds {
                buffer: self.id(),
                start,
                end: end.unwrap_or(u64::MAX),
                bytes: self.bytes(),
            }),
        }
    }

    pub(super) fn refuse_failed(&self, start: u64, end: u64) -> Result<(), DeviceError> {
        self.hazards().failure(&bytes_at(start, end)).map_or(Ok(()), Err)
    }
}

impl BufferView {
    /// The elements in the view's order, after all work that writes the buffer.
    ///
    /// # Errors
    /// As [`Buffer::read`]; and where elements of the view are not `T`s, or a broadcast view has
    /// more of them than there is memory.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, DeviceError> {
        self.check_element::<T>()?;
        let Some((start, end)) = self.view.span() else { return Ok(Vec::new()) };
        self.check_room()?;
        let bytes: Vec<u8> = self.buffer.read(start, (end - start) as usize)?;
        // SAFETY: all bits zero are a value of an `Element`.
        let mut elements = vec![unsafe { std::mem::zeroed::<T>() }; self.view.elements() as usize];
        let plan = CopyPlan::new(&self.moved_back(start)?, &self.packed()?)?;
        // SAFETY: the source view was moved to where `bytes` begins and ends with it; the target is
        // as large as all elements together; the two are different memory.
        unsafe { plan.run(bytes.as_ptr(), elements.as_mut_ptr().cast()) };
        Ok(elements)
    }

    /// Replaces the elements, given in the view's order, after all work that uses the buffer.
    ///
    /// # Errors
    /// Where there are not as many, or elements of the view are not `T`s, or share bytes.
    pub fn write_all<T: Element>(&self, elements: &[T]) -> Result<(), DeviceError> {
        self.check_element::<T>()?;
        if self.view.is_broadcast() {
            return Err(DeviceError::BroadcastWrite { buffer: self.buffer.id() });
        }
        if elements.len() as u64 != self.view.elements() {
            return Err(DeviceError::Copy(CopyError::ShapeMismatch {
                source_shape: vec![elements.len() as u64],
                target_shape: self.view.shape().to_vec(),
            }));
        }
        let Some((start, end)) = self.view.span() else { return Ok(()) };
        if self.view.is_contiguous() {
            return self.buffer.write(start, elements);
        }
        let plan = CopyPlan::new(&self.packed()?, &self.moved_back(start)?)?;
        let entered = self.buffer.enter(HostUse::new(true, false), Deadline::NEVER)?;
        let memory = self.buffer.allocate()?;
        let mut bytes = vec![0u8; (end - start) as usize];
        // SAFETY: the range lies in the buffer, as every `BufferView` does; other users are kept
        // off by `entered`.
        unsafe { memory.read(start, &mut bytes)? };
        // SAFETY: as in `to_vec`, the other way round.
        unsafe { plan.run(elements.as_ptr().cast(), bytes.as_mut_ptr()) };
        // SAFETY: as for the read.
        unsafe { memory.write(start, &bytes)? };
        self.buffer.hazards().forgive(&Region::of(&self.view));
        drop(entered);
        Ok(())
    }

    /// The elements of a broadcast view can be far more than the buffer has bytes, and the system
    /// promises memory that it cannot give: what the device could not hold is refused.
    fn check_room(&self) -> Result<(), DeviceError> {
        let bytes = self.view.elements().saturating_mul(self.view.dtype().bytes());
        let used = self.buffer.0.allocator.memory_use();
        if bytes <= used.cap_bytes.max(self.buffer.bytes()) {
            return Ok(());
        }
        let (device, in_use_bytes) = (self.buffer.device(), used.in_use_bytes);
        Err(DeviceError::OutOfMemory { device, bytes, in_use_bytes, cap_bytes: used.cap_bytes })
    }

    fn check_element<T: Element>(&self) -> Result<(), DeviceError> {
        match T::holds(self.view.dtype()) {
            true => Ok(()),
            false => Err(DeviceError::Copy(CopyError::ElementSize {
                source_dtype: self.view.dtype(),
                target_dtype: T::DTYPE,
            })),
        }
    }

    /// The same view of a buffer that begins at byte `start` of this one.
    fn moved_back(&self, start: u64) -> Result<View, DeviceError> {
        let view = &self.view;
        let offset = view.offset() - start;
        let moved = View::strided(view.dtype(), offset, view.shape(), view.strides());
        Ok(moved.expect("the span of the view begins at `start`"))
    }

    fn packed(&self) -> Result<View, DeviceError> {
        let packed = View::contiguous(self.view.dtype(), self.view.shape());
        packed.map_err(|error| DeviceError::BadArgument { arg: 0, message: error.to_string() })
    }
}

fn bytes_at(start: u64, end: u64) -> Region {
    Region::of(&View::bytes_at(start, end - start).expect("inside a buffer that has memory"))
}

/// Keeps work off for as long as it lives.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    buffer: &'a Buffer,
    host: HostUse,
    /// Maps stay on their thread: that is how circles of threads that wait for each other are
    /// found.
    _not_send: PhantomData<*mut u8>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.buffer.0.uses.leave(self.host);
    }
}

/// A buffer kept from everybody else. See [`Buffer::claim`].
#[derive(Debug)]
pub struct Claim<'a>(Entered<'a>);

impl Claim<'_> {
    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        self.0.buffer
    }

    /// Where the host reaches the memory; `None` if it cannot.
    pub fn host_pointer(&self) -> Option<*mut u8> {
        self.0.buffer.host_pointer().map(|pointer| pointer.as_ptr())
    }
}

/// A buffer's bytes, read in place. A map stays on the thread that made it; references to it may be
/// shared.
///
/// ```compile_fail
/// use syncline_device::{Deadline, cpu::CpuDevice};
///
/// let device = CpuDevice::open_default().unwrap();
/// let buffer = device.buffer(16);
/// let map = buffer.map(Deadline::NEVER).unwrap();
/// std::thread::scope(|threads| {
///     threads.spawn(move || drop(map));
/// });
/// ```
#[derive(Debug)]
pub struct Map<'a> {
    pointer: *mut u8,
    entered: Entered<'a>,
}

// SAFETY: a map is a shared slice of bytes that nobody writes; `Entered` is a reference to a `Sync`
// buffer.
unsafe impl Sync for Map<'_> {}

impl Deref for Map<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory has at least as many bytes as the buffer, initialised, and lives as
        // long as the buffer; who would write is kept off while `entered` lives (a `MapMut` hands
        // out `&self` and `&mut self` only).
        unsafe { std::slice::from_raw_parts(self.pointer, self.entered.buffer.bytes() as usize) }
    }
}

/// A buffer's bytes, read and written in place.
#[derive(Debug)]
pub struct MapMut<'a>(Map<'a>);

impl Deref for MapMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for MapMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.0.entered.buffer.bytes() as usize;
        // SAFETY: as in `Map::deref`; all other users are kept off, and `&mut self` makes this the
        // only slice.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer, bytes) }
    }
}
