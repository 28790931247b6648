"""Mutation operators: pure functions from PTX text (and tensor maps) to mutants, one for each site; judges nothing.

A site is one instruction of the text, or one field of one tensor map. A mutant replaces whole lines and adds none, so
that line numbers stay. Operators know the form of instructions only, not what a kernel means by them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ptxbench.emulator.async_.tensormap import Swizzle, TensorMap


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        operator: Its name.
        line: PTX line of the site, from 1; 0 for a tensor map.
        what: The change in words.
        edits: New text of lines, by number.
        map: Number of the tensor map that is changed, -1 for none.
        shape: What it becomes; its address counts for nothing.
    """

    operator: str
    line: int
    what: str
    edits: tuple[tuple[int, str], ...] = ()
    map: int = -1
    shape: TensorMap | None = None

    @property
    def kind(self) -> str:
        """The change without its place: what mutants of one operator that differ in the place alone have in common."""
        return re.sub(r"(?: of line \d+|, \[?%.*$| \[.*$|(?<=[ %])r?\d+\b)", "", self.what)


Lines = list[str]
Operator = Callable[[Lines], Iterator[Mutant]]

_GUARD = r"^\s*(?:@!?%?\w+\s+)?"
_FENCE = re.compile(_GUARD + r"(fence\.|tcgen05\.fence|wgmma\.fence|membar)")
_WAIT_GROUP = re.compile(
    _GUARD + r"(wgmma\.wait_group|cp\.async\.bulk\.wait_group|cp\.async\.wait_group|tcgen05\.wait)"
)
_COMMIT = re.compile(_GUARD + r"(wgmma\.commit_group|cp\.async\.bulk\.commit_group|tcgen05\.commit)")
_WORK = re.compile(_GUARD + r"(wgmma\.mma_async|cp\.async\.bulk\.tensor\S*\.bulk_group|tcgen05\.mma)")
_ARRIVE = re.compile(_GUARD + r"(mbarrier\.arrive|bar\.arrive)")
_ARRIVES_ONCE = re.compile(_GUARD + r"(mbarrier\.arrive(?!\.expect_tx)|bar\.arrive|tcgen05\.commit)")
_BARRIER = re.compile(_GUARD + r"(bar\.sync|barrier\.cluster)")
_TRY_WAIT = re.compile(r"^\s*mbarrier\.try_wait\.parity\S* (\w+), \[(%\w+)\], (%\w+);")
_INIT = re.compile(r"^\s*mbarrier\.init\S* \[(%\w+)\], (%\w+);")
_EXPECT = re.compile(r"^\s*(mbarrier\.arrive\.expect_tx\S*) _, \[(%\w+)\], (%\w+);")
_PRODUCT = re.compile(r"^(?P<head>\s*(?:wgmma\.mma_async|tcgen05\.mma)\S*\s+(?:\{[^}]*\}|\[%\w+\]), )(?P<rest>.*)$")
_EFFECT = re.compile(
    _GUARD + r"(mbarrier\.|fence\.|wgmma\.|cp\.async|bar\.|barrier\.|st\.|stmatrix|ld\.shared|tcgen05\.)"
)
_LABEL = re.compile(r"^\s*\$?\w+:")
_BRANCH = re.compile(_GUARD + r"(bra|ret|exit)\b")


def _dropped(operator: str, pattern: re.Pattern[str]) -> Operator:
    def sites(lines: Lines) -> Iterator[Mutant]:
        for number, line in enumerate(lines, 1):
            if found := pattern.match(line):
                yield Mutant(operator, number, f"no {_short(line, found)}", ((number, ""),))

    return sites


def _short(line: str, found: re.Match[str]) -> str:
    """The mnemonic, with what follows if that is short."""
    text = line[found.start(1) :].strip().rstrip(";")
    return text if len(text) < 60 else text.split()[0]


def late_fence(lines: Lines) -> Iterator[Mutant]:
    """A fence behind the next instruction that it may have been meant for, in the same basic block."""
    for number, line in enumerate(lines, 1):
        found = _FENCE.match(line)
        behind = _following(lines, number) if found else 0
        if found and behind:
            other = lines[behind - 1].strip()
            edits = ((number, ""), (behind, f"{lines[behind - 1]} {line.strip()}"))
            yield Mutant("late-fence", number, f"{_short(line, found)} behind {_name(other)}", edits)


def _following(lines: Lines, number: int) -> int:
    """The next instruction with an effect, before a label or a branch; 0 if there is none."""
    for other in range(number + 1, len(lines) + 1):
        line = lines[other - 1]
        if _LABEL.match(line) or _BRANCH.match(line):
            return 0
        if _EFFECT.match(line):
            return other
    return 0


