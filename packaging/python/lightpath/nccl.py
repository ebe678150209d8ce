"""libnccl.so.2 bound with ctypes, as vLLM's pynccl does it: a table of functions with their argument types,
looked up when the library is opened, the unique id passed by value. Only the standard library is needed."""

import ctypes
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class Function:
    """One entry of the table."""

    name: str
    restype: Any
    argtypes: tuple[Any, ...]


def function(name: str, *argtypes: Any, restype: Any = ncclResult_t) -> Function:
    return Function(name, restype, argtypes)


COLLECTIVE_TAIL = (ncclComm_t, cudaStream_t)
TABLE = (
    function("ncclGetErrorString", ncclResult_t, restype=ctypes.c_char_p),
    function("ncclGetLastError", ncclComm_t, restype=ctypes.c_char_p),
    function("ncclGetVersion", ctypes.POINTER(ctypes.c_int)),
    function("ncclGetUniqueId", ctypes.POINTER(UniqueId)),
    function("ncclCommInitRank", ctypes.POINTER(ncclComm_t), ctypes.c_int, UniqueId, ctypes.c_int),
    function("ncclCommCount", ncclComm_t, ctypes.POINTER(ctypes.c_int)),
    function("ncclCommUserRank", ncclComm_t, ctypes.POINTER(ctypes.c_int)),
    function("ncclCommSplit", ncclComm_t, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ncclComm_t), ctypes.c_void_p),
    function("ncclCommDestroy", ncclComm_t),
    function("ncclCommAbort", ncclComm_t),
    function("ncclCommGetAsyncError", ncclComm_t, ctypes.POINTER(ncclResult_t)),
    function("ncclAllReduce", buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ncclRedOp_t, *COLLECTIVE_TAIL),
    function(
        "ncclReduce", buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ncclRedOp_t, ctypes.c_int, *COLLECTIVE_TAIL
    ),
    function("ncclReduceScatter", buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ncclRedOp_t, *COLLECTIVE_TAIL),
    function("ncclAllGather", buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, *COLLECTIVE_TAIL),
    function("ncclBroadcast", buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    function("ncclAlltoAll", buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, *COLLECTIVE_TAIL),
    function("ncclSend", buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    function("ncclRecv", buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    function("ncclGroupStart"),
    function("ncclGroupEnd"),
    function("ncclMemAlloc", ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t),
    function("ncclMemFree", ctypes.c_void_p),
    function(
        "ncclCommWindowRegister", ncclComm_t, buffer_t, ctypes.c_size_t, ctypes.POINTER(ncclWindow_t), ctypes.c_int
    ),
    function("ncclCommWindowDeregister", ncclComm_t, ncclWindow_t),
    function("ncclGather", buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    function("ncclScatter", buffer_t, buffer_t, ctypes.c_size_t, ncclDataType_t, ctypes.c_int, *COLLECTIVE_TAIL),
    # Recent vLLM versions bind these functions, and call them only with GPUs.
    function("ncclCommSuspend", ncclComm_t, ctypes.c_int),
    function("ncclCommResume", ncclComm_t),
    function("ncclCommQueryProperties", ncclComm_t, ctypes.c_void_p),
)


class NcclError(RuntimeError):
    """A failed call, with the library's explanation."""


class Nccl:
    """The library: every function of the table as a method that raises on failure."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"{name} is not in the table")

    def __init__(self, path: str) -> None:
        self.lib = ctypes.CDLL(path)
        for f in TABLE:
            bound = getattr(self.lib, f.name)
            bound.restype, bound.argtypes = f.restype, f.argtypes
            setattr(self, f.name, self.checked(f.name, bound) if f.restype is ncclResult_t else bound)

    def checked(self, name: str, bound: Callable[..., int]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            code = bound(*args)
            if code != 0:
                text = self.lib.ncclGetErrorString(code).decode()
                raise NcclError(f"{name}: {text}: {self.lib.ncclGetLastError(None).decode()}")

        call.__name__ = name
        return call
