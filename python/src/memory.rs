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

/// The name of a capsule nobody has taken yet, as the protocol has it.
const NAME: &CStr = c"dltensor";
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

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// What a [`Managed`] keeps alive until its consumer is done with it.
struct Lent {
    _owner: Arc<dyn Any + Send + Sync>,
    shape: Vec<i64>,
    managed: Managed,
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

    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// Hands the memory over; once only, since two writers could not know of each other.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (stream, max_version);
        if dl_device.is_some_and(|(kind, _)| kind != CPU) || copy == Some(true) {
            return Err(PyBufferError::new_err("this memory lies on the CPU and is lent without a copy"));
        }
        if self.taken.swap(true, SeqCst) {
            return Err(PyRuntimeError::new_err("this memory has been taken already"));
        }
        let mut lent = Box::new(Lent {
            _owner: self.owner.clone(),
            shape: self.shape.clone(),
            managed: Managed {
                tensor: DlTensor {
                    data: std::ptr::with_exposed_provenance_mut(self.start),
                    device: Device { kind: CPU, id: 0 },
                    ndim: self.shape.len() as i32,
                    dtype: self.dtype,
                    shape: std::ptr::null_mut(),
                    strides: std::ptr::null_mut(),
                    byte_offset: 0,
                },
                context: std::ptr::null_mut(),
                deleter: Some(give_back),
            },
        });
        lent.managed.tensor.shape = lent.shape.as_mut_ptr();
        let lent = Box::into_raw(lent);
        // SAFETY: `lent` was just made by Box::into_raw, so it is valid and not shared; it is freed by `give_back`.
        let managed = unsafe {
            (*lent).managed.context = lent.cast();
            &raw mut (*lent).managed
        };
        // SAFETY: the pointer is valid until the deleter runs, the name lives for ever, and the destructor follows
        // the protocol: it frees the memory only if no consumer renamed the capsule.
        let capsule = unsafe { ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(destroy)) };
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
unsafe extern "C" fn give_back(managed: *mut Managed) {
    if managed.is_null() {
        return;
    }
    // SAFETY: `context` is the box that `managed` is a part of; the protocol calls this once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Lent>()) });
}

/// Called by Python when the capsule goes; a consumer that took the memory has renamed it.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    let name: *const c_char = NAME.as_ptr();
    // SAFETY: Python calls this with a live capsule while it holds the interpreter.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name) == 1 {
            give_back(ffi::PyCapsule_GetPointer(capsule, name).cast());
        }
    }
}
