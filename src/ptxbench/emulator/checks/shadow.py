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
Times = tuple[NDArray[np.int32], NDArray[np.int32]]
"""Per chunk or word a time, and a PTX line."""
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


class Shadow:
    """One CTA's shared memory: copies and products by chunks, loads and stores of lanes by words of 4 bytes.

    Attributes:
        writer: Per chunk the number of its last write in `writes`; 0: never written.
        copied: Per chunk the number of the last copy that wrote it.
        stored: Per word the number of the last store that wrote it.
        reads: Of each unit that reads by the async proxy, per chunk the time of the last read, `PENDING` while one is
            not over, and its PTX line.
        loads: Of each unit that loads, per word the time of the last load, and its PTX line.
    """

    def __init__(self, cta: Cta) -> None:
        size = cta.shared.bytes.size
        self.cta = cta
        self.writer = np.zeros(size // CHUNK, np.int32)
        self.copied = np.zeros(size // CHUNK, np.int32)
        self.stored = np.zeros(size // WORD, np.int32)
        self.reads: dict[int, Times] = {}
        self.loads: dict[int, Times] = {}
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
        self.stored[words] = number
        self.writer[chunks] = number

    def writers(self, chunks: Places) -> list[int]:
        """The numbers of the last writes of these chunks."""
        return different(self.writer, chunks)

    def writers_of_words(self, words: NDArray[Any]) -> NDArray[np.int32]:
        """The number of the last write of each word."""
        made: NDArray[np.int32] = np.maximum(self.stored[words], self.copied[words >> 2])
        return made

    def read(self, chunks: Places, row: int, time: int, line: int) -> None:
        """Remember a read by the async proxy."""
        self.read_by_copies = True
        _remember(self.reads, self.writer.size, (row, time, line), chunks)

    def load(self, words: NDArray[Any], row: int, time: int, line: int) -> None:
        """Remember a load of lanes."""
        _remember(self.loads, self.stored.size, (row, time, line), words)

    def readers(self, chunks: Places, words: Places) -> list[tuple[int, int, int, int, bool]]:
        """Reads that may matter to whoever overwrites these bytes: unit, time, PTX line, first byte, whether
        it is a load; one per unit and sort."""
        found = []
        for readers, places, size in ((self.reads, chunks, CHUNK), (self.loads, words, WORD)):
            for row, (times, lines) in sorted(readers.items()):
                latest, where = _greatest(times, places)
                if latest:
                    first = (places.start + where) if isinstance(places, slice) else int(places.ravel()[where])
                    found.append((row, latest, int(lines[first]), first * size, size == WORD))
        return found


def _remember(readers: dict[int, Times], size: int, read: tuple[int, int, int], places: Places) -> None:
    """Keep the row, time and line of a read; a row is made with the first one."""
    row, time, line = read
    found = readers.get(row)
    if found is None:
        found = readers[row] = (np.zeros(size, np.int32), np.zeros(size, np.int32))
    found[0][places] = time
    found[1][places] = line


def _greatest(times: NDArray[np.int32], places: Places) -> tuple[int, int]:
    """The latest time at the places, and which of them has it first; zeros where there is none."""
    native = core()
    if native is not None:
        return native.greatest(times, places if isinstance(places, slice) else places.ravel())
    chosen = times[places].ravel()
    where = int(np.argmax(chosen)) if chosen.size else 0  # a copy of no bytes touches nothing
    return (int(chosen[where]), where) if chosen.size else (0, 0)


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
    made: NDArray[Any] = np.concatenate([words + words.dtype.type(step) for step in range(size // WORD)])
    return made


def span(start: int, size: int) -> slice:
    """The chunks of bytes that lie together."""
    return slice(start // CHUNK, (start + size + CHUNK - 1) // CHUNK)


def span_words(start: int, size: int) -> slice:
    """The words of bytes that lie together."""
    return slice(start // WORD, (start + size + WORD - 1) // WORD)
