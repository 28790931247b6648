"""`ptxbench packs`: lists the knowledge packs and prints one; `knowledge` composes them."""

from __future__ import annotations

import json as encoder
import sys

from rich.console import Console
from rich.table import Table

from ptxbench.errors import CommandError
from ptxbench.knowledge import TOKENIZER, Pack, load_hub, load_pack
from ptxbench.schema.values import Target
from ptxbench.suite import load_problem


def list_packs(*, json: bool) -> None:
    """Print every level, tag and patch with its size."""
    packs = [load_pack(target, name) for target in Target for name in load_hub().names(target)]
    if json:
        _print_json({"tokenizer": TOKENIZER, "packs": [_summary(pack) for pack in packs]})
        return
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("target", header_style="dim")
    table.add_column("pack", header_style="dim", no_wrap=True)
    table.add_column("tokens", header_style="dim", justify="right")
    table.add_column("what is in it", header_style="dim")
    for pack in packs:
        table.add_row(pack.target.value, pack.name, f"{pack.tokens:,}", _about(pack))
    console.print(table)
    console.print()
    for name, patch in load_hub().patches.items():
        console.print(f"+{name}  {patch.about}")
    console.print(f"\n[dim]tokens by {TOKENIZER}; docs/packs.md[/]")
    console.print("[bold]next:[/] ptxbench packs show sm_90a --level gemm-pipeline+first-right")


def show_pack(target: str, name: str, task: str | None, *, json: bool) -> None:
    """Print a pack's text.

    Raises:
        CommandError: There is no such target.
        PackError: There is no such pack, or it is for another operator.
        ProblemError: There is no such problem.
    """
    if target not in list(Target):
        raise CommandError(f"There is no target {target!r}.", f"Name {' or '.join(Target)}.")
    pack = load_pack(Target(target), name, load_problem(task) if task is not None else None)
    if json:
        _print_json({**_summary(pack), "text": pack.text})
    else:
        sys.stdout.write(pack.text)


def _about(pack: Pack) -> str:
    hub = load_hub()
    tag = hub.shelf(pack.target, pack.name).tags.get(pack.name)
    return tag.about if tag is not None else "level: " + ", ".join(hub.levels[pack.name])


def _summary(pack: Pack) -> dict[str, object]:
    return {
        "target": pack.target.value,
        "name": pack.name,
        "language": pack.language,
        "tokens": pack.tokens,
        "hash": pack.hash,
        "parts": [{"name": part.name, "tokens": part.tokens} for part in pack.parts],
    }


def _print_json(document: object) -> None:
    sys.stdout.write(encoder.dumps(document, indent=2) + "\n")
