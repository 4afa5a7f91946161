"""Nodes that may be lemons, nodes that slow runs down, and what they were compared with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ettr.analysis.back_test import FAULTS, LemonBackTest
from ettr.analysis.lemon_evidence import FailedJob, LemonEvidence
from ettr.analysis.lemon_nodes import SERIAL, TICKET, lemons
from ettr.estimates import Interval
from ettr.lemons.back_test import SizeUplift
from ettr.lemons.candidates import (
    CLEAR_AT,
    SIGNAL_NAMES,
    LemonReport,
    not_judged_note,
)
from ettr.report.charts import BarSeries, line, row_chart, share_axis, value_axis
from ettr.report.findings import not_counted
from ettr.report.numbers import (
    DASH,
    NOT_MEASURED,
    between,
    duration,
    moment,
    number,
    p_value,
    percent,
)
from ettr.report.registry import Part
from ettr.report.section import (
    Figure,
    Layout,
    Section,
    TextTable,
    Trace,
    first_sentence,
    table_of_rows,
)
from ettr.units import SECONDS_PER_HOUR
from ettr.words import by_number, counted

if TYPE_CHECKING:
    from ettr.analysis.slow_nodes import ComparedRuns, SlowByRuns, SlowCandidate, SlowReport

LISTED = 20


def lemons_section(report: LemonReport) -> Section:
    """The claim in a sentence, the candidates, the groups."""
    return Section(
        "lemons",
        "Lemon nodes",
        _lead(report),
        (*((_figure(report),) if report.candidates else ()), *_distributions(report)),
        (
            table_of_rows(
                "Candidates",
                report.candidates,
                ("cluster", lambda one: one.cluster),
                ("node", lambda one: one.node),
                (">probability", lambda one: number(one.posterior, 2)),
                ("claimed", lambda one: "yes" if one.claimed else "no"),
                (">failures", lambda one: number(one.failures, 3)),
                (">expected", lambda one: number(one.expected, 2)),
                (
                    ">idle outages",
                    lambda one: number(one.idle_outages),
                ),
                (">node-days", lambda one: number(one.exposure_node_days, 4)),
                (">jobs that name it", lambda one: number(len({job.job_id for job in one.jobs}))),
                (">days to claim", lambda one: DASH if one.claimed else number(one.claim_days, 2)),
                (">days to clear", lambda one: number(one.clear_days, 2)),
            ),
            _signals(report),
            table_of_rows(
                "Compared nodes",
                report.groups,
                ("cluster", lambda one: one.cluster),
                ("hardware", lambda one: one.hardware or DASH),
                (">nodes", lambda one: number(one.nodes)),
                (">node-days", lambda one: number(one.node_days)),
                (">failures", lambda one: number(one.failures)),
                (">without culprit", lambda one: number(one.shared)),
                (
                    ">ordinary per 1,000 node-days",
                    lambda one: number(one.bulk_per_1000_node_days, 3),
                ),
                (">lemons, times that", lambda one: number(one.ratio, 2)),
                (">spread", lambda one: number(one.spread, 2)),
                (">log evidence", lambda one: number(one.log_evidence, 3)),
            ),
            TextTable(
                "What signals are worth",
                (
                    "cluster",
                    "hardware",
                    "signal",
                    "seen",
                    "ordinary per 1,000 node-days",
                    "lemons, times",
                ),
                tuple(
                    (
                        group.cluster,
                        group.hardware or DASH,
                        one.name,
                        number(one.count),
                        number(one.per_1000_node_days, 3),
                        number(one.ratio, 2),
                    )
                    for group in report.groups
                    for one in group.signals
                ),
                frozenset({3, 4, 5}),
            ),
        ),
        report.notes,
        careful=_careful(report),
    )


def _careful(report: LemonReport) -> str:
    claimed = sum(one.claimed for one in report.candidates)
    not_judged = ""
    if report.groups and report.not_judged_failures:
        not_judged = not_judged_note(report.not_judged_nodes, report.not_judged_failures)
    if not claimed:
        return not_judged
    wrong = max(1, round(report.false_discovery * claimed))
    few = by_number("Expect at most {n} of them to be [an ordinary node|ordinary nodes].", wrong)
    return f"{few} {not_judged}".strip()


def _lead(report: LemonReport) -> str:
    if not report.groups:
        return (
            "Not measured: no group of comparable nodes is large enough, or no log names the nodes "
            "of the jobs."
        )
    several = len({group.cluster for group in report.groups}) > 1
    named = [
        f"{one.cluster}/{one.node}" if several else one.node
        for one in report.candidates
        if one.claimed
    ]
    judged = by_number("{n} [node|nodes]", sum(group.nodes for group in report.groups))
    if not any(group.failures for group in report.groups):
        if any(dataclasses.astuple(report.unplaced)):
            return f"Not measured: no failure can be put on one of {judged} (see the notes)."
        return f"No failure of {judged} to compare."
    if not named:
        return f"No lemon is claimed among {judged}."
    words = by_number("{n} [node is claimed|nodes are claimed]", len(named))
    shown = ", ".join(named[:LISTED]) + (", ..." if len(named) > LISTED else "")
    return (
        f"{words} among {judged}: {shown}. At most {percent(report.false_discovery, 2)} of them "
        "are expected to be ordinary nodes."
    )


def _figure(report: LemonReport) -> Figure:
    several = len({one.cluster for one in report.candidates}) > 1
    shown = report.candidates[:LISTED]
    return row_chart(
        "lemons",
        "Probability of each candidate to be a lemon",
        "The most probable first; those claimed are marked so under the pointer.",
        [f"{one.cluster}/{one.node}" if several else one.node for one in shown],
        [
            BarSeries(
                "probability",
                [one.posterior for one in shown],
                [
                    f"{number(one.posterior, 2)}, {'claimed' if one.claimed else 'not claimed'}"
                    for one in shown
                ],
            )
        ],
        axis_title="probability",
    )


def _distributions(report: LemonReport) -> tuple[Figure, ...]:
    """The signals over all nodes, and where the claimed nodes are in each."""
    if not report.distributions:
        return ()
    claimed = [one for one in report.candidates if one.claimed and one.signals is not None]
    traces: list[Trace] = []
    for one in report.distributions:
        name = SIGNAL_NAMES[one.signal]
        traces.append(line(name, one.values, one.shares) | {"legendgroup": name})
        share_of = dict(zip(one.values, one.shares, strict=True))
        marked = [
            (f"{node.cluster}/{node.node}: {name} {number(value, 3)}", value)
            for node in claimed
            if (value := getattr(node.signals, one.signal)) is not None
        ]
        if marked:
            values = [value for _, value in marked]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{name}, claimed",
                    "legendgroup": name,
                    "showlegend": False,
                    "x": values,
                    "y": [share_of.get(float(value)) for value in values],
                    "text": [text for text, _ in marked],
                    "hoverinfo": "text",
                    "marker": {"size": 9, "symbol": "x"},
                }
            )
    caption = (
        "Share of the nodes with at most so many of each signal; crosses are the claimed nodes. "
        "A lemon lies to the right in several of them."
    )
    layout: Layout = {
        "xaxis": value_axis("count, or share of jobs"),
        "yaxis": share_axis("share of the nodes"),
    }
    return (Figure("lemon-signals", "Signals of the nodes", caption, tuple(traces), layout),)


def _signals(report: LemonReport) -> TextTable:
    judged = [(one, one.signals) for one in report.candidates if one.signals is not None]
    return table_of_rows(
        "Signals of the candidates",
        judged,
        ("cluster", lambda one: one[0].cluster),
        ("node", lambda one: one[0].node),
        (">jobs that exclude it", lambda one: number(one[1].excluded_by_jobs)),
        (">their users", lambda one: number(one[1].excluded_by_users)),
        (">XID episodes", lambda one: number(one[1].xid_episodes)),
        (">tickets", lambda one: number(one[1].tickets)),
        (">outages", lambda one: number(one[1].outages)),
        (">NODE_FAIL of several nodes", lambda one: number(one[1].multi_node_failures)),
        (">of it alone", lambda one: number(one[1].single_node_failures)),
        (
            ">share of jobs on it alone",
            lambda one: percent(one[1].single_node_failure_rate, 2),
        ),
    )


LEMONS = Part(
    "lemons",
    place=160,
    question=lemons,
    section=lemons_section,
    main="candidates",
    title="Lemon nodes",
)


# -- one node's evidence: the verdict, its failed jobs, other nodes of the jobs, checks, outages


ROWS_LISTED = 200
"""Rows of a table at most; the JSON file has all of them."""
LIKELY = 0.5
"""Above this probability a node has been a lemon since before the logs begin."""
SURE = 0.999
"""A probability is not shown nearer to 1, nor to 0: the model is not that good."""
_RECORDS = (TICKET, SERIAL)
_MOST_NAMES = 5
_MOST_LINES = 3


def evidence_sections(evidence: LemonEvidence) -> tuple[Section, ...]:
    """The sections of a node's page, the verdict first."""
    return (
        verdict_section(evidence),
        _jobs(evidence),
        _checks(evidence),
        _outages(evidence),
    )


