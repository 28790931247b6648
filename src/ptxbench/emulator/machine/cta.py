"""CTAs: shared memory, barriers, units, and the constants that depend on the place in the grid; no time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ptxbench.emulator.errors import Fault, Unsupported
from ptxbench.emulator.machine.named import NamedBarrier
from ptxbench.emulator.machine.spaces import RANK_SHIFT, Lanes, Region
from ptxbench.emulator.machine.unit import WARP, Unit

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.kernel import Kernel
    from ptxbench.emulator.machine.phases import Phases

Place = tuple[int, int, int]
Spec = tuple[Any, ...]
"""A constant that blocks need: its kind, what names it, and last its dtype."""
Value: TypeAlias = Any
"""A number, an array over lanes, or three of them."""
USER_BASE = 0x400
"""First byte of shared memory that a kernel owns; below lies the system's KiB (H200)."""


class Cta:
    """One block of threads.

    Attributes:
        place: Its index in the grid.
        rank: Its rank in the cluster.
        base: Its own rank in bits 24 and up, as shared addresses carry it.
        tensor: Its tensor memory, once a tcgen05 uses it.
        pipes: What each thread has issued to the tensor core.
    """

    def __init__(self, cluster: Cluster, place: Place, rank: int) -> None:
        kernel = cluster.kernel
        self.cluster = cluster
        self.place = place
        self.rank = rank
        self.base = np.uint32(rank << RANK_SHIFT)
        size = USER_BASE + kernel.shared_bytes
        # Tensor copies address whole KiB, whatever the kernel owns.
        self.shared = Region(np.zeros((size + 1023) // 1024 * 1024, np.uint8), size)
        self.mbarriers: dict[int, Phases] = {}
        self.named: dict[int, NamedBarrier] = {}
        self.units = [self._unit(kernel, index) for index in range(kernel.units)]
        self.pool = 0
        self.tensor: Any = None
        self.pipes: dict[int, Any] = {}
        self.live = sum(int(unit.live.sum()) for unit in self.units)

    def _unit(self, kernel: Kernel, index: int) -> Unit:
        first, lanes = index * kernel.unit_lanes, kernel.unit_lanes
        threads = min(max(kernel.threads - first, 0), lanes)
        live = np.arange(lanes) < threads
        unit = Unit(self, index, first, lanes, kernel.blank(lanes), [], live)
        unit.add(0, None if threads == lanes else live)
        unit.tally = kernel.tally
        return unit

    def named_barrier(self, number: int) -> NamedBarrier:
        """The barrier of `bar.sync number`."""
        if not 0 <= number < 16:
            raise Fault("cudaErrorIllegalInstruction", f"barrier {number} does not exist, the numbers are 0 to 15")
        found = self.named.get(number)
        if found is None:
            found = self.named[number] = NamedBarrier(self, number)
        return found

    @property
    def live_warps(self) -> int:
        """Warps of which not all lanes have exited."""
        return sum(unit.warps_of(unit.live) for unit in self.units)

    @property
    def done(self) -> bool:
        """Whether all threads have exited."""
        return self.live == 0

    def name(self) -> str:
        """For reports."""
        return f"CTA {','.join(map(str, self.place))}"


@dataclass
class Constants:
    """Values of the constants of blocks, by unit; those that are the same for all units are made once."""

    kernel: Kernel
    known: dict[Hashable, Any] = field(default_factory=dict)

    def of(self, unit: Unit, specs: list[Spec]) -> list[Lanes]:
        """One array over lanes for each spec."""
        return [self._value(unit, spec) for spec in specs]

    def _value(self, unit: Unit, spec: Spec) -> Lanes:
        key: Hashable
        if spec[0] == "special":
            scope = _SCOPES.get(spec[1].split(".")[0][1:], "cta")
            key = {"grid": spec, "unit": (spec, unit.first), "cta": (spec, unit.cta.place, unit.first)}[scope]
        elif spec[0] == "symbol":
            key = (spec, unit.cta.rank)
        else:
            key = spec
        key = (key, unit.lanes)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._make(unit, spec)
        return found

    def _make(self, unit: Unit, spec: Spec) -> Lanes:
        kind = spec[0]
        dtype = np.dtype(spec[-1])
        if kind == "imm":
            return np.full(unit.lanes, spec[1], dtype)
        if kind == "symbol":
            value = self.kernel.address_of(spec[1], unit.cta.rank) + spec[2]
            return np.full(unit.lanes, value & ((1 << dtype.itemsize * 8) - 1), dtype)
        if kind == "param":
            raw = self.kernel.parameter_bytes[spec[1] : spec[1] + spec[2]]
            if spec[2] == 16:
                return np.tile(np.frombuffer(raw, np.uint64), (unit.lanes, 1))
            value = int.from_bytes(raw, "little", signed=spec[3])
            return np.full(unit.lanes, value & ((1 << dtype.itemsize * 8) - 1), dtype)
        return np.broadcast_to(np.asarray(special(unit, spec[1])).astype(dtype), (unit.lanes,)).copy()


_SCOPES = {
    **dict.fromkeys(("tid", "warpid", "laneid"), "unit"),
    **{f"lanemask_{each}": "unit" for each in ("eq", "le", "lt", "ge", "gt")},
    **dict.fromkeys(("ntid", "nctaid", "nwarpid", "nclusterid", "cluster_nctaid", "cluster_nctarank"), "grid"),
}
_AXES = {"x": 0, "y": 1, "z": 2, "w": 3}


def special(unit: Unit, name: str) -> Value:
    """The value of a special register: a number or an array over lanes."""
    register, _, axis = name[1:].partition(".")
    maker = _SPECIALS.get(register)
    if maker is None:
        raise Unsupported(name, unit.line, "this special register is not modelled")
    value = maker(unit)
    if axis:
        value = (*value, 0)[_AXES[axis]]
    return value


def _tid(unit: Unit) -> tuple[Lanes, Lanes, Lanes]:
    x, y, _ = unit.cta.cluster.kernel.block
    linear = np.arange(unit.first, unit.first + unit.lanes, dtype=np.uint32)
    return linear % x, linear // x % y, linear // (x * y)


def _lane(unit: Unit) -> Lanes:
    return np.arange(unit.lanes, dtype=np.uint64) % WARP


def _mask(compare: str) -> Callable[[Unit], Lanes]:
    full = (1 << WARP) - 1
    values = {
        "eq": [1 << lane for lane in range(WARP)],
        "lt": [(1 << lane) - 1 for lane in range(WARP)],
        "le": [(2 << lane) - 1 for lane in range(WARP)],
        "gt": [full & ~((2 << lane) - 1) for lane in range(WARP)],
        "ge": [full & ~((1 << lane) - 1) for lane in range(WARP)],
    }[compare]
    return lambda unit: np.tile(np.asarray(values, np.uint64), unit.lanes // WARP)


def _divided(a: Place, b: Place) -> Place:
    return (a[0] // b[0], a[1] // b[1], a[2] // b[2])


def _cluster_place(unit: Unit) -> Place:
    x, y, z = unit.cta.place
    nx, ny, nz = unit.cta.cluster.kernel.cluster
    return (x % nx, y % ny, z % nz)


_SPECIALS: dict[str, Any] = {
    "tid": _tid,
    "ntid": lambda unit: unit.cta.cluster.kernel.block,
    "ctaid": lambda unit: unit.cta.place,
    "nctaid": lambda unit: unit.cta.cluster.kernel.grid,
    "laneid": _lane,
    "warpid": lambda unit: np.arange(unit.first, unit.first + unit.lanes) // WARP,
    "nwarpid": lambda unit: (unit.cta.cluster.kernel.threads + WARP - 1) // WARP,
    **{f"lanemask_{each}": _mask(each) for each in ("eq", "le", "lt", "ge", "gt")},
    "clusterid": lambda unit: _divided(unit.cta.place, unit.cta.cluster.kernel.cluster),
    "nclusterid": lambda unit: _divided(unit.cta.cluster.kernel.grid, unit.cta.cluster.kernel.cluster),
    "cluster_ctaid": _cluster_place,
    "cluster_nctaid": lambda unit: unit.cta.cluster.kernel.cluster,
    "cluster_ctarank": lambda unit: unit.cta.rank,
    "cluster_nctarank": lambda unit: len(unit.cta.cluster.ctas),
    "is_explicit_cluster": lambda unit: unit.cta.cluster.kernel.explicit_cluster,
    "smid": lambda unit: unit.cta.cluster.number * len(unit.cta.cluster.ctas) + unit.cta.rank,
    "nsmid": lambda unit: 132,
    "gridid": lambda unit: 1,
    "dynamic_smem_size": lambda unit: unit.cta.cluster.kernel.dynamic_shared,
    "total_smem_size": lambda unit: (unit.cta.cluster.kernel.shared_bytes + 127) // 128 * 128,
    "aggr_smem_size": lambda unit: unit.cta.cluster.kernel.shared_bytes + USER_BASE,
    "reserved_smem_offset_begin": lambda unit: 0,
    "reserved_smem_offset_end": lambda unit: USER_BASE,
    "reserved_smem_offset_cap": lambda unit: USER_BASE,
    "current_graph_exec": lambda unit: 0,
}
