//! NCCL on CPU memory.
