"""The recipe that users copy, run as it is and killed; the campaign has more kills."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")
pytest.importorskip("torchdata")


def test_a_killed_recipe_ends_with_the_losses_and_the_model_of_the_unkilled_one() -> None:
    from campaigns.recipe_kills import BUDDY, row

    outcome = row("2D", BUDDY, 2, seed=11, steps=16)
    assert (outcome.kills, outcome.lost) == (2, 0)
    assert outcome.replaced == 2, "survivors keep their processes"
    assert outcome.other_losses == outcome.other_models == 0
