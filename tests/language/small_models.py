"""Models that cost nothing: tables drawn from a seed, and n-grams over the project's own docs."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DOCS = Path(__file__).resolve().parents[2] / "docs"


class TableModel:
    """Probabilities drawn from the last two tokens; the last token ends a text."""

    def __init__(self, tokens: Sequence[bytes], seed: int = 0) -> None:
        self.vocabulary = [*tokens, b""]
        self.end = len(tokens)
        self.seed = seed
        self.scored = 0
        self._rows: dict[str, NDArray[np.float64]] = {}

    def log_probabilities(self, prefixes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        self.scored += len(prefixes)
        return np.array([self._row(prefix) for prefix in prefixes])

    def _row(self, prefix: Sequence[int]) -> NDArray[np.float64]:
        context = repr((self.seed, list(prefix[-2:]), len(prefix)))
        if context not in self._rows:
            rng = np.random.default_rng(zlib.crc32(context.encode()))
            shares = rng.dirichlet(np.full(len(self.vocabulary), 0.4)) + 1e-12
            self._rows[context] = np.log(shares / shares.sum())
        return self._rows[context]

    def encode(self, text: str) -> list[int]:
        """The longest token that fits, from the left."""
        left, found = text.encode(), []
        while left:
            fits = [
                n for n, token in enumerate(self.vocabulary) if token and left.startswith(token)
            ]
            if not fits:
                return []
            found.append(max(fits, key=lambda n: len(self.vocabulary[n])))
            left = left[len(self.vocabulary[found[-1]]) :]
        return found


def random_language(rng: np.random.Generator, depth: int = 3) -> tuple[str, set[str]]:
    """A regular expression, and all strings of it; the two are built side by side."""
    kind = rng.integers(5) if depth else 0
    if kind == 0:
        char = str(rng.choice(list("abcé. ")))
        return re.escape(char), {char}
    if kind == 1:
        chars = sorted({str(one) for one in rng.choice(list("abc1é"), 3)})
        return f"[{''.join(chars)}]", set(chars)
    first, one = random_language(rng, depth - 1)
    second, two = random_language(rng, depth - 1)
    if kind == 2:
        return first + second, {a + b for a in one for b in two}
    if kind == 3:
        return f"(?:{first}|{second})", one | two
    least, more = int(rng.integers(2)), int(rng.integers(2))
    strings = {
        "".join(parts)
        for count in range(least, least + more + 1)
        for parts in itertools.product(sorted(one), repeat=count)
    }
    return f"(?:{first}){{{least},{least + more}}}", strings


def languages(seed: int, count: int, most: int = 10_000) -> Iterator[tuple[str, set[str]]]:
    rng = np.random.default_rng(seed)
    while count:
        regex, strings = random_language(rng)
        if len(strings) <= most and max(map(len, strings)) <= 12:
            count -= 1
            yield regex, strings


def exact_mass(model: TableModel, strings: set[str], *, whole: bool, canonical: bool) -> float:
    """The probability by trying every token after every path that begins one of the strings."""
    wanted = {text.encode() for text in strings}
    begun = {text[:end] for text in wanted for end in range(len(text) + 1)}

    def mass(path: list[int], text: bytes, probability: float) -> float:
        counted = text in wanted and (not canonical or model.encode(text.decode()) == path)
        if counted and not whole:
            return probability
        row = np.exp(model.log_probabilities([path])[0])
        total = probability * float(row[model.end]) if counted else 0.0
        for token, added in enumerate(model.vocabulary):
            if added and text + added in begun:
                total += mass([*path, token], text + added, probability * float(row[token]))
        return total

    return mass([], b"", 1.0)


def docs_lines() -> list[str]:
    """What people wrote of the project, line by line."""
    pages = sorted(DOCS.rglob("*.md"))
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines()]
    return [line for line in lines if line.strip()]


class NGrams:
    """Interpolated n-grams over tokens of a byte-pair vocabulary, with back-off in counts.

    The last token ends a line, which is a text.
    """

    ORDER = 6

    def __init__(self, lines: Sequence[str], size: int = 800) -> None:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(lines, trainer)
        self.tokenizer = tokenizer
        from ettr.language.hugging_face import vocabulary_of

        self.vocabulary = [*vocabulary_of(tokenizer.to_str()), b""]
        self.end = len(self.vocabulary) - 1
        self._next: dict[tuple[int, ...], dict[int, int]] = {}
        for encoding in tokenizer.encode_batch(list(lines)):
            tokens = [*encoding.ids, self.end]
            for place, token in enumerate(tokens):
                for length in range(min(self.ORDER - 1, place) + 1):
                    context = tuple(tokens[place - length : place])
                    counts = self._next.setdefault(context, {})
                    counts[token] = counts.get(token, 0) + 1

    def encode(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(text).ids
        return found

    def log_probabilities(self, prefixes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        rows = np.array([self._row(tuple(prefix)) for prefix in prefixes])
        return np.asarray(np.log(rows), dtype=np.float64)

    def _row(self, prefix: tuple[int, ...]) -> NDArray[np.float64]:
        row = np.full(len(self.vocabulary), 1.0 / len(self.vocabulary))
        for length in range(min(self.ORDER - 1, len(prefix)) + 1):
            counts = self._next.get(prefix[len(prefix) - length :])
            if not counts:
                break
            total, kinds = sum(counts.values()), len(counts)
            row *= kinds / (total + kinds)  # Witten and Bell
            row[list(counts)] += np.array(list(counts.values())) / (total + kinds)
        return row
