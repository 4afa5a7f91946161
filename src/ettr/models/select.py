"""Which failure model to believe, given the data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.models.base import FEW_FAILURES, FailureModel, Fit
from ettr.models.data import Counts, Lifetimes
from ettr.models.registry import count_models, lifetime_models

__all__ = ["Comparison", "compare_models", "count_models", "lifetime_models"]

_WORTH = 2.0
"""How much AIC a model must gain over the simplest to be preferred to it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Models fitted to the same data, the preferred one first.

    Attributes:
        weights: Akaike weight of each, as likely as the data make it among these.
        best: The preferred fit: the simplest one unless another gains two units of AIC.
    """

    fits: tuple[Fit, ...]
    weights: tuple[float, ...]
    best: Fit
    meaning: str


def compare_models(
    data: Lifetimes | Counts,
    models: Sequence[FailureModel[Lifetimes]] | Sequence[FailureModel[Counts]] | None = None,
    confidence: float = CONFIDENCE,
) -> Comparison:
    """All models fitted to the same data, and which to prefer.

    Below ten failures the data cannot decide between models: the simplest is preferred and the
    meaning says so.

    Raises:
        UsageError: no models.

    Source:
        Burnham and Anderson (2002), Model Selection and Multimodel Inference, section 2.9.
    """
    fits: list[Fit]
    if models is not None:
        fits = [model.fit(data, confidence) for model in models]  # type: ignore[arg-type]
    elif isinstance(data, Counts):
        fits = [model.fit(data, confidence) for model in count_models()]
    else:
        fits = [model.fit(data, confidence) for model in lifetime_models()]
    if not fits:
        raise UsageError("no models to compare; give at least one, the simplest first")
    simplest = fits[0]
    failures = simplest.rate.failures
    if failures < FEW_FAILURES:
        weights = tuple(1.0 if fit is simplest else 0.0 for fit in fits)
        return Comparison(
            tuple(fits),
            weights,
            simplest,
            f"{failures} failure{' is' if failures == 1 else 's are'} too few to decide between "
            f"models ({FEW_FAILURES} are needed): the {simplest.model} model is used as the "
            "simplest.",
        )
    return _by_aic(fits)


def _by_aic(fits: Sequence[Fit]) -> Comparison:
    """The fits in order of AIC; the first given, the simplest, wins unless another gains enough."""
    simplest = fits[0]
    aic = [math.inf if fit.aic is None else fit.aic for fit in fits]
    least = min(aic)
    best = simplest if aic[0] - least < _WORTH else fits[aic.index(least)]
    likely = [math.exp(-0.5 * (value - least)) for value in aic]
    order = sorted(range(len(fits)), key=lambda i: (fits[i] is not best, aic[i]))
    lead = (
        f"The {best.model} model is preferred as the simplest: no other gains {_WORTH:g} units of "
        "AIC."
        if best is simplest
        else f"The {best.model} model explains the data better than the {simplest.model} one "
        f"(AIC lower by {aic[0] - least:.1f})."
    )
    doubt = ""
    if best.goodness is not None and best.goodness.p_value < 0.01:
        doubt = (
            " Its own test still rejects it (p < 0.01): treat what follows from it as approximate."
        )
    return Comparison(
        tuple(fits[i] for i in order),
        tuple(likely[i] / sum(likely) for i in order),
        best,
        lead + doubt,
    )
