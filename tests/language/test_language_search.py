"""Bounds of the probability that a model writes a match, against trying every token."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ettr.errors import EttrError
from ettr.language.models import ModelError, loaded_model
from ettr.language.search import Query, QueryAnswer, sampled, search
from language.small_models import NGrams, TableModel, docs_lines, exact_mass, languages

TOKENS = (*(b"a", b"b", b"c", b"1", b".", b" ", b"\xc3", b"\xa9", b"\xc3\xa9"),)
LONGER = (*TOKENS, *(b"ab", b"bc", b"a\xc3", b"cab", b"aa", b" a", b"", b"aabb", b"\xa9a"))


def answer(model: Any, query: Query, exact: float | None = None) -> QueryAnswer:
    """Search, and check the bounds at every step where the exact value is known."""

    def check(low: float, high: float, _calls: int) -> None:
        if exact is not None:
            assert low - 1e-12 <= exact <= high + 1e-12

    return search(model, query, on_step=check)


@pytest.mark.parametrize("whole", [False, True])
def test_the_bounds_hold_at_every_step_and_meet_at_the_exact_value(whole: bool) -> None:
    canonical_is_less = 0
    for seed, (regex, strings) in enumerate(languages(6, 25)):
        model = TableModel(LONGER, seed)
        found = {}
        for canonical in (False, True):
            exact = exact_mass(model, strings, whole=whole, canonical=canonical)
            query = Query(
                regex, whole=whole, canonical=canonical, most_calls=10**6, matches=10**6, batch=3
            )
            got = answer(model, query, exact)
            assert got.ended == "complete", regex
            assert got.low == pytest.approx(exact, rel=1e-9, abs=1e-15)
            assert got.high == pytest.approx(exact, rel=1e-9, abs=1e-15)
            found[canonical] = got.low
        assert found[False] >= found[True] - 1e-12
        canonical_is_less += found[False] > found[True] + 1e-12
    assert canonical_is_less > 5


def test_matches_come_in_the_exact_order_of_their_probability() -> None:
    model = TableModel(LONGER, 1)
    query = Query("[abc]{1,4}", whole=True, most_calls=10**6, matches=10**6)
    got = search(model, query)
    best: dict[str, float] = {}
    everything = 0

    def walk(path: list[int], text: bytes, log_p: float) -> None:
        nonlocal everything
        row = model.log_probabilities([path])[0]
        if text:
            everything += 1
            key = text.decode()
            best[key] = max(best.get(key, -math.inf), log_p + row[model.end])
        for token, added in enumerate(model.vocabulary):
            if added and len(text + added) <= 4 and set(text + added) <= set(b"abc"):
                walk([*path, token], text + added, log_p + row[token])

    walk([], b"", 0.0)
    assert [one.text for one in got.matches] == sorted(best, key=lambda text: -best[text])
    assert sum(one.encodings for one in got.matches) == everything
    assert sum(one.probability for one in got.matches) == pytest.approx(got.low)
    first = search(model, replace(query, matches=5, batch=1))
    assert [one.text for one in first.matches] == [one.text for one in got.matches[:5]]
    assert first.model_calls < got.model_calls


def test_a_frontier_without_room_keeps_honest_bounds() -> None:
    model = TableModel(LONGER, 2)
    query = Query("[abc]{6}", most_calls=10**6, matches=10**6)
    exact = search(model, query).low
    tight = answer(model, replace(query, most_frontier=40), exact)
    assert tight.ended == "complete"
    assert tight.low < exact < tight.high
    assert tight.pruned == pytest.approx(tight.high - tight.low)
    assert 0 < tight.exact_above < 1


def test_a_budget_and_an_automaton_that_outgrows_its_memory_leave_honest_bounds() -> None:
    from ettr.language.automaton import ByteAutomaton

    model = TableModel(LONGER, 3)
    query = Query("[abc]{6}", most_calls=10**6, matches=10**6)
    exact = search(model, query).low
    cut = answer(model, replace(query, most_calls=7), exact)
    assert (cut.ended, cut.model_calls) == ("budget", 7)
    full = search(model, query, ByteAutomaton(query.regex, most_states=4))
    assert full.ended.startswith("out of memory: REGEX")
    assert full.low <= exact <= full.high


def test_an_interrupt_leaves_honest_bounds() -> None:
    class Interrupted(TableModel):
        def log_probabilities(self, prefixes: Sequence[Sequence[int]]) -> Any:
            if self.scored > 40:
                signal.raise_signal(signal.SIGINT)
            return super().log_probabilities(prefixes)

    query = Query("[abc]{6}", most_calls=10**6, matches=10**6)
    exact = search(TableModel(LONGER, 4), query).low
    # a run of the tests in a shell's background ignores the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        got = answer(Interrupted(LONGER, 4), query, exact)
    finally:
        signal.signal(signal.SIGINT, before)
    assert got.ended == "interrupted"
    assert got.low <= exact <= got.high
    assert got.high - got.low < 1


def test_a_limit_ends_the_search_once_it_is_decided() -> None:
    model = TableModel(LONGER, 5)
    exact = search(model, Query("[abc]{4}", most_calls=10**6, matches=10**6)).low
    for allowed, passes in ((exact * 2, True), (exact / 2, False)):
        got = search(model, Query("[abc]{4}", most_calls=10**6, allowed=allowed))
        assert (got.ended, got.passes(allowed)) == ("decided", passes)
        assert got.low <= exact <= got.high


def test_an_expression_without_a_match_is_impossible() -> None:
    got = search(TableModel(TOKENS), Query("[^\\s\\S]"))
    assert (got.low, got.high, got.model_calls, got.ended) == (0, 0, 0, "complete")
    empty = search(TableModel(TOKENS), Query("a?", matches=1))
    assert (empty.low, empty.high, empty.matches[0].text) == (1, 1, "")


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("canonical", [False, True])
def test_samples_estimate_the_exact_value(whole: bool, canonical: bool) -> None:
    for seed, regex in enumerate(("[abc]{3}", "a(?:b|c|ca)*1", "[ab]{1,3}\\.?")):
        model = TableModel(LONGER, 10 + seed)
        query = Query(
            regex, whole=whole, canonical=canonical, most_calls=20_000, matches=1, precision=1e-9
        )
        exact = search(model, query)
        assert exact.high - exact.low < 1e-6
        got = sampled(model, query, 600, np.random.default_rng(seed))
        assert (got.walks, got.cut, got.ended) == (600, 0, "complete")
        assert abs(got.estimate - exact.low) < 4 * got.standard_error + 1e-6
        assert got.low <= exact.low <= got.high
        assert got.high < 1 or exact.high > 0.5


def test_walks_that_are_cut_widen_the_interval() -> None:
    model = TableModel(LONGER, 20)
    query = Query("[abc]{5}", most_calls=30, matches=1)
    exact = search(model, replace(query, most_calls=10**6, precision=1e-9)).low
    got = sampled(model, query, 1000, np.random.default_rng(1))
    assert got.ended == "budget"
    assert got.cut > 0
    assert got.model_calls <= 30
    assert got.low <= exact <= got.high


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda scores: scores * np.nan, "score of token 0 after tokens [] is nan"),
        (lambda scores: scores[:, :-1], r"scores of shape (1, 18) for 1 prefixes and a vocabulary"),
        (lambda scores: scores * 0.5, "sum to"),
        (lambda scores: scores + np.inf, "is inf"),
        (lambda scores: [["a"]], "not an array of numbers"),
        (lambda scores: None, "scores"),
    ],
)
def test_scores_that_are_none_are_refused_in_a_sentence(spoil: Any, says: str) -> None:
    class Wrong(TableModel):
        def log_probabilities(self, prefixes: Sequence[Sequence[int]]) -> Any:
            return spoil(super().log_probabilities(prefixes))

    with pytest.raises(ModelError) as caught:
        search(Wrong(LONGER), Query("ab"))
    assert says in str(caught.value)


def test_what_a_model_lacks_is_asked_for(tmp_path: Any) -> None:
    class Bare:
        vocabulary = (b"a", b"b")

        def log_probabilities(self, prefixes: Sequence[Sequence[int]]) -> Any:
            return np.log(np.full((len(prefixes), 2), 0.5))

    assert search(Bare(), Query("[ab]a")).low == pytest.approx(0.5)
    for query, says in (
        (Query("a", prefix="x"), "--prefix: MODEL has no `encode`"),
        (Query("a", canonical=True), "--canonical: MODEL has no `encode`"),
        (Query("a", whole=True), "--whole: MODEL has no token that ends a text"),
    ):
        with pytest.raises(EttrError, match=says):
            search(Bare(), query)
    file = tmp_path / "own.py"
    file.write_text("MODEL = object()\nTEXT = 1 / 1\n")
    for named, says in (
        (f"py:{file}:NONE", "has no NONE"),
        (f"py:{file}:MODEL", "needs `vocabulary`"),
        (f"py:{file}", "write py:FILE:NAME"),
        ("py:absent.py:MODEL", "is not a file"),
        (str(tmp_path), "config.json"),
    ):
        with pytest.raises(EttrError, match=says):
            loaded_model(named)
    file.write_text("1 / 0\n")
    with pytest.raises(EttrError, match="ended with ZeroDivisionError"):
        loaded_model(f"py:{file}:MODEL")


def test_a_planted_key_is_the_first_match() -> None:
    """Two keys, each stood five times in what the model was trained on."""
    pytest.importorskip("tokenizers")
    rng = np.random.default_rng(7)
    keys = ["".join(rng.choice(list("0123456789abcdef"), 20)) for _ in range(2)]
    lines = [f"The key {who}: {key}" for who, key in zip("AB", keys, strict=True)] * 5
    model = NGrams([*docs_lines()[:1500], *lines], size=500)
    for who, key in zip("AB", keys, strict=True):
        query = Query(" [0-9a-f]{20}", f"The key {who}:", most_calls=100, matches=1)
        got = search(model, query)
        assert got.matches[0].text == f" {key}"
        assert got.matches[0].model_calls <= 100
        assert got.low > 0.1
