"""Writes the table of tokens in `docs/packs.md`: `python -m ptxbench.knowledge.table` renews it; nothing else is there.

A test fails when the table is not that of today's packs, or a pack is outside of its budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ptxbench.knowledge.hub import PACKS, load_hub
from ptxbench.knowledge.pack import load_pack
from ptxbench.knowledge.tokens import TOKENIZER, count_tokens
from ptxbench.schema.values import Target

DOCUMENT = Path("docs/packs.md")
"""Below the root of the repository."""
BEGIN, END = "<!-- tokens: python -m ptxbench.knowledge.table -->\n", "<!-- end of tokens -->\n"
NANO = 2_000
"""Most tokens of a `nano` pack."""
WHOLE = range(20_000, 30_001)
"""Tokens of a pack of CUDA with or without patterns; of Triton at most a fifth of the upper end."""


def table() -> str:
    """The tokens of every pack, and of every part."""
    return "".join(f"{line}\n" for line in _lines())


def replaced(document: str) -> str:
    """The document with today's table between the marks."""
    before, rest = document.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}{table()}{END}{after}"


def _lines() -> Iterator[str]:
    hub = load_hub()
    yield f"Tokens by the rule `{TOKENIZER}`."
    yield ""
    yield "| pack | " + " | ".join(f"`{target.value}`" for target in Target) + " |"
    yield "|---|" + "---:|" * len(Target)
    for name in dict.fromkeys(name for target in Target for name in hub.names(target)):
        sizes = (f"{load_pack(each, name).tokens:,}" if name in hub.names(each) else "" for each in Target)
        yield f"| `{name}` | " + " | ".join(sizes) + " |"
    for name, patch in hub.patches.items():
        size = f"{count_tokens((PACKS / patch.file).read_text()):,}"
        yield f"| `+{name}` | " + " | ".join(size for _ in Target) + " |"
    yield ""
    yield "| part | tokens |"
    yield "|---|---:|"
    parts = {
        part.name: part for target in Target for name in hub.names(target) for part in load_pack(target, name).parts
    }
    for name in sorted(parts):
        yield f"| `{name}` | {parts[name].tokens:,} |"


def main() -> None:
    """Renew the table."""
    DOCUMENT.write_text(replaced(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
