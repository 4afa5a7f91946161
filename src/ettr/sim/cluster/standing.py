"""How far a scenario is to be believed: what each answer of a simulation says about it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, Literal

from ettr.sim.cluster.scenario import (
    ASKED,
    NEVER_VALIDATED,
    QUANTITIES,
    SAVES,
    ClusterScenario,
    Validation,
    parts_of,
)

Verdict = Literal["passed", "failed", "not validated"]
_LATER = (
    *("write_s", "crash_loop_share", "mean_crash_loop_tries", "mean_crash_loop_s"),
    *("failed_share", "cancelled_share", "policy", "latent_s"),
)
"""Values that scenarios had not when numbers always counted; absent, they change nothing."""


@dataclass(frozen=True, slots=True)
class ScenarioStanding:
    """What a back-test says of a scenario, if there was one of these values."""

    verdict: Verdict
    sentence: str
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    not_validated: tuple[str, ...]


def values_digest(scenario: ClusterScenario) -> str:
    """SHA-256 of the values of a cluster and their intervals; name, period, sources are left out.

    Values that equal their defaults are left out, too: a field that a later version adds so does
    not change the digest of files that are older than it. A back-test draws from the intervals:
    wider ones let more pass.
    """
    return _sha256([*_values_without_defaults(scenario), *_interval_lines(scenario)])


def _values_without_defaults(scenario: ClusterScenario) -> list[str]:
    return _value_lines(scenario, lambda field, value: value == field.default)


def _interval_lines(scenario: ClusterScenario) -> list[str]:
    """The interval of each value, in one order whatever that of the file."""
    return [
        f"{key} from {low!r} to {high!r}"
        for key, (low, high) in sorted(scenario.intervals.items())
        if key.partition(".")[0] not in ASKED
    ]


def _older_digests(scenario: ClusterScenario) -> tuple[str, ...]:
    """The same as older files have it, without intervals: as numbers always counted, and later."""
    with_numbers = _value_lines(
        scenario,
        lambda field, value: value == "" or (field.name in _LATER and value == field.default),
    )
    return _sha256(with_numbers), _sha256(_values_without_defaults(scenario))


def _value_lines(
    scenario: ClusterScenario, is_left_out: Callable[[Field[Any], object], bool]
) -> list[str]:
    return [
        f"{where}.{one.name}={getattr(part, one.name)!r}"
        for where, part in parts_of(scenario)
        if where not in ASKED
        for one in fields(part)
        if not is_left_out(one, getattr(part, one.name))
    ]


def _sha256(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def standing_of(scenario: ClusterScenario, replayed: Collection[str] = ()) -> ScenarioStanding:
    """How far a scenario is to be believed.

    Args:
        replayed: What is not drawn (`Replay.what`). A back-test draws all of it: that a scenario
            failed holds with a replay, too, and that it passed does not.
    """
    found = scenario.validation
    untested = (*QUANTITIES, *NEVER_VALIDATED)
    if found is None:
        words = (
            f"NOT VALIDATED: no back-test has compared {scenario.name} with a real cluster "
            "(ettr simulate backtest does)."
        )
        return ScenarioStanding("not validated", words, (), (), untested)
    if why_not := _why_not_these(scenario, found):
        return ScenarioStanding("not validated", f"NOT VALIDATED: {why_not}", (), (), untested)
    if replayed and found.passed and not found.failed:
        what = " and ".join(replayed)
        words = (
            f"NOT VALIDATED with {what} that are replayed: {scenario.name} passed its "
            f"back-test with {what} that were drawn ({_when(found)})."
        )
        return ScenarioStanding("not validated", words, (), (), untested)
    judged = {*found.passed, *found.failed}
    rest = tuple(name for name in untested if name not in judged)
    if not found.passed and not found.failed:
        words = f"NOT VALIDATED: the back-test against {found.store} could compare nothing."
        return ScenarioStanding("not validated", words, (), (), rest)
    return ScenarioStanding(
        "failed" if found.failed else "passed",
        _sentence(found, scenario.name),
        found.passed,
        found.failed,
        rest,
    )


def _why_not_these(scenario: ClusterScenario, found: Validation) -> str:
    """Why the verdict is not one of these values, in a sentence; empty where it is."""
    if found.values_sha256 == values_digest(scenario):
        return ""
    if found.values_sha256 not in _older_digests(scenario):
        return (
            f"the values of {scenario.name} or their intervals are not those that were back-tested "
            f"against {found.store}; back-test it again."
        )
    if not _interval_lines(scenario):
        return ""
    return (
        f"the verdict of {scenario.name} is of an earlier version of ettr, which did not keep "
        f"the intervals that were back-tested against {found.store}; back-test it again."
    )


def _sentence(found: Validation, name: str) -> str:
    words = _verdict_words(found, name)
    if not found.simulated:
        return words
    return f"{words} {found.store} is not a real cluster. {found.simulated}"


def _verdict_words(found: Validation, name: str) -> str:
    when = _when(found)
    if found.failed:
        return (
            f"FAILED ITS BACK-TEST: {name} does not predict {', '.join(found.failed)} ({when}); "
            "do not rely on answers that depend on these."
        )
    rest = "" if SAVES in found.passed else ", except checkpoints (no training recorded them)"
    return f"Back-tested{rest}: {name} predicts what was held back ({when})."


def _when(found: Validation) -> str:
    itself = ", SIMULATED itself" if found.simulated else ""
    return f"{found.store}, {found.held_back_from} until {found.held_back_until}{itself}"


def standing_lines(standing: ScenarioStanding) -> tuple[str, ...]:
    """The same for a reader: the verdict, and what is not validated."""
    made = [standing.sentence]
    if standing.passed:
        made.append(f"Passed: {', '.join(standing.passed)}.")
    made.append(f"Not validated: {'; '.join(standing.not_validated)}.")
    return tuple(made)
