"""The programs of every Hopper form, and the forms that one device cannot answer; runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from tests.emulator.agreement import (
    atomic,
    control,
    copies,
    loads,
    matrices,
    mbarriers,
    scalar,
    tensors,
    warpgroup,
    wmma,
)
from tests.emulator.agreement.program import Program

from ptxbench.emulator.ptx.isa import Form, coverage

TARGET = "sm_90a"
UNANSWERED = {"multimem": "it needs a multicast object of several devices"}
"""Opcodes without hardware truth, and why."""
Maker = Callable[[Form], list[Program]]
_BY_OPCODE: dict[str, Maker] = {
    **dict.fromkeys(("bra", "brx", "call", "ret", "exit"), control.flow),
    **dict.fromkeys(("nanosleep", "pmevent", "griddepcontrol"), control.misc),
    **dict.fromkeys(("bar", "barrier"), control.barriers),
    **dict.fromkeys(("membar", "fence"), control.fences),
    **dict.fromkeys(("trap", "brkpt"), control.ending),
    **dict.fromkeys(("alloca", "stacksave", "stackrestore"), control.stack),
    **dict.fromkeys(("isspacep", "cvta"), control.spaces),
    **dict.fromkeys(("mapa", "getctarank"), control.ranks),
    **dict.fromkeys(("ld", "ldu", "st"), loads.programs),
    **dict.fromkeys(("prefetch", "prefetchu", "applypriority", "discard"), loads.hints),
    **dict.fromkeys(("atom", "red"), atomic.programs),
    **dict.fromkeys(("ldmatrix", "stmatrix", "movmatrix"), matrices.moves),
    "setmaxnreg": control.registers,
    "createpolicy": loads.policies,
    "mbarrier": mbarriers.programs,
    "mma": matrices.mma,
    "wmma": wmma.programs,
    "tensormap": tensors.edits,
    "wgmma": warpgroup.control,
}
_BY_PREFIX: tuple[tuple[str, Maker], ...] = (
    ("barrier.cluster", control.clusters),
    ("bar.warp", control.misc),
    ("st.async", copies.remote),
    ("red.async", copies.remote),
    ("wgmma.mma_async", warpgroup.programs),
)


def opcode(form: Form) -> str:
    """The first word of its name."""
    return form.name.split(" ")[0].split(".")[0].split("(")[0]


def _copies(form: Form) -> list[Program]:
    if "tensor" in form.name:
        return tensors.stores(form) if ".bulk_group" in form.name else tensors.loads(form)
    return copies.bulk(form) if ".bulk" in form.name else copies.non_bulk(form)


def made(form: Form) -> list[Program]:
    """The programs of one form; none if it is `UNANSWERED`."""
    word = opcode(form)
    if word in UNANSWERED:
        return []
    if word == "cp":
        return _copies(form)
    maker = next((maker for prefix, maker in _BY_PREFIX if form.name.startswith(prefix)), None)
    maker = maker or _BY_OPCODE.get(word) or scalar.programs
    found = maker(form)
    if word == "mbarrier" and ".shared::cluster" in form.name:
        found += mbarriers.remote(form)
    return found


def forms() -> Iterator[Form]:
    """All forms of the target."""
    return (form for form in coverage() if TARGET in form.targets)


@cache
def programs() -> tuple[Program, ...]:
    """All programs, in the order of the forms."""
    return tuple(program for form in forms() for program in made(form))


@cache
def essential() -> tuple[Program, ...]:
    """One program of each form, and all but the shapes of warpgroup products: what the tests run."""
    kept, products = [], set()
    for program in programs():
        if program.form.startswith("wgmma.mma_async"):
            if program.form in products:
                continue
            products.add(program.form)
        kept.append(program)
    return tuple(kept)
