"""Values of a scenario as a fit makes them: a number, its interval, where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from ettr.estimates import Interval
from ettr.sim.cluster.scenario import ENTRY_KEYS, ClusterScenario
from ettr.sim.cluster.scenario_parts import Part

Z90 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class Fitted:
    """One value of a scenario that logs bear."""

    value: float | str
    what: str
    low: float | None = None
    high: float | None = None

    @staticmethod
    def of(interval: Interval, what: str) -> Fitted:
        """From an interval; an end that the data do not bound is put as far as the other one."""
        value = interval.estimate or 0.0
        low, high = interval.low, interval.high
        if not math.isfinite(high):
            high = value * value / low if low > 0 else value * 10.0
        return Fitted(value, what, min(max(low, 0.0), value), max(high, value))


@dataclass(slots=True)
class ScenarioMaker:
    """Puts fitted values into a scenario, and keeps the sources of all.

    Attributes:
        not_fitted: Values that are those of the base or assumed without it, with the reason; a
            field of a list once, as `faults.*.as_new_share`.
    """

    base: ClusterScenario
    origin: str
    not_fitted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _groups: dict[str, Any] = field(default_factory=dict)
    _sources: dict[str, str] = field(default_factory=dict)
    _intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    def part(self, group: str, why_not: str = "", **values: Fitted | None) -> None:
        """Set values of a group; those that are absent or None stay the base's."""
        self._groups[group] = self._made(getattr(self.base, group), group, values, why_not)

    def entries(self, group: str, given: list[tuple[Part, dict[str, Fitted | None]]]) -> None:
        """Set a list: for each entry a part to begin with, and the values that are known."""
        self._groups[group] = tuple(
            self._made(part, f"{group}[{i + 1}]", values, "")
            for i, (part, values) in enumerate(given)
        )

    def assumed(self, what: str) -> None:
        """Say what is not fitted."""
        self.not_fitted.append(what)

    def _made(self, part: Part, where: str, values: dict[str, Fitted | None], why: str) -> Part:
        changes: dict[str, Any] = {}
        for name in part.__dataclass_fields__:
            key = f"{where}.{name}"
            one = values.get(name)
            if one is None and getattr(part, name) == "":
                continue  # a text that a scenario may leave out
            if one is None:
                self._assume(part, where, name, values, why)
                continue
            number = one.value
            if not isinstance(number, str):
                number = round(number) if isinstance(getattr(part, name), int) else float(number)
            changes[name] = number
            self._sources[key] = f"fitted to {self.origin}: {one.what}"
            if one.low is not None and one.high is not None:
                value = float(changes[name])
                self._intervals[key] = min(float(one.low), value), max(float(one.high), value)
        return replace(part, **changes)

    def _assume(
        self, part: Part, where: str, name: str, values: dict[str, Fitted | None], why: str
    ) -> None:
        """Say of one value that it is not fitted, and whether it is the base's."""
        group, bracket, _ = where.partition("[")
        of_base = not bracket or self._is_of_base(group, part, name, values)
        as_base = f", as in {self.base.name}" if of_base else ""
        self._sources[f"{where}.{name}"] = f"assumed{as_base}"
        if not bracket:
            self.not_fitted.append(f"{where}.{name}" + (f" ({why})" if why else ""))
        elif not any(_names(one, group, name) for one in self.not_fitted):
            self.not_fitted.append(f"{group}.*.{name}")

    def _is_of_base(
        self, group: str, part: Part, name: str, values: dict[str, Fitted | None]
    ) -> bool:
        """Whether the base has that value in an entry that is named alike."""
        key = ENTRY_KEYS[group]
        fitted = values.get(key)
        named = getattr(part, key) if fitted is None else fitted.value
        return any(
            getattr(one, key) == named and getattr(one, name) == getattr(part, name)
            for one in getattr(self.base, group)
        )

    def scenario(self, name: str) -> ClusterScenario:
        """The scenario with all that was set."""
        return replace(
            self.base,
            name=name,
            sources=self._sources,
            intervals=self._intervals,
            validation=None,
            **self._groups,
        )


def _names(line: str, group: str, name: str) -> bool:
    """Whether a line on what is not fitted is of that field of a list, or of the whole list."""
    head = line.partition(" (")[0]
    if not head.startswith(f"{group}."):
        return head == group
    fields = head.removeprefix(f"{group}.").removeprefix("*.").split(", ")
    return name in {one.split(" ")[0] for one in fields}
