"""A function's body: statements in order, scopes, labels, source locations; what instructions mean is not known here.

Instructions are read with two regular expressions and a search for the semicolon: a kernel has megabytes of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx.ir import Guard, Instruction, Label, Location, Operand, Register, TensorAddress, Vector
from ptxbench.emulator.ptx.isa import canonical
from ptxbench.emulator.ptx.operands import operand, split
from ptxbench.emulator.ptx.scopes import Names, Scope
from ptxbench.emulator.ptx.source import Cursor, Source
from ptxbench.emulator.ptx.variables import SPACES, prefix, registers, variable

_NAME = r"[A-Za-z][\w$]*|[_$%][\w$]+"
_BLANK = re.compile(r"[\s;]*")
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)\s*(\.branchtargets|\.calltargets|\.callprototype)?")
_INSTRUCTION = re.compile(
    rf"(?:@\s*(!?)\s*((?:{_NAME})(?:\.[xyzwrgba])?)\s+)?([a-z]\w*(?:\s*\.[\w:]+)*)(?=[\s;\[{{(]|\Z)\s*", re.ASCII
)
_LOC = re.compile(
    r"\.loc\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})"
    r"(?:\s*,\s*function_name\s+([\w$.]+)(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9}))?"
)
_CALL = re.compile(r"(?:\(([^()]*)\)\s*,\s*)?([^,()\s]+)\s*(?:,\s*\(([^()]*)\)\s*)?(?:,\s*([^,()\s]+)\s*)?\Z")
_IM2COL_LISTS = ("im2col", "im2col::w", "im2col::w::128")
_MAX_INLINED = 100

Place = tuple[int, int, int]


@dataclass
class Lines:
    """`.loc` directives of a function: the place of the next instruction, and the chain of calls inlined around it."""

    files: dict[int, str]
    functions: Mapping[str, str]
    """Names of inlined functions by the label of their string."""
    current: Location | None = None
    _latest: dict[Place, tuple[Location, int]] = field(default_factory=dict)
    """The last location at a place, and how many calls are inlined around it."""
    _made: dict[tuple[Place, int], Location] = field(default_factory=dict)

    def move(self, match: re.Match[str]) -> None:
        """Take over one directive; line 0 is the compiler's word for no line."""
        place: Place = (int(match[1]), int(match[2]), int(match[3]))
        around: Location | None = None
        depth = 0
        if match[4]:
            around, depth = self._call((int(match[5]), int(match[6]), int(match[7])))
        # One object for one location, so that nothing compares or keeps long chains twice; `around` lives as long.
        key = (place, id(around))
        here = self._made.get(key)
        if here is None:
            function = self.functions.get(match[4] or "", "")
            here = self._made[key] = Location(self._file(place[0]), place[1], around, function)
        self._latest[place] = (here, depth)
        self.current = here if place[1] else None

    def _call(self, call: Place) -> tuple[Location, int]:
        """The place of an inlined call and the new depth; absurd depths start afresh."""
        found = self._latest.get(call)
        if found is None or found[1] >= _MAX_INLINED:
            key = (call, id(None))
            made = self._made.setdefault(key, Location(self._file(call[0]), call[1]))
            return made, 1
        return found[0], found[1] + 1

    def _file(self, number: int) -> str:
        return self.files.get(number, f"file {number}")


