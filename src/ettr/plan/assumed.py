"""Inputs of the ranking that nobody gave: what is assumed for each, and the range it may lie in.

A range is where published systems lie, not an interval of confidence. An input that the user types
or has measured has no range here: it is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from ettr.errors import UsageError
from ettr.plan.run import RunShape
from ettr.plan.schemes import SCHEMES, Domain, JobShape, Scheme, Synchronous
from ettr.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ettr.words import significant, spell

Shares = Mapping[str, float]
"""Share of the failures by what they take down, by `Domain.key`."""

JOB_SHARE = "failure_shares"
"""The assumption that every failure takes down one node and none the whole job."""


def _gigabytes_per_s(value: float) -> str:
    return f"{significant(value / 1e9)} GB/s"


def _gigabytes(value: float) -> str:
    return f"{significant(value / 1e9, 4)} GB"


def _plain(value: float) -> str:
    return significant(value)


@dataclass(frozen=True, slots=True)
class Assumption:
    """One assumed input of the ranking.

    Attributes:
        name: A field of `JobShape`, `JOB_SHARE`, or a field of a scheme.
        two_valued: It is yes (1) or no (0), and nothing between.
    """

    name: str
    scheme: str | None
    label: str
    value: float
    low: float
    high: float
    why: str
    two_valued: bool = False
    whole: bool = False

    def spelled(self, value: float) -> str:
        """A value of it, with its unit."""
        if self.two_valued:
            return "yes" if value else "no"
        if self.whole and value != int(value):
            return f"{math.floor(value)} to {math.ceil(value)}"
        return _SPELLED.get(self.name, spell if self.name.endswith("_s") else _plain)(value)


_SPELLED: Mapping[str, Callable[[float], str]] = {
    "network_bytes_per_s": _gigabytes_per_s,
    "device_bytes_per_s": _gigabytes_per_s,
    "host_bytes": _gigabytes,
}


@dataclass(frozen=True, slots=True)
class _Range:
    label: str
    low: float
    high: float
    why: str


JOB_RANGES: Mapping[str, _Range] = {
    "restart_s": _Range(
        "--restart",
        SECONDS_PER_MINUTE,
        30 * SECONDS_PER_MINUTE,
        "published: under 2 min (HyperPod, checkpointless), 3 to 10 min (FT-HSDP), 15 to 30 min "
        "(HyperPod, before)",
    ),
    "replace_s": _Range(
        "--replace",
        10.0,
        5 * SECONDS_PER_MINUTE,
        "published: under 40 s (DeadPool) to 150 s (FlashRecovery); as long as a restart where the "
        "process group is formed again",
    ),
    "network_bytes_per_s": _Range(
        "--network", 12.5e9, 400e9, "one port of 100 Gb/s to eight of 400 Gb/s"
    ),
    "device_bytes_per_s": _Range(
        "--device", 25e9, 500e9, "shared PCIe 4.0 to eight PCIe 5.0 x16 links"
    ),
    "host_bytes": _Range("--host-memory", 100e9, 2e12, "nodes of 0.5 to 4 TB, part of it free"),
    "durable_period_s": _Range(
        "--durable-every", 15 * SECONDS_PER_MINUTE, 4 * SECONDS_PER_HOUR, "a choice of the site"
    ),
    "one_writer_share": _Range(
        "--one-writer-share", 0.1, 1.0, "one stream seldom fills the storage (PCcheck)"
    ),
}

SCHEME_RANGES: Mapping[str, tuple[float, float, str]] = {
    "iteration_cost_share": (
        0.0,
        0.7,
        "nothing (CPR's assumption) to 0.7 (seen with an untuned learning rate)",
    )
}
_WHOLE_JOB_AT_MOST = 0.2
_FACTOR = 2.0
_STEADY_AT_MOST = 0.02


def assumptions_of(
    job: JobShape,
    schemes: Sequence[Scheme],
    assumed: frozenset[str],
    given: frozenset[SchemeInput] = frozenset(),
) -> tuple[Assumption, ...]:
    """The assumptions behind a ranking."""
    found = [
        Assumption(name, None, one.label, value, min(one.low, value), max(one.high, value), one.why)
        for name, one in JOB_RANGES.items()
        if name in assumed
        for value in (float(getattr(job, name)),)
    ]
    if JOB_SHARE in assumed:
        found.append(
            Assumption(
                JOB_SHARE,
                None,
                "share of whole-job failures (--failure-shares)",
                0.0,
                0.0,
                _WHOLE_JOB_AT_MOST,
                "storage, network and scheduler faults take down more than a node",
            )
        )
    for scheme in schemes:
        known = {one.field for one in given if one.scheme == scheme.name}
        found.extend(one for one in _of_scheme(scheme) if one.name not in known)
    return tuple(found)


def _of_scheme(scheme: Scheme) -> Iterator[Assumption]:
    yield from _ungiven(scheme)
    typed: Any = scheme
    for field in fields(typed):
        # a time that was published was measured on some size, and is taken to hold at this one
        if field.name.endswith("_s") and field.name not in scheme.assumed:
            value = float(getattr(scheme, field.name))
            yield Assumption(
                field.name,
                scheme.name,
                _label(scheme, field.name),
                value,
                value / _FACTOR,
                value * _FACTOR,
                "published for another size; half to twice",
            )


def _label(scheme: Scheme, field: str) -> str:
    """An input as it is typed."""
    return f"{ASSUME} {SchemeInput(scheme.name, field).name}"


def _ungiven(scheme: Scheme) -> Iterator[Assumption]:
    for name in scheme.assumed:
        given = getattr(scheme, name)
        value, label = float(given), _label(scheme, name)
        known = SCHEME_RANGES.get(name)
        if isinstance(given, bool):
            low, high, why = 0.0, 1.0, "a choice of the site"
        elif known is not None:
            low, high, why = known
        elif value == 0.0:
            low, high, why = 0.0, _STEADY_AT_MOST, "no source gives it; up to 2 %"
        else:
            low, high, why = value / _FACTOR, value * _FACTOR, "no source gives it; half to twice"
        if name.endswith("share"):
            high = min(high, 1.0)
        ends = min(low, value), max(high, value)
        two_valued = isinstance(given, bool)
        whole = isinstance(given, int) and not two_valued
        yield Assumption(name, scheme.name, label, value, *ends, why, two_valued, whole)


@dataclass(frozen=True, slots=True)
class Setting:
    """A scheme, a job and shares of failures under some values of the assumptions."""

    scheme: Scheme
    job: JobShape
    shares: Shares

    def under(self, assumption: Assumption, value: float) -> Setting:
        """The same with one assumption at another value; itself where it does not concern it."""
        if assumption.scheme is not None:
            if assumption.scheme != self.scheme.name:
                return self
            typed: Any = self.scheme
            kind = type(getattr(typed, assumption.name))
            fitting = round(value) if kind is int else kind(value)
            return replace(self, scheme=replace(typed, **{assumption.name: fitting}))
        if assumption.name == JOB_SHARE:
            kept = {key: (1.0 - value) * share for key, share in self.shares.items()}
            kept[Domain.JOB.key] = kept.get(Domain.JOB.key, 0.0) + value
            return replace(self, shares=kept)
        to: dict[str, Any] = {assumption.name: value}
        return replace(self, job=replace(self.job, **to))


ASSUME = "--assume"
InputValue = bool | int | float


class InputKind(StrEnum):
    """What the value of an input is; worded for a message."""

    TIME = "a time, such as 40s"
    YES_OR_NO = "yes or no"
    WHOLE = "a whole number"
    NUMBER = "a number"


@dataclass(frozen=True, slots=True)
class SchemeInput:
    """A field of a scheme."""

    scheme: str
    field: str

    @property
    def name(self) -> str:
        """As it is typed: `hot-swap.swap`."""
        return f"{self.scheme}.{self.field.removesuffix('_s')}".replace(" ", "-").replace("_", "-")


@dataclass(frozen=True, slots=True)
class ChosenSchemes:
    """The schemes to rank, and those of their inputs that the user gave.

    An input that was given is taken as it is: no assumption is made of it.
    """

    schemes: tuple[Scheme, ...] = SCHEMES
    given: frozenset[SchemeInput] = frozenset()


def inputs_of(schemes: Sequence[Scheme] = SCHEMES) -> dict[str, SchemeInput]:
    """All inputs of schemes by the names that are typed."""
    found = [SchemeInput(scheme.name, field) for scheme in schemes for field in values_of(scheme)]
    return {one.name: one for one in found}


def values_of(scheme: Scheme) -> dict[str, InputValue]:
    """The inputs of a scheme, by field."""
    typed: Any = scheme
    return {field.name: getattr(scheme, field.name) for field in fields(typed)}


def kind_of(one: SchemeInput) -> InputKind:
    """What its value is."""
    (value,) = (values_of(s)[one.field] for s in SCHEMES if s.name == one.scheme)
    if isinstance(value, bool):
        return InputKind.YES_OR_NO
    if isinstance(value, int):
        return InputKind.WHOLE
    return InputKind.TIME if one.field.endswith("_s") else InputKind.NUMBER


def with_inputs(values: Mapping[SchemeInput, InputValue]) -> ChosenSchemes:
    """The schemes with some inputs at other values.

    Raises:
        UsageError: a value that an input cannot have.
    """
    schemes = list(SCHEMES)
    for one, value in values.items():
        _check(one, value)
        place = next(i for i, scheme in enumerate(schemes) if scheme.name == one.scheme)
        typed: Any = schemes[place]
        schemes[place] = replace(typed, **{one.field: value})
    return ChosenSchemes(tuple(schemes), frozenset(values))


def _check(one: SchemeInput, value: InputValue) -> None:
    # a parity over one node is a copy
    least = {"group_nodes": 2, "n_copies": 1, "most_under_way": 1}.get(one.field, 0)
    most = 1.0 if one.field.endswith("_share") else math.inf
    if not least <= value <= most or math.isinf(value):
        wanted = f"from {least} to 1" if most == 1.0 else f"{least} or more"
        raise UsageError(f"{ASSUME} {one.name}={value:g}: give {wanted}")


# -- the plain run of a job whose state is known: how long a checkpoint takes follows from its
# size
# It is the run of the synchronous scheme, so that the head of a plan and that row of the schemes
# give one answer.


def run_with_state(
    shape: RunShape, job: JobShape, *, write_typed: bool
) -> tuple[RunShape, tuple[str, ...]]:
    """The run with the write and the restart that its state takes, and sentences that say so."""
    terms = Synchronous().terms(job)
    restart_s = terms.responses[Domain.JOB].restart_s
    size = f"{_spelled_bytes(job.state_bytes)} at {_spelled_bytes(job.storage_bytes_per_s)}/s"
    notes = [
        f"The restart of {spell(restart_s)} is {spell(job.restart_s)} (--restart) and the load of "
        f"{size}."
    ]
    if not write_typed:
        notes.insert(
            0, f"--write not given: {spell(terms.stall_s)}, the copy and the write of {size}."
        )
        return replace(shape, write_s=terms.stall_s, restart_s=restart_s), tuple(notes)
    if abs(shape.write_s / terms.stall_s - 1.0) > 0.01:
        notes.insert(
            0,
            f"--write {spell(shape.write_s)} was given, but {size} takes {spell(terms.stall_s)}: "
            "the head uses the first, the schemes the second; leave --write out for one answer.",
        )
    return replace(shape, restart_s=restart_s), tuple(notes)


def _spelled_bytes(n_bytes: float) -> str:
    """A size in the unit that fits it: `800 GB`, `5.7 TB`."""
    for unit_bytes, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if n_bytes >= unit_bytes:
            value = n_bytes / unit_bytes
            return f"{significant(value)} {name}" if value < 1000 else f"{value:,.0f} {name}"
    return f"{significant(n_bytes)} B"
