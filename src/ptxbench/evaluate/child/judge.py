"""The judge process: trusted, warm, with torch and the oracles; answers requests and never loads a candidate.

Run as `python -m ptxbench.evaluate.child.judge --requests FD --replies FD --device N`; `--describe` prints the
greeting and ends. What torch and the libraries print goes to stdout and stderr, answers never do.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pydantic import ValidationError

from ptxbench.errors import PtxbenchError
from ptxbench.evaluate.child.desk import Desk
from ptxbench.evaluate.child.draws import CHECKED
from ptxbench.evaluate.child.gpu_desk import GpuDesk, hello
from ptxbench.evaluate.child.measuring import measure, probe
from ptxbench.evaluate.child.preparing import Baselines, draw_workload, prepare
from ptxbench.evaluate.child.protocol import Failure, Measure, Measured, Reply, Request, WrappedRun
from ptxbench.evaluate.child.wrapping import run_wrapped
from ptxbench.settings import Settings
from ptxbench.suite import load_problem, pick_workload, problem_names


@dataclass(frozen=True)
class Channel:
    """The pair of descriptors that the evaluator talks over, one JSON object per line."""

    requests: int
    replies: int

    def write(self, line: str) -> None:
        """Send one line."""
        data = memoryview(line.encode() + b"\n")
        while data:
            data = data[os.write(self.replies, data) :]


def serve(desk: Desk, channel: Channel) -> None:
    """Answer requests until the evaluator closes its end, or until the device is broken."""
    with os.fdopen(channel.requests, "rb") as requests:
        for line in requests:
            body = answer(desk, line)
            channel.write(Reply(body=body).model_dump_json())
            if body.fatal:
                return


def answer(desk: Desk, line: bytes) -> Measured | WrappedRun | Failure:
    """The answer to one request; a fault of the judge itself is one too."""
    try:
        body = Request.model_validate_json(line).body
        return measure(desk, body) if isinstance(body, Measure) else run_wrapped(desk, body)
    except ValidationError as error:
        return Failure(what=f"The judge cannot read the request: {error}", remedy="Use one version.", fatal=False)
    except PtxbenchError as error:
        return Failure(what=error.what, remedy=error.remedy, fatal=bool(probe(desk)))
    except Exception as error:  # noqa: BLE001  (torch and the libraries raise anything; the evaluator must be told)
        traceback.print_exc()
        broken = bool(probe(desk))
        if not broken:
            torch.cuda.empty_cache()
        return Failure(
            what=f"The judge failed: {type(error).__name__}: {str(error)[:1000]}",
            remedy="Free memory on the device if it is full; otherwise report this with the judge's log.",
            fatal=broken,
        )


def warm_up(desk: Desk) -> None:
    """Load the kernels of the oracles and libraries while the evaluator still compiles its first candidate."""
    for name in problem_names():
        problem = load_problem(name)
        draws = draw_workload(problem, pick_workload(problem, "small"), CHECKED, desk.device.generator(0))
        prepare(Baselines.find(problem).usable_on(draws[0]), draws)
    desk.device.synchronize()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve, or describe the machine; 2 where the judge cannot work here."""
    parser = argparse.ArgumentParser(prog="python -m ptxbench.evaluate.child.judge")
    parser.add_argument("--describe", action="store_true", help="print the greeting as JSON and end")
    parser.add_argument("--requests", type=int, help="descriptor to read requests from")
    parser.add_argument("--replies", type=int, help="descriptor to write answers to")
    parser.add_argument("--device", type=int, default=0, help="ordinal of the GPU")
    options = parser.parse_args(arguments)
    if not options.describe and (options.requests is None or options.replies is None):
        parser.error("give --requests and --replies, or --describe")
    try:
        desk = GpuDesk(options.device, Settings.load())
        greeting = hello(desk).model_dump_json()
    except PtxbenchError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if options.describe:
        sys.stdout.write(f"{greeting}\n")
        return 0
    channel = Channel(options.requests, options.replies)
    channel.write(greeting)
    warm_up(desk)
    serve(desk, channel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
