"""Real kernels, mutated: the emulating process answers whatever they have become, by a result or a typed refusal."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

import pytest
from tests.emulator.ptx.texts import COMPILED, compiled

from ptxbench.emulator.apart.messages import Begin, Finish, How, Load, Perform, Read, Refusal
from ptxbench.emulator.apart.serve import Server
from ptxbench.emulator.device import argument_places
from ptxbench.emulator.host.record import Blob, Launch
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.ptx.parse import parse

MUTANTS = 12
"""Of each text; a longer run found what this one keeps found."""

SECONDS = 20.0
HOW = How.of(Policy(("late", "seed 1"), limit=20_000, seconds=5.0))
(MEMORY,) = argument_places([1 << 20])
NUMBERS = ("0", "-1", "1", "7", "128", "65536", "2147483648", "18446744073709551615", "1e30", "0x7fffffffffffffff")
TEXTS = [name for name in COMPILED if "sm_90a" in name]


def _numbers(lines: list[str], place: int, random_: random.Random) -> None:
    lines[place] = re.sub(r"(?<![\w%.$])\d+", lambda _: random_.choice(NUMBERS), lines[place])


def _word(lines: list[str], place: int, random_: random.Random) -> None:
    words = re.split(r"([.\s,;\[\]{}%])", lines[place])
    words[random_.randrange(len(words))] = random_.choice((*re.split(r"[.\s,;]", random_.choice(lines)), "", "("))
    lines[place] = "".join(words)


def _byte(lines: list[str], place: int, random_: random.Random) -> None:
    at = random_.randrange(len(lines[place]) + 1)
    lines[place] = (
        lines[place][:at] + chr(random_.choice((0, 10, 34, 40, 64, 123, 255, 0x1F600))) + lines[place][at + 1 :]
    )


def _lines(lines: list[str], place: int, random_: random.Random) -> None:
    other = random_.randrange(len(lines))
    change = random_.randrange(3)
    lines[place] = ("", lines[other], lines[place] + "\n" + lines[other])[change]


def _cut(lines: list[str], place: int, random_: random.Random) -> None:
    del lines[place : place + random_.randrange(1, 40)]


CHANGES: tuple[Callable[[list[str], int, random.Random], None], ...] = (_numbers, _word, _byte, _lines, _lines, _cut)


def mutant(text: str, random_: random.Random) -> str:
    """A text with one to four changes."""
    lines = text.splitlines()
    for _ in range(random_.randrange(1, 5)):
        if lines:
            random_.choice(CHANGES)(lines, random_.randrange(len(lines)), random_)
    return "\n".join(lines)


def parameters(text: str) -> tuple[str, tuple[Blob, ...]]:
    """The first kernel of the unchanged text, and bytes for its parameters: an address, and what else fits."""
    entry = next(each for each in parse(text).functions.values() if each.entry)
    pointer = MEMORY.to_bytes(8, "little")
    return entry.name, tuple(
        Blob(data=(pointer * 16).ljust(each.size, b"\1")[: each.size]) for each in entry.parameters
    )


def answers(text: str, kernel: str, given: tuple[Blob, ...]) -> Refusal | None:
    """Serve a whole call; the first refusal, which then ends the process."""
    server = Server()
    launch = Launch(
        kernel=kernel,
        grid=(2, 1, 1),
        block=(128, 1, 1),
        cluster=(1, 1, 1),
        dynamic_shared=65536,
        parameters=given,
        stream=0,
    )
    requests = (
        (Load(kernels=()), text.encode("utf-8", "replace")),
        (Begin(sizes=(1 << 20,), how=HOW), b""),
        (Perform(operations=(launch,)), b""),
        (Finish(), b""),
        (Read(address=MEMORY, size=4096), b""),
    )
    for request, data in requests:
        reply, _ = server.answer(request, data)
        if reply.refusal is not None:
            return reply.refusal
        reply.model_dump_json()
    return None


@pytest.mark.parametrize("name", TEXTS)
def test_a_mutated_kernel_ends_as_a_result_or_a_typed_refusal(name: str) -> None:
    text = compiled(name)
    kernel, given = parameters(text)
    for seed in range(MUTANTS):
        started = time.process_time()
        changed = mutant(text, random.Random(f"{name} {seed}"))
        refusal = answers(changed, kernel, given)
        assert refusal is None or refusal.kind in ("text", "unsupported"), (seed, refusal)
        assert time.process_time() - started < SECONDS
