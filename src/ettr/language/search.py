"""Best-first search of what a model writes, with bounds of the probability at every step.

Matches come in the exact order of their probability. What the search has not reached, or had to
drop for want of memory, counts in the upper bound and never in the lower one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ettr.errors import UsageError
from ettr.language.automaton import ByteAutomaton, FullAutomatonError, TokenWalks
from ettr.language.models import (
    LanguageModel,
    ModelScores,
    Tokens,
    encoded,
    end_of,
    is_own_encoding,
)

_CHILDREN = 64
"""Children of a prefix that are kept at once; the others are one lump until the search needs it."""
_BATCH_LEAST = 0.1
"""Prefixes scored together have at least this share of the probability of the best one."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of a model.

    Attributes:
        regex: What it may write after the prefix.
        prefix: The text before.
        whole: The text has to end after the match; else whatever follows it is fine.
        canonical: Only the tokenizer's own encoding of a match counts; else every encoding does.
        edits: Most characters inserted, left out or replaced.
        most_calls: Prefixes that the model scores at most.
        matches: Matches to list.
        batch: Prefixes scored together at most.
        precision: The search may end once high - low is at most this share of high.
        most_frontier: Open prefixes kept in memory, about 300 bytes each.
        allowed: The search ends once the probability is known to be within or above it.
    """

    regex: str
    prefix: str = ""
    whole: bool = False
    canonical: bool = False
    edits: int = 0
    most_calls: int = 1000
    matches: int = 10
    batch: int = 16
    precision: float = 0.01
    most_frontier: int = 400_000
    allowed: float | None = None


@dataclass(slots=True)
class Match:
    """A text that the model may write, with the probability of the encodings found so far."""

    text: str
    probability: float
    encodings: int
    tokens: Tokens
    model_calls: int


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """What a search found.

    Attributes:
        low: Least probability that the model writes a match.
        high: Most.
        matches: In the order of the probability of their likeliest encoding.
        model_calls: Prefixes that the model scored.
        batches: Requests in which it did.
        model_s: Wall time of these.
        ended: Why the search ended.
        pruned: Probability of what was dropped for want of memory; it is part of `high`.
        exact_above: The order of matches is exact for those above this probability.
        states: States of the automaton made.
    """

    low: float
    high: float
    matches: tuple[Match, ...]
    model_calls: int
    batches: int
    model_s: float
    ended: str
    pruned: float
    exact_above: float
    states: int

    def passes(self, allowed: float) -> bool:
        """Whether the probability is known not to exceed what is allowed."""
        return self.high <= allowed


@dataclass(frozen=True, slots=True, eq=False)
class _OpenPrefix:
    """An open prefix; `covered` where a match stands before it, which counts already."""

    tokens: Tokens
    state: int
    log_p: float
    covered: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Rest:
    """Children of a prefix after the first `skip`, not yet looked at."""

    prefix: _OpenPrefix
    skip: int
    mass: float


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A match that waits for its turn."""

    tokens: Tokens
    log_p: float


_Entry = tuple[float, int, "_OpenPrefix | _Rest | _Found"]
Step = Callable[[float, float, int], None]
"""Takes the lower and the upper bound, and the prefixes scored so far."""


def search(
    model: LanguageModel,
    query: Query,
    automaton: ByteAutomaton | None = None,
    scores: ModelScores | None = None,
    on_step: Step = lambda _low, _high, _calls: None,
) -> QueryAnswer:
    """Search until the answer is as exact as asked, the budget is spent, or Ctrl-C.

    Raises:
        UsageError: the query needs what the model has not.
        ModelError: the model gave what are no log-probabilities.
    """
    automaton = automaton or ByteAutomaton(query.regex, query.edits)
    frontier = _Frontier(query, automaton, scores or ModelScores.after(model, query.prefix))
    ended = "interrupted"
    try:
        while (stop := frontier.why_stop()) is None:
            frontier.step()
            on_step(frontier.low, frontier.high, frontier.scores.calls)
        ended = stop
    except KeyboardInterrupt:
        pass
    except FullAutomatonError as error:
        ended = f"out of memory: {error}"
    return frontier.answer(ended)


