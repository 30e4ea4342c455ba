"""The virtual memory of NVIDIA's driver: addresses first, memory behind them later.

https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html; the numbers and structures are those of its cuda.h.
Calls go to the driver itself, since neither torch nor vLLM offers them piece by piece.
"""

import ctypes
from collections.abc import Callable
from functools import cache

LIBRARY = "libcuda.so.1"
VIRTUAL_MEMORY_SUPPORTED = 102
"""CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"""
OUT_OF_MEMORY = 2
PINNED, ON_DEVICE, READ_AND_WRITE, RECOMMENDED = 1, 1, 3, 1

_Size = ctypes.c_size_t
_Address = ctypes.c_uint64
_Handle = ctypes.c_uint64
_Flags = ctypes.c_uint64


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp; what stays zero in it is not named one by one."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32_metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


_ARGUMENTS = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetAttribute": (ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int),
    "cuMemGetAllocationGranularity": (ctypes.POINTER(_Size), ctypes.POINTER(_Properties), ctypes.c_int),
    "cuMemAddressReserve": (ctypes.POINTER(_Address), _Size, _Size, _Address, _Flags),
    "cuMemAddressFree": (_Address, _Size),
    "cuMemCreate": (ctypes.POINTER(_Handle), _Size, ctypes.POINTER(_Properties), _Flags),
    "cuMemRelease": (_Handle,),
    "cuMemMap": (_Address, _Size, _Size, _Handle, _Flags),
    "cuMemUnmap": (_Address, _Size),
    "cuMemSetAccess": (_Address, _Size, ctypes.POINTER(_Access), _Size),
    "cuMemsetD8_v2": (_Address, ctypes.c_ubyte, _Size),
    "cuCtxSynchronize": (),
}


@cache
def has_virtual_memory() -> bool:
    """Whether there is a driver that can do it, and every GPU that this process sees can too."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    count, device, answer = 0, ctypes.c_int(), ctypes.c_int()
    if _call("cuInit", 0) != 0:
        return False
    while _call("cuDeviceGet", ctypes.byref(device), count) == 0:
        if _call("cuDeviceGetAttribute", ctypes.byref(answer), VIRTUAL_MEMORY_SUPPORTED, device) or not answer.value:
            return False
        count += 1
    return count > 0


class AddressRange:
    """Addresses on one GPU, and pieces of memory behind them. A context of the GPU must be current in the thread."""

    def __init__(self, size: int, device: int) -> None:
        """For `size` bytes on the GPU that CUDA calls `device`. Raises MemoryError where there are not so many."""
        self._properties = _Properties(type=PINNED, location=_Location(ON_DEVICE, device))
        piece = _Size()
        _checked("cuMemGetAllocationGranularity", ctypes.byref(piece), ctypes.byref(self._properties), RECOMMENDED)
        self.piece = piece.value
        """Bytes of a piece: 2 MiB on today's GPUs."""
        self._size = -(-size // self.piece) * self.piece
        begin = _Address()
        _checked("cuMemAddressReserve", ctypes.byref(begin), self._size, 0, 0, 0)
        self.begin = begin.value

    def map(self, index: int) -> int:
        """Memory for a piece, filled with zeros, and what it is known by. Raises MemoryError."""
        handle = _Handle()
        _checked("cuMemCreate", ctypes.byref(handle), self.piece, ctypes.byref(self._properties), 0)
        try:
            _checked("cuMemMap", self._begin_of(index), self.piece, 0, handle, 0)
        except (MemoryError, OSError):
            _call("cuMemRelease", handle)
            raise
        try:
            self._fill(index)
        except (MemoryError, OSError):
            self.unmap(index, handle.value)
            raise
        return handle.value

    def unmap(self, index: int, handle: int) -> None:
        """Gives a piece back, when what the GPU was told to do is done: it may be filling the piece still."""
        _checked("cuCtxSynchronize")
        _checked("cuMemUnmap", self._begin_of(index), self.piece)
        _checked("cuMemRelease", handle)

    def _fill(self, index: int) -> None:
        access = _Access(self._properties.location, READ_AND_WRITE)
        _checked("cuMemSetAccess", self._begin_of(index), self.piece, ctypes.byref(access), 1)
        _checked("cuMemsetD8_v2", self._begin_of(index), 0, self.piece)

    def _begin_of(self, index: int) -> int:
        return self.begin + index * self.piece

    def free(self) -> None:
        """Gives back the addresses, behind which no memory is any more."""
        _checked("cuMemAddressFree", self.begin, self._size)


def _call(function: str, *arguments: object) -> int:
    return _function(function)(*arguments)


@cache
def _function(name: str) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(ctypes.c_int, *_ARGUMENTS[name])((name, ctypes.CDLL(LIBRARY)))


def _checked(function: str, *arguments: object) -> None:
    """Raises MemoryError where there is no memory, and OSError for anything else."""
    code = _call(function, *arguments)
    if code == OUT_OF_MEMORY:
        raise MemoryError(f"the GPU has no memory left ({function})")
    if code != 0:
        raise OSError(code, f"{function} failed: CUDA error {code}")
