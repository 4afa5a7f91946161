"""A site of three classes of nodes with a planted truth that no law of the code made."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.borders import judged


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 5])
def test_what_is_said_of_a_site_of_three_classes_is_true(tmp_path: Path, seed: int) -> None:
    found = judged(seed, tmp_path)
    assert found.false == ()
    assert found.names_hole
    assert found.hangs == (8, 8)  # by both seeds
    held = [one.question for one in found.said if one.holds]
    # ten intervals at 0.9: fewer than 7 have a chance of 1 in 80
    assert len(held) >= 7, found.said
