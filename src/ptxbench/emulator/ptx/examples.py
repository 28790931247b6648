"""PTX text of every instruction form: what an assembler, a parser or a compiler can be asked about; judges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.shapes import OperandSpec

_WIDTHS = {8: "b", 16: "h", 32: "r", 64: "d", 128: "q"}
_HEAD = """.version 9.0
.target {target}
.address_size 64
.func callee() {{ ret; }}
.visible .entry kernel(.param .align 16 .b8 parameter[256])
.maxntid 128
.minnctapersm 1
{{
  .reg .pred p<9>;
  .reg .b8 b<9>;
  .reg .b16 h<40>;
  .reg .b32 r<300>;
  .reg .b64 d<40>;
  .reg .b128 q<9>;
  .local .align 16 .b8 local_data[64];
  .shared .align 16 .b8 shared_data[64];
  .param .align 16 .b8 argument[64];
  TARGETS: .branchtargets LABEL;
"""


def width_of(type_: str) -> str:
    """Letter of the registers that hold a type: p, or b, h, r, d, q for 8 to 128 bits."""
    if type_ == "pred":
        return "p"
    if type_.startswith(("e", "ue")):
        element = 4 if type_.startswith("e2m1") else 8
        return _WIDTHS[element * int(type_.partition("x")[2] or 1)]
    base, _, times = type_.partition("x")
    return _WIDTHS[int("".join(letter for letter in base if letter.isdecimal())) * int(times or 1)]


class _Sampler:
    """Writes operands; registers are used in turn so that no two operands of an instruction are the same."""

    def __init__(self) -> None:
        self.used = dict.fromkeys("pbhrdq", 0)

    def register(self, type_: str) -> str:
        letter = width_of(type_)
        self.used[letter] += 1
        return f"{letter}{self.used[letter]}"

    def operand(self, spec: OperandSpec, mnemonic: str) -> str:
        kind = spec.kind
        if kind == "register":
            beside = "|" + self.register("pred") if spec.pair else ""
            return self.register(spec.type) + beside
        if kind == "vector":
            return "{" + ", ".join(self.register(spec.type) for _ in range(spec.count)) + "}"
        if kind == "address":
            if ".param" in mnemonic and mnemonic.startswith("st"):
                return "[argument]"
            if spec.space == "generic" and ".param" in mnemonic and "tensormap" not in mnemonic:
                return "[parameter]"
            wide = spec.space == "generic" or (spec.space == "shared" and "shared" not in mnemonic)
            return f"[{self.register('b64' if wide else 'b32')}]"
        if kind == "tensor":
            coordinates = ", ".join(self.register("b32") for _ in range(spec.count))
            return f"[{self.register('b64')}, {{{coordinates}}}]"
        if kind == "offsets":
            return "{" + ", ".join(self.register("b16") for _ in range(spec.count)) + "}"
        label = "TARGETS" if mnemonic.startswith("brx") else "LABEL"
        return {"immediate": str(spec.value), "label": label, "sink": "_", "call": "callee, ()"}[kind]


def instruction(mnemonic: str, specs: Sequence[OperandSpec]) -> str:
    """One instruction with all its operands."""
    sampler = _Sampler()
    return f"{mnemonic} {', '.join(sampler.operand(spec, mnemonic) for spec in specs)};"


def instructions(target: str, variants: bool) -> Iterator[tuple[isa.Form, str]]:
    """Every form of a target as an instruction, with all modifiers if asked for."""
    for form in isa.coverage():
        if target in form.targets:
            names = isa.mnemonics(form)
            for mnemonic in names if variants else names[:1]:
                yield form, instruction(mnemonic, isa.operands(form, mnemonic))


def text(target: str, lines: Sequence[str]) -> tuple[str, int]:
    """A module whose kernel has these instructions, and the line of the first."""
    head = _HEAD.format(target=target)
    return head + "\n".join(lines) + "\nLABEL:\nret;\n}\n", head.count("\n") + 1
