"""A planned run: MTTF, ETTR with its band, the interval, what would have to be true, schemes."""

from __future__ import annotations

import math

from ettr.analysis.planning import RunPlan, SchemeChoice
from ettr.estimates import Interval
from ettr.plan.run import spell
from ettr.report.numbers import DASH, between, number, percent
from ettr.report.section import Section, Table

PER_NODE_DAYS = 1000.0
_CALLED = {
    "failures_per_node_day": "failure rate",
    "n_nodes": "nodes",
    "interval_s": "checkpoint interval",
    "write_s": "write time",
    "restart_s": "restart time",
    "queue_s": "queue time",
}


def plan_section(plan: RunPlan) -> Section:
    """The answer first, then the tables behind it."""
    tables = [_numbers_table(plan), _intervals_table(plan), _shares_table(plan)]
    if plan.wallclock is not None:
        tables.append(_wallclock_table(plan))
    tables.append(_sensitivity_table(plan))
    if plan.requirements:
        tables.append(_requirements_table(plan))
    if plan.schemes:
        tables.append(_schemes_table(plan.schemes))
    notes = [plan.rate.meaning, *plan.cautions, *plan.assumptions]
    notes += [_why(one) for one in plan.schemes[:3]]
    notes += [one.why for one in plan.schemes[3:] if not one.usable]
    notes.append(
        "The exact form counts failures during restart and catch-up; the paper's form (Kokolis et "
        "al., HPCA 2025) is right to first order and pessimistic where much is lost."
    )
    return Section("plan", "The run as planned", _lead(plan), (), tuple(tables), tuple(notes))


def _why(one: SchemeChoice) -> str:
    return one.why if one.quality.startswith("None") else f"{one.why} Quality: {one.quality}"


def _size(plan: RunPlan) -> str:
    nodes = f"{plan.run.n_nodes:,} nodes"
    return f"{plan.n_gpus:,} GPUs ({nodes} of {plan.gpus_per_node})" if plan.n_gpus else nodes


def share_of(value: Interval | None) -> str:
    """A share such as ETTR to three decimals, with its interval where it has one."""
    if value is None:
        return DASH
    band = f"[{value.low:.3f}, {value.high:.3f}]"
    if value.estimate is None:
        return band
    return f"{value.estimate:.3f}" if value.low == value.high else f"{value.estimate:.3f} {band}"


def decimals(value: float | None) -> str:
    """A share to three decimals; a dash for None."""
    return DASH if value is None else f"{value:.3f}"


def hours(interval: Interval) -> str:
    """A time given in hours, in the unit that suits it, with its interval."""

    def one(value_h: float) -> str:
        return "∞" if math.isinf(value_h) else spell(3600.0 * value_h)

    if interval.estimate is None:
        return f"at least {one(interval.low)}"
    if interval.low == interval.high:
        return one(interval.estimate)
    return f"{one(interval.estimate)} [{one(interval.low)}, {one(interval.high)}]"


def _lead(plan: RunPlan) -> str:
    run = plan.run
    ettr = (
        f"ETTR {share_of(plan.ettr)}"
        if plan.ettr.estimate is not None
        else f"ETTR {decimals(plan.ettr.low)} or more, as nothing failed yet"
    )
    paper = (
        f"; the paper's form says {decimals(plan.paper_ettr)}"
        if plan.paper_ettr is not None
        else ""
    )
    lead = (
        f"{_size(plan)}: MTTF {hours(plan.mttf_h)}, {ettr} with a checkpoint every "
        f"{spell(run.interval_s)}{paper}."
    )
    if plan.target is not None:
        reached = "reached" if (plan.ettr.estimate or plan.ettr.low) >= plan.target else "missed"
        lead += f" The target of {number(plan.target)} is {reached}."
    return lead


def _numbers_table(plan: RunPlan) -> Table:
    run, rate = plan.run, plan.rate
    band = rate.per_node_day
    scaled = band.scaled(PER_NODE_DAYS)
    exact = number(scaled.estimate) if scaled.low == scaled.high else between(scaled)
    rows = [("failures per 1,000 node-days", exact)]
    if rate.evidence is not None:
        seen = rate.evidence
        rows.append(("seen", f"{seen.failures:,} in {number(seen.node_days, 6)} node-days"))
    rows += [
        ("MTTF of the run", hours(plan.mttf_h)),
        ("ETTR, exact form", share_of(plan.ettr)),
        ("ETTR, paper's form (v2)", decimals(plan.paper_ettr)),
        ("ETTR, first order with queue and length", decimals(plan.general_ettr)),
        ("λ(u0 + Δt/2)", number(run.lost_share)),
        ("checkpoint interval", spell(run.interval_s)),
        ("write, restart, queue", ", ".join(map(spell, (run.write_s, run.restart_s, run.queue_s)))),
    ]
    return Table("Numbers", ("quantity", "value"), tuple(rows))


