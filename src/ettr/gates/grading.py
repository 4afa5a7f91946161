"""From files to grades: results of a model, and of a reference."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ettr.errors import SourceError, UsageError
from ettr.estimates.interval import Interval
from ettr.gates.grades import (
    RULES,
    GradedItem,
    GradeResult,
    GradeRule,
    Hazard,
    HazardGrade,
    counts_by_hazard,
    grade,
    rate_interval,
    taxonomy,
)

# -- results of graders: inspect-ai logs, lm-eval-harness samples, modelbench records, CSV ---------
# A file that is cut off, or whose run did not end, is refused: no part is graded in silence.


FIELDS = ("item", "template", "hazard")
_ALTERNATIVES = {
    "template": ("template", "template_id"),
    "hazard": ("hazard", "hazard_id", "hazard_category"),
    "item": ("item", "id"),
}
_WORDS = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "unsafe"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "safe"), False),
}
_OF_MODELBENCH = re.compile(r"hazard-\d\.\d-([a-z]{3})\b|safe_([a-z]{3})_hazard")
_LARGEST_MEMBER_BYTES = 256_000_000
_MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class HazardTotal:
    """Unsafe items of a hazard, of results without their items; the reference that they name."""

    unsafe: int
    items: int
    reference: float


@dataclass(frozen=True, slots=True)
class Results:
    """What a file holds.

    Attributes:
        totals: By hazard, where the file has no items; else empty.
        model: As the file names it.
        time: When the grader ran; None where the file does not say.
        references: Unsafe rates of the reference by hazard, where the file names them.
        note: What a reader of the grades must know of the file.
    """

    kind: str
    model: str
    items: tuple[GradedItem, ...]
    totals: Mapping[str, HazardTotal]
    time: str | None = None
    references: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResultForm:
    """How results are read.

    Attributes:
        fields: Names of the fields that hold the item, the template and the hazard.
        grader: Which of several graders.
        unsafe: Its value that means unsafe.
    """

    fields: Mapping[str, str]
    grader: str | None
    unsafe: str | None

    def field(self, kind: str, held: Iterable[Mapping[str, Any]], place: str) -> str:
        """The value of a field in the first place that has it.

        Raises:
            SourceError: no place has it.
        """
        names = (self.fields[kind],) if kind in self.fields else _ALTERNATIVES[kind]
        places = list(held)
        for one in places:
            for name in names:
                if one.get(name) not in (None, ""):
                    return str(one[name])
        there = sorted({name for one in places for name in one})[:_MOST_SHOWN]
        raise SourceError(
            f"{place}: has no {kind} ({' or '.join(names)}); give --fields {kind}=NAME of one of: "
            f"{', '.join(there) or 'nothing'}"
        )

    def is_unsafe(self, value: Any, place: str) -> bool:
        """Whether a score means unsafe.

        Raises:
            SourceError: it is no score, or nobody says what it means.
        """
        if isinstance(value, float) and math.isnan(value):
            raise SourceError(f"{place}: the score is NaN; grade the item again")
        if isinstance(value, dict | list) or value is None:
            raise SourceError(f"{place}: the score is {json.dumps(value)[:60]}, not a single value")
        if self.unsafe is not None:
            return _same(value, self.unsafe)
        words = str(value).lower()
        if words in ("unsafe", "safe"):
            return words == "unsafe"
        raise SourceError(
            f"{place}: the score is {value!r}; say which value means unsafe: --unsafe VALUE"
        )


def _same(value: Any, text: str) -> bool:
    try:
        return float(value) == float(text)
    except (TypeError, ValueError):
        return str(value) == text


def read_results(path: Path, reading: ResultForm) -> Results:
    """Read the results of a grader.

    Raises:
        UsageError: there is no such file.
        SourceError: it is cut off, of no known form, or of a run that did not end.
    """
    if not path.is_file():
        raise UsageError(f"{path}: is not a file; give the results of a grader")
    try:
        if zipfile.is_zipfile(path):
            found = _inspect_zip(path, reading)
        elif path.suffix == ".csv":
            found = Results("CSV", path.stem, tuple(_csv(path)), {})
        elif path.name.endswith((".jsonl.zst", ".jsonl")) and _is_journal(path):
            found = _journal(path)
        elif path.suffix == ".jsonl":
            found = _lm_eval(path, reading)
        else:
            found = _json(path, reading)
    except (UnicodeError, RecursionError) as error:
        raise SourceError(f"{path}: cannot be read as text ({error})") from None
    if not found.items and not found.totals:
        raise SourceError(f"{path}: holds no items; give the whole results")
    _check_repeats(path, found.items)
    return found


def _check_repeats(path: Path, items: Sequence[GradedItem]) -> None:
    twice = Counter((one.hazard, one.item) for one in items).most_common(1)
    if twice and twice[0][1] > 1:
        (hazard, item), times = twice[0]
        raise SourceError(
            f"{path}: item {item!r} of hazard {hazard!r} appears {times} times; give it once"
        )


def _csv(path: Path) -> Iterator[GradedItem]:
    for place, cells in _rows(path, (*FIELDS, "unsafe")):
        word = cells["unsafe"].strip().lower()
        if word not in _WORDS:
            raise SourceError(f"{place}: unsafe is {cells['unsafe']!r}; give 0 or 1")
        yield GradedItem(cells["item"], cells["template"], cells["hazard"], _WORDS[word])


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """The place and the cells of each row of a CSV; one that is cut off or lacks a cell is refused.

    Raises:
        SourceError: there is no such column, a cell is missing, or it is no CSV.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows, place = csv.reader(file, strict=True), ""
        try:
            head = next(rows, [])
            missing = [name for name in columns if name not in head]
            if missing:
                raise SourceError(
                    f"{path}, line 1: has no column {', '.join(missing)}; the columns are "
                    f"{', '.join(columns)}"
                )
            for row in filter(None, rows):
                place = f"{path}, line {rows.line_num}"
                if len(row) != len(head):
                    raise SourceError(
                        f"{place}: has {len(row)} of {len(head)} cells; the file may be cut off"
                    )
                cells = dict(zip(head, row, strict=True))
                empty = [name for name in columns if not cells[name].strip()]
                if empty:
                    raise SourceError(f"{place}: has no {' and no '.join(empty)}")
                yield place, cells
        except (UnicodeError, csv.Error) as error:
            raise SourceError(f"{path}, line {rows.line_num}: {error}") from None
    if not place:
        raise SourceError(f"{path}: has no rows; give a CSV with the columns {', '.join(columns)}")


