"""Would the claims have been right? Fit on one period, score on the next, window after window.

A claimed node is scored by what it did afterwards: failures in the following period against those
that the other nodes of its group and period, with its exposure, had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ettr.defaults import CONFIDENCE
from ettr.estimates import Interval
from ettr.estimates.exact import share_interval
from ettr.estimates.special import betaincinv
from ettr.lemons.candidates import MIN_NODES, claim_in_turn, role_names
from ettr.lemons.fleet import Stratum
from ettr.lemons.model import Floats, Ints, LemonFit, NodeCounts
from ettr.units import SECONDS_PER_DAY

POSTERIOR_BINS = (0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 1.0)
_TINY = 1e-12
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WindowScore:
    """One window: what was claimed in it, and what the claimed nodes did afterwards."""

    fit_from_s: float
    fit_to_s: float
    score_to_s: float
    nodes: int
    claimed: int
    claimed_node_days: float
    claimed_failures: float
    claimed_expected: float
    other_node_days: float
    other_failures: float


@dataclass(frozen=True, slots=True)
class ClaimedBefore:
    """A node that was claimed in one window or several, and what followed."""

    cluster: str
    node: str
    windows: int
    later_node_days: float
    later_failures: float
    later_expected: float


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Nodes of like posterior: failures that their rates predicted, and those that followed.

    Attributes:
        predicted: Failures that the fitted rates predict, their sum over all nodes of a window and
            group that of the failures that followed.
    """

    posterior_from: float
    posterior_to: float
    nodes: int
    mean_posterior: float | None
    predicted: float
    failures: float
    ratio: Interval


