//! Arithmetic on blocks of elements. Safe code on private bytes; every step rounds to the element type,
//! so that folding in rank order gives the same bits on every rank.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

use crate::datatype::DataType;

/// How a reduction folds its contributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Wrapping for integers.
    Sum,
    /// Wrapping for integers.
    Product,
    /// NaN loses against a number.
    Max,
    /// NaN loses against a number.
    Min,
    /// Each contribution is multiplied by the scalar (bytes of the element type) before the sum.
    PreMulSum([u8; 8]),
    /// The sum is divided at the end: the average of integers, truncated towards zero.
    SumPostDiv(u32),
}

impl Operator {
    /// The average over `nranks`: like NCCL, floats are multiplied by 1/n first, integers divided last.
    pub fn average(datatype: DataType, nranks: u32) -> Self {
        if datatype.is_integer() {
            return Self::SumPostDiv(nranks);
        }
        let mut scalar = [0_u8; 8];
        visit(datatype, WriteReciprocal { nranks, out: &mut scalar });
        Self::PreMulSum(scalar)
    }

    /// Applied to each contribution before it is folded.
    pub fn prepare(&self, datatype: DataType, block: &mut [u8]) {
        if let Self::PreMulSum(scalar) = self {
            visit(datatype, Scale { scalar, block });
        }
    }

    /// `acc = acc op x`, element by element.
    pub fn fold(&self, datatype: DataType, acc: &mut [u8], x: &[u8]) {
        visit(datatype, Fold { operator: self, acc, x });
    }

    /// Applied once after the last contribution.
    pub fn finish(&self, datatype: DataType, block: &mut [u8]) {
        if let Self::SumPostDiv(divisor) = self {
            visit(datatype, Divide { divisor: *divisor, block });
        }
    }
}

/// An element type.
trait Element: Copy {
    const BYTES: usize;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
    fn divide(self, divisor: u32) -> Self;
    fn reciprocal(of: u32) -> Self;
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Element for $t {
            const BYTES: usize = size_of::<$t>();
            #[inline(always)]
            fn load(bytes: &[u8]) -> Self { Self::from_ne_bytes(bytes.try_into().expect("chunks are one element long")) }
            #[inline(always)]
            fn store(self, bytes: &mut [u8]) { bytes.copy_from_slice(&self.to_ne_bytes()); }
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { self.max(other) }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { self.min(other) }
            // In 128 bits, because a rank count need not fit into the type.
            #[inline(always)]
            fn divide(self, divisor: u32) -> Self { (i128::from(self) / i128::from(divisor.max(1))) as Self }
            #[inline(always)]
            fn reciprocal(of: u32) -> Self { Self::from(of <= 1) }
        }
    )*};
}
integer!(i8, u8, i32, u32, i64, u64);

macro_rules! float {
    ($($t:ty),*) => {$(
        impl Element for $t {
            const BYTES: usize = size_of::<$t>();
            #[inline(always)]
            fn load(bytes: &[u8]) -> Self { Self::from_ne_bytes(bytes.try_into().expect("chunks are one element long")) }
            #[inline(always)]
            fn store(self, bytes: &mut [u8]) { bytes.copy_from_slice(&self.to_ne_bytes()); }
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { self.max(other) }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { self.min(other) }
            #[inline(always)]
            fn divide(self, divisor: u32) -> Self { self / divisor as Self }
            #[inline(always)]
            fn reciprocal(of: u32) -> Self { 1.0 / of as Self }
        }
    )*};
}
float!(f32, f64);

