"""Benchmarks lie beside the tests, in no package that is installed: they are found from the repository's root."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)
