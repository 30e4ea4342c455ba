"""The part of NVIDIA's management library that is used, with types that its Python module (`pynvml`) lacks."""

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

T = TypeVar("T")

TEMPERATURE_GPU = 0
"""`NVML_TEMPERATURE_GPU`."""


class Memory(Protocol):
    """Bytes."""

    total: int
    free: int


class Utilization(Protocol):
    """Percent of the last sample period."""

    gpu: int


class Nvml(Protocol):
    """https://docs.nvidia.com/deploy/nvml-api/; every call may raise `NVMLError`."""

    @property
    def NVMLError(self) -> type[Exception]: ...  # noqa: N802  (the library's name)

    def nvmlInit(self) -> None: ...  # noqa: N802
    def nvmlShutdown(self) -> None: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object: ...  # noqa: N802
    def nvmlDeviceGetUUID(self, handle: object, /) -> str | bytes: ...  # noqa: N802
    def nvmlDeviceGetName(self, handle: object, /) -> str | bytes: ...  # noqa: N802
    def nvmlDeviceGetMemoryInfo(self, handle: object, /) -> Memory: ...  # noqa: N802
    def nvmlDeviceGetUtilizationRates(self, handle: object, /) -> Utilization: ...  # noqa: N802
    def nvmlDeviceGetTemperature(self, handle: object, sensor: int, /) -> int: ...  # noqa: N802
    def nvmlDeviceGetPowerUsage(self, handle: object, /) -> int: ...  # noqa: N802


def system_nvml() -> Nvml:
    """The installed module. Importing it needs no driver."""
    return cast(Nvml, importlib.import_module("pynvml"))


@contextmanager
def handles(library: Nvml) -> Generator[list[object]]:
    """One handle a GPU; none where there is no driver, no GPU, or no right to look."""
    try:
        library.nvmlInit()
    except library.NVMLError:
        yield []
        return
    try:
        count = said(library, library.nvmlDeviceGetCount) or 0
        found = [said(library, lambda index=index: library.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        yield [handle for handle in found if handle is not None]
    finally:
        said(library, library.nvmlShutdown)


def said(library: Nvml, ask: Callable[[], T]) -> T | None:
    """What the driver answers, None where it answers with an error, such as "not supported"."""
    try:
        return ask()
    except library.NVMLError:
        return None
