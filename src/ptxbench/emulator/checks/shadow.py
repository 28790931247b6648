"""What is remembered of a CTA's shared memory, in chunks and words: who wrote last, who read; judges nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.lanes import core

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cta import Cta
    from ptxbench.emulator.machine.phases import Phases

Places = NDArray[Any] | slice
"""Numbers of chunks or words."""
CHUNK = 16
WORD = 4
PENDING = np.iinfo(np.int32).max
"""The time of a read that is not over."""


@dataclass(eq=False)
class Write:
    """One store, by a unit or by a copy.

    Attributes:
        row: The unit that stored or issued.
        time: Its time then.
        line: PTX line.
        phases: For a copy: the mbarrier that tells of its end.
        phase: The phase of that barrier in which it ended; None while it is in flight.
        swizzle: For a tensor copy: bytes of the pattern; None for everything else.
    """

    row: int
    time: int
    line: int
    kind: str = "store"
    phases: Phases | None = None
    phase: int | None = None
    swizzle: int | None = None

    @property
    def by_copy(self) -> bool:
        """Whether the async proxy wrote."""
        return self.kind != "store"


class Readers:
    """Who read which places last.

    Attributes:
        rows: The units that did.
        times: Of each of them, per place the time of its last read, `PENDING` while one is not over.
        lines: Of each, per place its PTX line.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: list[int] = []
        self.times: list[NDArray[np.int32]] = []
        self.lines: list[NDArray[np.int32]] = []
        self._places: dict[int, int] = {}

    def remember(self, places: Places, row: int, time: int, line: int) -> None:
        """Keep the time and line of a read; a row is made with the first one."""
        at = self._places.get(row)
        if at is None:
            at = self._places[row] = len(self.rows)
            self.rows.append(row)
            self.times.append(np.zeros(self.size, np.int32))
            self.lines.append(np.zeros(self.size, np.int32))
        _mark(places, (self.times[at], time), (self.lines[at], line))

    def latest(self, places: Places) -> list[tuple[int, int, int, int]]:
        """Of each unit that read there, in their order: row, latest time, PTX line, and the place that has it first."""
        found = []
        for at, time, where in _latest(self.times, places):
            place = (places.start + where) if isinstance(places, slice) else int(places.ravel()[where])
            found.append((self.rows[at], time, int(self.lines[at][place]), place))
        return sorted(found)