def verdict_section(evidence: LemonEvidence) -> Section:
    """What the record of the node amounts to, and what that means."""
    return Section(
        "verdict",
        f"Node {evidence.cluster}/{evidence.node}",
        verdict(evidence),
        notes=tuple(_meaning(evidence)),
        answer=f"{evidence.node}: {_in_short(evidence)}",
    )


def verdict(evidence: LemonEvidence) -> str:
    """What to do with the node, in a sentence or two."""
    return f"{_of_failures(evidence)} {_uncounted(evidence)}".strip()


def _in_short(evidence: LemonEvidence) -> str:
    return f"{first_sentence(_of_failures(evidence))} {_uncounted(evidence)}".strip()


def _uncounted(evidence: LemonEvidence) -> str:
    says = not_counted(evidence.black_holes, evidence.hung_runs)
    return f"Not counted as failures: {says}." if says else ""


def _of_failures(evidence: LemonEvidence) -> str:
    """What the failures that count say of it."""
    one = evidence.candidate
    if one is None:
        return (
            f"Whether it is a lemon is {NOT_MEASURED}: {evidence.why_not_judged}. Below "
            "is what checks and the scheduler saw."
        )
    if evidence.group is not None and not evidence.group.failures:
        quiet = "No lemon is known" if _uncounted(evidence) else "Nothing speaks against it"
        return (
            f"{quiet}: none of the {counted(evidence.group.nodes, 'node')} it is "
            "compared with has a failure, in "
            f"{number(evidence.group.node_days, 4)} node-days."
        )
    against = (
        f"{number(one.failures, 3)} failures against {number(one.expected, 2)} of an ordinary node "
        f"in {number(one.exposure_node_days, 4)} node-days"
    )
    probability = f"The probability that it is a lemon is {chance_of(one.posterior)}: {against}."
    if one.claimed:
        return f"Claimed as a lemon. {probability}"
    if one.posterior < CLEAR_AT:
        counts = "by the failures that count" if _uncounted(evidence) else "leave it in service"
        return f"No lemon: {counts}. {probability}"
    return (
        f"Undecided: too little evidence to send it back. {probability} If it is a lemon, "
        f"{counted(max(1, round(one.claim_days)), 'more day')} of jobs would show it."
    )