def _parsed(text: str | bytes, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SourceError(
            f"{place}: is cut off or not JSON ({error}); give the whole file"
        ) from None


def _json(path: Path, reading: ResultForm) -> Results:
    read = _parsed(path.read_bytes(), str(path))
    if isinstance(read, dict):
        if "eval" in read and "status" in read:
            samples = read.get("samples")
            return _inspect(path, read, samples if isinstance(samples, list) else [], reading)
        if isinstance(read.get("score"), dict) or isinstance(read.get("scores"), list):
            return _modelbench(path, read)
        if "results" in read and "configs" in read:
            raise SourceError(
                f"{path}: is a summary of lm-eval-harness, without items; run it with "
                "--log_samples and give samples_TASK.jsonl"
            )
    raise SourceError(
        f"{path}: has an unknown format; give an inspect-ai log (.json, .eval), samples_*.jsonl of "
        "lm-eval-harness, a record or a journal of modelbench, or a CSV of "
        "item,template,hazard,unsafe"
    )


def _inspect_zip(path: Path, reading: ResultForm) -> Results:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [one for one in archive.infolist() if one.filename.startswith("samples/")]
            if "header.json" not in archive.namelist():
                raise SourceError(
                    f"{path}: has no header.json; its run did not end, or it is cut off"
                )
            head = _parsed(_member(archive, "header.json", path), f"{path}, header.json")
            samples = [
                _parsed(_member(archive, one.filename, path), f"{path}, {one.filename}")
                for one in names
            ]
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise SourceError(f"{path}: is cut off or not a readable archive ({error})") from None
    if not isinstance(head, dict):
        raise SourceError(f"{path}, header.json: is not an inspect-ai log")
    return _inspect(path, head, samples, reading)


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    if archive.getinfo(name).file_size > _LARGEST_MEMBER_BYTES:
        raise SourceError(f"{path}, {name}: is larger than 256 MB, the most that is read")
    return archive.read(name)


def _inspect(path: Path, log: dict[str, Any], samples: list[Any], reading: ResultForm) -> Results:
    if log.get("status") != "success":
        raise SourceError(
            f"{path}: its run did not succeed (status {log.get('status')!r}); run "
            "`inspect eval-retry` and give that log"
        )
    total = _mapping(log, "results").get("total_samples")
    if isinstance(total, int) and total != len(samples):
        raise SourceError(f"{path}: holds {len(samples)} samples of {total}; give the whole log")
    names = sorted({name for one in samples for name in _mapping(one, "scores")})
    grader = _grader(path, reading.grader, names)
    items = []
    for sample in samples:
        place = f"{path}, sample {_mapping_of(sample).get('id')!r}"
        if _mapping_of(sample).get("error"):
            raise SourceError(f"{place}: ended with an error; run it again, or take it out")
        score = _mapping(sample, "scores").get(grader)
        if not isinstance(score, dict) or "value" not in score:
            raise SourceError(f"{place}: has no score of {grader}")
        held = [_mapping(sample, "metadata"), sample]
        epoch = sample.get("epoch", 1)
        item = reading.field("item", held[::-1], place)
        items.append(
            GradedItem(
                item if epoch == 1 else f"{item}#{epoch}",
                reading.field("template", held, place),
                reading.field("hazard", held, place),
                reading.is_unsafe(score["value"], place),
            )
        )
    of_run = _mapping(log, "eval")
    made = of_run.get("created")
    time = made if isinstance(made, str) else None
    return Results("inspect-ai", str(of_run.get("model") or path.stem), tuple(items), {}, time)


def _mapping_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mapping(value: Any, name: str) -> dict[str, Any]:
    return _mapping_of(_mapping_of(value).get(name))


def _grader(path: Path, asked: str | None, names: Sequence[str]) -> str:
    if asked is not None and asked not in names:
        raise SourceError(
            f"{path}: --grader {asked} is not one of its graders ({', '.join(names) or 'none'})"
        )
    if asked is None and len(names) != 1:
        raise SourceError(
            f"{path}: has {len(names)} graders ({', '.join(names) or 'none'}); give --grader NAME"
        )
    return asked or names[0]


def _lm_eval(path: Path, reading: ResultForm) -> Results:
    items: list[GradedItem] = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            place = f"{path}, line {number}"
            if not line.strip():
                continue
            row = _parsed(line, place)
            if not isinstance(row, dict) or "doc_id" not in row:
                raise SourceError(f"{place}: is not a sample of lm-eval-harness (no doc_id)")
            listed = row.get("metrics")
            names = [str(one) for one in listed] if isinstance(listed, list) else []
            grader = _grader(path, reading.grader, names)
            if grader not in row:
                raise SourceError(f"{place}: has no score of {grader}")
            held = [_mapping(row, "doc"), row]
            item = row["doc_id"] if "item" not in reading.fields else None
            items.append(
                GradedItem(
                    str(item) if item is not None else reading.field("item", held, place),
                    reading.field("template", held, place),
                    reading.field("hazard", held, place),
                    reading.is_unsafe(row[grader], place),
                )
            )
    return Results("lm-eval-harness", path.stem, tuple(items), {})


def _lines_of(path: Path) -> Iterator[str]:
    """The lines of a text, as it is or by Zstandard."""
    if path.suffix != ".zst":
        with path.open(encoding="utf-8-sig") as file:
            yield from file
        return
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as packed:
            yield from io.TextIOWrapper(io.BufferedReader(packed), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{path}: is cut off or not packed by Zstandard ({error}); give the whole file"
        ) from None


def _is_journal(path: Path) -> bool:
    first = next(iter(_lines_of(path)), "")
    return '"message"' in first and '"timestamp"' in first


def _journal(path: Path) -> Results:
    """Items of a run of modelbench, as its journal has them, with the reference that it names."""
    model, made, has_ended, failed = "", None, False, 0
    hazards: dict[str, str] = {}
    safe: dict[tuple[str, str], Any] = {}
    finished: list[tuple[str, str]] = []
    references: dict[str, float] = {}
    for number, line in enumerate(_lines_of(path), 1):
        place = f"{path}, line {number}"
        row = _mapping_of(_parsed(line, place))
        item = str(row.get("test")), str(row.get("prompt_id"))
        match row.get("message"):
            case "starting run" | "starting calibration run":
                models = row.get("suts")
                if not isinstance(models, list) or len(models) != 1:
                    raise SourceError(f"{place}: is of several models; give the journal of one")
                model, made = str(models[0]), row.get("timestamp")
            case "hazard info":
                hazard = _hazard_of(row.get("hazard"), place)
                hazards |= dict.fromkeys(map(str, row.get("tests") or ()), hazard)
            case "measured item quality":
                safe[item] = _mapping(row, "measurements").get("is_safe")
            case "overrode item quality":
                safe[item] = _mapping(row, "new_measurements").get("is_safe")
            case "item finished":
                finished.append(item)
            case "item failed":
                failed += 1
            case "hazard scored" if isinstance(row.get("reference"), int | float):
                references[_hazard_of(row.get("hazard"), place)] = 1.0 - float(row["reference"])
            case "finished run":
                has_ended = True
    if not has_ended:
        raise SourceError(f"{path}: its run did not end; run it again and give that journal")
    if failed:
        raise SourceError(
            f"{path}: {failed} of {failed + len(finished)} items failed; run it again, its cache "
            "keeps the others"
        )
    items = [_item_of(path, test, prompt, hazards, safe) for test, prompt in finished]
    note = (
        "A journal of modelbench names no templates: each item counts as one of its own, which "
        "makes grades firmer than items that resemble each other are."
    )
    time = made if isinstance(made, str) else None
    return Results("modelbench", model or path.stem, tuple(items), {}, time, references, note)


def _hazard_of(uid: object, place: str) -> str:
    found = _OF_MODELBENCH.search(str(uid))
    if found is None:
        raise SourceError(f"{place}: {uid!r} is not a hazard of modelbench")
    return found[1] or found[2]


def _item_of(
    path: Path,
    test: str,
    prompt: str,
    hazards: Mapping[str, str],
    safe: Mapping[tuple[str, str], Any],
) -> GradedItem:
    if test not in hazards:
        raise SourceError(f"{path}: no hazard names the test {test!r}; the journal may be cut")
    score = safe.get((test, prompt))
    if not isinstance(score, int | float) or score not in (0, 1):
        raise SourceError(
            f"{path}: item {prompt!r} of {test!r} has no is_safe of 0 or 1: {score!r}"
        )
    return GradedItem(f"{test}/{prompt}", f"{test}/{prompt}", hazards[test], score == 0)


def _modelbench(path: Path, read: dict[str, Any]) -> Results:
    scores = [read["score"]] if isinstance(read.get("score"), dict) else read["scores"]
    if len(scores) != 1 or not isinstance(scores[0], dict):
        raise SourceError(f"{path}: holds the scores of {len(scores)} models; give those of one")
    totals: dict[str, HazardTotal] = {}
    listed = scores[0].get("hazard_scores")
    for one in listed if isinstance(listed, list) else []:
        definition, score = _mapping(one, "hazard_definition"), _mapping(one, "score")
        hazard = _hazard_of(definition.get("uid"), str(path))
        try:
            n_items = int(one.get("num_scored_items") or score["samples"])
            safe, standard = float(score["estimate"]), float(definition["reference_standard"])
            is_whole = n_items > 0 and 0 <= safe <= 1 and 0 <= standard <= 1
        except (KeyError, TypeError, ValueError):
            is_whole = False
        if not is_whole:
            raise SourceError(f"{path}: hazard {hazard} lacks a score, its items or a reference")
        totals[hazard] = HazardTotal(round(n_items * (1.0 - safe)), n_items, 1.0 - standard)
    sut = _mapping(scores[0], "sut")
    return Results("modelbench", str(sut.get("uid") or path.stem), (), totals)


# -- from files to grades: results of a model, and of a reference ----------------------------------


NO_CLAIM = (
    "A grade says how often one grader called answers of one set unsafe, against a reference. It "
    "says nothing about a model's safety."
)


@dataclass(frozen=True, slots=True)
class GateRun:
    """What is gated, as stated: a run, its step, the GPU-hours of the gate, the grade wanted."""

    run: str | None
    step: int | None
    gpu_hours: float | None
    wanted: str | None


def rule_of(name: str) -> GradeRule:
    """The rule of a taxonomy; that of v0.5 for a taxonomy of one's own."""
    return RULES.get(name, RULES["v0.5"])


def grade_file(
    path: Path,
    reference: str | None,
    named: str,
    reading: ResultForm,
    confidence: float,
    of: GateRun,
) -> GradeResult:
    """Grade the results in a file against a reference.

    Raises:
        UsageError: no reference, an unknown grade or taxonomy, or hazards that it does not have.
        SourceError: a file cannot be read.
    """
    hazards, rule = taxonomy(named), rule_of(named)
    if of.wanted is not None and of.wanted not in rule.grades:
        raise UsageError(f"--at-least {of.wanted}: give one of {', '.join(rule.grades)}")
    results = read_results(path, reading)
    if results.totals:
        if reference is not None:
            raise UsageError(f"--reference: {path} names its own; leave it out")
        graded, published, possible = _of_totals(results, hazards, rule)
    elif reference is None and results.references:
        known = {name: Interval(rate, rate, rate) for name, rate in results.references.items()}
        graded, published, possible = grade(results.items, known, hazards, rule, confidence)
    elif reference is None:
        raise UsageError("give --reference: results of the reference, or its rate of unsafe items")
    else:
        rates, items = _reference(reference, results, reading, confidence)
        if items:
            _check_templates(path, results.items, items)
        graded, published, possible = grade(results.items, rates, hazards, rule, confidence)
    notes = [*_notes(results, graded, hazards, reference)]
    notes += [*filter(None, [results.note]), NO_CLAIM]
    passed = None
    if of.wanted is not None:
        good = rule.grades[: rule.grades.index(of.wanted) + 1]
        passed = all(one in good for one in possible)
    return GradeResult(
        rule.name,
        confidence,
        published,
        possible[0] if len(possible) == 1 else None,
        possible,
        of.wanted,
        passed,
        of.run,
        of.step,
        of.gpu_hours,
        graded,
        tuple(notes),
        results.time,
    )


def _reference(
    text: str, results: Results, reading: ResultForm, confidence: float
) -> tuple[Mapping[str, Interval], Sequence[GradedItem]]:
    """The rates of a reference, and its items where a file has them."""
    hazards = {one.hazard for one in results.items}
    if (rate := _rate(text)) is not None:
        return dict.fromkeys(hazards, Interval(rate, rate, rate)), ()
    pairs = [part.partition("=") for part in text.split(",")]
    if all(_rate(value) is not None for _, _, value in pairs):
        rates = {name: _rate(value) or 0.0 for name, _, value in pairs}
        return {name: Interval(rate, rate, rate) for name, rate in rates.items()}, ()
    read = read_results(Path(text), reading)
    if read.totals:
        return {
            name: Interval(one.unsafe / one.items, 0.0, 1.0) for name, one in read.totals.items()
        }, ()
    counts = counts_by_hazard(read.items)
    return {name: rate_interval(one, confidence) for name, one in counts.items()}, read.items


def _rate(text: str) -> float | None:
    try:
        rate = float(text)
    except ValueError:
        return None
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"--reference {text}: give a rate of unsafe items from 0 to 1")
    return rate


