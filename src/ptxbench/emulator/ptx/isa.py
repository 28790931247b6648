"""The instruction forms of PTX ISA 9.0 for sm_90a and sm_100a, without texture, surface and video; executes nothing.

The tables lie in `forms/*.toml`, one row per line: `mnemonic ; operands ; flags`.

Mnemonic: words as written. `<.a|.b>` is a choice that the coverage list expands, `(.a|.b)` one that it does not,
`{.a|.b}` may be absent; an empty alternative (`<|.a>`) is none; `$name` is a set of `forms/sets.toml`.

Operands: `d:T` a destination, `a:T` (or another letter) a source, `=d:T` both; `{a:T*4}` a vector, `~a:T` one if the
mnemonic has `.vN`; `[a]` an address, `[s]` and `[m]` one in shared memory, `[t]` one in tensor memory; `[[t]]` a tensor
and its coordinates, `{o}` its im2col offsets; `#4` an immediate, for example 4; `@` a label; `_` the sink; `()` a call.
`a:T|pred?` is a register with an optional predicate beside it. A last `?` means optional, `?word` present if the
mnemonic has the word. Types: `T` the last type of the mnemonic, `T1` the first, `W` twice as wide as T. Vector lengths:
`X2` twice the number in `.xN`, `N4` a quarter of N in `.m64nNk16`, `L` the lane masks of a `.cta_group`.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from itertools import product
from pathlib import Path

from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.ptx.shapes import OperandSpec, arrange, fits, read_specs

TARGETS = ("sm_90a", "sm_100a")
_FORMS = Path(__file__).parent / "forms"
_TABLES = ("arithmetic", "movement", "asynchronous", "control", "matrices", "tcgen05")
_GROUP = re.compile(r"<([^>]*)>|\(([^)]*)\)|\{([^}]*)\}")
_SET = re.compile(r"\$(\w+)")
_LONGEST = 250
_MOST_WORDS = 20


class Kind(StrEnum):
    """What part of the machine an instruction concerns."""

    SCALAR = "scalar"
    MEMORY = "memory"
    WARP = "warp"
    BARRIER = "barrier"
    ASYNC = "async"
    TENSOR = "tensor"
    CONTROL = "control"
    MISC = "misc"


@dataclass(frozen=True)
class Form:
    """A row of the coverage list: a mnemonic up to modifiers that change no type."""

    name: str
    """Unique; a name such as `.scmp` stands for a set, optional modifiers are left out."""
    section: str
    """Section of the PTX ISA."""
    kind: Kind
    blocking: bool
    """Whether a lane that executes it may have to wait for others."""
    targets: tuple[str, ...]
    """Which of sm_90a and sm_100a have it."""


@dataclass(frozen=True)
class Description:
    """An instruction's form, with its operands as this mnemonic has them."""

    form: Form
    operands: tuple[OperandSpec, ...]


@dataclass(frozen=True)
class _Row:
    """A line of a table."""

    mnemonic: str
    operands: str
    section: str
    kind: Kind
    blocking: bool
    targets: tuple[str, ...]

    @cached_property
    def full(self) -> str:
        """The mnemonic with its sets written out."""
        return _SET.sub(lambda match: _sets()[match[1]], self.mnemonic)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches all mnemonics; each expanded choice is a group."""
        text = self.full.replace(".", r"\.")

        def group(match: re.Match[str]) -> str:
            expanded, fixed, optional = match.groups()
            return f"({expanded})" if expanded is not None else f"(?:{fixed})" if fixed else f"(?:{optional})?"

        return re.compile(_GROUP.sub(group, text) + r"\Z")

    def choices(self) -> list[tuple[str, ...]]:
        """All combinations of the expanded choices."""
        return list(product(*(m[1].split("|") for m in _GROUP.finditer(self.full) if m[1] is not None)))

    def name(self, chosen: Sequence[str]) -> str:
        """The form's name for one combination."""
        rest = iter(chosen)

        def shown(match: re.Match[str]) -> str:
            if match[1] is not None:
                return next(rest)
            if match[3] is not None:
                return ""
            return f".{match[2][1:]}" if _SET.fullmatch(match[2]) else f"({match[2]})"

        return _GROUP.sub(shown, self.mnemonic)

    def mnemonics(self, chosen: Sequence[str]) -> tuple[str, ...]:
        """The example, and one variant for each alternative that is not in it."""
        groups, rest = list(_GROUP.finditer(self.full)), iter(chosen)
        default = [next(rest) if m[1] is not None else m[2].split("|")[0] if m[2] else "" for m in groups]
        found = [default]
        for place, match in enumerate(groups):
            others = (match[2] or match[3]).split("|") if match[1] is None else []
            found += [[*default[:place], other, *default[place + 1 :]] for other in others if other != default[place]]
        return tuple(_fill(self.full, each) for each in found)


def _fill(mnemonic: str, alternatives: Sequence[str]) -> str:
    rest = iter(alternatives)
    return _GROUP.sub(lambda _: next(rest), mnemonic)


