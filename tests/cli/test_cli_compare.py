"""`ettr compare` on typed numbers: what cannot be compared is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import KERNEL, ettr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("a=5/100",),
            "one fleet alone cannot be compared; give two or more, or compare it with its own past",
        ),
        (("a=5/0", "b=3/4"), "a=5/0: give failures (a whole number, 0 or more) over node-days"),
        (("a=1e999/5", "b=3/4"), "a=1e999/5: give failures (a whole number, 0 or more)"),
        (("a=2.5/5", "b=3/4"), "a=2.5/5: give failures (a whole number, 0 or more)"),
        (("a=5/1e999", "b=3/4"), "a=5/1e999: give failures (a whole number, 0 or more)"),
        (("a=5/100", "a=3/100"), "a: two fleets have the same name; name them"),
        (("a=5/100", "b=3/100", "--partition", "x"), "--partition splits one store; give exactly"),
    ],
)
def test_what_cannot_be_compared_is_told(words: tuple[str, ...], says: str):
    done = ettr("compare", *words)
    assert done.code == 2
    assert says in done.err
    assert done.out == ""


def test_a_ratio_without_an_upper_end_is_told_in_words():
    """One failure against none in as long a time: the odds are at least 0.05 / 0.95."""
    text = " ".join(ettr("compare", "a=1/100", "b=0/100", "--detail").out.split())
    assert "a fails 0.053 or more times as often (90 % interval)" in text
    assert "inf" not in text.replace("infra", "")


def test_a_store_without_jobs_says_that_it_has_none(tmp_path: Path):
    (tmp_path / "kernel.log").write_text(KERNEL)
    assert ettr("ingest", tmp_path / "store", tmp_path / "kernel.log", "--cluster", "c").code == 0
    done = ettr("compare", tmp_path / "store", "--before", "2026-03-02T00:00:00Z", "--detail")
    assert done.code == 2
    assert "its logs hold no jobs, and compare counts failures of jobs" in done.err
