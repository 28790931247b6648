"""Every command with its options; each hands over to one function and ends with its exit code.

Rooms are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Judge a CUDA-PTX kernel: is it correct, did the target's instructions execute, how fast is it.",
)
tasks_app = typer.Typer(invoke_without_command=True, help="List the problems, or show one.", rich_markup_mode=None)
suite_app = typer.Typer(no_args_is_help=True, help="Make problems of other sizes.", rich_markup_mode=None)
make_app = typer.Typer(no_args_is_help=True, help="Write a problem's folder.", rich_markup_mode=None)
emulator_app = typer.Typer(no_args_is_help=True, help="What the emulator has.", rich_markup_mode=None)
packs_app = typer.Typer(
    invoke_without_command=True, help="List what models are told, or show it.", rich_markup_mode=None
)
app.add_typer(tasks_app, name="tasks")
app.add_typer(packs_app, name="packs")
app.add_typer(suite_app, name="suite")
suite_app.add_typer(make_app, name="make")
app.add_typer(emulator_app, name="emulator")

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Folder = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The problem's folder appears below.")]


def _version(wanted: bool) -> None:
    if wanted:
        from ptxbench import __version__

        typer.echo(f"ptxbench {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


@app.command(name="eval")
def evaluate_kernel(
    kernel: Annotated[Path, typer.Argument(help="A .cu file, a folder of sources, or a FlashInfer-Trace solution.")],
    task: Annotated[str, typer.Option(help="A problem by name (see `ptxbench tasks`) or by folder.")],
    target: Annotated[str | None, typer.Option(help="sm_90a or sm_100a; by default what the device runs.")] = None,
    device: Annotated[str, typer.Option(help="auto, cuda:N, emulator, or none (ends after inspect).")] = "auto",
    workload: Annotated[
        str | None,
        typer.Option(help="A workload's uuid, or paper, neighbour, small; by default paper, on the emulator small."),
    ] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="On the emulator: all draws and schedules.")] = False,
    host: Annotated[
        str, typer.Option(help="On a GPU, the host code's calls: auto (replayed, else live), replay, or live.")
    ] = "auto",
    until: Annotated[str | None, typer.Option(metavar="STAGE", help="Last stage to run.")] = None,
    json: Json = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Keep verdict, build log and report here.")
    ] = None,
) -> None:
    """Judge one kernel."""
    from ptxbench.cli.judging import Order, judge_kernel

    order = Order(kernel, task, target, device, workload, until, json, output, thorough, host)
    raise typer.Exit(judge_kernel(order))


@app.command()
def emulate(
    kernel: Annotated[Path, typer.Argument(help="A .cu file, a folder of sources, or a FlashInfer-Trace solution.")],
    task: Annotated[str, typer.Option(help="A problem by name or by folder; it gives the arguments.")],
    workload: Annotated[str, typer.Option(help="A workload's uuid, or paper, neighbour, small.")] = "small",
    schedule: Annotated[
        list[str] | None, typer.Option(help="late, eager or 'seed N'; may be given several times.")
    ] = None,
    numerics: Annotated[str, typer.Option(help="Tensor cores: fast, or exact as an H200 rounds.")] = "fast",
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a timeline for Perfetto.")] = None,
    races: Annotated[bool, typer.Option("--races", help="Look for races, lane by lane, on global memory too.")] = False,
    json: Json = False,
) -> None:
    """Call one kernel once on the emulator and show what it did."""
    from ptxbench.cli.emulating import EmulationOrder, emulate_kernel

    schedules = tuple(schedule or ("late",))
    raise typer.Exit(emulate_kernel(EmulationOrder(kernel, task, workload, schedules, numerics, trace, json, races)))


@app.command()
def demo() -> None:
    """Judge kernels, right and broken, and a recorded conversation on the emulator; no GPU is needed."""
    from ptxbench.cli.demo import run_demo

    raise typer.Exit(run_demo())


@app.command()
def run(
    model: Annotated[str, typer.Option(help="PROVIDER/MODEL as Inspect AI names it, replay/FILE, smollm2/local.")] = "",
    tasks: Annotated[str | None, typer.Option(help="Problems by name or folder, with commas; by default all.")] = None,
    target: Annotated[str, typer.Option(help="sm_90a or sm_100a.")] = "sm_90a",
    pack: Annotated[
        str | None, typer.Option(help="Packs, with commas: levels, tags, none, all; see `ptxbench packs`.")
    ] = None,
    trajectories: Annotated[int | None, typer.Option(help="Of each problem and pack.")] = None,
    turns: Annotated[int | None, typer.Option(help="Of each trajectory, at most.")] = None,
    target_speedup: Annotated[float | None, typer.Option(help="Ends a trajectory; 0: nothing does.")] = None,
    preset: Annotated[str, typer.Option(help="paper, smoke or ablation-context; options go before it.")] = "",
    device: Annotated[str, typer.Option(help="auto, cuda:N or emulator.")] = "auto",
    workload: Annotated[str | None, typer.Option(help="A uuid, or paper, neighbour, small.")] = None,
    context: Annotated[
        str | None, typer.Option(help="full, latest_pair or single: what a model is sent again.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Of one request's answer.")] = None,
    temperature: Annotated[float | None, typer.Option()] = None,
    reasoning_effort: Annotated[str | None, typer.Option(help="As the provider names it.")] = None,
    token_limit: Annotated[int | None, typer.Option(help="Tokens of one trajectory, in and out.")] = None,
    context_limit: Annotated[int | None, typer.Option(help="Tokens of one prompt, estimated.")] = None,
    cost_limit: Annotated[float | None, typer.Option(help="US$ of the whole run; needs --price.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds of one trajectory.")] = None,
    price: Annotated[str | None, typer.Option(metavar="IN/OUT", help="US$ for a million tokens.")] = None,
    baseline_ms: Annotated[
        list[str] | None, typer.Option(metavar="TASK=MS", help="The library's time, for the prompt.")
    ] = None,
    parallel: Annotated[int, typer.Option(help="Trajectories at once.")] = 4,
    retries: Annotated[int, typer.Option(help="Of a request that fails for a passing reason.")] = 8,
    base_url: Annotated[str | None, typer.Option(help="Of the provider, where it is not the usual one.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="RUN", help="The run's folder.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with a run by its own plan.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, its tokens and cost; ask nobody.")
    ] = False,
) -> None:
    """Let a model write kernels, turn by turn, with a verdict after each answer."""
    from ptxbench.cli.running import RunOrder, run_benchmark
    from ptxbench.cli.wishes import wish_of

    wish = wish_of(dict(locals()))
    raise typer.Exit(run_benchmark(RunOrder(wish, device, output, resume, dry_run, parallel, retries, base_url)))


@app.command()
def show(run: Annotated[Path, typer.Argument(help="A run's folder, or an .eval log of Inspect AI.")]) -> None:
    """Print a run's rates by turn, its failures and its cost."""
    from ptxbench.cli.showing import show_run

    show_run(run)