def _meaning(evidence: LemonEvidence) -> Iterator[str]:
    one, group = evidence.candidate, evidence.group
    if one is None or group is None:
        return
    yield (
        "A lemon belongs to a separate group of nodes that fail at least "
        f"{number(evidence.min_ratio)} times as often as the ordinary ones of the "
        f"{counted(group.nodes, 'node')} it is compared with "
        f"({group.hardware or 'all of the cluster'}) do on average. The probability is "
        "the share of lemons among nodes with such a record, if the model holds. It does "
        "not say which part is broken."
    )
    if one.claimed:
        yield (
            "It belongs to a set of claimed nodes, of which at most "
            f"{percent(evidence.false_discovery, 2)} are expected to be ordinary."
        )
    if evidence.per_1000_node_days is not None and group.bulk_per_1000_node_days is not None:
        chance = evidence.ordinary_chance
        yield (
            f"{by_number('{n} [failure names|failures name] it', one.named)}: "
            f"{between(evidence.per_1000_node_days)} per 1,000 node-days, where ordinary nodes "
            f"have {number(group.bulk_per_1000_node_days, 3)}."
            + (
                ""
                if chance is None
                else " An ordinary node picked at random has as many with a probability of "
                f"{p_value(chance)}."
            )
        )
    yield from _since(evidence)
    yield from _others(evidence)
    yield from _signal_table(evidence)


