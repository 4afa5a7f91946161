"""Walks drawn from a model within an expression: an estimate of the probability of a match.

A walk draws each token among those that may follow, and its value is the product of their shares
of the probability. The mean of the values is unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from ettr.language.automaton import ByteAutomaton, FullAutomatonError
from ettr.language.models import LanguageModel, ModelScores, Tokens, end_of, is_own_encoding
from ettr.language.search import Query
from ettr.language.walks import TokenWalks

_LONGEST_WALK = 512


@dataclass(frozen=True, slots=True)
class Sampled:
    """What walks estimate.

    Attributes:
        estimate: Of the probability that the model writes a match.
        standard_error: Of the estimate.
        low: End of an interval that holds for every number of walks (empirical Bernstein).
        high: Its other end.
        confidence: Of that interval.
        walks: Drawn.
        matched: Walks that ended in a match.
        cut: Walks that the budget or the model's length ended; their value is 0 in `estimate` and
            `low`, and what they could still reach in `high`.
        model_calls: Prefixes that the model scored.
        batches: Requests in which it did.
        model_s: Wall time of these.
        ended: Why the walks ended.
    """

    estimate: float
    standard_error: float
    low: float
    high: float
    confidence: float
    walks: int
    matched: int
    cut: int
    model_calls: int
    batches: int
    model_s: float
    ended: str


@dataclass(slots=True)
class _SampledWalk:
    tokens: Tokens
    state: int
    value: float


def sampled(
    model: LanguageModel,
    query: Query,
    walks: int,
    rng: np.random.Generator,
    confidence: float = 0.95,
    scores: ModelScores | None = None,
    on_step: Callable[[int], None] = lambda _calls: None,
) -> Sampled:
    """Draw walks; those that the budget or Ctrl-C cuts widen the interval.

    Raises:
        UsageError: the query needs what the model has not.
        ModelError: the model gave what are no log-probabilities.
    """
    automaton = ByteAutomaton(query.regex, query.edits)
    scores = scores or ModelScores.after(model, query.prefix)
    drawn = _Drawn([], [])
    drawing = _Drawing(query, automaton, scores, rng, end_of(model))
    ended = "complete"
    live: list[_SampledWalk] = []
    begun = 0
    try:
        while live or begun < walks:
            if not live:
                count = min(query.batch, walks - begun)
                live = [_SampledWalk((), automaton.start, 1.0) for _ in range(count)]
                begun += count
                if automaton.matches_nothing:
                    drawn.end(live, 0.0)
                    live = []
                    continue
            live = drawing.matched(live, drawn)
            if scores.missing([walk.tokens for walk in live]) > query.most_calls - scores.calls:
                ended = "budget"
                break
            live = drawing.step(live, drawn)
            on_step(scores.calls)
    except KeyboardInterrupt:
        ended = "interrupted"
    except FullAutomatonError as error:
        ended = f"out of memory: {error}"
    for walk in live:
        drawn.cut(walk)
    return _estimated(drawn, drawing.first_mass, confidence, scores, ended)


@dataclass(slots=True)
class _Drawn:
    """Values of walks, and the most that each could be."""

    low: list[float]
    high: list[float]
    matches: int = 0
    cuts: int = 0

    def end(self, walks: list[_SampledWalk], share: float) -> None:
        self.low += [walk.value * share for walk in walks]
        self.high += [walk.value * share for walk in walks]
        self.matches += len(walks) if share else 0

    def cut(self, walk: _SampledWalk) -> None:
        self.low.append(0.0)
        self.high.append(walk.value)
        self.cuts += 1


@dataclass(slots=True)
class _Drawing:
    query: Query
    automaton: ByteAutomaton
    scores: ModelScores
    rng: np.random.Generator
    end: int | None
    first_mass: float = 1.0
    _walks: TokenWalks = field(init=False)

    def __post_init__(self) -> None:
        if self.query.whole and self.end is None:
            raise UsageError("--whole: MODEL has no token that ends a text; leave it out")
        self._walks = TokenWalks(self.automaton, self.scores.vocabulary)

    def counted(self, walk: _SampledWalk) -> bool:
        """Whether a walk stands at a match whose encoding counts."""
        if not self.automaton.accepts(walk.state):
            return False
        return not self.query.canonical or is_own_encoding(self.scores, walk.tokens)

    def matched(self, live: list[_SampledWalk], drawn: _Drawn) -> list[_SampledWalk]:
        """The walks that go on; those at a match end, unless the text has to end, too."""
        if self.query.whole:
            return live
        ends = [self.counted(walk) for walk in live]
        drawn.end([walk for walk, end in zip(live, ends, strict=True) if end], 1.0)
        return [walk for walk, end in zip(live, ends, strict=True) if not end]

    def step(self, live: list[_SampledWalk], drawn: _Drawn) -> list[_SampledWalk]:
        """Draw a token for each walk."""
        if not live:
            return live
        longest = getattr(self.scores.model, "longest", None) or math.inf
        rows = self.scores.of([walk.tokens for walk in live])
        stays = []
        for walk, row in zip(live, rows, strict=True):
            length = len(walk.tokens)
            if length >= _LONGEST_WALK or length + len(self.scores.prefix) >= longest:
                drawn.cut(walk)
            elif (after := self._drawn_token(walk, row, drawn)) is not None:
                stays.append(after)
        return stays

    def _drawn_token(
        self, walk: _SampledWalk, row: NDArray[np.float64], drawn: _Drawn
    ) -> _SampledWalk | None:
        tokens, states = self._walks(walk.state)
        shares = np.exp(row[tokens])
        ending = 0.0
        if self.query.whole and self.end is not None and self.counted(walk):
            ending = math.exp(float(row[self.end]))
        total = float(shares.sum()) + ending
        if not walk.tokens:
            self.first_mass = min(1.0, total)
        if total <= 0.0:
            drawn.end([walk], 0.0)
            return None
        place = self.rng.random() * total
        if place < ending or not tokens.size:
            drawn.end([walk], total)
            return None
        chosen = int(np.searchsorted(np.cumsum(shares), place - ending, side="right"))
        chosen = min(chosen, tokens.size - 1)
        path = (*walk.tokens, int(tokens[chosen]))
        return _SampledWalk(path, int(states[chosen]), walk.value * total)


def _estimated(
    drawn: _Drawn, most: float, confidence: float, scores: ModelScores, ended: str
) -> Sampled:
    """The mean, its error, and an interval that needs no shape of the values.

    Maurer and Pontil (2009), theorem 4, on each side, for values from 0 to `most`.
    """
    values = np.array(drawn.low)
    count = values.size
    estimate = float(values.mean()) if count else 0.0
    error = float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
    low, high = 0.0, most
    if count > 1:
        weight = math.log(4.0 / (1.0 - confidence))
        slack = 7.0 * most * weight / (3.0 * (count - 1))
        uppers = np.array(drawn.high)
        spread = math.sqrt(2.0 * float(uppers.var(ddof=1)) * weight / count)
        low = max(0.0, estimate - math.sqrt(2.0 * weight) * error - slack)
        high = min(most, float(uppers.mean()) + spread + slack)
    return Sampled(
        *(estimate, error, low, high, confidence, count, drawn.matches, drawn.cuts),
        *(scores.calls, scores.batches, scores.model_s, ended),
    )
