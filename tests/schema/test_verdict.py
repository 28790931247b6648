"""A verdict reads back from its JSON, and derives its status itself."""

import json

from ptxbench.schema import Stages, State, Target, Verdict
from ptxbench.schema.stages import BuildStage, CheckStage, Outcome, PolicyStage, Reason, SanitizeStage
from ptxbench.schema.verdict import Environment, StageName


def verdict(check: CheckStage) -> Verdict:
    return Verdict(
        candidate="ab" * 32,
        problem="gemm_n7168_k5120",
        problem_hash="0",
        workload="w",
        axes={"M": 1},
        target=Target.SM_90A,
        environment=Environment(device="none"),
        stages=Stages(
            policy=PolicyStage(outcome=Outcome.PASSED),
            build=BuildStage(outcome=Outcome.PASSED),
            check=check,
            sanitize=SanitizeStage(outcome=Outcome.PASSED),
        ),
        families=("GMMA", "TMA"),
        created=1.0,
    )


WRONG = CheckStage(outcome=Outcome.FAILED, reason=Reason(code="wrong_numbers", message="It is wrong."))


def test_a_written_verdict_reads_back_equal() -> None:
    written = verdict(WRONG)
    assert Verdict.model_validate_json(written.model_dump_json()) == written


def test_a_forged_status_in_a_file_is_not_believed() -> None:
    document = json.loads(verdict(WRONG).model_dump_json())
    document["status"] = {"state": "passed", "stage": None, "reason": None}
    found = Verdict.model_validate(document)
    assert found.status.state is State.FAILED
    assert found.status.stage is StageName.CHECK
