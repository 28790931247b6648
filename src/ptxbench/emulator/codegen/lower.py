"""Scalar instructions as trees of the core's operations; an instruction that has none is executed by NumPy.

A tree is the number of a source, or an operation's name with trees as operands. A tree gives the same bits as the
function or text that the instruction is otherwise executed by; `tests/emulator/scalar/test_lower.py` compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxbench.emulator.codegen.op import Op, bits_of
from ptxbench.emulator.ptx.ir import Instruction, Pair, Vector

Tree = int | tuple[Any, ...]
"""The number of a source, or a name and its operands, trees again."""
Trees = tuple[Tree, ...]
Lower = Callable[[Instruction, Op], Trees | None]

_INTEGERS = frozenset(f"{kind}{bits}" for kind in "usb" for bits in (16, 32, 64))
_FLOAT_WORDS = frozenset(("f32", "rn", "ftz", "sat", "approx", "full"))


def lower(ins: Instruction, op: Op) -> Trees | None:
    """One tree per result, or None.

    Args:
        ins: The instruction.
        op: How NumPy executes it: what the sources and results are.
    """
    maker = _MAKERS.get(ins.opcode)
    return maker(ins, op) if maker else None


def cast(tree: Tree, have: int, want: int, *, signed: bool = False) -> Tree:
    """A value of `have` bits in a register of `want` bits, cut or extended."""
    if have == want:
        return tree
    kind = "cut" if have > want else "sign" if signed else "zero"
    return (f"{kind}_{have}_{want}", tree)


def _only(ins: Instruction) -> str:
    """The type of an instruction whose only modifier it is, where the core has it; else empty."""
    return ins.modifiers[0] if len(ins.modifiers) == 1 and ins.modifiers[0] in _INTEGERS else ""


def _logic(ins: Instruction, op: Op) -> Trees | None:
    type_ = ins.modifiers[-1]
    bits = 8 if type_ == "pred" else bits_of(type_)
    if len(ins.modifiers) != 1 or bits > 64 or (type_ != "pred" and not _only(ins)):
        return None
    return ((f"{ins.opcode}_{bits}", *range(len(op.sources))),)


def _arithmetic(ins: Instruction, op: Op) -> Trees | None:
    type_ = _only(ins)
    if type_:
        return ((f"{ins.opcode}_{bits_of(type_)}", 0, 1),)
    return _floating(ins, op)


def _floating(ins: Instruction, op: Op) -> Trees | None:
    """float32, to nearest, with `.ftz` and `.sat`."""
    words = set(ins.modifiers)
    if ins.modifiers[-1] != "f32" or not words <= _FLOAT_WORDS or {"approx", "full"} & words:
        return None
    sources: list[Tree] = [_flushed(place, words) for place in range(len(op.sources))]
    name = "fma" if ins.opcode == "mad" else ins.opcode
    tree: Tree = (f"{name}_f32", *sources)
    if "sat" in words:
        tree = ("saturate_f32", tree)
    return (_flushed(tree, words),)


def _flushed(tree: Tree, words: set[str]) -> Tree:
    return ("flush_f32", tree) if "ftz" in words else tree


def _multiply(ins: Instruction, op: Op) -> Trees | None:
    """`mul` and `mad` of integers: `.lo`, `.hi` of 32 bits, `.wide`."""
    if ins.modifiers[-1] not in _INTEGERS:
        return _floating(ins, op)
    if len(ins.modifiers) != 2:
        return None
    how, type_ = ins.modifiers
    bits = bits_of(type_)
    names = {"lo": f"mul_{bits}", "hi": f"high_{type_}", "wide": f"wide_{type_}"}
    if (how == "hi" and bits != 32) or (how == "wide" and bits == 64):
        return None
    product: Tree = (names[how], 0, 1)
    if ins.opcode == "mul":
        return (product,)
    return ((f"add_{2 * bits if how == 'wide' else bits}", product, 2),)


def _divide(ins: Instruction, op: Op) -> Trees | None:
    if _only(ins) in ("u32", "s32"):
        return ((f"{ins.opcode}_{ins.modifiers[0]}", 0, 1),)
    return _floating(ins, op) if "rn" in ins.modifiers else None


def _unary(ins: Instruction, op: Op) -> Trees | None:
    """`neg` and `abs`."""
    type_ = _only(ins)
    if type_:
        return ((f"{ins.opcode}_{'s' if ins.opcode == 'abs' else ''}{bits_of(type_)}", 0),)
    return _floating(ins, op)


def _shift(ins: Instruction, op: Op) -> Trees | None:
    type_ = _only(ins)
    if not type_:
        return None
    kind = "" if ins.opcode == "shl" else "s" if type_[0] == "s" else "u"
    return ((f"{ins.opcode}_{kind}{bits_of(type_)}", 0, 1),)


def _extreme(ins: Instruction, op: Op) -> Trees | None:
    type_ = _only(ins)
    if type_:
        return ((f"{ins.opcode}_{'s' if type_[0] == 's' else 'u'}{bits_of(type_)}", 0, 1),)
    return _floating(ins, op) if len(op.sources) == 2 else None


def _compare(ins: Instruction, op: Op) -> Trees | None:
    """`setp`, with a third predicate and with the opposite as second result."""
    words = list(ins.modifiers)
    type_, how = words.pop(), words.pop(0)
    ftz = "ftz" in words
    join = [word for word in words if word != "ftz"]
    if join not in ([], ["and"], ["or"], ["xor"]):
        return None
    found = _float_order(how, ftz=ftz) if type_ == "f32" else _order(how, type_) if type_ in _INTEGERS else None
    if found is None:
        return None
    both = [found, ("not_8", found)] if isinstance(ins.operands[0], Pair) else [found]
    if join:
        both = [(f"{join[0]}_8", each, 2) for each in both]
    return tuple(both)


def _order(how: str, type_: str) -> Tree | None:
    bits = bits_of(type_)
    if how in ("eq", "ne"):
        return (f"{how}_{bits}", 0, 1)
    kind = "s" if type_[0] == "s" and how in ("lt", "le", "gt", "ge") else "u"
    names = {"lt": "lt", "lo": "lt", "gt": "gt", "hi": "gt", "le": "le", "ls": "le", "ge": "ge", "hs": "ge"}
    if how not in names:
        return None
    name = names[how]
    if name in ("lt", "le"):
        return (f"{name}_{kind}{bits}", 0, 1)
    return (f"{'lt' if name == 'gt' else 'le'}_{kind}{bits}", 1, 0)


def _float_order(how: str, *, ftz: bool) -> Tree | None:
    words = {"ftz"} if ftz else set()
    x, y = _flushed(0, words), _flushed(1, words)
    unordered: Tree = ("unordered_f32", x, y)
    ordered: dict[str, Tree] = {
        **{"eq": ("eq_f32", x, y), "lt": ("lt_f32", x, y), "le": ("le_f32", x, y)},
        **{"gt": ("lt_f32", y, x), "ge": ("le_f32", y, x)},
    }
    if how in ordered:
        return ordered[how]
    if how == "nan":
        return unordered
    if how == "num":
        return ("not_8", unordered)
    if how == "ne":
        return ("not_8", ("or_8", ordered["eq"], unordered))
    if how == "neu":
        return ("not_8", ordered["eq"])
    return ("or_8", ordered[how[:-1]], unordered) if how[:-1] in ordered else None


def _select(ins: Instruction, op: Op) -> Trees | None:
    bits = bits_of(ins.modifiers[-1])
    # The text of `selp` has the predicate first, the function last.
    if bits not in (16, 32, 64) or op.sources[0][1] != "pred":
        return None
    return ((f"select_{bits}", 0, 1, 2),)


def _move(ins: Instruction, op: Op) -> Trees | None:
    if len(ins.modifiers) != 1 or bits_of(ins.modifiers[0]) > 64:
        return None
    target, source = ins.operands
    bits = bits_of(ins.modifiers[0])
    if isinstance(target, Vector) or isinstance(source, Vector):
        if len(op.sources) + len(op.results) != 3 or bits not in (32, 64):
            return None
        half = bits // 2
        if isinstance(target, Vector):
            return (f"cut_{bits}_{half}", 0), (f"upper_{bits}", 0)
        return ((f"join_{half}", 0, 1),)
    return (0,)


def _convert(ins: Instruction, op: Op) -> Trees | None:
    words = list(ins.modifiers)
    of, to = words.pop(), words.pop()
    if to == "bf16x2" and of == "f32" and words == ["rn"]:
        return (("pack_bf16", 0, 1),)
    if (to, of, words) in (("bf16", "f32", ["rn"]), ("f32", "bf16", [])):
        return ((f"{to}_{of}", 0),)
    if to == "f32" and of in ("u32", "s32") and words == ["rn"]:
        return ((f"f32_{of}", 0),)
    if of == "f32" and to in ("u32", "s32") and words == ["rzi"]:
        return ((f"{to}_f32", 0),)
    if words or to not in _INTEGERS or of not in _INTEGERS:
        return None
    # Registers may be wider than the types: only the plain case is taken.
    if (op.sources[0][1], op.results[0][1]) != (of, to):
        return None
    return (cast(0, bits_of(of), bits_of(to), signed=of[0] == "s"),)


def _reciprocal(ins: Instruction, op: Op) -> Trees | None:
    """`rcp`, correctly rounded and `.approx`, whose model is the same."""
    words = set(ins.modifiers)
    if ins.modifiers[-1] != "f32" or not words <= _FLOAT_WORDS or "sat" in words:
        return None
    return (_flushed(("rcp_f32", _flushed(0, words)), words),)


def _approximation(ins: Instruction, op: Op) -> Trees | None:
    words = set(ins.modifiers)
    if "approx" not in words or ins.modifiers[-1] != "f32":
        return None
    return (_flushed((f"{ins.opcode}_f32", _flushed(0, words)), words),)


def _square_root(ins: Instruction, op: Op) -> Trees | None:
    words = set(ins.modifiers)
    if ins.modifiers[-1] != "f32" or not words <= _FLOAT_WORDS:
        return None
    return (_flushed(("sqrt_f32", _flushed(0, words)), words),)


def _count(ins: Instruction, op: Op) -> Trees | None:
    return ((f"{ins.opcode}_{bits_of(_only(ins))}", 0),) if _only(ins) else None


def _shuffle(ins: Instruction, op: Op) -> Trees | None:
    """`shfl.sync`; source 0 is the executing lanes."""
    mode = ins.modifiers[1]
    value: Tree = (f"shfl_{mode}", 0, 1, 2, 3)
    return (value, (f"inside_{mode}", 2, 3)) if isinstance(ins.operands[0], Pair) else (value,)


_MAKERS: dict[str, Lower] = {
    **dict.fromkeys(("and", "or", "xor", "not"), _logic),
    **dict.fromkeys(("add", "sub"), _arithmetic),
    **dict.fromkeys(("mul", "mad"), _multiply),
    **dict.fromkeys(("div", "rem"), _divide),
    **dict.fromkeys(("neg", "abs"), _unary),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(("min", "max"), _extreme),
    **dict.fromkeys(("ex2", "lg2", "rsqrt"), _approximation),
    **dict.fromkeys(("popc", "clz"), _count),
    **{"fma": _floating, "rcp": _reciprocal, "sqrt": _square_root, "shfl": _shuffle},
    **{"setp": _compare, "selp": _select, "mov": _move, "cvt": _convert},
}
