//! Every kernel compiled to PTX without a device, and what must be in it.

use std::ffi::CStr;
use std::sync::Arc;

use cubecl::cuda::compiler::CudaBackend;
use cubecl::cuda::{CudaCompilationOptions, CudaCompiler, CudaRepresentation};
use cubecl::ir::features::{Features, MmaConfig};
use cubecl::ir::nvidia::SmArch;
use cubecl::ir::types::MatrixLayout;
use cubecl::ir::{
    AddressType, ContiguousElements, DeviceIdentity, DeviceProperties, HardwareProperties,
    MemoryDeviceProperties, MmaProperties, TargetProperties,
};
use cubecl::prelude::*;
use cubecl::profile::TimingMethod;
use cubecl::{Compiler, CubeKernel};
use half::bf16;

use super::super::plan;
use super::{attention, lora, product, rows, sample};

const BUFFER: BufferCompilationArg = BufferCompilationArg { inplace: None };

/// What every launch of a kernel has: cube size, a GPU of compute capability 8.0, its registers.
fn setting(units: u32) -> (KernelSettings, Arc<DeviceProperties>, Arc<TargetProperties>) {
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
    let mut properties = DeviceProperties::new(
        Features::default(),
        MemoryDeviceProperties::new(u64::MAX, 256),
        hardware,
        TimingMethod::Device,
        DeviceIdentity { name: name(), fingerprint: name(), physical: None },
    );
    let half = bf16::elem_type_native();
    let config =
        MmaConfig { a_type: half, b_type: half, cd_type: f32::elem_type_native(), m: 16, n: 8, k: 16 };
    properties.features.matmul.mma.insert(config);
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

fn ptx(kernel: impl CubeKernel) -> String {
    let mut options = CudaCompilationOptions { arch: Some(SmArch::new(80, false)), ..Default::default() };
    options.cpp.supports_features.grid_constants = true;
    let compiled = CudaCompiler::new(CudaBackend::Llvm).compile(kernel.define(), &options).unwrap();
    let CudaRepresentation::Llvm(module) = compiled else { panic!("not compiled by LLVM") };
    // SAFETY: the text ends with a zero.
    let text = unsafe { CStr::from_ptr(module.ptx.as_ptr()) };
    let text = text.to_str().unwrap().to_owned();
    assert!(!text.contains(".local"), "arrays must be registers:\n{text}");
    text
}

fn product_ptx(matrices: u32, tiles: usize, depth: usize) -> String {
    let (settings, properties, target) = setting(128);
    let b = BUFFER;
    ptx(product::product::Product::new(
        settings,
        properties,
        target,
        b.clone(),
        b.clone(),
        b.clone(),
        b.clone(),
        b,
        (),
        (),
        (),
        (),
        (),
        (),
        (),
        matrices,
        4,
        tiles,
        depth,
    ))
}

fn gated_ptx(adapted: bool, planes: u32, tiles: usize, depth: usize) -> String {
    let (settings, properties, target) = setting(planes * 32);
    let b = BUFFER;
    ptx(product::gated_product::GatedProduct::new(
        settings,
        properties,
        target,
        b.clone(),
        b.clone(),
        b.clone(),
        b.clone(),
        b.clone(),
        b,
        (),
        (),
        (),
        adapted,
        adapted,
        planes,
        tiles,
        depth,
    ))
}

/// The text before the first barrier of the loop, from its label on.
fn before_barrier(text: &str) -> &str {
    let end = text.find("bar.sync").or_else(|| text.find("barrier.sync")).unwrap();
    let start = text[..end].rfind("$L__BB").unwrap();
    &text[start..end]
}

#[test]
fn products_load_all_weights_of_a_turn_before_they_wait() {
    for rows in [1, 9, 17, 33, 65] {
        let (tiles, depth) = plan::tiles(rows);
        let (tiles, depth) = (tiles as usize, depth as usize);
        let texts = [
            product_ptx(1, tiles, depth),
            gated_ptx(false, 3, tiles, depth),
            gated_ptx(true, 4, tiles, depth),
        ];
        for text in texts {
            let loads = before_barrier(&text).matches("ld.global.v4").count();
            assert_eq!(loads, 4 * depth, "{tiles} {depth}\n{text}");
            let products = text.matches("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32").count();
            // two for each tile, half and step of a turn; where turns have several, a rest of single steps
            let rest = usize::from(depth > 1);
            assert_eq!(products, 4 * tiles * (depth + rest), "{tiles} {depth}");
        }
        assert!(product_ptx(3, tiles, depth).contains("mma.sync"));
    }
}

#[test]
fn attention_loads_keys_and_values_of_a_block_before_it_waits() {
    for dim in [32, 64, 128usize] {
        let b = BUFFER;
        let (settings, properties, target) = setting(128);
        let decode = ptx(attention::attend_token::AttendToken::new(
            settings,
            properties,
            target,
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            (),
            (),
            (),
            (),
            dim,
            4,
        ));
        let (settings, properties, target) = setting(128);
        let prompt = ptx(attention::attend_prompt::AttendPrompt::new(
            settings,
            properties,
            target,
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            b.clone(),
            (),
            (),
            (),
            (),
            dim,
            4,
        ));
        for text in [decode, prompt] {
            let loads = before_barrier(&text).matches("ld.global.v4").count();
            assert_eq!(loads, dim / 4, "{dim}\n{text}");
        }
        let (settings, properties, target) = setting(dim as u32);
        ptx(attention::combine::Combine::new(
            settings,
            properties,
            target,
            b.clone(),
            b.clone(),
            b.clone(),
            b,
            (),
            (),
            (),
            dim,
        ));
    }
}

#[test]
fn the_other_kernels_compile() {
    let b = || BUFFER;
    let with = setting;
    let (s, p, t) = with(rows::UNITS);
    ptx(rows::embed::Embed::new(s, p, t, b(), b(), b(), b(), b(), (), (), ()));
    let (s, p, t) = with(rows::NORM_UNITS);
    ptx(rows::add_and_norm::AddAndNorm::new(
        s,
        p,
        t,
        b(),
        b(),
        b(),
        b(),
        b(),
        b(),
        (),
        (),
        (),
        (),
        9,
        true,
        true,
    ));
    let (s, p, t) = with(rows::UNITS);
    ptx(rows::rotate_and_store::RotateAndStore::new(
        s,
        p,
        t,
        b(),
        b(),
        b(),
        b(),
        b(),
        b(),
        b(),
        b(),
        b(),
        (),
        (),
        (),
        (),
        9,
        true,
        128,
    ));
    let (s, p, t) = with(rows::UNITS);
    ptx(rows::copy_prefix::CopyPrefix::new(s, p, t, b(), b(), (), (), (), (), (), ()));
    let (s, p, t) = with(rows::UNITS);
    ptx(rows::clear::Clear::new(s, p, t, b(), ()));
    let (s, p, t) = with(rows::UNITS);
    ptx(lora::lora_down::LoraDown::new(s, p, t, b(), b(), b(), (), (), (), ()));
    let (s, p, t) = with(rows::UNITS);
    ptx(lora::lora_up::LoraUp::new(s, p, t, b(), b(), b(), (), (), (), (), (), ()));
    let (s, p, t) = with(rows::UNITS);
    ptx(sample::survey::Survey::new(s, p, t, b(), b(), (), ()));
    let (s, p, t) = with(rows::UNITS);
    ptx(sample::cutoff::Cutoff::new(s, p, t, b(), b(), b(), b(), b(), (), (), (), ()));
    let (s, p, t) = with(rows::UNITS);
    ptx(sample::weigh::Weigh::new(s, p, t, b(), b(), b(), b(), b(), (), (), true));
    let (s, p, t) = with(rows::UNITS);
    ptx(sample::choose::Choose::new(s, p, t, b(), b(), b(), b(), b(), b(), b(), (), (), (), true));
}