@dataclass
class Body:
    """What a body holds: all instructions in order, and labels by the index of the instruction that they precede."""

    source: Source
    names: Names
    lines: Lines
    budget: int
    """How many more instructions the limits allow."""
    instructions: list[Instruction] = field(default_factory=list)
    labels: list[tuple[int, str]] = field(default_factory=list)
    _jumps: list[tuple[int, Scope, str]] = field(default_factory=list)
    _mnemonics: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def read(self, position: int) -> int:
        """Read from behind the opening brace; the answer is the offset behind the closing one.

        Raises:
            PtxError: A statement is none, or a name is not declared.
        """
        text, outermost = self.source.text, self.names.depth
        while True:
            blank = _BLANK.match(text, position)
            position = blank.end() if blank else position
            first = text[position : position + 1]
            if first == "}":
                position += 1
                if self.names.depth == outermost:
                    break
                self.names.close()
            elif first == "{":
                position += 1
                self.names.open()
                if self.names.depth > self.source.limits.nesting:
                    self.source.fail(position, "scopes are nested too deeply")
            elif first == ".":
                position = self._directive(position)
            elif first == "":
                self.source.fail(position, "a function's body does not end")
            else:
                position = self._label(position) or self._instruction(position)
        self._resolve_jumps()
        return position

    def _directive(self, position: int) -> int:
        match = _LOC.match(self.source.text, position)
        if match:
            self.lines.move(match)
            return match.end()
        cursor = Cursor(self.source, position)
        word = cursor.take()
        if word == ".reg":
            registers(cursor, self.names)
        elif word == ".pragma":
            cursor.take()
            cursor.expect(";")
        elif word == ".file":
            cursor.until("\n")
        elif word in (".local", ".shared", ".param", ".extern"):
            self._variables(cursor, word)
        else:
            self.source.fail(position, f"`{word}` does not belong in a function's body")
        return cursor.position

    def _variables(self, cursor: Cursor, word: str) -> None:
        external = word == ".extern"
        if external:
            word = cursor.take()
            if word != ".shared":
                cursor.fail("only .shared variables are external in a function")
        head = prefix(cursor, SPACES[word], external)
        while True:
            made = variable(cursor, head)
            if len(self.names.variables) >= self.source.limits.variables:
                cursor.fail("there are too many variables")
            if self.names.declare_variable(made) is None:
                cursor.fail(f"`{made.name}` is declared twice")
            if not cursor.accept(","):
                break
        cursor.expect(";")

    def _label(self, position: int) -> int:
        """Read a label or a list that has one; 0 if there is none."""
        match = _LABEL.match(self.source.text, position)
        if match is None:
            return 0
        name, kind = match[1], match[2]
        if kind is None:
            unique = self.names.declare_label(name)
            if unique is None:
                self.source.fail(position, f"label `{name}` is declared twice")
            self.labels.append((len(self.instructions), unique))
            return match.end()
        cursor = Cursor(self.source, match.end())
        listed = cursor.until(";")
        if kind == ".branchtargets":
            self.names.scope.tables[name] = tuple(part.strip() for part in listed.split(","))
        return cursor.position

    def _instruction(self, position: int) -> int:
        text = self.source.text
        match = _INSTRUCTION.match(text, position)
        if match is None:
            self.source.fail(position, f"`{text[position : position + 40].splitlines()[0]}` is not a statement")
        negated, guard_name, mnemonic = match.groups()
        end = text.find(";", match.end(), match.end() + self.source.limits.statement)
        if end < 0:
            self.source.fail(position, f"`{mnemonic[:60]}` is not ended by a semicolon")
        line = self.source.line(position)
        known = self._mnemonics.get(mnemonic)
        if known is None:
            if len(self._mnemonics) >= self.source.limits.mnemonics:
                self.source.fail(position, "there are too many different mnemonics")
            words = tuple(canonical(re.sub(r"\s+", "", mnemonic)).split("."))
            known = self._mnemonics[mnemonic] = (words[0], words[1:])
        opcode, modifiers = known
        guard = None
        if guard_name:
            register = operand(guard_name, self.names, line)
            if not isinstance(register, Register) or register.type != "pred":
                self.source.fail(position, f"guard `{guard_name}` is not a predicate register")
            guard = Guard(register, bool(negated))
        operands = self._operands(opcode, modifiers, text[match.end() : end], line)
        index = len(self.instructions)
        if index >= self.budget:
            self.source.fail(position, "there are too many instructions")
        self.instructions.append(Instruction(opcode, modifiers, operands, guard, index, line, self.lines.current))
        return end + 1

    def _operands(self, opcode: str, modifiers: tuple[str, ...], text: str, line: int) -> tuple[Operand, ...]:
        names = self.names
        if opcode == "call":
            return self._call(text.strip(), line)
        parts = split(text, line)
        if opcode in ("bra", "brx") and parts:
            self._jumps.append((len(self.instructions), names.scope, parts[-1]))
            return (*(operand(part, names, line) for part in parts[:-1]), Label(parts[-1]))
        known = names.scope.operands
        found = []
        for part in parts:
            hit = known.get(part)
            found.append(hit if hit is not None else operand(part, names, line))
        if opcode == "cp" and any(kind in modifiers for kind in _IM2COL_LISTS):
            return _with_offsets(found)
        return tuple(found)

    def _call(self, text: str, line: int) -> tuple[Operand, ...]:
        """Results, target, arguments; a prototype says nothing that the callee does not."""
        match = _CALL.match(text)
        if match is None:
            self._fail_line(line, f"`call {text[:60]}` is not a call")
        results, target, arguments, _ = match.groups()
        lists = [
            Vector(tuple(operand(part, self.names, line) for part in split(listed or "", line)))
            for listed in (results, arguments)
        ]
        return lists[0], operand(target, self.names, line), lists[1]

    def _resolve_jumps(self) -> None:
        """Give targets their unique names and tables their labels, which are known only when all scopes are closed."""
        for index, scope, name in self._jumps:
            old = self.instructions[index]
            target: Operand
            if old.opcode == "bra":
                target = Label(self._target(name, scope, old.line))
            else:
                home = next((around for around in scope.outwards() if name in around.tables), None)
                if home is None:
                    self._fail_line(old.line, f"`{name[:60]}` is not a list of branch targets")
                target = Vector(tuple(Label(self._target(each, home, old.line)) for each in home.tables[name]))
            self.instructions[index] = replace(old, operands=(*old.operands[:-1], target))

    def _target(self, name: str, scope: Scope, line: int) -> str:
        unique = self.names.label(name, scope)
        if unique is None:
            self._fail_line(line, f"label `{name[:60]}` is not declared in this scope or around it")
        return unique

    def _fail_line(self, line: int, message: str) -> NoReturn:
        raise PtxError(line, message)


def _with_offsets(found: list[Operand]) -> tuple[Operand, ...]:
    """Move the offsets of an im2col copy, which stand behind the barrier, into its tensor address."""
    tensor = next((place for place, each in enumerate(found) if isinstance(each, TensorAddress)), None)
    if tensor is None:
        return tuple(found)
    for place in range(tensor + 1, len(found)):
        offsets, address = found[place], found[tensor]
        if isinstance(offsets, Vector) and isinstance(address, TensorAddress):
            found[tensor] = replace(address, offsets=offsets)
            del found[place]
            break
    return tuple(found)
