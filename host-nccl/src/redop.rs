//! User-defined operators: PreMulSum with a scalar of the caller.

use std::collections::HashMap;

use crate::abi::NUM_OPS;
use crate::collective::Reduction;
use crate::datatype::DataType;
use crate::error::{Error, Result};
use crate::reduce::Operator;

/// The operators of one communicator. Their values depend on its handle, as in NCCL, so one of another
/// communicator is very likely refused.
#[derive(Debug)]
pub struct RedOps {
    salt: u32,
    next: u32,
    live: HashMap<i32, (DataType, Reduction)>,
}

impl RedOps {
    /// For the communicator with this handle.
    pub fn new(handle: usize) -> Self {
        let salt = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        Self { salt: salt as u32, next: 0, live: HashMap::new() }
    }

    /// Adds one and gives its `ncclRedOp_t`.
    pub fn create(&mut self, datatype: DataType, reduction: Reduction) -> Result<i32> {
        if self.live.len() >= 1 << 20 {
            return Err(Error::usage("1048576 operators are live on the communicator: destroy some"));
        }
        loop {
            let value = ((self.next ^ self.salt) & 0x7fff_ffff) as i32;
            self.next = self.next.wrapping_add(1);
            if value >= NUM_OPS && !self.live.contains_key(&value) {
                self.live.insert(value, (datatype, reduction));
                return Ok(value);
            }
        }
    }

    /// Removes one.
    pub fn destroy(&mut self, value: i32) -> Result<()> {
        if (0..NUM_OPS).contains(&value) {
            return Err(Error::argument(format!("operator {value} is built in and cannot be destroyed")));
        }
        self.live.remove(&value).map(|_| ()).ok_or_else(|| unknown(value))
    }

    /// The reduction of an `ncclRedOp_t`, for `nranks` ranks.
    pub fn resolve(&self, value: i32, datatype: DataType, nranks: u32) -> Result<Reduction> {
        let operator = match value {
            0 => Operator::Sum,
            1 => Operator::Product,
            2 => Operator::Max,
            3 => Operator::Min,
            4 => Operator::average(datatype, nranks),
            _ => {
                let (of, reduction) = self.live.get(&value).ok_or_else(|| unknown(value))?;
                if *of != datatype {
                    return Err(Error::argument(format!("operator {value} is for {of:?}, not for {datatype:?}")));
                }
                return Ok(*reduction);
            }
        };
        Ok(Reduction::Fixed(operator))
    }
}

fn unknown(value: i32) -> Error {
    Error::argument(format!("operator {value} is neither built in nor one of this communicator"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_live_from_create_to_destroy_and_have_a_type() {
        let mut ops = RedOps::new(0x4e43_0000_0100);
        let value = ops.create(DataType::Float32, Reduction::ScalarAt(8)).unwrap();
        assert!(value >= NUM_OPS);
        assert_eq!(ops.resolve(value, DataType::Float32, 2), Ok(Reduction::ScalarAt(8)));
        assert!(ops.resolve(value, DataType::Int8, 2).is_err());
        assert!(ops.resolve(-1, DataType::Int8, 2).is_err());
        assert!(ops.destroy(0).is_err());
        ops.destroy(value).unwrap();
        assert!(ops.destroy(value).is_err());
        assert!(ops.resolve(value, DataType::Float32, 2).is_err());
    }
}
