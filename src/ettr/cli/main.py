"""The `ettr` command: its subcommands, and how errors end it.

Exit status: 0 done, 1 could not, 2 wrong use. Text goes to stdout, diagnostics to stderr.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import inspect
import os
import re
import resource
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

import typer
import typer.core

from ettr.cli.groups import (
    ALL_SHOWN,
    HELP_ALL,
    SITE_FILE,
    SiteFile,
    flattened,
    is_expert,
    site_file,
    with_help_all,
)
from ettr.cli.output import complain, complain_of_use, write_any_text
from ettr.cli.quantities import check_words
from ettr.errors import ChangedStoreError, EttrError, UsageError
from ettr.report.registry import Command, Registered, registered
from ettr.version import __version__

if TYPE_CHECKING:
    import click

# newer Typer has its own copy of Click: the base class is taken from whichever it raises
_WrongUse = cast("type[click.ClickException]", typer.BadParameter.__mro__[2])

# Ends of Typer's messages that name neither what was typed nor what to type
_NUMBERS = (
    ("unable to parse string as an integer", "a whole number in digits alone, such as 16384"),
    ("unable to parse string as a number", "a number in digits with a point, such as 0.9"),
)
_METRICS = "One metric at a time"
# Commands with a module of their own, in the order in which --help lists them: (panel, name,
# module). `commands` adds those registered with a part of the report.
_OWN_COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("From logs to answers", "report", "report"),
    ("From logs to answers", "ingest", "ingest"),
    ("From logs to answers", "compact", "ingest"),
    ("From logs to answers", "collect", "ingest"),
    ("From logs to answers", "collect kubernetes", "ingest"),
    ("From logs to answers", "collect prometheus", "ingest"),
    ("From logs to answers", "watch", "ingest"),
    ("From logs to answers", "explain", "explain"),
    ("From logs to answers", "timeline", "explain"),
    ("From logs to answers", "export", "export"),
    ("From logs to answers", "sql", "export"),
    ("From logs to answers", "sources", "ingest"),
    ("From logs to answers", "demo", "report"),
    ("From logs to answers", "catalog", "ingest"),
    ("One metric at a time", "failures", "metrics"),
    ("One metric at a time", "causes", "explain"),
    ("One metric at a time", "nodes", "metrics"),
    ("One metric at a time", "node", "lemons"),
    ("One metric at a time", "lemons", "lemons"),
    ("One metric at a time", "slow", "lemons"),
    ("One metric at a time", "checks", "metrics"),
    ("At the scale you plan", "forecast", "project"),
    ("At the scale you plan", "plan", "plan"),
    ("At the scale you plan", "project", "project"),
    ("At the scale you plan", "compare", "compare"),
    ("At the scale you plan", "simulate", "simulate"),
    ("Training", "verify", "training"),
    ("Training", "elastic", "training"),
    ("Training", "chaos", "training"),
    ("Training", "measure-recovery", "training"),
    ("Training", "gate query", "gates"),
    ("Training", "gate grade", "gates"),
    ("Training", "gate items", "gates"),
    ("Training", "records", "training"),
    ("Training", "input trace", "training"),
    ("Training", "input plan", "training"),
)
_PLACES = {
    "failures": 30,
    "causes": 40,
    "nodes": 90,
    "node": 100,
    "lemons": 110,
    "slow": 120,
    "checks": 125,
}
"""Places of commands with a module of their own among the metrics."""


def commands() -> list[tuple[str, str, str]]:
    """All commands in the order in which --help lists them, each with its panel and module."""
    places = _PLACES | {name: command.place for name, (_, command) in _registered().items()}
    own = [(panel, name, module) for panel, name, module in _OWN_COMMANDS if panel != _METRICS]
    modules = {name: module for _, name, module in _OWN_COMMANDS}
    metrics = [
        (_METRICS, name, modules.get(name, "metrics"))
        for name in sorted(places, key=lambda one: (places[one], one))
    ]
    first = [one for one in own if one[0] == own[0][0]]
    return [*first, *metrics, *own[len(first) :]]


def examples(name: str) -> tuple[str, ...]:
    """Command lines for the help of a command."""
    if name in _EXAMPLES:
        return _EXAMPLES[name]
    found = _registered().get(name)
    return () if found is None else found[1].examples


def _registered() -> dict[str, tuple[Registered, Command]]:
    """Commands registered with a part of the report, by name."""
    return {
        part.name.replace("_", "-"): (part, part.command)
        for part in registered().values()
        if part.command is not None
    }


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ettr {__version__}")
        raise typer.Exit


def _root(
    _version_asked: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    _config: str = typer.Option(
        None,
        "--config",
        metavar="FILE",
        help=f"File with the site's defaults; default {SITE_FILE} in this folder.",
    ),
) -> None:
    """Where the GPU hours of an ML cluster go, what failures will cost, and how to win them back.

    Start with: ettr report FILE... (sacct dumps, kernel logs, health checks; `ettr sources` lists
    what can be read and how to get it).
    """


def build_app(only: str | None = None) -> typer.Typer:
    """The command line with every command of `commands`.

    Args:
        only: Load this command alone. The modules of the others cost more time than a closed form.
    """
    app = typer.Typer(
        name="ettr",
        cls=PanelGroup,
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    for panel, name, module_name in commands():
        if only in (None, name):
            module = importlib.import_module(f"ettr.cli.{module_name}")
            settings = getattr(module, "SETTINGS", {}).get(name, {})
            registration = _registered().get(name)
            if registration is None:
                command = flattened(getattr(module, re.sub("[- ]", "_", name)))
            else:
                command = flattened(module.metric_command(*registration))
            command = with_help_all(command)
            app.command(name, cls=PlainCommand, rich_help_panel=panel, **settings)(command)
    return app


def _named(words: list[str]) -> str | None:
    """The command that the first words name; None where all have to be known."""
    known = {name for _, name, _ in commands()}
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in known), None)


_WANT_OF_MEMORY = (
    "Failed to launch worker thread",  # Arrow
    "can't start new thread",
    "failed to map segment",  # a library that could not be loaded
    "Cannot allocate memory",
)
_OF_LOGS = (_METRICS, "From logs to answers")
_WITHOUT_ENGINE = ("catalog", "sources", "collect", "collect kubernetes", "collect prometheus")
_LEAST_ADDRESS_SPACE_BYTES = 900_000_000  # of two cores; more where more threads start
_MORE_MEMORY = "raise the limit (ulimit -v, or the job's memory) or free memory, then run it again"


def _is_want_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, whichever library met it."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _WANT_OF_MEMORY)


def _prepare_engine(command: str | None, *, alone: bool) -> None:
    """Refuse a limit under which the libraries of a command's engine cannot even be loaded.

    They would end, or hang, in native code, of which no program can say anything.
    """
    panel = next((panel for panel, name, _ in commands() if name == command), None)
    if panel not in _OF_LOGS or command in _WITHOUT_ENGINE:
        return
    if alone:  # not where a training is run, which would take it over
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 < limit_bytes < _LEAST_ADDRESS_SPACE_BYTES:
        raise MemoryError(
            f"a limit of {limit_bytes / 1e6:,.0f} MB of address space; the libraries alone take "
            f"{_LEAST_ADDRESS_SPACE_BYTES / 1e6:,.0f}"
        )
    if alone and command == "ingest":  # the others make no rows
        # rows are in memory for a moment, and huge pages are cleared for more than they hold
        os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
        from ettr.store.computing import spare_pandas

        spare_pandas()


_TRIES = 5
"""How often a command reads a store into which others ingest meanwhile."""


def _run(command: Callable[[], object]) -> object:
    """Run a command, again where its store changed: it prints once all of it is read."""
    for _ in range(_TRIES - 1):
        with suppress(ChangedStoreError):
            return command()
    return command()


def main(*, alone: bool = False) -> None:
    """Run the command line and exit with its status.

    Args:
        alone: The process is for this command alone.
    """
    write_any_text()
    # a command ends before it leaves garbage worth a look at each of its objects
    gc.set_threshold(300_000, 50, 50)
    site, words = SiteFile(), sys.argv[1:]
    try:
        check_words(sys.argv[1:])
        site, words = site_file(sys.argv[1:])
        if words == ["--version"]:
            _version(True)
        name = _named(words)
        # outside standalone mode an exit comes back as its status
        _prepare_engine(name, alone=alone)
        status = _run(
            partial(
                build_app(name),
                words,
                prog_name="ettr",
                standalone_mode=False,
                default_map=site.defaults(name, words),
                obj=site.name,
            )
        )
        sys.exit(status if isinstance(status, int) else 0)
    except EttrError as error:
        complain(site.blamed(str(error), words))
        sys.exit(error.exit_code)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except typer.Abort:
        complain("interrupted")
        sys.exit(130)
    except _WrongUse as error:
        message = error.format_message()
        if (blamed := site.blamed(message, words)) != message:
            complain(blamed)
        else:
            complain_of_use(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # the reader went away (`ettr ... | head`); keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(130)
    except OSError as error:
        complain(f"{error.filename or 'ettr'}: {error.strerror or error}")
        sys.exit(1)
    except Exception as error:
        # libraries have their own errors for want of memory; any other shall end as it would
        if not _is_want_of_memory(error):
            raise
        complain(f"memory ran out ({str(error) or type(error).__name__}); {_MORE_MEMORY}")
        sys.exit(1)


def main_alone() -> None:
    """Run the command line as a process of its own, which ends as it stands.

    An interpreter that ends takes apart all that it loaded, a tenth of a short command's CPU time.
    Threads are waited for before, and what libraries have to do at the end is done.
    As much goes into the threads of NumPy's algebra, which small matrices never need.
    """
    status = 1

    def end() -> None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)

    atexit.register(end)  # the first to be registered is the last to be called
    try:
        main(alone=True)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
        raise


REST = "-- CMD..."


class PlainCommand(typer.core.TyperCommand):
    """A command whose arguments stand in its help as in its usage, without types in brackets."""

    def _is_expert(self, param: Any) -> bool:
        return any(is_expert(self.name or "", flag) for flag in param.opts)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        take_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in the usage line."""
        pieces = [self.options_metavar or "", *(_name(p, p.required) for p in _arguments(self))]
        if ctx.allow_extra_args:
            pieces.append(REST)
        return [piece for piece in pieces if piece]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options."""
        arguments = [(_name(p, True), getattr(p, "help", None) or "") for p in _arguments(self)]
        params = [one for one in self.get_params(ctx) if one.param_type_name == "option"]
        every = [one for one in params if one.name != HELP_ALL]
        shown = [one for one in every if ctx.meta.get(ALL_SHOWN) or not self._is_expert(one)]
        options = [record for one in shown if (record := one.get_help_record(ctx))]
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if left := len(every) - len(shown):
            formatter.write(f"\n{left} more options: ettr {self.name} --help-all\n")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, unwrapped, so that they can be copied."""
        with formatter.section("Examples"):
            for example in examples(self.name or ""):
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class PanelGroup(typer.core.TyperGroup):
    """The program: its commands under the headings of `commands`, each with a whole sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        take_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first word names, or the first two: `gate query`."""
        first, *rest = args
        ofs = [name for name in self.list_commands(ctx) if name.startswith(f"{first} ")]
        if rest and f"{first} {rest[0]}" in ofs:
            return super().resolve_command(ctx, [f"{first} {rest[0]}", *rest[1:]])
        if ofs and first not in self.list_commands(ctx) and not ctx.resilient_parsing:
            asked = {*rest[:1]} & {"-h", "--help", "--help-all"}
            if not asked:
                raise UsageError(f"ettr {first}: give one of its commands: {', '.join(ofs)}")
            typer.echo("\n".join(f"Usage: ettr {name} --help" for name in ofs))
            raise typer.Exit
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One list for each heading."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None:
                title = getattr(command, "rich_help_panel", None)
                text = inspect.cleandoc(command.help or "").partition("\n\n")[0]
                row = (name, " ".join(text.split()))
                panels.setdefault(title if isinstance(title, str) else "Commands", []).append(row)
        width = max(len(name) for rows in panels.values() for name, _ in rows)
        for title, rows in panels.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows])


