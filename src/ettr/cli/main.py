"""The `ettr` command: its subcommands, and how errors end it.

Exit status: 0 done, 1 could not, 2 wrong use. Text goes to stdout, diagnostics to stderr.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, cast

import typer

from ettr.cli.groups import flattened
from ettr.cli.help import PanelGroup, PlainCommand
from ettr.cli.limits import check_withdrawn, check_words
from ettr.cli.output import complain, complain_of_use
from ettr.errors import EttrError
from ettr.version import __version__

if TYPE_CHECKING:
    import click

# newer Typer has its own copy of Click: the base class is taken from whichever it raises
_WrongUse = cast("type[click.ClickException]", typer.BadParameter.__mro__[2])

# The commands in the order in which --help lists them: (panel, name, module).
COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("From logs to answers", "report", "report"),
    ("From logs to answers", "ingest", "ingest"),
    ("From logs to answers", "collect", "collect"),
    ("From logs to answers", "explain", "explain"),
    ("From logs to answers", "timeline", "timeline"),
    ("From logs to answers", "export", "export"),
    ("From logs to answers", "sql", "sql"),
    ("From logs to answers", "sources", "sources"),
    ("From logs to answers", "catalog", "catalog"),
    ("One metric at a time", "status", "metrics"),
    ("One metric at a time", "sizes", "metrics"),
    ("One metric at a time", "failures", "metrics"),
    ("One metric at a time", "causes", "causes"),
    ("One metric at a time", "user-failures", "metrics"),
    ("One metric at a time", "mttf", "metrics"),
    ("One metric at a time", "runs", "metrics"),
    ("One metric at a time", "goodput", "metrics"),
    ("One metric at a time", "nodes", "metrics"),
    ("One metric at a time", "node", "node"),
    ("One metric at a time", "lemons", "lemons"),
    ("One metric at a time", "slow", "slow"),
    ("One metric at a time", "quality", "metrics"),
    ("At the scale you plan", "forecast", "forecast"),
    ("At the scale you plan", "plan", "plan"),
    ("At the scale you plan", "project", "project"),
    ("At the scale you plan", "compare", "compare"),
    ("At the scale you plan", "simulate", "simulate"),
    ("Training", "verify", "verify"),
    ("Training", "elastic", "elastic"),
    ("Training", "chaos", "chaos"),
    ("Training", "measure-recovery", "measure_recovery"),
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ettr {__version__}")
        raise typer.Exit


def _root(
    _version_asked: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Where the GPU hours of an ML cluster go, what failures will cost, and how to win them back.

    Start with: ettr report FILE... (sacct dumps, kernel logs, health checks; `ettr sources` lists
    what can be read and how to get it).
    """


def build_app(only: str | None = None) -> typer.Typer:
    """The command line with every command of `COMMANDS`.

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
    for panel, name, module_name in COMMANDS:
        if only in (None, name):
            module = importlib.import_module(f"ettr.cli.{module_name}")
            settings = getattr(module, "SETTINGS", {}).get(name, {})
            command = flattened(getattr(module, name.replace("-", "_")))
            app.command(name, cls=PlainCommand, rich_help_panel=panel, **settings)(command)
    return app


def _named(words: list[str]) -> str | None:
    """The command that the first word names; None where all have to be known."""
    first = words[0] if words else None
    return first if any(first == name for _, name, _ in COMMANDS) else None


_WANT_OF_MEMORY = (
    "Failed to launch worker thread",  # Arrow
    "can't start new thread",
    "failed to map segment",  # a library that could not be loaded
    "Cannot allocate memory",
)
_MORE_MEMORY = "raise the limit (ulimit -v, the job's memory) or free memory, and run it again"


def _is_want_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran short, whichever library met it."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _WANT_OF_MEMORY)


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        check_words(sys.argv[1:])
        check_withdrawn(sys.argv[1:])
        # outside standalone mode an exit comes back as its status
        app = build_app(_named(sys.argv[1:]))
        status = app(prog_name="ettr", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except EttrError as error:
        complain(str(error))
        sys.exit(error.exit_code)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except typer.Abort:
        complain("interrupted")
        sys.exit(130)
    except _WrongUse as error:
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
        complain(f"memory ran short ({str(error) or type(error).__name__}); {_MORE_MEMORY}")
        sys.exit(1)
