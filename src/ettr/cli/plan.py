"""`ettr plan`: what a run will take, from a store's failure rate or from typed numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli import rates
from ettr.cli.groups import Input, OptionGroup, TypedOptions, needs
from ettr.cli.output import Answering, check_writable, say
from ettr.cli.rates import SchemeOptions
from ettr.cli.selecting import OnEngine, PriceOption, Selecting, price
from ettr.defaults import CONFIDENCE, GPUS_PER_NODE
from ettr.errors import UsageError
from ettr.files import write_text
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ettr.analysis.own_failures import OwnFailures
    from ettr.analysis.selecting import SelectionHead
    from ettr.models.data import LifeLaw, NodeRepair
    from ettr.plan.network import LinkFaults
    from ettr.plan.outlook import PlanningRate, RunPlan
    from ettr.plan.questions import Gate, NodeType, PhaseLength, Questions
    from ettr.plan.renewal import MaintenancePlan
    from ettr.plan.run import PlannedRun, RunShape, SimulatedRun
    from ettr.sim.one_run import Bursts, PlannedSimulation


_RAREST, _MOST_OFTEN = 1e-16, 1e4  # per second
_RATE_S = {"day": SECONDS_PER_DAY, "week": 7 * SECONDS_PER_DAY, "month": 30 * SECONDS_PER_DAY}


@dataclass(frozen=True, slots=True)
class PlanQuestions(OptionGroup):
    """What is asked of a plan besides its ETTR."""

    gpu_hour_price: PriceOption = None
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            metavar="TIME",
            help="Time budget: find the smallest size at which the work (--gpus for --days) "
            "ends in time.",
        ),
    ] = None
    chance: Annotated[
        float | None,
        typer.Option(
            "--chance",
            metavar="SHARE",
            help=f"Probability of ending in time, for --within; default {CONFIDENCE:g}.",
        ),
    ] = None
    repair: Annotated[
        str | None,
        typer.Option(
            "--repair", metavar="TIME", help="Mean repair time, for --spares or --within."
        ),
    ] = None
    phases: Annotated[
        str | None,
        typer.Option(
            "--phases",
            metavar="LIST",
            help="Phases of a run that grows or shrinks, as GPUs and productive time: "
            "4096:10d,16384:44d.",
        ),
    ] = None
    maintenance: Annotated[
        str | None,
        typer.Option("--maintenance", metavar="TIME/TIME", help="Planned stops: 4h/30d."),
    ] = None
    gate: Annotated[
        str | None,
        typer.Option("--gate", metavar="TIME", help="Length of a test of the run's use."),
    ] = None
    doomed: Annotated[
        str | None,
        typer.Option("--doomed", metavar="RATE", help="How often a run fails so: 0.8/week."),
    ] = None
    catch: Annotated[
        float | None,
        typer.Option("--catch", metavar="SHARE", help="Probability that a gate finds it."),
    ] = None
    bad_links: Annotated[
        str | None,
        typer.Option(
            "--bad-links",
            metavar="K/N",
            help="Bad uplinks out of all uplinks of the cluster: how much slower steps get.",
        ),
    ] = None
    routing: Annotated[
        str | None,
        typer.Option(
            "--routing",
            metavar="static|adaptive|removal",
            help="With --bad-links: how the network routes flows; default static.",
        ),
    ] = None
    link_goodput: Annotated[
        float | None,
        typer.Option(
            "--link-goodput",
            metavar="SHARE",
            help="With --bad-links: bandwidth of a bad link over that of a good one; default 0.25.",
        ),
    ] = None
    exposed_share: Annotated[
        float | None,
        typer.Option(
            "--exposed-share",
            metavar="SHARE",
            help="With --bad-links: share of a step that waits for collectives; default 0.3.",
        ),
    ] = None
    node_type: Annotated[
        list[str] | None,
        typer.Option(
            "--node-type",
            metavar="NAME=NODES@RATE",
            help="Mixed run: nodes of one type at failures per 1,000 node-days, or at "
            "failures over node-days: a=1024@6.5, b=512@40/12000; repeatable.",
        ),
    ] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the formulas with their numbers.")
    ] = False

    def asked(
        self,
        gpus_per_node: int,
        confidence: float,
        *,
        keep_interval: bool,
        repair_used: bool = False,
    ) -> Questions:
        """The questions, checked.

        Args:
            gpus_per_node: Of the run.
            confidence: Of the intervals of rates.
            keep_interval: The checkpoint interval was typed and holds at every size.
            repair_used: A simulation uses the repair time.

        Raises:
            UsageError: one cannot be understood.
        """
        from ettr.plan.questions import Questions
        from ettr.plan.wallclock import TimeBudget

        idle = [
            flag
            for flag, value, used in (
                ("--chance", self.chance, False),
                ("--repair", self.repair, repair_used),
            )
            if value is not None and self.within is None and not used
        ]
        if idle:
            also = " (--repair: or --spares)" if "--repair" in idle else ""
            raise UsageError(f"{', '.join(idle)} would change nothing: give --within as well{also}")
        budget = None
        if self.within is not None:
            budget = TimeBudget(
                q.seconds("--within", self.within),
                CONFIDENCE if self.chance is None else self.chance,
                q.if_typed(q.seconds, "--repair", self.repair),
                keep_interval,
            )
        return Questions(
            price=None if self.gpu_hour_price is None else price(self.gpu_hour_price),
            budget=budget,
            phases=() if self.phases is None else phase_lengths(self.phases, gpus_per_node),
            maintenance=None if self.maintenance is None else maintenance(self.maintenance),
            gate=gate(self.gate, self.doomed, self.catch),
            links=self._links(),
            node_types=tuple(node_type(text, confidence) for text in self.node_type or ()),
            formulas=self.explain,
        )

    def _links(self) -> LinkFaults | None:
        """Bad links of the cluster; None where none are given."""
        given = {
            "routing": self.routing,
            "goodput": self.link_goodput,
            "exposed_share": self.exposed_share,
        }
        typed = {name: value for name, value in given.items() if value is not None}
        if self.bad_links is None:
            if typed:
                raise UsageError(
                    "--routing, --link-goodput and --exposed-share would change nothing: give "
                    "--bad-links as well"
                )
            return None
        from ettr.plan.network import LinkFaults, Routing

        found = re.fullmatch(r"([0-9]{1,8})/([0-9]{1,8})", self.bad_links)
        if found is None:
            raise UsageError(
                f"--bad-links {q.shortened(self.bad_links)}: give bad uplinks over all "
                "uplinks of the cluster, such as 4/640"
            )
        if self.routing is not None:
            typed["routing"] = q.one_of("--routing", self.routing, Routing)
        return LinkFaults(int(found[1]), int(found[2]), **typed)  # type: ignore[arg-type]


def phase_lengths(text: str, gpus_per_node: int) -> tuple[PhaseLength, ...]:
    """Phases such as `4096:10d,16384:44d`, GPUs and productive time of each.

    Raises:
        UsageError: one is malformed.
    """
    from ettr.plan.questions import PhaseLength
    from ettr.plan.run import nodes_of

    found = []
    for part in text.split(","):
        gpus, colon, length = part.partition(":")
        if not colon:
            raise UsageError(f"--phases {text!r}: {part!r} has no time; write 4096:10d,16384:44d")
        (n_gpus,) = q.whole_numbers("--phases", gpus)
        found.append(PhaseLength(nodes_of(n_gpus, gpus_per_node), q.seconds("--phases", length)))
    return tuple(found)


def maintenance(text: str) -> MaintenancePlan:
    """Planned stops such as `4h/30d`: their length, and the time from one to the next.

    Raises:
        UsageError: it is malformed, or the stops leave no time.
    """
    from ettr.plan.renewal import MaintenancePlan

    length, slash, every = text.partition("/")
    if not slash:
        raise UsageError(
            f"--maintenance {text!r}: give the length of a stop and the time between two, such as "
            "4h/30d"
        )
    return MaintenancePlan(q.seconds("--maintenance", length), q.seconds("--maintenance", every))


def gate(cost: str | None, doomed: str | None, catch: float | None) -> Gate | None:
    """The gate of a run; None where none is given.

    Raises:
        UsageError: one of the three is absent, malformed, or a value that no gate can have.
    """
    if cost is None and doomed is None and catch is None:
        return None
    if cost is None or doomed is None or catch is None:
        raise UsageError("--gate, --doomed and --catch go together; give all three")
    from ettr.plan.questions import Gate

    times, slash, unit = doomed.partition("/")
    try:
        rate = float(times) / _RATE_S[unit] if slash else math.nan
    except (ValueError, KeyError):
        rate = math.nan
    if not _RAREST < rate < _MOST_OFTEN:
        raise UsageError(
            f"--doomed {doomed!r}: give a number from 1e-9 to 1e9 for each "
            f"{', '.join(_RATE_S)}, such as 0.8/week"
        )
    return Gate(q.seconds("--gate", cost), rate, catch)


def node_type(text: str, confidence: float) -> NodeType:
    """A node type such as `b200=512@6.5` or, with the evidence of its rate, `b200=512@40/12000`.

    Raises:
        UsageError: it is malformed.
    """
    from ettr.estimates import Interval
    from ettr.plan.outlook import typed_rate
    from ettr.plan.questions import NodeType

    match = re.fullmatch(r"\s*([\w.-]+)=([0-9]+)@(.+)", text)
    if match is None or int(match[2]) < 1:
        raise UsageError(
            f"--node-type {text!r}: write NAME=NODES@RATE with failures per 1,000 node-days, such "
            "as b200=512@6.5, or with failures over node-days, such as b200=512@40/12000"
        )
    counted = q.failures_over_node_days(match[3])
    if counted is not None:
        from ettr.estimates.exact import FailureRate

        _, failures, node_days = counted
        rate = FailureRate(failures, node_days).interval(confidence)
        interval = rate if failures else Interval(None, rate.low, rate.high)
    else:
        try:
            interval = typed_rate(float(match[3])).per_node_day
        except ValueError:
            raise UsageError(f"--node-type {text!r}: {match[3]!r} is not a rate") from None
    return NodeType(match[1], int(match[2]), interval)


def overridden(groups: tuple[OptionGroup, ...], pairs: list[str]) -> tuple[Any, ...]:
    """Groups of options with some options set to other values, for a second plan.

    Args:
        groups: As typed for the first plan.
        pairs: Such as `restart=1min`: an option without its dashes, and its value.

    Returns:
        The groups in their order, each of its own type.

    Raises:
        UsageError: one names no option of the groups or one that two plans are not compared by, an
            option comes twice, or a value cannot be understood.
    """
    known = {
        _FLAGS.get(field.name, field.name.replace("_", "-")): (place, field.name)
        for place, group in enumerate(groups)
        # a second plan shows no answers to questions of its own
        if is_dataclass(group) and not isinstance(group, PlanQuestions)
        for field in fields(group)
    }
    changed, typed = list(groups), set[str]()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().lstrip("-")
        if not equals or name not in known:
            raise UsageError(
                f"--versus {pair!r}: write OPTION=VALUE, such as restart=1min, with an option "
                f"among {', '.join(sorted(known))}"
            )
        if name in typed:
            raise UsageError(
                f"--versus {pair!r}: {name} already has another value; the second plan "
                "takes one value per option"
            )
        typed.add(name)
        place, field_name = known[name]
        to: dict[str, Any] = {field_name: _typed(changed[place], field_name, value, pair)}
        changed[place] = replace(changed[place], **to)
    return tuple(changed)


# of a field that is not called as its option is
_FLAGS = {"per_1000_node_days": "failures-per-1000-node-days"}


def _typed(group: OptionGroup, field_name: str, value: str, pair: str) -> object:
    hint = get_type_hints(type(group))[field_name]
    if any(get_origin(kind) is list for kind in get_args(hint)):
        # one value more of an option that is repeatable
        return [*(getattr(group, field_name) or ()), value]
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    for kind in kinds:
        if kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                raise UsageError(f"--versus {pair!r}: {value!r} is not a number") from None
        if kind is str:
            return value
    raise UsageError(f"--versus {pair!r}: this option cannot differ between two plans")


# -- options of `ettr plan` that simulate the run, where the exact form does not hold --------------


_LAWS = "weibull:shape=0.7, lognormal:sigma=1, gamma-mixed:spread=0.5, constant, or a FILE.toml"
_MOST_SPARES = 100_000
_FORMS = {"weibull": "shape", "lognormal": "sigma", "gamma-mixed": "spread"}


@dataclass(frozen=True, slots=True)
class SimulationOptions(OptionGroup):
    """How nodes fail and are repaired; the run is simulated if one is given."""

    law: Annotated[
        str | None,
        typer.Option(
            "--law",
            metavar="LAW",
            help="Simulate lives of a node by a law, at the mean of the failure rate or with one "
            "of its own (mean=80d): weibull:shape=0.7, lognormal:sigma=1, gamma-mixed:spread=0.5, "
            "constant, or a FILE.toml of a fit.",
        ),
    ] = None
    bursts: Annotated[
        str | None,
        typer.Option(
            "--bursts",
            metavar="size=N,gap=TIME",
            help="Simulate failures in bursts of N on average, TIME apart.",
        ),
    ] = None
    spares: Annotated[
        int | None,
        typer.Option(
            "--spares",
            metavar="S",
            min=0,
            max=_MOST_SPARES,
            help="Simulate N spare nodes: the run stops while a failure leaves it too few.",
        ),
        needs(Input.REPAIR),
    ] = None
    detection: Annotated[
        str | None,
        typer.Option("--detection", metavar="TIME", help="Time until a failure is noticed."),
    ] = None
    repair_law: Annotated[
        str | None,
        typer.Option(
            "--repair-law",
            metavar="LAW",
            help="What a repair does to the age of a node: good-as-new (default), minimal, or "
            "the share of repairs that make it new, such as 0.6.",
        ),
        needs(Input.LAW),
    ] = None
    node_age: Annotated[
        str | None,
        typer.Option(
            "--node-age",
            metavar="TIME",
            help="Age of the nodes when the run begins, or new; default a mix of all ages.",
        ),
        needs(Input.LAW),
    ] = None
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", min=0, max=2**31, help="Of the simulation."),
        needs(Input.SIMULATION),
    ] = 1
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            metavar="ERROR",
            min=1e-5,
            max=0.1,
            help="Stop simulating when the standard error of the ETTR is this small.",
        ),
        needs(Input.SIMULATION),
    ] = 0.001

    @property
    def asked(self) -> bool:
        """Whether the run is to be simulated."""
        typed = (self.law, self.bursts, self.spares, self.detection)
        return any(value is not None for value in typed)

    def own_mean_s(self) -> float | None:
        """Mean life that the law brings with it, in seconds; None where the rate says it.

        Raises:
            UsageError: the law cannot be understood.
        """
        return None if self.law is None else _law(self.law)[2]

    def made(self, repair: str | None) -> PlannedSimulation:
        """What to simulate with.

        Args:
            repair: Mean time until a failed node is back, as typed.

        Raises:
            UsageError: an option cannot be understood.
        """
        from ettr.models.registry import model_of_key
        from ettr.sim.one_run import PlannedSimulation, Precision, RepairTime

        repair_s = None if self.spares is None else q.if_typed(q.seconds, "--repair", repair)
        time = None
        if repair_s:
            rate = {"rate": SECONDS_PER_DAY / repair_s}
            time = RepairTime(repair_s, model_of_key("constant").law_of(rate))
        life_of, words, _ = _law(self.law or "constant")
        return PlannedSimulation(
            life_of,
            words,
            _node_repair(self.repair_law),
            repair_time=time,
            spares=self.spares or 0 if time is not None else 0,
            detection_s=q.if_typed(q.seconds, "--detection", self.detection) or 0.0,
            age_s=_age_s(self.node_age),
            bursts=None if self.bursts is None else _bursts(self.bursts),
            seed=self.seed,
            precision=Precision(self.precision),
        )


def _law(text: str) -> tuple[Callable[[float], LifeLaw], str, float | None]:
    """A law by its mean, in words, and the mean that it brings with it, in seconds."""
    if text.endswith(".toml"):
        return _law_of_file(Path(text))
    name, _, rest = text.partition(":")
    values = _pairs("--law", text, rest) if rest else {}
    mean = values.pop("mean", None)
    mean_s = None if mean is None else q.seconds("--law mean", mean)
    if mean_s == 0.0:
        raise UsageError(f"--law {text!r}: has a mean life of 0; give one such as mean=80d")
    wanted = _FORMS.get(name)
    if (name not in _FORMS and name != "constant") or set(values) != {wanted} - {None}:
        raise UsageError(f"--law {text!r}: give {_LAWS}; for a mean of its own append ,mean=80d")
    form = 0.0 if wanted is None else _number("--law", text, values[wanted])
    words = "constant failure rate" if wanted is None else f"{name} lives of {wanted} {form:g}"
    return (lambda at_s: _life(name, form, at_s)), words, mean_s


def _life(name: str, form: float, mean_s: float) -> LifeLaw:
    from ettr.models.registry import law_of_age, model_of_key

    if name in ("weibull", "lognormal"):
        return law_of_age(name).law_with_mean(form, mean_s)
    rate = {"rate": SECONDS_PER_DAY / mean_s}
    return model_of_key(name).law_of(rate if name == "constant" else {**rate, "spread": form})


def _law_of_file(path: Path) -> tuple[Callable[[float], LifeLaw], str, float | None]:
    from ettr.models.law_file import read_fit
    from ettr.models.registry import life_law

    fit = read_fit(path)
    law = life_law(fit)
    return (lambda _: law), f"{fit.model} of {path.name}", law.of_node().mean_s()


def _pairs(option: str, text: str, listed: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in listed.split(",")]
    values = {name.strip(): value.strip() for name, _, value in pairs}
    if len(values) != len(pairs) or not all(values.values()):
        raise UsageError(f"{option} {text!r}: write NAME=VALUE, comma-separated, each name once")
    return values


def _number(option: str, text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"{option} {text!r}: {value!r} is not a number") from None


def _bursts(text: str) -> Bursts:
    from ettr.sim.one_run import Bursts

    values = _pairs("--bursts", text, text)
    if set(values) != {"size", "gap"}:
        raise UsageError(
            f"--bursts {text!r}: give the mean failures of a burst and the time from one to the "
            "next, such as size=4,gap=10min"
        )
    size = _number("--bursts", text, values["size"])
    return Bursts(size, q.seconds("--bursts gap", values["gap"]))


def _node_repair(text: str | None) -> NodeRepair:
    from ettr.models.data import NodeRepair, RepairLaw

    if text is None or text in list(RepairLaw):
        return NodeRepair.of(RepairLaw(text or RepairLaw.GOOD_AS_NEW))
    try:
        return NodeRepair(float(text))
    except ValueError:
        raise UsageError(
            f"--repair-law {text!r}: give good-as-new, minimal, or the share of repairs that make "
            "a node new, such as 0.6"
        ) from None


def _age_s(text: str | None) -> float | None:
    if text is None:
        return None
    return 0.0 if text == "new" else q.seconds("--node-age", text)


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