def describe(instruction: Instruction) -> Description | None:
    """The form of an instruction, by its mnemonic and the kinds of its operands; None if the ISA has no such form."""
    return next(
        (each for each in _candidates(canonical(instruction.name)) if fits(each.operands, instruction.operands)), None
    )


def unsupported(instruction: Instruction) -> str | None:
    """Why the tables do not have an instruction; None if they have it."""
    if describe(instruction) is not None:
        return None
    if _candidates(canonical(instruction.name)):
        return f"`{instruction.name}` does not take these operands"
    return f"`{instruction.name}` is no instruction of PTX ISA 9.0 for {' or '.join(TARGETS)}"


def described(mnemonic: str) -> tuple[Description, ...]:
    """The forms that have this mnemonic, in the order of the tables; they differ in their operands."""
    return _candidates(mnemonic)


@lru_cache(maxsize=4096)
def is_blocking(mnemonic: str) -> bool:
    """Whether an instruction of this mnemonic may have to wait for others."""
    return any(row.blocking and row.pattern.match(mnemonic) is not None for _, row in _rows_of(mnemonic))


def coverage() -> tuple[Form, ...]:
    """All forms, in the order of the tables."""
    return tuple(_catalogue().values())


def mnemonics(form: Form) -> tuple[str, ...]:
    """An example, then the example with one optional modifier or another choice each."""
    number, chosen = _keys()[form.name]
    return _rows()[number].mnemonics(chosen)


def operands(form: Form, mnemonic: str) -> tuple[OperandSpec, ...]:
    """The operands of a form with one of its mnemonics."""
    return next(each.operands for each in _candidates(mnemonic) if each.form is form)


@lru_cache(maxsize=4096)
def canonical(mnemonic: str) -> str:
    """The mnemonic with its modifiers in the ISA's order, which assemblers do not insist on; as it is if unknown.

    Types, state spaces and layouts keep their order among themselves, because there it carries meaning.
    """
    rows = _rows_of(mnemonic)
    if any(row.pattern.match(mnemonic) for _, row in rows):
        return mnemonic
    words = mnemonic.split(".")[1:]
    if len(words) > _MOST_WORDS:
        return mnemonic
    arranged = (arrange(row.full, _GROUP, words) for _, row in rows)
    return next((f"{mnemonic.split('.', maxsplit=1)[0]}.{'.'.join(each)}" for each in arranged if each), mnemonic)


def _rows_of(mnemonic: str) -> Sequence[tuple[int, _Row]]:
    """Rows of the same opcode; none for what is too long to be a mnemonic, so that caches stay small."""
    return _by_opcode().get(mnemonic.split(".", 1)[0], ()) if len(mnemonic) <= _LONGEST else ()


@lru_cache(maxsize=4096)
def _candidates(mnemonic: str) -> tuple[Description, ...]:
    words = tuple(mnemonic.split("."))
    found = []
    for number, row in _rows_of(mnemonic):
        match = row.pattern.match(mnemonic)
        if match:
            found.append(Description(_catalogue()[number, match.groups()], read_specs(row.operands, words)))
    return tuple(found)


@cache
def _sets() -> dict[str, str]:
    texts = tomllib.loads((_FORMS / "sets.toml").read_text("utf-8"))
    return {name: re.sub(r"\s", "", text) for name, text in texts.items()}


@cache
def _rows() -> tuple[_Row, ...]:
    return tuple(
        _row(line, section, content)
        for table in _TABLES
        for section, content in tomllib.loads((_FORMS / f"{table}.toml").read_text("utf-8")).items()
        for line in content["forms"].strip().splitlines()
    )


def _row(line: str, section: str, content: dict[str, str]) -> _Row:
    mnemonic, operands, flags = (part.strip() for part in f"{line};;".split(";")[:3])
    words = flags.split()
    kind = next((word for word in words if word in set(Kind)), content["kind"])
    targets = [word for word in words if word in TARGETS] or content.get("targets", " ".join(TARGETS)).split()
    return _Row(mnemonic, operands, section, Kind(kind), "blocking" in words, tuple(targets))


@cache
def _by_opcode() -> dict[str, list[tuple[int, _Row]]]:
    found: dict[str, list[tuple[int, _Row]]] = {}
    for number, row in enumerate(_rows()):
        found.setdefault(re.split(r"[.<({]", row.mnemonic, maxsplit=1)[0], []).append((number, row))
    return found


@cache
def _catalogue() -> dict[tuple[int, tuple[str, ...]], Form]:
    """All forms by row and expanded choices; equal names are told apart by their operands."""
    keys = [(number, chosen) for number, row in enumerate(_rows()) for chosen in row.choices()]
    names = {key: _rows()[key[0]].name(key[1]) for key in keys}
    often = Counter(names.values())
    made = {}
    for (number, chosen), name in names.items():
        row = _rows()[number]
        unique = name if often[name] == 1 else f"{name} {row.operands}"
        made[number, chosen] = Form(unique, row.section, row.kind, row.blocking, row.targets)
    return made


@cache
def _keys() -> dict[str, tuple[int, tuple[str, ...]]]:
    return {form.name: key for key, form in _catalogue().items()}
