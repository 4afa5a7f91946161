"""Fits in files that a person can read and write: TOML with units in the names, and sources."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from ettr.defaults import CONFIDENCE
from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.estimates.exact import FailureRate
from ettr.files import toml_tables, write_text
from ettr.models.base import Fit, GoodnessOfFit, Parameter
from ettr.models.registry import MODELS, model_key, model_of_key

FORMAT = "ettr failure model 1"
_SUFFIXES = {
    "s": "_s",
    "per node-day": "_per_node_day",
    "squared coefficient of variation": "_squared_cv",
    "1": "",
}
"""Units of parameters by the end of their key in a file."""
_GOODNESS = ("test", "statistic", "degrees", "p_value")


def write_fit(path: Path, fit: Fit, source: str) -> None:
    """Write a fit to a file.

    Raises:
        UsageError: the model is not registered, or a parameter has a unit that files do not know.
    """
    write_text(path, fit_text(fit, source))


def fit_text(fit: Fit, source: str) -> str:
    """The text of the file that `write_fit` writes."""
    lines = [
        "# How nodes fail, by a failure model of ettr. `source` says where a value comes from.",
        f"format = {_text(FORMAT)}",
        f"model = {_text(model_key(fit.model))}",
        f"meaning = {_text(fit.meaning)}",
        f"assumptions = [{', '.join(map(_text, fit.assumptions))}]",
        f"confidence = {fit.confidence!r}",
        f"dispersion = {_number(fit.dispersion)}",
        f"n_parameters = {fit.n_parameters}",
    ]
    if fit.log_likelihood is not None:
        lines.append(f"log_likelihood = {_number(fit.log_likelihood)}")
    lines += ["", "[evidence]", f"failures = {fit.rate.failures}"]
    lines += [f"node_days = {_number(fit.rate.node_days)}", f"source = {_text(source)}"]
    lines += ["", "[rate_per_node_day]", *_interval(fit.rate_per_node_day, source)]
    for parameter in fit.parameters:
        lines += ["", f"[parameters.{_key(parameter)}]", *_interval(parameter, source)]
    if fit.goodness is not None:
        lines += ["", "[goodness]", f"test = {_text(fit.goodness.test)}"]
        lines += [f"{name} = {_number(getattr(fit.goodness, name))}" for name in _GOODNESS[1:]]
    return "\n".join([*lines, ""])


def read_fit(path: Path) -> Fit:
    """The fit in a file of `write_fit`, or in one written by hand.

    By hand it needs `format`, `model`, and of each parameter a `value` and its `source`.

    Raises:
        UsageError: the file cannot be read, is no such file, or its values cannot be.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: cannot be read ({error}); give a TOML file of a failure model"
        ) from None
    return fit_of_text(text, str(path))


def fit_of_text(text: str, where: str = "failure model") -> Fit:
    """The fit in the text of such a file. Raises UsageError: as `read_fit`."""
    tables = toml_tables(text, where, FORMAT, "a failure model")
    try:
        return _fit(tables)
    except (UsageError, TypeError, ArithmeticError, ValueError, KeyError, AttributeError) as error:
        what = f"{error.args[0]} is absent" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{where}: {what}") from None


def _fit(tables: Mapping[str, object]) -> Fit:
    key = str(tables["model"])
    model = model_of_key(key)
    parameters = tuple(_parameters(_table(tables, "parameters")))
    law = None
    if all(one.estimate is not None for one in parameters):
        law = model.law_of({one.name: one.estimate or 0.0 for one in parameters})
    evidence = _table(tables, "evidence") if "evidence" in tables else {}
    failures, node_days = evidence.get("failures", 0), evidence.get("node_days", 0.0)
    if not isinstance(failures, int) or failures < 0 or not 0 <= _float(node_days) < math.inf:
        raise UsageError("[evidence]: give failures, a whole number, and node_days, 0 or more")
    goodness = _table(tables, "goodness") if "goodness" in tables else None
    likelihood = tables.get("log_likelihood")
    assumptions = tables.get("assumptions", [])
    if not isinstance(assumptions, list):
        raise UsageError("assumptions: give a list of sentences")
    return Fit(
        model=model.name,
        parameters=parameters,
        rate=FailureRate(failures, _float(node_days)),
        rate_per_node_day=_read_interval("rate_per_node_day", _table(tables, "rate_per_node_day"))
        if "rate_per_node_day" in tables
        else Interval.unknown(),
        log_likelihood=None if likelihood is None else _float(likelihood),
        n_parameters=int(_float(tables.get("n_parameters", len(parameters)))),
        goodness=None
        if goodness is None
        else GoodnessOfFit(
            str(goodness["test"]),
            _float(goodness["statistic"]),
            int(_float(goodness["degrees"])),
            _float(goodness["p_value"]),
        ),
        meaning=str(tables.get("meaning", f"{model.name} as written.")),
        assumptions=tuple(map(str, assumptions)),
        confidence=_float(tables.get("confidence", CONFIDENCE)),
        dispersion=_float(tables.get("dispersion", 1.0)),
        cumulative_hazard=None if law is None else law.cumulative_hazard,
    )


def _parameters(table: Mapping[str, object]) -> Iterator[Parameter]:
    for key in table:
        suffix = next((end for end in _SUFFIXES.values() if end and key.endswith(end)), "")
        unit = next(unit for unit, end in _SUFFIXES.items() if end == suffix)
        name = key.removesuffix(suffix).replace("_", " ")
        one = _table(table, key)
        if not isinstance(one.get("source"), str) or not one["source"]:
            raise UsageError(
                f'parameters.{key} has no source; say where the value comes from, such as "fit", '
                '"paper" or "assumed"'
            )
        yield Parameter.of(name, unit, _read_interval(f"parameters.{key}", one))


def _read_interval(where: str, table: Mapping[str, object]) -> Interval:
    value = table.get("value")
    if value is None:
        if "low" not in table or "high" not in table:
            raise UsageError(f"{where}: give a value, or low and high where it is not known")
        return Interval(None, _float(table["low"]), _float(table["high"]))
    at = _float(value)
    low, high = _float(table.get("low", at)), _float(table.get("high", at))
    if not low <= at <= high:
        raise UsageError(f"{where}: {at:g} lies outside {low:g} to {high:g}")
    return Interval(at, low, high)


def _table(tables: Mapping[str, object], name: str) -> Mapping[str, object]:
    table = tables[name]
    if not isinstance(table, dict):
        raise UsageError(f"{name} is {table!r}; write it as a table with a value and a source")
    return table


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise UsageError(f"{value!r} is not a number; give one")
    return float(value)


def _interval(interval: Interval, source: str) -> Iterator[str]:
    if interval.estimate is not None:
        yield f"value = {_number(interval.estimate)}"
    yield f"low = {_number(interval.low)}"
    yield f"high = {_number(interval.high)}"
    yield f"source = {_text(source)}"


def _key(parameter: Parameter) -> str:
    if parameter.unit not in _SUFFIXES or "_" in parameter.name:
        raise UsageError(
            f"{parameter.name} in {parameter.unit!r} cannot be written to a file; models in files "
            f"are {', '.join(MODELS)}"
        )
    return f"{parameter.name.replace(' ', '_')}{_SUFFIXES[parameter.unit]}"


def _number(value: float) -> str:
    return repr(int(value)) if isinstance(value, int) else repr(float(value))


def _text(value: str) -> str:
    # what JSON leaves as it is and TOML does not allow
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
