//! A layer's projections and attention as kernel launches.

use cubecl::prelude::*;
use cubecl::server::Handle;

use super::kernels::PLANE;
use super::kernels::attention::{TILE, attend_prompt, attend_token, combine};
use super::kernels::fragment::STEP;
use super::kernels::lora::{lora_down, lora_up};
use super::kernels::product::{OUTPUTS, gated_product, product};
use super::kernels::rows::{UNITS, clear, rotate_and_store};
use super::net::{
    ATTENTION_PLANES, CHUNK, Cache, Inputs, Net, Parts, Scratch, Shape, Sizes, arg, cubes, row_tiles,
};
use super::plan::{PLANES, cube_planes, padded, planes_of, tiles};
use super::weights::{DeviceLayer, DeviceLora, Matrix};
use crate::adapter::Projection;

impl Net {
    /// `matrices` of inputs `x` one below the other, into `out` `[splits, padded rows, outputs]`.
    pub(super) fn product<const N: usize>(
        &self,
        x: &Handle,
        matrices: [&Matrix; N],
        out: &Handle,
        k: u32,
        rows: u32,
        splits: u32,
    ) {
        let (tiles, depth) = tiles(rows);
        let rows = padded(rows);
        let nth = |i: usize| matrices.get(i).copied();
        let outs = |i: usize| nth(i).map_or(0, |m| m.outs);
        let handle = |i: usize| arg(&nth(i).unwrap_or(matrices[0]).handle);
        let planes = planes_of(&[outs(0), outs(1), outs(2)]);
        let cube = if splits == 1 { cube_planes(planes, self.processors) } else { PLANES };
        // SAFETY: `out` has room for the splits.
        unsafe {
            product::launch_unchecked(
                self.client(),
                cubes(rows / (8 * tiles), planes.div_ceil(cube), splits),
                CubeDim::new_1d(cube * PLANE),
                arg(x),
                handle(0),
                handle(1),
                handle(2),
                arg(out),
                outs(0),
                outs(1),
                outs(2),
                matrices[0].stride / 8,
                k / STEP,
                splits,
                rows,
                N as u32,
                cube,
                tiles as usize,
                depth as usize,
            );
        }
    }

    /// Projections of `x` with what adapters add, as partial sums.
    pub(super) fn project<const N: usize>(
        &self,
        x: &Handle,
        matrices: [&Matrix; N],
        names: &[Projection; N],
        layer: &DeviceLayer,
        scratch: &Scratch,
        shape: Shape,
    ) -> Parts {
        let outs: Vec<u32> = matrices.iter().map(|m| m.outs).collect();
        let k = self.input(names[0]);
        let mut splits = match shape {
            Shape::Decode { .. } => self.splits(&outs, k),
            Shape::Prompt { .. } => 1,
        };
        let rows = shape.rows();
        self.product(x, matrices, &scratch.parts, k, rows, splits);
        let width: u32 = outs.iter().sum();
        let slab = padded(rows) * width;
        let lora = names.map(|name| layer.lora[name as usize].as_ref());
        if lora.iter().any(Option::is_some) {
            let base = splits * slab;
            if lora.iter().any(Option::is_none) {
                self.clear(&scratch.parts.clone().offset_start(u64::from(base) * 4), slab);
            }
            let mut offset = 0;
            for (lora, outs) in lora.into_iter().zip(&outs) {
                if let Some(lora) = lora {
                    self.low_rank(lora, (x, k), &scratch.inner, &scratch.parts, rows, (width, offset, base));
                }
                offset += outs;
            }
            splits += 1;
        }
        Parts { splits, slab }
    }

    /// Input width of a projection.
    fn input(&self, projection: Projection) -> u32 {
        match projection {
            Projection::Output => self.sizes.attended(),
            Projection::Down => self.sizes.inner,
            _ => self.sizes.hidden,
        }
    }

    /// Writes zeros over the first `numbers` f32 of a buffer, a multiple of 4.
    fn clear(&self, buffer: &Handle, numbers: u32) {
        let lines = numbers / 4;
        let count = cubes(lines.div_ceil(UNITS).min(65_535), 1, 1);
        // SAFETY: the caller names numbers of the buffer.
        unsafe { clear::launch_unchecked(self.client(), count, CubeDim::new_1d(UNITS), arg(buffer), lines) };
    }

    /// Writes a low-rank part of `x` `[rows, k]` to columns `offset..` of `out`, rows `width` apart,
    /// after `base` numbers.
    fn low_rank(
        &self,
        lora: &DeviceLora,
        (x, k): (&Handle, u32),
        inner: &Handle,
        out: &Handle,
        rows: u32,
        (width, offset, base): (u32, u32, u32),
    ) {
        // SAFETY: the scratch has room for the largest rank and for one more slab.
        unsafe {
            lora_down::launch_unchecked(
                self.client(),
                cubes(lora.rank, rows, 1),
                CubeDim::new_1d(UNITS),
                arg(x),
                arg(&lora.a.handle),
                arg(inner),
                k,
                lora.a.stride,
                row_tiles(rows),
                lora.scale,
            );
            lora_up::launch_unchecked(
                self.client(),
                cubes(lora.b.outs.div_ceil(UNITS), rows, 1),
                CubeDim::new_1d(UNITS),
                arg(inner),
                arg(&lora.b.handle),
                arg(out),
                lora.rank,
                lora.b.stride,
                lora.b.outs,
                width,
                offset,
                base,
            );
        }
    }

