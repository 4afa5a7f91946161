"""Kinds of failure: the closed form against runs played second by second, kind by kind."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ettr.plan.levels import FailureKind, Levels, RecoveryLevel, best_interval, levels_ettr
from ettr.plan.renewal import long_run_ettr

SOFT, LIGHT, DEEP = RecoveryLevel
DEPTHS = {SOFT: 0, LIGHT: 1, DEEP: 2}


def drawn(of: Callable[[int], np.ndarray]) -> Iterator[Any]:
    """Numbers one by one, drawn by the thousand: a draw of one takes ten times as long."""
    while True:
        yield from of(4096).tolist()


def played_ettr(at: Levels, n_failures: int, rng: np.random.Generator) -> tuple[float, float]:
    """ETTR of one long run, failure by failure, and its standard error.

    The work kept is a list of what was done (a length of training) and undone (work to make good),
    each at its place, so that going back drops what lies beyond.
    """
    rates = np.array([kind.per_s for kind in at.kinds])
    waits_s = drawn(lambda size: rng.exponential(1 / rates.sum(), size))
    struck = drawn(lambda size: rng.choice(len(rates), size, p=rates / rates.sum()))
    length_s, n = at.length_s, at.n_light_per_durable
    clock = place = 0.0
    light = durable = 0
    debts: list[tuple[float, float]] = []
    marks = []
    for done in range(n_failures):
        until_s = next(waits_s)
        clock += until_s
        place += until_s
        light = max(light, math.floor((place - at.lag_s) / length_s))
        usable = math.floor((place - max(at.lag_s, at.durable_lag_s)) / length_s)
        durable = max(durable, usable // n * n)
        first = last = at.kinds[next(struck)]
        while True:
            clock += at.queue_s * last.waits
            until_s = next(waits_s)
            if until_s >= last.restart_s:
                clock += last.restart_s
                break
            clock += until_s
            other = at.kinds[next(struck)]
            last = max(
                last,
                other,
                key=lambda kind: (DEPTHS[kind.level], at.queue_s * kind.waits + kind.restart_s),
            )
        if last.level is SOFT:
            staleness_s = (place - light * length_s) * at.interval_s / length_s
            debts.append((place, first.lost_s + first.lost_staleness_share * staleness_s))
        else:
            light = durable if last.level is DEEP else light
            place = light * length_s
            while debts and debts[-1][0] > place:
                debts.pop()
        if done % (n_failures // 50) == 0:
            kept_s = place * at.interval_s / length_s - sum(lost_s for _, lost_s in debts)
            marks.append((clock, kept_s))
    clocks, kept = np.diff(np.array(marks), axis=0).T
    ettr = kept.sum() / clocks.sum()
    return ettr, float(np.std(kept - ettr * clocks)) * math.sqrt(len(kept)) / clocks.sum()


def kinds_of(*kinds: tuple[RecoveryLevel, float, float] | FailureKind) -> tuple[FailureKind, ...]:
    return tuple(one if isinstance(one, FailureKind) else FailureKind(*one) for one in kinds)


ALL = kinds_of((SOFT, 1e-3, 20), (LIGHT, 1e-3, 60), (DEEP, 2e-4, 200))
HALF_WAIT = kinds_of(
    FailureKind(SOFT, 1e-3, 100, lost_s=20, waits=False),
    FailureKind(SOFT, 1e-3, 20, lost_s=20),
    FailureKind(LIGHT, 4e-4, 300, waits=False),
    FailureKind(LIGHT, 4e-4, 200),
    FailureKind(DEEP, 1e-4, 300),
)
OWN = kinds_of(
    FailureKind(SOFT, 5e-4, 200, lost_s=20),
    FailureKind(SOFT, 1e-3, 10, lost_staleness_share=0.3),
    (LIGHT, 2e-4, 500),
    (LIGHT, 3e-4, 30),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "at",
    [
        Levels(60, 2, 0.01, n_light_per_durable=5, durable_stall_s=10, kinds=ALL, queue_s=15),
        Levels(600, 30, kinds=kinds_of((LIGHT, 1e-3, 300)), queue_s=60),
        Levels(100, n_light_per_durable=8, kinds=kinds_of((SOFT, 5e-4, 90), (DEEP, 8e-4, 300))),
        Levels(30, 1, 0.05, 0, 20, 5, 0, kinds_of((SOFT, 3e-3, 40), (DEEP, 1e-4, 300))),
        # restarts of their own within a level, staleness with a lag, and checkpoints under way
        Levels(300, 5, lag_s=200, kinds=OWN, queue_s=10),
        Levels(100, 5, lag_s=260, kinds=OWN),
        # durable checkpoints that take longer to write than light ones, and longer than a period
        Levels(60, 2, 0, 10, 5, 4, 200, ALL, 5),
        Levels(60, 2, 0, 30, 5, 0, 400, ALL),
        Levels(200, 2, 0, 20, 1, 0, 150, ALL),
        # recoveries that wait and others that do not, at each level
        Levels(200, 2, 0, 20, 3, 0, 150, HALF_WAIT, 150),
    ],
)
def test_closed_form_is_what_is_played(at: Levels) -> None:
    played, error = played_ettr(at, 40_000, np.random.default_rng(3))
    assert abs(levels_ettr(at) - played) < 4 * error


@pytest.mark.parametrize("rate", [1e-18, 1e-7, 1e-5, 1e-3, 5e-3])
def test_one_kind_is_the_exact_form(rate: float) -> None:
    expected = pytest.approx(long_run_ettr(rate, 600, 30, 300, 60), rel=1e-12)
    light = Levels(600, 30, kinds=kinds_of((LIGHT, rate, 300)), queue_s=60)
    assert levels_ettr(light) == expected
    # a durable checkpoint every time makes deep failures the same
    deep = Levels(600, 30, kinds=kinds_of((DEEP, rate, 300)), queue_s=60)
    assert levels_ettr(deep) == expected


RATES = st.floats(1e-300, 10.0) | st.just(0.0)
TIMES = st.floats(0.0, 1e6)
KINDS = st.lists(
    st.builds(
        FailureKind,
        st.sampled_from(list(RecoveryLevel)),
        RATES,
        TIMES,
        TIMES,
        st.floats(0, 1),
        st.booleans(),
    ),
    max_size=4,
).map(tuple)


def one_kind(level: RecoveryLevel, **times: float) -> Levels:
    return Levels(1.0, kinds=(FailureKind(level, 1.0, **times),))


@given(
    st.builds(
        Levels,
        st.floats(1.0, 1e6),
        TIMES,
        lag_s=TIMES,
        n_light_per_durable=st.integers(1, 10_000),
        durable_lag_s=TIMES,
        kinds=KINDS,
        queue_s=TIMES,
    )
)
# a restart that always fails before it ends
@example(one_kind(LIGHT, restart_s=3000.0))
@example(one_kind(SOFT, restart_s=3000.0))
@example(one_kind(DEEP, restart_s=3000.0))
# one that strikes next to never, below which no digit of 1 - P(no failure) is left
@example(Levels(1.0, kinds=(FailureKind(DEEP, 1e-300, 1.0),), n_light_per_durable=9))
def test_any_run_has_an_ettr_between_0_and_1(at: Levels) -> None:
    assert 0.0 <= levels_ettr(at) <= 1.0 + 1e-12


@pytest.mark.slow
@given(KINDS, st.integers(0, 3), st.floats(1.0, 100.0), st.floats(1.0, 1e5), TIMES)
def test_more_failures_or_longer_restarts_never_help(
    kinds: tuple[FailureKind, ...], which: int, factor: float, interval_s: float, lag_s: float
) -> None:
    at = Levels(interval_s, 1.0, 0.0, lag_s, 3, 1.0, 2.0 * lag_s, kinds)
    assume(which < len(kinds))
    # a deeper failure cancels the work that soft ones owe, and helps where going back costs less
    owe = any(kind.lost_s or kind.lost_staleness_share for kind in kinds if kind.level is SOFT)
    assume(not owe or all(kind.level is SOFT for kind in kinds))
    # it takes the place of a shallower recovery, and helps where its own is the quicker one
    one = replace(kinds[which], restart_s=max(kind.restart_s for kind in kinds))
    before, after = kinds[:which], kinds[which + 1 :]
    at = replace(at, kinds=(*before, one, *after))
    for worse in (
        replace(one, per_s=factor * one.per_s),
        replace(one, lost_s=factor * one.lost_s),
        replace(one, restart_s=factor * one.restart_s),
    ):
        changed = replace(at, kinds=(*before, worse, *after))
        assert levels_ettr(changed) <= levels_ettr(at) * (1 + 1e-9)


def test_a_deeper_recovery_takes_the_place_of_a_longer_one() -> None:
    soft = FailureKind(SOFT, 1e-3, restart_s=500.0)
    alone = Levels(60.0, kinds=(soft,))
    for light_restart_s, helps in ((0.0, True), (500.0, False)):
        light = FailureKind(LIGHT, 1e-3, restart_s=light_restart_s)
        both = replace(alone, kinds=(soft, light))
        more = replace(alone, kinds=(soft, replace(light, per_s=2e-3)))
        assert (levels_ettr(more) > levels_ettr(both)) == helps


def test_a_restart_longer_than_hundreds_of_mttfs_leaves_nothing() -> None:
    assert levels_ettr(one_kind(LIGHT, restart_s=3000.0)) == 0.0
    assert levels_ettr(one_kind(SOFT, restart_s=3000.0)) == 0.0


def test_no_failure_leaves_the_overhead_alone() -> None:
    at = Levels(100, 5, 0.1, n_light_per_durable=10, durable_stall_s=50)
    assert levels_ettr(at) == pytest.approx(100 / (110 + 5 + 5))


def test_best_interval_is_the_exact_one_where_there_is_one_kind() -> None:
    from ettr.plan.intervals import exact_interval_s

    at = Levels(600, 30, kinds=kinds_of((LIGHT, 1e-4, 300)))
    interval_s, ettr = best_interval(lambda s: levels_ettr(replace(at, interval_s=s)), 1.0, 1e5)
    assert interval_s == pytest.approx(exact_interval_s(30, 1e4), rel=1e-3)
    assert ettr >= levels_ettr(replace(at, interval_s=interval_s * 1.1))