def _intervals_table(plan: RunPlan) -> Table:
    return Table(
        "How often to save",
        ("rule", "interval", "ETTR, exact", "ETTR, paper's form"),
        tuple(
            (one.rule, spell(one.interval_s), decimals(one.ettr), decimals(one.paper_ettr))
            for one in plan.intervals
        ),
        frozenset({1, 2, 3}),
    )


def _shares_table(plan: RunPlan) -> Table:
    shares = plan.shares
    return Table(
        "Where the wall-clock goes, in the long run",
        ("productive", "writing", "lost work", "restarting", "queued"),
        (
            tuple(
                percent(value)
                for value in (
                    shares.productive,
                    shares.writing,
                    shares.lost,
                    shares.restarting,
                    shares.queued,
                )
            ),
        ),
        frozenset(range(5)),
    )


def _wallclock_table(plan: RunPlan) -> Table:
    found = plan.wallclock
    assert found is not None  # noqa: S101 - the caller asked
    rows = [
        ("mean", spell(found.mean_s), decimals(found.productive_s / found.mean_s)),
        *(
            (
                f"{percent(share)} of runs end within",
                spell(at_s),
                decimals(found.productive_s / at_s),
            )
            for share, at_s in found.quantiles
        ),
    ]
    title = (
        f"Wall-clock of {spell(found.productive_s)} of work, "
        f"{number(found.expected_failures)} failures expected"
    )
    return Table(title, ("", "wall-clock", "ETTR"), tuple(rows), frozenset({1, 2}))


def value_of(name: str, value: float) -> str:
    """An input of a run in the unit that people use for it."""
    if name == "failures_per_node_day":
        return f"{number(value * PER_NODE_DAYS)} per 1,000 node-days"
    return f"{int(value):,}" if name == "n_nodes" else spell(value)


def _sensitivity_table(plan: RunPlan) -> Table:
    return Table(
        "What moves ETTR",
        ("input", "today", "ETTR, % for +1 %", "ETTR if halved"),
        tuple(
            (
                _CALLED[one.name],
                value_of(one.name, one.value),
                DASH if math.isnan(one.elasticity) else f"{one.elasticity:+.3f}",
                decimals(one.ettr_if_halved),
            )
            for one in plan.sensitivities
        ),
        frozenset({1, 2, 3}),
    )


def _requirements_table(plan: RunPlan) -> Table:
    rows = []
    for one in plan.requirements:
        if one.at_most is None or one.at_least is None:
            needed = f"not enough alone: {decimals(one.best_ettr)} at best"
        elif math.isinf(one.at_most):
            needed = f"at least {value_of(one.name, one.at_least)}" if one.at_least else "any"
        elif one.at_least > 0:
            ends = (value_of(one.name, one.at_least), value_of(one.name, one.at_most))
            needed = f"{ends[0]} to {ends[1]}"
        else:
            needed = f"at most {value_of(one.name, one.at_most)}"
        rows.append((_CALLED[one.name], value_of(one.name, one.today), needed))
    return Table(
        f"What reaches an ETTR of {number(plan.target)}, each input alone",
        ("input", "today", "has to be"),
        tuple(rows),
    )


def _schemes_table(schemes: tuple[SchemeChoice, ...]) -> Table:
    return Table(
        "Checkpoint schemes for this job, the best first",
        ("scheme", "ETTR", "interval", "lost a failure", "survives", "memory a node", "source"),
        tuple(
            (
                one.name,
                share_of(one.ettr) if one.usable else "cannot be used",
                spell(one.interval_s) if one.usable else DASH,
                spell(one.lost_s) if one.usable else DASH,
                ", ".join(one.survives) or DASH,
                f"{number(one.host_bytes / 1e9)} GB",
                one.source,
            )
            for one in schemes
        ),
        frozenset({1, 2, 3, 5}),
    )
