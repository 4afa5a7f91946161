"""Every failure model that is compared with others or chosen by name: one line each.

The keys are what `ettr project --model` takes; a model's module is imported when it is used. The
simplest model comes first: it is preferred unless another explains the data better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.models.base import FailureModel, Fit
    from ettr.models.data import Counts, Lifetimes
    from ettr.models.law import LifeLaw
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
CALENDAR_MODELS: Mapping[str, str] = {
    "piecewise": "ettr.models.piecewise:PiecewiseConstant",
}
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
    """The model by its key in `MODELS`.

    Raises:
        UsageError: there is none.
    """
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
