"""The site of runs: complete files that need no network, whatever a model wrote; a browser finds no fault in them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.making import make_recorded_run, make_run

from ptxbench.cli.main import run as ptxbench
from ptxbench.records.read import read_run
from ptxbench.report.site import build_site
from ptxbench.report.site.turns import trajectory_view
from ptxbench.schema.turn import Answer

NAMES = ("wrong-compile_error", "wrong-skipped_k", "simple-gemm_mma", "reference-gemm_n7168_k5120")
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }}"


class Page(HTMLParser):
    """Links, ids and elements of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" and value:
                self.ids.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    measured = make_recorded_run(folder / "a", *NAMES)
    emulated = make_run(folder / "b", Answer(text=HOSTILE, reasoning=HOSTILE), "own work", device="emulator")
    build_site([read_run(measured), read_run(emulated)], folder / "site")
    return folder / "site"


def pages(site: Path) -> Iterator[Page]:
    return (Page(path) for path in sorted(site.rglob("*.html")))


def test_there_is_a_page_for_every_run_trajectory_and_problem(site: Path) -> None:
    names = [str(path.relative_to(site)) for path in sorted(site.rglob("*.html"))]
    assert "index.html" in names
    assert sum(name.startswith("runs/") for name in names) == 2 + 3
    assert sum(name.startswith("problems/") for name in names) == 16


def test_every_link_leads_to_a_file_and_a_place_in_it_and_none_to_the_network(site: Path) -> None:
    found = {page.path.resolve(): page for page in pages(site)}
    for page in found.values():
        for link in page.links:
            if link.startswith("data:"):
                continue
            assert "://" not in link
            file, _, place = link.partition("#")
            path = (page.path.parent / file).resolve() if file else page.path.resolve()
            assert path.is_file(), f"{page.path}: {link}"
            if place:
                assert place in found[path].ids, f"{page.path}: {link}"


def test_what_a_model_wrote_is_text_and_nothing_else(site: Path) -> None:
    for page in pages(site):
        assert page.tags.count("script") == 1, "our own, in the head"
        assert "img" not in page.tags
    assert any("{{ 7 * 7 }}" in page.path.read_text() for page in pages(site))


def test_published_lines_and_ours_stand_side_by_side_and_are_marked(site: Path) -> None:
    text = (site / "problems" / "gemm_n7168_k5120.html").read_text()
    assert "NVIDIA H200" in text
    assert text.count('class="badge">published') > 5
    assert "not measured" in text, "the emulator's line has no speedup"


def test_a_reader_sees_why_each_turn_ended(site: Path, tmp_path: Path) -> None:
    (trajectory,) = read_run(make_recorded_run(tmp_path / "run", *NAMES)).trajectories()
    why = [view.why for view in trajectory_view(trajectory).turns]
    assert why[0].startswith("build: kernel.cu:40")
    assert why[1].startswith("check: ")
    assert why[2] == "Right, but without the target's instructions doing its work."
    assert why[3].startswith("Right, by the target's instructions, 1.0")


def test_the_difference_shows_the_new_kernels_lines_by_their_numbers(tmp_path: Path) -> None:
    (trajectory,) = read_run(make_recorded_run(tmp_path / "run", *NAMES)).trajectories()
    first, second, *_ = trajectory_view(trajectory).turns
    assert first.first
    assert [line.kind for line in first.diff] == ["same"] * len(first.diff)
    assert second.turn.candidate is not None
    lines = second.turn.candidate.entry_source.splitlines()
    numbered = [line for line in second.diff if line.number is not None]
    assert all(lines[line.number - 1] == line.text for line in numbered if line.number is not None)
    assert second.added > 0
    assert second.removed > 0


def test_the_command_writes_the_site_and_names_its_first_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", "own work")
    assert ptxbench(["report", str(run), "-o", str(tmp_path / "site")]) == 0
    assert "index.html" in capsys.readouterr().out
    assert ptxbench(["report", str(tmp_path / "none"), "-o", str(tmp_path / "site")]) == 2


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_loads_every_kind_of_page_without_an_error(site: Path, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    kinds = [site / "index.html", site / "problems" / "gemm_n7168_k5120.html"]
    kinds += sorted((site / "runs").rglob("index.html"))[:1] + sorted((site / "runs").rglob("gemm*.html"))[:1]
    for path in kinds:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        assert "ptxbench verify" in ended.stdout
        assert "CONSOLE" not in ended.stderr, ended.stderr
