"""Numbers and sentences as one says them."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.program import ettr, write_logs
from ettr.models.compare import rate_direction
from ettr.models.dispersion import FailureTimeline
from ettr.report.actions import hours_words, plainly, share_words

MOST_WORDS = 24
NOT_SAID = re.compile(r"\d[eE][+-]?\d|\b1 times as often|\(1 (?!of)[a-z]+s\)|\b1 [a-z]+s\b(?! of)")

JARGON = {
    "attempt": "job",
    "exposure": "running time",
    "node-days": "days of running nodes",
    "MTTF": "time between failures",
    "lower bound": "at least",
    "upper bound": "at most",
    "attributed": "explained",
    "interval of": "range",
    "verdict": "answer",
    "censored": "still running",
    "posterior": "chance",
    "overdispersed": "in bursts",
}
"""Words that the first screen does not use, each with what it says instead."""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (118_900.0, "120,000"),
        (2_563.393, "2,600"),
        (0.0082, "0.0082"),
        (0.00001, "under 0.001"),
        (99.6, "100"),
        (1_250_000.0, "1.2 million"),
        (3.4e9, "3.4 billion"),
        (5e15, "over 1,000 billion"),
        (math.inf, "endless"),
    ],
)
def test_a_number_has_two_digits_and_no_power_of_ten(value: float, words: str):
    assert plainly(value) == words


@given(st.floats(0.001, 1e11))
def test_what_is_said_is_within_five_percent(value: float):
    text = plainly(value)
    scale = 1e9 if "billion" in text else 1e6 if "million" in text else 1.0
    said = float(text.split()[0].replace(",", "")) * scale
    assert abs(said / value - 1.0) <= 0.051
    assert not NOT_SAID.search(text)


@given(st.floats(0.0, 1e300))
def test_no_length_of_time_and_no_share_needs_a_power_of_ten(value: float):
    assert not re.search(r"[eE]\+?\d", hours_words(value) + share_words(value))


def test_a_rate_that_stays_is_as_often_and_many_days_are_written_out():
    times = np.arange(0.5, 60.0)
    edges = np.arange(0.0, 61.0)
    timeline = FailureTimeline(times, edges, 2_000.0 * edges)
    says = rate_direction(timeline).meaning
    assert "120,000 node-days" in says
    assert ": as often [" in says
    assert not NOT_SAID.search(says)


def test_lengths_are_in_the_unit_that_fits():
    said = [hours_words(hours) for hours in (0.4, 2.4, 47.0, 312.0)]
    assert said == ["24 minutes", "2.4 hours", "47 hours", "13 days"]


def test_what_the_terminal_says_first_is_readable(tmp_path):
    done = ettr("report", *write_logs(tmp_path), "--timezone", "UTC", "-o", tmp_path / "r.html")
    assert done.code == 0, done.err
    text = done.out.partition("\nReport: ")[0]
    lines = text.splitlines()
    assert len(lines) <= 12
    for sentence in re.split(r"(?<=[.:])\s+", " ".join(lines)):
        assert len(sentence.split()) <= MOST_WORDS, sentence
    assert not NOT_SAID.search(text)
    assert "[" not in text
    for word, plain in JARGON.items():
        assert word.lower() not in text.lower(), f"{word}: say {plain}"
    # the answers come in their order, before what to do
    places = [
        text.index(f"{place}: ")
        for place in ("GPU time lost to failures", "Compared with the period before", "Do first")
    ]
    assert all(first < then for first, then in pairwise(places))
