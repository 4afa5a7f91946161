"""What the documentation takes from the code: `make docs`.

The reference is made when the site is built (mkdocs.yml has this file as a hook) and not kept.
Parts of pages are kept: they lie between `<!-- made: NAME` and `<!-- end: NAME -->`, and the rest
of the page is written by hand. `python docs/generate.py --check` writes nothing and exits 1 where
a part is out of date.
"""

from __future__ import annotations

import ast
import csv
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib.metadata import metadata, version
from itertools import takewhile
from math import inf
from pathlib import Path
from runpy import run_path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import typer.main
from mkdocs.structure.files import File

from ettr.cli.main import REST, build_app, commands
from ettr.report.json_schema import report_schema
from ettr.report.registry import PARTS, Part
from ettr.report.rows import lists_of
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sources.origin import SPOOL_LIMIT_BYTES
from ettr.sources.registry import all_sources
from ettr.tables import DERIVED, TABLES, Column, Table
from ettr.taxonomy import VENDORS, load_taxonomy
from ettr.taxonomy.rules import KERNEL_CHECK, read_kernel_forms, read_records

DOCS = Path(__file__).resolve().parent
MADE = "<!-- Made by docs/generate.py (`make docs`); change the code instead. -->\n"


def reference() -> dict[str, str]:
    """The pages of the site that are made whole, by their path under docs; not kept."""
    whole = {
        "reference/tables.md": _tables(),
        "reference/taxonomy.md": _taxonomy(),
        "reference/commands.md": _commands(),
        "reference/sources.md": _sources(),
        "reference/scenarios.md": _scenarios(),
        "reference/licences.md": _licences(),
    }
    begun = (DOCS / "reference" / "report-json.md").read_text("utf-8")
    return {
        "reference/report-json.md": _with_parts(begun, {"keys": _keys()}),
        **{name: f"{MADE}\n{text.rstrip()}\n" for name, text in whole.items()},
    }


def on_files(files: Any, config: Any) -> Any:
    """Add the reference to the files of the site; MkDocs calls this."""
    for name, text in reference().items():
        if begun := files.get_file_from_path(name):
            files.remove(begun)
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """Text of each file that is made, or has a made part, and is kept, by its path under docs."""
    schema = json.dumps(report_schema(), indent=1) + "\n"
    dashboards = run_path(str(DOCS / "dashboards.py"))["shipped"]()
    parts = {
        "how-to/README.md": {
            "sources": _source_index(),
            "extensions": _headings("how-to", "add-*.md"),
        },
        "results/README.md": {"campaigns": _campaigns()},
        "explanation/architecture.md": {"floors": _floors(), "rooms": _rooms()},
    }
    return {
        "../src/ettr/api/answers.py": _answers(),
        # shipped with the package; a link publishes it next to the page that explains its keys
        "../src/ettr/report/report.schema.json": schema,
        **{f"../src/ettr/live/dashboards/{name}": text for name, text in dashboards.items()},
        **{
            name: _with_parts((DOCS / name).read_text("utf-8"), made)
            for name, made in parts.items()
        },
    }


def _with_parts(page: str, parts: dict[str, str]) -> str:
    """The page with each of its made parts replaced.

    Raises:
        ValueError: a part's marks are not in the page exactly once.
    """
    for name, text in parts.items():
        begin, end = f"<!-- made: {name} (`make docs`) -->", f"<!-- end: {name} -->"
        made = f"{begin}\n\n{text.strip()}\n\n{end}"
        page, n_found = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, made=made: made, page, flags=re.S
        )
        if n_found != 1:
            raise ValueError(f"{name}: {n_found} places marked {begin} ... {end}; there is one")
    return page


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    for char in ("|", "<", "*"):
        text = text.replace(char, f"\\{char}")
    return " ".join(text.split())