@dataclass(slots=True)
class _Frontier:
    """Open prefixes, lumps of their children, and matches that wait, best first."""

    query: Query
    automaton: ByteAutomaton
    scores: ModelScores
    low: float = 0.0
    pruned: float = 0.0
    exact_above: float = 0.0
    _open: float = 0.0
    _changes: int = 0
    _heap: list[_Entry] = field(default_factory=list)
    _count: int = 0
    _found: dict[bytes, Match] = field(default_factory=dict)
    _walks: TokenWalks = field(init=False)
    _end: int | None = field(init=False)

    def __post_init__(self) -> None:
        self._walks = TokenWalks(self.automaton, self.scores.vocabulary)
        self._end = end_of(self.scores.model)
        if self.query.whole and self._end is None:
            raise UsageError("--whole: MODEL has no token that ends a text; leave it out")
        if self.query.canonical and not hasattr(self.scores.model, "encode"):
            encoded(self.scores.model, "", "--canonical")
        if not self.automaton.matches_nothing:
            self._add((), self.automaton.start, 0.0, covered=False)

    @property
    def high(self) -> float:
        """Most probability that the model writes a match."""
        return min(1.0, max(self.low, self.low + max(0.0, self._open) + self.pruned))

    def why_stop(self) -> str | None:
        """Why the search ends here; None where it goes on."""
        self.emit()
        query, low, high = self.query, self.low, self.high
        if not self._heap:
            return "complete"
        if query.allowed is not None and (low > query.allowed or high <= query.allowed):
            return "decided"
        enough = query.matches <= len(self._found)
        if enough and high - low <= query.precision * high:
            return "precise"
        if self.scores.calls >= query.most_calls:
            return "budget"
        return None

    def emit(self) -> None:
        """Take the matches that are likelier than all that is open."""
        heap = self._heap
        while heap and isinstance(heap[0][2], _Found):
            found = heapq.heappop(heap)[2]
            assert isinstance(found, _Found)  # noqa: S101
            text = b"".join(self.scores.vocabulary[token] for token in found.tokens)
            known = self._found.get(text)
            if known is not None:
                known.probability += math.exp(found.log_p)
                known.encodings += 1
            elif len(self._found) < self.query.matches:
                self._found[text] = Match(
                    text.decode("utf-8", "replace"),
                    math.exp(found.log_p),
                    1,
                    found.tokens,
                    self.scores.calls,
                )

    def step(self) -> None:
        """Score the best prefixes together and open them.

        Their mass leaves `_open` once they are opened: where that ends early, the upper bound
        still has it.
        """
        taken, aside = self._best()
        rows = self.scores.of([one.tokens for one, _ in taken])
        for (prefix, rest), row in zip(taken, rows, strict=True):
            self._open_up(prefix, rest, row)
        for entry in aside:
            heapq.heappush(self._heap, entry)
        if len(self._heap) > self.query.most_frontier:
            self._drop()
        if self._changes > len(self._heap):
            self._open = math.fsum(_mass(entry[2]) for entry in self._heap)
            self._changes = 0

    def _best(self) -> tuple[list[tuple[_OpenPrefix, _Rest | None]], list[_Entry]]:
        """Prefixes to open, taken from the heap, and the matches between them."""
        query, heap = self.query, self._heap
        least = -heap[0][0] + math.log(_BATCH_LEAST)
        budget = min(query.batch, query.most_calls - self.scores.calls)
        taken: list[tuple[_OpenPrefix, _Rest | None]] = []
        aside: list[_Entry] = []
        while heap and len(taken) < budget and (not taken or -heap[0][0] >= least):
            entry = heapq.heappop(heap)
            what = entry[2]
            if isinstance(what, _Found):
                aside.append(entry)
            elif isinstance(what, _Rest):
                taken.append((what.prefix, what))
            else:
                taken.append((what, None))
        return taken, aside

    def _open_up(self, prefix: _OpenPrefix, rest: _Rest | None, row: NDArray[np.float64]) -> None:
        """Put the likeliest children of a prefix in its place, and the others as one lump."""
        tokens, states = self._walks(prefix.state)
        longest = getattr(self.scores.model, "longest", None)
        too_long = longest is not None and len(self.scores.prefix) + len(prefix.tokens) >= longest
        skip = 0 if rest is None else rest.skip
        logs = row[tokens] + prefix.log_p
        order = np.argsort(-logs, kind="stable")
        order = order[logs[order] > -math.inf]
        left = order[skip:]
        now, later = left[:_CHILDREN], left[_CHILDREN:]
        ends_here = rest is None and self.query.whole and self.automaton.accepts(prefix.state)
        if ends_here and self._end is not None and self._is_counted(prefix.tokens):
            self._match(prefix.tokens, prefix.log_p + float(row[self._end]), covered=False)
        if too_long:  # the model cannot be asked about what follows
            self.pruned += 0.0 if prefix.covered else _total(logs[left])
        else:
            if later.size:
                mass = 0.0 if prefix.covered else _total(logs[later])
                self._open += mass
                key = float(logs[later[0]])
                self._push(key, _Rest(prefix, skip + _CHILDREN, mass))
            for place in now:
                path = (*prefix.tokens, int(tokens[place]))
                self._add(path, int(states[place]), float(logs[place]), covered=prefix.covered)
        self._open -= _mass(prefix if rest is None else rest)
        self._changes += 1 + now.size

    def _add(self, tokens: Tokens, state: int, log_p: float, *, covered: bool) -> None:
        """Put a prefix into the search: a match, an open prefix, or both."""
        accepted = self.automaton.accepts(state)
        if accepted and not self.query.whole and self._is_counted(tokens):
            self._match(tokens, log_p, covered=covered)
            covered = True
        if self.automaton.extends(state) or (accepted and self.query.whole):
            self._open += 0.0 if covered else math.exp(log_p)
            self._push(log_p, _OpenPrefix(tokens, state, log_p, covered))

    def _match(self, tokens: Tokens, log_p: float, *, covered: bool) -> None:
        if log_p > -math.inf:
            self.low = min(1.0, self.low + (0.0 if covered else math.exp(log_p)))
            self._push(log_p, _Found(tokens, log_p))

    def _is_counted(self, tokens: Tokens) -> bool:
        """Whether this encoding counts: each does, or the tokenizer's own alone."""
        return not self.query.canonical or is_own_encoding(self.scores, tokens)

    def _push(self, log_p: float, what: _OpenPrefix | _Rest | _Found) -> None:
        self._count += 1
        heapq.heappush(self._heap, (-log_p, self._count, what))

    def _drop(self) -> None:
        """Leave out the less likely half; its mass stays in the upper bound."""
        self._heap.sort()
        half = self.query.most_frontier // 2
        dropped = self._heap[half:]
        del self._heap[half:]
        self.pruned += math.fsum(_mass(entry[2]) for entry in dropped)
        self.exact_above = max(self.exact_above, math.exp(-dropped[0][0]))
        self._open = math.fsum(_mass(entry[2]) for entry in self._heap)

    def answer(self, ended: str) -> QueryAnswer:
        """What was found so far."""
        if ended == "complete":
            self._open = 0.0
        return QueryAnswer(
            self.low,
            self.high,
            tuple(self._found.values()),
            self.scores.calls,
            self.scores.batches,
            self.scores.model_s,
            ended,
            self.pruned,
            self.exact_above,
            self.automaton.states,
        )


def _mass(what: _OpenPrefix | _Rest | _Found) -> float:
    """Probability in the upper bound that an entry holds open."""
    if isinstance(what, _Rest):
        return what.mass
    if isinstance(what, _Found) or what.covered:
        return 0.0
    return math.exp(what.log_p)


def _total(logs: NDArray[np.float64]) -> float:
    return float(np.exp(logs).sum())


# -- walks drawn from a model within an expression: an estimate of the probability of a match ------
# A walk draws each token among those that may follow, and its value is the product of their shares
# of the probability. The mean of the values is unbiased.


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
