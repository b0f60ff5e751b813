//! Every kernel from what it is specialised for.

use cubecl::prelude::*;

use super::{attention, lora, product, rows, sample};
use crate::nvidia::kernel::{BUFFER, Setting};

const B: BufferCompilationArg = BUFFER;

pub fn embed((s, p, t): Setting) -> impl CubeKernel {
    rows::embed::Embed::new(s, p, t, B, B, B, B, B, (), (), ())
}

pub fn add_and_norm((s, p, t): Setting, splits: u32, [biased, picked, plain]: [bool; 3]) -> impl CubeKernel {
    rows::add_and_norm::AddAndNorm::new(
        s,
        p,
        t,
        B,
        B,
        B,
        B,
        B,
        B,
        (),
        (),
        (),
        (),
        splits,
        biased,
        picked,
        plain,
    )
}

pub fn rotate_and_store((s, p, t): Setting, splits: u32, biased: bool, dim: u32) -> impl CubeKernel {
    rows::rotate_and_store::RotateAndStore::new(
        s,
        p,
        t,
        B,
        B,
        B,
        B,
        B,
        B,
        B,
        B,
        B,
        (),
        (),
        (),
        (),
        splits,
        biased,
        dim,
    )
}

pub fn gate_rows((s, p, t): Setting, biased: bool, extended: bool) -> impl CubeKernel {
    rows::gate_rows::GateRows::new(s, p, t, B, B, B, B, (), biased, extended)
}

pub fn copy_prefix((s, p, t): Setting) -> impl CubeKernel {
    rows::copy_prefix::CopyPrefix::new(s, p, t, B, B, (), (), (), (), (), ())
}

pub fn product(
    (s, p, t): Setting,
    matrices: u32,
    planes: u32,
    (tiles, depth): (u32, u32),
) -> impl CubeKernel {
    let (tiles, depth) = (tiles as usize, depth as usize);
    product::product::Product::new(
        s,
        p,
        t,
        B,
        B,
        B,
        B,
        B,
        (),
        (),
        (),
        (),
        (),
        (),
        (),
        matrices,
        planes,
        tiles,
        depth,
    )
}

pub fn gated_product(
    (s, p, t): Setting,
    [biased, extended]: [bool; 2],
    planes: u32,
    (tiles, depth): (u32, u32),
) -> impl CubeKernel {
    let (tiles, depth) = (tiles as usize, depth as usize);
    product::gated_product::GatedProduct::new(
        s,
        p,
        t,
        B,
        B,
        B,
        B,
        B,
        B,
        (),
        (),
        (),
        biased,
        extended,
        planes,
        tiles,
        depth,
    )
}

pub fn attend_token((s, p, t): Setting, dim: u32, planes: u32) -> impl CubeKernel {
    let dim = dim as usize;
    attention::attend_token::AttendToken::new(s, p, t, B, B, B, B, B, B, B, (), (), (), (), dim, planes)
}

pub fn combine((s, p, t): Setting, dim: u32, plain: bool) -> impl CubeKernel {
    attention::combine::Combine::new(s, p, t, B, B, B, B, (), (), (), dim as usize, plain)
}

pub fn attend_prompt((s, p, t): Setting, dim: u32, planes: u32, plain: bool) -> impl CubeKernel {
    let dim = dim as usize;
    attention::attend_prompt::AttendPrompt::new(
        s,
        p,
        t,
        B,
        B,
        B,
        B,
        B,
        B,
        B,
        B,
        (),
        (),
        (),
        (),
        dim,
        planes,
        plain,
    )
}

pub fn lora_down((s, p, t): Setting, plain: bool) -> impl CubeKernel {
    lora::lora_down::LoraDown::new(s, p, t, B, B, B, (), (), (), (), plain)
}

pub fn lora_up((s, p, t): Setting) -> impl CubeKernel {
    lora::lora_up::LoraUp::new(s, p, t, B, B, B, (), (), (), (), (), ())
}

pub fn survey((s, p, t): Setting) -> impl CubeKernel {
    sample::survey::Survey::new(s, p, t, B, B, (), ())
}

pub fn cutoff((s, p, t): Setting) -> impl CubeKernel {
    sample::cutoff::Cutoff::new(s, p, t, B, B, B, B, B, (), (), (), ())
}

pub fn weigh((s, p, t): Setting, filtered: bool) -> impl CubeKernel {
    sample::weigh::Weigh::new(s, p, t, B, B, B, B, B, (), (), filtered)
}

pub fn choose((s, p, t): Setting, filtered: bool) -> impl CubeKernel {
    sample::choose::Choose::new(s, p, t, B, B, B, B, B, B, B, (), (), (), filtered)
}