def _code(value: object) -> str:
    text = str(value).replace("|", "\\|")
    return f"`{text}`" if text else ""


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(headers)
    lines = [names, ["---"] * len(names), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# -- tables ---------------------------------------------------------------------------------------


def _tables() -> str:
    parts = [
        "# Tables",
        "Raw logs become these tables; every stage reads and writes them, and `ettr ingest` stores "
        "them (a folder of Parquet, a DuckDB file, or PostgreSQL). Times are UTC in "
        "microseconds, identifiers are text, unknown is null. A row whose key is already in the "
        "store replaces the older one; an open row (its `end` is null) never replaces a closed "
        "one. Where a column says that a known value is kept, null does not replace it: the row "
        "that stays takes it from the other row with the same key, whichever was read first.",
        "## Stored",
        *(_one_table(table) for table in TABLES.values()),
        "## Derived",
        "Computed by the analysis, not stored. `failures.rows` of `ettr report --json` holds the "
        "table `failures`.",
        *(_one_table(table) for table in DERIVED.values()),
    ]
    return "\n\n".join(parts)


def _null_of(column: Column) -> str:
    """What null means in a column, and when it is not taken over."""
    if not column.null:
        return "never null"
    return _cell(f"{column.null}; {column.keeps}" if column.keeps else column.null)


def _one_table(table: Table) -> str:
    rows = ((_code(c.name), _code(c.kind), _cell(c.means), _null_of(c)) for c in table.columns)
    key = ", ".join(_code(name) for name in table.key)
    head = f"### {table.name}\n\nOne row: {table.row}. Key: {key}."
    return f"{head}\n\n{_table(('column', 'type', 'meaning', 'null means'), rows)}"


# -- taxonomy -------------------------------------------------------------------------------------


def _taxonomy() -> str:
    known = load_taxonomy()
    symptoms = (
        (
            _code(s.slug),
            _cell(s.name),
            _cell(s.domain),
            str(s.rank),
            _cell(s.likely_cause),
            _cell(s.source),
        )
        for s in known.symptoms.values()
    )
    states = (
        (
            _code(s.state),
            _code(s.short),
            _cell(s.kind),
            _cell(s.kind_by_owner),
            _yes(s.needs_evidence),
            _cell(s.reason),
        )
        for s in known.states.values()
    )
    nodes = (
        (_code(r["state"]), r["kind"], r["unavailable"], _cell(r["meaning"]))
        for r in read_records("node_states")
    )
    rules = (
        (
            _code(r.check),
            _code(r.code),
            _code(r.symptom or "none"),
            _cell(r.severity),
            _cell(r.source),
        )
        for r in known.rules
        if r.check != KERNEL_CHECK
    )
    kernel = (
        (
            _code(r.mark),
            _code(r.code or "none"),
            _code(r.symptom or "none"),
            _cell(r.severity if r.symptom else ""),
            _yes(r.node_fault),
            _cell(r.source),
        )
        for r in read_kernel_forms()
    )
    reasons = (
        (
            _code(r.pattern),
            _cell(r.reason_class),
            _code(r.symptom or ""),
            _yes(r.planned),
            _cell(r.source),
        )
        for r in known.reasons
    )
    return "\n\n".join(
        [
            "# Taxonomy",
            "What a log line means. All of it is data; "
            "[a site can change any row](../how-to/taxonomy.md).",
            "## Symptoms",
            "The first twelve are Table I of Kokolis et al. (HPCA 2025), with the domains that may "
            "hold the cause. Of several symptoms of one failure the one of lowest rank leads.",
            _table(("symptom", "name", "domain", "rank", "likely cause", "from"), symptoms),
            "## End states of a job",
            "`kind` says what an ended attempt is; where its owner brought the end about, the next "
            "column does. Where evidence is needed, a hardware candidate becomes a failure of the "
            "infrastructure only if a critical check fired in the window.",
            _table(("state", "short", "kind", "by its owner", "needs evidence", "why"), states),
            "## States of a node",
            _table(("state", "is a", "unavailable", "meaning"), nodes),
            "## XID codes",
            "What each vendor says, and whether that makes the code a fault of the node (+) or not "
            "(-). Bold codes are those on which NVIDIA, gpud and AWS disagree. `--believe` says "
            "whose verdict decides. `ettr catalog XID` shows one code with its sources.",
            _xids(known.catalog_rows()),
            "## Checks",
            "The first rule that fits an event's check and code decides; `*` fits anything, "
            "`@xid` and `@reason` look the code up in the tables of this page.",
            _table(("check", "code", "symptom", "severity", "source"), rules),
            "## Kernel messages",
            "Errors that the kernel of a node reports, besides XIDs: events of check `kernel` with "
            "this code. The first row whose mark stands in a message and whose pattern "
            "(`src/ettr/taxonomy/data/kernel.csv`) fits decides; `none` is known to be no error.",
            _table(("mark", "code", "symptom", "severity", "node fault", "source"), kernel),
            "## Reasons",
            "Reasons for which nodes are drained or set down, as people and tools write them; the "
            "first pattern that fits decides. Faults that are named come before words of planned "
            "work, and parts that are only named after them. Reasons that fit none are listed by "
            "`ettr quality`, each with a row for a site's file.",
            _table(("pattern", "class", "symptom", "planned", "source"), reasons),
        ]
    )


def _xids(rows: list[dict[str, Any]]) -> str:
    def says(row: dict[str, Any], vendor: str) -> str:
        words = _cell(row[f"{vendor}_says"])
        fault = row[f"{vendor}_node_fault"]
        return f"{words} ({'+' if fault else '-'})" if words and fault is not None else words

    return _table(
        ("XID", "description", "symptom", "role", *VENDORS),
        (
            (
                f"**{row['xid']}**" if row["conflict"] else str(row["xid"]),
                _cell(row["description"]),
                _code(row["symptom"] or ""),
                _cell(row["role"]),
                *(says(row, vendor) for vendor in VENDORS),
            )
            for row in rows
        ),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# -- commands -------------------------------------------------------------------------------------


def _commands() -> str:
    group: Any = typer.main.get_command(build_app())
    parts = [
        "# Commands",
        "Text goes to stdout, diagnostics to stderr. Exit status: 0 done, 1 could not, 2 wrong "
        "use. Nothing ever prompts. `--json` prints the same numbers as JSON; "
        "[report-json.md](report-json.md) says what they are.",
    ]
    panel = ""
    for title, name, _ in commands():
        if title != panel:
            panel = title
            parts.append(f"## {title}")
        parts.append("\n\n".join(_one_command(name, group.commands[name])))
    return "\n\n".join(parts)


def _one_command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    rest = [REST] if command.context_settings.get("allow_extra_args") else []
    usage = " ".join(["ettr", name, *(_usage(p) for p in arguments), "[OPTIONS]", *rest])
    yield f"### ettr {name}"
    yield f"```text\n{usage}\n```"
    yield inspect.cleandoc(command.help or "")
    options = [
        p
        for p in command.params
        if p.param_type_name == "option" and p.name not in ("help", "help_all")
    ]
    rows = [(_code(_names(p)), _cell(p.help), _code(_default(p))) for p in (*arguments, *options)]
    if rows:
        yield _table(("", "meaning", "default"), rows)


def _usage(argument: Any) -> str:
    name = _metavar(argument)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _metavar(param: Any) -> str:
    return str(param.metavar or str(param.name).upper())


def _names(param: Any) -> str:
    if param.param_type_name == "argument":
        return _metavar(param).strip("[]")
    value = "" if param.is_flag else f" {_metavar(param)}"
    return ", ".join(param.opts) + value


def _default(param: Any) -> str:
    value = param.default
    absent = value is None or callable(value) or isinstance(value, bool) or value in ((), [])
    return "" if absent else str(getattr(value, "value", value))


# -- keys of the report ---------------------------------------------------------------------------


def _keys() -> str:
    """The keys by section: those of report_keys.csv, else what the types of a part say."""
    sections: dict[str, list[list[str]]] = {}
    with (DOCS / "reference" / "report_keys.csv").open(encoding="utf-8", newline="") as file:
        for section, *row in list(csv.reader(file))[1:]:
            sections.setdefault(section, []).append(row)
    made = {name: _keys_of(name, part) for name, part in PARTS.items() if name not in sections}
    written = {name: _keys_written(name, rows) for name, rows in sections.items()}
    return "\n\n".join((written | made)[name] for name in dict.fromkeys(["Head", *PARTS, *written]))


def _keys_written(name: str, rows: list[list[str]]) -> str:
    says = [meaning for keys, _, meaning in rows if not keys]
    table = _table(("key", "unit", "meaning"), (row for row in rows if row[0]))
    return "\n\n".join([f"## {name}", *says, table])


def _keys_of(name: str, part: Part[Any]) -> str:
    hint = get_type_hints(part.question)["return"]
    (found,) = [one for one in get_args(hint) or (hint,) if one is not NoneType]
    rows = list(_meanings(name, found))
    for listed, entry in lists_of(found).items():
        rows += _meanings(f"{name}.{listed}[]", entry)
    says = (inspect.getdoc(found) or "").partition("\n")[0]
    return f"## {name}\n\n{says}\n\n{_table(('key', 'unit', 'meaning'), rows)}"


def _meanings(path: str, of: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a dataclass with what its docstring says of each under `Attributes:`."""
    _, _, listed = (inspect.getdoc(of) or "").partition("Attributes:\n")
    means = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", listed, re.M)
    for field, text in means:
        yield _code(f"{path}.{field}"), "", _cell(text)


# -- answers in Python ----------------------------------------------------------------------------


def _answers() -> str:
    """The types of what `ettr.Fleet` answers: one attribute for each part with a question."""
    imports: dict[str, set[str]] = {"ettr.api.result": {"Result"}}
    attributes = []
    for name, part in PARTS.items():
        if part.question is None or not part.in_python:
            continue
        found = get_type_hints(part.question)["return"]
        kinds = [one for one in get_args(found) or (found,) if one is not NoneType]
        for one in kinds:
            imports.setdefault(one.__module__, set()).add(one.__name__)
        optional = " | None" if NoneType in get_args(found) else ""
        says = (inspect.getdoc(part.question) or "").partition("\n")[0]
        answer = " | ".join(one.__name__ for one in kinds) + optional
        attributes.append(f'    {name}: Result[{answer}]\n    """{says}"""')
    return "\n".join(
        [
            '"""Types of what `ettr.Fleet` answers. Made by docs/generate.py (`make docs`)."""',
            "",
            "from __future__ import annotations",
            "",
            "from typing import TYPE_CHECKING",
            "",
            "if TYPE_CHECKING:",
            *(
                f"    from {module} import {', '.join(sorted(names))}"
                for module, names in sorted(imports.items())
            ),
            "",
            "",
            "class FleetAnswers:",
            '    """The parts of the report; each is computed when it is first asked for."""',
            "",
            *attributes,
            "",
        ]
    )


# -- sources --------------------------------------------------------------------------------------


def _sources() -> str:
    parts = [
        "# Sources",
        "The logs that can be read, in the order in which `ettr sources` lists them. A file's "
        "format is recognised by its content; `--source NAME` says it. Files may be compressed "
        "(zstd, gzip, bzip2, xz). A log may also come through standard input (`-`), a pipe or a "
        "FIFO: it is then kept in a temporary file (below `TMPDIR`, at most "
        f"{SPOOL_LIMIT_BYTES >> 30} GiB) while it is read. "
        "[How to add a source](../how-to/add-a-source.md).",
    ]
    for source in all_sources().values():
        fills = f" Fills {', '.join(source.tables)}." if source.tables else ""
        lines = [f"## {source.name}", f"{source.title}.{fills}"]
        if source.local_time:
            lines.append("May print local time without a zone: then `--timezone` is asked for.")
        if source.options:
            lines.append(f"Options: {', '.join(_code(option) for option in source.options)}.")
        if source.how_to_get:
            lines.append(f"```text\n{source.how_to_get}\n```")
        lines.append(f"[How to](../how-to/{source.guide_page})")
        parts.append("\n\n".join(lines))
    return "\n\n".join(parts)


# -- scenarios of simulated clusters --------------------------------------------------------------


def _scenarios() -> str:
    """Every table of a scenario file with its keys, as the dataclasses of its parts say."""
    parts = [
        "# Scenarios of simulated clusters",
        "A TOML file for [`ettr simulate`](../how-to/simulate-a-cluster.md). A value is given as "
        '`{ value = 7200, source = "paper" }`, or plainly where its table has a `source`.',
    ]
    hints = get_type_hints(ClusterScenario)
    for field in fields(ClusterScenario):
        hint = hints[field.name]
        [*found] = [one for one in get_args(hint) or (hint,) if is_dataclass(one)]
        if not found:
            continue
        [table] = found
        name = f"[[{field.name}]]" if get_origin(hint) is tuple else f"[{field.name}]"
        means = {key: text for key, _, text in _meanings("", table)}
        rows = (
            (_code(one.name), _default_of(one), means.get(f"`.{one.name}`", ""))
            for one in fields(table)
        )
        says = (inspect.getdoc(table) or "").partition("\n\n")[0]
        parts += [f"## {name}", says, _table(("key", "if absent", "meaning"), rows)]
    return "\n\n".join(parts)


def _default_of(field: Field[Any]) -> str:
    """What holds where a file does not have a key; empty where it must."""
    if field.default is MISSING:
        return "" if field.default_factory is MISSING else "none"
    return "none" if field.default in (None, (), "", inf) else _code(field.default)


def _source_index() -> str:
    """Every source with its guide, for the index of the how-to guides."""
    rows = (
        (_cell(source.title), f"[{source.name}]({source.guide_page})")
        for source in all_sources().values()
    )
    return _table(("log", "guide"), rows)


def _headings(folder: str, pattern: str) -> str:
    """Pages of a folder as a list, each by its own heading, for the index of the top folder."""
    lines = []
    for page in sorted((DOCS / folder).glob(pattern)):
        heading = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"* [{heading}]({page.relative_to(DOCS / folder.partition('/')[0])})")
    return "\n".join(lines)


def _campaigns() -> str:
    """Each campaign with what was asked of it, what its verdict says, and its table."""
    with (DOCS / "results" / "campaigns" / "index.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return _table(
        ("measured", "asked", "table"),
        (
            (
                _cell(row["measured"]),
                _cell(row["asked"]),
                f"[{row['campaign']}](campaigns/{row['campaign']}.csv)",
            )
            for row in rows
        ),
    )


# -- licences -------------------------------------------------------------------------------------


def _licences() -> str:
    """The packages of the base installation, each with the licence that it states."""
    names = re.findall(
        r"^([\w-]+)==", (DOCS.parent / "requirements-base.txt").read_text("utf-8"), re.M
    )
    rows = ((_code(name), version(name), _cell(_licence(metadata(name)))) for name in names)
    parts = [
        "# Licences",
        "What the base installation brings, with the licence that each package states.",
        _table(("package", "version", "licence"), rows),
    ]
    return "\n\n".join(parts)


def _licence(of: Any) -> str:
    """The licence of a package: the expression, else the classifiers, else the free text."""
    stated = [
        name.rpartition(" :: ")[2] for name in of.get_all("Classifier", []) if "License ::" in name
    ]
    return str(of.get("License-Expression") or "; ".join(stated) or of.get("License", ""))


# -- architecture ---------------------------------------------------------------------------------


def layers() -> list[list[list[str]]]:
    """Floors of the analysis and of the training side, top first, by the import contracts.

    A floor is a list of rooms side by side, named without `ettr.`.
    """
    settings = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    house = [c["layers"] for c in contracts if c["type"] == "layers" and "ettr.cli" in c["layers"]]
    return [
        [[room.strip().removeprefix("ettr.") for room in floor.split("|")] for floor in side]
        for side in house
    ]


def _floors() -> str:
    """The picture: two towers on one ground, under one command line."""
    analysis, training = layers()
    from_below = zip(reversed(analysis), reversed(training), strict=False)
    n_ground = len(list(takewhile(lambda floors: floors[0] == floors[1], from_below)))
    roof, *left = (" | ".join(floor) for floor in analysis[: len(analysis) - n_ground])
    _, *right = (" | ".join(floor) for floor in training[: len(training) - n_ground])
    right += [""] * (len(left) - len(right))
    width = max(map(len, left)) + 2
    beside = max(map(len, right)) + 2
    rule = "-" * (width + 1) + "+" + "-" * beside
    towers = [f" {a:<{width}}| {b}".rstrip() for a, b in zip(left, right, strict=True)]
    ground = [" " + " | ".join(floor) for floor in analysis[len(analysis) - n_ground :]]
    return "\n".join(["```text", f" {roof}", rule, *towers, rule, *ground, "```"])


def _rooms() -> str:
    """Each room once, top floor first, with the first line of its docstring."""
    analysis, training = layers()
    names = dict.fromkeys(room for side in (analysis, training) for floor in side for room in floor)
    rows = ((f"`ettr.{name}`", _cell(_purpose(name))) for name in names)
    return _table(("room", "what it is for"), rows)


def _purpose(room: str) -> str:
    place = DOCS.parent / "src" / "ettr" / room.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return text.partition("\n\n")[0].strip()


def main(words: list[str]) -> int:
    """Write the pages, or with --check say which are out of date."""
    stale = []
    for name, text in pages().items():
        place = DOCS / name
        if not place.exists() or place.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in words:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, "utf-8")
    verb = "out of date" if "--check" in words else "written"
    sys.stdout.write("".join(f"docs/{name}: {verb}\n" for name in stale))
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