/// Small floats compute in f32 and round at each step, which equals native arithmetic for one operation.
macro_rules! small_float {
    ($($t:ty, $bits:ty, $bytes:expr);*) => {$(
        impl Element for $t {
            const BYTES: usize = $bytes;
            #[inline(always)]
            fn load(bytes: &[u8]) -> Self {
                Self::from_bits(<$bits>::from_ne_bytes(bytes.try_into().expect("chunks are one element long")))
            }
            #[inline(always)]
            fn store(self, bytes: &mut [u8]) { bytes.copy_from_slice(&self.to_bits().to_ne_bytes()); }
            #[inline(always)]
            fn add(self, other: Self) -> Self { Self::from_f32(self.to_f32() + other.to_f32()) }
            #[inline(always)]
            fn multiply(self, other: Self) -> Self { Self::from_f32(self.to_f32() * other.to_f32()) }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { Self::from_f32(self.to_f32().max(other.to_f32())) }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self { Self::from_f32(self.to_f32().min(other.to_f32())) }
            #[inline(always)]
            fn divide(self, divisor: u32) -> Self { Self::from_f32(self.to_f32() / divisor as f32) }
            #[inline(always)]
            fn reciprocal(of: u32) -> Self { Self::from_f32(1.0 / of as f32) }
        }
    )*};
}
small_float!(f16, u16, 2; bf16, u16, 2; F8E4M3, u8, 1; F8E5M2, u8, 1);

/// Code that is generic over the element type.
trait Visit {
    fn run<E: Element>(self);
}

fn visit(datatype: DataType, visitor: impl Visit) {
    match datatype {
        DataType::Int8 => visitor.run::<i8>(),
        DataType::Uint8 => visitor.run::<u8>(),
        DataType::Int32 => visitor.run::<i32>(),
        DataType::Uint32 => visitor.run::<u32>(),
        DataType::Int64 => visitor.run::<i64>(),
        DataType::Uint64 => visitor.run::<u64>(),
        DataType::Float16 => visitor.run::<f16>(),
        DataType::Float32 => visitor.run::<f32>(),
        DataType::Float64 => visitor.run::<f64>(),
        DataType::Bfloat16 => visitor.run::<bf16>(),
        DataType::Float8e4m3 => visitor.run::<F8E4M3>(),
        DataType::Float8e5m2 => visitor.run::<F8E5M2>(),
    }
}

struct WriteReciprocal<'a> {
    nranks: u32,
    out: &'a mut [u8; 8],
}

impl Visit for WriteReciprocal<'_> {
    fn run<E: Element>(self) {
        E::reciprocal(self.nranks).store(&mut self.out[..E::BYTES]);
    }
}

struct Scale<'a> {
    scalar: &'a [u8; 8],
    block: &'a mut [u8],
}

impl Visit for Scale<'_> {
    fn run<E: Element>(self) {
        let scalar = E::load(&self.scalar[..E::BYTES]);
        for x in self.block.chunks_exact_mut(E::BYTES) {
            scalar.multiply(E::load(x)).store(x);
        }
    }
}

struct Divide<'a> {
    divisor: u32,
    block: &'a mut [u8],
}

impl Visit for Divide<'_> {
    fn run<E: Element>(self) {
        for x in self.block.chunks_exact_mut(E::BYTES) {
            E::load(x).divide(self.divisor).store(x);
        }
    }
}

struct Fold<'a> {
    operator: &'a Operator,
    acc: &'a mut [u8],
    x: &'a [u8],
}

impl Visit for Fold<'_> {
    fn run<E: Element>(self) {
        match self.operator {
            Operator::Sum | Operator::PreMulSum(_) | Operator::SumPostDiv(_) => zip::<E>(self.acc, self.x, E::add),
            Operator::Product => zip::<E>(self.acc, self.x, E::multiply),
            Operator::Max => zip::<E>(self.acc, self.x, E::larger),
            Operator::Min => zip::<E>(self.acc, self.x, E::smaller),
        }
    }
}

#[inline(always)]
fn zip<E: Element>(acc: &mut [u8], x: &[u8], f: impl Fn(E, E) -> E) {
    for (a, x) in acc.chunks_exact_mut(E::BYTES).zip(x.chunks_exact(E::BYTES)) {
        f(E::load(a), E::load(x)).store(a);
    }
}
