"""Every failure model that is compared with others or chosen by name: one line each.

The keys are what `ettr project --model` takes; a model's module is imported when it is used. The
simplest model comes first: it is preferred unless another explains the data better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ettr.models.base import FailureModel
    from ettr.models.data import Counts, Lifetimes
    from ettr.models.log_location_scale import LogLocationScale

SIMPLEST = "constant"

# fitted to failures and node-days of each node
COUNT_MODELS: Mapping[str, str] = {
    "constant": "ettr.models.constant:ConstantRate",
    "gamma-mixed": "ettr.models.gamma_mixed:GammaMixed",
}
# laws of the lifetime, known up to location and scale of its logarithm
LAWS_OF_AGE: Mapping[str, str] = {
    "weibull": "ettr.models.weibull:Weibull",
    "lognormal": "ettr.models.lognormal:Lognormal",
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


def _load(place: str) -> object:
    """A new instance of the class at `module:Class`."""
    module, _, name = place.partition(":")
    model: object = getattr(import_module(module), name)()
    return model