@dataclass(frozen=True, slots=True)
class Claim:
    """A node claimed in one window, and the rate of the others in the period scored."""

    window: int
    cluster: str
    node: str
    others_per_node_day: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Claims and what followed, over all windows.

    Attributes:
        failed_again: Share of those with a failure there (the precision).
        failed_by_chance: The same share expected of ordinary nodes; None without a scored claim.
        lift: Their later failures over those of the others, by the same exposure.
        lemon_share: Share of lemons among the claims that the lift implies, if lemons go on
            failing as often as they did; bounds alone where the lift has no estimate.
        roles: Names that were claimed in several clusters at once: a role, not scored.
    """

    windows: tuple[WindowScore, ...]
    claims: int
    scored: int
    failed_again: Interval
    failed_by_chance: float | None
    caught: Interval
    lift: Interval
    lemon_share: Interval
    calibration: tuple[CalibrationBin, ...]
    nodes: tuple[ClaimedBefore, ...]
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Scored:
    """Nodes of one group in one window, a column for each fact."""

    window: int
    names: tuple[tuple[str, str], ...]
    posterior: Floats
    is_claimed: Flags
    ratio: float
    days: Floats
    failures: Floats
    expected: Floats
    predicted: Floats


def back_test(
    fleet: Sequence[Stratum],
    windows: Sequence[FitWindow],
    false_discovery: float,
    confidence: float = CONFIDENCE,
) -> tuple[Scores, tuple[Claim, ...]]:
    """Scores of the claims that each window would have made, and the claims."""
    histories = [GroupHistory(group, edges_of(windows)) for group in fleet]
    parts: list[_Scored] = []
    with_roles: set[str] = set()
    for number, window in enumerate(windows):
        fits = [_Fitted.of(history, window, false_discovery) for history in histories]
        made = [one for one in fits if one is not None]
        roles = _roles(made)
        if roles:
            # a front end that fails thirty times as often hides those that fail ten times as often
            fits = [_Fitted.of(history, window, false_discovery, roles) for history in histories]
            made = [one for one in fits if one is not None]
        with_roles |= roles
        parts += [_scored(one, number, window) for one in made]
    scores = _scores(parts, windows, confidence)
    return replace(scores, roles=tuple(sorted(with_roles))), tuple(_claims(parts))


@dataclass(frozen=True, slots=True)
class _Fitted:
    """What one group's fit on one window says."""

    history: GroupHistory
    kept: Ints
    fit: LemonFit
    is_claimed: Flags

    @staticmethod
    def of(
        history: GroupHistory,
        window: FitWindow,
        false_discovery: float,
        without: frozenset[str] = frozenset(),
    ) -> _Fitted | None:
        kept, counts = history.counts(window.fit_from_s, window.fit_to_s, without)
        if len(kept) < MIN_NODES:
            return None
        return _Fitted(history, kept, *claim_in_turn(counts, false_discovery))

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Cluster and name of the nodes of the fit."""
        group = self.history.group
        return tuple((group.cluster, group.nodes[at]) for at in self.kept)


def _roles(fits: Sequence[_Fitted]) -> frozenset[str]:
    nodes: Counter[str] = Counter()
    chosen = []
    for one in fits:
        nodes[one.history.group.cluster] += len(one.kept)
        chosen += [one.names[at] for at in np.flatnonzero(one.is_claimed)]
    return role_names(chosen, nodes)


def _scored(fitted: _Fitted, number: int, window: FitWindow) -> _Scored:
    history, names, chosen = fitted.history, fitted.names, fitted.is_claimed
    days = history.node_days(window.fit_to_s, window.score_to_s)[fitted.kept]
    failures = history.failures(window.fit_to_s, window.score_to_s)[fitted.kept]
    # failures of a node without exposure cannot be compared
    failures = np.where(days > 0, failures, 0.0)
    others = failures[~chosen].sum() / max(days[~chosen].sum(), _TINY)
    predicted = days * fitted.fit.mean_theta
    return _Scored(
        number,
        names,
        fitted.fit.posterior,
        chosen,
        fitted.fit.ratio,
        days,
        failures,
        others * days,
        predicted * failures.sum() / max(predicted.sum(), _TINY),
    )


def _claims(parts: Sequence[_Scored]) -> list[Claim]:
    made = []
    for part in parts:
        others = part.days[~part.is_claimed].sum()
        rate = float(part.failures[~part.is_claimed].sum() / max(others, _TINY))
        for at in np.flatnonzero(part.is_claimed):
            made.append(Claim(part.window, *part.names[at], rate))
    return made


def _scores(parts: Sequence[_Scored], windows: Sequence[FitWindow], confidence: float) -> Scores:
    seen = sum(part.failures.sum() for part in parts)
    claimed_rows = [
        (part.names[at], part.days[at], part.failures[at], part.expected[at], part.ratio)
        for part in parts
        for at in np.flatnonzero(part.is_claimed)
    ]
    ran = [row for row in claimed_rows if row[1] > 0]
    again = sum(row[2] > 0 for row in ran)
    by_node = _by_node(claimed_rows)
    of_claimed = float(sum(row[2] for row in ran))
    expected = float(sum(row[3] for row in ran))
    lift = rate_ratio(
        of_claimed,
        expected,
        float(seen) - of_claimed,
        _dispersion([(one.later_failures, one.later_expected) for one in by_node]),
        _dispersion_of_others(parts),
        confidence,
    )
    return Scores(
        tuple(_window(number, one, parts) for number, one in enumerate(windows)),
        len(claimed_rows),
        len(ran),
        share_interval(again, len(ran), confidence),
        float(np.mean([1 - np.exp(-row[3]) for row in ran])) if ran else None,
        share_interval_of_parts(of_claimed, float(seen), _dispersion_of_others(parts), confidence),
        lift,
        _implied(lift, float(np.mean([row[4] for row in ran])) if ran else None),
        tuple(_calibration(parts, confidence)),
        tuple(by_node),
    )


def _window(number: int, window: FitWindow, parts: Sequence[_Scored]) -> WindowScore:
    mine = [part for part in parts if part.window == number]

    def total(column: str, of_claimed: bool) -> float:
        return float(sum(getattr(one, column)[one.is_claimed == of_claimed].sum() for one in mine))

    return WindowScore(
        window.fit_from_s,
        window.fit_to_s,
        window.score_to_s,
        sum(len(part.names) for part in mine),
        sum(int(part.is_claimed.sum()) for part in mine),
        total("days", True),
        total("failures", True),
        total("expected", True),
        total("days", False),
        total("failures", False),
    )


def _by_node(
    rows: Sequence[tuple[tuple[str, str], float, float, float, float]],
) -> list[ClaimedBefore]:
    sums: dict[tuple[str, str], list[float]] = {}
    for name, days, failures, expected, _ in rows:
        own = sums.setdefault(name, [0, 0.0, 0.0, 0.0])
        for at, value in enumerate((1, days, failures, expected)):
            own[at] += value
    made = [
        ClaimedBefore(*name, int(own[0]), float(own[1]), float(own[2]), float(own[3]))
        for name, own in sums.items()
    ]
    return sorted(made, key=lambda one: (-one.later_failures, one.cluster, one.node))


def _dispersion(pairs: Sequence[tuple[float, float]]) -> float:
    """Variance over mean of counts whose means are as expected but for a factor; 1 or more."""
    seen = np.array([one for one, _ in pairs])
    expected = np.array([one for _, one in pairs])
    if len(pairs) < 2 or not seen.sum() or not expected.sum():
        return 1.0
    mean = expected * seen.sum() / expected.sum()
    known = mean > 0
    if known.sum() < 2:
        return 1.0
    pearson = ((seen - mean)[known] ** 2 / mean[known]).sum() / (known.sum() - 1)
    return max(1.0, float(pearson))


def _dispersion_of_others(parts: Sequence[_Scored]) -> float:
    rows = [
        (part.failures[at], part.expected[at])
        for part in parts
        for at in np.flatnonzero(~part.is_claimed & (part.days > 0))
    ]
    return _dispersion(rows)


def rate_ratio(
    count: float,
    expected: float,
    others: float,
    dispersion: float = 1.0,
    dispersion_of_others: float = 1.0,
    confidence: float = CONFIDENCE,
) -> Interval:
    """A count over what the rate of others makes of its exposure, with its interval.

    Given the sum of both counts one of them is binomial; Clopper and Pearson's interval of its
    share becomes one of the ratio. Counts that vary more than Poisson's are worth fewer: each is
    divided by its dispersion.
    """
    own, rest = count / dispersion, others / dispersion_of_others
    if not expected > 0 or not others > 0:
        return Interval(None, 0.0, np.inf)
    tail = (1 - confidence) / 2
    low = float(betaincinv(own, rest + 1, tail)) if own > 0 else 0.0
    high = float(betaincinv(own + 1, rest, 1 - tail))
    scale = rest * dispersion / expected
    return Interval(
        count / expected, low / (1 - low) * scale, high / (1 - high) * scale if high < 1 else np.inf
    )


def share_interval_of_parts(
    part: float, whole: float, dispersion: float, confidence: float
) -> Interval:
    """Share of one sum in another, where failures come in parts and in clusters."""
    if not whole > 0:
        return Interval(None, 0.0, 1.0)
    own, rest = part / dispersion, max(0.0, whole - part) / dispersion
    tail = (1 - confidence) / 2
    low = float(betaincinv(own, rest + 1, tail)) if own > 0 else 0.0
    high = float(betaincinv(own + 1, rest, 1 - tail)) if rest > 0 else 1.0
    return Interval(part / whole, low, high)


def _implied(lift: Interval, ratio: float | None) -> Interval:
    """π of π k + (1 - π) = lift, kept between 0 and 1."""
    if ratio is None or lift.estimate is None:
        return Interval(None, 0.0, 1.0)

    def share(value: float) -> float:
        return float(np.clip((value - 1) / (ratio - 1), 0.0, 1.0))

    return Interval(share(lift.estimate), share(lift.low), share(lift.high))


def _calibration(parts: Sequence[_Scored], confidence: float) -> list[CalibrationBin]:
    if not parts:
        return []
    columns = ("posterior", "days", "predicted", "failures")
    posterior, days, predicted, failures = (
        np.concatenate([getattr(part, name) for part in parts]) for name in columns
    )
    total = float(failures.sum())
    made = []
    for low, high in pairwise(POSTERIOR_BINS):
        last = high == POSTERIOR_BINS[-1]
        inside = (posterior >= low) & ((posterior <= high) if last else (posterior < high))
        inside &= days > 0
        seen, foreseen = float(failures[inside].sum()), float(predicted[inside].sum())
        dispersion = _dispersion(
            list(zip(failures[inside].tolist(), predicted[inside].tolist(), strict=True))
        )
        # the sum over all bins is given: each is a share of it
        share = share_interval_of_parts(seen, total, dispersion, confidence)
        made.append(
            CalibrationBin(
                low,
                high,
                int(inside.sum()),
                float(posterior[inside].mean()) if inside.any() else None,
                foreseen,
                seen,
                share.scaled(total / foreseen) if foreseen > 0 else Interval.unknown(),
            )
        )
    return made


# -- A group of nodes by period: what the model would have been fitted to at any earlier moment ---


@dataclass(frozen=True, slots=True)
class FitWindow:
    """A period to fit on, and the one right after it to score on, in seconds since 1970."""

    fit_from_s: float
    fit_to_s: float
    score_to_s: float


def sliding_windows(
    start_s: float, end_s: float, fit_days: float, score_days: float
) -> tuple[FitWindow, ...]:
    """Windows that slide by the length of the scored period, so that no failure is scored twice.

    The last one ends with the logs; what does not fill a window at their beginning is left out.
    """
    fit_s, score_s = fit_days * SECONDS_PER_DAY, score_days * SECONDS_PER_DAY
    made = []
    to_s = end_s
    # a second is forgiven: logs end with their last record
    while to_s - score_s - fit_s >= start_s - 1.0:
        made.append(FitWindow(max(start_s, to_s - score_s - fit_s), to_s - score_s, to_s))
        to_s -= score_s
    return tuple(reversed(made))


def edges_of(windows: Sequence[FitWindow]) -> tuple[float, ...]:
    """The moments at which some window begins or ends, in order."""
    moments = {one.fit_from_s for one in windows} | {one.fit_to_s for one in windows}
    return tuple(sorted(moments | {one.score_to_s for one in windows}))


class GroupHistory:
    """A group of comparable nodes, cut at the edges of the windows."""

    def __init__(self, group: Stratum, edges_s: Sequence[float]) -> None:
        """group: with node-days in the cells between the edges. edges_s: in order, in seconds
        since 1970.
        """
        self.group = group
        self._edges_s = np.array(edges_s)
        named = [(at, one) for at, some in enumerate(group.named) for one in some]
        self._named_at: Ints = np.array([at for at, _ in named], dtype=np.int64)
        self._named_s: Floats = np.array([one.end_s for _, one in named], dtype=np.float64)
        self._weights: Floats = np.array([one.weight for _, one in named], dtype=np.float64)
        self._shared_s: Floats = np.array([end_s for _, end_s in group.shared], dtype=np.float64)

    def node_days(self, from_s: float, to_s: float) -> Floats:
        """Exposure of each node in a period between two edges."""
        first, last = np.searchsorted(self._edges_s, (from_s, to_s))
        return np.asarray(self.group.cells_node_days[:, first:last].sum(axis=1))

    def counts(
        self, from_s: float, to_s: float, without: frozenset[str] = frozenset()
    ) -> tuple[Ints, NodeCounts]:
        """Places of the nodes that ran in a period, and what the model is fitted to there."""
        days = self.node_days(from_s, to_s)
        left_out = np.array([name in without for name in self.group.nodes], dtype=np.bool_)
        (kept,) = np.nonzero((days > 0) & ~left_out)
        place = np.full(len(days), -1)
        place[kept] = np.arange(len(kept))
        shared = []
        for at in np.flatnonzero((self._shared_s > from_s) & (self._shared_s <= to_s)).tolist():
            nodes = place[self.group.counts.shared[at].nodes]
            if (nodes >= 0).any():
                shared.append(replace(self.group.counts.shared[at], nodes=nodes[nodes >= 0]))
        signals = {
            name: np.array(
                [sum(from_s < one <= to_s for one in by_node[at]) for at in kept], dtype=np.float64
            )
            for name, by_node in self.group.signals_s.items()
        }
        service = self.group.service_node_days(from_s, to_s)
        return kept, NodeCounts(
            days[kept],
            self._named(from_s, to_s)[kept],
            shared,
            signals,
            None if service is None else service[kept],
        )

    def failures(self, from_s: float, to_s: float) -> Floats:
        """Failures of each node in a period; those without a culprit in equal parts.

        Equal parts, not the model's: a score must not rest on what is scored.
        """
        made = self._named(from_s, to_s)
        for at in np.flatnonzero((self._shared_s > from_s) & (self._shared_s <= to_s)).tolist():
            nodes = self.group.counts.shared[at].nodes
            made[nodes] += 1 / len(nodes)
        return made

    def _named(self, from_s: float, to_s: float) -> Floats:
        inside = (self._named_s > from_s) & (self._named_s <= to_s)
        counts = np.bincount(self._named_at[inside], self._weights[inside], len(self.group.nodes))
        return np.asarray(counts, dtype=np.float64)


# -- What taking the claimed nodes out would have spared, and what it costs to be wrong -----------
#
# An ordinary node would have taken the place of each: it fails too. All of it is counted in the
# period after the claim: in the period of the fit a node is claimed because its failures were
# many.

_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class SizeUplift:
    """Failures of jobs of one size in the scored periods, with and without the claimed nodes.

    Attributes:
        of_claimed: Failures of claimed nodes, those without a culprit in equal parts.
        fall: Share of the failures that would not have been; below 0 where claimed nodes failed
            less than the others.
    """

    size_from: int | None
    size_to: int | None
    attempts: int
    failures: float
    of_claimed: float
    of_ordinary: float
    fall: Interval
    failed_share: float | None
    failed_share_without: float | None


@dataclass(frozen=True, slots=True)
class FalseAccusations:
    """The price of draining ordinary nodes.

    Attributes:
        failures_spared: Failures of claimed nodes, less those of others in their place.
        node_days_per_failure: Node-days out of service, of lemons too, for each failure spared;
            None where none is.
    """

    drain_days: float
    ordinary_claims: Interval
    node_days_lost: Interval
    failures_spared: Interval
    node_days_per_failure: float | None


def size_uplift(
    size: tuple[int | None, int | None],
    attempts: int,
    failures: float,
    of_claimed: float,
    of_ordinary: float,
    dispersion: float,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
) -> SizeUplift:
    """The fall of the failures of one size class.

    Args:
        dispersion: variance over mean of the failures of claimed nodes, 1 or more.
    """
    without = failures - of_claimed + of_ordinary
    return SizeUplift(
        *size,
        attempts,
        failures,
        of_claimed,
        of_ordinary,
        _fall(failures, of_claimed, of_ordinary, dispersion, rng, confidence),
        failures / attempts if attempts else None,
        without / attempts if attempts else None,
    )


def _fall(
    failures: float,
    of_claimed: float,
    of_ordinary: float,
    dispersion: float,
    rng: np.random.Generator,
    confidence: float,
) -> Interval:
    """Quantiles of the fall; the means of both counts have gamma posteriors (Jeffreys)."""
    if not failures > 0:
        return Interval(None, -np.inf, 1.0)
    if not of_claimed and not of_ordinary:
        return Interval(0.0, 0.0, 0.0)
    own = dispersion * rng.gamma(of_claimed / dispersion + 0.5, 1.0, _DRAWS)
    rest = rng.gamma(max(0.0, failures - of_claimed) + 0.5, 1.0, _DRAWS)
    tail = (1 - confidence) / 2
    low, high = np.quantile((own - of_ordinary) / (own + rest), (tail, 1 - tail))
    estimate = (of_claimed - of_ordinary) / failures
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate))


def false_accusations(
    drain_days: float, claims: int, lemon_share: Interval, failures: float, fall: Interval
) -> FalseAccusations:
    """What the claims of all windows cost and spare."""
    known = lemon_share.estimate
    ordinary = Interval(
        None if known is None else claims * (1 - known),
        claims * (1 - lemon_share.high),
        claims * (1 - lemon_share.low),
    )
    spared = Interval.unknown() if fall.estimate is None else fall.scaled(max(failures, 1e-12))
    some = spared.estimate is not None and spared.estimate > 0
    return FalseAccusations(
        drain_days,
        ordinary,
        ordinary.scaled(drain_days),
        spared,
        claims * drain_days / (spared.estimate or 1.0) if some else None,
    )
