"""The package's face: what `from ptxbench import ...` gives, in whatever order things are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest


def python(program: str) -> None:
    """Run a program in an interpreter of its own; it must end well."""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


EVALUATES = """
from ptxbench import Candidate, Verdict, evaluate, load_problem
from ptxbench.evaluate.pipeline import EvaluationRequest
from ptxbench.schema.verdict import StageName

problem = load_problem("gemm_n7168_k5120")
request = EvaluationRequest(device="none", until=StageName.POLICY)
verdict = evaluate(Candidate.from_source("int x;"), problem, problem.workloads[0], request)
assert isinstance(verdict, Verdict)
"""


def test_evaluate_is_called_like_a_function() -> None:
    python(EVALUATES)


@pytest.mark.parametrize(
    "first",
    [
        "import ptxbench.evaluate",
        "import ptxbench.evaluate.render as render; render.render_verdict",
        "from ptxbench.evaluate.render import render_verdict",
        "from ptxbench.evaluate import pipeline; pipeline.evaluate",
        "from ptxbench.evaluate import EvaluationRequest, evaluate; evaluate.__call__",
    ],
)
def test_importing_from_the_package_of_that_name_changes_nothing(first: str) -> None:
    python(first + "\n" + EVALUATES)


def test_the_face_is_loaded_only_when_it_is_used() -> None:
    python("import sys, ptxbench; assert 'pydantic' not in sys.modules")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    python(
        "import ptxbench, ptxbench.evaluate\n"
        "assert not hasattr(ptxbench, 'nothing')\n"
        "assert not hasattr(ptxbench.evaluate, 'nothing')"
    )
