"""What ordinary host code leaves in the record, and what it is told, with no GPU."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ptxbench.emulator.async_.tensormap import Im2col, Swizzle, TensorMap, Type
from ptxbench.emulator.host.kernels import kernels_of
from ptxbench.emulator.host.memory import BASE, AddressMap, reserved_ranges
from ptxbench.emulator.host.process import record
from ptxbench.emulator.host.record import (
    GIVEN_STREAM,
    Allocate,
    Copy,
    Fill,
    Free,
    LaunchRecord,
    Operation,
    Relocation,
    TensorArgument,
)
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import DType
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.suite import load_problem
from ptxbench.toolchain.build import build

from .conftest import ADDRESS, Call, X

ROOT = Path(__file__).parents[3]
CANDIDATES = sorted(
    [
        *((path, path.parent.name) for path in ROOT.glob("reference/*/sm_90a.cu")),
        *((path, path.stem.rpartition("_")[0]) for path in ROOT.glob("tests/kernels/simple/*.cu")),
    ]
)


def arguments_of(problem_name: str) -> list[TensorArgument]:
    """Tensors of the problem's smallest workload at made-up addresses."""
    problem = load_problem("gemm_n7168_k5120" if problem_name == "gemm" else problem_name)
    workload = min(problem.workloads, key=lambda one: sum(problem.axis_values(one).values()))
    return [
        TensorArgument(address=0x7F00_0000_0000 + (index << 32), shape=problem.shape(spec, workload), dtype=spec.dtype)
        for index, spec in enumerate(problem.arguments)
    ]


@pytest.mark.parametrize(("path", "problem"), CANDIDATES, ids=[f"{p.parent.name}-{p.stem}" for p, _ in CANDIDATES])
def test_a_kernel_of_the_repository_is_recorded_with_no_gpu(path: Path, problem: str, settings: Settings) -> None:
    built = build(Candidate.from_source(path.read_text()), Target.SM_90A, settings)
    assert built.library is not None
    assert built.ptx is not None
    made = record(built.library, "run", arguments_of(problem), settings)
    assert made.ending.kind == "returned", made.ending
    assert made.replayable, made.live
    assert not made.failures
    assert made.launches
    used = set()
    for launch in made.launches:
        assert f".entry {launch.kernel}(" in built.ptx.read_text()
        for blob in launch.parameters:
            used |= {(relocation.of, relocation.index) for relocation in blob.relocations}
    assert {("argument", index) for index in range(len(made.arguments))} <= used


def test_a_launch_is_recorded_with_its_parameters_and_their_addresses(call: Call) -> None:
    made = call("launches")
    (launch,) = made.launches
    assert (launch.kernel, launch.grid, launch.block) == ("_Z5scalePf4Paircd", (3, 2, 1), (64, 1, 1))
    assert (launch.cluster, launch.dynamic_shared, launch.stream) == ((1, 1, 1), 0, GIVEN_STREAM)
    pointer, pair, letter, number = launch.parameters
    assert pointer.data == struct.pack("<Q", ADDRESS)
    assert pointer.relocations == (Relocation(offset=0, of="argument", index=0, addend=0),)
    assert struct.unpack("<QI", pair.data[:12]) == (ADDRESS + 20, 7)
    assert pair.relocations == (Relocation(offset=0, of="argument", index=0, addend=20),)
    assert letter.data == b"c"
    assert number.data == struct.pack("<d", 2.5)
    assert made.replayable


def test_clusters_follow_attributes_and_what_the_kernel_was_compiled_for(call: Call) -> None:
    made = call("clusters")
    assert made.ending.kind == "returned", made.ending
    assert [launch.cluster for launch in made.launches] == [(4, 1, 1), (16, 1, 1), (2, 1, 1)]
    assert [launch.programmatic for launch in made.launches] == [True, True, False]
    assert [failure.split(":")[1] for failure in made.failures] == [" error 912", " error 1", " error 912"]


@pytest.mark.parametrize("name", ["shared_memory", "bad_shapes", "queries"])
def test_the_host_code_is_told_what_a_device_tells_it(call: Call, name: str) -> None:
    assert call(name).ending.kind == "returned", call(name).ending


def test_the_number_of_sms_can_be_set(call: Call) -> None:
    assert call("queries").launches[0].grid == (264, 1, 1)
    assert call("queries", sms=5).launches[0].grid == (10, 1, 1)


def test_memory_calls_are_recorded_in_order_with_what_the_host_hands_over(call: Call) -> None:
    made = call("memory")
    assert made.ending.kind == "returned", made.ending
    table, first, second = (one for one in made.operations if isinstance(one, Allocate))
    assert (table.symbol, table.size) == ("table", 256)
    assert (first.size, first.stream, second.size) == (4096, None, 256)
    assert second.stream not in (None, 0)
    (fill,) = (one for one in made.operations if isinstance(one, Fill))
    assert (fill.address, fill.value, fill.element_bytes, fill.width, fill.height) == (first.address, 0xAB, 1, 4096, 1)
    in_order, inside, symbol, pointers = (one for one in made.operations if isinstance(one, Copy))
    assert in_order.data is not None
    assert struct.unpack("<4f", in_order.data.data) == (1, 2, 3, 4)
    assert (in_order.destination, in_order.stream) == (second.address, second.stream)
    assert (inside.direction, inside.source, inside.data) == ("on_device", ADDRESS, None)
    assert symbol.destination == table.address + 32
    assert pointers.data is not None
    assert pointers.data.relocations == (
        Relocation(offset=0, of="argument", index=0, addend=4),
        Relocation(offset=8, of="allocation", index=second.index, addend=8),
    )
    frees = [one.address for one in made.operations if isinstance(one, Free)]
    assert frees == [second.address, first.address]
    assert [type(one) for one in made.operations[:4]] == [Allocate, Allocate, Allocate, Fill]