@app.command(name="compare")
def compare_two_runs(
    first: Annotated[Path, typer.Argument(metavar="A", help="A run's folder, or an .eval log.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another run of the same problems.")],
) -> None:
    """Say whether one run is better than another, or that it is undecided."""
    from ptxbench.cli.comparing import compare_runs

    compare_runs(first, second)


@app.command()
def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Runs' folders, or .eval logs; none: published alone.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where the site goes.")] = Path("site"),
) -> None:
    """Write a static site: leaderboard, problems, runs, and every turn of every trajectory."""
    from ptxbench.cli.reporting import report_runs

    report_runs(runs or (), output)


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    again: Annotated[int, typer.Option(help="So many of its kernels are judged again, here.")] = 0,
    device: Annotated[str, typer.Option(help="Where: auto, cuda:N, or emulator.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the choice of kernels.")] = 0,
) -> None:
    """Recompute everything in a run that follows from its data, and name what differs."""
    from ptxbench.cli.verifying import verify_run

    raise typer.Exit(verify_run(run, again, device, seed))


@app.command()
def export(
    runs: Annotated[list[Path], typer.Argument(help="Runs' folders, or .eval logs.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The files appear below.")],
    form: Annotated[
        str, typer.Option("--format", help="csv, parquet, traces (FlashInfer-Trace), mini-swe-agent, or atif.")
    ] = "csv",
) -> None:
    """Write runs as tables, or in the formats of other tools."""
    from ptxbench.cli.exporting import export_runs

    export_runs(runs, form, output)


