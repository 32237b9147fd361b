//! The engine's memory, lent to Python without a copy, by the DLPack protocol.
//!
//! A [`Memory`] keeps what it points into alive. `torch.from_dlpack` and `numpy.from_dlpack` take it; the tensor
//! they make holds on to it until it is gone, and then the batch's memory goes back to the loader's pool.
//!
//! This is the one file of the extension with `unsafe`: DLPack is a C structure with a destructor.

#![expect(unsafe_code, reason = "DLPack is a C structure whose consumer calls its destructor")]

use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// `kDLCPU`.
const CPU: i32 = 1;

/// The type of the numbers, as DLPack writes it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

impl DataType {
    pub(crate) const U8: DataType = DataType { code: 1, bits: 8, lanes: 1 };
    pub(crate) const F32: DataType = DataType { code: 2, bits: 32, lanes: 1 };
    pub(crate) const I64: DataType = DataType { code: 0, bits: 64, lanes: 1 };
}

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// What consumers of before version 1 of the protocol take.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// What later ones take; it can say that the memory may be written to.
#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// A structure of the protocol with what it points into.
struct Lent<M> {
    managed: M,
    _shape: Vec<i64>,
    _owner: Arc<dyn Any + Send + Sync>,
}

/// One version of the protocol.
trait Protocol: Sized {
    /// The name of a capsule that nobody has taken yet.
    const NAME: &'static CStr;

    fn new(tensor: DlTensor) -> Self;

    fn context(&mut self) -> &mut *mut c_void;
}

impl Protocol for Managed {
    const NAME: &'static CStr = c"dltensor";

    fn new(tensor: DlTensor) -> Managed {
        Managed { tensor, context: std::ptr::null_mut(), deleter: Some(give_back::<Managed>) }
    }

    fn context(&mut self) -> &mut *mut c_void {
        &mut self.context
    }
}

impl Protocol for ManagedVersioned {
    const NAME: &'static CStr = c"dltensor_versioned";

    fn new(tensor: DlTensor) -> ManagedVersioned {
        let deleter = Some(give_back::<ManagedVersioned> as unsafe extern "C" fn(*mut ManagedVersioned));
        ManagedVersioned { version: [1, 0], context: std::ptr::null_mut(), deleter, flags: 0, tensor }
    }

    fn context(&mut self) -> &mut *mut c_void {
        &mut self.context
    }
}

/// A run of bytes, taken from a unique reference so that its consumer may write to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    start: usize,
    bytes: usize,
}

impl Place {
    pub(crate) fn of<T>(memory: &mut [T]) -> Place {
        Place { start: memory.as_mut_ptr().expose_provenance(), bytes: std::mem::size_of_val(memory) }
    }
}

/// Some of the engine's memory with a shape.
#[pyclass(frozen, module = "gristmill._gristmill")]
pub(crate) struct Memory {
    owner: Arc<dyn Any + Send + Sync>,
    start: usize,
    shape: Vec<i64>,
    dtype: DataType,
    taken: AtomicBool,
}

impl Memory {
    /// Lends `place`, which must be memory that `owner` owns, keeps in place and does not touch while it lives.
    pub(crate) fn new(
        owner: Arc<dyn Any + Send + Sync>,
        place: Place,
        shape: Vec<i64>,
        dtype: DataType,
    ) -> Memory {
        let numbers: i64 = shape.iter().product();
        assert_eq!(numbers as usize * usize::from(dtype.bits / 8), place.bytes, "the shape has other bytes");
        Memory { owner, start: place.start, shape, dtype, taken: AtomicBool::new(false) }
    }
}

#[pymethods]
impl Memory {
    /// The dimensions.
    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.shape.clone()
    }

    /// Where it lies, for tests that show that nothing was copied.
    #[getter]
    fn address(&self) -> usize {
        self.start
    }

    #[expect(clippy::unused_self, reason = "the protocol asks the object")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// Hands the memory over; once only, since two writers could not know of each other.
    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments come by value")]
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = stream; // there is only one on the CPU
        if dl_device.is_some_and(|(kind, _)| kind != CPU) || copy == Some(true) {
            return Err(PyBufferError::new_err("this memory lies on the CPU and is lent without a copy"));
        }
        if self.taken.swap(true, SeqCst) {
            return Err(PyRuntimeError::new_err("this memory has been taken already"));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if versioned { self.capsule::<ManagedVersioned>(py) } else { self.capsule::<Managed>(py) }
    }
}

impl Memory {
    fn capsule<'py, M: Protocol>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut shape = self.shape.clone();
        let tensor = DlTensor {
            data: std::ptr::with_exposed_provenance_mut(self.start),
            device: Device { kind: CPU, id: 0 },
            ndim: shape.len() as i32,
            dtype: self.dtype,
            shape: shape.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let lent = Lent { managed: M::new(tensor), _shape: shape, _owner: self.owner.clone() };
        let lent = Box::into_raw(Box::new(lent));
        // SAFETY: `lent` was just made by Box::into_raw, so it is valid and not shared; `give_back` frees it.
        let managed = unsafe {
            *(*lent).managed.context() = lent.cast();
            &raw mut (*lent).managed
        };
        // SAFETY: the pointer is valid until the deleter runs, the name lives for ever, and the destructor follows
        // the protocol: it frees the memory only if no consumer renamed the capsule.
        let capsule = unsafe { ffi::PyCapsule_New(managed.cast(), M::NAME.as_ptr(), Some(destroy::<M>)) };
        if capsule.is_null() {
            // SAFETY: no capsule took the pointer, so it is still ours to free.
            unsafe { give_back(managed) };
            return Err(PyErr::fetch(py));
        }
        // SAFETY: PyCapsule_New returned a new reference that nobody else owns.
        Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
    }
}

/// Called by the consumer when it no longer needs the memory, on any thread.
unsafe extern "C" fn give_back<M: Protocol>(managed: *mut M) {
    if managed.is_null() {
        return;
    }
    // SAFETY: `context` is the box that `managed` is a part of; the protocol calls this once.
    drop(unsafe { Box::from_raw((*(*managed).context()).cast::<Lent<M>>()) });
}

/// Called by Python when the capsule goes; a consumer that took the memory has renamed it.
unsafe extern "C" fn destroy<M: Protocol>(capsule: *mut ffi::PyObject) {
    let name: *const c_char = M::NAME.as_ptr();
    // SAFETY: Python calls this with a live capsule while it holds the interpreter.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name) == 1 {
            give_back::<M>(ffi::PyCapsule_GetPointer(capsule, name).cast());
        }
    }
}
