"""Which instructions there are."""

from __future__ import annotations

import re
from functools import lru_cache

_BLOCKING = re.compile(
    r"(bar|barrier)\.(?!warp|arrive|cta\.arrive|cluster\.arrive)|mbarrier\.(try|test)_wait|wgmma\.wait_group|cp\.async\.(bulk\.)?wait|"
    r"nanosleep|setmaxnreg|griddepcontrol\.wait|tcgen05\.(wait|alloc|dealloc)"
)


@lru_cache(None)
def is_blocking(name: str) -> bool:
    """Whether the instruction of this mnemonic may have to wait for others."""
    return _BLOCKING.match(name) is not None
