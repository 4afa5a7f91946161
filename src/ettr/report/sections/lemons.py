"""Nodes that may be lemons, and what they were compared with."""

from __future__ import annotations

import dataclasses

from ettr.analysis.lemon_nodes import lemons
from ettr.lemons.candidates import SIGNAL_NAMES, LemonReport
from ettr.report.charts import BarSeries, line, row_chart, share_axis, value_axis
from ettr.report.numbers import DASH, number, percent
from ettr.report.registry import Part
from ettr.report.section import Figure, Layout, Section, TextTable, Trace
from ettr.words import by_number

LISTED = 20


def lemons_section(report: LemonReport) -> Section:
    """The claim in a sentence, the candidates, the groups."""
    return Section(
        "lemons",
        "Lemon nodes",
        _lead(report),
        (*((_figure(report),) if report.candidates else ()), *_distributions(report)),
        (_nodes(report), _signals(report), _groups(report), _learned(report)),
        report.notes,
        careful=_careful(report),
    )


def _careful(report: LemonReport) -> str:
    claimed = sum(one.claimed for one in report.candidates)
    if not claimed:
        return ""
    wrong = max(1, round(report.false_discovery * claimed))
    return by_number("Expect at most {n} of them to be [an ordinary node|ordinary nodes].", wrong)


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


def _known(value: float | None, digits: int) -> str:
    return DASH if value is None else number(value, digits)


def _nodes(report: LemonReport) -> TextTable:
    return TextTable(
        "Candidates",
        (
            *("cluster", "node", "probability", "claimed", "failures", "expected"),
            *("idle outages", "node-days", "jobs that name it", "days to claim", "days to clear"),
        ),
        tuple(
            (
                one.cluster,
                one.node,
                number(one.posterior, 2),
                "yes" if one.claimed else "no",
                number(one.failures, 3),
                number(one.expected, 2),
                DASH if one.idle_outages is None else number(one.idle_outages),
                number(one.exposure_node_days, 4),
                number(len({job.job_id for job in one.jobs})),
                DASH if one.claimed else number(one.claim_days, 2),
                number(one.clear_days, 2),
            )
            for one in report.candidates
        ),
        frozenset({2, *range(4, 11)}),
    )


def _signals(report: LemonReport) -> TextTable:
    return TextTable(
        "Signals of the candidates",
        (
            *("cluster", "node", "jobs that exclude it", "their users", "XID episodes", "tickets"),
            *("outages", "NODE_FAIL of several nodes", "of it alone", "share of jobs on it alone"),
        ),
        tuple(
            (
                one.cluster,
                one.node,
                number(one.signals.excluded_by_jobs),
                number(one.signals.excluded_by_users),
                number(one.signals.xid_episodes),
                number(one.signals.tickets),
                number(one.signals.outages),
                number(one.signals.multi_node_failures),
                number(one.signals.single_node_failures),
                percent(one.signals.single_node_failure_rate, 2),
            )
            for one in report.candidates
            if one.signals is not None
        ),
        frozenset(range(2, 10)),
    )


def _learned(report: LemonReport) -> TextTable:
    return TextTable(
        "What signals are worth",
        ("cluster", "hardware", "signal", "seen", "ordinary per 1,000 node-days", "lemons, times"),
        tuple(
            (
                group.cluster,
                group.hardware or DASH,
                one.name,
                number(one.count),
                _known(one.per_1000_node_days, 3),
                _known(one.ratio, 2),
            )
            for group in report.groups
            for one in group.signals
        ),
        frozenset({3, 4, 5}),
    )


def _groups(report: LemonReport) -> TextTable:
    return TextTable(
        "Compared nodes",
        (
            *("cluster", "hardware", "nodes", "node-days", "failures", "without culprit"),
            *("ordinary per 1,000 node-days", "lemons, times that", "spread", "log evidence"),
        ),
        tuple(
            (
                one.cluster,
                one.hardware or DASH,
                number(one.nodes),
                number(one.node_days),
                number(one.failures),
                number(one.shared),
                _known(one.bulk_per_1000_node_days, 3),
                _known(one.ratio, 2),
                _known(one.spread, 2),
                _known(one.log_evidence, 3),
            )
            for one in report.groups
        ),
        frozenset(range(2, 10)),
    )


LEMONS = Part(
    "lemons",
    place=160,
    question=lemons,
    section=lemons_section,
    main="candidates",
    title="Lemon nodes",
)
