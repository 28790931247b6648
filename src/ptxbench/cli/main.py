"""Runs one command and turns whatever ends it into an exit code and, where needed, one message; no command is here.

Exit codes: 0 passed, 1 failed or cheated, 2 a user's mistake or the infrastructure, 3 inconclusive, 130 interrupted,
141 the reader of the output went away.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence

from ptxbench.cli.app import app
from ptxbench.errors import PtxbenchError
from ptxbench.settings import Settings

USER_OR_INFRASTRUCTURE = 2
INTERRUPTED = 130
READER_GONE = 141
"""As the shell counts a process that wrote to a closed pipe: 128 + SIGPIPE."""


def main() -> None:
    """Entry point of the `ptxbench` command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code."""
    try:
        return _command(arguments)
    except PtxbenchError as error:
        _say(f"error: {error.what}", f"remedy: {error.remedy}" if error.remedy else "")
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _silence_output()
        return READER_GONE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return _fault(error)
        _silence_output()
        _say("error: No space left to write to.", "remedy: Free space where standard output, -o or PTXBENCH_CACHE lie.")
    except Exception as error:  # noqa: BLE001  (the process's border: whatever arrives here is a fault of ours)
        return _fault(error)
    return USER_OR_INFRASTRUCTURE


def _command(arguments: Sequence[str]) -> int:
    try:
        app(args=list(arguments), prog_name="ptxbench")
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            # rich and Typer make 1 of it, which would mean that the candidate failed
            raise ended.__context__ from None
        code = ended.code if isinstance(ended.code, int) else 0
    else:
        code = 0
    sys.stdout.flush()  # here, where a full disk can still be reported
    return code


def _silence_output() -> None:
    """Let the interpreter's own flush at its end succeed; what it holds cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fault(error: Exception) -> int:
    if _debugging():
        traceback.print_exception(error)
    _say(
        f"error: A fault in ptxbench itself: {type(error).__name__}: {error}",
        "remedy: Report it in the issue tracker with the output of `ptxbench doctor --json`, "
        "the command, and what PTXBENCH_DEBUG=1 adds (CONTRIBUTING.md says how).",
    )
    return USER_OR_INFRASTRUCTURE


def _debugging() -> bool:
    try:
        return Settings.load().debug
    except PtxbenchError:
        return False


def _say(*lines: str) -> None:
    for line in lines:
        if line:
            print(line, file=sys.stderr)  # noqa: T201  (this is a command's voice)
