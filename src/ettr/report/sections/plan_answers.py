"""What was asked of a plan besides its ETTR: cost, budget, phases, maintenance, a second plan."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ettr.plan.cost import Cost
from ettr.plan.deadline import DeadlinePlan, SizedRun
from ettr.plan.gates import GatePlan
from ettr.plan.outlook import RunPlan, SecondPlan
from ettr.plan.questions import NodeType, PhasedRun
from ettr.plan.renewal import Maintained
from ettr.plan.wallclock import ends
from ettr.report.numbers import (
    DASH,
    PER_NODE_DAYS,
    between,
    number,
    percent,
    ratio,
    ratio_between,
    time_between,
)
from ettr.report.section import TextTable
from ettr.words import spell

NO_END = "will not end"


def answer_tables(plan: RunPlan) -> Iterator[TextTable]:
    """A table for each question that was asked."""
    asked = plan.answers
    if plan.versus is not None:
        yield _versus_table(plan, plan.versus)
    if asked.node_types:
        yield _node_types_table(asked.node_types)
    if asked.deadline is not None:
        table = _deadline_table(asked.deadline)
        form = ", simulated with the store's own failures" if asked.deadline.simulated else ""
        yield replace(table, title=f"{table.title}{form}")
    if asked.phases is not None:
        yield _phases_table(asked.phases, plan.gpus_per_node)
    if asked.maintenance is not None:
        yield _maintenance_table(asked.maintenance, ends=ends(plan.run))
    if asked.gates is not None:
        yield _gates_table(asked.gates)
    if asked.cost is not None:
        of_all = " as planned, not of its phases" if asked.phases is not None else ""
        yield _cost_table(asked.cost, of_all)


def answer_notes(plan: RunPlan) -> Iterator[str]:
    """The formulas, and what the answers assume, a sentence each."""
    yield from plan.answers.formulas
    if plan.answers.deadline is not None:
        simulated = plan.answers.deadline.simulated
        failures = "the store's own" if simulated else "independent"
        yield (
            f"The time budget takes the failure rate as it is estimated, failures as {failures}, "
            "and the work as taking less time on more nodes in proportion; spares are those with "
            "which the run has all its nodes for 99 % of the time, the rest it waits."
            + (" Intervals are the best by the exact form." if simulated else "")
        )
    if plan.answers.phases is not None:
        yield "Every phase has the failure rate, write, restart and queue of the run as planned."
    if plan.answers.gates is not None:
        yield (
            "The useful share is of the time that trains what is kept, without gates and doomed "
            "stretches, but with checkpoints and failures; a run found doomed goes back to its "
            "last good state."
        )
    if plan.answers.cost is None and math.isfinite(plan.run.productive_s):
        yield "No cost is given of a run that will not end."
    if plan.answers.maintenance is not None:
        yield (
            "A planned stop costs a write before it, its length and a restart, and no work; the "
            "other tables are without planned stops."
        )


def _versus_table(plan: RunPlan, second: SecondPlan) -> TextTable:
    other = second.plan

    def wallclock(one: RunPlan) -> str:
        return DASH if one.wallclock is None else spell(one.wallclock.mean_s)

    def first(one: RunPlan) -> str:
        best = next((scheme for scheme in one.schemes if scheme.usable), None)
        return DASH if best is None else f"{best.name} {ratio(best.ettr.estimate)}"

    costs = [one.answers.cost for one in (plan, other)]
    # a run without end is counted over a day, and a run with one next to it too
    whole_runs = all(cost is None or cost.whole_run for cost in costs)
    period = "in the run" if whole_runs else "a day"

    def gpu_hours(name: str) -> Iterator[str]:
        for cost in costs:
            if cost is None:
                yield DASH
                continue
            total = (cost.held_gpu_hours if name == "held" else cost.lost_gpu_hours).estimate
            yield number(total if whole_runs or total is None else total / cost.days)

    rows = [
        ("nodes", f"{plan.run.n_nodes:,}", f"{other.run.n_nodes:,}"),
        ("MTTF", time_between(plan.mttf_h), time_between(other.mttf_h)),
        ("checkpoint interval", spell(plan.run.interval_s), spell(other.run.interval_s)),
        ("ETTR", ratio_between(plan.ettr), ratio_between(other.ettr)),
        ("first scheme", first(plan), first(other)),
        ("mean wall-clock", wallclock(plan), wallclock(other)),
        *((f"GPU-hours {name} {period}", *gpu_hours(name)) for name in ("held", "lost")),
    ]
    return TextTable(
        "Two plans",
        ("", "as planned", f"with {', '.join(second.changes)}"),
        tuple(row for row in rows if row[1:] != (DASH, DASH)),
        frozenset({1, 2}),
    )


def _node_types_table(types: tuple[NodeType, ...]) -> TextTable:
    total = sum(one.failures_per_day for one in types)
    return TextTable(
        "Node types",
        ("type", "nodes", "failures per 1,000 node-days", "failures a day", "share of failures"),
        tuple(
            (
                one.name,
                f"{one.n_nodes:,}",
                number(PER_NODE_DAYS * one.per_node_day.low)
                if one.per_node_day.low == one.per_node_day.high
                else between(one.per_node_day.scaled(PER_NODE_DAYS)),
                number(one.failures_per_day)
                if one.per_node_day.estimate is not None
                else f"at most {number(one.n_nodes * one.per_node_day.high)}",
                percent(one.failures_per_day / total) if total else DASH,
            )
            for one in types
        ),
        frozenset({1, 2, 3, 4}),
    )


def _deadline_table(plan: DeadlinePlan) -> TextTable:
    def row(what: str, one: SizedRun) -> tuple[str, ...]:
        return (
            what,
            f"{one.n_nodes:,}",
            DASH if one.spares is None else f"{one.spares:,}",
            spell(one.interval_s),
            spell(one.mean_s) if math.isfinite(one.mean_s) else NO_END,
            ratio(one.ettr),
            percent(one.chance)
            if one.chance_error is None
            else f"{percent(one.chance)} ± {percent(2.0 * one.chance_error)}",
        )

    rows = [row("as planned", plan.as_planned)]
    rows.append(
        row("the likeliest size", plan.likeliest)
        if plan.smallest is None
        else row("smallest that ends in time", plan.smallest)
    )
    return TextTable(
        f"Time budget of {spell(plan.budget.within_s)}",
        ("", "nodes", "spares", "interval", "mean wall-clock", "ETTR", "ends in time"),
        tuple(rows),
        frozenset({1, 2, 3, 4, 5, 6}),
    )


def _phases_table(run: PhasedRun, gpus_per_node: int) -> TextTable:
    price = run.price

    def money(gpu_hours: float) -> tuple[str, ...]:
        if price is None:
            return ()
        return (number(gpu_hours * price.per_gpu_hour) if math.isfinite(gpu_hours) else DASH,)

    rows = [
        (
            f"{phase.n_nodes * gpus_per_node:,}",
            spell(phase.productive_s),
            spell(phase.interval_s),
            spell(phase.wallclock_s) if phase.ends else NO_END,
            number(phase.expected_failures) if phase.ends else DASH,
            ratio(phase.ettr),
            number(phase.held_gpu_hours) if phase.ends else DASH,
            *money(phase.held_gpu_hours),
        )
        for phase in run.phases
    ]
    ends = math.isfinite(run.held_gpu_hours)
    rows.append(
        (
            "all",
            DASH,
            DASH,
            spell(run.wallclock_s) if ends else NO_END,
            number(run.expected_failures) if ends else DASH,
            ratio(run.ettr),
            number(run.held_gpu_hours) if ends else DASH,
            *money(run.held_gpu_hours),
        )
    )
    return TextTable(
        f"Phases of the run, {number(run.gpu_hours)} GPU-hours in all"
        if ends
        else "Phases of the run, of which one will not end",
        (
            *("GPUs", "work", "interval", "mean wall-clock", "failures", "ETTR", "GPU-hours held"),
            *(() if price is None else (price.currency,)),
        ),
        tuple(rows),
        frozenset(range(8)),
    )


def _maintenance_table(run: Maintained, *, ends: bool) -> TextTable:
    rows = [
        ("share of time for it", percent(run.share)),
        ("ETTR with it", ratio(run.ettr)),
    ]
    if run.wallclock_s is not None:
        rows.append(("mean wall-clock", spell(run.wallclock_s) if ends else NO_END))
    plan = run.plan
    title = f"Planned maintenance of {spell(plan.length_s)} every {spell(plan.every_s)}"
    return TextTable(title, ("", "value"), tuple(rows), frozenset({1}))


def _gates_table(gates: GatePlan) -> TextTable:
    rows = [
        ("first order", spell(gates.first_order_interval_s), percent(gates.first_order_share)),
        ("exact, the best", spell(gates.interval_s), percent(gates.useful_share)),
    ]
    if gates.without_share is not None:
        rows.append(("judged at its end alone", "", percent(gates.without_share)))
    title = (
        f"Gates for a run that is doomed {number(gates.doomed_per_week)} times a week, each of "
        f"which finds that with {percent(gates.catch_chance)}"
    )
    headers = (f"gates of {spell(gates.cost_s)}", "interval", "useful share")
    return TextTable(title, headers, tuple(rows), frozenset({1, 2}))


def _cost_table(cost: Cost, which: str) -> TextTable:
    held, lost = cost.held_gpu_hours, cost.lost_gpu_hours
    price = cost.price
    headers = ["", "GPU-hours"] + ([] if price is None else [price.currency])
    rows = []
    for what, gpu_hours in (
        ("productive", cost.productive_gpu_hours),
        ("held", held.estimate or 0.0),
        ("lost: writes, lost work, restarts", lost.estimate or 0.0),
        ("lost, at the low end of the rate", lost.low),
        ("lost, at the high end of the rate", lost.high),
    ):
        if "end of" in what and held.low == held.high:
            continue
        money = cost.money(gpu_hours)
        cells = [what, number(gpu_hours)] + ([] if money is None else [number(money)])
        rows.append(tuple(cells))
    which += ", simulated" if cost.simulated else ""
    length = f"the run{which} ({number(cost.days)} days)" if cost.whole_run else f"a day{which}"
    return TextTable(
        f"Cost of {length}", tuple(headers), tuple(rows), frozenset(range(1, len(headers)))
    )
