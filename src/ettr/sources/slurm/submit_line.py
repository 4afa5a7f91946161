"""What a submit command says: `--exclude` and `--dependency` of sbatch, salloc and srun.

sacct's SubmitLine is the words of the command joined by spaces, without the shell's quotes, so a
word that held a space looks like two. Reading therefore stops at the first word that may be the
script, and at `--wrap`: an option may be missed, but a script's own `-x` is never taken for one.
What the script says (`#SBATCH --exclude`) and the environment (`SBATCH_EXCLUDE`) are not in the
line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

# a line without this excludes nothing; for skipping most lines before they are parsed
MAY_EXCLUDE = r"\s(?:--exclud|-[A-Za-z]*x)"
MAY_DEPEND = r"\s(?:--dep|-[A-Za-z]*d)"

# options come first; of a longer line, a script in --wrap perhaps, the rest is not looked at
_LONGEST = 16_384

_COMMANDS = frozenset({"sbatch", "salloc", "srun"})
# Slurm 2.x to 25.x: options whose next word is not their value. All others take one.
_FLAGS = frozenset(
    """
    bell contiguous debugger-test disable-status exact exclusive external get-user-env help hold
    ignore-pbs immediate interactive join jobid-only label mpi-combine multi-prog nice no-allocate
    no-bell no-kill no-requeue no-shell overcommit overlap oversubscribe parsable preserve-env
    preserve-slurm-env propagate pty quiet quit-on-interrupt reboot requeue resv-ports send-libs
    share spread-job stepmgr test-only unbuffered usage use-min-nodes verbose version whole
    """.split()  # noqa: SIM905
)
_SHORT_FLAGS = {
    "sbatch": "hHIkOQsvVWX",
    "salloc": "hHIkKOQsvVX",
    "srun": "EhHIkKlOQsuvVXZ",
}
_LIST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,\-\[\]]*")


def excluded_nodes(line: str) -> str | None:
    """The nodes that a submit command excludes, as it writes them; None where it says none.

    A list in a file (`--exclude=./bad-nodes`) is not known. Of a heterogeneous job (`a : b`) it is
    not known which part a record is, and so neither what it excludes.
    """
    excluded = None
    for name, value in _options_of(line):
        if name in {"x", "exclude"}:
            excluded = value
    return excluded if excluded and _LIST.fullmatch(excluded) else None


def dependency(line: str) -> str | None:
    """What a submit command makes its job wait for, as it writes it; None where it says nothing."""
    found = None
    for name, value in _options_of(line):
        if name == "d" or name.startswith("dep"):
            found = value
    return found or None


def _options_of(line: str) -> Iterator[tuple[str, str | None]]:
    """Options of a command that submits one job, with their values."""
    words = _words(line)
    command = PurePosixPath(words[0]).name if words else ""
    if command in _COMMANDS and ":" not in words:
        yield from _options(words[1:], command)


def _words(line: str) -> list[str]:
    if len(line) > _LONGEST:
        line = line[:_LONGEST].rpartition(" ")[0]
    try:
        return shlex.split(line)
    except ValueError:
        # an apostrophe in a comment is no quote that opens
        return line.split()


def _options(words: list[str], command: str) -> Iterator[tuple[str, str | None]]:
    """Options with their values, up to the script or to where it may begin."""
    waiting = iter(words)
    for word in waiting:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            # getopt takes the beginning of a name; shorter ones are --exclusive too
            name = "exclude" if name == "exclud" else name
            if name == "wrap":
                return
            takes_next = not equals and name not in _FLAGS
            takes_next &= not (name == "wait" and command == "sbatch")
            yield name, next(waiting, None) if takes_next else value
        elif word.startswith("-") and word not in {"-", "--"}:
            flags = _SHORT_FLAGS[command]
            n_flags = len(word[1:]) - len(word[1:].lstrip(flags))
            rest = word[1 + n_flags :]
            if rest:
                yield rest[0], rest[1:].removeprefix("=") or next(waiting, None)
        else:
            return
