"""The pages of `--help`: commands under headings, arguments by name, examples at the end."""

from __future__ import annotations

import inspect
from typing import Any

import typer.core

from ettr.cli.coercion import take_plain_values
from ettr.cli.examples import EXAMPLES

REST = "-- CMD..."


class PlainCommand(typer.core.TyperCommand):
    """A command whose arguments stand in its help as in its usage, without types in brackets."""

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
        options = [
            record
            for param in self.get_params(ctx)
            if param.param_type_name == "option" and (record := param.get_help_record(ctx))
        ]
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, unwrapped, so that they can be copied."""
        with formatter.section("Examples"):
            for example in EXAMPLES.get(self.name or "", ()):
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class PanelGroup(typer.core.TyperGroup):
    """The program: its commands under the headings of `COMMANDS`, each with a whole sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        take_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)

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