def _name(line: str) -> str:
    return next(word for word in line.split() if not word.startswith("@")).rstrip(";")


def early_commit(lines: Lines) -> Iterator[Mutant]:
    """A commit before the last piece of work that it was meant to cover."""
    work = 0
    for number, line in enumerate(lines, 1):
        if _WORK.match(line):
            work = number
        elif (found := _COMMIT.match(line)) and work:
            edits = ((number, ""), (work, f"{line.strip()} {lines[work - 1]}"))
            yield Mutant("early-commit", number, f"{found[1]} before {_name(lines[work - 1])} of line {work}", edits)


def early_release(lines: Lines) -> Iterator[Mutant]:
    """A wait for asynchronous work behind the arrival or barrier that tells others of its end."""
    for number, line in enumerate(lines, 1):
        found = _WAIT_GROUP.match(line)
        release = next((at for at in range(number + 1, len(lines) + 1) if _tells(lines[at - 1])), 0)
        if not found or not release or not re.match(_GUARD + r"(mbarrier\.arrive|bar\.|barrier\.)", lines[release - 1]):
            continue
        place = _joined(lines, release)
        edits = ((number, ""), (place, f"{lines[place - 1]} {line.strip()}"))
        what = f"{_short(line, found)} behind {_name(lines[release - 1])} of line {release}"
        yield Mutant("early-release", number, what, edits)


def _tells(line: str) -> bool:
    """Whether it is an effect other than a fence."""
    return bool(_EFFECT.match(line)) and not _FENCE.match(line)


def _joined(lines: Lines, release: int) -> int:
    """Where all lanes are together again: the label behind a release that some skip, else the release itself."""
    for number in range(release + 1, min(release + 6, len(lines)) + 1):
        text = lines[number - 1].strip()
        if _LABEL.match(text):
            return number
        if text and not text.startswith(("//", "}", ".loc")):
            break
    return release


def drop_mbarrier_wait(lines: Lines) -> Iterator[Mutant]:
    """No wait for an mbarrier: asked once, the answer unused."""
    for number, line in enumerate(lines, 1):
        if _TRY_WAIT.match(line):
            again = next(at for at in range(number + 1, number + 4) if re.match(r"^\s*@!\w+ bra", lines[at - 1]))
            yield Mutant("drop-mbarrier-wait", number, "no wait for the mbarrier", ((again, ""),))


def wait_depth(lines: Lines) -> Iterator[Mutant]:
    """One group more may stay pending."""
    for number, line in enumerate(lines, 1):
        if found := re.match(r"^(\s*(?:wgmma|cp\.async(?:\.bulk)?)\.wait_group\S* )(\d+);", line):
            depth = int(found[2])
            edits = ((number, f"{found[1]}{depth + 1};"),)
            yield Mutant("wait-depth", number, f"{found[1].strip()} {depth + 1} for {depth}", edits)


def twice_arrive(lines: Lines) -> Iterator[Mutant]:
    """An arrival two times."""
    for number, line in enumerate(lines, 1):
        if found := _ARRIVES_ONCE.match(line):
            yield Mutant("twice-arrive", number, f"{found[1]} twice", ((number, f"{line} {line.strip()}"),))


def parity(lines: Lines) -> Iterator[Mutant]:
    """A wait for the other phase."""
    for number, line in enumerate(lines, 1):
        if found := _TRY_WAIT.match(line):
            changed = line[: found.start(3)] + "mutant" + line[found.end(3) :]
            text = f"{{ .reg .b32 mutant; xor.b32 mutant, {found[3]}, 1; {changed.strip()} }}"
            yield Mutant("parity", number, "the other parity", ((number, text),))


def count(lines: Lines) -> Iterator[Mutant]:
    """A barrier that expects one arrival (or one warp) more or less."""
    for number, line in enumerate(lines, 1):
        if found := _INIT.match(line):
            for by in (1, -1):
                yield _with_register("count", number, line, found.span(2), by, f"{by:+d} arrival")
        elif found := re.match(r"^\s*(?:bar\.sync|bar\.arrive)\s+\S+, (\d+);", line):
            for by in (32, -32):
                text = line[: found.start(1)] + str(int(found[1]) + by) + line[found.end(1) :]
                yield Mutant("count", number, f"{by:+d} threads", ((number, text),))


def expected_bytes(lines: Lines) -> Iterator[Mutant]:
    """16 bytes more or less than the copies bring."""
    for number, line in enumerate(lines, 1):
        if found := _EXPECT.match(line):
            for by in (16, -16):
                yield _with_register("bytes", number, line, found.span(3), by, f"{by:+d} bytes")


