"""`ettr project` on typed numbers: models that apply, and what it says of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program import ettr

TYPED = (
    "project",
    "--failures",
    "419",
    "--node-days",
    "110592",
    "--seen-gpus",
    "16384",
    "--gpus",
    "16384",
)


def projection(*words: str) -> dict[str, Any]:
    done = ettr(*words, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def test_typed_numbers_take_a_constant_rate():
    """Llama 3 405B: 419 failures in 54 days on 16,384 GPUs."""
    named, plain = projection(*TYPED, "--model", "constant"), projection(*TYPED)
    mttfs = [one["points"][0]["projection"]["mttf_h"] for one in (named, plain)]
    assert named["models"] == ["constant rate"]
    assert mttfs[0] == mttfs[1]
    assert mttfs[0]["estimate"] == pytest.approx(54 * 24 / 419)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "gompertz"), "there is no such model; give constant, gamma-mixed, weibull"),
        (("--model", "gamma-mixed"), "there is only one fleet; give a STORE of several nodes"),
        (("--model", "piecewise"), "do not say when nodes failed; give a STORE"),
        (("--model", "weibull", "--ages", "0d,9d"), "do not say when nodes failed; give a STORE"),
        (("--ages", "0d,9d"), "--ages: needs --model weibull or --model lognormal"),
        (("--clock", "use"), "--clock: needs --model weibull or --model lognormal"),
        (("--model", "weibull", "--clock", "wall"), "--clock wall: give use or age"),
        (("--model", "weibull", "--ages", "9d,3d"), "ends before it begins; write it as 0d,90d"),
        (("--model", "weibull", "--ages", "9d"), "give two times, from and to, such as 0d,90d"),
        (("--spares", "4"), "--spares: needs --repair"),
        (("--days", "inf"), "--days inf: give a positive number of days"),
        (("--days", "-1"), "--days -1: give a positive number of days"),
        (("--gpus", "9" * 5000), "is no whole number above 0"),
        (("--gpus", "00"), "is no whole number above 0"),
        (("--confidence", "90"), "confidence 90.0 is not between 0 and 1"),
        (("--window", "600"), "--window: needs a STORE"),
        (("--taxonomy", "nowhere.toml"), "--taxonomy: needs a STORE"),
        (("--believe", "astrology"), "--believe: needs a STORE"),
    ],
)
def test_typed_numbers_are_no_reason_to_overlook_a_mistake(words: tuple[str, ...], says: str):
    done = ettr(*TYPED, *words)
    assert done.code == 2
    assert says in done.err
    assert done.out == ""


def test_warnings_of_any_scale_are_told_in_whatever_order_the_scales_stand():
    """The largest first, the smallest in the middle: each has a warning of its own."""
    done = ettr(*TYPED[:-2], "--gpus", "131072,64,16384")
    text = " ".join(done.out.split())
    assert "16,384 nodes are 8 times the largest job seen (2,048)" in text
    assert "8 nodes are fewer than the smallest job seen (2,048)" in text
    done = ettr(*TYPED[:-2], "--gpus", "32768,65536,131072")
    assert " ".join(done.out.split()).count("times the largest job seen") == 1


def test_one_failure_is_told_in_the_singular():
    done = ettr("project", "--failures", "1", "--node-days", "100", "--gpus", "4096")
    text = " ".join(done.out.split())
    assert "1 failure is too few to know whether they cluster" in text
    assert "1 failure is too few to decide between models" in text
    assert "1 failures" not in text