def _check_templates(
    path: Path, items: Sequence[GradedItem], reference: Sequence[GradedItem]
) -> None:
    """Refuse results that lack templates of the reference, of the hazards that they have."""
    hazards = {one.hazard for one in items}
    there = {(one.hazard, one.template) for one in items}
    missing = sorted(
        {(one.hazard, one.template) for one in reference if one.hazard in hazards} - there
    )
    if missing:
        hazard, template = missing[0]
        raise UsageError(
            f"{path}: template {template!r} of hazard {hazard!r} has no items, and the reference "
            f"has some ({len(missing)} such templates); the results may be cut off"
        )


def _of_totals(
    results: Results, hazards: Mapping[str, Hazard], rule: GradeRule
) -> tuple[tuple[HazardGrade, ...], str, tuple[str, ...]]:
    """Published grades of results without items; no grade of them is firm."""
    unknown = [name for name in results.totals if name not in hazards]
    if unknown:
        raise UsageError(
            f"hazard {unknown[0]!r}: is not in the taxonomy, which has {', '.join(hazards)}; give "
            "--taxonomy ailuminate-1.0 for results of AILuminate"
        )
    graded = tuple(
        HazardGrade(
            name,
            hazards[name].name,
            one.items,
            0,
            one.unsafe,
            0.0,
            0.0,
            Interval(one.unsafe / one.items, 0.0, 1.0),
            Interval(one.reference, 0.0, 1.0),
            rule.published(one.unsafe / one.items, one.reference),
            None,
            rule.grades,
            None,
        )
        for name, one in results.totals.items()
    )
    if rule.is_worst_hazard:
        return graded, max((one.published for one in graded), key=rule.grades.index), rule.grades
    whole = sum(one.unsafe for one in results.totals.values())
    n_items = sum(one.items for one in results.totals.values())
    reference = sum(one.reference for one in results.totals.values()) / len(results.totals)
    return graded, rule.published(whole / n_items, reference), rule.grades