    /// From the normed rows to the attended ones.
    pub(super) fn attention(
        &self,
        layer: &DeviceLayer,
        cache: &Cache,
        (keys, values): &(Handle, Handle),
        scratch: &Scratch,
        inputs: &Inputs,
        shape: Shape,
    ) {
        let Sizes { q_heads, kv_heads, dim, .. } = self.sizes;
        let group = self.sizes.group();
        let names = [Projection::Query, Projection::Key, Projection::Value];
        let parts = self.project(&scratch.x, layer.qkv.each_ref(), &names, layer, scratch, shape);
        let client = self.client();
        let bias = layer.qkv_bias.as_ref();
        let scale = 1.0 / (dim as f32).sqrt();
        // SAFETY: slots and positions lie in the cache.
        unsafe {
            rotate_and_store::launch_unchecked(
                client,
                cubes((self.sizes.qkv() / 2).div_ceil(UNITS), shape.rows(), 1),
                CubeDim::new_1d(UNITS),
                arg(&scratch.parts),
                arg(bias.unwrap_or(&cache.cos)),
                arg(&cache.cos),
                arg(&cache.sin),
                arg(&inputs.positions),
                arg(&inputs.slots),
                arg(&scratch.q),
                arg(keys),
                arg(values),
                q_heads,
                kv_heads,
                cache.capacity,
                parts.slab,
                parts.splits,
                bias.is_some(),
                dim,
            );
        }
        match shape {
            // SAFETY: the scratch has room for `rows` and `chunks`.
            Shape::Decode { rows, chunks } => unsafe {
                attend_token::launch_unchecked(
                    client,
                    cubes(chunks, kv_heads, rows),
                    CubeDim::new_1d(ATTENTION_PLANES * PLANE),
                    arg(&scratch.q),
                    arg(keys),
                    arg(values),
                    arg(&inputs.slots),
                    arg(&inputs.positions),
                    arg(&scratch.attention),
                    arg(&scratch.attention_stats),
                    group,
                    cache.capacity,
                    CHUNK,
                    scale,
                    dim as usize,
                    ATTENTION_PLANES,
                );
                combine::launch_unchecked(
                    client,
                    cubes(q_heads, rows, 1),
                    CubeDim::new_1d(dim),
                    arg(&scratch.attention),
                    arg(&scratch.attention_stats),
                    arg(&inputs.positions),
                    arg(&scratch.attended),
                    CHUNK,
                    chunks,
                    row_tiles(rows),
                    dim as usize,
                );
            },
            // SAFETY: the segments lie in the step's rows.
            Shape::Prompt { rows, segments, longest, .. } => unsafe {
                let tiles = (longest * group).div_ceil(TILE * ATTENTION_PLANES);
                attend_prompt::launch_unchecked(
                    client,
                    cubes(tiles, kv_heads, segments),
                    CubeDim::new_1d(ATTENTION_PLANES * PLANE),
                    arg(&scratch.q),
                    arg(keys),
                    arg(values),
                    arg(&inputs.starts),
                    arg(&inputs.lengths),
                    arg(&inputs.slots),
                    arg(&inputs.positions),
                    arg(&scratch.attended),
                    group,
                    cache.capacity,
                    row_tiles(rows),
                    scale,
                    dim as usize,
                    ATTENTION_PLANES,
                );
            },
        }
    }

    /// The MLP up to its inner activation.
    pub(super) fn gated(&self, layer: &DeviceLayer, scratch: &Scratch, rows: u32) {
        let Sizes { hidden, inner, .. } = self.sizes;
        let lora = [Projection::Gate, Projection::Up].map(|p| layer.lora[p as usize].as_ref());
        let extended = lora.iter().any(Option::is_some);
        if extended {
            if lora.iter().any(Option::is_none) {
                self.clear(&scratch.extra, rows * 2 * inner);
            }
            for (i, lora) in (0..).zip(lora) {
                if let Some(lora) = lora {
                    let place = (2 * inner, i * inner, 0);
                    self.low_rank(lora, (&scratch.x, hidden), &scratch.inner, &scratch.extra, rows, place);
                }
            }
        }
        let (tiles, depth) = tiles(rows);
        let halves = inner.div_ceil(OUTPUTS / 2);
        let cube = cube_planes(halves, self.processors);
        let bias = layer.gated_bias.as_ref();
        // SAFETY: the scratch has room for the padded rows.
        unsafe {
            gated_product::launch_unchecked(
                self.client(),
                cubes(padded(rows) / (8 * tiles), halves.div_ceil(cube), 1),
                CubeDim::new_1d(cube * PLANE),
                arg(&scratch.x),
                arg(&layer.gate.handle),
                arg(&layer.up.handle),
                arg(bias.unwrap_or(&scratch.extra)),
                arg(&scratch.extra),
                arg(&scratch.gated),
                inner,
                layer.gate.stride / 8,
                hidden / STEP,
                bias.is_some(),
                extended,
                cube,
                tiles as usize,
                depth as usize,
            );
        }
    }
}
