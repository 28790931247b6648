"""Names of functions as line information has them: bytes of a mangled name to the word in the source; no types."""

from __future__ import annotations

import re

_PART = re.compile(r"(\d{1,9})")
_HEAD = re.compile(r"_Z(?:N[rVK]*)?")
_MOST = 1 << 12


def inlined_name(content: str) -> str:
    """The last part of the name in lines of `.b8 95,90,...`: `tma_load` of `_ZN12_GLOBAL__N_18tma_loadEj`.

    Itanium C++ ABI, section Mangling: a nested name is a list of parts, each preceded by its length.
    """
    values = [int(value) for value in re.findall(r"(?<![b\d])\d{1,3}", content[: 4 * _MOST])]
    mangled = bytes(value for value in values if 0 < value < 256).decode("ascii", "replace")
    head = _HEAD.match(mangled)
    if head is None:
        return mangled if mangled.isidentifier() else ""
    place, last = head.end(), ""
    while part := _PART.match(mangled, place):
        end = part.end() + int(part[1])
        last, place = mangled[part.end() : end], end
    return last if last.isidentifier() else ""
