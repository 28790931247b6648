"""Commit and wait groups: order, empty groups, reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.emulator.async_.groups import Groups


def test_a_wait_is_due_the_groups_that_are_older_than_the_newest() -> None:
    groups = Groups[str]().issued("a").issued("b").commit().issued("c").commit().issued("d")
    assert groups.due(1) == ("a", "b")
    assert groups.due(0) == ("a", "b", "c")
    assert groups.due(2) == ()
    assert groups.waited(1) == Groups(("d",), (("c",),))
    assert groups.in_flight == ("a", "b", "c", "d")


def test_an_operation_that_was_not_committed_is_never_due() -> None:
    assert Groups[str]().issued("a").due(0) == ()


def test_an_empty_commit_counts_as_a_group() -> None:
    groups = Groups[str]().issued("a").commit().commit()
    assert groups.due(1) == ("a",)
    assert groups.due(2) == ()


def test_what_was_done_early_is_not_due_again_but_its_group_counts() -> None:
    groups = Groups[str]().issued("a").commit().issued("b").commit().without(frozenset("b"))
    assert groups.due(1) == ("a",)
    assert groups.due(0) == ("a",)


@given(st.lists(st.sampled_from(["issue", "commit", "wait0", "wait1", "wait3"]), max_size=40))
def test_every_committed_operation_is_due_exactly_once_and_in_order(steps: list[str]) -> None:
    groups, number = Groups[int](), 0
    due: list[int] = []
    for step in [*steps, "commit", "wait0"]:
        if step == "issue":
            groups, number = groups.issued(number), number + 1
        elif step == "commit":
            groups = groups.commit()
        else:
            due += groups.due(int(step[4:]))
            groups = groups.waited(int(step[4:]))
    assert due == list(range(number))
