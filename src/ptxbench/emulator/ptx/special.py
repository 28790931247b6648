"""The names of PTX's special registers (section Special Registers, PTX ISA 9.0); their values are not known here."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"""%(?:
      (?: tid | ntid | ctaid | nctaid | clusterid | nclusterid | cluster_ctaid | cluster_nctaid ) (?:\.[xyzw])?
    | laneid | warpid | nwarpid | smid | nsmid | gridid
    | is_explicit_cluster | cluster_ctarank | cluster_nctarank
    | lanemask_(?: eq | le | lt | ge | gt )
    | clock | clock_hi | clock64 | globaltimer | globaltimer_lo | globaltimer_hi
    | total_smem_size | aggr_smem_size | dynamic_smem_size | current_graph_exec
    | reserved_smem_offset_(?: begin | end | cap | 0 | 1 )
    | envreg(?: [12]?\d | 3[01] ) | pm[0-7](?:_64)?
    )\Z""",
    re.VERBOSE,
)


def is_special(name: str) -> bool:
    """Whether the name, with its percent sign, is a special register's."""
    return name[0] == "%" and _NAME.match(name) is not None