def test_streams_and_events_are_recorded_in_order(call: Call) -> None:
    made = call("order")
    assert made.ending.kind == "returned", made.ending
    steps = [(one.kind, getattr(one, "what", ""), getattr(one, "stream", None)) for one in made.operations[1:]]
    stream = made.launches[0].stream
    assert steps == [
        ("order", "record", 0),
        ("order", "wait", stream),
        ("launch", "", stream),
        ("order", "synchronize", stream),
        ("order", "synchronize", None),
    ]


def test_tensor_maps_are_kept_as_the_arguments_of_their_encode_calls(call: Call) -> None:
    made = call("tensor_maps")
    assert made.ending.kind == "returned", made.ending
    (copy,) = (one for one in made.operations if isinstance(one, Copy))
    assert copy.data is not None
    tiled = TensorMap(Type.F32, ADDRESS, (64, 16), (256,), (32, 8), (1, 1), swizzle=Swizzle.B128, l2=2)
    column = TensorMap(
        *(Type.F32, ADDRESS, (64, 16, 8, 2), (256, 4096, 32768), (), (1, 1, 1, 1)),
        im2col=Im2col((-1, -2), (0, 1), 32, 100),
    )
    assert copy.data.tensor_maps() == ((0, tiled), (128, column))
    assert made.failures == ("encode: error 1: globalStrides[0] 24 is not a multiple of 16 below 2^40",)


def test_a_map_of_columns_along_w_alone_is_kept_too(call: Call) -> None:
    made = call("wide_map")
    assert made.ending.kind == "returned", made.ending
    (copy,) = (one for one in made.operations if isinstance(one, Copy))
    assert copy.data is not None
    wide = TensorMap(
        *(Type.F32, ADDRESS, (64, 16, 8, 2), (256, 4096, 32768), (), (1, 1, 1, 1)),
        swizzle=Swizzle.B128,
        im2col=Im2col((-3,), (2,), 32, 0, wide=2),
    )
    assert copy.data.tensor_maps() == ((0, wide),)


def test_a_launch_by_the_driver_is_recorded_too(call: Call) -> None:
    (launch,) = call("driver_launch").launches
    assert (launch.kernel, launch.grid, launch.cluster) == ("_Z6pairedPf", (4, 1, 1), (2, 1, 1))


def test_launches_of_many_threads_are_all_recorded(call: Call) -> None:
    assert len(call("uses_threads").launches) == 200


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("graph", "calls cudaGraphCreate, which works on a device alone"),
        ("reads_back", "reads device data on the host"),
        ("calls_back", "runs host functions within a stream"),
    ],
)
def test_what_cannot_be_recorded_is_named(call: Call, name: str, reason: str) -> None:
    made = call(name)
    assert made.ending.kind == "returned", made.ending
    assert made.live == (reason,)
    assert not made.replayable


class OneByOne:
    """A device whose memory reads as the float 42 everywhere."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.seen: list[Operation] = []

    def perform(self, operation: Operation) -> int:
        self.seen.append(operation)
        return self.code if operation.kind == "launch" else 0

    def read(self, address: int, size: int) -> bytes:
        assert (address, size) == (ADDRESS + 12, 4)
        return struct.pack("<f", 42)


def test_a_performer_carries_out_each_call_and_answers_reads(call: Call) -> None:
    device = OneByOne()
    made = call("reads_back", performer=device)
    assert tuple(device.seen) == made.operations
    assert struct.unpack_from("<I", made.launches[0].parameters[1].data, 8) == (42,)
    assert made.live == ()


def test_an_error_of_the_performer_reaches_the_host_code(call: Call) -> None:
    made = call("launches", performer=OneByOne(719))
    assert made.ending.kind == "raised"
    assert "cudaGetLastError" in made.ending.message


def test_a_record_survives_json(call: Call) -> None:
    for name in ("memory", "clusters", "order"):
        made = call(name)
        assert LaunchRecord.model_validate_json(made.model_dump_json()) == made


def test_a_cubin_tells_parameters_and_resources_of_its_kernels(library: Path, settings: Settings) -> None:
    kernels = kernels_of(library, settings)
    scale, small, paired = (kernels[name] for name in ("_Z5scalePf4Paircd", "_Z5smallPf", "_Z6pairedPf"))
    assert scale.parameters == (8, 16, 1, 8)
    assert (small.parameters, small.static_shared, small.max_threads) == ((8,), 400, 128)
    assert (paired.required_cluster, small.required_cluster) == ((2, 1, 1), None)
    assert scale.registers > 0


def test_addresses_are_found_in_bytes_and_ranges_are_whole_pages() -> None:
    memory = AddressMap([X])
    index, address = memory.allocate(100)
    blob = memory.blob(struct.pack("<4Qx", address + 7, 5, ADDRESS + 256, BASE))
    assert [(one.offset, one.of, one.index, one.addend) for one in blob.relocations] == [
        (0, "allocation", index, 7),
        (16, "argument", 0, 256),
    ]
    assert memory.holds(address, 100)
    assert not memory.holds(address, 101)
    assert memory.free(address)
    assert not memory.free(address)
    neighbour = TensorArgument(address=ADDRESS + 256, shape=(4096,), dtype=DType.BFLOAT16)
    assert reserved_ranges([X, neighbour])[1:] == [(0x7000_0000_0000, 0x3000)]
