"""The campaigns on stores and the command line, each at a twentieth of its size."""

import importlib

import pytest

from campaigns import Table
from campaigns.damage import KINDS, SIZE

pytestmark = pytest.mark.slow


def twentieth(name: str) -> Table:
    module = importlib.import_module(f"campaigns.{name}")
    table: Table = module.run(max(1, module.SIZE // 20))
    return table


def test_a_killed_ingestion_leaves_no_mixture() -> None:
    for kind, store, *counts in twentieth("kills").rows:
        killed, _, *phases, before, after, mixed, unusable, differs = map(int, counts)
        assert (mixed, unusable, differs) == (0, 0, 0), (kind, store)
        assert before + after == sum(phases) == killed == 3
        # one in three is aimed at the commit, and seldom comes too late
        assert phases[1] + phases[2] >= 1, (kind, store)
        assert after <= phases[1] + phases[2], "what was not committed may not be there"


def test_damage_to_a_store_is_never_silent() -> None:
    rows = twentieth("damage").rows
    assert [row[0] for row in rows] == list(KINDS)
    for kind, whole, refused, other, error, crash in rows:
        assert (int(other), int(error), int(crash)) == (0, 0, 0), kind
        assert int(whole) + int(refused) == SIZE // 20


def test_absurd_values_end_in_a_sentence_for_every_command_there_is() -> None:
    from campaigns.options import commands, run, typed

    rows = run(1, one_in=40).rows
    assert {row[0] for row in rows} == set(commands())
    for command, options, *counts in rows:
        every = len(dict(typed(commands()[command], "x")))
        assert every <= 40 * int(options) < every + 40, command
        assert counts[3:] == ["0", "0"], command