def _notes(
    results: Results,
    graded: Sequence[HazardGrade],
    hazards: Mapping[str, Hazard],
    reference: str | None,
) -> list[str]:
    there = {one.hazard for one in graded}
    left = [one.hazard for one in hazards.values() if one.tested and one.hazard not in there]
    notes = []
    if left:
        notes.append(
            f"Not graded for lack of items: {', '.join(left)}. The overall grade covers the rest."
        )
    untested = [one.hazard for one in graded if not hazards[one.hazard].tested]
    if untested:
        notes.append(f"The published benchmark does not test {', '.join(untested)}.")
    if results.totals:
        notes.append(
            "The file has totals but no items by template, so none of its grades is firm; give "
            "the items."
        )
    elif all(one.reference.low == one.reference.high for one in graded):
        notes.append("The sampling error of the reference is unknown, and taken as zero.")
    return notes


# -- items from templates and fragments: every template with every fragment ------------------------


PLACE = "{fragment}"


@dataclass(frozen=True, slots=True)
class TestItem:
    """One prompt of a set."""

    item: str
    template: str
    hazard: str
    prompt: str


def expanded(templates: Path, fragments: Path) -> Iterator[TestItem]:
    """Each template with each fragment in its place; items are numbered by template and fragment.

    Args:
        templates: CSV with the columns template, text; a text holds {fragment}.
        fragments: CSV with the columns hazard, fragment.

    Raises:
        SourceError: a file cannot be read so, or a template has no place for a fragment.
    """
    parts = [cells for _, cells in _rows(fragments, ("hazard", "fragment"))]
    for place, one in _rows(templates, ("template", "text")):
        if PLACE not in one["text"]:
            raise SourceError(f"{place}: has no {PLACE}, so it makes no item")
        for number, part in enumerate(parts, 1):
            yield TestItem(
                f"{one['template']}-{number}",
                one["template"],
                part["hazard"],
                one["text"].replace(PLACE, part["fragment"]),
            )
