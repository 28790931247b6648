"""Keeps keys that a provider repeats in its errors out of Inspect's logs; ours are redacted where they are written."""

from __future__ import annotations

import json
from typing import Any

from inspect_ai.model import Model, ModelCall

from ptxbench.settings import redacted

_MARK = "_ptxbench_guarded"


def guard(model: Model) -> Model:
    """The same model, whose errors hold no secret of the environment; Inspect logs errors as they are raised."""
    api: Any = model.api
    if getattr(api, _MARK, False):
        return model
    inner = api.generate

    async def generate(*arguments: Any, **named: Any) -> object:  # noqa: ANN401  (as it is called)
        try:
            result = await inner(*arguments, **named)
        except Exception as fault:
            _redact(fault)
            raise
        match result:
            case (Exception() as refusal, ModelCall() as call):
                _redact(refusal)
                call.response = _without_secrets(call.response)
        return result

    api.generate = generate
    setattr(api, _MARK, True)
    return model


def _redact(fault: BaseException) -> None:
    """Change an error's texts in place: its type and status decide whether Inspect tries again."""
    fault.args = tuple(redacted(each) if isinstance(each, str) else each for each in fault.args)
    for name in ("message", "body"):
        if isinstance(getattr(fault, name, None), str | dict | list):
            setattr(fault, name, _without_secrets(getattr(fault, name)))


def _without_secrets(document: Any) -> Any:  # noqa: ANN401  (JSON)
    return json.loads(redacted(json.dumps(document, default=str)))
