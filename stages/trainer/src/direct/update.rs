//! AdamW and the global norm beside burn: masters, moments and the model's copies change where they lie.

use burn::backend::Cuda;
use burn::tensor::{DType, Tensor};
use lm::model::Model;
use lm::nvidia::executor::{Borrowed, Executor, borrow, borrow_all, executor};
use lm::nvidia::kernel::{BUFFER, Scalar};

use super::calls::{FULL, HALF};
use super::{WANTED, why_not_shape};
use crate::flat::{Flat, Place};
use crate::fused::Adam;
use crate::fused::kernels::{EACH, SQUARES, UNITS, update};
use crate::optim::{AdamW, Master};
use crate::trainee::Trainee;

/// A buffer that changes, and where its new numbers go: the same place, unless somebody else holds it.
struct Changing {
    from: Borrowed,
    to: Option<(Tensor<1>, Borrowed)>,
}

/// Whether nobody else holds a tensor's buffer.
///
/// # Panics
/// When it is on no GPU.
pub(crate) fn sole(tensor: &mut Tensor<1>) -> bool {
    let mut sole = false;
    tensor.inplace(|tensor| {
        let primitive = tensor.try_into_primitive::<Cuda>().expect("the caller saw that it is on a GPU");
        sole = primitive.can_mut();
        Tensor::from_primitive::<Cuda>(primitive)
    });
    sole
}

impl Changing {
    fn new(tensor: &mut Tensor<1>) -> Option<Self> {
        let to = match sole(tensor) {
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

/// The buffers of one kind of numbers.
struct Buffers(Vec<Changing>);

impl Buffers {
    fn new(flat: &mut Flat) -> Option<Self> {
        flat.buckets.iter_mut().map(Changing::new).collect::<Option<_>>().map(Self)
    }

    /// Where the numbers of `bytes` bytes at `place` come from and go to.
    fn at(&self, place: &Place, bytes: usize) -> [u64; 2] {
        self.0[place.bucket].pointers().map(|pointer| pointer + (place.start * bytes) as u64)
    }

    fn finish(self, flat: &mut Flat) {
        self.0.into_iter().zip(&mut flat.buckets).for_each(|(changing, bucket)| changing.finish(bucket));
    }
}

/// What the update of one master reads and writes.
struct Slot {
    /// Value, mean and square: from, to.
    parts: [[u64; 2]; 3],
    /// Where the copy in the model's number format goes.
    copy: Option<u64>,
    gradient: u64,
    len: usize,
    shape: usize,
}

/// Whether a model on this device, of this shape and number format, is updated this way.
pub(crate) fn updates(base: &Model) -> bool {
    let on_gpu = base.device() != burn::tensor::Device::flex();
    *WANTED && on_gpu && why_not_shape(base.config(), base.dtype()).is_none()
}

/// [`AdamW::step`] this way: the norm of all gradients; `None` where it does not go and nothing was done.
pub(crate) fn step(
    trainee: &mut Trainee,
    optimizer: &AdamW,
    gradients: &[Tensor<1>],
    at: (u64, f64),
) -> Option<f64> {
    let f32s = gradients.iter().all(|g| g.dtype() == DType::F32 && g.dims()[0] < u32::MAX as usize);
    if !updates(trainee.base()) || gradients.is_empty() || !f32s {
        return None;
    }
    let norm = step_on(trainee.changing(), optimizer, gradients, at);
    trainee.settle();
    norm
}

/// [`step`] on a trainee's buffers.
fn step_on(
    (masters, states, copies): (&[Master], &mut [Flat; 3], Option<&mut Flat>),
    optimizer: &AdamW,
    gradients: &[Tensor<1>],
    (step, lr): (u64, f64),
) -> Option<f64> {
    let borrowed = borrow_all(gradients)?;
    let shared = executor(borrowed.gpu)?;
    let places = states[0].places().to_vec();
    let [values, means, squares] = states;
    let parts = [Buffers::new(values)?, Buffers::new(means)?, Buffers::new(squares)?];
    let copied = match copies {
        Some(copies) => Some((Buffers::new(copies)?, copies)),
        None => None,
    };
    let slot = |((place, master), &gradient): ((&Place, &Master), &u64)| Slot {
        parts: parts.each_ref().map(|buffers| buffers.at(place, FULL)),
        copy: copied.as_ref().map(|(buffers, _)| buffers.at(place, HALF)[1]),
        gradient,
        len: place.len,
        shape: master.shape.len(),
    };
    let slots: Vec<Slot> = places.iter().zip(masters).zip(&borrowed.pointers).map(slot).collect();
    if slots.iter().zip(gradients).any(|(slot, gradient)| slot.len != gradient.dims()[0]) {
        return None;
    }
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
        let [of_values, of_means, of_squares] = parts;
        of_values.finish(values);
        of_means.finish(means);
        of_squares.finish(squares);
        if let Some((buffers, copies)) = copied {
            buffers.finish(copies);
        }
    }
    Some(norm)
}

impl Slot {
    fn launch(&self, e: &mut Executor, with: Adam) {
        let [value, mean, square] = self.parts;
        let copied = self.copy.is_some();
        let copy = self.copy.unwrap_or(value[1]);
        let numbers = [with.clip, with.decay, with.beta1, with.beta2, with.rate, with.root, with.eps];
        let mut scalars: Vec<Scalar> = vec![self.len.into()];
        scalars.extend(numbers.map(|number| Scalar::F32(number as f32)));
        let buffers = [value[0], mean[0], square[0], self.gradient, value[1], mean[1], square[1], copy];
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
                &[slot.gradient, sums],
                &[slot.len.into(), offset.into()],
                |(s, p, t)| update::square_sums::SquareSums::new(s, p, t, BUFFER, BUFFER, (), ()),
            );
        }
        offset += cubes;
    }
    let sums: Vec<f32> = e.download(sums, total);
    sums.iter().map(|&sum| f64::from(sum)).sum::<f64>().sqrt()
}