def _since(evidence: LemonEvidence) -> Iterator[str]:
    since, one = evidence.onset, evidence.candidate
    if since is None or one is None or one.posterior < CLEAR_AT:
        return
    chance = f"{percent(since.from_start, 2)} probability"
    if since.from_start > LIKELY:
        yield f"If it is a lemon, it has been one since before the logs begin ({chance})."
    else:
        yield (
            f"If it is a lemon, it became one about {moment(since.median)}, between "
            f"{moment(since.low)} and {moment(since.high)}; before the logs begin: {chance}."
        )


def _others(evidence: LemonEvidence) -> Iterator[str]:
    others = evidence.neighbours
    if others is not None:
        yield (
            f"The {counted(others.nodes, 'other node')} of the jobs that it failed had "
            f"{counted(others.failures, 'failure')} in {number(others.node_days, 5)} node-days: "
            f"{between(others.per_1000_node_days)} per 1,000."
        )


def chance_of(posterior: float) -> str:
    """A probability without false certainty at its ends."""
    if posterior > SURE:
        return f"over {number(SURE)}"
    return f"below {number(1 - SURE, 1)}" if posterior < 1 - SURE else number(posterior, 2)


def _signal_table(evidence: LemonEvidence) -> Iterator[str]:
    one = evidence.candidate
    if one is None or one.signals is None:
        return
    signals = one.signals
    named = (
        ("jobs whose owners exclude it", signals.excluded_by_jobs),
        ("users who do", signals.excluded_by_users),
        ("XID episodes", signals.xid_episodes),
        ("tickets", signals.tickets),
        ("unplanned outages", signals.outages),
        ("NODE_FAIL of jobs of several nodes", signals.multi_node_failures),
        ("NODE_FAIL of jobs on it alone", signals.single_node_failures),
    )
    words = (f"{name} {NOT_MEASURED if n is None else number(n)}" for name, n in named)
    yield f"Signals: {', '.join(words)}."


def _jobs(evidence: LemonEvidence) -> Section:
    if evidence.jobs is None:
        return Section(
            "jobs", "Failed jobs", "Not measured: the logs hold no job accounting.", (), ()
        )
    own = [one for one in evidence.jobs if one.names == evidence.node]
    nobody = sum(one.names is None for one in evidence.jobs)
    others = len(evidence.jobs) - len(own) - nobody
    lead = (
        f"{by_number('{n} [failure of a job names|failures of jobs name] this node', len(own))}, "
        f"{nobody:,} on it name no node, {others:,} name another node of the job."
    )
    ordered = [*own, *(one for one in evidence.jobs if one.names != evidence.node)]
    table = TextTable(
        _title("Failures of jobs that held the node", len(ordered)),
        (
            *("ended, UTC", "job", "user", "state", "nodes", "cause", "confidence"),
            *("names", "counts", "others with errors", "evidence"),
        ),
        tuple(_job(one) for one in ordered[:ROWS_LISTED]),
        frozenset({4, 8}),
        shown_rows=ROWS_LISTED,
    )
    return Section("jobs", "Failed jobs", lead, tables=(table,))


