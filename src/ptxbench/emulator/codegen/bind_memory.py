"""Loads, stores, address conversions and calls of the system's functions, bound to the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxbench.emulator.codegen.op import Constant, Op, Source, bits_of, dtype_of, items, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine import access
from ptxbench.emulator.machine.spaces import LOCAL_WINDOW, RANK_SHIFT, SHARED_WINDOW, Lanes
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.ptx.ir import Address, Instruction, Operand, Register, Symbol

_SPACES = {
    **{"global": "global", "const": "global", "local": "local", "param": "local"},
    **{"shared": "shared", "shared::cta": "shared", "shared::cluster": "shared", "param::func": "local"},
}
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_MOST_CLEARED = 1 << 24
"""Bytes of one `st.bulk` (PTX ISA, section st.bulk)."""


def space_of(ins: Instruction) -> str:
    """The state space of a memory instruction, `generic` if it names none."""
    return next((_SPACES[word] for word in ins.modifiers if word in _SPACES), "generic")


def _param_space(ins: Instruction, program: Program, address: Operand) -> str:
    """Kernel parameters lie in the parameter block, in global memory; those of calls are local to each lane."""
    base = address.base if isinstance(address, Address) else address
    called = isinstance(base, Symbol) and base.name in program.local
    return "local" if called or "param::func" in ins.modifiers else "global"


def _type(ins: Instruction) -> str:
    return ins.modifiers[-1]


def _count(ins: Instruction) -> int:
    return next((_VECTORS[word] for word in ins.modifiers if word in _VECTORS), 1)


def _parameter(ins: Instruction, program: Program) -> int | None:
    """The offset in the parameter block that an instruction names, if it names one."""
    address = ins.operands[1] if len(ins.operands) > 1 else None
    base = address.base if isinstance(address, Address) else None
    if isinstance(base, Symbol) and isinstance(address, Address) and base.name in program.parameters:
        return program.parameters[base.name] + base.offset + address.offset
    return None


def _load(ins: Instruction, program: Program) -> Op:
    if "param" in ins.modifiers or "param::entry" in ins.modifiers:
        offset = _parameter(ins, program)
        if offset is not None:
            return _load_parameter(ins, offset)
    type_, count, space = _type(ins), _count(ins), space_of(ins)
    if any(word.startswith("param") for word in ins.modifiers):
        space = _param_space(ins, program, ins.operands[1])
    polls = bool({"acquire", "relaxed", "volatile"} & set(ins.modifiers))
    targets = items(ins.operands[0])
    width = max(bits_of(type_) // 8, 1)
    wide = width == 16
    shape = (8, 2 * count) if wide else (width, count)
    made = [_loaded(target, type_) for target in targets]
    convert = [_widen(type_, result) for result in made]
    polls = polls and space != "local"

    def run(unit: Unit, mask: Mask | None, addresses: Lanes, offset: Lanes | None = None) -> Lanes | list[Lanes]:
        if offset is not None:
            addresses = addresses + offset
        parts = access.load(unit, space, addresses, mask, shape)
        if polls:
            unit.polled = True
        if wide:
            parts = [np.stack(parts[place : place + 2], axis=1) for place in range(0, len(parts), 2)]
        values = [change(part) if change else part for change, part in zip(convert, parts, strict=True)]
        return values if len(values) > 1 else values[0]

    results = tuple(zip(targets, made, strict=True))
    return Op(address_sources(ins.operands[1], space), results, run=run, machine=True)


def _loaded(target: Operand, type_: str) -> str:
    """The type in which a load leaves its value: as wide as the register (PTX ISA, Operand Size Exceeding)."""
    bits = bits_of(type_)
    if not isinstance(target, Register):
        return type_ if bits >= 16 else "b16"
    return target.type if bits_of(target.type) > bits else type_


def _widen(type_: str, result: str) -> Callable[[Any], Any] | None:
    wanted = dtype_of(result)
    if bits_of(type_) == 128 or np.dtype(f"u{max(bits_of(type_) // 8, 1)}") == wanted:
        return None
    if type_.startswith("s"):
        narrow, wide = f"i{bits_of(type_) // 8}", f"i{wanted.itemsize}"
        return lambda part: part.view(narrow).astype(wide).view(wanted)
    return lambda part: part.astype(wanted)


def _load_parameter(ins: Instruction, offset: int) -> Op:
    type_ = _type(ins)
    width = bits_of(type_) // 8
    sources: list[tuple[Source, str]] = []
    results = []
    for place, target in enumerate(items(ins.operands[0])):
        made = _loaded(target, type_)
        spec = ("param", offset + place * width, width, type_.startswith("s"), dtype_of(made).str)
        sources.append((Constant(spec), made))
        results.append((target, made))
    text = ", ".join(f"{{{place}}}" for place in range(len(sources)))
    return Op(tuple(sources), tuple(results), expression=text)


def _store(ins: Instruction, program: Program) -> Op | None:
    if "async" in ins.modifiers:
        return None
    if "bulk" in ins.modifiers:
        return _clear(ins)
    type_, space = _type(ins), space_of(ins)
    width = max(bits_of(type_) // 8, 1)
    wide = width == 16
    shape = (8, 2 * _count(ins)) if wide else (width, _count(ins))
    address = address_sources(ins.operands[0], space)
    values = items(ins.operands[1])
    dtype = None if wide else np.dtype(f"u{width}")
    # A register wider than the type is cut: the operand is read as the register has it.
    read = tuple((value, value.type if isinstance(value, Register) else type_) for value in values)
    first = len(address)

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        addresses = arguments[0] if first == 1 else arguments[0] + arguments[1]
        parts = list(arguments[first:])
        if wide:
            parts = [part[:, place] for part in parts for place in (0, 1)]
        else:
            parts = [part if part.dtype == dtype else part.astype(dtype) for part in parts]
        access.store(unit, space, addresses, mask, shape, parts)

    return Op((*address, *read), run=run, machine=True)


def _clear(ins: Instruction) -> Op:
    """`st.bulk`: zeros for a multiple of 8 bytes of the CTA's own shared memory."""
    space = space_of(ins)
    address = address_sources(ins.operands[0], space)
    first = len(address)

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        starts = arguments[0] if first == 1 else arguments[0] + arguments[1]
        sizes = arguments[first]
        for lane in unit.active(mask).tolist():
            size = int(sizes[lane])
            if size % 8 or size > _MOST_CLEARED:
                raise Fault("cudaErrorIllegalInstruction", f"st.bulk of {size} bytes: not a multiple of 8 up to 2^24")
            if size:
                places = starts[lane] + np.arange(0, size, 8, dtype=starts.dtype)
                access.write(unit, space, places, 8, np.zeros(places.size, np.uint64))

    return Op((*address, *typed(ins.operands[1:2], "b64")), run=run, machine=True)


