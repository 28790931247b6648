"""What all schema values share: a frozen base, content hashes, layers that may be unavailable; no kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = "1.0"
"""Version of every document ptxbench writes. The major part changes when a reader of the old one would be misled."""


class Frozen(BaseModel):
    """A value: immutable, compared by content, strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", use_attribute_docstrings=True)


class Target(StrEnum):
    """The architecture whose own instructions a kernel should use."""

    SM_90A = "sm_90a"
    SM_100A = "sm_100a"

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor) of the devices that run this target; `a` targets run on exactly one."""
        return {Target.SM_90A: (9, 0), Target.SM_100A: (10, 0)}[self]

    @property
    def generation(self) -> str:
        """Marketing name of the generation."""
        return {Target.SM_90A: "Hopper", Target.SM_100A: "Blackwell"}[self]


class Derived(Frozen):
    """A value with computed fields: written with them, and a reader derives them anew, so no file can claim others."""

    @model_validator(mode="before")
    @classmethod
    def _derive_again(cls, data: object) -> object:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if key not in cls.model_computed_fields}
        return data


def content_hash(fields: Iterable[str | bytes]) -> str:
    """SHA-256 (hex) over length-prefixed fields, so that no two different lists of fields hash alike.

    Each field is preceded by its length in bytes as an 8-byte little-endian integer; text is UTF-8.
    """
    digest = hashlib.sha256()
    for field in fields:
        data = field.encode() if isinstance(field, str) else field
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Layer(Frozen):
    """One answer of a verdict: yes, no, a number, or unavailable with the reason."""

    state: Literal["yes", "no", "value", "unavailable"]
    value: float | None = None
    interval: tuple[float, float] | None = None
    """Bootstrap 95 % interval of `value`, where it was sampled."""
    reason: str | None = None
    """Why it is unavailable or `no`, and what to do about it."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.state == "value") != (self.value is not None):
            raise ValueError("a layer has a value exactly when its state is 'value'")
        if self.state == "unavailable" and not self.reason:
            raise ValueError("an unavailable layer says why")
        return self

    @classmethod
    def yes_or_no(cls, answer: bool, reason: str | None = None) -> Layer:
        """A decided question."""
        return cls(state="yes" if answer else "no", reason=reason)

    @classmethod
    def of(cls, value: float, interval: tuple[float, float] | None = None) -> Layer:
        """A measured or counted number."""
        return cls(state="value", value=value, interval=interval)

    @classmethod
    def unavailable(cls, reason: str) -> Layer:
        """A question that nothing here could answer."""
        return cls(state="unavailable", reason=reason)


class Unavailable(Frozen):
    """An instrument, library or protection that was wanted and is not there."""

    name: str
    reason: str
    remedy: str = ""


class ToolVersion(Frozen):
    """Which tool took part, for the record."""

    name: str
    version: str
    path: str = Field(default="", description="Where it lay; empty for a library.")