def _job(one: FailedJob) -> tuple[str, ...]:
    errors, shown = one.other_nodes_with_errors, one.other_nodes_with_errors[:_MOST_NAMES]
    more = f" and {len(errors) - len(shown):,} more" if len(errors) > len(shown) else ""
    lines = [f"{one.file}:{one.line}"]
    lines += [f"{line.file}:{line.line} {line.text}" for line in one.evidence[:_MOST_LINES]]
    if len(one.evidence) > _MOST_LINES:
        lines.append(f"{len(one.evidence) - _MOST_LINES:,} more")
    return (
        moment(one.time),
        one.job_id,
        one.user or DASH,
        one.state,
        number(one.n_nodes),
        one.symptom,
        one.confidence,
        one.names or "no node",
        "shared" if one.weight is None else number(one.weight, 2),
        f"{', '.join(shown)}{more}" if errors else f"none of {number(one.other_nodes)}",
        "; ".join(lines),
    )


def _checks(evidence: LemonEvidence) -> Section:
    title = "What checks saw"
    if evidence.checks is None:
        return Section(
            "checks", title, "Not measured: no kernel messages or health checks were read."
        )
    passed = sum(
        one.events for one in evidence.checks if one.severity == "ok" and one.check not in _RECORDS
    )
    failed = [one for one in evidence.checks if one.severity != "ok" or one.check in _RECORDS]
    lead = (
        f"{counted(sum(one.events for one in failed), 'observation')} of "
        f"{counted(len(failed), 'kind')}, and {counted(passed, 'passed check')}."
    )
    table = table_of_rows(
        _title("Observations", len(failed)),
        failed[:ROWS_LISTED],
        ("check", lambda one: one.check),
        ("code", lambda one: one.code or DASH),
        ("part", lambda one: one.entity or "node"),
        ("severity", lambda one: one.severity),
        ("cause", lambda one: one.symptom or DASH),
        (">events", lambda one: number(one.events)),
        ("first, UTC", lambda one: moment(one.first)),
        ("last, UTC", lambda one: moment(one.last)),
        ("last line", lambda one: f"{one.file}:{one.line}"),
        shown_rows=ROWS_LISTED,
    )
    return Section("checks", title, lead, tables=(table,))


def _outages(evidence: LemonEvidence) -> Section:
    title = "Outages"
    if evidence.outages is None:
        return Section("outages", title, "Not measured: the logs hold no states of nodes.")
    unplanned = [one for one in evidence.outages if not one.is_planned]
    hours = sum(one.hours for one in unplanned)
    table = table_of_rows(
        _title("Outages", len(evidence.outages)),
        evidence.outages[:ROWS_LISTED],
        ("start, UTC", lambda one: moment(one.start)),
        ("end, UTC", lambda one: moment(one.end) if one.end else "not over"),
        ("lasted", lambda one: duration(SECONDS_PER_HOUR * one.hours)),
        ("planned", lambda one: "yes" if one.is_planned else "no"),
        ("class", lambda one: one.reason_class),
        ("reason", lambda one: one.reason or DASH),
        shown_rows=ROWS_LISTED,
    )
    lead = (
        f"{counted(len(unplanned), 'unplanned outage')} of {number(hours)} hours in all, "
        f"{counted(len(evidence.outages) - len(unplanned), 'planned one')}."
    )
    return Section("outages", title, lead, tables=(table,))


def _title(title: str, rows: int) -> str:
    return title if rows <= ROWS_LISTED else f"{title}: the first {ROWS_LISTED:,} of {rows:,}"


# -- what claimed nodes did afterwards, and what their absence would have spared -------------------


