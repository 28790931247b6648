"""Extended-precision integer arithmetic: sums and products that hand a carry on (PTX ISA, section of that name)."""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp
from ptxbench.emulator.codegen.scalar.integer import high


def _sum(a: Bits, b: Bits, carry: Bits) -> tuple[Bits, Bits]:
    part = a + b
    total = part + carry.astype(part.dtype)
    return total, (part < a) | (total < part)


def _difference(a: Bits, b: Bits, borrow: Bits) -> tuple[Bits, Bits]:
    part = a - b
    total = part - borrow.astype(part.dtype)
    return total, (a < b) | (part < total)


def _built(form: Form, count: int, compute: Run) -> ScalarOp | None:
    """Gives the carry in (false where the instruction takes none), keeps the carry out if it is wanted."""
    takes, gives = form.ins.opcode.endswith("c"), "cc" in form.words
    if not (takes or gives):
        return None

    def run(*arguments: Bits) -> Bits | tuple[Bits, Bits]:
        values = arguments if takes else (*arguments, np.zeros((), np.bool_))
        total, carry = compute(*values)
        return (total, carry) if gives else total

    return ScalarOp(run, (form.type,) * count, (form.type,), carry_in=takes, carry_out=gives)


def add(form: Form) -> ScalarOp | None:
    """`add.cc`, `addc`, `addc.cc`."""
    return _built(form, 2, _sum)


def subtract(form: Form) -> ScalarOp | None:
    """`sub.cc`, `subc`, `subc.cc`; the flag is the borrow."""
    return _built(form, 2, _difference)


def mad(form: Form) -> ScalarOp | None:
    """`mad.cc`, `madc`, `madc.cc`: half a product onto c."""
    product: Run = partial(high, negative=form.type[0] == "s") if "hi" in form.words else np.multiply
    return _built(form, 3, lambda a, b, c, carry: _sum(product(a, b), c, carry))


BUILDERS = {"add": (add,), "addc": (add,), "sub": (subtract,), "subc": (subtract,), "mad": (mad,), "madc": (mad,)}
