"""`ettr plan`: what a run will take, from a store's failure rate or from typed numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli import rates
from ettr.cli.groups import Input, TypedOptions
from ettr.cli.output import Answering, check_writable, say
from ettr.cli.plan_questions import PlanQuestions, SimulationOptions, node_type, overridden
from ettr.cli.rates import SchemeOptions
from ettr.cli.selecting import OnEngine, Selecting
from ettr.defaults import GPUS_PER_NODE
from ettr.errors import UsageError
from ettr.files import write_text
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ettr.analysis.own_failures import OwnFailures
    from ettr.analysis.selecting import SelectionHead
    from ettr.plan.outlook import PlanningRate, RunPlan
    from ettr.plan.run import PlannedRun, RunShape, SimulatedRun


@dataclass(frozen=True, slots=True)
class PlanTimes(rates.RunTimes):
    """How long the parts of a run take, and how much work it has."""

    days: Annotated[
        str | None,
        typer.Option(
            "--days",
            metavar="TIME",
            help="Productive time that the run needs, such as 54d, or a number of days; "
            "default without end.",
        ),
    ] = None

    def productive_s(self) -> float:
        """Productive time that the run needs, in seconds; infinite where none is given.

        Raises:
            UsageError: it cannot be understood.
        """
        days = q.days("--days", self.days)
        return math.inf if days is None else days * SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class _Options:
    """What was typed for one plan."""

    store: str | None
    size: rates.RunSize
    rate: rates.TypedRate
    times: PlanTimes
    target: float | None
    schemes: SchemeOptions
    questions: PlanQuestions
    simulation: SimulationOptions
    rating: opt.Rating
    on: OnEngine
    selecting: Selecting
    measured: tuple[str, ...] = ()

    def with_costs(self, costs: MeasuredCosts) -> _Options:
        """The same with measured times where none was typed."""
        times, schemes = costs.into(self.times), self.schemes
        if schemes.state_bytes is not None:
            schemes = costs.into(schemes)
            # the state says how long a write takes
            times = replace(times, write=self.times.write)
        used = frozenset(
            name
            for before, after in ((self.times, times), (self.schemes, schemes))
            for name in costs.times_s
            if getattr(before, name, None) != getattr(after, name, None)
        )
        return replace(self, times=times, schemes=schemes, measured=costs.words(used))

    def changed(self, pairs: list[str]) -> _Options:
        """The same with some options at other values, for a second plan."""
        groups = (self.size, self.rate, self.times, self.schemes, self.questions)
        size, rate, times, schemes, questions = overridden(groups, pairs)
        if schemes != self.schemes and schemes.state_bytes is None:
            raise UsageError(
                f"--versus {' '.join(pairs)}: an option of the checkpoint schemes changes nothing "
                "without --state-bytes; give it, with --step and --bandwidth"
            )
        return replace(
            self, size=size, rate=rate, times=times, schemes=schemes, questions=questions
        )


def plan(
    store: rates.StoreOrNothing = None,
    *,
    size: rates.RunSize,
    rate: rates.TypedRate,
    times: PlanTimes,
    target: Annotated[
        float | None, typer.Option("--target", metavar="ETTR", help="Target ETTR, such as 0.9.")
    ] = None,
    schemes: SchemeOptions,
    questions: PlanQuestions,
    simulation: SimulationOptions,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--measured",
            metavar="FILE",
            help="measured.json or progress.jsonl of a run: its step, save, restart and "
            "regroup times replace the assumed ones.",
        ),
    ] = None,
    versus: Annotated[
        list[str] | None,
        typer.Option(
            "--versus",
            metavar="OPTION=VALUE",
            help="Second plan next to this one that differs in this option: restart=1min; "
            "repeatable.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", help="Write the planner page, with sliders."),
    ] = None,
    on: OnEngine,
    selecting: Selecting,
    rating: opt.Rating,
    typed: TypedOptions,
    printing: Answering,
) -> None:
    """Plan a run: MTTF, ETTR with a band, checkpoint interval and scheme, what reaches a target.

    The failure rate is that of a store, or typed in: as a rate, or as failures and node-days, which
    gives it an interval. Times take a unit: 10s, 5min, 1.5h, 2d. The exact form assumes independent
    failures at a constant rate and a node always at hand; for others the run is simulated.
    """
    from ettr.plan.outlook import SecondPlan

    options = _Options(
        store, size, rate, times, target, schemes, questions, simulation, rating, on, selecting
    )
    if measured is not None:
        options = options.with_costs(measured_costs(measured))
    _one_rate(options)
    typed.check(
        {
            Input.STORE: store is not None,
            Input.COUNTS: rate.has_interval or bool(questions.node_type),
            Input.STATE: schemes.state_bytes is not None,
            Input.PLANNER_PAGE: html is not None,
            Input.REPAIR: questions.repair is not None,
            Input.LAW: simulation.law is not None,
            Input.SIMULATION: simulation.asked,
        }
    )
    if simulation.asked and questions.within is not None:
        raise UsageError(
            "--within is answered by the exact form, or with a store's own failures: leave it out "
            "with --law, --bursts, --spares and --detection, and read the quantiles of --days"
        )
    if html is not None:
        check_writable("--html", html)
    by_node = _planning_rate(options)
    made = _made(options, by_node)
    if versus:
        other = options.changed(versus)
        _one_rate(other)
        rate_differs = (other.rate, other.questions.node_type) != (rate, questions.node_type)
        second = _made(other, _planning_rate(other) if rate_differs else by_node)
        made = replace(made, versus=SecondPlan(tuple(versus), second))
    if html is not None:
        from ettr.report.planner_page import planner_html

        write_text(html, planner_html(made, _around(made, options, by_node)))
    _show(made, html, printing, by_node.head)


def _around(
    made: RunPlan, options: _Options, by_node: _NodeRate
) -> tuple[tuple[float, ...], ...] | None:
    """What the page needs to answer with the simulation for other runs; None without one."""
    from ettr.plan.renewal import exact_ettr, simulated_around

    simulated, own = made.simulated, by_node.own
    if simulated is None:
        return None
    if options.simulation.asked:
        from ettr.sim.one_run import rough_ettr

        by = options.simulation.made(options.questions.repair)
        return simulated_around(made.run, simulated, lambda run: rough_ettr(run, by))
    if own is None:
        return None

    def again(run: PlannedRun) -> float:
        found = own.simulated(run)
        return exact_ettr(run) if found is None else found.ettr

    return simulated_around(made.run, simulated, again)


def _made(options: _Options, by_node: _NodeRate) -> RunPlan:
    from ettr.plan.assumed import run_with_state
    from ettr.plan.outlook import plan_run

    rate, seen_gpus_per_node = by_node.rate, by_node.gpus_per_node
    size, times, schemes = options.size, options.times, options.schemes
    gpus_per_node = size.gpus_per_node or seen_gpus_per_node or GPUS_PER_NODE
    asked = options.questions.asked(
        gpus_per_node,
        options.rating.confidence,
        keep_interval=times.interval is not None,
        repair_used=options.simulation.spares is not None,
    )
    if asked.node_types:
        n_nodes = sum(one.n_nodes for one in asked.node_types)
        if size.gpus is None and size.nodes is None:
            size = replace(size, nodes=n_nodes)
    shape = _shape(size, times, gpus_per_node)
    if asked.node_types and shape.n_nodes != n_nodes:
        raise UsageError(
            f"the node types add up to {n_nodes} nodes and the run has {shape.n_nodes}; "
            "leave out --gpus and --nodes"
        )
    job = schemes.job(shape)
    plain, notes = (
        (shape, ())
        if job is None
        else run_with_state(shape, job, write_typed=times.write is not None)
    )
    made = plan_run(
        plain,
        rate,
        interval_s=times.interval_s(),
        n_gpus=size.gpus,
        target=options.target,
        job=job,
        domain_shares=schemes.domain_shares(),
        assumed=_assumed(times, schemes),
        assumptions=(
            *by_node.cautions,
            *options.measured,
            *times.assumed(write_known=job is not None),
            *notes,
            *size.assumed(seen_gpus_per_node),
        ),
        asked=asked,
        chosen=schemes.chosen(),
    )
    if options.simulation.asked:
        return _by_law(made, options)
    return made if by_node.own is None else _simulated(made, by_node.own)


def _by_law(made: RunPlan, options: _Options) -> RunPlan:
    """The plan with the run simulated by the options."""
    from ettr.sim.one_run import simulated_plan

    by = options.simulation.made(options.questions.repair)
    return _answered_by(made, simulated_plan(made.run, by, made.rate.per_node_day))


def _answered_by(made: RunPlan, simulated: SimulatedRun) -> RunPlan:
    """The plan with one engine for all answers: the simulation of its run."""
    from ettr.estimates import Interval
    from ettr.plan.cost import cost_of

    answers, exact = made.answers, made.answers.cost
    if exact is not None:
        ettr = simulated.run_ettr(made.run.productive_s)
        ends = simulated.ettr_at_rate_ends or Interval(ettr, ettr, ettr)
        band = Interval(ettr, min(ends.low, ettr), max(ends.high, ettr))
        answers = replace(answers, cost=cost_of(made.run, band, exact.price, simulated=True))
    # what an input has to be for the target is known by the exact form alone, which errs here
    return replace(
        made, simulated=simulated, engine=simulated.engine, answers=answers, requirements=()
    )


def _simulated(made: RunPlan, own: OwnFailures) -> RunPlan:
    """The plan with the answers of a store whose failures are not as the exact form has them."""
    deadline = made.answers.deadline
    if deadline is not None:
        answers = replace(made.answers, deadline=own.deadline(deadline, made.run))
        made = replace(made, answers=answers)
    simulated = own.simulated(made.run)
    if simulated is None:
        return made
    return _answered_by(made, simulated)


def _shape(size: rates.RunSize, times: PlanTimes, gpus_per_node: int) -> RunShape:
    from ettr.plan.run import run_nodes

    return replace(
        times.shape(run_nodes(size.gpus, size.nodes, gpus_per_node)),
        gpus_per_node=gpus_per_node,
        productive_s=times.productive_s(),
    )


def _assumed(times: PlanTimes, schemes: SchemeOptions) -> frozenset[str]:
    """Inputs of the ranking that were not typed, by the names of `ettr.plan.assumed`."""
    from ettr.plan.assumed import JOB_SHARE

    typed = {
        "restart_s": times.restart,
        "replace_s": schemes.replace,
        "network_bytes_per_s": schemes.network,
        "device_bytes_per_s": schemes.device,
        "host_bytes": schemes.host_memory,
        "durable_period_s": schemes.durable_every,
        "one_writer_share": schemes.one_writer_share,
        JOB_SHARE: schemes.failure_shares,
    }
    return frozenset(name for name, value in typed.items() if value is None)


def _one_rate(options: _Options) -> None:
    rate = options.rate
    ways = [
        options.store is not None,
        rate.per_1000_node_days is not None,
        rate.given,
        bool(options.questions.node_type),
        options.simulation.own_mean_s() is not None,
    ]
    if sum(ways) != 1:
        raise UsageError(
            f"{'more than one' if any(ways) else 'no'} failure rate: give a STORE, or "
            "--failures-per-1000-node-days R, or --failures K with --node-days T, or --node-type, "
            "or a --law with a mean of its own"
        )


@dataclass(frozen=True, slots=True)
class _NodeRate:
    """The failure rate asked for, and what a store knows in addition."""

    rate: PlanningRate
    gpus_per_node: int | None = None
    own: OwnFailures | None = None
    cautions: tuple[str, ...] = ()
    head: SelectionHead | None = None


def _planning_rate(options: _Options) -> _NodeRate:
    from ettr.plan.outlook import mixed_run_rate

    rate, rating = options.rate, options.rating
    mean_s = options.simulation.own_mean_s()
    if mean_s is not None:
        return _NodeRate(_rate_of_law(mean_s))
    if options.questions.node_type:
        types = tuple(node_type(text, rating.confidence) for text in options.questions.node_type)
        return _NodeRate(mixed_run_rate(types, rating.confidence))
    if options.store is None:
        return _NodeRate(rate.planning_rate(rating.confidence))
    from ettr.analysis import Analysis
    from ettr.analysis.own_failures import stored_rate
    from ettr.report.findings import rate_cautions

    with options.on.open(options.store) as opened:
        analysis = Analysis(opened, rating.assumptions(), options.selecting.selection())
        stored = stored_rate(analysis, opened.where)
        return _NodeRate(
            stored.rate,
            stored.gpus_per_node,
            stored.own,
            rate_cautions(analysis),
            analysis.selection_head,
        )


def _rate_of_law(mean_s: float) -> PlanningRate:
    from ettr.plan.outlook import PER_NODE_DAYS, typed_rate

    if not math.isfinite(mean_s):
        raise UsageError("--law: these nodes never fail, so there is nothing to plan for")
    rate = typed_rate(PER_NODE_DAYS * SECONDS_PER_DAY / mean_s)
    meaning = (
        f"The failure rate is one in the mean life of the law ({mean_s / SECONDS_PER_DAY:.3g} "
        "days), which has no interval here."
    )
    return replace(rate, meaning=meaning)


def _show(
    made: RunPlan, html: Path | None, printing: Answering, head: SelectionHead | None
) -> None:
    from ettr.plan.outlook import without_ends
    from ettr.report.sections.plan import plan_section

    shown = made if printing.as_text else without_ends(made)
    printing.show("ettr-plan", shown, plan_section, head=head)
    if html is not None and printing.as_text:
        say(f"\nPlanner page: {html}")


OptionsT = TypeVar("OptionsT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Times by the option that they replace, in seconds.

    Attributes:
        source: The file.
        times_s: `write`, `restart`, `replace`, `step`; what was not met is left out.
    """

    source: str
    times_s: Mapping[str, float]

    def into(self, options: OptionsT) -> OptionsT:
        """Options with the measured times where nothing was typed."""
        from dataclasses import fields, replace

        open_ones = {
            field.name: f"{self.times_s[field.name]!r}s"
            for field in fields(options)
            if field.name in self.times_s and getattr(options, field.name) is None
        }
        return replace(options, **open_ones)

    def words(self, used: frozenset[str]) -> tuple[str, ...]:
        """What was taken from the file, in a sentence.

        Args:
            used: Options whose value came from it.
        """
        from ettr.words import spell

        listed = ", ".join(
            f"--{name} {spell(at_s)}" for name, at_s in self.times_s.items() if name in used
        )
        if not listed:
            return (f"Nothing in {self.source} was needed: what it measured was typed as well.",)
        return (
            f"Measured, not assumed ({self.source}): {listed}. A run of another size may take "
            "longer.",
        )


