"""What an H200 answered, as stored: a status, a digest and a few words for each part of each program.

    programs.json.gz = {
      "device": "...",
      "answers": {FORM: {MNEMONIC: STATUS or DIGEST}},
      "samples": {DIGEST: words of the answer, spread over it, as hex},
      "whole": {DIGEST: the whole answer as hex},     # where the comparison is not bit for bit
    }

A digest is 16 hex digits; a status is `refused: WHY` (by the assembler), `error: CUDA_ERROR_...`, `hangs` or `unstable`
(two runs differ).
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "data" / "emulator"
SAMPLES = 8
_DIGEST = re.compile(r"[0-9a-f]{16}\Z")


def digest(answer: bytes) -> str:
    """Identifies an answer."""
    return hashlib.blake2b(answer, digest_size=8).hexdigest()


def sample(answer: bytes) -> str:
    """`SAMPLES` words of four bytes, spread evenly; all of a shorter answer."""
    words = [answer[i : i + 4] for i in range(0, len(answer), 4)]
    step = max(len(words) // SAMPLES, 1)
    return b"".join(words[::step][: SAMPLES + 1]).hex()


def is_digest(entry: str) -> bool:
    """Whether an entry of `answers` is one, and not a status."""
    return _DIGEST.match(entry) is not None


def write(path: Path, document: dict[str, Any]) -> None:
    """Store a document so that equal documents are equal files."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


@functools.cache
def load(name: str) -> dict[str, Any] | None:
    """A stored document; None if it was not recorded yet."""
    path = FOLDER / f"{name}.json.gz"
    if not path.exists():
        return None
    made: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return made
