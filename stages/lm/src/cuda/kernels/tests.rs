//! Every kernel compiled to PTX without a device, and what must be in it.

use cubecl::prelude::*;

use super::super::plan;
use super::{make, rows};
use crate::nvidia::kernel::{compile, setting};

fn ptx(kernel: impl CubeKernel) -> String {
    let text = compile(&kernel).unwrap().text();
    assert!(!text.contains(".local"), "arrays must be registers:\n{text}");
    text
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
        let of = |matrices| ptx(make::product(setting(128), matrices, 4, (tiles, depth)));
        let gated = |adapted, planes| {
            ptx(make::gated_product(setting(planes * 32), [adapted; 2], planes, (tiles, depth)))
        };
        let (texts, three) = ([of(1), gated(false, 3), gated(true, 4)], of(3));
        let (tiles, depth) = (tiles as usize, depth as usize);
        for text in texts {
            let loads = before_barrier(&text).matches("ld.global.v4").count();
            assert_eq!(loads, 4 * depth, "{tiles} {depth}\n{text}");
            let products = text.matches("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32").count();
            // two for each tile, half and step of a turn; where turns have several, a rest of single steps
            let rest = usize::from(depth > 1);
            assert_eq!(products, 4 * tiles * (depth + rest), "{tiles} {depth}");
        }
        assert!(three.contains("mma.sync"));
    }
}

#[test]
fn attention_loads_keys_and_values_of_a_block_before_it_waits() {
    for dim in [32, 64, 128] {
        for plain in [false, true] {
            let texts = [
                ptx(make::attend_token(setting(128), dim, 4)),
                ptx(make::attend_prompt(setting(128), dim, 4, plain)),
            ];
            for text in texts {
                let loads = before_barrier(&text).matches("ld.global.v4").count();
                assert_eq!(loads, dim as usize / 4, "{dim}\n{text}");
            }
            ptx(make::combine(setting(dim), dim, plain));
        }
    }
}

#[test]
fn the_other_kernels_compile() {
    let units = || setting(rows::UNITS);
    ptx(make::embed(units()));
    ptx(make::rotate_and_store(units(), 9, true, 128));
    ptx(make::copy_prefix(units()));
    ptx(make::lora_up(units()));
    ptx(make::survey(units()));
    ptx(make::cutoff(units()));
    for flag in [false, true] {
        ptx(make::add_and_norm(setting(rows::NORM_UNITS), 9, [true, true, flag]));
        ptx(make::gate_rows(units(), flag, !flag));
        ptx(make::lora_down(units(), flag));
        ptx(make::weigh(units(), flag));
        ptx(make::choose(units(), flag));
    }
}
