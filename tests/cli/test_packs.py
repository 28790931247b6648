"""`ptxbench packs` as a shell sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from ptxbench.knowledge import load_pack
from ptxbench.schema.values import Target


class Ended(Protocol):
    code: int
    out: str
    err: str


class Run(Protocol):
    def __call__(self, *arguments: str | Path) -> Ended: ...


def test_every_pack_is_listed_with_its_tokens(ptxbench: Run) -> None:
    ended = ptxbench("packs")
    assert ended.code == 0
    assert all(name in ended.out for name in ("nano", "gemm-cluster", "backward-pair", "+attention-rules", "tokens by"))


def test_the_list_is_also_data(ptxbench: Run) -> None:
    listed = json.loads(ptxbench("packs", "--json").out)
    (base,) = [each for each in listed["packs"] if each["target"] == "sm_90a" and each["name"] == "base"]
    assert base["hash"] == load_pack(Target.SM_90A, "base").hash
    assert sum(part["tokens"] for part in base["parts"]) <= base["tokens"]


def test_a_pack_is_shown_as_a_model_gets_it(ptxbench: Run) -> None:
    ended = ptxbench("packs", "show", "sm_100a", "--level", "nano+first-right")
    assert ended.code == 0
    assert ended.out == load_pack(Target.SM_100A, "nano+first-right").text


def test_an_unknown_pack_ends_with_code_2_and_a_remedy(ptxbench: Run) -> None:
    ended = ptxbench("packs", "show", "sm_90a", "--level", "gemm")
    assert ended.code == 2
    assert "There is no pack for sm_90a 'gemm'" in ended.err
    assert "gemm-pipeline" in ended.err


def test_an_unknown_target_ends_with_code_2(ptxbench: Run) -> None:
    ended = ptxbench("packs", "show", "sm_80")
    assert ended.code == 2
    assert "sm_90a or sm_100a" in ended.err
