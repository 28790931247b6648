"""The README's picture shows the verdict beside it as the present rendering does."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_is_as_the_rendering_makes_it() -> None:
    spec = importlib.util.spec_from_file_location("eval_image", ROOT / "tools" / "eval_image.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    drawn = tool.draw(tool.read_verdict(tool.SOURCE))
    assert drawn == tool.PICTURE.read_text(), "renew it: python tools/eval_image.py"