def _cvta(ins: Instruction, program: Program) -> Op:
    """Generic address from an address of a space, or back with `.to`."""
    space = next(word for word in ins.modifiers if word != "to")
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space.split("::")[0], 0)
    type_ = ins.modifiers[-1]
    source = ins.operands[1]
    if isinstance(source, Address):
        source = source.base
    sources = ((source, type_),)
    results = typed(ins.operands[:1], type_)
    if not window or bits_of(type_) == 32:
        return Op(sources, results, expression="{0}")
    text = (
        "{0} & LOW32"
        if "to" in ins.modifiers
        else f"({{0}} & LOW32) | {'SHARED' if window == SHARED_WINDOW else 'LOCAL'}_WINDOW"
    )
    return Op(sources, results, expression=text)


def _isspacep(ins: Instruction, program: Program) -> Op:
    space = ins.modifiers[0]
    low = np.uint64(32)

    def run(unit: Unit, mask: Mask | None, addresses: Lanes) -> Lanes:
        high = addresses >> low
        shared, local = high == SHARED_WINDOW >> 32, high == LOCAL_WINDOW >> 32
        own = ((addresses & np.uint64(0xFFFF_FFFF)) >> np.uint64(RANK_SHIFT)) == unit.cta.rank
        constant = unit.cta.cluster.kernel.is_constant(addresses)
        answers: dict[str, Lanes] = {
            **{"shared": shared & own, "shared::cta": shared & own, "shared::cluster": shared, "local": local},
            **{"const": constant[0], "param": constant[1], "param::entry": constant[1]},
        }
        found = answers.get(space)
        # The parameters' generic addresses are global ones too on an H200.
        return ~(shared | local | constant[0]) if found is None else found

    return Op(typed(ins.operands[1:], "b64"), typed(ins.operands[:1], "pred"), run=run, machine=True)


