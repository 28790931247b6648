"""The problem catalogue, its generator and its NumPy oracles; evaluates nothing."""

from ptxbench.suite.catalogue import (
    compulsory_bytes,
    load_problem,
    pick_workload,
    problem_hash,
    problem_names,
    required_flops,
)
from ptxbench.suite.library_errors import library_error
from ptxbench.suite.make import make_attention, make_gemm, make_problem, write_problem
from ptxbench.suite.oracles import draw_inputs, oracle

__all__ = [
    "compulsory_bytes",
    "draw_inputs",
    "library_error",
    "load_problem",
    "make_attention",
    "make_gemm",
    "make_problem",
    "oracle",
    "pick_workload",
    "problem_hash",
    "problem_names",
    "required_flops",
    "write_problem",
]
