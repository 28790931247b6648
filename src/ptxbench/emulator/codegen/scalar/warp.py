"""Exchange between the lanes of a warp as functions of arrays over whole warps; waits for nobody.

PTX ISA, sections shfl.sync, vote.sync, match.sync, activemask, redux.sync, elect.sync. Lanes that do not execute are
no source: `shfl` reads 0 from them (H200), the others leave them out.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, signed, unsigned

WARP = 32
_LANE = np.arange(WARP)
_BIT = (np.uint32(1) << np.arange(WARP, dtype=np.uint32)).astype(np.uint32)


def _rows(values: Bits, like: Bits) -> Bits:
    """[warps, 32] of values over lanes, or of a constant."""
    return np.broadcast_to(values, like.shape).reshape(-1, WARP)


def mask_of(lanes: Bits) -> Bits:
    """The 32-bit masks [warps] of booleans [warps, 32]."""
    made: Bits = np.where(lanes, _BIT, np.uint32(0)).sum(axis=1, dtype=np.uint32)
    return made


def _spread(per_warp: Bits) -> Bits:
    return np.repeat(per_warp, WARP)


def shuffle(form: Form) -> ScalarOp:
    """`shfl.sync`: the value of another lane, and whether that lane is in range."""
    mode, paired = form.one_of("up", "down", "bfly", "idx"), form.paired

    def run(active: Bits, a: Bits, b: Bits, c: Bits, mask: Bits) -> Bits | tuple[Bits, Bits]:
        del mask
        place = np.arange(active.size)
        if b.ndim == 0 and c.ndim == 0:
            offset, inside = _offsets(mode, int(b), int(c))
            source = (place.reshape(-1, WARP) + offset).ravel()
            within = np.broadcast_to(inside, (active.size // WARP, WARP)).ravel()
        else:
            lane, by, segments = place & 31, _integers(b), _integers(c)
            source, within = _sources(mode, lane, by, segments)
            source = source - lane + place
        moved = np.broadcast_to(a, active.shape)[source]
        if not active.all():
            moved = np.where(active[source], moved, np.uint32(0))
        return (moved, within) if paired else moved

    return ScalarOp(run, ("b32", "b32", "b32", "b32"), ("b32", "pred") if paired else ("b32",), warp=True)


def _integers(bits: Bits) -> Bits:
    return bits.astype(np.int64)


def _sources(mode: str, lane: Bits, b: Bits, c: Bits) -> tuple[Bits, Bits]:
    """The lanes to read from, each its own where that is out of range, and whether it is in range."""
    by, clamp, segment = b & 31, c & 31, c >> 8 & 31
    first = lane & segment
    last = first | (clamp & ~segment)
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": first | (by & ~segment)}[mode]
    inside = source >= last if mode == "up" else source <= last
    return np.where(inside, source, lane), inside


@lru_cache(maxsize=1024)
def _offsets(mode: str, b: int, c: int) -> tuple[Bits, Bits]:
    """`_sources` relative to each lane, where all lanes have the same operands."""
    source, inside = _sources(mode, _LANE, np.asarray(b), np.asarray(c))
    return source - _LANE, inside


def vote(form: Form) -> ScalarOp:
    """`vote.sync`: over the executing lanes of the mask; `.ballot` has 0 for all others."""
    mode = form.one_of("all", "any", "uni", "ballot")

    def run(active: Bits, p: Bits, mask: Bits) -> Bits:
        part = _members(active, mask)
        true = _rows(p, active) & part
        if mode == "ballot":
            return _spread(mask_of(true))
        any_, all_ = true.any(axis=1), (true == part).all(axis=1)
        return _spread({"any": any_, "all": all_, "uni": all_ | ~any_}[mode])

    return ScalarOp(run, ("pred", "b32"), ("b32",) if mode == "ballot" else ("pred",), warp=True)


def _members(active: Bits, mask: Bits) -> Bits:
    """The executing lanes [warps, 32] that the masks of their warp's executing lanes name."""
    rows = _rows(active, active)
    named = np.bitwise_or.reduce(np.where(rows, _rows(mask, active), np.uint32(0)), axis=1)
    members: Bits = rows & ((named[:, None] & _BIT) != 0)
    return members


