"""PTX texts made from the tables of instruction forms, for tests; the package makes them."""

from ptxbench.emulator.ptx.examples import instruction, instructions, text, width_of

__all__ = ["instruction", "instructions", "text", "width_of"]
