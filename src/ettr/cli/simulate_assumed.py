"""`--sensitivity` of `ettr simulate run` and `whatif`: what the answer owes to assumed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ettr.cli.output import complain, say
from ettr.cli.simulating import simulating_bar
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.sim.cluster.effect_sensitivity import EffectPlan, EffectSensitivity
    from ettr.sim.cluster.replay import Replay
    from ettr.sim.cluster.scenario import ClusterScenario
    from ettr.sim.cluster.sensitivity import AssumptionSensitivity


def _say_size(n: int, seeds: int, values: int) -> None:
    complain(
        f"sensitivity: {counted(n, 'simulation')}, {counted(values, 'assumed value')} halved and "
        f"made half larger with {counted(seeds, 'seed')}; --vary PATTERN takes fewer values"
    )


def effects_on_changes(
    plan: EffectPlan, seeds: range, replay: Replay, workers: int
) -> EffectSensitivity:
    """What the effect of each change owes to the assumed values."""
    from ettr.sim.cluster.effect_sensitivity import effect_sensitivity

    n = plan.simulations(len(seeds))
    _say_size(n, len(seeds), len(plan.varied))
    with simulating_bar(n, "runs") as advance:
        return effect_sensitivity(
            plan, seeds, workers=workers, replay=replay,
            progress=lambda done: advance("sensitivity", done),
        )  # fmt: skip


def check_varied(made: ClusterScenario, patterns: Sequence[str], replay: Replay) -> None:
    """Find out before the work that there is something to vary.

    Raises:
        UsageError: no assumed value of such a name can be varied.
    """
    from ettr.sim.cluster.sensitivity import no_such_value, varied_values

    varied, not_varied = varied_values(made, patterns, replay)
    if not varied:
        raise no_such_value(made, patterns, not_varied)


def effects_on_headlines(
    made: ClusterScenario, seeds: range, patterns: tuple[str, ...], replay: Replay, workers: int
) -> AssumptionSensitivity:
    """What each headline of a scenario owes to the assumed values."""
    from ettr.sim.cluster.sensitivity import n_simulations, sensitivity, varied_values

    n = n_simulations(made, patterns, len(seeds), replay)
    _say_size(n, len(seeds), len(varied_values(made, patterns, replay)[0]))
    with simulating_bar(n, "runs") as advance:
        return sensitivity(
            made, seeds, patterns=patterns, workers=workers, replay=replay,
            progress=lambda done: advance("sensitivity", done),
        )  # fmt: skip


def say_headlines(found: AssumptionSensitivity) -> None:
    """Print for each headline the value that moves it most, and where the others are."""
    from ettr.report.sections.sensitivity import headlines_section
    from ettr.report.text import section_text

    say()
    say(section_text(headlines_section(found)))