class Shadow:
    """One CTA's shared memory: copies and products by chunks, loads and stores of lanes by words of 4 bytes.

    Attributes:
        writer: Per chunk the number of its last write in `writes`; 0: never written.
        copied: Per chunk the number of the last copy that wrote it.
        stored: Per word the number of the last store that wrote it.
        reads: Chunks that the async proxy read.
        loads: Words that lanes loaded.
    """

    def __init__(self, cta: Cta) -> None:
        size = cta.shared.bytes.size
        self.cta = cta
        self.writer = np.zeros(size // CHUNK, np.int32)
        self.copied = np.zeros(size // CHUNK, np.int32)
        self.stored = np.zeros(size // WORD, np.int32)
        self.reads = Readers(size // CHUNK)
        self.loads = Readers(size // WORD)
        self.writes: list[Write | None] = [None]
        self.read_by_copies = False
        self._latest: tuple[tuple[int, int, int], int] = ((-1, -1, -1), 0)

    def copy(self, start: int, size: int, write: Write) -> None:
        """Remember a copy into bytes that lie together."""
        self.writes.append(write)
        number = len(self.writes) - 1
        self.writer[span(start, size)] = number
        if start % CHUNK or size % CHUNK:
            self.stored[span_words(start, size)] = number
        else:
            self.copied[span(start, size)] = number

    def store(self, places: tuple[NDArray[Any], NDArray[Any]], row: int, time: int, line: int) -> None:
        """Remember a store of a unit to chunks and words; stores of one instruction at one time are one."""
        chunks, words = places
        key, number = self._latest
        if key != (row, time, line):
            self.writes.append(Write(row, time, line))
            number = len(self.writes) - 1
            self._latest = ((row, time, line), number)
        _mark(words, (self.stored, number))
        _mark(chunks, (self.writer, number))

    def writers(self, chunks: Places) -> list[int]:
        """The numbers of the last writes of these chunks."""
        return different(self.writer, chunks)

    def writers_of_words(self, words: NDArray[Any]) -> list[int]:
        """The numbers of the last writes of these words, ascending."""
        native = core()
        if native is not None:
            return native.written(self.stored, self.copied, words)
        made: list[int] = np.unique(self._last(words)).tolist()
        return made

    def first_word(self, words: NDArray[Any], number: int) -> int:
        """The first byte of the first of these words that this write wrote last."""
        return int(words[int(np.argmax(self._last(words) == number))]) * WORD

    def _last(self, words: NDArray[Any]) -> NDArray[np.int32]:
        made: NDArray[np.int32] = np.maximum(self.stored[words], self.copied[words >> 2])
        return made

    def read(self, chunks: Places, row: int, time: int, line: int) -> None:
        """Remember a read by the async proxy."""
        self.read_by_copies = True
        self.reads.remember(chunks, row, time, line)

    def load(self, words: NDArray[Any], row: int, time: int, line: int) -> None:
        """Remember a load of lanes."""
        self.loads.remember(words, row, time, line)

    def readers(self, chunks: Places, words: Places) -> list[tuple[int, int, int, int, bool]]:
        """Reads that may matter to whoever overwrites these bytes: unit, time, PTX line, first byte, whether
        it is a load; one per unit and sort."""
        found = [(row, time, line, at * CHUNK, False) for row, time, line, at in self.reads.latest(chunks)]
        found += [(row, time, line, at * WORD, True) for row, time, line, at in self.loads.latest(words)]
        return found


def _mark(places: Places, *what: tuple[NDArray[np.int32], int]) -> None:
    """Put a number into each array at the places."""
    native = core()
    for array, number in what:
        if native is not None:
            native.mark(places if isinstance(places, slice) else places.ravel(), array, number)
        else:
            array[places] = number


def _latest(rows: list[NDArray[np.int32]], places: Places) -> list[tuple[int, int, int]]:
    """Of each row with something there: its number, the greatest, and which of the places has that first."""
    native = core()
    if native is not None:
        return native.latest(rows, places if isinstance(places, slice) else places.ravel())
    found = []
    for at, row in enumerate(rows):
        chosen = row[places].ravel()
        where = int(np.argmax(chosen)) if chosen.size else 0  # a copy of no bytes touches nothing
        if chosen.size and chosen[where]:
            found.append((at, int(chosen[where]), where))
    return found


def different(numbers: NDArray[np.int32], places: Places = slice(None)) -> list[int]:
    """The different numbers at these places, ascending."""
    native = core()
    if native is not None:
        return native.distinct(numbers, places if isinstance(places, slice) else places.ravel())
    made: list[int] = np.unique(numbers[places]).tolist()
    return made


def chunks_of(offsets: NDArray[Any], size: int) -> NDArray[Any]:
    """The chunks that accesses of `size` bytes touch."""
    chunks: NDArray[Any] = offsets >> offsets.dtype.type(4)
    if size <= CHUNK:
        return chunks
    made: NDArray[Any] = np.concatenate([chunks + chunks.dtype.type(step) for step in range(size // CHUNK)])
    return made


def words_of(offsets: NDArray[Any], size: int) -> NDArray[Any]:
    """The words that accesses of `size` bytes touch."""
    words: NDArray[Any] = offsets >> offsets.dtype.type(2)
    if size <= WORD:
        return words
    made: NDArray[Any] = np.add.outer(np.arange(size // WORD, dtype=words.dtype), words).ravel()
    return made


def span(start: int, size: int) -> slice:
    """The chunks of bytes that lie together."""
    return slice(start // CHUNK, (start + size + CHUNK - 1) // CHUNK)


def span_words(start: int, size: int) -> slice:
    """The words of bytes that lie together."""
    return slice(start // WORD, (start + size + WORD - 1) // WORD)
