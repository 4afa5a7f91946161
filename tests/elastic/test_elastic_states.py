"""The states of a supervised run: as the docs draw them, and no other order of calls."""

import re
from pathlib import Path

import pytest

from ettr.elastic.nodes import (
    GENERATION_TRANSITIONS,
    RUN_TRANSITIONS,
    WORKER_TRANSITIONS,
    GenerationState,
    TransitionError,
    transition,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "elastic-states.md"


def drawn(heading: str) -> dict[str, set[str]]:
    """The transitions of the diagram below a heading; a state without an arrow has none."""
    section = PAGE.read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    diagram = re.search(r"```mermaid\nstateDiagram-v2\n(.*?)```", section, re.S)
    assert diagram is not None
    found: dict[str, set[str]] = {}
    for line in diagram[1].splitlines():
        arrow = re.fullmatch(r"\s*(\S+) --> (\S+?)(?: ?: .*)?", line)
        if arrow is None:
            assert not line.strip(), line
            continue
        start, end = (name.replace("_", "-") for name in arrow.groups())
        for name in {start, end} - {"[*]"}:
            found.setdefault(name, set())
        if "[*]" not in (start, end):
            found[start].add(end)
    return found


@pytest.mark.parametrize(
    ("heading", "transitions"),
    [
        ("The run", RUN_TRANSITIONS),
        ("A process", WORKER_TRANSITIONS),
        ("A generation", GENERATION_TRANSITIONS),
    ],
)
def test_the_diagrams_of_the_docs_are_the_states_of_the_code(heading, transitions):
    assert drawn(heading) == {
        str(state): {str(following) for following in after} for state, after in transitions.items()
    }


def test_calls_in_an_impossible_order_say_what_may_follow():
    with pytest.raises(
        TransitionError,
        match="generation 3 is formed and cannot become updating; ended, recovering may follow",
    ):
        transition(
            GenerationState.FORMED,
            GenerationState.UPDATING,
            GENERATION_TRANSITIONS,
            "generation 3",
        )
