"""A planned run: MTTF, ETTR with its band, the interval, what would have to be true, schemes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ettr.plan.cost import Cost
from ettr.plan.network import NetworkPlan
from ettr.plan.outlook import RunPlan, SecondPlan
from ettr.plan.questions import GatePlan, NodeType, PhasedRun
from ettr.plan.ranking import SchemeChoice, Standing
from ettr.plan.renewal import Maintained, TimeShares
from ettr.plan.run import SimulatedRun
from ettr.plan.wallclock import DeadlinePlan, SizedRun, WallclockQuantiles, ends
from ettr.report.charts import BarSeries, row_chart
from ettr.report.numbers import (
    DASH,
    PER_NODE_DAYS,
    and_confidence,
    between,
    number,
    percent,
    ratio,
    ratio_between,
    time_between,
)
from ettr.report.section import Figure, Section, TextTable, first_sentence, table_of_rows
from ettr.units import SECONDS_PER_HOUR
from ettr.words import counted, significant, spell

_STRONGEST = 3
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
    tables = [
        _numbers_table(plan),
        table_of_rows(
            f"Checkpoint interval by rule{_by_the_exact_form(plan)}",
            plan.intervals,
            ("rule", lambda one: one.rule),
            (">interval", lambda one: spell(one.interval_s)),
            (">ETTR, exact", lambda one: ratio(one.ettr)),
            (">ETTR, paper's form", lambda one: ratio(one.paper_ettr)),
        ),
        _shares_table(plan),
    ]
    if plan.wallclock is not None:
        table = _wallclock_table(plan.wallclock)
        tables.append(replace(table, title=f"{table.title}{_by_the_exact_form(plan)}"))
    if plan.simulated is not None and plan.simulated.mean_s is not None:
        tables.append(_simulated_table(plan.simulated, plan.run.productive_s))
    tables.append(
        table_of_rows(
            f"Sensitivity of ETTR{_by_the_exact_form(plan)}",
            plan.sensitivities,
            ("input", lambda one: _CALLED[one.name]),
            (">today", lambda one: _value(one.name, one.value)),
            (">elasticity of ETTR", lambda one: _elasticity(one.elasticity)),
            (">ETTR if halved", lambda one: ratio(one.ettr_if_halved)),
        )
    )
    if plan.requirements:
        tables.append(_requirements_table(plan))
    if plan.schemes:
        tables.append(
            table_of_rows(
                "Checkpoint schemes for this job, the best first",
                plan.schemes,
                ("scheme", lambda one: one.name),
                (">ETTR", lambda one: ratio_between(one.ettr) if one.usable else "cannot be used"),
                (
                    ">interval",
                    lambda one: DASH if one.interval_s is None else spell(one.interval_s),
                ),
                (
                    ">lost per failure",
                    lambda one: DASH if one.lost_s is None else spell(one.lost_s),
                ),
                ("survives loss of", lambda one: ", ".join(one.survives) or DASH),
                (">memory per node", lambda one: f"{number(one.host_bytes / 1e9)} GB"),
                ("source", lambda one: one.source),
            )
        )
    if plan.standing is not None:
        tables += _standing_tables(plan.standing)
    tables += answer_tables(plan)
    notes = [plan.rate.meaning, *plan.cautions, *plan.assumptions]
    if plan.simulated is not None:
        notes.append(
            f"Simulated with {plan.simulated.law}: {plan.simulated.draws:,} draws, seed "
            f"{plan.simulated.seed}; engine: {plan.simulated.engine}. Tables "
            "other than those that say so are by the exact form, which is not asked what an input "
            "has to be for the target: it errs here."
        )
    notes += answer_notes(plan)
    if plan.standing is not None:
        notes += plan.standing.sentences
    notes += [_why(one) for one in plan.schemes[:3]]
    notes += [one.why for one in plan.schemes[3:] if not one.usable]
    notes.append("Elasticity: per cent by which ETTR changes if the input grows by 1 %.")
    notes.append(
        "The exact form counts failures during restart and catch-up; the paper's form (Kokolis et "
        "al., HPCA 2025) is right to first order only: where much is lost it errs to either side."
    )
    figures = (_figure(plan),)
    in_detail = ["Checkpoint interval by rule", "Where the wall-clock", "Sensitivity of"]
    in_detail += [] if plan.answers.cost and plan.answers.cost.price else ["Cost of"]
    # a time budget has its own lengths, with the waits for spare nodes
    in_detail += [_LENGTHS] if plan.answers.deadline else []
    answer = _simulated_answer(plan) or _answer(plan) or first_sentence(_lead(plan))
    return Section(
        "plan",
        "The run as planned",
        _lead(plan),
        figures,
        tuple(
            replace(table, in_brief=not table.title.startswith(tuple(in_detail)))
            for table in tables
        ),
        tuple(notes),
        answer=" ".join([answer, *_asked(plan)]),
        careful=next(iter((*plan.cautions, *plan.assumptions)), ""),
        asked=plan.answers.formulas,
    )


def _simulated_answer(plan: RunPlan) -> str:
    """The answer of a run that was simulated; empty where the exact form has it."""
    found = plan.simulated
    if found is None:
        return ""
    verdict = "" if plan.target is None else f" {_verdict(plan, plan.target)}"
    return (
        f"{_size(plan)}: MTTF {time_between(plan.mttf_h)}, ETTR "
        f"{ratio(found.run_ettr(plan.run.productive_s))} simulated with {found.failures} "
        f"(the exact form says {ratio(found.exact_ettr)}).{verdict}"
    )


def _answer(plan: RunPlan) -> str:
    """What the target needs, where one is given; else empty, for the lead's first sentence."""
    rate = next((one for one in plan.requirements if one.name == "failures_per_node_day"), None)
    if plan.target is None:
        return ""
    if rate is None or plan.ettr.estimate is None:
        return f"{first_sentence(_lead(plan))} {_verdict(plan, plan.target)}"
    needs = (
        f"at most {_value(rate.name, rate.at_most)}"
        if rate.at_most is not None and not math.isinf(rate.at_most)
        else "more than a lower failure rate"
    )
    today = _value(rate.name, rate.today)
    return (
        f"{_size(plan)}: ETTR {ratio(plan.ettr.estimate)} at {today}; {number(plan.target)} needs "
        f"{needs}."
    )


