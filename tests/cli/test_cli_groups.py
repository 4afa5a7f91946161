"""Groups of options: one declaration, and every command that takes the group has each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from cli.program import ettr
from ettr.cli.groups import OptionGroup, flattened


@dataclass(frozen=True, slots=True)
class Size(OptionGroup):
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes.")] = 1
    racks: Annotated[int | None, typer.Option("--racks", help="Racks.")] = None


@dataclass(frozen=True, slots=True)
class Place(Size):
    room: Annotated[str, typer.Option("--room", help="Room.")] = "a"


def told(words: list[str]) -> list[object]:
    """What a command with a group gets from the words."""
    got: list[object] = []

    def command(
        name: Annotated[str, typer.Argument()], *, place: Place, loud: bool = False
    ) -> None:
        """Say it."""
        got.extend([name, place, loud])

    # the names of this module are local to a test; Typer reads them where the command stands
    command.__annotations__ = {
        "name": Annotated[str, typer.Argument()],
        "place": Place,
        "loud": bool,
        "return": None,
    }
    app = typer.Typer()
    app.command()(flattened(command))
    app(words, standalone_mode=False)
    return got


def test_a_group_comes_filled_or_with_its_defaults():
    assert told(["x"]) == ["x", Place(1, None, "a"), False]
    assert told(["x", "--racks", "3", "--loud", "--room", "b"]) == ["x", Place(1, 3, "b"), True]


def test_a_command_that_asks_for_its_context_has_it_beside_a_group():
    got: list[object] = []

    def command(context: typer.Context, *, size: Size) -> None:
        """Say it."""
        got.extend([context.args, size])

    command.__annotations__ = {"context": typer.Context, "size": Size, "return": None}
    app = typer.Typer()
    app.command(context_settings={"allow_extra_args": True})(flattened(command))
    app(["--racks", "2", "train.py", "4"], standalone_mode=False)
    assert got == [["train.py", "4"], Size(1, 2)]


def test_two_options_of_one_name_are_refused_at_once():
    def command(size: Size, nodes: int = 2) -> None:
        """Say it."""

    command.__annotations__ = {"size": Size, "nodes": int, "return": None}
    with pytest.raises(TypeError, match="command: nodes is registered twice"):
        flattened(command)


@pytest.mark.parametrize("name", ["report", "plan", "project", "compare", "failures"])
def test_commands_that_give_a_rate_take_the_same_options(name: str):
    words = ettr(name, "--help-all").out
    for option in ("--taxonomy", "--believe", "--window", "--above-gpus", "--confidence"):
        assert f"{option} " in words


def test_help_speaks_of_the_run_where_a_run_is_planned():
    """`--nodes` of a log is another thing than `--nodes` of a run."""
    assert "Number of nodes of the run" in ettr("plan", "--help").out
    assert "Number of nodes in the fleet" in ettr("report", "--help-all").out
