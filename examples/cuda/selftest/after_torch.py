"""A rank that has imported torch and used the GPU through it: Rejoin's window is at its base all the same.

usage: rejoin run -n 1 --backend cuda -- python3 after_torch.py LIBREJOIN
"""
import ctypes
import sys

import torch

torch.ones(1 << 20, device="cuda").sum().item()
rejoin = ctypes.CDLL(sys.argv[1])
session, address = ctypes.c_void_p(), ctypes.c_uint64()
step, blob, length = ctypes.c_uint32(), ctypes.c_void_p(), ctypes.c_size_t()


def check(status):
    rejoin.rejoin_last_error.restype = ctypes.c_char_p
    assert status == 0, rejoin.rejoin_last_error().decode()


check(rejoin.rejoin_session_open(None, ctypes.byref(session)))
check(rejoin.rejoin_mem_alloc(session, ctypes.c_uint64(1 << 20), ctypes.byref(address)))
check(rejoin.rejoin_state_register(session, b"memory", address, ctypes.c_uint64(1 << 20), 3, ctypes.c_uint64(0)))
check(rejoin.rejoin_setup_done(session, ctypes.byref(step), ctypes.byref(blob), ctypes.byref(length)))
print(f"torch {torch.__version__} imported, first allocation at {address.value:#x}", flush=True)
check(rejoin.rejoin_session_finalize(session))