def measured_costs(path: Path) -> MeasuredCosts:
    """Costs from the record of a run: `measured.json` next to its checkpoints, or progress.jsonl.

    Raises:
        UsageError: it is neither, or nothing in it was timed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--measured {path}: cannot read it ({error})") from error
    times = _of_timings(text) or _of_progress(path)
    known = {name: at_s for name, at_s in times.items() if at_s is not None and at_s > 0}
    if not known:
        raise UsageError(
            f"--measured {path}: it times no step, save or restart; give measured.json "
            "from a checkpoint folder of ettr.elastic, or progress.jsonl of the recorder"
        )
    return MeasuredCosts(str(path), known)


def _of_timings(text: str) -> dict[str, float | None] | None:
    """Times of `measured.json`; None where the text is not that."""
    from ettr.recovery.restore_costs import RunTimings

    try:
        raw = json.loads(text)
        timed = RunTimings.from_dict(raw) if isinstance(raw, dict) and "restores" in raw else None
    except ValueError:
        return None
    return None if timed is None else {"step": timed.step_s, "replace": timed.regroup_s}


def _of_progress(path: Path) -> dict[str, float | None]:
    from ettr.errors import EttrError
    from ettr.progress.goodput import goodput_of_file
    from ettr.recovery.restore_costs import measured_by

    try:
        run = measured_by(goodput_of_file(path))
    except (EttrError, ValueError):
        return {}
    return {"step": run.step_s, "write": run.save_stall_s, "restart": run.restart_s}
