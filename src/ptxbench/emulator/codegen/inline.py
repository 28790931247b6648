"""The commonest pure instructions as Python text, where a call would cost more than the work; everything else is bound.

Only forms without rounding, saturation, carry or flush: integers wrap in NumPy as they do on the device, and shifts by
more than the width give 0 or the sign in both.
"""

from __future__ import annotations

from ptxbench.emulator.codegen.op import Op, bits_of, dtype_of, typed
from ptxbench.emulator.ptx.ir import Instruction, Operand, Vector

_BINARY = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}


def inline(ins: Instruction) -> Op | None:
    """The instruction as an expression, if it is one of these."""
    maker = _MAKERS.get(ins.opcode)
    return maker(ins) if maker else None


def _plain(ins: Instruction) -> str:
    """The type of an instruction that has no other modifier and is an integer's; else empty."""
    if len(ins.modifiers) != 1:
        return ""
    type_ = ins.modifiers[0]
    return type_ if (type_[0] in "usb" and type_[1:].isdecimal() and bits_of(type_) >= 16) or type_ == "pred" else ""


def _arithmetic(ins: Instruction) -> Op | None:
    type_ = _plain(ins)
    if (
        not type_
        or any(isinstance(each, Vector) for each in ins.operands)
        or type_.endswith("x2")
        or bits_of(type_) > 64
    ):
        return None
    return _made(ins, type_, "{0} " + _BINARY[ins.opcode] + " {1}")


def _made(ins: Instruction, type_: str, text: str) -> Op:
    return Op(typed(ins.operands[1:], type_), typed(ins.operands[:1], type_), expression=text)


def _not(ins: Instruction) -> Op | None:
    type_ = _plain(ins)
    return _made(ins, type_, "~{0}") if type_ else None


def _multiply(ins: Instruction) -> Op | None:
    """`mul.lo`, `mad.lo`, and the wide forms of 32 bits."""
    if len(ins.modifiers) != 2:
        return None
    how, type_ = ins.modifiers
    last = " + {2}" if ins.opcode == "mad" else ""
    if type_[0] not in "us" or not type_[1:].isdecimal():
        return None
    if how == "lo":
        return _made(ins, type_, "{0} * {1}" + last)
    if how != "wide" or type_ not in ("u32", "s32"):
        return None
    wide = type_[0] + "64"
    one = "{0}.view('i4').astype('i8').view('u8')" if type_ == "s32" else "{0}.astype('u8')"
    text = f"{one} * {one.replace('{0}', '{1}')}{last}"
    sources = (*typed(ins.operands[1:3], type_), *typed(ins.operands[3:], wide))
    return Op(sources, typed(ins.operands[:1], wide), expression=text)


def _shift(ins: Instruction) -> Op | None:
    type_ = _plain(ins)
    if not type_ or type_ == "pred":
        return None
    dtype = dtype_of(type_)
    # An amount is cut to the width only after it is known to fit there.
    amount = {2: "minimum({1}, 31).astype('u2')", 4: "{1}", 8: "{1}.astype('u8')"}[dtype.itemsize]
    if ins.opcode == "shl":
        text = f"{{0}} << {amount}"
    elif type_[0] == "s":
        # NumPy compares a signed amount with the width; a huge unsigned one must not become negative.
        size = dtype.itemsize
        shift = f"minimum({amount}, W{size * 8}).view('i{size}')"
        text = f"({{0}}.view('i{size}') >> {shift}).view('u{size}')"
    else:
        text = f"{{0}} >> {amount}"
    sources = (*typed(ins.operands[1:2], type_), *typed(ins.operands[2:], "u32"))
    return Op(sources, typed(ins.operands[:1], type_), expression=text)


def _compare(ins: Instruction) -> Op | None:
    if len(ins.modifiers) != 2 or len(ins.operands) != 3 or ins.modifiers[0] not in _COMPARE:
        return None
    how, type_ = ins.modifiers
    if type_[0] not in "usb" or not type_[1:].isdecimal():
        return None
    operands = ins.operands
    if not isinstance(operands[0], Operand) or len(typed(operands[:1], "pred")) != 1:
        return None
    view = f".view('i{dtype_of(type_).itemsize}')" if type_[0] == "s" and how not in ("eq", "ne") else ""
    text = f"{{0}}{view} {_COMPARE[how]} {{1}}{view}"
    return Op(typed(operands[1:], type_), typed(operands[:1], "pred"), expression=text)


def _select(ins: Instruction) -> Op | None:
    type_ = ins.modifiers[0]
    if bits_of(type_) > 64:
        return None
    sources = (*typed(ins.operands[3:4], "pred"), *typed(ins.operands[1:3], type_))
    return Op(sources, typed(ins.operands[:1], type_), expression="where({0}, {1}, {2})")


def _move(ins: Instruction) -> Op | None:
    if len(ins.modifiers) != 1 or bits_of(ins.modifiers[0]) > 64:
        return None
    type_ = ins.modifiers[0]
    target, source = ins.operands
    if isinstance(target, Vector):
        return _unpack(target, source, type_)
    if isinstance(source, Vector):
        return _pack(target, source, type_)
    return _made(ins, type_, "{0}")


def _pack(target: Operand, source: Vector, type_: str) -> Op:
    part = f"b{bits_of(type_) // len(source.items)}"
    width = bits_of(part)
    wide = f"u{bits_of(type_) // 8}"
    if width == 8:
        text = " | ".join(f"(({{{i}}} & 255).astype('{wide}') << {8 * i})" for i in range(len(source.items)))
    else:
        text = " | ".join(f"({{{i}}}.astype('{wide}') << {width * i})" for i in range(len(source.items)))
    return Op(typed((source,), part), ((target, type_),), expression=text)


def _unpack(target: Vector, source: Operand, type_: str) -> Op:
    count = len(target.items)
    part = f"b{bits_of(type_) // count}"
    width = bits_of(part)
    mask = " & 255" if width == 8 else ""
    made = dtype_of(part).str
    text = ", ".join(f"({{0}} >> {width * i}{mask}).astype('{made}')" for i in range(count))
    return Op(((source, type_),), typed((target,), part), expression=text)


def _convert(ins: Instruction) -> Op | None:
    """Between integers of 16 bits and more."""
    if len(ins.modifiers) != 2:
        return None
    to, of = ins.modifiers
    if any(each[0] not in "us" or not each[1:].isdecimal() or bits_of(each) < 16 for each in (to, of)):
        return None
    view = f".view('i{bits_of(of) // 8}')" if of[0] == "s" and bits_of(to) > bits_of(of) else ""
    text = "{0}" if bits_of(to) == bits_of(of) else f"{{0}}{view}.astype('u{bits_of(to) // 8}')"
    return Op(typed(ins.operands[1:], of), typed(ins.operands[:1], to), expression=text)


def _extreme(ins: Instruction) -> Op | None:
    type_ = _plain(ins)
    if not type_ or type_[0] not in "us":
        return None
    function = {"min": "minimum", "max": "maximum"}[ins.opcode]
    size = dtype_of(type_).itemsize
    text = f"{function}({{0}}, {{1}})"
    if type_[0] == "s":
        text = f"{function}({{0}}.view('i{size}'), {{1}}.view('i{size}')).view('u{size}')"
    return _made(ins, type_, text)


_MAKERS = {
    **dict.fromkeys(_BINARY, _arithmetic),
    **{"not": _not, "mul": _multiply, "mad": _multiply, "shl": _shift, "shr": _shift, "setp": _compare},
    **{"selp": _select, "mov": _move, "cvt": _convert, "min": _extreme, "max": _extreme},
}
