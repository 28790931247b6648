"""What every FlashInfer-Trace value shares: unknown keys and key order survive a round trip; no particular document.

FlashInfer-Trace is written by several projects that each add keys of their own. A value here keeps what it does not
know, and writes back exactly the keys that it was read with, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_serializer,
    model_validator,
)

_SPECIAL = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


class TraceModel(BaseModel):
    """A frozen value that remembers the keys it was made with, unknown ones too, and their order.

    Two values are equal when their keys, the order of these, and what they hold are equal.
    """

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    _keys: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_keys(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        value = handler(data)
        if isinstance(data, Mapping):
            value._keys = tuple(data)
        return value

    @model_serializer
    def document(self) -> dict[str, object]:
        """The value as plain JSON data; infinities and NaN become the strings that FlashInfer-Trace uses."""
        known = {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
        held = {**known, **(self.model_extra or {})}
        order = [key for key in self._keys if key in held] + [key for key in held if key not in self._keys]
        return {key: plain(held[key]) for key in order}


def plain(value: object) -> object:
    """Plain JSON data of a value: containers copied, models written, non-finite floats as strings."""
    if isinstance(value, TraceModel):
        return value.document()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _read_number(value: object) -> object:
    if value is None:
        # A web framework between writer and reader turns infinities and NaN alike into null.
        return math.nan
    return _SPECIAL.get(value, value) if isinstance(value, str) else value


def _safe_component(name: str) -> str:
    bad = not name or name in (".", "..") or len(name.encode("utf-8", "surrogatepass")) > 200
    if bad or any(ord(char) < 32 or char in "/\\\x7f" for char in name):
        raise ValueError(f"{name!r} cannot serve as a file name: no '/', '\\', control characters, '.' or '..'")
    return name


def _safe_source_path(path: str) -> str:
    pure = PurePosixPath(path)
    if str(pure) == "." or pure.is_absolute() or ".." in pure.parts or "\0" in path or "\\" in path:
        raise ValueError(f"source path {path!r} must be relative, below the solution's folder, without '..'")
    return path


def _not_negative(value: float) -> float:
    if value < 0:
        raise ValueError(f"{value} is negative")
    return value


Number = Annotated[StrictInt | StrictFloat, BeforeValidator(_read_number)]
"""A measured number; `"Infinity"`, `"-Infinity"`, `"NaN"` and null are read, the last as NaN."""

NonNegative = Annotated[Number, AfterValidator(_not_negative)]
"""A number >= 0, or NaN."""

Count = Annotated[StrictInt, Field(ge=0)]
Text = Annotated[StrictStr, Field(min_length=1)]
FileName = Annotated[StrictStr, AfterValidator(_safe_component)]
"""A name that also becomes part of a path on disk."""
SourcePath = Annotated[StrictStr, AfterValidator(_safe_source_path)]
