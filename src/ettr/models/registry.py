"""Every failure model that is compared with others or chosen by name: one line each.

The keys are what `ettr project --model` takes; a model's module is imported when it is used. The
simplest model comes first: it is preferred unless another explains the data better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.models.base import FailureModel, Fit
    from ettr.models.data import Counts, LifeLaw, Lifetimes
    from ettr.models.log_location_scale import LogLocationScale


SIMPLEST = "constant"

# fitted to failures and node-days of each node
COUNT_MODELS: Mapping[str, str] = {
    "constant": "ettr.models.constant:ConstantRate",
    "gamma-mixed": "ettr.models.gamma_mixed:GammaMixed",
}
# laws of the lifetime, known up to location and scale of its logarithm
LAWS_OF_AGE: Mapping[str, str] = {
    "weibull": "ettr.models.log_location_scale:Weibull",
    "lognormal": "ettr.models.log_location_scale:Lognormal",
}
# fitted to spans on the calendar
CALENDAR_MODELS: Mapping[str, str] = {"piecewise": "ettr.models.piecewise:PiecewiseConstant"}
MODELS = (*COUNT_MODELS, *LAWS_OF_AGE, *CALENDAR_MODELS)


def count_model(name: str) -> FailureModel[Counts]:
    """The model of that name in `COUNT_MODELS`."""
    return cast("FailureModel[Counts]", _load(COUNT_MODELS[name]))


def law_of_age(name: str) -> LogLocationScale:
    """The law of that name in `LAWS_OF_AGE`."""
    return cast("LogLocationScale", _load(LAWS_OF_AGE[name]))


def count_models() -> tuple[FailureModel[Counts], ...]:
    """The models for counts over units, the simplest first."""
    return tuple(map(count_model, COUNT_MODELS))


def lifetime_models() -> tuple[FailureModel[Lifetimes], ...]:
    """The models for lifetimes, the simplest first."""
    places: Iterable[str] = (*LAWS_OF_AGE.values(), *CALENDAR_MODELS.values())
    return tuple(
        cast("FailureModel[Lifetimes]", _load(place)) for place in (COUNT_MODELS[SIMPLEST], *places)
    )


def model_of_key(key: str) -> FailureModel[Any]:
    """The model by its key in `MODELS`. Raises UsageError: there is none."""
    places = {**COUNT_MODELS, **LAWS_OF_AGE, **CALENDAR_MODELS}
    if key not in places:
        raise UsageError(f"model {key!r} is unknown; give one of {', '.join(MODELS)}")
    return cast("FailureModel[Any]", _load(places[key]))


def model_key(name: str) -> str:
    """The key in `MODELS` of the model that fits call `name`.

    Raises:
        UsageError: it is not registered.
    """
    for key in MODELS:
        if model_of_key(key).name == name:
            return key
    raise UsageError(f"{name} is no registered model by itself; those are {', '.join(MODELS)}")


def life_law(fit: Fit) -> LifeLaw:
    """The law of a fit of a registered model, to draw lives from.

    Raises:
        UsageError: the model is not registered, or a parameter is not known.
    """
    return model_of_key(model_key(fit.model)).law(fit)


def _load(place: str) -> object:
    """A new instance of the class at `module:Class`."""
    module, _, name = place.partition(":")
    model: object = getattr(import_module(module), name)()
    return model


# -- Which failure model to believe, given the data -----------------------------------------------

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
    from ettr.models.base import FEW_FAILURES
    from ettr.models.data import Counts

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
