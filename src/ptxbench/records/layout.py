"""Where everything lies in a run's folder; nothing is read or written here.

RUN/run.json                  the plan and what made it (`Run`)
RUN/trajectories/NAME.json    one conversation (`Trajectory`), replaced whole after every turn
RUN/journal/NAME.jsonl        its paid answers (`JournalEntry`), each written before it is evaluated
RUN/faults.jsonl              faults of the infrastructure (`Fault`)
RUN/logs/*.eval               logs for `inspect view`
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import RecordError
from ptxbench.schema.turn import SampleKey

RUN = "run.json"
TRAJECTORIES = "trajectories"
JOURNAL = "journal"
FAULTS = "faults.jsonl"
LOGS = "logs"
LOCK = ".lock"
"""Held by the process that writes."""

STORE_KEY = "ptxbench:trajectory"
"""Under this name a sample of an Inspect log holds its `Trajectory`."""
METADATA_KEY = "ptxbench_run"
"""Under this name the header of an Inspect log holds its `Run`."""

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    root: Path

    @property
    def run(self) -> Path:
        """The run's first document."""
        return self.root / RUN

    @property
    def trajectories(self) -> Path:
        """Folder of conversations."""
        return self.root / TRAJECTORIES

    @property
    def faults(self) -> Path:
        """Faults of the infrastructure, one JSON document a line."""
        return self.root / FAULTS

    @property
    def logs(self) -> Path:
        """Folder of Inspect's logs."""
        return self.root / LOGS

    @property
    def lock(self) -> Path:
        """Locked while a process writes into the folder."""
        return self.root / LOCK

    def trajectory(self, key: SampleKey) -> Path:
        """The document of one conversation.

        Raises:
            RecordError: The sample's name does not fit a file's.
        """
        return self.trajectories / f"{_file_name(key)}.json"

    def journal(self, key: SampleKey) -> Path:
        """Paid answers of one conversation, one JSON document a line.

        Raises:
            RecordError: The sample's name does not fit a file's.
        """
        return self.root / JOURNAL / f"{_file_name(key)}.jsonl"


def _file_name(key: SampleKey) -> str:
    if not _SAFE.fullmatch(key.name):
        what = f"{key.name!r} cannot be the name of a file."
        raise RecordError(what, "Name problems and packs with letters, digits, '.', '_', '+' and '-'.")
    return key.name
