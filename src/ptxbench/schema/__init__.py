"""The values that rooms exchange: problem, candidate, verdict; frozen, with their JSON Schema exported."""

from ptxbench.schema.candidate import Candidate, SourceFile
from ptxbench.schema.problem import Problem, Role, Workload
from ptxbench.schema.values import SCHEMA_VERSION, Layer, Target
from ptxbench.schema.verdict import Stages, State, Status, Verdict

__all__ = [
    "SCHEMA_VERSION",
    "Candidate",
    "Layer",
    "Problem",
    "Role",
    "SourceFile",
    "Stages",
    "State",
    "Status",
    "Target",
    "Verdict",
    "Workload",
]
