"""A provider on a local port that speaks OpenAI's and Anthropic's wire formats and does what it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-not-to-be-seen-4711"


@dataclass(frozen=True)
class Act:
    """What the provider does with one request.

    Attributes:
        text: Of the answer.
        thought: The reasoning before it.
        cut: The answer ends for its length.
        status: Of an error, in place of an answer.
        broken: The connection ends within the answer.
    """

    text: str = ""
    thought: str = ""
    cut: bool = False
    status: int = 200
    broken: bool = False


@dataclass
class FakeProvider:
    """Carries its acts out in order, the last one again and again, and keeps what it was sent."""

    acts: list[Act]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def next_act(self, body: dict[str, Any], key: str) -> Act:
        self.bodies.append(body)
        self.keys.append(key)
        return self.acts[min(len(self.bodies), len(self.acts)) - 1]


@contextmanager
def serving(*acts: Act) -> Iterator[FakeProvider]:
    """A provider while it serves."""
    provider = FakeProvider(list(acts))
    handler = type("Handler", (_Handler,), {"provider": provider})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    provider: FakeProvider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("x-api-key") or self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.path.endswith("/count_tokens"):  # Anthropic's, free of charge: how long a thought is
            self._send(200, "application/json", json.dumps({"input_tokens": 30}).encode())
            return
        act = self.provider.next_act(body, key)
        if act.status != 200:
            error = {"type": "error", "error": {"type": "api_error", "message": f"refused {key}", "code": "x"}}
            self._send(act.status, "application/json", json.dumps(error).encode())
            return
        anthropic = self.path.endswith("/messages")
        if body.get("stream"):
            content = _anthropic_stream(act) if anthropic else _openai_stream(act)
            self._send(200, "text/event-stream", content, broken=act.broken)
        else:
            document = _anthropic(act) if anthropic else _openai(act)
            self._send(200, "application/json", json.dumps(document).encode(), broken=act.broken)

    def _send(self, status: int, kind: str, content: bytes, *, broken: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if broken else content)
        if broken:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def _openai(act: Act) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": act.text}
    if act.thought:
        message["reasoning_content"] = act.thought
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake-1",
        "choices": [{"index": 0, "message": message, "finish_reason": "length" if act.cut else "stop"}],
        "usage": _OPENAI_USAGE,
    }


_OPENAI_USAGE = {
    "prompt_tokens": 110,
    "completion_tokens": 70,
    "total_tokens": 180,
    "prompt_tokens_details": {"cached_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 30},
}


def _openai_stream(act: Act) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "fake-1"}
    half = len(act.text) // 2
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": act.text[:half]}, {"content": act.text[half:]}]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": "length" if act.cut else "stop"}
    chunks += [{**head, "choices": [end]}, {**head, "choices": [], "usage": _OPENAI_USAGE}]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n"


def _anthropic(act: Act) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": act.text}]
    if act.thought:
        content.insert(0, {"type": "thinking", "thinking": act.thought, "signature": "c2ln"})
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "fake-1",
        "content": content,
        "stop_reason": "max_tokens" if act.cut else "end_turn",
        "stop_sequence": None,
        "usage": _ANTHROPIC_USAGE,
    }


_ANTHROPIC_USAGE = {
    "input_tokens": 100,
    "output_tokens": 70,
    "cache_read_input_tokens": 10,
    "cache_creation_input_tokens": 5,
}


def _anthropic_stream(act: Act) -> bytes:
    whole = _anthropic(act)
    start = {**whole, "content": [], "stop_reason": None, "usage": {**_ANTHROPIC_USAGE, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(whole["content"]):
        empty = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": act.text}]
        if block["type"] == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": act.thought},
                {"type": "signature_delta", "signature": "c2ln"},
            ]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 70}})
    events.append({"type": "message_stop"})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
