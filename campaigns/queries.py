"""Queries of language models: automata, bounds, planted keys, a loop that generates and matches.

The model is a byte-pair vocabulary of 800 and interpolated 6-grams over the project's own docs,
trained in seconds; each key stands five times in what it is trained on. Tables of probabilities
drawn from a seed take its place where every token can be tried. `generate and match` draws whole
texts from the model and counts those that begin with a match.
"""

from __future__ import annotations

import re
import resource
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from campaigns import Table
from ettr.language import ByteAutomaton, Query, TokenWalks, sampled, search

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

TITLE = "Queries of language models"
SIZE = 20
SEED = 44
WALKS = 4000
MOST_NAIVE_CALLS = 40_000
WIDE = (
    ("The", " [a-z]+ of [a-z]+"),
    ("`ettr", " [a-z]+ --[a-z]+"),
    ("", "[A-Z][a-z]+ [0-9]+"),
)
Row = tuple[str, str, str, str]


def expressions(size: int) -> Row:
    """Random expressions against `re.fullmatch`."""
    from language.test_language_automata import random_regex, random_text

    rng = np.random.default_rng(SEED)
    wrong = texts = 0
    warnings.simplefilter("ignore", FutureWarning)  # re warns of sets in sets
    for _ in range(10 * size):
        regex = random_regex(rng)
        automaton = ByteAutomaton(regex)
        for text in {random_text(rng) for _ in range(60)}:
            wrong += automaton.fullmatch(text.encode()) != bool(re.fullmatch(regex, text))
            texts += 1
    return (
        "accepts what re.fullmatch accepts",
        f"{10 * size} expressions",
        "0 wrong",
        (f"{wrong} wrong of {texts:,} texts"),
    )


