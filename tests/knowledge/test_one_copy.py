"""One copy of helper functions: what a kernel of ours shares with the headers by signature, it shares word for word."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.knowledge.kernels import headers

from ptxbench.knowledge.functions import functions_of
from ptxbench.schema.values import Target

REFERENCE = Path(__file__).parents[2] / "reference"
SHARED = {
    "gemm_n7168_k5120/sm_90a.cu": 16,
    "gemm_n7168_k5120/sm_100a.cu": 13,
    "gemm_n7168_k5120/sm_100a_pair.cu": 13,
    "demo/gemm.cu": 6,
}
"""File -> how many functions it has in common with the headers, at least."""

OF_PAIRS = {"tma_load", "commit"}
"""In the kernel of pairs these are what the headers call `tma_load_pair` and `commit_pair`."""


@pytest.mark.parametrize("name", SHARED)
def test_a_function_with_the_signature_of_a_headers_function_has_its_text(name: str) -> None:
    target = Target.SM_100A if "sm_100a" in name else Target.SM_90A
    texts = {each.signature: each.body for path in headers(target) for each in functions_of(path.read_text())}
    functions = functions_of((REFERENCE / name).read_text())
    own = OF_PAIRS if "pair" in name else set()
    shared = [each for each in functions if each.signature in texts and each.name not in own]
    assert [each.name for each in shared if each.body != texts[each.signature]] == []
    assert len(shared) >= SHARED[name]
