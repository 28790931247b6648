"""Names of PTX: scopes, registers made on first use, unique names for variables and labels; reads no text.

A name declared twice (inline assembly repeats its own in every copy) keeps its spelling the first time; later ones get
`@2`, `@3`, ... appended, which no PTX name can contain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ptxbench.emulator.ptx.ir import Operand, Register, Symbol, Variable

REGISTER_TYPES = frozenset(
    (
        *("pred", "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"),
        *("f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32", "e4m3", "e5m2"),
    )
)
_COMPONENTS = ("xyzw", "rgba")


@dataclass(frozen=True)
class RegisterVector:
    """`.reg .v4 .f32 v`: its components, in order."""

    components: tuple[Register, ...]


@dataclass(frozen=True)
class Callee:
    """A function's name, where an operand may take its address."""

    name: str


Binding: TypeAlias = Register | RegisterVector | Variable | Callee


@dataclass
class Scope:
    """One `{}`, a function's parameters, or (without parent) the module."""

    parent: Scope | None
    names: dict[str, Binding] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Prefix of `%r<12>`: count and type."""
    labels: dict[str, str] = field(default_factory=dict)
    """Label as written: its unique name."""
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a `.branchtargets` list: its labels as written."""
    operands: dict[str, Operand] = field(default_factory=dict)
    """Operand text: what it means here; emptied by each declaration."""

    def outwards(self) -> Iterator[Scope]:
        """This scope and all around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class Names:
    """The names of one function: finds what a name means and hands out slots and unique names."""

    def __init__(self, module: Scope) -> None:
        self.module = module
        self.scope = Scope(module)
        self.registers: list[Register] = []
        self.variables: list[Variable] = []
        self._used: dict[str, int] = {}
        self._labels: dict[str, int] = {}

    def open(self) -> None:
        """Enter a scope."""
        self.scope = Scope(self.scope)

    def close(self) -> None:
        """Leave a scope, not the outermost one of the function."""
        assert self.scope.parent is not None
        self.scope = self.scope.parent

    @property
    def depth(self) -> int:
        """Number of scopes around this place, the module's included."""
        return sum(1 for _ in self.scope.outwards())

    def declare_register(self, name: str, type_: str, lanes: int = 1) -> str | None:
        """Declare a register or (lanes > 1) a register vector; the answer is an error message or None."""
        if name in self.scope.names:
            return f"`{name}` is declared twice"
        self.scope.operands.clear()
        if lanes == 1:
            self.scope.names[name] = self._register(name, type_)
        else:
            components = tuple(self._register(f"{name}.{letter}", type_) for letter in _COMPONENTS[0][:lanes])
            self.scope.names[name] = RegisterVector(components)
        return None

    def declare_range(self, prefix: str, count: int, type_: str) -> str | None:
        """Declare `prefix<count>`; the answer is an error message or None."""
        if prefix in self.scope.ranges:
            return f"`{prefix}<{count}>` is declared twice"
        self.scope.operands.clear()
        self.scope.ranges[prefix] = (count, type_)
        return None

    def declare_variable(self, variable: Variable) -> Variable | None:
        """Declare a variable and give it a unique name; None if this scope has the name already."""
        if variable.name in self.scope.names:
            return None
        self.scope.operands.clear()
        unique = replace(variable, name=self._unique(variable.name, self._used))
        self.scope.names[variable.name] = unique
        self.variables.append(unique)
        return unique

    def declare_label(self, name: str) -> str | None:
        """Declare a label and give it a unique name; None if this scope has it already."""
        if name in self.scope.labels:
            return None
        self.scope.labels[name] = self._unique(name, self._labels)
        return self.scope.labels[name]

    def label(self, name: str, scope: Scope) -> str | None:
        """The unique name of the label that `name` means in a scope, once the function has been read."""
        return next((around.labels[name] for around in scope.outwards() if name in around.labels), None)

    def find(self, name: str) -> Binding | None:
        """What a name means at this place."""
        for scope in self.scope.outwards():
            found = scope.names.get(name)
            if found is None and scope.ranges:
                found = self._from_range(scope, name)
            if found is not None:
                return found
        return None

    def component(self, name: str, letter: str) -> Register | None:
        """`v.x` of a register vector."""
        vector = self.find(name)
        for letters in _COMPONENTS:
            place = letters.find(letter)
            if isinstance(vector, RegisterVector) and 0 <= place < len(vector.components):
                return vector.components[place]
        return None

    def _from_range(self, scope: Scope, name: str) -> Register | None:
        """A register of a range, made on its first use: `%r<1000000>` alone costs nothing."""
        for start in range(len(name.rstrip("0123456789")) or 1, len(name)):
            declared = scope.ranges.get(name[:start])
            if declared is None or (name[start] == "0" and len(name) - start > 1):
                continue
            if int(name[start:]) < declared[0]:
                register = self._register(name, declared[1])
                scope.names[name] = register
                return register
        return None

    def _register(self, name: str, type_: str) -> Register:
        register = Register(name, type_, len(self.registers))
        self.registers.append(register)
        return register

    def _unique(self, name: str, used: dict[str, int]) -> str:
        count = used.get(name, 0)
        if count == 0 and used is self._used and name in self.module.names:
            count = 1  # the module has the name: this one must differ
        used[name] = count + 1
        return name if count == 0 else f"{name}@{count + 1}"


def symbol(binding: Variable | Callee, offset: int = 0) -> Symbol:
    """The address of a variable or function."""
    return Symbol(binding.name, offset)
