"""The names of PTX's special registers (section Special Registers, PTX ISA 9.0); their values are the machine's affair."""

from __future__ import annotations

import re

_VECTORS = "tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid".split()
"""Three-dimensional ones, used with `.x`, `.y`, `.z` (`.w` reads 0)."""

_SCALARS = """
    laneid warpid nwarpid smid nsmid gridid is_explicit_cluster cluster_ctarank cluster_nctarank
    lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock_hi clock64
    globaltimer globaltimer_lo globaltimer_hi total_smem_size aggr_smem_size dynamic_smem_size current_graph_exec
    reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap
    reserved_smem_offset_0 reserved_smem_offset_1
""".split()

_NUMBERED = re.compile(r"%(?:envreg(?:[12]?\d|3[01])|pm[0-7](?:_64)?)\Z")

NAMES = frozenset(f"%{name}" for name in _SCALARS) | frozenset(
    f"%{name}{part}" for name in _VECTORS for part in ("", ".x", ".y", ".z", ".w")
)


def is_special(name: str) -> bool:
    """Whether the name, with its percent sign, is a special register's."""
    return name in NAMES or _NUMBERED.match(name) is not None
