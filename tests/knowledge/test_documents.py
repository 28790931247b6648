"""The packs' documents: every block of code compiles, the whole kernels are right, and what they name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from tests.knowledge.blocks import blocks_of, built, documents
from tests.knowledge.kernels import BF16, headers, run, whole

from ptxbench.knowledge import load_hub, load_pack
from ptxbench.knowledge.functions import functions_of
from ptxbench.knowledge.hub import PACKS
from ptxbench.schema.values import Target

_SPAN = re.compile(r"`([^`\n]+)`")
_SNAKE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_CALL = re.compile(r"(?<![\w.])([a-z]\w*)(?:<[^<>]*>)?\(")
OTHERS = frozenset(
    re.split(
        r"\s+",
        "cta_group try_wait test_wait expect_tx mma_async commit_group wait_group dlopen exit abort run int64_t "
        "uint32_t static_cast volatile cudaDeviceGetAttribute "
        "make_tensor_descriptor num_stages num_warps sm_90a sm_100a dq_taken "
        "cudaFuncSetAttribute cudaGetDriverEntryPointByVersion max fmaxf",
    )
)
"""What documents name that no header defines."""


@pytest.fixture(params=list(Target))
def target(request: pytest.FixtureRequest) -> Target:
    chosen: Target = request.param
    return chosen


def test_every_block_of_cuda_compiles(target: Target) -> None:
    made = built(target)
    assert made.library is not None, made.stage.log
    compiled = " ".join(kernel.name for kernel in made.stage.kernels)
    blocks = [block for path in documents(target) for block in blocks_of(path)]
    functions = [each for block in blocks for each in functions_of(block.text) if "__device__" in each.signature]
    assert [each.name for each in functions if each.name not in compiled] == []


def test_every_block_says_its_language(target: Target) -> None:
    languages = {block.language for path in documents(target) for block in blocks_of(path)}
    assert languages == {"cuda"}


def test_every_block_of_triton_is_python(target: Target) -> None:
    blocks = [block for path in documents(target, "triton") for block in blocks_of(path)]
    assert {block.language for block in blocks} == {"python"}
    for block in blocks:
        ast.parse(block.text)


def test_the_example_of_the_interface_doubles_its_input(target: Target) -> None:
    x = whole(1, 3, 100)
    left = run(built(target), "run_interface_0", {"x": x, "y": np.zeros_like(x)})
    assert (left.after["y"] == 2 * x).all()


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_the_smallest_whole_kernel_is_right_on_ragged_sizes(target: Target, schedule: str) -> None:
    a, b = whole(1, 150, 192), whole(2, 128, 192)
    tensors = {"a": a, "b": b, "c": np.zeros((150, 128), BF16)}
    left = run(built(target), "run_first_0", tensors, schedule)
    assert all(not each.result.error and not each.result.findings for each in left.ran), left.ran
    assert (left.after["c"] == (a.astype(np.float32) @ b.astype(np.float32).T).astype(BF16)).all()


def functions_in(path: Path) -> set[str]:
    """The functions that a header, or the blocks of a document, define."""
    if path.suffix == ".cuh":
        return {each.name for each in functions_of(path.read_text())}
    return {each.name for block in blocks_of(path) for each in functions_of(block.text)}


def test_every_function_that_a_document_names_exists(target: Target) -> None:
    knowledge = [PACKS / file for file in load_hub().cuda[target].groups["knowledge"]]
    known = OTHERS.union(*(functions_in(path) for path in (*headers(target), *knowledge)))
    for path in documents(target):
        sentences = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        named = {
            name
            for span in _SPAN.findall(sentences)
            for name in (_CALL.findall(span) or ([span] if _SNAKE.fullmatch(span) else []))
        }
        assert named - known - functions_in(path) == set(), path.name


def test_every_file_of_the_folder_belongs_to_a_pack() -> None:
    hub = load_hub()
    used = {
        file
        for shelf in (*hub.cuda.values(), *hub.triton.values())
        for files in (*shelf.groups.values(), *(tag.files for tag in shelf.tags.values()))
        for file in files
    } | {patch.file for patch in hub.patches.values()}
    there = {path.relative_to(PACKS).as_posix() for path in PACKS.rglob("*") if path.is_file()}
    assert there - used == {"hub.toml"}


def test_no_pack_tells_what_only_the_judge_may_know(target: Target) -> None:
    for name in load_hub().names(target):
        assert not re.search(r"neighbour workload|\bseed\b", load_pack(target, name).text)
