//! A layer's projections and attention as kernel launches.

use super::kernels::attention::TILE;
use super::kernels::fragment::STEP;
use super::kernels::product::OUTPUTS;
use super::kernels::rows::UNITS;
use super::kernels::{PLANE, make};
use super::net::{
    ATTENTION_PLANES, CHUNK, Cache, Inputs, Net, Parts, Scratch, Shape, Sizes, row_tiles, size,
};
use super::plan::{PLANES, cube_planes, padded, planes_of, tiles};
use super::stream::{Buffer, Launch};
use super::weights::{DeviceLayer, DeviceLora, Matrix};
use crate::adapter::Projection;

/// Rows that a low-rank part is computed for: address, width, and whether they are plain.
type Rows = (u64, u32, bool);

impl Net {
    /// `matrices` of inputs `x` one below the other, into `out` `[splits, padded rows, outputs]`.
    pub(super) fn product<const N: usize>(
        &self,
        x: u64,
        matrices: [&Matrix; N],
        out: u64,
        k: u32,
        rows: u32,
        splits: u32,
    ) {
        let (tiles, depth) = tiles(rows);
        let rows = padded(rows);
        let nth = |i: usize| matrices.get(i).copied();
        let outs = [0, 1, 2].map(|i| nth(i).map_or(0, |m| m.outs));
        let [w0, w1, w2] = [0, 1, 2].map(|i| nth(i).unwrap_or(matrices[0]).pointer);
        let planes = planes_of(&outs);
        let cube = if splits == 1 { cube_planes(planes, self.processors) } else { PLANES };
        let [outs0, outs1, outs2] = outs;
        let stride = matrices[0].stride / 8;
        let launch = Launch {
            name: "product",
            variant: [N as u32, cube, tiles, depth, 0],
            cubes: [rows / (8 * tiles), planes.div_ceil(cube), splits],
            units: cube * PLANE,
            buffers: &[x, w0, w1, w2, out],
            scalars: &[outs0, outs1, outs2, stride, k / STEP, splits, rows].map(Into::into),
        };
        // SAFETY: `out` has room for the splits.
        unsafe { self.stream().launch(&launch, |s| make::product(s, N as u32, cube, (tiles, depth))) };
    }

    /// Projections of `x` with what adapters add, as partial sums. `plain` rows go through cuBLAS.
    fn project<const N: usize>(
        &self,
        (x, k, plain): Rows,
        matrices: [&Matrix; N],
        names: &[Projection; N],
        layer: &DeviceLayer,
        scratch: &Scratch,
        shape: Shape,
    ) -> Parts {
        let outs: Vec<u32> = matrices.iter().map(|m| m.outs).collect();
        let width: u32 = outs.iter().sum();
        let rows = shape.rows();
        let out = scratch.parts.pointer;
        let mut splits = 1;
        if plain {
            let mut to = out;
            for matrix in matrices {
                self.multiply(matrix, [x, to], rows);
                to += u64::from(matrix.outs) * 4;
            }
        } else {
            if !shape.is_prompt() {
                splits = self.splits(&outs, k);
            }
            self.product(x, matrices, out, k, rows, splits);
        }
        let slab = padded(rows) * width;
        let lora = names.map(|name| layer.lora[name as usize].as_ref());
        if lora.iter().any(Option::is_some) {
            let base = splits * slab;
            if lora.iter().any(Option::is_none) {
                self.stream().clear(out + u64::from(base) * 4, u64::from(slab) * 4);
            }
            let mut offset = 0;
            for (lora, outs) in lora.into_iter().zip(&outs) {
                if let Some(lora) = lora {
                    let place = (width, offset, base);
                    self.low_rank(lora, (x, k, plain), scratch, &scratch.parts, rows, place);
                }
                offset += outs;
            }
            splits += 1;
        }
        Parts { splits, slab }
    }

    /// A product through cuBLAS: from `x` to `y`.
    fn multiply(&self, matrix: &Matrix, operands: [u64; 2], rows: u32) {
        if let Some(products) = &self.weights.products {
            let rows = padded(rows);
            // SAFETY: the scratch has the padded rows.
            unsafe { products.multiply(self.stream(), matrix, operands, rows) };
        }
    }

    /// The output projection of what was attended.
    pub(super) fn output(&self, layer: &DeviceLayer, scratch: &Scratch, shape: Shape) -> Parts {
        let rows = (scratch.attended.pointer, self.sizes.attended(), self.plain());
        self.project(rows, [&layer.output], &[Projection::Output], layer, scratch, shape)
    }

    /// The down projection of the MLP's inner activation.
    pub(super) fn down(&self, layer: &DeviceLayer, scratch: &Scratch, shape: Shape) -> Parts {
        let rows = (scratch.gated.pointer, self.sizes.inner, self.plain());
        self.project(rows, [&layer.down], &[Projection::Down], layer, scratch, shape)
    }

    /// Writes a low-rank part of `x` `[rows, k]` to columns `offset..` of `out`, rows `width` apart,
    /// after `base` numbers.
    fn low_rank(
        &self,
        lora: &DeviceLora,
        (x, k, plain): Rows,
        scratch: &Scratch,
        out: &Buffer,
        rows: u32,
        (width, offset, base): (u32, u32, u32),
    ) {
        let inner = scratch.inner.pointer;
        let down = Launch {
            name: "lora_down",
            variant: [plain.into(), 0, 0, 0, 0],
            cubes: [lora.rank, rows, 1],
            units: UNITS,
            buffers: &[x, lora.a.pointer, inner],
            scalars: &[k.into(), lora.a.stride.into(), size(rows, k, plain).into(), lora.scale.into()],
        };
        let up = Launch {
            name: "lora_up",
            variant: [0; 5],
            cubes: [lora.b.outs.div_ceil(UNITS), rows, 1],
            units: UNITS,
            buffers: &[inner, lora.b.pointer, out.pointer],
            scalars: &[lora.rank, lora.b.stride, lora.b.outs, width, offset, base].map(Into::into),
        };
        // SAFETY: the scratch has room for the largest rank and for one more slab.
        unsafe {
            self.stream().launch(&down, |s| make::lora_down(s, plain));
            self.stream().launch(&up, make::lora_up);
        }
    }

    /// From the normed rows to the attended ones.
    pub(super) fn attention(
        &self,
        layer: &DeviceLayer,
        cache: &Cache,
        (keys, values): &(Buffer, Buffer),
        scratch: &Scratch,
        inputs: &Inputs,
        shape: Shape,
    ) {
        let Sizes { q_heads, kv_heads, dim, hidden, .. } = self.sizes;
        let names = [Projection::Query, Projection::Key, Projection::Value];
        let normed = (scratch.x.pointer, hidden, self.plain() && shape.is_prompt());
        let Parts { splits, slab } =
            self.project(normed, layer.qkv.each_ref(), &names, layer, scratch, shape);
        let bias = layer.qkv_bias.as_ref();
        let (keys, values) = (keys.pointer, values.pointer);
        let launch = Launch {
            name: "rotate_and_store",
            variant: [splits, bias.is_some().into(), dim, 0, 0],
            cubes: [(self.sizes.qkv() / 2).div_ceil(UNITS), shape.rows(), 1],
            units: UNITS,
            buffers: &[
                scratch.parts.pointer,
                bias.map_or(cache.cos.pointer, |bias| bias.pointer),
                cache.cos.pointer,
                cache.sin.pointer,
                inputs.positions,
                inputs.slots,
                scratch.q.pointer,
                keys,
                values,
            ],
            scalars: &[q_heads, kv_heads, cache.capacity, slab].map(Into::into),
        };
        // SAFETY: slots and positions lie in the cache.
        unsafe {
            self.stream().launch(&launch, |s| make::rotate_and_store(s, splits, bias.is_some(), dim));
        }
        match shape {
            Shape::Decode { rows, chunks } => {
                self.attend_token(cache, [keys, values], scratch, inputs, (rows, chunks));
            }
            Shape::Prompt { rows, segments, longest, .. } => {
                self.attend_prompt(cache, [keys, values], scratch, inputs, (rows, segments, longest));
            }
        }
    }

    fn attend_token(
        &self,
        cache: &Cache,
        [keys, values]: [u64; 2],
        scratch: &Scratch,
        inputs: &Inputs,
        (rows, chunks): (u32, u32),
    ) {
        let Sizes { q_heads, kv_heads, dim, .. } = self.sizes;
        let plain = self.plain();
        let scale = 1.0 / (dim as f32).sqrt();
        let (parts, stats) = (scratch.attention.pointer, scratch.attention_stats.pointer);
        let attend = Launch {
            name: "attend_token",
            variant: [dim, ATTENTION_PLANES, 0, 0, 0],
            cubes: [chunks, kv_heads, rows],
            units: ATTENTION_PLANES * PLANE,
            buffers: &[scratch.q.pointer, keys, values, inputs.slots, inputs.positions, parts, stats],
            scalars: &[self.sizes.group().into(), cache.capacity.into(), CHUNK.into(), scale.into()],
        };
        let width = self.sizes.attended();
        let combine = Launch {
            name: "combine",
            variant: [dim, plain.into(), 0, 0, 0],
            cubes: [q_heads, rows, 1],
            units: dim,
            buffers: &[parts, stats, inputs.positions, scratch.attended.pointer],
            scalars: &[CHUNK, chunks, size(rows, width, plain)].map(Into::into),
        };
        // SAFETY: the scratch has room for `rows` and `chunks`.
        unsafe {
            self.stream().launch(&attend, |s| make::attend_token(s, dim, ATTENTION_PLANES));
            self.stream().launch(&combine, |s| make::combine(s, dim, plain));
        }
    }