def back_test_section(found: LemonBackTest) -> Section:
    """The lift in a sentence; windows, claimed nodes, calibration and uplift."""
    tables = [
        _scores(found),
        table_of_rows(
            "Windows",
            found.scores.windows,
            ("fit from", lambda one: _day(one.fit_from_s)),
            ("scored from", lambda one: _day(one.fit_to_s)),
            ("to", lambda one: _day(one.score_to_s)),
            (">nodes", lambda one: number(one.nodes)),
            (">claimed", lambda one: number(one.claimed)),
            (">their node-days", lambda one: number(one.claimed_node_days, 4)),
            (">their failures", lambda one: number(one.claimed_failures, 3)),
            (">expected of others", lambda one: number(one.claimed_expected, 2)),
            (">other node-days", lambda one: number(one.other_node_days, 4)),
            (">other failures", lambda one: number(one.other_failures, 3)),
        ),
        table_of_rows(
            "Claimed nodes and what followed",
            found.scores.nodes,
            ("cluster", lambda one: one.cluster),
            ("node", lambda one: one.node),
            (">windows", lambda one: number(one.windows)),
            (">later node-days", lambda one: number(one.later_node_days, 4)),
            (">later failures", lambda one: number(one.later_failures, 3)),
            (">expected of others", lambda one: number(one.later_expected, 2)),
        ),
        table_of_rows(
            "Calibration",
            found.scores.calibration,
            ("probability", lambda one: f"{one.posterior_from:g} to {one.posterior_to:g}"),
            (">nodes", lambda one: number(one.nodes)),
            (
                ">mean",
                lambda one: number(one.mean_posterior, 2),
            ),
            (">failures predicted", lambda one: number(one.predicted, 3)),
            (">failures", lambda one: number(one.failures, 3)),
            (">ratio", lambda one: _text(one.ratio)),
        ),
    ]
    if found.basis != FAULTS:
        tables += [_uplift(found), _price(found)]
    return Section(
        "lemon-back-test",
        "Back-test of lemon nodes",
        _back_test_lead(found),
        (),
        tuple(tables),
        (*_role_notes(found), *found.notes),
    )


def _back_test_lead(found: LemonBackTest) -> str:
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
                number(price.node_days_per_failure, 2),
            ),
        ]
    return TextTable("Price of the claims", ("", "value"), tuple(rows), frozenset({1}))


# -- nodes that slow runs down, and the runs that could be judged --------------------------------


def slow_section(report: SlowReport) -> Section:
    """The claim in a sentence, the candidates, the runs."""
    return Section(
        "slow",
        "Slow nodes",
        _slow_lead(report),
        (),
        (
            _slow_nodes(report),
            _runs(report),
            TextTable(
                "By step times of the runs that a node was in",
                (
                    "nodes",
                    "probability",
                    "claimed",
                    "steps longer by",
                    "interval",
                    "runs",
                    "GPU-hours",
                ),
                tuple(
                    (
                        ", ".join(one.nodes),
                        *_claim(one),
                        number(one.runs),
                        _lost(one),
                    )
                    for place, one in enumerate(report.by_runs.candidates)
                    if one.claimed or place < LISTED
                ),
                frozenset({1, 3, 5, 6}),
            ),
            *_by_tests(report),
        ),
        (
            f"Slow is at least {percent(report.min_slowdown, 2)} more work in a step than the "
            "median node of the run. GPU-hours are what all ranks waited for the node over the "
            "next slowest, one GPU a rank.",
            *_notes_on_runs(report),
        ),
    )


def _notes_on_runs(report: SlowReport) -> list[str]:
    found = report.by_runs
    if found.not_judged is not None:
        return [f"By step times of runs nothing is judged: {found.not_judged}."]
    notes = [
        "By step times of runs: an attempt of a run with the node against its other attempts, on "
        "as many nodes. Nodes that were always together are one row: which of them is slow these "
        "logs cannot say. GPU-hours are all of its attempts' times the slowdown.",
        f"{_least(found)} Claimed is what by itself is ordinary with a probability of "
        f"{percent(report.false_discovery, 2)} at most. A node that is far off by nature is "
        "not distinguished from one that became slow.",
    ]
    if any(one.segments_without_gpus for one in found.candidates):
        notes.append(
            "Attempts that do not say their GPUs add nothing to the GPU-hours of their nodes; "
            "“at least”: some of the node's attempts do not."
        )
    return notes


def _lost(one: SlowByRuns) -> str:
    if one.lost_gpu_hours is None:
        return DASH
    least = "at least " if one.segments_without_gpus else ""
    return f"{least}{number(one.lost_gpu_hours, 3)}"


def _least(found: ComparedRuns) -> str:
    """How slow a node has to be for a claim by runs."""
    spread = f"Ordinary nodes differ by about {percent(found.spread, 2)}:"
    if found.least_slowdown is None:
        return f"{spread} no slowdown of a single node would be enough for a claim."
    return (
        f"{spread} a single node has to be {percent(found.least_slowdown, 2)} slower than one in "
        "the middle for a claim, however often it ran."
    )