def _parts(shares: TimeShares) -> dict[str, float]:
    """Shares of the wall-clock time by what it goes to."""
    return {
        "productive": shares.productive,
        "writing checkpoints": shares.writing,
        "lost work": shares.lost,
        "restarting": shares.restarting,
        "queued": shares.queued,
    }


def _figure(plan: RunPlan) -> Figure:
    parts = _parts(plan.shares)
    return row_chart(
        "plan",
        "Where the wall-clock time goes",
        f"In the long run{_by_the_exact_form(plan)}.",
        ["share of the time"],
        [BarSeries(name, [share], [f"{percent(share)} {name}"]) for name, share in parts.items()],
        axis_title="share of the wall-clock time",
    )


def _why(one: SchemeChoice) -> str:
    return one.why if one.quality.startswith("None") else f"{one.why} Quality: {one.quality}"


def _size(plan: RunPlan) -> str:
    nodes = counted(plan.run.n_nodes, "node")
    return f"{plan.n_gpus:,} GPUs ({nodes} of {plan.gpus_per_node})" if plan.n_gpus else nodes


def _lead(plan: RunPlan) -> str:
    run = plan.run
    ettr = (
        f"ETTR {ratio_between(plan.ettr)}"
        if plan.ettr.estimate is not None
        else f"ETTR {ratio(plan.ettr.low)} or more, as nothing failed yet,"
    )
    paper = (
        f"; the paper's form says {ratio(plan.paper_ettr)}" if plan.paper_ettr is not None else ""
    )
    lead = (
        f"{_size(plan)}: MTTF {time_between(plan.mttf_h)}, {ettr} with a checkpoint every "
        f"{spell(run.interval_s)}{paper}."
    )
    if plan.simulated is not None:
        lead += f" {plan.simulated.sentence}"
    lead = " ".join([lead, *_asked(plan)])
    return lead if plan.target is None else f"{lead} {_verdict(plan, plan.target)}"


