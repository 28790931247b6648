"""PTX as values: module, function, block, instruction, operand; made by `parse`, read by all, run by nothing.

Names follow the PTX ISA. All values are immutable; an instruction's identity is its position in its function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias


class Space(StrEnum):
    """State spaces (PTX ISA, section State Spaces)."""

    REG = "reg"
    SREG = "sreg"
    CONST = "const"
    GLOBAL = "global"
    LOCAL = "local"
    PARAM = "param"
    SHARED = "shared"
    GENERIC = "generic"


@dataclass(frozen=True)
class Register:
    """A virtual register; `slot` numbers it within its function, after scopes are resolved."""

    name: str
    type: str
    """Declared type without the dot: `b32`, `f32`, `pred`, `b128`, ..."""
    slot: int


@dataclass(frozen=True)
class Immediate:
    """A literal. Integers keep their mathematical value; floats are kept as the bits that the source wrote."""

    value: int
    """The integer, or the IEEE bits of a floating literal (`0f3F800000`, `0d...`, `1.0` as f64 bits)."""
    kind: str
    """`int`, `f32` (0f literal), `f64` (0d literal or decimal)."""


@dataclass(frozen=True)
class Special:
    """A special register such as `%tid.x` or `%clock64` (name with the percent sign)."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, parameter or function, plus a constant."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`; base is a register, a symbol or an absolute immediate."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """`{a, b, ...}`; also a tensor coordinate list and a wgmma register list."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class TensorAddress:
    """`[map, {c0, c1, ...}]` of the tensor copies (with im2col offsets in a further vector)."""

    map: Operand
    coordinates: Vector
    offsets: Vector | None = None


@dataclass(frozen=True)
class Pair:
    """`p|q`: a destination with a second predicate destination."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    """`!p` as an operand."""

    register: Register


@dataclass(frozen=True)
class Sink:
    """`_`: no destination."""


@dataclass(frozen=True)
class Label:
    """A branch target within the function."""

    name: str


Operand: TypeAlias = (
    Register | Immediate | Special | Symbol | Address | Vector | TensorAddress | Pair | Negated | Sink | Label
)


@dataclass(frozen=True)
class Location:
    """A line of CUDA source, from `.loc`; `inlined_at` leads outwards.

    Attributes:
        function: The inlined function that has the line, without its namespaces; empty where nothing is inlined.
    """

    file: str
    line: int
    inlined_at: Location | None = None
    function: str = ""


@dataclass(frozen=True)
class Guard:
    """`@p` or `@!p` before an instruction."""

    register: Register
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction."""

    opcode: str
    """First word: `add`, `wgmma`, `cp`, `mbarrier`, ..."""
    modifiers: tuple[str, ...]
    """The other words without dots, `::` kept, in the order of the PTX ISA's syntax, whatever order the text has:
    `("async", "bulk", "tensor", "2d", "shared::cluster", "global", "tile", "mbarrier::complete_tx::bytes")`."""
    operands: tuple[Operand, ...]
    guard: Guard | None
    index: int
    """Position in its function, over all blocks."""
    line: int
    """Line of the PTX text, from 1."""
    location: Location | None = None

    @cached_property
    def name(self) -> str:
        """The whole mnemonic with dots."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Variable:
    """A variable in global, const, shared, local or param space."""

    name: str
    space: Space
    align: int
    size: int
    """Bytes; 0 for an extern array (dynamic shared memory)."""
    initial: bytes | None = None
    type: str = "b8"
    relocations: tuple[tuple[int, str, int], ...] = ()
    """(offset, symbol, addend) of 8-byte addresses inside `initial`."""


@dataclass(frozen=True)
class Block:
    """A basic block: control enters at its start and leaves at its end."""

    index: int
    labels: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]
    """Fall-through first, then branch targets."""


@dataclass(frozen=True)
class Function:
    """A kernel (`entry`) or a device function; without blocks it is declared but not defined (`vprintf`)."""

    name: str
    entry: bool
    parameters: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    registers: tuple[Register, ...]
    variables: tuple[Variable, ...]
    """Shared, local and param-space variables declared inside, scopes resolved (unique names)."""
    blocks: tuple[Block, ...]
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """`.maxntid`, `.reqntid`, `.minnctapersm`, `.maxnreg`, `.reqnctapercluster`, ... without the dot."""

    @property
    def keeps_setmaxnreg(self) -> bool:
        """Whether its registers at launch follow from directives; if not, `ptxas` leaves `setmaxnreg` out.

        PTX ISA 9.0, 9.7.19 (it may have no effect), and what `ptxas` 13.0 does for sm_90a and sm_100a.
        """
        named = self.directives.keys()
        return "maxnreg" in named or ("minnctapersm" in named and bool(named & {"maxntid", "reqntid"}))


@dataclass(frozen=True)
class Module:
    """One PTX text."""

    version: tuple[int, int]
    target: str
    address_size: int
    functions: dict[str, Function]
    variables: dict[str, Variable]
    """Module-scope variables."""
    files: dict[int, str] = field(default_factory=dict)