def _by_tests(report: SlowReport) -> Iterator[TextTable]:
    """Nodes by tests of bus bandwidth, where there are any."""
    if report.by_tests.segments:
        yield TextTable(
            "By bus bandwidth of nccl-tests: a node or its link",
            ("nodes", "probability", "claimed", "slower by", "interval", "tests compared"),
            tuple(
                (
                    ", ".join(one.nodes),
                    *_claim(one),
                    number(report.by_tests.segments),
                )
                for place, one in enumerate(report.by_tests.candidates)
                if one.claimed or place < LISTED
            ),
            frozenset({1, 3, 5}),
        )


def _claim(one: SlowByRuns | SlowCandidate) -> tuple[str, str, str, str]:
    """Probability, whether it is claimed, how much slower, and the interval of that."""
    low, high = percent(one.slowdown.low, 2), percent(one.slowdown.high, 2)
    claimed = "yes" if one.claimed else "no"
    return number(one.posterior, 2), claimed, percent(one.slowdown.estimate, 2), f"{low} to {high}"


def _slow_lead(report: SlowReport) -> str:
    judged = [run for run in report.runs if run.not_judged is None]
    by_runs = report.by_runs.not_judged is None
    by_tests = report.by_tests.not_judged is None
    if not judged and not by_runs and not by_tests:
        if not report.runs:
            return "Not measured: no run has progress records of steps of several ranks."
        return "Not measured: no run records the steps of several ranks with their waits."
    several = _has_clusters(report)
    named = [
        _of(one.cluster, _name(one.node, one.ranks), several)
        for one in report.candidates
        if one.claimed
    ]
    together = [
        " or ".join(_of(one.cluster, node, several) for node in one.nodes)
        for one in (*report.by_runs.candidates, *report.by_tests.candidates)
        if one.claimed
    ]
    named += [one for one in dict.fromkeys(together) if one not in named]
    compared = max(len(judged), report.by_runs.runs if by_runs else 0)
    runs = by_number("{n} [run|runs]", compared)
    if by_tests:
        tests = by_number("{n} [test|tests] of bus bandwidth", report.by_tests.segments)
        runs = f"{runs} and {tests}" if compared else tests
    if not named:
        return f"No node is claimed to be slow in {runs}."
    shown = ", ".join(named[:LISTED]) + (", ..." if len(named) > LISTED else "")
    return (
        f"{by_number('{n} [node is|nodes are] claimed to be slow', len(named))} in {runs}: {shown}."
    )


def _has_clusters(report: SlowReport) -> bool:
    """Whether runs are of several clusters, so that names need theirs."""
    clusters = {one.cluster for one in report.runs}
    found = (*report.by_runs.candidates, *report.by_tests.candidates)
    return len(clusters | {one.cluster for one in found}) > 1


def _of(cluster: str | None, name: str, several: bool) -> str:
    return f"{cluster}/{name}" if several and cluster is not None else name


def _name(node: str | None, ranks: tuple[int, ...]) -> str:
    return f"rank {ranks[0]}" if node is None else node


def _slow_nodes(report: SlowReport) -> TextTable:
    several = _has_clusters(report)
    return TextTable(
        "Candidates",
        ("run", "node", "ranks", "probability", "claimed", "slower by", "interval", "GPU-hours"),
        tuple(
            (
                _of(one.cluster, one.run_id, several),
                one.node or DASH,
                ",".join(map(str, one.ranks)),
                *_claim(one),
                number(one.lost_gpu_hours, 3),
            )
            for place, one in enumerate(report.candidates)
            if one.claimed or place < LISTED
        ),
        frozenset({3, 5, 6, 7}),
    )


def _runs(report: SlowReport) -> TextTable:
    several = _has_clusters(report)
    return table_of_rows(
        "Runs",
        report.runs,
        ("run", lambda one: _of(one.cluster, one.run_id, several)),
        (">ranks", lambda one: number(one.ranks)),
        (">steps", lambda one: number(one.steps)),
        (">spread of ordinary nodes", lambda one: percent(one.spread, 2)),
        ("not judged", lambda one: one.not_judged or ""),
    )
