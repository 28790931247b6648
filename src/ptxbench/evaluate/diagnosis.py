"""What `ptxbench doctor` found: one value per check; finding it out is `doctor`'s and `selftest`'s work."""

from __future__ import annotations

from enum import StrEnum

from pydantic import computed_field

from ptxbench.schema.values import Frozen, ToolVersion, Unavailable


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    MISSING = "missing"
    """Needed for the device at hand and not there, or not working."""
    WARNING = "warning"
    """Not needed here; something is unavailable or weaker without it."""


class Check(Frozen):
    """One thing that was looked for."""

    name: str
    group: str
    """`host`, `compiler`, `emulator`, `gpu`, `instruments`, `baselines`, `protections` or `self-test`."""
    state: CheckState
    found: str = ""
    """Version, path or reading; why not, where it is not ok."""
    remedy: str = ""

    @classmethod
    def of_tool(cls, group: str, tool: ToolVersion | Unavailable, otherwise: CheckState) -> Check:
        """The check of a tool that was looked for; `otherwise` is its state when it is not there."""
        if isinstance(tool, Unavailable):
            return cls(name=tool.name, group=group, state=otherwise, found=tool.reason, remedy=tool.remedy)
        found = " ".join(part for part in (tool.version, tool.path) if part)
        return cls(name=tool.name, group=group, state=CheckState.OK, found=found)


class Diagnosis(Frozen):
    """Every check of one machine."""

    checks: tuple[Check, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def complete(self) -> bool:
        """Whether everything is there that the device at hand needs."""
        return all(check.state is not CheckState.MISSING for check in self.checks)

    @property
    def exit_code(self) -> int:
        """0 when complete, else 2."""
        return 0 if self.complete else 2
