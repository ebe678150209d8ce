"""libnccl.so.2 bound with ctypes, as vLLM's pynccl does it: a table of functions with their argument types,
looked up when the library is opened, the unique id passed by value. Only the standard library is needed."""

import ctypes
from collections.abc import Callable
from typing import Any

ncclResult_t = ctypes.c_int
ncclComm_t = ctypes.c_void_p
ncclWindow_t = ctypes.c_void_p
ncclDataType_t = ctypes.c_int
ncclRedOp_t = ctypes.c_int
cudaStream_t = ctypes.c_void_p
buffer_t = ctypes.c_void_p


class UniqueId(ctypes.Structure):
    """ncclUniqueId: 128 opaque bytes."""

    _fields_ = [("internal", ctypes.c_byte * 128)]


COLLECTIVE_TAIL = (ncclComm_t, cudaStream_t)
# Functions by name, with the types of their arguments. They return ncclResult_t.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(ctypes.c_int),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(ncclComm_t), ctypes.c_int, UniqueId, ctypes.c_int),
    "ncclCommCount": (ncclComm_t, ctypes.POINTER(ctypes.c_int)),
    "ncclCommUserRank": (ncclComm_t, ctypes.POINTER(ctypes.c_int)),
    "ncclCommSplit": (ncclComm_t, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ncclComm_t), ctypes.c_void_p),
    "ncclCommDestroy": (ncclComm_t,),
    "ncclCommAbort": (ncclComm_t,),
    "ncclCommGetAsyncError": (ncclComm_t, ctypes.POINTER(ncclResult_t)),
    "ncclAllReduce": (buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ncclRedOp_t, *COLLECTIVE_TAIL),
    "ncclReduce": (buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ncclRedOp_t, ctypes.c_int, *COLLECTIVE_TAIL),
    "ncclReduceScatter": (buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ncclRedOp_t, *COLLECTIVE_TAIL),
    "ncclAllGather": (buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, *COLLECTIVE_TAIL),
    "ncclBroadcast": (buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    "ncclAlltoAll": (buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, *COLLECTIVE_TAIL),
    "ncclSend": (buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    "ncclRecv": (buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclMemAlloc": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t),
    "ncclMemFree": (ctypes.c_void_p,),
    "ncclCommWindowRegister": (ncclComm_t, buffer_t, ctypes.c_size_t, ctypes.POINTER(ncclWindow_t), ctypes.c_int),
    "ncclCommWindowDeregister": (ncclComm_t, ncclWindow_t),
    "ncclGather": (buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    "ncclScatter": (buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    # Recent vLLM versions bind these functions, and call them only with GPUs.
    "ncclCommSuspend": (ncclComm_t, ctypes.c_int),
    "ncclCommResume": (ncclComm_t,),
    "ncclCommQueryProperties": (ncclComm_t, ctypes.c_void_p),
}
TEXTS = {"ncclGetErrorString": (ncclResult_t,), "ncclGetLastError": (ncclComm_t,)}


class NcclError(RuntimeError):
    """A failed call, with the library's explanation."""


class Nccl:
    """The library: its functions as methods, which raise on failure."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"{name} is not in the table")

    def __init__(self, path: str) -> None:
        self.lib = ctypes.CDLL(path)
        for name, arguments in FUNCTIONS.items():
            bound = getattr(self.lib, name)
            bound.argtypes = arguments
            setattr(self, name, self.checked(name, bound))
        for name, arguments in TEXTS.items():
            bound = getattr(self.lib, name)
            bound.restype, bound.argtypes = ctypes.c_char_p, arguments
            setattr(self, name, bound)

    def checked(self, name: str, bound: Callable[..., int]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            code = bound(*args)
            if code != 0:
                text = self.lib.ncclGetErrorString(code).decode()
                raise NcclError(f"{name}: {text}: {self.lib.ncclGetLastError(None).decode()}")

        return call
