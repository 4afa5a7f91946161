"""The errors that reach a user. Each says what was given, what is allowed and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class EttrError(Exception):
    """Base of all errors that a user can act on; the command line prints it and exits 1."""

    exit_code = 1


class UsageError(EttrError):
    """The call itself is wrong: an unknown name, a missing option; the command line exits 2."""

    exit_code = 2


class SchemaError(EttrError):
    """A table does not match its schema; the message lists every problem at once."""

    def __init__(self, table: str, problems: Iterable[str]) -> None:
        self.table = table
        self.problems = tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"not a valid `{table}` table:{lines}")


class SourceError(EttrError):
    """A file cannot be read as the log it should be."""


class NoRecordError(SourceError):
    """A file is a log of a known format, and holds no record."""


class StoreError(EttrError):
    """A store cannot be opened, read or written."""


class ChangedStoreError(StoreError):
    """Another process ingested into a store while it was read; reading it again may succeed."""


class AccountingError(EttrError):
    """Records of a log were lost, or counted twice: a bug of a reader, never of the log."""


# -- the errors of checkpoints. Each says what was found, what is allowed and what to do next ------


class CheckpointError(EttrError):
    """A checkpoint cannot be written, read, or trusted."""


class FencedError(CheckpointError):
    """Another process of a later generation owns the slot; this one may not write into it."""


def refuse(where: str, problems: Sequence[str]) -> None:
    """Raise all problems at once.

    Raises:
        UsageError: there is one.
    """
    if problems:
        raise UsageError(f"{where}: " + "; ".join(problems))


def too_small(owner: object, **least: float) -> list[str]:
    """What to say of each attribute that is below its least value."""
    return [
        f"{name}: {getattr(owner, name)} was given; give {value} or more"
        for name, value in least.items()
        if getattr(owner, name) < value
    ]