def match(form: Form) -> ScalarOp:
    """`match.sync`: which executing lanes hold the same value; `.all` answers 0 unless all do."""
    whole, paired, type_ = "all" in form.words, form.paired, form.type

    def run(active: Bits, a: Bits, mask: Bits) -> Bits | tuple[Bits, Bits]:
        part = _members(active, mask)
        value = _rows(a, active)
        equal = (value[:, :, None] == value[:, None, :]) & part[:, None, :]
        found: Bits = np.where(equal, _BIT, np.uint32(0)).sum(axis=2, dtype=np.uint32)
        if not whole:
            return found.ravel()
        agreed = found == mask_of(part)[:, None]
        made = np.where(agreed, found, np.uint32(0)).ravel()
        return (made, agreed.ravel()) if paired else made

    return ScalarOp(run, (type_, "b32"), ("b32", "pred") if paired else ("b32",), warp=True)


def reduce_(form: Form) -> ScalarOp:
    """`redux.sync`: one value out of all executing lanes, given to each."""
    name = form.one_of("add", "min", "max", "and", "or", "xor")
    if form.type == "f32":
        return ScalarOp(
            partial(_reduce_floats, name, "abs" in form.words, "NaN" in form.words), ("f32", "b32"), ("f32",), warp=True
        )
    functions: dict[str, np.ufunc] = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    negative = form.type == "s32"
    neutral = _neutral(name, negative)
    function: Run = functions[name].reduce

    def run(active: Bits, a: Bits, mask: Bits) -> Bits:
        value = np.where(_members(active, mask), _rows(a, active), neutral)
        made = function(signed(value) if negative else value, axis=1)
        return _spread(unsigned(made.astype(np.int32)) if negative else made.astype(np.uint32))

    return ScalarOp(run, (form.type, "b32"), (form.type,), warp=True)


def _neutral(name: str, negative: bool) -> np.uint32:
    if name == "min":
        return np.uint32(0x7FFFFFFF if negative else 0xFFFFFFFF)
    if name == "max":
        return np.uint32(0x80000000 if negative else 0)
    return np.uint32(0xFFFFFFFF if name == "and" else 0)


def _reduce_floats(name: str, magnitudes: bool, wins: bool, active: Bits, a: Bits, mask: Bits) -> Bits:
    """`redux.sync.min/max.f32` (sm_100a): the order and the NaN rules of `min` and `max`."""
    part = _members(active, mask)
    bits = _rows(a, active)
    if magnitudes:
        bits = bits & np.uint32(0x7FFFFFFF)
    nan = ((bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)) & part
    key = signed(bits) ^ ((signed(bits) >> 31) & np.int32(0x7FFFFFFF))
    used = part & ~nan
    worst = np.int32(0x7FFFFFFF if name == "min" else -0x80000000)
    keys = np.where(used, key, worst)
    best = keys.min(axis=1) if name == "min" else keys.max(axis=1)
    made = unsigned(best ^ ((best >> 31) & np.int32(0x7FFFFFFF)))
    lost = nan.any(axis=1) if wins else ~used.any(axis=1)
    return _spread(np.where(lost, np.uint32(0x7FFFFFFF), made))


def elect(form: Form) -> ScalarOp:
    """`elect.sync`: the lowest executing lane, whatever the mask says (H200); all lanes learn its number."""
    del form

    def run(active: Bits, mask: Bits) -> tuple[Bits, Bits]:
        del mask
        leader = _rows(active, active).argmax(axis=1)
        chosen = (leader[:, None] == _LANE) & _rows(active, active)
        return _spread(leader.astype(np.uint32)), chosen.ravel()

    return ScalarOp(run, ("b32",), ("b32", "pred"), warp=True)


def active_mask(form: Form) -> ScalarOp:
    """`activemask`: the executing lanes."""
    del form
    return ScalarOp(lambda active: _spread(mask_of(_rows(active, active))), (), ("b32",), warp=True)


BUILDERS = {
    "shfl": (shuffle,),
    "vote": (vote,),
    "match": (match,),
    "redux": (reduce_,),
    "elect": (elect,),
    "activemask": (active_mask,),
}
