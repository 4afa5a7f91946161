"""Regular expressions as byte automata: what they accept, against Python's own matcher."""

from __future__ import annotations

import re
import resource
import time

import numpy as np
import pytest

from ettr.errors import UsageError
from ettr.language.automaton import ByteAutomaton, FullAutomatonError, TokenWalks
from language.small_models import languages

PIECES = (
    *("a", "b", "é", "€", "😀", ".", "\\d", "\\w", "\\s", "\\W", "[a-c]", "[^a]", "[é-€]", "\n"),
    *("(?i:aB)", "(?i:[k-s])", "(?s:.)", "(?a:\\w)", "\\x01", "[[a]", "[a&&b]", "[\\d.]"),
)
LETTERS = "abcABkKſ\u212aé€😀.1٣ \n\x01\x1c_&[-"


def random_regex(rng: np.random.Generator, depth: int = 3) -> str:
    kind = rng.integers(7) if depth else 0
    if kind == 0:
        return str(rng.choice(PIECES))
    inner = random_regex(rng, depth - 1)
    if kind <= 2:
        return inner + random_regex(rng, depth - 1)
    if kind == 3:
        return f"(?:{inner}|{random_regex(rng, depth - 1)})"
    return f"(?:{inner}){rng.choice(['*', '+', '?', '{0,2}', '{2}', '*?'])}"


def random_text(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(LETTERS), rng.integers(6)))


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")  # of re itself
def test_random_expressions_accept_what_fullmatch_accepts() -> None:
    rng = np.random.default_rng(1)
    accepted = 0
    for _ in range(200):
        regex = random_regex(rng)
        automaton = ByteAutomaton(regex)
        for text in {random_text(rng) for _ in range(25)}:
            expected = re.fullmatch(regex, text) is not None
            assert automaton.fullmatch(text.encode()) == expected, (regex, text)
            accepted += expected
    assert accepted > 200


def within_one_edit(text: str, strings: set[str]) -> bool:
    """The definition: one character out, in or replaced, or none."""
    ends = range(len(text) + 1)
    near = {text} | {text[:n] + text[n + 1 :] for n in ends}
    letters = {letter for one in strings for letter in one}
    near |= {text[:n] + letter + text[n:] for n in ends for letter in letters}
    near |= {text[:n] + letter + text[n + 1 :] for n in ends for letter in letters}
    return bool(near & strings)


def test_one_edit_is_one_character_in_out_or_replaced() -> None:
    rng = np.random.default_rng(2)
    seen = {True: 0, False: 0}
    for regex, strings in languages(3, 60, most=200):
        automaton = ByteAutomaton(regex, edits=1)
        for base in sorted(strings)[:8]:
            text = list(base)
            for _ in range(rng.integers(3)):
                text.insert(rng.integers(len(text) + 1), str(rng.choice(["a", "z", "é"])))
            if text and rng.integers(2):
                text.pop(rng.integers(len(text)))
            made = "".join(text)
            expected = within_one_edit(made, strings)
            assert automaton.fullmatch(made.encode()) == expected, (regex, made)
            seen[expected] += 1
    assert min(seen.values()) > 20


@pytest.mark.parametrize(
    ("regex", "word"),
    [
        ("^a", "anchor"),
        ("a$", "anchor"),
        (r"\bword", "word boundary"),
        ("a(?=b)", "lookaround"),
        ("(?<!a)b", "lookaround"),
        (r"(a)\1", "reference"),
        ("(a)?(?(1)b|c)", "condition"),
        ("(?>a)b", "atomic"),
        ("a*+", "possessive"),
        ("[a", "unterminated"),
        ("(" * 5000, "nested too deep"),
        ("(?:(a{1000}){1000}|(?:){1000000})", "repeat less"),
        ("a{99999999999999999999}", "nested too deep"),
    ],
)
def test_what_no_automaton_has_is_refused_in_a_sentence(regex: str, word: str) -> None:
    with pytest.raises(UsageError, match=r"^REGEX") as caught:
        ByteAutomaton(regex)
    assert word in str(caught.value)


def test_an_automaton_that_outgrows_its_memory_says_so() -> None:
    automaton = ByteAutomaton("[ab]*a[ab]{16}", most_states=1000)
    text = "".join(np.random.default_rng(4).choice(["a", "b"], 5000))
    with pytest.raises(FullAutomatonError, match="1,000 states"):
        automaton.after(text.encode())


def test_a_long_wildcard_opens_at_once_over_a_vocabulary_of_49_152() -> None:
    rng = np.random.default_rng(5)
    letters = [*"abcdefghijklmnopqrstuvwxyz ", "é", "€"]
    tokens = ["".join(rng.choice(letters, size)).encode() for size in rng.integers(1, 9, 49_152)]
    started_s = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    automaton = ByteAutomaton(".{0,200}")
    walks = TokenWalks(automaton, tokens)
    found, states = walks(automaton.start)
    took_s = time.process_time() - started_s
    assert found.size == 49_152
    assert all(automaton.accepts(int(one)) for one in np.unique(states))
    assert took_s < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB
