"""Which registers may still be read after a block: backward data flow over bit sets; knows no instruction."""

from __future__ import annotations

from collections.abc import Sequence


def live_out(used: Sequence[tuple[set[int], set[int]]], following: Sequence[Sequence[int]]) -> list[set[int]]:
    """Slots whose value may be read after each block (backward data flow over bit sets).

    Args:
        used: For each block the slots read before they are written, and those written.
        following: For each block its successors.
    """
    first = [_bits(read) for read, _ in used]
    kept = [~_bits(written) for _, written in used]
    entering = list(first)
    leaving = [0] * len(used)
    changed = True
    while changed:
        changed = False
        for place in range(len(used) - 1, -1, -1):
            out = 0
            for target in following[place]:
                out |= entering[target]
            new = first[place] | (out & kept[place])
            if out != leaving[place] or new != entering[place]:
                leaving[place], entering[place], changed = out, new, True
    return [_members(each) for each in leaving]


def _bits(slots: set[int]) -> int:
    total = 0
    for slot in slots:
        total |= 1 << slot
    return total


def _members(bits: int) -> set[int]:
    found = set()
    text = bin(bits)[:1:-1]
    place = text.find("1")
    while place >= 0:
        found.add(place)
        place = text.find("1", place + 1)
    return found
