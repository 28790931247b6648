"""One cache, one build of calls.cu, and the call that the tests make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.emulator.host.device import HostDevice
from ptxbench.emulator.host.process import HostSettings, record
from ptxbench.emulator.host.record import LaunchRecord, TensorArgument
from ptxbench.emulator.host.runtime import Performer
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import DType
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import build

ADDRESS = 0x7000_0000_0100
X = TensorArgument(address=ADDRESS, shape=(64,), dtype=DType.FLOAT32)

Call = Callable[..., LaunchRecord]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return dataclasses.replace(Settings.load(), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def library(settings: Settings) -> Path:
    source = (Path(__file__).parent / "calls.cu").read_text()
    built = build(Candidate.from_source(source), Target.SM_90A, settings)
    assert built.library is not None, built.stage.log
    return built.library


@pytest.fixture(scope="session")
def call(library: Path, settings: Settings) -> Call:
    """Record one function of calls.cu with one tensor of 64 floats."""

    def made(name: str, *, seconds: float = 20, performer: Performer | None = None, sms: int = 0) -> LaunchRecord:
        host = HostSettings(HostDevice(sms=sms), seconds)
        return record(library, name, [X], settings, host, performer)

    return made
