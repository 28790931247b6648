"""The steps of one nvcc call as a shell script whose host and device passes run at the same time; it runs nothing.

nvcc works through its steps one after the other: preprocess and split the host code (cudafe++), preprocess, compile
(cicc) and assemble (ptxas) the device code, pack it (fatbinary), then compile the host code and link. The first two
groups depend on each other only through a file with a name for the translation unit, which nvcc derives from the
source's path and time. Written beforehand, it lets both groups start at once and makes symbol names reproducible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ASSIGNMENT = re.compile(r"#\$ (PATH|CICC_PATH|NVVMIR_LIBRARY_DIR|LD_LIBRARY_PATH)=(.*)")
_COMMAND = re.compile(r'#\$ ("?\S+"? .*)')
_PROGRAM = re.compile(r'"?(?:[^\s"]*/)?([^\s"/]+)"?\s')
_MODULE_ID = re.compile(r'--gen_module_id_file --module_id_file_name ("[^"]*")')

_HOST = ("gcc", "cudafe++")
_DEVICE = ("gcc", "cicc", "ptxas", "fatbinary")
_REST = ("gcc", "g++")


DEVICE_FAILED = "device_failed"
"""File in the scratch folder that says: the host pass succeeded and the device pass did not."""


@dataclass(frozen=True)
class Phases:
    """What to run instead of nvcc.

    Attributes:
        script: For a POSIX shell, in the folder in which nvcc would have run.
        environment: Variables that nvcc would have set for its parts.
    """

    script: str
    environment: dict[str, str]


def split_phases(dryrun: str, unit: str, scratch: str) -> Phases | None:
    """The steps that `nvcc --dryrun` printed, rearranged; None when they are not those of one source and one target.

    Args:
        dryrun: Standard error of `nvcc --dryrun` with -keep, so that files have fixed names and none is removed.
        unit: Name of the translation unit, an identifier; symbols of unnamed namespaces carry it.
        scratch: Folder, below the current one or absolute and without a quote, for the logs of the passes.
    """
    environment = {match[1]: match[2] for line in dryrun.splitlines() if (match := _ASSIGNMENT.fullmatch(line))}
    lines = [line for line in dryrun.splitlines() if not re.match(r"#\$ \w+=", line)]
    commands = [match[1] for line in lines if (match := _COMMAND.fullmatch(line))]
    programs = tuple(match[1] for command in commands if (match := _PROGRAM.match(command)))
    module_id = _MODULE_ID.search(dryrun)
    if programs != _HOST + _DEVICE + _REST or module_id is None:
        return None
    commands = [command.replace("--gen_module_id_file ", "") for command in commands]
    host, device = commands[: len(_HOST)], commands[len(_HOST) : -len(_REST)]
    script = f"""
printf %s {unit} > {module_id[1]}
{{ {" && ".join(device)} ; }} > "{scratch}/device.log" 2>&1 &
device=$!
{{ {" && ".join(host)} ; }} > "{scratch}/host.log" 2>&1 || {{ status=$?; cat "{scratch}/host.log"; exit $status; }}
cat "{scratch}/host.log"
wait $device || {{ status=$?; touch "{scratch}/{DEVICE_FAILED}"; cat "{scratch}/device.log"; exit $status; }}
cat "{scratch}/device.log"
{" && ".join(commands[-len(_REST) :])}
"""
    return Phases(script, environment)
