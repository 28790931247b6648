"""Runs PTX on the CPU: a functional device that counts, and finds hangs and races; it measures no time.

For use outside of the suite: `emulate(source, Launch(...))`; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.emulator.launch import Policy
    from ptxbench.emulator.outside import Launch, Result, emulate
    from ptxbench.emulator.trace import Trace

__all__ = ["Launch", "Policy", "Result", "Trace", "emulate"]

_HOMES = {"Launch": "outside", "Policy": "launch", "Result": "outside", "Trace": "trace", "emulate": "outside"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"ptxbench.emulator.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ptxbench.emulator' has no attribute {name!r}")
