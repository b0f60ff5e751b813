//! AdamW and the global norm beside burn: masters, moments and the model's copies change where they lie.

use burn::backend::Cuda;
use burn::tensor::{DType, Tensor};
use lm::nvidia::executor::{Borrowed, Executor, borrow, executor};
use lm::nvidia::kernel::{BUFFER, Scalar};

use super::calls::{FULL, after};
use super::{WANTED, why_not_shape};
use crate::flat::Flat;
use crate::fused::Adam;
use crate::fused::kernels::{EACH, SQUARES, UNITS, update};
use crate::optim::{AdamW, Master};
use crate::trainee::Trainee;

/// A buffer that changes, and where its new numbers go: the same place, unless somebody else holds it.
struct Changing {
    from: Borrowed,
    to: Option<(Tensor<1>, Borrowed)>,
}

impl Changing {
    fn new(tensor: &mut Tensor<1>) -> Option<Self> {
        let mut sole = false;
        tensor.inplace(|tensor| {
            let primitive = tensor.try_into_primitive::<Cuda>().expect("the caller saw that it is on a GPU");
            sole = primitive.can_mut();
            Tensor::from_primitive::<Cuda>(primitive)
        });
        let to = match sole {
            true => None,
            false => {
                let fresh = Tensor::empty(tensor.dims(), (&tensor.device(), tensor.dtype()));
                let borrowed = borrow(&fresh)?;
                Some((fresh, borrowed))
            }
        };
        Some(Self { from: borrow(tensor)?, to })
    }

    fn pointers(&self) -> [u64; 2] {
        let from = self.from.pointer;
        [from, self.to.as_ref().map_or(from, |(_, to)| to.pointer)]
    }

    fn finish(self, tensor: &mut Tensor<1>) {
        if let Some((fresh, _)) = self.to {
            *tensor = fresh;
        }
    }
}

/// What the update of one master reads and writes.
struct Slot {
    parts: [Changing; 3],
    /// Where the copy in the model's number format goes.
    copy: Option<u64>,
    gradient: Borrowed,
    len: usize,
    shape: usize,
}

/// [`AdamW::step`] this way: the norm of all gradients; `None` where it does not go and nothing was done.
pub(crate) fn step(
    trainee: &mut Trainee,
    optimizer: &AdamW,
    gradients: &[Tensor<1>],
    (step, lr): (u64, f64),
) -> Option<f64> {
    let base = trainee.base();
    let on_gpu = base.device() != burn::tensor::Device::flex();
    if !*WANTED || !on_gpu || why_not_shape(base.config(), base.dtype()).is_some() || gradients.is_empty() {
        return None;
    }
    trainee.changing();
    let (slots, buckets) = lm::nvidia::near(&gradients[0], || slots(trainee.changing(), gradients))?;
    let gpu = slots[0].gradient.gpu;
    let shared = executor(gpu)?;
    let mut e = Executor::enter(&shared);
    let e = &mut *e;
    let mark = e.mark();
    let norm = global_norm(e, &slots);
    if norm.is_finite() {
        let clip = optimizer.clip_factor(norm);
        for slot in &slots {
            slot.launch(e, optimizer.on_master(slot.shape, clip, step, lr));
        }
    }
    e.finish();
    e.release(mark);
    if norm.is_finite() {
        let (masters, copies) = trainee.changing();
        for (slot, master) in slots.into_iter().zip(masters) {
            let [value, mean, square] = slot.parts;
            value.finish(&mut master.value);
            mean.finish(&mut master.mean);
            square.finish(&mut master.square);
        }
        if let Some(copies) = copies {
            buckets.into_iter().zip(&mut copies.buckets).for_each(|(bucket, copy)| bucket.finish(copy));
        }
    }
    Some(norm)
}

/// What the update of every master reads and writes, and the buffers of the copies.
fn slots(
    (masters, mut copies): (&mut [Master], Option<&mut Flat>),
    gradients: &[Tensor<1>],
) -> Option<(Vec<Slot>, Vec<Changing>)> {
    let places = copies.as_deref().map(|copies| copies.places().to_vec());
    let buckets = match &mut copies {
        Some(copies) => copies.buckets.iter_mut().map(Changing::new).collect::<Option<Vec<_>>>()?,
        None => Vec::new(),
    };
    let slot = |(index, (master, gradient)): (usize, (&mut Master, &Tensor<1>))| {
        let place = places.as_ref().map(|places| places[index]);
        let copy = place.map(|place| after(buckets[place.bucket].pointers()[1], place.start));
        Slot::new(master, copy, gradient)
    };
    let slots = masters.iter_mut().zip(gradients).enumerate().map(slot).collect::<Option<Vec<_>>>()?;
    Some((slots, buckets))
}

impl Slot {
    fn new(master: &mut Master, copy: Option<u64>, gradient: &Tensor<1>) -> Option<Self> {
        let len = gradient.dims()[0];
        let f32s = [&master.value, &master.mean, &master.square, gradient];
        if len >= u32::MAX as usize || f32s.iter().any(|t| t.dtype() != DType::F32 || t.dims()[0] != len) {
            return None;
        }
        Some(Self {
            gradient: borrow(gradient)?,
            parts: [
                Changing::new(&mut master.value)?,
                Changing::new(&mut master.mean)?,
                Changing::new(&mut master.square)?,
            ],
            copy,
            len,
            shape: master.shape.len(),
        })
    }

    fn launch(&self, e: &mut Executor, with: Adam) {
        let [value, mean, square] = self.parts.each_ref().map(Changing::pointers);
        let copied = self.copy.is_some();
        let copy = self.copy.unwrap_or(value[1]);
        let numbers = [with.clip, with.decay, with.beta1, with.beta2, with.rate, with.root, with.eps];
        let mut scalars: Vec<Scalar> = vec![self.len.into()];
        scalars.extend(numbers.map(|number| Scalar::F32(number as f32)));
        let buffers =
            [value[0], mean[0], square[0], self.gradient.pointer, value[1], mean[1], square[1], copy];
        // SAFETY: all are of the same length, which `new` saw, and are held until the stream is done.
        unsafe {
            e.launch(
                ("adamw", u32::from(copied)),
                ([self.len.div_ceil((UNITS * EACH) as usize), 1, 1], UNITS),
                &buffers,
                &scalars,
                |(s, p, t)| {
                    let b = || BUFFER;
                    update::adamw::Adamw::new(
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
                        (),
                        (),
                        (),
                        (),
                        (),
                        (),
                        (),
                        (),
                        copied,
                    )
                },
            );
        }
    }
}

/// The 2-norm of all gradients together.
fn global_norm(e: &mut Executor, slots: &[Slot]) -> f64 {
    let parts = |slot: &Slot| slot.len.div_ceil((UNITS * SQUARES) as usize);
    let total: usize = slots.iter().map(parts).sum();
    let sums = e.take(total, FULL);
    let mut offset = 0;
    for slot in slots {
        let cubes = parts(slot);
        // SAFETY: `sums` has a place for every cube; the gradients are held.
        unsafe {
            e.launch(
                ("square_sums", 0),
                ([cubes, 1, 1], UNITS),
                &[slot.gradient.pointer, sums],
                &[slot.len.into(), offset.into()],
                |(s, p, t)| update::square_sums::SquareSums::new(s, p, t, BUFFER, BUFFER, (), ()),
            );
        }
        offset += cubes;
    }
    let sums: Vec<f32> = e.download(sums, total);
    sums.iter().map(|&sum| f64::from(sum)).sum::<f64>().sqrt()
}