def _mapa(ins: Instruction, program: Program) -> Op:
    type_ = ins.modifiers[-1]
    kept = dtype_of(type_).type(~(0xFF << RANK_SHIFT) & (1 << bits_of(type_)) - 1)
    wide = "" if bits_of(type_) == 32 else ".astype('u8')"
    text = f"({{0}} & {int(kept)}) | ({{1}}{wide} << {RANK_SHIFT})"
    return Op(((ins.operands[1], type_), (ins.operands[2], "b32")), typed(ins.operands[:1], type_), expression=text)


def _getctarank(ins: Instruction, program: Program) -> Op:
    type_ = ins.modifiers[-1]
    text = f"(({{0}} >> {RANK_SHIFT}) & 255).astype('u4')"
    return Op(typed(ins.operands[1:], type_), typed(ins.operands[:1], "b32"), expression=text)


def _call(ins: Instruction, program: Program) -> Op | None:
    """Functions of the system; those of the module are written out already."""
    target = ins.operands[1]
    name = target.name if isinstance(target, Symbol) else ""
    if name in program.module.functions and program.module.functions[name].blocks:
        return Op(expression="None")
    if name in ("__assertfail", "__assert_fail"):

        def fail(unit: Unit, mask: Mask | None) -> None:
            if mask is None or mask.any():
                raise Fault("cudaErrorAssert", "a device-side assertion failed")

        return Op(run=fail, machine=True)
    if name == "vprintf":
        return Op(expression="None")
    return None


def _prefetch(ins: Instruction, program: Program) -> Op:
    """A hint; but a tensor map's must lie at a multiple of 64 bytes."""
    if "tensormap" not in ins.modifiers or "param" in ins.modifiers:
        return Op(expression="None")

    def run(unit: Unit, mask: Mask | None, *parts: Lanes) -> None:
        addresses = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        if (addresses[unit.active(mask)] % np.uint64(64)).any():
            raise Fault("cudaErrorMisalignedAddress", "a tensor map is not at a multiple of 64 bytes")

    return Op(address_sources(ins.operands[0], "generic"), run=run, machine=True)


def _breakpoint(ins: Instruction, program: Program) -> Op:
    def run(unit: Unit, mask: Mask | None) -> None:
        if mask is None or mask.any():
            raise Fault("cudaErrorLaunchFailure", "the kernel executed `brkpt`, and there is no debugger")

    return Op(run=run, machine=True)


def _policy(ins: Instruction, program: Program) -> Op:
    """Cache policies mean nothing here."""
    return Op((), typed(ins.operands[:1], "b64"), expression="u.full(None).astype('u8')")


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {
    **{"ld": _load, "ldu": _load, "st": _store, "cvta": _cvta, "isspacep": _isspacep, "mapa": _mapa},
    **{"getctarank": _getctarank, "call": _call, "createpolicy": _policy, "prefetch": _prefetch, "brkpt": _breakpoint},
}