def _with_register(operator: str, number: int, line: str, span: tuple[int, int], by: int, what: str) -> Mutant:
    """The mutant that adds `by` to the 32-bit register at `span` of the line."""
    register = line[span[0] : span[1]]
    changed = line[: span[0]] + "mutant" + line[span[1] :]
    text = f"{{ .reg .b32 mutant; add.s32 mutant, {register}, {by}; {changed.strip()} }}"
    return Mutant(operator, number, what, ((number, text),))


FIELDS = {
    "descriptor-start": (("start of {} + 16 bytes", 1),),
    "descriptor-stride": (("stride byte offset of {}", 1 << 32), ("leading byte offset of {}", 1 << 17)),
    "descriptor-swizzle": (("swizzle of {}", 1 << 63), ("no swizzle of {}", 1 << 62)),
}
"""Bits of matrix descriptors (PTX ISA 9.0, 9.7.15.5 and 9.7.16.4) that are flipped; the start is added to."""


def descriptor(operator: str) -> Operator:
    """The operator that changes a field of an operand's matrix descriptor."""

    def sites(lines: Lines) -> Iterator[Mutant]:
        for number, line in enumerate(lines, 1):
            product = _PRODUCT.match(line)
            if not product:
                continue
            wide = re.findall(r"%rd\d+", product["rest"])
            for which, register in zip("AB" if len(wide) > 1 else "B", wide, strict=False):
                for what, bits in FIELDS[operator]:
                    start = line.index(register, product.start("rest"))
                    changed = f"{line[:start]}mutant{line[start + len(register) :]}".strip()
                    how = "add.s64" if operator == "descriptor-start" else "xor.b64"
                    text = f"{{ .reg .b64 mutant; {how} mutant, {register}, {bits}; {changed} }}"
                    yield Mutant(operator, number, what.format(which), ((number, text),))

    return sites


def accumulate(lines: Lines) -> Iterator[Mutant]:
    """A product that adds to its accumulator where it should not, or does not where it should."""
    for number, line in enumerate(lines, 1):
        if found := re.match(r"^\s*setp\.(ne)\.b32 p, %\w+, 0;", line):
            text = f"{line[: found.start(1)]}eq{line[found.end(1) :]}"
            yield Mutant("accumulate", number, "the other answer to: add to the old sum?", ((number, text),))
        elif _PRODUCT.match(line) and (found := re.search(r"%rd\d+, (1), 1, 1", line)):
            text = f"{line[: found.start(1)]}0{line[found.end(1) :]}"
            yield Mutant("accumulate", number, "the old sum is forgotten", ((number, text),))


def cluster_target(lines: Lines) -> Iterator[Mutant]:
    """An operation on another CTA of the cluster that goes to fewer of them, or to the wrong one."""
    for number, line in enumerate(lines, 1):
        if found := re.match(r"^\s*mapa\S* \w+, %\w+, (\S+);", line):
            wrong = "1" if found[1] == "0" else "0"
            text = line[: found.start(1)] + wrong + line[found.end(1) :]
            yield Mutant("cluster-target", number, f"always CTA {wrong}", ((number, text),))
        elif found := re.match(r"^.*multicast::cluster\S* .*(%rs\d+);", line):
            for mask in (1, 2):
                changed = f"{line[: found.start(1)]}mutant{line[found.end(1) :]}".strip()
                text = f"{{ .reg .b16 mutant; mov.b16 mutant, {mask}; {changed} }}"
                yield Mutant("cluster-target", number, f"to CTA {mask - 1} alone", ((number, text),))


def relaxed(lines: Lines) -> Iterator[Mutant]:
    """An arrival or a wait that orders no memory."""
    for number, line in enumerate(lines, 1):
        for old, new in (
            ("mbarrier.arrive.shared::cta", "mbarrier.arrive.relaxed.cta.shared::cta"),
            ("mbarrier.arrive.shared::cluster", "mbarrier.arrive.relaxed.cluster.shared::cluster"),
            ("mbarrier.try_wait.parity.shared::cta", "mbarrier.try_wait.parity.relaxed.cta.shared::cta"),
            ("barrier.cluster.arrive.release", "barrier.cluster.arrive.relaxed"),
        ):
            if line.strip().startswith(old):
                yield Mutant("relaxed", number, _name(new), ((number, line.replace(old, new)),))


def instruction_descriptor(lines: Lines) -> Iterator[Mutant]:
    """A wrong field in the instruction descriptor of tcgen05.mma (PTX ISA 9.0, 9.7.16.4)."""
    fields = {"N": 1 << 18, "M": 1 << 26, "type of A": 1 << 7, "type of D": 1 << 4, "transpose B": 1 << 16}
    for number, line in enumerate(lines, 1):
        product = _PRODUCT.match(line)
        if product and (found := re.search(r"%r\d+(?=, p;)", line)):
            for what, bits in fields.items():
                changed = f"{line[: found.start()]}mutant{line[found.end() :]}".strip()
                text = f"{{ .reg .b32 mutant; xor.b32 mutant, {found[0]}, {bits}; {changed} }}"
                yield Mutant("instruction-descriptor", number, what, ((number, text),))


