"""Draws docs/images/eval.svg, the README's picture, from the verdict in docs/images/eval.json; evaluates nothing.

After a change of the rendering: `python tools/eval_image.py`. To show another verdict, name the `verdict.json` that
`ptxbench eval -o` kept: `python tools/eval_image.py DIR/verdict.json`.
"""

from __future__ import annotations

import json
import re
import sys
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from ptxbench.evaluate.render import render_verdict
from ptxbench.schema.verdict import Verdict

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SOURCE = IMAGES / "eval.json"
PICTURE = IMAGES / "eval.svg"
COLUMNS = 88


def read_verdict(path: Path) -> Verdict:
    """A verdict document as it was written, without what is derived from the rest."""
    document = json.loads(path.read_text())
    for derived in Verdict.model_computed_fields:
        document.pop(derived)
    return Verdict.model_validate(document)


def draw(verdict: Verdict) -> str:
    """The verdict as a terminal shows it, as SVG with the reader's own monospaced font."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(render_verdict(verdict))
    form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
        "Fira Code", "ui-monospace"
    )
    svg = console.export_svg(title="ptxbench eval", theme=SVG_EXPORT_THEME, code_format=form, unique_id="eval")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def without_paths(value: object) -> object:
    """A JSON value whose `path` entries, which tell about one machine, are empty."""
    if isinstance(value, dict):
        return {key: "" if key == "path" else without_paths(held) for key, held in value.items()}
    return [without_paths(held) for held in value] if isinstance(value, list) else value


if __name__ == "__main__":
    if len(sys.argv) > 1:
        document = json.loads(Path(sys.argv[1]).read_text())
        SOURCE.write_text(json.dumps(without_paths(document), indent=2) + "\n")
    PICTURE.write_text(draw(read_verdict(SOURCE)))