def _asked(plan: RunPlan) -> Iterator[str]:
    """The answers to what else was asked: which scheme, and what ends the work in time."""
    best = next((one for one in plan.schemes if one.usable), None)
    if best is not None and not round(best.ettr.estimate or 0.0, 3):
        yield "No checkpoint scheme makes progress at this failure rate."
    elif best is not None and plan.standing is not None:
        band = plan.standing.bands[best.name]
        yield (
            f"Of the schemes below {best.name} is first: ETTR {ratio(best.ettr.estimate)}, "
            f"{band.low:.3f} to {band.high:.3f} over rate and assumptions."
        )
    if plan.answers.deadline is not None:
        by = "Simulated with the store's own failures: " if plan.answers.deadline.simulated else ""
        yield f"{by}{plan.answers.deadline.sentence}"


def _verdict(plan: RunPlan, target: float) -> str:
    """Whether the target is reached: by the simulation where the exact form does not hold."""
    simulated = plan.simulated
    if simulated is None:
        reached = "reached" if (plan.ettr.estimate or plan.ettr.low) >= target else "missed"
        return f"The target of {number(target)} is {reached}."
    ettr, error = simulated.run_ettr(plan.run.productive_s), 2.0 * simulated.ettr_error
    by = f"by the simulated ETTR of {ratio(ettr)}"
    if abs(ettr - target) <= error:
        return f"The target of {number(target)} is too near to call {by} ± {error:.3f}."
    return f"The target of {number(target)} is {'reached' if ettr > target else 'missed'} {by}."


def _by_the_exact_form(plan: RunPlan) -> str:
    """The end of a title of numbers that a simulation next to them may contradict."""
    return "" if plan.simulated is None else ", by the exact form"


def _numbers_table(plan: RunPlan) -> TextTable:
    run, rate = plan.run, plan.rate
    band = rate.per_node_day
    exact = band.low == band.high and band.estimate is not None
    typed = number(PER_NODE_DAYS * band.low) if exact else between(band.scaled(PER_NODE_DAYS))
    rows = [("failures per 1,000 node-days", typed)]
    if rate.evidence is not None:
        evidence = rate.evidence
        rows.append(
            (
                "evidence",
                f"{evidence.failures:,} in {number(evidence.node_days, 6)} node-days"
                f"{and_confidence(rate.by_confidence)}",
            )
        )
    rows += [
        ("MTTF of the run", time_between(plan.mttf_h)),
        ("ETTR, exact form", ratio_between(plan.ettr)),
        *(() if plan.simulated is None else _simulated_rows(plan.simulated)),
        ("ETTR, paper's form (v2)", ratio(plan.paper_ettr)),
        ("ETTR, first order with queue and length", ratio(plan.general_ettr)),
        ("expected loss per failure / MTTF", number(run.lost_share)),
        ("checkpoint interval", spell(run.interval_s)),
        ("write, restart, queue", ", ".join(map(spell, (run.write_s, run.restart_s, run.queue_s)))),
    ]
    return TextTable("Numbers", ("quantity", "value"), tuple(rows))


