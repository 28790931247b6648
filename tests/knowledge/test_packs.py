"""Packs are composed as the hub says, are within their budgets, and are known by their content."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ptxbench.errors import PackError
from ptxbench.knowledge import count_tokens, load_hub, load_pack, packs_for
from ptxbench.knowledge.table import NANO, WHOLE, replaced
from ptxbench.schema.values import Target
from ptxbench.suite import load_problem, problem_names

ROOT = Path(__file__).parents[2]
CUDA = [(target, name) for target in Target for name in load_hub().cuda[target].tags]
TRITON = [(target, name) for target in Target for name in load_hub().triton[target].tags]


@pytest.mark.parametrize("target", Target)
def test_each_level_holds_the_one_before_it(target: Target) -> None:
    nano, *levels = load_hub().levels
    assert nano == "nano"
    held = [[part.name for part in load_pack(target, level).parts] for level in levels]
    for smaller, larger in itertools.pairwise(held):
        assert set(smaller) < set(larger)


@pytest.mark.parametrize("target", Target)
def test_the_level_patterns_holds_those_of_the_problem(target: Target) -> None:
    for name in problem_names():
        problem = load_problem(name)
        there = {part.name for part in load_pack(target, "patterns", problem).parts}
        _, *tags = packs_for(target, problem)
        assert there == {part.name for tag in tags for part in load_pack(target, tag).parts}


@pytest.mark.parametrize("target", Target)
def test_every_problem_has_a_base_and_two_packs_with_patterns(target: Target) -> None:
    for name in problem_names():
        base, first, second = packs_for(target, load_problem(name))
        assert base == "base"
        smaller, larger = load_pack(target, first, load_problem(name)), load_pack(target, second, load_problem(name))
        assert load_pack(target).tokens > larger.tokens > smaller.tokens > load_pack(target, base).tokens


@pytest.mark.parametrize(("target", "name"), CUDA)
def test_a_whole_pack_is_within_its_budget(target: Target, name: str) -> None:
    assert load_pack(target, name).tokens in WHOLE


@pytest.mark.parametrize("target", Target)
def test_everything_for_a_problem_is_within_the_budget(target: Target) -> None:
    assert all(load_pack(target, problem=load_problem(name)).tokens in WHOLE for name in problem_names())


@pytest.mark.parametrize(("target", "name"), TRITON)
def test_a_triton_pack_is_short(target: Target, name: str) -> None:
    pack = load_pack(target, name)
    assert pack.language == "triton"
    assert pack.tokens < WHOLE.stop // 5


@pytest.mark.parametrize("target", Target)
def test_nano_fits_a_small_context(target: Target) -> None:
    assert load_pack(target, "nano").tokens <= NANO


def test_the_table_of_tokens_is_that_of_todays_packs() -> None:
    document = (ROOT / "docs" / "packs.md").read_text()
    assert replaced(document) == document, "python -m ptxbench.knowledge.table renews it"


def test_a_patch_adds_its_rules_to_any_pack() -> None:
    plain, patched = load_pack(Target.SM_90A, "nano"), load_pack(Target.SM_90A, "nano+first-right")
    assert patched.parts[:-1] == plain.parts
    assert patched.text.startswith(plain.text)
    assert patched.hash != plain.hash
    assert patched.tokens == plain.tokens + patched.parts[-1].tokens


@pytest.mark.parametrize("target", Target)
def test_the_tokens_of_a_pack_are_those_of_its_text(target: Target) -> None:
    pack = load_pack(target)
    assert pack.tokens == count_tokens(pack.text)


def test_a_pack_is_known_by_its_text() -> None:
    assert load_pack(Target.SM_90A, "base").hash == load_pack(Target.SM_90A, "contract").hash
    assert len({load_pack(target, name).hash for target, name in [*CUDA, *TRITON]}) == len([*CUDA, *TRITON])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("gemm-pipelin", "gemm-pipeline"),
        ("base+attention-rule", "attention-rules"),
        ("zzz", "nano, parameters, templates, contract, patterns, base, gemm-pipeline"),
        ("", "nano, parameters"),
    ],
)
def test_an_unknown_pack_is_named_with_those_that_exist(name: str, remedy: str) -> None:
    with pytest.raises(PackError) as raised:
        load_pack(Target.SM_90A, name)
    assert remedy in raised.value.remedy


@pytest.mark.parametrize("name", ["attention-forward", "base+attention-rules", "triton-attention"])
def test_a_pack_for_another_operator_is_refused(name: str) -> None:
    with pytest.raises(PackError, match="not for gemm"):
        load_pack(Target.SM_90A, name, load_problem("gemm_n7168_k5120"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("warp", 1),
        ("a warp group", 3),
        ("wavefront", 2),
        ("128", 3),
        ("a[i] += 1;", 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1),
        ("one\n  two", 3),
    ],
)
def test_tokens_are_counted_by_the_rule(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens
