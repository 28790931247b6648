"""Every environment variable and tool path, typed; nothing else reads os.environ, and nothing here runs a tool.

A setting is read once, when `Settings.load` is called, and never changes afterwards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import SettingsError

TOOLKITS = ("wheels", "system")
"""`wheels`: the CUDA compiler from the Python environment. `system`: the toolkit that CUDA_HOME names."""

_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_SECRET_LENGTH = 6
"""Shorter values are no secrets, and may stand anywhere in a text by chance."""


@dataclass(frozen=True)
class Settings:
    """What the environment decides.

    Attributes:
        cache: Folder of the build cache and of compiled helpers (PTXBENCH_CACHE; default the user's cache folder).
        toolkit: Where nvcc, cuobjdump and nvdisasm come from (PTXBENCH_TOOLKIT: `wheels` or `system`).
        cuda_home: Root of the system toolkit (CUDA_HOME, else /usr/local/cuda); ncu, compute-sanitizer and CUPTI
            are looked for there too.
        wheel_root: Folder `nvidia/cu13` of the Python environment.
        path: The PATH handed to tools.
        build_timeout: Seconds one compiler call may take (PTXBENCH_BUILD_TIMEOUT).
        device_timeout: Seconds one stage may hold the device (PTXBENCH_DEVICE_TIMEOUT).
        python: Interpreter that child processes run under.
        debug: Whether a fault of ptxbench itself shows its traceback (PTXBENCH_DEBUG).
    """

    cache: Path
    toolkit: str
    cuda_home: Path
    wheel_root: Path
    path: str
    build_timeout: float
    device_timeout: float
    python: Path
    debug: bool = False

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from `environ` (the process's own by default).

        Raises:
            SettingsError: A variable holds what it must not.
        """
        env = os.environ if environ is None else environ
        toolkit = env.get("PTXBENCH_TOOLKIT", "wheels")
        if toolkit not in TOOLKITS:
            raise SettingsError(f"PTXBENCH_TOOLKIT is {toolkit!r}.", f"Set it to one of: {', '.join(TOOLKITS)}.")
        home = Path(env.get("HOME", "/tmp"))  # noqa: S108  (only where a container has no HOME)
        cache_home = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
        return cls(
            cache=Path(env.get("PTXBENCH_CACHE") or cache_home / "ptxbench"),
            toolkit=toolkit,
            cuda_home=Path(env.get("CUDA_HOME") or "/usr/local/cuda"),
            wheel_root=_wheel_root(),
            path=env.get("PATH", os.defpath),
            build_timeout=_seconds(env, "PTXBENCH_BUILD_TIMEOUT", 120.0),
            device_timeout=_seconds(env, "PTXBENCH_DEVICE_TIMEOUT", 60.0),
            python=Path(sys.executable),
            debug=env.get("PTXBENCH_DEBUG", "0") not in ("", "0"),
        )


def redacted(text: str, environ: Mapping[str, str] | None = None) -> str:
    """A text that others may read: without the values of variables that are named like a key, token or secret."""
    env = os.environ if environ is None else environ
    secrets = (value for name, value in env.items() if name.upper().endswith(_SECRET) and len(value) >= _SECRET_LENGTH)
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, "[redacted]")
    return text


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 86400:
        raise SettingsError(f"{name} is {text!r}.", "Set it to a number of seconds between 0 and 86400.")
    return value


def _wheel_root() -> Path:
    """Where the nvidia-* wheels of CUDA 13 unpack: beside ptxbench's own dependencies, in this interpreter's path."""
    for entry in sys.path:
        root = Path(entry) / "nvidia" / "cu13"
        if root.is_dir():
            return root
    return Path(sys.prefix) / "nvidia" / "cu13"
