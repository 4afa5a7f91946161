"""Options of `ettr plan` that simulate the run, where the exact form does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import quantities as q
from ettr.cli.groups import Input, OptionGroup, needs
from ettr.errors import UsageError
from ettr.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from ettr.models.data import LifeLaw, NodeRepair
    from ettr.sim.one_run import Bursts, PlannedSimulation

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