    fn attend_prompt(
        &self,
        cache: &Cache,
        [keys, values]: [u64; 2],
        scratch: &Scratch,
        inputs: &Inputs,
        (rows, segments, longest): (u32, u32, u32),
    ) {
        let Sizes { kv_heads, dim, .. } = self.sizes;
        let group = self.sizes.group();
        let plain = self.plain();
        let scale = 1.0 / (dim as f32).sqrt();
        let size = size(rows, self.sizes.attended(), plain);
        let launch = Launch {
            name: "attend_prompt",
            variant: [dim, ATTENTION_PLANES, plain.into(), 0, 0],
            cubes: [(longest * group).div_ceil(TILE * ATTENTION_PLANES), kv_heads, segments],
            units: ATTENTION_PLANES * PLANE,
            buffers: &[
                scratch.q.pointer,
                keys,
                values,
                inputs.starts,
                inputs.lengths,
                inputs.slots,
                inputs.positions,
                scratch.attended.pointer,
            ],
            scalars: &[group.into(), cache.capacity.into(), size.into(), scale.into()],
        };
        // SAFETY: the segments lie in the step's rows.
        unsafe { self.stream().launch(&launch, |s| make::attend_prompt(s, dim, ATTENTION_PLANES, plain)) };
    }

    /// The MLP up to its inner activation.
    pub(super) fn gated(&self, layer: &DeviceLayer, scratch: &Scratch, shape: Shape) {
        let Sizes { hidden, inner, .. } = self.sizes;
        let (rows, plain) = (shape.rows(), self.plain());
        let lora = [Projection::Gate, Projection::Up].map(|p| layer.lora[p as usize].as_ref());
        let extended = lora.iter().any(Option::is_some);
        if extended {
            if lora.iter().any(Option::is_none) {
                self.stream().clear(scratch.extra.pointer, u64::from(rows * 2 * inner) * 4);
            }
            for (i, lora) in (0..).zip(lora) {
                if let Some(lora) = lora {
                    let place = (2 * inner, i * inner, 0);
                    let x = (scratch.x.pointer, hidden, plain);
                    self.low_rank(lora, x, scratch, &scratch.extra, rows, place);
                }
            }
        }
        let extra = scratch.extra.pointer;
        let bias = layer.gated_bias.as_ref().map(|bias| bias.pointer);
        let flags = [bias.is_some(), extended];
        let bias = bias.unwrap_or(extra);
        let (x, out) = (scratch.x.pointer, scratch.gated.pointer);
        if plain {
            let up = scratch.up.pointer;
            self.multiply(&layer.gate, [x, out], rows);
            self.multiply(&layer.up, [x, up], rows);
            let launch = Launch {
                name: "gate_rows",
                variant: [flags[0].into(), flags[1].into(), 0, 0, 0],
                cubes: [(inner / 4).div_ceil(UNITS), rows, 1],
                units: UNITS,
                buffers: &[out, up, bias, extra],
                scalars: &[(inner / 4).into()],
            };
            // SAFETY: both have `rows` rows.
            unsafe { self.stream().launch(&launch, |s| make::gate_rows(s, flags[0], flags[1])) };
            return;
        }
        let (tiles, depth) = tiles(rows);
        let halves = inner.div_ceil(OUTPUTS / 2);
        let cube = cube_planes(halves, self.processors);
        let launch = Launch {
            name: "gated_product",
            variant: [u32::from(flags[0]) + 2 * u32::from(flags[1]), cube, tiles, depth, 0],
            cubes: [row_tiles(rows) / tiles, halves.div_ceil(cube), 1],
            units: cube * PLANE,
            buffers: &[x, layer.gate.pointer, layer.up.pointer, bias, extra, out],
            scalars: &[inner, layer.gate.stride / 8, hidden / STEP].map(Into::into),
        };
        // SAFETY: the scratch has room for the padded rows.
        unsafe { self.stream().launch(&launch, |s| make::gated_product(s, flags, cube, (tiles, depth))) };
    }
}
