//! Memory of a GPU that work outside burn uses, as a stack.

use cudarc::driver::{DriverError, sys};

/// Bytes by which the arena grows.
const STEP: usize = 64 << 20;
/// Every allocation begins at a multiple of this.
const ALIGN: usize = 256;

/// A stack of device memory. Addresses are reserved for all of the GPU's memory at once and get memory
/// behind them as the stack grows, so that nothing ever moves and no gap is left between allocations.
#[derive(Debug)]
pub(super) struct Arena {
    base: u64,
    reserved: usize,
    blocks: Vec<sys::CUmemGenericAllocationHandle>,
    top: usize,
    peak: usize,
    /// Where the memory comes from; none for an arena that only counts.
    gpu: Option<usize>,
}

/// A height of the stack, to return to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(usize);

impl Arena {
    /// An empty arena on the GPU whose context is current.
    pub fn new(gpu: usize, total: usize) -> Result<Self, DriverError> {
        let reserved = total.next_multiple_of(STEP);
        let mut base = 0;
        // SAFETY: `base` receives the address.
        unsafe { sys::cuMemAddressReserve(&mut base, reserved, 0, 0, 0).result()? };
        Ok(Self { base, reserved, blocks: Vec::new(), top: 0, peak: 0, gpu: Some(gpu) })
    }

    /// An arena without memory, which counts what would be taken.
    pub fn counting() -> Self {
        Self { base: 1 << 40, reserved: 1 << 50, blocks: Vec::new(), top: 0, peak: 0, gpu: None }
    }

    /// Room for `bytes` on top of the stack.
    pub fn take(&mut self, bytes: usize) -> Result<u64, DriverError> {
        let start = self.top;
        let end = (start + bytes).next_multiple_of(ALIGN);
        if let Some(gpu) = self.gpu {
            while self.blocks.len() * STEP < end {
                self.grow(gpu)?;
            }
        }
        self.top = end;
        self.peak = self.peak.max(end);
        Ok(self.base + start as u64)
    }

    pub fn mark(&self) -> Mark {
        Mark(self.top)
    }

    /// Gives up everything above `mark`.
    pub fn release(&mut self, mark: Mark) {
        self.top = self.top.min(mark.0);
    }

    /// Bytes of the GPU's memory behind the arena.
    pub fn held(&self) -> usize {
        self.blocks.len() * STEP
    }

    /// The most that was ever taken at once.
    pub fn peak(&self) -> usize {
        self.peak
    }

    fn grow(&mut self, gpu: usize) -> Result<(), DriverError> {
        let start = self.blocks.len() * STEP;
        if start + STEP > self.reserved {
            return Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        // SAFETY: a plain struct whose zero is valid; what matters is set below.
        let mut wanted: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        wanted.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location = place(gpu);
        let access = sys::CUmemAccessDesc {
            location: wanted.location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let mut block = 0;
        // SAFETY: the addresses were reserved and have nothing behind them yet.
        unsafe {
            sys::cuMemCreate(&mut block, STEP, &wanted, 0).result()?;
            sys::cuMemMap(self.base + start as u64, STEP, 0, block, 0).result()?;
            sys::cuMemSetAccess(self.base + start as u64, STEP, &access, 1).result()?;
        }
        self.blocks.push(block);
        Ok(())
    }

    /// Gives all memory back to the GPU; nothing may be in use.
    pub fn clear(&mut self) -> Result<(), DriverError> {
        self.top = 0;
        // from the top down, so that what is left after an error is still one run
        while let Some(block) = self.blocks.pop() {
            let start = self.base + (self.blocks.len() * STEP) as u64;
            // SAFETY: mapped by `grow`; the caller waits for the GPU beforehand.
            unsafe {
                sys::cuMemUnmap(start, STEP).result()?;
                sys::cuMemRelease(block).result()?;
            }
        }
        Ok(())
    }
}

/// A GPU's own memory.
fn place(gpu: usize) -> sys::CUmemLocation {
    // SAFETY: a plain struct of two ints, of which newer headers have the second in a union.
    let mut location: sys::CUmemLocation = unsafe { std::mem::zeroed() };
    location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    // SAFETY: as above; the struct is two ints long.
    unsafe { *(&raw mut location).cast::<std::ffi::c_int>().add(1) = gpu as std::ffi::c_int };
    location
}
