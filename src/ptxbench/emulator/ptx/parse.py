"""PTX text to a `Module` (PTX ISA 9.0): directives, functions, variables; what an instruction means is not known here.

Reads what nvcc emits for sm_90a and sm_100a and hand-written PTX. Textures, surfaces and module-scope registers are
refused.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ptxbench.emulator.ptx import cfg
from ptxbench.emulator.ptx.body import Body, Lines
from ptxbench.emulator.ptx.constants import integer
from ptxbench.emulator.ptx.ir import Function, Module, Space, Variable
from ptxbench.emulator.ptx.names import inlined_name
from ptxbench.emulator.ptx.scopes import Callee, Names, Scope
from ptxbench.emulator.ptx.source import Cursor, Limits, clean
from ptxbench.emulator.ptx.variables import SPACES, prefix, variable

_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d{1,9})[ \t]+"([^"\n]*)"', re.MULTILINE)
_STRING = re.compile(r"^(\$L__info_string\d{1,9}):[ \t]*\n((?:\.b8 [\d,]+\n)+)", re.MULTILINE)
"""A name in the section of strings, as bytes."""

_VERSION = re.compile(r"\s*(\d{1,3})\.(\d{1,3})")
_LINKAGE = frozenset((".visible", ".extern", ".weak", ".common"))
DEFAULT_LIMITS = Limits()


def parse(text: str, limits: Limits = DEFAULT_LIMITS) -> Module:
    """Read a PTX text.

    Raises:
        PtxError: It is not PTX, uses something that is not declared, or is beyond the limits; names the line.
    """
    return _Parser(text, limits).read()


class _Parser:
    """The module level: one method per kind of directive."""

    def __init__(self, text: str, limits: Limits) -> None:
        self.source = clean(text, limits)
        self.cursor = Cursor(self.source, 0)
        self.scope = Scope(None)
        self.version = (0, 0)
        self.target = ""
        self.address_size = 64
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.external: set[str] = set()
        self.aliases: list[tuple[str, str, int]] = []
        self.instructions = 0
        self.initial_bytes = 0
        # The compiler names its files behind the functions that refer to them.
        self.files = {int(match[1]): match[2] for match in _FILE.finditer(self.source.text)}
        self.inlined = {match[1]: inlined_name(match[2]) for match in _STRING.finditer(self.source.text)}

    def read(self) -> Module:
        cursor = self.cursor
        if cursor.peek() != ".version":
            cursor.fail("a PTX text begins with .version")
        while True:
            external = False
            while cursor.peek() in _LINKAGE:
                external = cursor.take() == ".extern" or external
            word = cursor.peek()
            if not word:
                break
            self._directive(word, external)
        if not self.target:
            cursor.fail("the text has no .target")
        self._resolve_aliases()
        return Module(self.version, self.target, self.address_size, self.functions, self.variables, self.files)

    def _directive(self, word: str, external: bool) -> None:
        cursor = self.cursor
        if word in (".entry", ".func"):
            cursor.take()
            self._function(word == ".entry")
        elif word in (".global", ".const", ".shared"):
            cursor.take()
            self._variables(SPACES[word], external)
        elif word in (".version", ".target", ".address_size"):
            cursor.take()
            self._heading(word)
        elif word in (".section", ".file", ".loc", ".pragma", "@", ";", ".alias"):
            self._aside(word)
        else:
            cursor.fail(f"`{word[:60]}` does not belong at the module's level")

    def _heading(self, word: str) -> None:
        cursor = self.cursor
        if word == ".version":
            match = _VERSION.match(self.source.text, cursor.position)
            if match is None:
                cursor.fail("a version has the form 9.0")
            self.version = (int(match[1]), int(match[2]))
            cursor.position = match.end()
        elif word == ".target":
            self.target = cursor.name()
            while cursor.accept(","):
                cursor.name()
        else:
            self.address_size = integer(cursor.take(), cursor.line)
            if self.address_size != 64:
                cursor.fail("only 64-bit addresses are supported")

    def _aside(self, word: str) -> None:
        """Skip what carries no meaning here: debug sections, file names, pragmas."""
        cursor = self.cursor
        cursor.take()
        if word == ".section":
            cursor.until("}")
        elif word == ".pragma":
            cursor.take()
            cursor.expect(";")
        elif word == ".alias":
            line = cursor.line
            alias = cursor.name()
            cursor.expect(",")
            self.aliases.append((alias, cursor.name(), line))
            cursor.expect(";")
        elif word in (".file", ".loc", "@"):
            end = self.source.text.find("\n", cursor.position)
            cursor.position = end if end >= 0 else len(self.source.text)

    def _variables(self, space: Space, external: bool) -> None:
        cursor = self.cursor
        head = prefix(cursor, space, external)
        while True:
            made = variable(cursor, head)
            known = self.scope.names.get(made.name)
            if known is not None and made.name not in self.external:
                cursor.fail(f"`{made.name}` is declared twice")
            self.initial_bytes += len(made.initial or b"")
            if self.initial_bytes > self.source.limits.initial_bytes:
                cursor.fail("the initial values are too large")
            if len(self.variables) >= self.source.limits.variables:
                cursor.fail("there are too many variables")
            (self.external.add if external else self.external.discard)(made.name)
            self.scope.names[made.name] = self.variables[made.name] = made
            if not cursor.accept(","):
                break
        cursor.expect(";")

    def _function(self, entry: bool) -> None:
        cursor, names = self.cursor, Names(self.scope)
        line = cursor.line
        while cursor.accept(".attribute"):
            cursor.expect("(")
            cursor.until(")")
        returns = self._parameters(names) if cursor.peek() == "(" and not entry else ()
        name = cursor.name()
        parameters = self._parameters(names) if cursor.peek() == "(" else ()
        directives = self._directives()
        known = self.functions.get(name)
        if not isinstance(self.scope.names.get(name, Callee(name)), Callee):
            cursor.fail(f"`{name}` is a variable and a function")
        self.scope.names[name] = Callee(name)
        declared = Function(name, entry, parameters, returns, (), (), (), directives)
        if cursor.accept(";"):
            self.functions.setdefault(name, declared)
        elif known is not None and known.blocks:
            cursor.fail(f"function `{name}` is defined twice")
        else:
            cursor.expect("{")
            self.functions[name] = self._body(declared, names)
        if len(self.functions) > self.source.limits.functions:
            self.source.fail(line, "there are too many functions")

    def _body(self, declared: Function, names: Names) -> Function:
        cursor, outside = self.cursor, len(names.variables)
        body = Body(
            self.source, names, Lines(self.files, self.inlined), self.source.limits.instructions - self.instructions
        )
        cursor.position = body.read(cursor.position)
        self.instructions += len(body.instructions)
        return replace(
            declared,
            registers=tuple(names.registers),
            variables=tuple(names.variables[outside:]),
            blocks=cfg.blocks(body.instructions, body.labels),
        )

    def _parameters(self, names: Names) -> tuple[Variable, ...]:
        cursor = self.cursor
        cursor.expect("(")
        made: list[Variable] = []
        while not cursor.accept(")"):
            if made:
                cursor.expect(",")
            space = SPACES.get(cursor.take())
            if space not in (Space.PARAM, Space.REG):
                cursor.fail("a parameter is .param or .reg")
            one = variable(cursor, prefix(cursor, space))
            if space is Space.REG:
                problem = names.declare_register(one.name, one.type)
                if problem:
                    cursor.fail(problem)
                made.append(one)
            else:
                unique = names.declare_variable(one)
                if unique is None:
                    cursor.fail(f"parameter `{one.name}` is declared twice")
                made.append(unique)
            if len(made) > 4096:
                cursor.fail("there are too many parameters")
        return tuple(made)

    def _directives(self) -> dict[str, tuple[int, ...]]:
        cursor = self.cursor
        found: dict[str, tuple[int, ...]] = {}
        while (word := cursor.peek()).startswith("."):
            cursor.take()
            if word == ".pragma":
                cursor.take()
                cursor.expect(";")
                continue
            values: list[int] = []
            while cursor.peek()[:1].isdecimal() and len(values) < 3:
                values.append(integer(cursor.take(), cursor.line))
                cursor.accept(",")
            found[word[1:]] = tuple(values)
        return found

    def _resolve_aliases(self) -> None:
        for alias, name, line in self.aliases:
            target = self.functions.get(name)
            if target is None:
                self.source.fail(line, f"`{alias}` stands for `{name}`, which is not declared")
            self.functions[alias] = replace(target, name=alias)
