"""The stored errors of the libraries are found by workload, recipe, output and block."""

from pathlib import Path

import pytest

from ptxbench.errors import ProblemError
from ptxbench.suite import library_error, load_problem, pick_workload, problem_names
from ptxbench.suite.library_errors import PATH, LibraryErrors, lookup, read_table, write_table


def entry(**changes: object) -> LibraryErrors:
    problem = load_problem("mha_with_lse_d128")
    values: dict[str, object] = {
        "problem": problem.name,
        "workload": pick_workload(problem, "small").uuid,
        "recipe": "normal",
        "library": "cudnn",
        "version": "9.20.0",
        "gpu": "NVIDIA H200",
        "draws": 3,
        "errors": {"O": (0.0021, 0.0023), "LSE": (1e-7, 2e-7)},
    }
    return LibraryErrors.model_validate(values | changes)


def test_a_stored_error_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    write_table([entry(recipe="spiky", errors={"O": (0.5,)}), entry()], path)
    problem = load_problem("mha_with_lse_d128")
    small, paper = pick_workload(problem, "small"), pick_workload(problem)
    table = read_table(path)
    assert lookup(table, problem, small, "normal", ("O", 1)) == 0.0023
    assert lookup(table, problem, small, "spiky", ("O", 0)) == 0.5
    assert lookup(table, problem, paper, "normal", ("O", 0)) is None


@pytest.mark.parametrize("place", [("O", 2), ("O", -1), ("P", 0)])
def test_an_output_or_block_that_a_known_workload_lacks_is_a_fault(tmp_path: Path, place: tuple[str, int]) -> None:
    path = tmp_path / "errors.json"
    write_table([entry()], path)
    problem = load_problem("mha_with_lse_d128")
    with pytest.raises(ProblemError, match="have no block"):
        lookup(read_table(path), problem, pick_workload(problem, "small"), "normal", place)


def test_two_entries_for_one_workload_and_recipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="Two entries"):
        write_table([entry(), entry(version="9.19.0")], tmp_path / "errors.json")


def test_the_order_in_which_errors_were_measured_does_not_show_in_the_file(tmp_path: Path) -> None:
    entries = [entry(), entry(recipe="spiky")]
    write_table(entries, tmp_path / "a.json")
    write_table(reversed(entries), tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize("text", ["{", "[]", '{"entries": [{"problem": "x"}]}'])
def test_an_unreadable_table_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "errors.json"
    path.write_text(text)
    with pytest.raises(ProblemError, match=r"errors\.json: no table of library errors"):
        read_table(path)


def test_every_entry_that_ships_belongs_to_a_workload_of_the_suite_and_covers_its_rows() -> None:
    for stored in read_table(PATH).entries:
        problem = load_problem(stored.problem)
        workload = problem.workload(stored.workload)
        assert workload is not None
        rows = workload.axes.get("M") or workload.axes["S"]
        assert {name: len(blocks) for name, blocks in stored.errors.items()} == {
            tensor.name: -(-rows // 128) for tensor in problem.outputs
        }


def test_the_shipped_table_answers_for_every_problem() -> None:
    table = read_table(PATH)
    for name in problem_names():
        problem = load_problem(name)
        for workload in problem.workloads:
            known = table.find(name, workload.uuid, "normal")
            answer = library_error(problem, workload, "normal", problem.outputs[0].name, 0)
            assert (answer is None) == (known is None)