def bounds(size: int) -> list[Row]:
    """Bounds at every step, encodings and samples, against trying every token."""
    from language.small_models import TableModel, exact_mass, languages
    from language.test_language_search import LONGER

    outside = unequal = smaller = far = missed = steps = 0
    count = max(1, 5 * size // 2)
    for seed, (regex, strings) in enumerate(languages(SEED, count)):
        model, found = TableModel(LONGER, seed), {}
        for canonical in (False, True):
            exact = exact_mass(model, strings, whole=bool(seed % 2), canonical=canonical)
            query = Query(regex, whole=bool(seed % 2), canonical=canonical, batch=1 + seed % 7)
            query = replace(query, most_calls=10**6, matches=10**6)

            def step(low: float, high: float, _calls: int, exact: float = exact) -> None:
                nonlocal outside, steps
                steps += 1
                outside += not low - 1e-12 <= exact <= high + 1e-12

            got = search(model, query, on_step=step)
            unequal += abs(got.high - exact) > 1e-9 or abs(got.low - exact) > 1e-9
            found[canonical] = got.low
            if canonical == bool(seed // 2 % 2):
                rng = np.random.default_rng(seed)
                drawn = sampled(model, replace(query, batch=500), WALKS, rng)
                far += abs(drawn.estimate - exact) > 4 * drawn.standard_error + 1e-9
                missed += not drawn.low - 1e-12 <= exact <= drawn.high + 1e-12
        smaller += found[False] < found[True] - 1e-12
    draws = f"{count} languages"
    return [
        ("low <= exact <= high at every step", draws, "0 outside", f"{outside} of {steps:,} steps"),
        ("low = exact = high at the end", draws, "0 unequal", f"{unequal} of {2 * count}"),
        ("all encodings >= canonical ones", draws, "0 smaller", f"{smaller} of {count}"),
        (f"{WALKS:,} samples within 4 standard errors", draws, "0 outside", f"{far} of {count}"),
        ("their interval of 95 % holds the exact value", draws, "0 missed", f"{missed} of {count}"),
    ]


def opening(_size: int) -> Row:
    """The first state of a long wildcard over a large vocabulary."""
    rng = np.random.default_rng(SEED)
    letters = [*"abcdefghijklmnopqrstuvwxyz ", "é", "€"]
    tokens = ["".join(rng.choice(letters, n)).encode() for n in rng.integers(1, 9, 49_152)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started_s = time.process_time()
    automaton = ByteAutomaton(".{0,200}")
    TokenWalks(automaton, tokens)(automaton.start)
    took_s = time.process_time() - started_s
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return (
        ".{0,200} over 49,152 tokens opens",
        "1",
        "under 1 s, 300 MB",
        (f"{took_s:.2f} CPU s, {grown_mb:.0f} MB more"),
    )


def planted(size: int) -> tuple[list[Row], Any]:
    """Keys planted in what a model was trained on: the first match, and the calls until then."""
    from language.small_models import NGrams, docs_lines

    rng = np.random.default_rng(SEED)
    keys = {
        "".join(rng.choice(list("bcdfghklmnprstvz"), 6)): "".join(
            rng.choice(list("0123456789abcdef"), 20)
        )
        for _ in range(size)
    }
    lines = [f"The key {who}: {key}" for who, key in keys.items()] * 5
    started_s = time.process_time()
    model = NGrams([*docs_lines(), *lines])
    trained_s = time.process_time() - started_s
    first, calls = 0, []
    for who, key in keys.items():
        query = Query(" [0-9a-f]{20}", f"The key {who}:", most_calls=100, matches=1, precision=1)
        got = search(model, query)
        first += bool(got.matches) and got.matches[0].text == f" {key}"
        calls.append(got.model_calls)
        print(f"{who} {key}: {got.low:.3f} to {got.high:.3f} in {got.model_calls} calls")
    unseen = search(model, Query(" [0-9a-f]{20}", "The word of:", most_calls=500, matches=1))
    return [
        (
            "planted keys: the first match",
            f"{size} keys, trained in {trained_s:.1f} CPU s",
            f"{size} of {size} in 100 calls at most",
            f"{first} of {size} in {max(calls)} calls at most",
        ),
        (
            "a prompt without a key",
            "1",
            "no bound above .1",
            f"{unseen.low:.2g} to {unseen.high:.2g} in {unseen.model_calls} calls",
        ),
    ], model


def generated(model: Any, query: Query, rng: np.random.Generator) -> tuple[int, int]:
    """Model calls of a loop that draws texts and matches them, and the different matches found."""
    prefix = model.encode(query.prefix)
    found: set[str] = set()
    calls = 0
    matches = re.compile(query.regex).match
    while len(found) < 10 and calls < MOST_NAIVE_CALLS:
        tokens: list[int] = []
        text = b""
        while len(tokens) < 24 and calls < MOST_NAIVE_CALLS:
            row = np.exp(model.log_probabilities([[*prefix, *tokens]])[0])
            calls += 1
            tokens.append(int(rng.choice(row.size, p=row / row.sum())))
            if tokens[-1] == model.end:
                break
            text += model.vocabulary[tokens[-1]]
        if match := matches(text.decode("utf-8", "replace")):
            found.add(match.group())
    return calls, len(found)


def beside_generating(model: Any) -> list[Row]:
    """Calls to the first ten matches, for both."""
    rows = []
    for prefix, regex in WIDE:
        query = Query(regex, prefix, most_calls=5000, matches=10, precision=1.0)
        got = search(model, query)
        calls = got.matches[-1].model_calls if len(got.matches) == 10 else got.model_calls
        naive, found = generated(model, query, np.random.default_rng(SEED))
        more = "" if found == 10 else f" ({found} found)"
        rows.append(
            (
                f"first 10 matches of {regex!r} after {prefix!r}",
                "1",
                "fewer calls than generate and match",
                f"{calls:,} and {naive:,}{more}: {naive / calls:.1f} times",
            )
        )
    return rows


def run(size: int) -> Table:
    """All of them; `size` keys."""
    opened = opening(size)
    keys, model = planted(size)
    rows = [opened, expressions(size), *bounds(size), *keys, *beside_generating(model)]
    return Table(
        ("what", "draws", "asked", "measured"),
        tuple(rows),
        str(SEED),
        "0 wrong, 0 outside; each planted key first within 100 calls",
    )