def _simulated_rows(simulated: SimulatedRun) -> tuple[tuple[str, str], ...]:
    """What a simulation says next to the exact form."""
    ends, rows = simulated.ettr_at_rate_ends, []
    band = "" if ends is None else f" ({ends.low:.3f} to {ends.high:.3f} at the ends of the rate)"
    error = (
        ""
        if simulated.precise
        else f" ± {significant(2.0 * simulated.ettr_error, 1)}, stopped early"
    )
    rows.append(
        (f"ETTR, {simulated.failures} (simulated)", f"{ratio(simulated.ettr)}{error}{band}")
    )
    if simulated.failures_per_node_day is not None:
        rows.append(
            (
                "failures per 1,000 node-days in use (simulated)",
                number(PER_NODE_DAYS * simulated.failures_per_node_day),
            )
        )
    if simulated.short_of_nodes is not None:
        rows.append(("time without enough nodes (simulated)", percent(simulated.short_of_nodes)))
    if simulated.detecting:
        rows.append(("time before failures are noticed (simulated)", percent(simulated.detecting)))
    return tuple(rows)


def _shares_table(plan: RunPlan) -> TextTable:
    parts = _parts(plan.shares)
    return TextTable(
        f"Where the wall-clock time goes, in the long run{_by_the_exact_form(plan)}",
        tuple(parts),
        (tuple(percent(share) for share in parts.values()),),
        frozenset(range(5)),
    )


_LENGTHS = "Wall-clock time"


def _wallclock_table(wallclock: WallclockQuantiles) -> TextTable:
    lengths = [("mean", wallclock.mean_band_s)] + [
        (f"{percent(share)} of runs end within", band)
        for (share, _), band in zip(wallclock.quantiles, wallclock.quantile_bands_s, strict=True)
    ]
    rows = [
        (
            what,
            time_between(band.scaled(1.0 / SECONDS_PER_HOUR)),
            ratio(wallclock.productive_s / (band.estimate or math.inf)),
        )
        for what, band in lengths
    ]
    title = (
        f"{_LENGTHS} of {spell(wallclock.productive_s)} of work with all its nodes, "
        f"{number(wallclock.expected_failures)} failures expected"
    )
    if wallclock.mean_band_s.low < wallclock.mean_band_s.high:
        title += " (in brackets at the ends of the failure rate)"
    return TextTable(title, ("", "wall-clock", "ETTR"), tuple(rows), frozenset({1, 2}))


def _simulated_table(simulated: SimulatedRun, productive_s: float) -> TextTable:
    rows = [("mean", simulated.mean_s or math.inf)] + [
        (f"{percent(share)} of runs end within", at_s) for share, at_s in simulated.quantiles
    ]
    return TextTable(
        f"The same simulated with {simulated.failures}",
        ("", "wall-clock", "ETTR"),
        tuple((what, spell(at_s), ratio(productive_s / at_s)) for what, at_s in rows),
        frozenset({1, 2}),
    )


def _value(name: str, value: float) -> str:
    """An input of a run in the unit that people use for it."""
    if name == "failures_per_node_day":
        return f"{number(value * PER_NODE_DAYS)} per 1,000 node-days"
    return f"{int(value):,}" if name == "n_nodes" else spell(value)


def _elasticity(value: float) -> str:
    if math.isnan(value):
        return DASH
    return f"{value:+.3f}" if round(value, 3) else "0"


def _requirements_table(plan: RunPlan) -> TextTable:
    rows = []
    for one in plan.requirements:
        if one.at_most is None or one.at_least is None:
            needed = f"not enough alone: {ratio(one.best_ettr)} at best"
        elif math.isinf(one.at_most):
            needed = f"at least {_value(one.name, one.at_least)}" if one.at_least else "any"
        elif one.at_least > 0:
            ends = (_value(one.name, one.at_least), _value(one.name, one.at_most))
            needed = f"{ends[0]} to {ends[1]}"
        else:
            needed = f"at most {_value(one.name, one.at_most)}"
        rows.append((_CALLED[one.name], _value(one.name, one.today), needed))
    return TextTable(
        f"What an ETTR of {number(plan.target)} needs, changing one input at a time"
        f"{_by_the_exact_form(plan)}",
        ("input", "today", "needed"),
        tuple(rows),
    )


