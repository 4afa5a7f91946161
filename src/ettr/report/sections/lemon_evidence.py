"""One node's evidence: the verdict, its failed jobs, other nodes of the jobs, checks, outages."""

from __future__ import annotations

from collections.abc import Iterator

from ettr.analysis.lemon_evidence import CheckedThing, FailedJob, LemonEvidence
from ettr.analysis.lemon_nodes import SERIAL, TICKET
from ettr.lemons.candidates import CLEAR_AT
from ettr.report.numbers import DASH, between, duration, moment, number, p_value, percent
from ettr.report.section import Section, TextTable
from ettr.report.text import first_sentence
from ettr.units import SECONDS_PER_HOUR
from ettr.words import by_number, counted

NOT_MEASURED = "not measured"
LISTED = 200
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
        answer=f"{evidence.node}: {first_sentence(verdict(evidence))}",
    )


def verdict(evidence: LemonEvidence) -> str:
    """What to do with the node, in a sentence or two."""
    one = evidence.candidate
    if one is None:
        return (
            f"Whether it is a lemon is {NOT_MEASURED}: {evidence.why_not_judged}. Below "
            "is what checks and the scheduler saw."
        )
    if evidence.group is not None and not evidence.group.failures:
        return (
            f"Nothing speaks against it: none of the {counted(evidence.group.nodes, 'node')} it is "
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
        return f"No lemon: leave it in service. {probability}"
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
    yield from _signals(evidence)


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


def _signals(evidence: LemonEvidence) -> Iterator[str]:
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
        tuple(_job(one) for one in ordered[:LISTED]),
        frozenset({4, 8}),
        shown_rows=LISTED,
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
    table = TextTable(
        _title("Observations", len(failed)),
        (
            *("check", "code", "part", "severity", "cause", "events", "first, UTC", "last, UTC"),
            "last line",
        ),
        tuple(_check(one) for one in failed[:LISTED]),
        frozenset({5}),
        shown_rows=LISTED,
    )
    return Section("checks", title, lead, tables=(table,))


def _check(one: CheckedThing) -> tuple[str, ...]:
    return (
        one.check,
        one.code or DASH,
        one.entity or "node",
        one.severity,
        one.symptom or DASH,
        number(one.events),
        moment(one.first),
        moment(one.last),
        f"{one.file}:{one.line}",
    )


def _outages(evidence: LemonEvidence) -> Section:
    title = "Outages"
    if evidence.outages is None:
        return Section("outages", title, "Not measured: the logs hold no states of nodes.")
    unplanned = [one for one in evidence.outages if not one.is_planned]
    hours = sum(one.hours for one in unplanned)
    table = TextTable(
        _title("Outages", len(evidence.outages)),
        ("start, UTC", "end, UTC", "lasted", "planned", "class", "reason"),
        tuple(
            (
                moment(one.start),
                moment(one.end) if one.end else "not over",
                duration(SECONDS_PER_HOUR * one.hours),
                "yes" if one.is_planned else "no",
                one.reason_class,
                one.reason or DASH,
            )
            for one in evidence.outages[:LISTED]
        ),
        shown_rows=LISTED,
    )
    lead = (
        f"{counted(len(unplanned), 'unplanned outage')} of {number(hours)} hours in all, "
        f"{counted(len(evidence.outages) - len(unplanned), 'planned one')}."
    )
    return Section("outages", title, lead, tables=(table,))


def _title(title: str, rows: int) -> str:
    return title if rows <= LISTED else f"{title}: the first {LISTED:,} of {rows:,}"
