"""What claimed nodes did afterwards, and what their absence would have spared."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from ettr.analysis.back_test import FAULTS, LemonBackTest
from ettr.estimates import Interval
from ettr.lemons.back_test import SizeUplift
from ettr.report.numbers import DASH, number, percent
from ettr.report.section import Section, TextTable
from ettr.words import by_number


def back_test_section(found: LemonBackTest) -> Section:
    """The lift in a sentence; windows, claimed nodes, calibration and uplift."""
    tables = [_scores(found), _windows(found), _nodes(found), _calibration(found)]
    if found.basis != FAULTS:
        tables += [_uplift(found), _price(found)]
    return Section(
        "lemon-back-test",
        "Back-test of lemon nodes",
        _lead(found),
        (),
        tuple(tables),
        (*_role_notes(found), *found.notes),
    )


def _lead(found: LemonBackTest) -> str:
    scores, count = found.scores, len(found.scores.windows)
    windows = by_number("{n} [window|windows]", count)
    if not any(one.nodes for one in scores.windows):
        return f"Not measured: in none of {windows} did 20 comparable nodes run."
    if not scores.claims:
        return f"No node would have been claimed in {windows}."
    claims = by_number("{n} [claim|claims]", scores.claims)
    if scores.lift.estimate is None:
        return f"{claims} in {windows}; what followed does not show a rate to compare."
    return (
        f"{claims} in {windows}: in the {number(found.score_days, 3)} days after, the claimed "
        f"nodes failed {_text(scores.lift)} times as often as the others."
    )


def _role_notes(found: LemonBackTest) -> tuple[str, ...]:
    roles = found.scores.roles
    if not roles:
        return ()
    return (
        f"Not scored: {', '.join(roles)}, which stands out in several clusters at once: a role is "
        "likelier than a defect of each.",
    )


def _text(one: Interval, digits: int = 2) -> str:
    if one.estimate is None:
        return DASH
    high = DASH if math.isinf(one.high) else number(one.high, digits)
    return f"{number(one.estimate, digits)} ({number(one.low, digits)} to {high})"


def _share(one: Interval) -> str:
    if one.estimate is None:
        return DASH
    return f"{percent(one.estimate, 2)} ({percent(one.low, 2)} to {percent(one.high, 2)})"


def _scores(found: LemonBackTest) -> TextTable:
    scores = found.scores
    rows = (
        ("claims", number(scores.claims)),
        ("of nodes that ran afterwards", number(scores.scored)),
        ("of these failed again (precision)", _share(scores.failed_again)),
        ("ordinary nodes would have", percent(scores.failed_by_chance, 2)),
        ("later failures that were theirs (recall)", _share(scores.caught)),
        ("rate, times that of the others (lift)", _text(scores.lift)),
        ("lemons among the claims, by the lift", _share(scores.lemon_share)),
    )
    return TextTable("Scores", ("", "value"), rows, frozenset({1}))


def _day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")


def _windows(found: LemonBackTest) -> TextTable:
    return TextTable(
        "Windows",
        (
            *("fit from", "scored from", "to", "nodes", "claimed", "their node-days"),
            *("their failures", "expected of others", "other node-days", "other failures"),
        ),
        tuple(
            (
                *(_day(one.fit_from_s), _day(one.fit_to_s), _day(one.score_to_s)),
                *(number(one.nodes), number(one.claimed), number(one.claimed_node_days, 4)),
                *(number(one.claimed_failures, 3), number(one.claimed_expected, 2)),
                *(number(one.other_node_days, 4), number(one.other_failures, 3)),
            )
            for one in found.scores.windows
        ),
        frozenset(range(3, 10)),
    )


def _nodes(found: LemonBackTest) -> TextTable:
    return TextTable(
        "Claimed nodes and what followed",
        (
            *("cluster", "node", "windows", "later node-days", "later failures"),
            "expected of others",
        ),
        tuple(
            (
                *(one.cluster, one.node, number(one.windows)),
                *(number(one.later_node_days, 4), number(one.later_failures, 3)),
                number(one.later_expected, 2),
            )
            for one in found.scores.nodes
        ),
        frozenset(range(2, 6)),
    )


def _calibration(found: LemonBackTest) -> TextTable:
    return TextTable(
        "Calibration",
        ("probability", "nodes", "mean", "failures predicted", "failures", "ratio"),
        tuple(
            (
                f"{one.posterior_from:g} to {one.posterior_to:g}",
                number(one.nodes),
                DASH if one.mean_posterior is None else number(one.mean_posterior, 2),
                number(one.predicted, 3),
                number(one.failures, 3),
                _text(one.ratio),
            )
            for one in found.scores.calibration
        ),
        frozenset(range(1, 6)),
    )


def _size(one: SizeUplift) -> str:
    if one.size_from is None:
        return "unknown"
    return str(one.size_to) if one.size_from == one.size_to else f"{one.size_from}-{one.size_to}"


def _uplift(found: LemonBackTest) -> TextTable:
    rows = [] if found.all_sizes is None else [("all", found.all_sizes)]
    rows += [(_size(one), one) for one in found.sizes]
    return TextTable(
        f"Failures by size ({found.size_unit}) without the claimed nodes",
        (
            *("size", "attempts", "failures", "of claimed nodes", "of ordinary ones instead"),
            *("fall", "failed", "without"),
        ),
        tuple(
            (
                *(label, number(one.attempts), number(one.failures), number(one.of_claimed, 3)),
                *(number(one.of_ordinary, 2), _share(one.fall)),
                *(percent(one.failed_share, 2), percent(one.failed_share_without, 2)),
            )
            for label, one in rows
        ),
        frozenset(range(1, 8)),
    )


def _price(found: LemonBackTest) -> TextTable:
    price, rows = found.price, []
    if price is not None:
        rows = [
            ("days that a claimed node is out", number(price.drain_days, 3)),
            ("claims on ordinary nodes", _text(price.ordinary_claims)),
            ("node-days of theirs lost", _text(price.node_days_lost, 3)),
            ("failures spared", _text(price.failures_spared)),
            (
                "node-days out of service for each of them",
                DASH
                if price.node_days_per_failure is None
                else number(price.node_days_per_failure, 2),
            ),
        ]
    return TextTable("Price of the claims", ("", "value"), tuple(rows), frozenset({1}))
