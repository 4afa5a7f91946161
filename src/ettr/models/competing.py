"""Competing risks: each symptom has its own clock, and the first to ring ends the span."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.models.base import FailureModel, Fit, Parameter, age_test, verdict
from ettr.models.constant import ConstantRate
from ettr.models.data import Floats, Lifetimes
from ettr.models.law import LifeLaw


@dataclass(frozen=True, slots=True)
class CompetingLife(LifeLaw):
    """The first of several clocks to ring, one a symptom.

    Attributes:
        by_symptom: The law of each, by symptom.
    """

    by_symptom: tuple[tuple[str, LifeLaw], ...]

    def cumulative_hazard(self, clock_s: Floats) -> Floats:
        """Expected failures up to an age in seconds, of all symptoms."""
        total = np.zeros_like(np.asarray(clock_s, dtype=np.float64))
        for _, law in self.by_symptom:
            total = total + law.cumulative_hazard(clock_s)
        return total

    def sample_by_symptom(
        self, n: int, rng: np.random.Generator, age_s: ArrayLike = 0.0
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Times until n nodes fail, in seconds, and the place of the symptom in `by_symptom`.

        Args:
            n: How many.
            rng: Source of randomness.
            age_s: Age to which the nodes have survived, one for all or shape (n,).
        """
        clocks = np.stack([law.sample(n, rng, age_s) for _, law in self.by_symptom])
        return clocks.min(axis=0), np.argmin(clocks, axis=0)


@dataclass(frozen=True, slots=True)
class CompetingRisks(FailureModel[Lifetimes]):
    """One failure model a symptom; every other symptom is censoring to it.

    Attributes:
        inner: Model of each symptom.
        symptoms: Symptoms to report even if none of them struck, so that each has an upper end.

    Source:
        Prentice et al. (1978), Biometrics 34 (cause-specific hazards).
    """

    inner: FailureModel[Lifetimes] = field(default_factory=ConstantRate)
    symptoms: tuple[str, ...] = ()

    name = "competing risks"

    def fit(self, data: Lifetimes, confidence: float = CONFIDENCE) -> Fit:
        """A fit for each symptom in `parts`, and the rate of all symptoms together.

        Raises:
            UsageError: the lifetimes carry no symptoms.
        """
        if data.symptom is None:
            raise UsageError("these lifetimes carry no symptoms; give `symptom`, one a row")
        seen = {str(symptom) for symptom in np.unique(data.symptom[data.observed])}
        symptoms = sorted(seen | set(self.symptoms))
        parts = tuple((s, self.inner.fit(data.only(s), confidence)) for s in symptoms)
        parts = tuple(sorted(parts, key=lambda part: -part[1].rate.failures))
        total = ConstantRate().fit(data, confidence)
        hazards = [fit.cumulative_hazard for _, fit in parts if fit.cumulative_hazard]

        def cumulative_hazard(clock_s: Floats) -> Floats:
            return (
                np.sum([hazard(clock_s) for hazard in hazards], axis=0)
                if hazards
                else (np.zeros_like(clock_s))
            )

        known = [fit.log_likelihood for _, fit in parts if fit.log_likelihood is not None]
        n_parameters = sum(fit.n_parameters for _, fit in parts)
        goodness = age_test(data, cumulative_hazard, n_parameters)
        return Fit(
            model=f"{self.name}, {self.inner.name} each",
            parameters=tuple(
                Parameter.of(s, "per node-day", fit.rate_per_node_day) for s, fit in parts
            ),
            rate=data.rate,
            rate_per_node_day=total.rate_per_node_day,
            log_likelihood=math.fsum(known) if known else None,
            n_parameters=n_parameters,
            goodness=goodness,
            meaning=_meaning(parts, data.failures) + f"; {verdict(goodness)}.",
            assumptions=(
                "symptoms are independent: removing one leaves the rates of the others as they are",
                *(parts[0][1].assumptions if parts else ()),
            ),
            confidence=confidence,
            cumulative_hazard=cumulative_hazard,
            parts=parts,
        )

    def law_of(self, values: Mapping[str, float]) -> CompetingLife:
        """The law by a constant rate of each symptom, per node-day."""
        constant = ConstantRate()
        return CompetingLife(
            tuple((symptom, constant.law_of({"rate": rate})) for symptom, rate in values.items())
        )

    def law(self, fit: Fit) -> CompetingLife:
        """The law of a fit: that of each symptom, at the estimates; never of one not seen.

        Raises:
            UsageError: the fit has no parts.
        """
        if not fit.parts:
            raise UsageError(f"{fit.model} has no symptoms; fit CompetingRisks")
        return CompetingLife(
            tuple(
                (symptom, self.inner.law(part)) for symptom, part in fit.parts if part.rate.failures
            )
        )


def _meaning(parts: tuple[tuple[str, Fit], ...], failures: int) -> str:
    if not failures:
        return "Nothing failed, so no symptom has a rate"
    symptom, fit = parts[0]
    return (
        f"{symptom} leads with {fit.rate.failures} of {failures} failures; without it a node would "
        f"fail {1.0 - fit.rate.failures / failures:.0%} as often"
    )
