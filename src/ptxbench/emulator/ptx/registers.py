"""Which registers an operand names; knows no instruction."""

from __future__ import annotations

from ptxbench.emulator.ptx.ir import Address, Negated, Operand, Pair, Register, TensorAddress, Vector


def slots(operand: Operand | None) -> set[int]:
    """The register slots in an operand."""
    match operand:
        case Register():
            return {operand.slot}
        case Negated():
            return {operand.register.slot}
        case Vector():
            return set().union(*(slots(each) for each in operand.items))
        case Pair():
            return slots(operand.first) | slots(operand.second)
        case Address():
            return slots(operand.base)
        case TensorAddress():
            return slots(operand.map) | slots(operand.coordinates) | slots(operand.offsets)
    return set()
