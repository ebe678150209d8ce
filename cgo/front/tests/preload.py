"""A Python program under LD_PRELOAD: a later load by soname gets the preloaded library, no thread starts before NCCL is
used, and children by fork and exec work."""

import ctypes
import os
import subprocess


def threads():
    return len(os.listdir("/proc/self/task"))


with open("/proc/self/maps") as maps:
    loaded = maps.read()
assert "libnccl.so.2" in loaded and "liblightpath" not in loaded
assert threads() == 1
assert subprocess.run(["true"], check=False).returncode == 0

nccl = ctypes.CDLL("libnccl.so.2")
nccl.ncclGetLastError.restype = ctypes.c_char_p
version = ctypes.c_int()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0 and version.value == 23203
assert threads() == 1


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


unique_id = UniqueId()
assert nccl.ncclGetUniqueId(ctypes.byref(unique_id)) == 0, nccl.ncclGetLastError(None)
comm = ctypes.c_void_p()
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
assert nccl.ncclCommInitRank(ctypes.byref(comm), 1, unique_id, 0) == 0, nccl.ncclGetLastError(None)

# os.fork is what multiprocessing and DataLoader do.
pid = os.fork()
if pid == 0:
    code = nccl.ncclGetUniqueId(ctypes.byref(unique_id))
    os._exit(0 if code == 5 and b"forked" in nccl.ncclGetLastError(None) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
# After exec a child has no state of the library.
assert subprocess.run(["bash", "-c", "exit 7"], check=False).returncode == 7
assert nccl.ncclCommDestroy(comm) == 0
