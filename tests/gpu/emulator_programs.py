"""Records what a GPU answers to the generated programs: assembles them, runs them under a watchdog, keeps digests."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import re
import select
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.emulator.agreement import answers
from tests.emulator.agreement.program import Program, module_text

GROUP = 12
"""Programs that are assembled together."""
SECONDS = 10.0
"""After which a program hangs."""
WORKERS = 4
_WHY = re.compile(r"error\s*:\s*(.*)")
_RAW = 8192
"""Greatest answer of which all bytes are kept, for people, in raw.zip."""


def assemble(ptxas: Path, folder: Path, programs: Sequence[Program]) -> dict[int, str]:
    """Cubins of all programs in the folder, assembled side by side; the reason for each that is refused."""

    def one(numbers: Sequence[int], name: str) -> dict[int, str]:
        text, cubin = folder / f"{name}.ptx", folder / f"{name}.cubin"
        text.write_text(module_text([programs[number] for number in numbers]))
        words = [str(ptxas), "-arch=sm_90a", "-o", str(cubin), str(text)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode == 0:
            for number in numbers:
                (folder / f"{number}.in").write_text(cubin.name)
            return {}
        if len(numbers) == 1:
            found = _WHY.search(done.stderr)
            return {numbers[0]: found[1] if found else done.stderr[:200]}
        each = [one([number], f"{name}_{number}") for number in numbers]
        return {number: why for refused in each for number, why in refused.items()}

    groups = [range(start, min(start + GROUP, len(programs))) for start in range(0, len(programs), GROUP)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(one, groups, (f"group{number}" for number in range(len(groups))))
        return {number: why for refused in made for number, why in refused.items()}


class _Worker:
    """A child process, started again whenever it is lost."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._words = [sys.executable, str(Path(__file__).with_name("emulator_worker.py")), str(folder), kind]
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, number: int) -> dict[str, Any]:
        """The answer to one program; `error` may be `hangs`."""
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(f"{number}\n".encode())
        process.stdin.flush()
        line = self._line(process, SECONDS)
        if line is None:
            self.stop()
            return {"error": "hangs"}
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"the process ended: {process.wait()}"}
        if "error" in answer:
            self.stop()
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        made = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._process = made
        if self._line(made, 60.0) != "ready\n":
            raise SystemExit("error: a worker does not start")
        return made

    @staticmethod
    def _line(process: subprocess.Popen[bytes], seconds: float) -> str | None:
        assert process.stdout is not None
        data = b""
        while not data.endswith(b"\n"):
            if not select.select([process.stdout], [], [], seconds)[0]:
                return None
            some = os.read(process.stdout.fileno(), 1 << 20)
            if not some:
                return ""
            data += some
        return data.decode()

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            self._process = None


def ask_all(folder: Path, kind: str, numbers: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The answers of some workers to all programs, as they come."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
    for number in numbers:
        waiting.put(number)

    def work() -> None:
        worker = _Worker(folder, kind)
        while not waiting.empty():
            with contextlib.suppress(queue.Empty):
                number = waiting.get_nowait()
                done.put((number, worker.ask(number)))
        worker.stop()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for _ in numbers:
        yield done.get(timeout=120)


class Document:
    """The stored document, and what is kept beside it for people."""

    def __init__(self, device: str) -> None:
        self.content: dict[str, Any] = {"device": device, "answers": {}, "samples": {}, "whole": {}}
        self.raw: dict[str, bytes] = {}

    def status(self, program: Program, status: str) -> None:
        """The same for all parts."""
        for part in program.parts:
            self._put(program, part.mnemonic, status)

    def _put(self, program: Program, mnemonic: str, entry: str) -> None:
        self.content["answers"].setdefault(program.form, {})[mnemonic] = entry

    def answer(self, program: Program, answer: dict[str, Any]) -> None:
        """What a worker said."""
        if "error" in answer:
            error = answer["error"]
            self.status(program, error if error == "hangs" else f"error: {error}")
            return
        for part, text, stable in zip(program.parts, answer["parts"], answer["stable"], strict=True):
            data = bytes.fromhex(text)
            key = answers.digest(data)
            self._put(program, part.mnemonic, key if stable else "unstable")
            self.content["samples"][key] = answers.sample(data)
            self.raw[key] = data[:_RAW]
            if program.bound != "exact":
                self.content["whole"][key] = text


def record(ptxas: Path, folder: Path, kind: str, device: str, programs: Sequence[Program]) -> Document:
    """Assemble and run everything."""
    refused = assemble(ptxas, folder, programs)
    document = Document(device)
    for number, why in refused.items():
        document.status(programs[number], f"refused: {why}")
    numbers = [number for number in range(len(programs)) if number not in refused]
    for number in numbers:
        (folder / f"{number}.pickle").write_bytes(pickle.dumps(programs[number]))
    for number, answer in ask_all(folder, kind, numbers):
        document.answer(programs[number], answer)
    return document


def store(document: Document, out: Path) -> None:
    """The document, and raw.zip with the answers by digest."""
    answers.write(out / "programs.json.gz", document.content)
    with zipfile.ZipFile(out / "raw.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for key, data in sorted(document.raw.items()):
            archive.writestr(key, data)


def summary(document: Document) -> str:
    """Counts of statuses, with an example of each."""
    counts: dict[str, list[str]] = {}
    for form, entries in document.content["answers"].items():
        for mnemonic, entry in entries.items():
            word = "answered" if answers.is_digest(entry) else entry
            counts.setdefault(word, []).append(f"{form} :: {mnemonic}")
    return "\n".join(f"{len(found):6} {word[:120]:40} e.g. {found[0][:120]}" for word, found in counts.items())
