"""Options of `ettr plan` that ask more: cost, time budget, phases, maintenance, node types."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import OptionGroup
from ettr.cli.pricing import PriceOption, price
from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from ettr.plan.network import LinkFaults
    from ettr.plan.questions import Gate, NodeType, PhaseLength, Questions
    from ettr.plan.renewal import MaintenancePlan


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
