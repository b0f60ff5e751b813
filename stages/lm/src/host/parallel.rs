//! Sharing the work of one operation among threads.

use rayon::prelude::*;

/// Multiply-adds below which waking another thread costs more than it saves.
const WORTH_SHARING: usize = 1 << 18;

/// Runs `f` on every task; on several threads when `work` multiply-adds are worth it.
pub(super) fn each<T: Send>(tasks: Vec<T>, work: usize, f: impl Fn(T) + Sync + Send) {
    if work < WORTH_SHARING || tasks.len() < 2 {
        tasks.into_iter().for_each(f);
    } else {
        tasks.into_par_iter().with_max_len(1).for_each(f);
    }
}

/// A row-major matrix that several threads write at once, each its own cells.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    data: *mut f32,
    len: usize,
    width: usize,
    owner: std::marker::PhantomData<&'a mut [f32]>,
}

// SAFETY: the only access is through `write` and `row`, whose callers keep their cells apart.
unsafe impl Send for Cells<'_> {}
// SAFETY: as above.
unsafe impl Sync for Cells<'_> {}

impl<'a> Cells<'a> {
    pub fn new(data: &'a mut [f32], width: usize) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), width, owner: std::marker::PhantomData }
    }

    /// # Safety
    /// No other thread reads or writes cell `(row, column)` meanwhile.
    #[inline(always)]
    pub unsafe fn write(self, row: usize, column: usize, value: f32) {
        let index = row * self.width + column;
        debug_assert!(column < self.width && index < self.len);
        // SAFETY: inside the slice (checked in debug builds; rows and columns come from its shape),
        // and the caller keeps others away.
        unsafe { *self.data.add(index) = value };
    }

    /// `len` cells of `row` from `column` on.
    ///
    /// # Safety
    /// No other thread reads or writes these cells while the slice lives.
    #[inline(always)]
    pub unsafe fn row(self, row: usize, column: usize, len: usize) -> &'a mut [f32] {
        let index = row * self.width + column;
        assert!(column + len <= self.width && index + len <= self.len);
        // SAFETY: inside the slice, and the caller keeps others away.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(index), len) }
    }
}