@app.command()
def doctor(json: Json = False) -> None:
    """Check every tool, right, library, GPU and protection; name the remedy of what is missing."""
    from ptxbench.cli.health import report_health

    raise typer.Exit(report_health(json=json))


@tasks_app.callback()
def tasks(context: typer.Context, json: Json = False) -> None:
    """List the problems, or show one."""
    if context.invoked_subcommand is None:
        from ptxbench.cli.catalogue import list_problems

        list_problems(json=json)


@tasks_app.command(name="show")
def tasks_show(
    name: Annotated[str, typer.Argument(help="A problem by name or by folder.")],
    json: Json = False,
) -> None:
    """Show one problem: arguments, sizes, reference, what is required."""
    from ptxbench.cli.catalogue import show_problem

    show_problem(name, json=json)


@packs_app.callback()
def packs(context: typer.Context, json: Json = False) -> None:
    """List the knowledge packs: levels, tags and patches, with their sizes."""
    if context.invoked_subcommand is None:
        from ptxbench.cli.packs import list_packs

        list_packs(json=json)


@packs_app.command(name="show")
def packs_show(
    target: Annotated[str, typer.Argument(help="sm_90a or sm_100a.")],
    level: Annotated[str, typer.Option(help="A level or tag, and patches: NAME[+PATCH...].")] = "patterns",
    task: Annotated[str | None, typer.Option(help="A problem; its patterns alone are shown.")] = None,
    json: Json = False,
) -> None:
    """Print a knowledge pack as a model gets it."""
    from ptxbench.cli.packs import show_pack

    show_pack(target, level, task, json=json)


@make_app.command(name="gemm")
def suite_make_gemm(
    n: Annotated[int, typer.Option("--n", help="Rows of B, columns of C.")],
    k: Annotated[int, typer.Option("--k", help="Columns of A and B.")],
    output: Folder,
) -> None:
    """A matrix product C = A B^T with N and K fixed and M free."""
    from ptxbench.cli.catalogue import make

    make("gemm", {"n": n, "k": k}, output)


@make_app.command(name="attention")
def suite_make_attention(
    output: Folder,
    head_dim: Annotated[int, typer.Option(help="Length of one head's rows.")] = 128,
    causal: Annotated[bool, typer.Option("--causal", help="A query sees only keys up to its own position.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="The gradients.")] = False,
) -> None:
    """Multi-head attention, or its gradients, with the head's length fixed and the other axes free."""
    from ptxbench.cli.catalogue import make

    make("attention", {"head_dim": head_dim, "causal": causal, "backward": backward}, output)


@emulator_app.command(name="coverage")
def emulator_coverage(
    target: Annotated[str | None, typer.Option(help="sm_90a or sm_100a; by default both.")] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Name the forms that are not there.")] = False,
    json: Json = False,
) -> None:
    """Count the PTX instruction forms that are emulated, and those that tests execute."""
    from ptxbench.cli.covering import show_coverage

    show_coverage(target, missing=missing, json=json)


@emulator_app.callback()
def _emulator() -> None:
    pass
