"""`emulate` outside of the suite, and the timeline of a launch."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxbench import emulate
from ptxbench.emulator import Launch, Policy, Trace
from ptxbench.errors import CandidateError

SCALE = """
__global__ void scale(const float *x, float *y, float factor, int n) {
  __shared__ float held[64];
  const int i = blockIdx.x * 64 + threadIdx.x;
  held[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = factor * held[63 - threadIdx.x];
}
"""


def launch(n: int) -> Launch:
    x = np.arange(n, dtype=np.float32)
    return Launch("scale", (2,), (64,), (x, np.zeros(n, np.float32), np.float32(2.5), np.int32(n)))


def test_a_cuda_kernel_runs_on_arrays_of_the_caller() -> None:
    given = launch(128)
    result = emulate(SCALE, given)
    assert result.ok
    x, y = result.arrays
    assert (y.reshape(2, 64) == 2.5 * x.reshape(2, 64)[:, ::-1]).all()
    assert not given.arguments[1].any()  # type: ignore[union-attr]
    assert sum(each.warps for each in result.counts if each.name == "st.global.f32") == 4


def test_an_access_beyond_an_array_ends_the_launch_with_its_line() -> None:
    x = np.zeros(100, np.float32)
    result = emulate(SCALE, Launch("scale", (2,), (64,), (x, x, np.float32(1), np.int32(128))))
    assert not result.ok
    assert result.findings[-1].rule == "out-of-bounds"
    assert result.findings[-1].location is not None
    assert result.findings[-1].location.line == 5


def test_a_parameter_may_be_made_from_the_addresses_of_the_arrays() -> None:
    x, *rest = launch(64).arguments
    swapped = Launch("scale", (1,), (64,), (x, lambda addresses: addresses[0].to_bytes(8, "little"), *rest[1:]))
    result = emulate(SCALE, swapped)
    assert result.arrays[0][0] == 2.5 * 63


def test_a_kernel_that_is_not_there_is_named_beside_those_that_are() -> None:
    with pytest.raises(CandidateError, match="no one kernel 'other'"):
        emulate(SCALE, Launch("other", (1,), (1,)))


def test_a_timeline_shows_who_ran_and_who_waited() -> None:
    trace = Trace()
    emulate(SCALE, launch(128), Policy(watch=trace.watch))
    events = json.loads(trace.text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"CTA 0,0,0", "CTA 1,0,0"}
    runs = [event for event in events if event["name"] == "run"]
    assert runs
    assert all(event["dur"] > 0 for event in runs)
    assert any(event["name"] == "arrive at a CTA barrier" for event in events)