def tensor_address(lines: Lines) -> Iterator[Mutant]:
    """Another column, or the lanes of another warp, of tensor memory."""
    for number, line in enumerate(lines, 1):
        if found := re.match(r"^\s*tcgen05\.mma\S* \[(%\w+)\]", line):
            yield _with_register("tensor-address", number, line, found.span(1), 16, "D 16 columns to the right")
        elif found := re.match(r"^\s*tcgen05\.(?:ld|st)\S* .*\[(%\w+)\]", line):
            for by, what in ((16, "16 columns to the right"), (32 << 16, "the lanes of the next warp")):
                yield _with_register("tensor-address", number, line, found.span(1), by, what)


def tensor_lifetime(lines: Lines) -> Iterator[Mutant]:
    """Tensor memory that is not allocated, too small, or not freed."""
    for number, line in enumerate(lines, 1):
        found = re.match(r"^\s*(tcgen05\.(?:alloc|dealloc|relinquish_alloc_permit))\S*(.*)", line)
        if not found:
            continue
        yield Mutant("tensor-lifetime", number, f"no {found[1]}", ((number, ""),))
        if "512" in found[2]:
            yield Mutant("tensor-lifetime", number, f"{found[1]} of 256", ((number, line.replace("512", "256")),))


def all_lanes(lines: Lines) -> Iterator[Mutant]:
    """All lanes of a warp do what one was elected for."""
    for number, line in enumerate(lines, 1):
        if re.match(r"^\s*elect\.sync _\|p,", line):
            yield Mutant("all-lanes", number, "no election", ((number, "setp.eq.u32 p, 0, 0;"),))


IN_TEXT: dict[str, Operator] = {
    "drop-fence": _dropped("drop-fence", _FENCE),
    "late-fence": late_fence,
    "drop-arrive": _dropped("drop-arrive", _ARRIVE),
    "twice-arrive": twice_arrive,
    "drop-wait": _dropped("drop-wait", _WAIT_GROUP),
    "drop-mbarrier-wait": drop_mbarrier_wait,
    "wait-depth": wait_depth,
    "drop-commit": _dropped("drop-commit", _COMMIT),
    "early-commit": early_commit,
    "early-release": early_release,
    "drop-barrier": _dropped("drop-barrier", _BARRIER),
    "parity": parity,
    "count": count,
    "bytes": expected_bytes,
    **{name: descriptor(name) for name in FIELDS},
    "accumulate": accumulate,
    "cluster-target": cluster_target,
    "relaxed": relaxed,
    "instruction-descriptor": instruction_descriptor,
    "tensor-address": tensor_address,
    "tensor-lifetime": tensor_lifetime,
    "all-lanes": all_lanes,
}


def in_maps(shapes: list[TensorMap]) -> Iterator[Mutant]:
    """Tensor maps with another swizzle, stride or box."""
    for number, old in enumerate(shapes):
        for swizzle in (Swizzle.NONE, Swizzle.B64):
            yield _map("swizzle", number, f"swizzle {swizzle.name}", replace(old, swizzle=swizzle))
        for at, stride in enumerate(old.strides):
            for by in (16, -16):
                strides = (*old.strides[:at], stride + by, *old.strides[at + 1 :])
                yield _map("stride", number, f"stride {at} {by:+d} bytes", replace(old, strides=strides))
        for at, size in enumerate(old.box):
            if size > 1:
                box = (*old.box[:at], size // 2, *old.box[at + 1 :])
                yield _map("box", number, f"box {at} {size // 2} for {size}", replace(old, box=box))


def _map(operator: str, number: int, what: str, shape: TensorMap) -> Mutant:
    return Mutant(operator, 0, f"map {number}: {what}", map=number, shape=shape)


OPERATORS = (*IN_TEXT, "swizzle", "stride", "box")


def mutants(text: str, shapes: list[TensorMap], executed: frozenset[int]) -> list[Mutant]:
    """All mutants of a kernel at the sites that it executes, in the order of the operators and of the text."""
    lines = text.splitlines()
    found = [each for name in IN_TEXT for each in IN_TEXT[name](lines) if each.line in executed]
    return [*found, *in_maps(shapes)]


def applied(text: str, mutant: Mutant) -> str:
    """The text with the mutant's edits."""
    lines = text.splitlines()
    for number, line in mutant.edits:
        lines[number - 1] = line
    return "\n".join(lines) + "\n"