def _arguments(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "argument"]


def _name(argument: Any, required: bool) -> str:
    name = str(argument.metavar or argument.name.upper()).strip("[]")
    return name if required else f"[{name}]"


_INTEGER = re.compile(r"[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


class PlainValues:
    """Stands before Typer's own coercion of one parameter."""

    def __init__(self, annotation: Any, info: Any) -> None:
        self._annotation = annotation
        self._info = info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command gets it.

        Raises:
            click.BadParameter: as Typer does.
        """
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if type(value) is self._annotation and not isinstance(value, str):
            return value
        given = value if many else (value,)
        if all(isinstance(one, str) for one in given):
            found = [self._plain(one) for one in given]
            if None not in found and (not many or get_origin(self._annotation) is list):
                return found if many else found[0]
        # Typer's own is made on demand
        param._runtime_param = None
        try:
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
        except _WrongUse as error:
            wanted = next((kind for says, kind in _NUMBERS if error.message.endswith(says)), None)
            if wanted is None or not isinstance(value, str):
                raise
            says = f"{value!r} was given; give {wanted}"
            raise typer.BadParameter(says, ctx=ctx, param=param) from error

    def _plain(self, text: str) -> str | int | float | Path | None:
        """The value where it is beyond doubt, else None."""
        kind, *_ = get_args(self._annotation) or (self._annotation,)
        if kind is str:
            return text
        if kind is Path and self._is_any_path():
            return Path(text) if os.access(text, os.R_OK) or not os.path.lexists(text) else None
        if kind is int and _INTEGER.fullmatch(text):
            return self._within(int(text))
        if kind is float and _NUMBER.fullmatch(text):
            return self._within(float(text))
        return None

    def _is_any_path(self) -> bool:
        info = self._info
        asks = info.exists or info.writable or info.resolve_path or info.path_type
        return bool(info.file_okay and info.dir_okay and not asks)

    def _within(self, number: float) -> float | None:
        low, high = self._info.min, self._info.max
        return (
            number if (low is None or low <= number) and (high is None or number <= high) else None
        )


def take_plain_values(params: Iterable[Any]) -> None:
    """Put `PlainValues` before the coercion of those parameters that have Typer's lazy one."""
    for param in params:
        described = getattr(param, "type_descriptor", None)
        if described is not None and getattr(param, "_runtime_param", param) is None:
            info = described.parameter_info
            if info.parser is None:
                param._runtime_param = PlainValues(described.annotation, info)


_EXAMPLES: dict[str, tuple[str, ...]] = {
    "report": (
        "ettr report sacct.psv kernel.log --timezone Europe/Zurich",
        "ettr report site --output march.html",
    ),
    "ingest": ("ettr ingest site sacct.psv kernel.log --timezone Europe/Zurich",),
    "explain": ("ettr explain site 2 --window 1200,300",),
    "timeline": (
        "ettr timeline site",
        "ettr timeline site --min-gpus 64 --since 2026-03-01 --output march.html",
    ),
    "collect": ("ettr collect logs --since 2026-03-01", "ettr collect logs --store site"),
    "collect prometheus": (
        "ettr collect prometheus http://prometheus:9090 logs --since 2026-03-01",
    ),
    "collect kubernetes": (
        "ettr collect kubernetes logs",
        "ettr collect kubernetes logs --watch 1h",
    ),
    "export": (
        "ettr export site --to site-tables.duckdb",
        "ettr export site --table failures --to failures.csv",
    ),
    "sql": (
        "ettr sql site 'SELECT symptom, count(*) AS n FROM failures GROUP BY symptom'",
        "ettr sql site --show all_failures",
    ),
    "sources": ("ettr sources",),
    "demo": ("ettr demo ettr-demo",),
    "catalog": ("ettr catalog 79", "ettr catalog --conflicts"),
    "failures": (
        "ettr failures site --list --since 2026-03-01",
        "ettr failures site --above-gpus 256 --confidence 0.95",
    ),
    "compact": ("ettr compact site",),
    "watch": (
        "ettr watch site",
        "ettr watch site --dashboards grafana",
    ),
    "causes": ("ettr causes site", "ettr causes site --believe aws"),
    "nodes": ("ettr nodes site", "ettr nodes site --by lost-gpu-hours"),
    "node": ("ettr node site", "ettr node site gpu11"),
    "lemons": (
        "ettr lemons site --back-test",
        "ettr lemons site gpu11 --output gpu11.html",
    ),
    "slow": ("ettr slow site",),
    "checks": (
        "ettr checks site",
        "ettr checks site --before 16 nodes 24h --catalogue checks.toml",
    ),
    "forecast": ("ettr forecast site", "ettr forecast site --ahead 1d,7d --nodes 64"),
    "plan": (
        "ettr plan --gpus 16384 --failures 419 --node-days 110592 --write 30s --target 0.9",
        "ettr plan site --gpus 4096 --html planner.html",
    ),
    "project": (
        "ettr project site --gpus 4096,16384 --spares 16 --repair 2d",
        "ettr project --failures 419 --node-days 110592 --seen-gpus 16384 --gpus 32768",
    ),
    "compare": (
        "ettr compare old=30/5000 new=12/6000",
        "ettr compare site --published",
    ),
    "simulate": (
        "ettr simulate run small --store simulated",
        "ettr simulate whatif small --set lemons.share=0 --runs 3",
    ),
    "verify": ("ettr verify checkpoints --step 12000",),
    "elastic": ("ettr elastic --ranks 4 -- python train.py",),
    "measure-recovery": ("ettr measure-recovery model.py:build experiment --steps 400",),
    "gate grade": (
        "ettr gate grade results.csv --reference reference.csv --at-least M",
        "ettr gate grade --items 6155 --templates 32 --reference 0.03",
    ),
    "gate items": ("ettr gate items templates.csv fragments.csv --csv",),
    "gate query": (
        "ettr gate query model 'sk-[a-z0-9]{20}' --prefix 'key: ' --most 1e-6",
        "ettr gate query py:ngrams.py:MODEL ' [0-9]{2}' --show --json",
    ),
    "records": ("ettr records photos -o packed", "ettr records packed --bandwidth 200MB/s"),
    "input trace": ("ettr input trace train.py:loader -o stages.jsonl",),
    "input plan": ("ettr input plan stages.jsonl --rate 800 --cores 8 --bandwidth 200MB/s",),
    "chaos": (
        "ettr chaos --launcher --fault kill --every 20 -- ettr elastic -n 4 -- python train.py",
    ),
}