def _standing_tables(standing: Standing) -> tuple[TextTable, ...]:
    """The bands over rate and assumptions, and where the first place changes hands."""
    bands = TextTable(
        "What each place rests on",
        ("scheme", "ETTR", "over rate and assumptions", "assumed, the strongest first"),
        tuple(
            (
                name,
                ratio(band.estimate),
                f"{band.low:.3f} to {band.high:.3f}",
                "; ".join(
                    f"{one.label} {one.spelled(one.value)}"
                    for one in standing.rests_on[name][:_STRONGEST]
                )
                or DASH,
            )
            for name, band in standing.bands.items()
        ),
        frozenset({1, 2}),
    )
    if not standing.turning_points:
        return (bands,)
    turns = table_of_rows(
        f"What would take the first place from {standing.first}, each assumption alone",
        standing.turning_points,
        ("assumed input", lambda point: point.assumption.label),
        (">assumed", lambda point: point.assumption.spelled(point.assumption.value)),
        (
            "range",
            lambda point: " to ".join(
                point.assumption.spelled(end)
                for end in (point.assumption.low, point.assumption.high)
            ),
        ),
        (">changes at", lambda point: point.assumption.spelled(point.turns_at)),
        ("then first", lambda point: point.then_first),
        ("why this range", lambda point: point.assumption.why),
    )
    return bands, turns


# -- What was asked of a plan besides its ETTR: cost, budget, phases, maintenance, a second plan --

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
    if asked.network is not None:
        yield from _network_tables(asked.network)
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
    if plan.answers.network is not None:
        yield _network_note(plan, plan.answers.network)
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
    return table_of_rows(
        "Node types",
        types,
        ("type", lambda one: one.name),
        (">nodes", lambda one: f"{one.n_nodes:,}"),
        (
            ">failures per 1,000 node-days",
            lambda one: (
                number(PER_NODE_DAYS * one.per_node_day.low)
                if one.per_node_day.low == one.per_node_day.high
                else between(one.per_node_day.scaled(PER_NODE_DAYS))
            ),
        ),
        (
            ">failures a day",
            lambda one: (
                number(one.failures_per_day)
                if one.per_node_day.estimate is not None
                else f"at most {number(one.n_nodes * one.per_node_day.high)}"
            ),
        ),
        (
            ">share of failures",
            lambda one: percent(one.failures_per_day / total) if total else DASH,
        ),
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


def _network_tables(found: NetworkPlan) -> tuple[TextTable, TextTable]:
    title = (
        f"{found.bad} bad of {found.links} uplinks at {percent(found.goodput)} of their bandwidth"
    )
    rows = tuple(
        (
            one.routing.value + (" (asked)" if one.routing == found.routing else ""),
            percent(one.bandwidth_share),
            number(one.step_factor, 4),
        )
        for one in found.by_routing
    )
    side_by_side = tuple(
        (
            one.routing.value,
            percent(one.mean_share),
            percent(one.low_share),
            percent(one.flow_share),
        )
        for one in found.contention
    )
    return (
        TextTable(
            title, ("routing", "mean bandwidth", "step time, times"), rows, frozenset({1, 2})
        ),
        TextTable(
            "Jobs of two nodes side by side across pods, all links good: own bandwidth",
            ("routing", "mean", "lowest 5 %", "mean of single flows"),
            side_by_side,
            frozenset({1, 2, 3}),
        ),
    )


def _network_note(plan: RunPlan, found: NetworkPlan) -> str:
    by_failures = percent(1 - (plan.ettr.estimate or 0.0))
    return (
        f"A ring over {found.pods} pods uses {found.crossings} ends of uplinks and crosses a bad "
        f"one with a probability of {percent(found.crossing_chance)} (a binary tree: "
        f"{percent(found.tree_crossing_chance)}); then steps take "
        f"{number(found.worst_step_factor, 3)} times as long. Bad links cost "
        f"{percent(found.lost_share)} of the time, in addition to the {by_failures} that failures, "
        f"writes and restarts cost; the other tables are without them. {found.caution}"
    )


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
