//! Kernels of our own outside burn: compiled to PTX by cubecl's LLVM compiler, and their arguments
//! packed as cubecl's own launcher does.
//!
//! Compiled for compute capability 8.0, which the driver brings to any later GPU, so that a test without
//! a device compiles what a device runs.

use std::ffi::CStr;
use std::sync::Arc;

use cubecl::cuda::compiler::CudaBackend;
use cubecl::cuda::{CudaCompilationOptions, CudaCompiler, CudaRepresentation};
use cubecl::ir::features::Features;
use cubecl::ir::nvidia::SmArch;
use cubecl::ir::types::MatrixLayout;
use cubecl::ir::{
    AddressType, ContiguousElements, DeviceIdentity, DeviceProperties, HardwareProperties,
    MemoryDeviceProperties, MmaProperties, TargetProperties,
};
use cubecl::prelude::*;
use cubecl::profile::TimingMethod;
use cubecl::{Compiler, CubeKernel, InfoBuilder};

/// What a kernel's `new` takes before its arguments.
pub type Setting = (KernelSettings, Arc<DeviceProperties>, Arc<TargetProperties>);

/// What a kernel's `new` takes for each buffer.
pub const BUFFER: BufferCompilationArg = BufferCompilationArg { inplace: None };

/// A number among a kernel's arguments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// For a `u32`.
    U32(u32),
    /// For an `f32`.
    F32(f32),
}

impl From<u32> for Scalar {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<usize> for Scalar {
    fn from(value: usize) -> Self {
        Self::U32(value as u32)
    }
}

impl From<f32> for Scalar {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

/// A compiled kernel.
pub struct Compiled {
    /// PTX, with a zero at its end.
    pub ptx: Vec<std::ffi::c_char>,
    /// The name of the function in it.
    pub entry: String,
    /// Bytes of shared memory that a launch reserves.
    pub shared: usize,
}

impl Compiled {
    /// The PTX as text.
    pub fn text(&self) -> String {
        // SAFETY: the text ends with a zero.
        unsafe { CStr::from_ptr(self.ptx.as_ptr()) }.to_string_lossy().into_owned()
    }
}

/// Cubes of `units` threads, on a GPU of compute capability 8.0.
pub fn setting(units: u32) -> Setting {
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: 32,
        plane_size_max: 32,
        max_bindings: 32,
        max_shared_memory_size: 99 << 10,
        max_cube_count: (u32::MAX, 65_535, 65_535),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        max_vector_size: VectorSize::MAX,
        cube_mma_reserved_shared_memory: 0,
    };
    let name = || "none".to_owned();
    let properties = DeviceProperties::new(
        Features::default(),
        MemoryDeviceProperties::new(u64::MAX, 256),
        hardware,
        TimingMethod::Device,
        DeviceIdentity { name: name(), fingerprint: name(), physical: None },
    );
    let mma = MmaProperties {
        register_size_bits: 32,
        const_plane_size: 32,
        register_layout_a: MatrixLayout::RowMajor,
        register_layout_b: MatrixLayout::ColMajor,
        register_layout_acc: MatrixLayout::RowMajor,
        register_duplication_a: 1,
        register_duplication_b: 1,
        register_duplication_acc: 1,
        contiguous_elements: ContiguousElements::new(|_, _, _| 2),
    };
    let settings = KernelSettings::new(*CubeDim::new_1d(units), ExecutionMode::Unchecked, AddressType::U32);
    (settings, Arc::new(properties), Arc::new(TargetProperties { mma }))
}

/// Compiles a kernel.
///
/// # Errors
/// What the compiler says about a kernel that it does not take.
pub fn compile(kernel: &impl CubeKernel) -> Result<Compiled, String> {
    let mut options = CudaCompilationOptions { arch: Some(SmArch::new(80, false)), ..Default::default() };
    // arguments that are no buffers come in the launch itself
    options.cpp.supports_features.grid_constants = true;
    let compiled = CudaCompiler::new(CudaBackend::Llvm).compile(kernel.define(), &options);
    match compiled.map_err(|error| format!("{error:?}"))? {
        CudaRepresentation::Llvm(module) => {
            Ok(Compiled { ptx: module.ptx, entry: module.entrypoint, shared: module.shared_memory_size })
        }
        CudaRepresentation::Cpp(_) => Err("compiled to C++ instead of PTX".to_owned()),
    }
}

/// What follows the buffers of a launch: the scalars in the order of the signature, and for every
/// buffer a length (which kernels launched unchecked do not read).
pub fn info(buffers: usize, scalars: &[Scalar]) -> Vec<u64> {
    let mut info = InfoBuilder::default();
    for _ in 0..buffers {
        info.metadata.register_buffer(u64::from(u32::MAX), AddressType::U32);
    }
    for scalar in scalars {
        match *scalar {
            Scalar::U32(value) => info.scalars.push(value),
            Scalar::F32(value) => info.scalars.push(value),
        }
    }
    info.finish(AddressType::U32).data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Floats before integers or after, as cubecl sorts them; each kind padded to eight bytes; then
    /// lengths.
    #[test]
    fn scalars_are_packed_by_kind() {
        let words = info(3, &[7u32.into(), 0.5f32.into(), 9u32.into(), 11u32.into()]);
        assert_eq!(words.len(), 1 + 2 + 2);
        let bytes: Vec<u32> = words.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]).collect();
        let float = bytes.iter().position(|&b| b == 0.5f32.to_bits()).unwrap();
        let ints = bytes.windows(3).position(|w| w == [7, 9, 11]).unwrap();
        assert!(float % 2 == 0 && ints % 2 == 0);
        assert_eq!(bytes[6..9], [u32::MAX; 3]);
    }
}
