"""The kernels that call every function of the packs' headers, built once and run on the emulator, host code and all."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.device import Device, Ran, argument_places, device_memory
from ptxbench.emulator.host.kernels import kernels_of
from ptxbench.emulator.host.process import HostSettings, record
from ptxbench.emulator.host.record import TensorArgument
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.ptx.ir import Module
from ptxbench.emulator.ptx.parse import parse
from ptxbench.knowledge.hub import PACKS
from ptxbench.schema.candidate import Candidate, SourceFile
from ptxbench.schema.problem import DType
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import Built, build

KERNELS = Path(__file__).parents[1] / "kernels" / "packs"
BF16 = np.dtype(ml_dtypes.bfloat16)
Array = NDArray[Any]
_DTYPES = {np.dtype(np.float32): DType.FLOAT32, BF16: DType.BFLOAT16}


def headers(target: Target) -> list[Path]:
    """The headers of a target's packs."""
    return sorted([*(PACKS / "common").glob("*.cuh"), *(PACKS / target.value).glob("*.cuh")])


@functools.cache
def built(target: Target) -> Built:
    """One compilation of all headers and of the kernels that call their functions."""
    files = [*headers(target), KERNELS / "common.cuh", KERNELS / f"{target.value}.cu"]
    sources = tuple(SourceFile(path=path.name, content=path.read_text()) for path in files)
    return build(Candidate(sources=sources, entry_file=f"{target.value}.cu"), target, Settings.load())


def whole(seed: int, *shape: int) -> Array:
    """Whole numbers of -2 to 2 in bf16, whose products and sums are exact."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(BF16)


def arguments(target: Target) -> dict[str, Array]:
    """The tensors of `run`, in its order; outputs hold rubbish."""
    normal = np.random.default_rng(0).standard_normal(256 + 128).astype(np.float32)

    def rubbish(*shape: int) -> Array:
        return np.full(shape, 77, np.float32)

    common = {
        "x": normal[:256],
        "y": rubbish(8, 256),
        "matrix": whole(1, 16, 128),
        "heads": whole(2, 2, 16, 128),
        "out": np.full((48, 128), 77, BF16),
        "sums": whole(3, 16, 128),
        "runs": normal[256:].reshape(2, 64),
        "sent": rubbish(4, 64),
        "added": np.ones((2, 64), np.float32),
        "words": np.zeros(32, np.float32),
        "ring": rubbish(32),
    }
    if target is Target.SM_90A:
        own = {
            "a": whole(4, 64, 64),
            "b": whole(5, 256, 64),
            "across_a": whole(6, 64, 64),
            "across_b": whole(7, 64, 128),
        }
        return {**common, **own, "result": rubbish(64 * 832)}
    own = {
        "a": whole(4, 256, 64),
        "b": whole(5, 128, 64),
        "across_a": whole(6, 64, 128),
        "across_b": whole(7, 128, 128),
    }
    results = {"result": rubbish(3, 128, 128), "result_pair": rubbish(2, 256, 128)}
    return {**common, **own, **results, "floats": rubbish(4, 256), "counts": np.zeros(5, np.float32)}


@dataclass(frozen=True)
class Left:
    """What a call left: its tensors and the result of each launch."""

    before: Mapping[str, Array]
    after: Mapping[str, Array]
    ran: tuple[Ran, ...]


@functools.cache
def called(target: Target, schedule: str) -> Left:
    """`run` of these kernels called once, its launches carried out in one schedule."""
    return run(built(target), "run", arguments(target), schedule)


def run(made: Built, symbol: str, tensors: Mapping[str, Array], schedule: str = "late") -> Left:
    """A function of a build called once on the emulator, host code and all."""
    assert made.library is not None, made.stage.log
    assert made.ptx is not None
    module, kernels = parsed(made.ptx), kernels_of(made.library, Settings.load())
    device = Device(module, kernels, Policy((schedule,)), device_memory())
    places = argument_places([array.nbytes for array in tensors.values()])
    for address, array in zip(places, tensors.values(), strict=True):
        device.memory.place(address, array.nbytes)
        device.memory.write(address, array.tobytes())
    told = [
        TensorArgument(address=address, shape=array.shape, dtype=_DTYPES[array.dtype])
        for address, array in zip(places, tensors.values(), strict=True)
    ]
    recorded = record(made.library, symbol, told, Settings.load(), HostSettings(kernels=kernels))
    assert recorded.ending.kind == "returned", recorded.ending
    device.replay(recorded.operations)
    assert not device.refused
    after = {
        name: np.frombuffer(device.memory.read(address, array.nbytes), array.dtype).reshape(array.shape)
        for address, (name, array) in zip(places, tensors.items(), strict=True)
    }
    return Left(tensors, after, tuple(device.ran))


@functools.cache
def parsed(ptx: Path) -> Module:
    """A PTX file as a module."""
    return parse(ptx.read_text())
