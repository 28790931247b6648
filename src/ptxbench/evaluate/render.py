"""Shows a verdict to a person: the reason first, the three layers, the stages, what to do next; it decides nothing.

Pure functions from values to rich renderables; they read well at 80 columns and without colour.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ptxbench.evaluate.advice import next_steps
from ptxbench.evaluate.coverage import draws, schedules
from ptxbench.schema.stages import BaselineTime, Outcome, OutputCheck, Samples, Stage
from ptxbench.schema.values import Layer
from ptxbench.schema.verdict import StageName, State, Verdict

STATE_STYLES = {
    State.PASSED: "bold green",
    State.FAILED: "bold red",
    State.CHEATED: "bold red",
    State.INCONCLUSIVE: "bold yellow",
}
OUTCOME_STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.CHEATED: "red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.UNAVAILABLE: "yellow",
    Outcome.NOT_RUN: "dim",
}
LAYER_STYLES = {"yes": "green", "no": "red", "value": "bold", "unavailable": "yellow"}
EVIDENCE_LINES = 4
"""More of a compiler's or sanitizer's output stands in the verdict document."""


def render_verdict(verdict: Verdict) -> RenderableType:
    """Everything a person wants to see of one verdict."""
    parts: list[RenderableType] = [_headline(verdict)]
    parts += [Padding(Text(line), (0, 0, 0, 2)) for line in evidence(verdict)]
    parts += ["", _layers(verdict), "", _stages(verdict), "", _steps(verdict)]
    return Group(*parts)


def status_sentence(verdict: Verdict) -> str:
    """What the status is and why, in one sentence, without the state itself."""
    status = verdict.status
    if status.stage is None:
        speed = verdict.layers.speed
        fast = f", {speed.value:.2f}x {verdict.stages.time.baselines[0].name}" if speed.value is not None else ""
        executed = {
            "yes": ", the target's instructions executed",
            "no": ", but none of the target's instructions executed",
        }
        return f"correct{executed.get(verdict.layers.target.executed.state, '')}{fast}"
    stage = verdict.stages.get(status.stage)
    message = f": {status.reason.message}" if status.reason else ""
    if status.state in (State.FAILED, State.CHEATED):
        return f"at {status.stage.value}{message}"
    how = {Outcome.NOT_RUN: "was not run", Outcome.UNAVAILABLE: "is unavailable here"}
    return f"{status.stage.value} {how.get(stage.outcome, 'does not decide')}{message}"


def evidence(verdict: Verdict) -> tuple[str, ...]:
    """The findings behind a failure: compiler errors, broken rules, the worst element; at most a handful of lines."""
    status = verdict.status
    finders = {
        StageName.POLICY: _policy_evidence,
        StageName.BUILD: _build_evidence,
        StageName.CHECK: _check_evidence,
        StageName.SANITIZE: _sanitize_evidence,
    }
    if status.state not in (State.FAILED, State.CHEATED) or status.stage not in finders:
        return ()
    said = status.reason.message if status.reason else ""
    lines = [line for line, finding in finders[status.stage](verdict) if finding not in said]
    more = len(lines) - EVIDENCE_LINES
    return (*lines[:EVIDENCE_LINES], *([f"and {more} more in the verdict (--json)"] if more > 0 else []))


def _headline(verdict: Verdict) -> RenderableType:
    state = verdict.status.state
    environment = verdict.environment
    where = f"on {environment.device}" if environment.device != "none" else "without a device"
    where += f" ({environment.device_name})" if environment.device_name else ""
    subject = f"{verdict.candidate_name or 'candidate'} {verdict.candidate[:12]}"
    axes = " ".join(f"{name}={value}" for name, value in verdict.axes.items())
    line = Text()
    line.append(state.value, STATE_STYLES[state])
    line.append(f"  {status_sentence(verdict)}")
    parts = [line, Text(f"{subject}  {verdict.problem} {axes}  {verdict.target.value} {where}", "dim")]
    if environment.device.startswith("cuda:") and environment.host_code:
        parts.append(Text(f"host code {environment.host_code}", "dim"))
    return Group(*parts)


def _layers(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 2))
    for width in (9, 16, 6):
        table.add_column(min_width=width)
    table.add_column(ratio=1)
    previous = ""
    said = verdict.status.reason.message if verdict.status.reason else ""
    for group, question, layer, detail in _layer_rows(verdict):
        text = detail or layer.reason or ""
        table.add_row(
            Text("" if group == previous else group, "bold"),
            question,
            Text(_answer(layer, "x" if group == "speed" else ""), LAYER_STYLES[layer.state]),
            Text("as said above" if text and text == said else text, "" if layer.state != "unavailable" else "dim"),
        )
        previous = group
    return table


def _layer_rows(verdict: Verdict) -> Iterator[tuple[str, str, Layer, str]]:
    """(layer, question, answer, detail) in the order they are shown."""
    layers, stages = verdict.layers, verdict.stages
    reference = f"against {stages.check.published_reference}" if stages.check.published_reference else ""
    yield "correct", "published rule", layers.correct_published, _detail(layers.correct_published, reference)
    yield "correct", "contract", layers.correct_contract, _detail(layers.correct_contract, _closest_block(verdict))
    if stages.check.generalises.state != "unavailable":
        yield "correct", "other sizes", stages.check.generalises, ""
    static = _counts(stages.inspect.families, verdict.families) + " in the machine code"
    yield "target", "present", layers.target.static, _detail(layers.target.static, static)
    yield "target", "executed", layers.target.executed, _detail(layers.target.executed, _executed(verdict))
    share = "of the required tensor-core work"
    if stages.profile.work is not None and stages.profile.work.excessive:
        share += "; far more than required in all, which is suspicious"
    yield "target", "work share", layers.target.work_share, _detail(layers.target.work_share, share)
    yield "target", "necessary", layers.target.necessity, ""
    yield "speed", *_speed_row(verdict)
    for other in stages.time.baselines[1:]:
        if stages.time.candidate is not None:
            times = _times(stages.time.candidate, other)
            yield "speed", f"against {other.name}", Layer.of(other.speedup, other.interval), times


def _speed_row(verdict: Verdict) -> tuple[str, Layer, str]:
    time, layer = verdict.stages.time, verdict.layers.speed
    if layer.value is None or time.candidate is None:
        return "against library", layer, ""
    text = [f"95 % interval {layer.interval[0]:.3f} to {layer.interval[1]:.3f}"] if layer.interval else []
    speed = [f"{time.tflops:.0f} TFLOP/s"] if time.tflops is not None else []
    speed += [f"{time.roofline_share:.0%} of the roofline"] if time.roofline_share is not None else []
    text += [_times(time.candidate, time.baselines[0]), ", ".join(speed)]
    return f"against {time.baselines[0].name}", layer, "; ".join(part for part in text if part)


def _times(candidate: Samples, baseline: BaselineTime) -> str:
    published = "as published" if baseline.equals_published else f"published with {baseline.published_version}"
    library = f"{baseline.name} {baseline.version}, {published}"
    return f"{candidate.median:.4g} ms against {baseline.samples.median:.4g} ms ({library})"


def _detail(layer: Layer, text: str) -> str:
    return text if layer.state in ("yes", "value") else layer.reason or text


def _answer(layer: Layer, unit: str) -> str:
    if layer.value is not None:
        return f"{layer.value:.2f}{unit}"
    return "?" if layer.state == "unavailable" else layer.state


def _counts(counts: dict[str, int], families: tuple[str, ...]) -> str:
    return ", ".join(f"{family} {counts.get(family, 0):,}" for family in families)


def _executed(verdict: Verdict) -> str:
    totals: dict[str, int] = {}
    for kernel in verdict.stages.profile.kernels:
        for item in kernel.families:
            totals[item.family] = totals.get(item.family, 0) + item.warp_instructions
    return _counts(totals, verdict.families) + " warp instructions"


def _closest_block(verdict: Verdict) -> str:
    """The block of rows that is nearest to its bound."""
    blocks = [
        (output.block.rms_relative_error / output.block.bound, output)
        for draw in verdict.stages.check.draws
        for output in draw.outputs
        if output.block is not None and output.block.bound > 0
    ]
    if not blocks:
        return ""
    share, output = max(blocks, key=lambda item: item[0])
    return f"the worst block of rows (of {output.name}) has {share:.2f} of its allowed error"


def _stages(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=9)
    table.add_column(min_width=12)
    table.add_column(justify="right", min_width=7)
    table.add_column(ratio=1)
    table.add_row(*(Text(word, "dim") for word in ("stage", "outcome", "seconds", "")))
    for name in StageName:
        stage = verdict.stages.get(name)
        seconds = "" if stage.outcome is Outcome.NOT_RUN else f"{stage.seconds:.2f}"
        outcome = Text(stage.outcome.value.replace("_", " "), OUTCOME_STYLES[stage.outcome])
        table.add_row(name.value, outcome, seconds, Text(_stage_note(stage, name, verdict), "dim"))
    return table


def _stage_note(stage: Stage, name: StageName, verdict: Verdict) -> str:
    """The instrument, or why the stage did not pass; the reason of the status itself already stands on top."""
    if stage.reason is not None and name is not verdict.status.stage:
        return stage.reason.message
    if stage.instrument is None:
        return ""
    return f"{stage.instrument.name} {stage.instrument.version}{_stage_extent(name, verdict)}"


def _stage_extent(name: StageName, verdict: Verdict) -> str:
    """What belongs behind the instrument: whether it really ran, and how much the emulator covered."""
    if name is StageName.BUILD and verdict.stages.build.from_cache:
        return ", from the cache"
    if verdict.environment.device != "emulator":
        return ""
    extents = {StageName.CHECK: draws(verdict.stages.check), StageName.SANITIZE: schedules(verdict.stages.sanitize)}
    return f": {extents[name]}" if extents.get(name) else ""


def _steps(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(ratio=1)
    for number, step in enumerate(next_steps(verdict)):
        table.add_row(Text("next:" if number == 0 else "", "bold"), step)
    return table


# Each finder gives lines with the words that make the line superfluous where the reason already says them.


def _policy_evidence(verdict: Verdict) -> Iterator[tuple[str, str]]:
    for finding in verdict.stages.policy.findings:
        line = f", line {finding.line}" if finding.line is not None else ""
        yield f"{finding.rule} ({finding.place}{line}): {finding.evidence}", finding.evidence


def _build_evidence(verdict: Verdict) -> Iterator[tuple[str, str]]:
    for item in verdict.stages.build.diagnostics:
        if item.severity == "error":
            place = f"{item.file}:{item.line}: " if item.line is not None else ""
            yield f"{place}error: {item.message}", item.message


def _check_evidence(verdict: Verdict) -> Iterator[tuple[str, str]]:
    for draw in verdict.stages.check.draws:
        for output in draw.outputs:
            if not output.published or output.contract is False:
                line = _output_evidence(output)
                yield line, line
        if not draw.inputs_unchanged:
            yield "an input was changed", "an input was changed"
        if not draw.guards_intact:
            yield "memory next to an output was written", "memory next to an output was written"
    for run in verdict.stages.sanitize.runs:
        for finding in run.findings:
            if finding.severity == "error":
                yield from ((line, line) for line in finding.state)


def _output_evidence(output: OutputCheck) -> str:
    parts = [f"{output.name}: {output.failing:,} of {output.total:,} elements miss the published rule"]
    if output.worst is not None:
        index = ", ".join(str(position) for position in output.worst.index)
        parts.append(f"{output.name}[{index}] is {output.worst.got:.6g}, expected {output.worst.expected:.6g}")
    if output.pattern:
        parts.append(output.pattern)
    return "; ".join(parts)


def _sanitize_evidence(verdict: Verdict) -> Iterator[tuple[str, str]]:
    for run in verdict.stages.sanitize.runs:
        for finding in run.findings:
            place = f", {finding.place}" if finding.place else ""
            inside = f" in {finding.kernel}" if finding.kernel else ""
            yield f"{run.tool}: {finding.message}{inside}{place}", finding.message
