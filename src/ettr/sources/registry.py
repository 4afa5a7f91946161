"""The sources, and how a file finds its own."""

from __future__ import annotations

import importlib
import re
from functools import cache

from ettr.errors import SourceError, UsageError
from ettr.sources.base import Source
from ettr.sources.training_metrics import names_step_alone
from ettr.tables.rows import text_of

# Modules below ettr.sources, each with a SOURCE, in the order in which `ettr sources` lists them.
# A new source is one line here; docs/how-to/add-a-source.md says what else it needs.
MODULES: tuple[str, ...] = (
    "slurm.sacct",
    "slurm.sacct_json",
    "slurm.events",
    "slurm.slurmctld",
    "slurm.inventory",
    "slurm.topology",
    "slurm.jobs",
    "node_health.kernel_xid",
    "node_health.gcm",
    "node_health.nvsentinel",
    "node_health.gpud",
    "node_health.nhc",
    "node_health.nvrx",
    "node_health.superbench",
    "node_health.dcgm_diag",
    "node_health.nccl_tests",
    "node_health.port_counters",
    "progress",
    "training_metrics",
    "torchtitan",
    "trainer_logs",
    "tensorboard",
    "wandb",
    "mlflow",
    "incidents",
    "gates",
    "pbs",
    "lsf",
    "flux",
    "kubernetes",
    "prometheus",
    "note",
    "infinitehbd",
    "lanl",
    "philly",
    "table",
)

# Below this score a file is not recognised; two sources closer than this to each other are a tie.
LEAST_SCORE = 0.5
# lines that are looked at one by one where sources differ on what a file is
_LOOKED_AT_LINES = 40
# a source that finds a few of its records among other lines scores less
_SURE_SCORE = 0.55


@cache
def all_sources() -> dict[str, Source]:
    """Every source by name, in the order in which `ettr sources` lists them."""
    found: dict[str, Source] = {}
    for module_name in MODULES:
        module = importlib.import_module(f"ettr.sources.{module_name}")
        found[module.SOURCE.name] = module.SOURCE
    return found


def named(name: str) -> Source:
    """The source of that name.

    Raises:
        UsageError: there is none; the message lists those that exist.
    """
    sources = all_sources()
    if name not in sources:
        raise UsageError(f"no source named {name!r}; there are: {', '.join(sources)}")
    return sources[name]


def recognise(head: bytes, file_name: str) -> Source:
    """The source whose format the first bytes of a file show.

    Raises:
        SourceError: none fits, or two fit equally well; the message says what to do.
    """
    scores = {s.name: s.matches(head, file_name) for s in all_sources().values()}
    best = max(scores, key=lambda name: scores[name])
    if scores[best] >= LEAST_SCORE and (other := _of_most_lines(head, file_name, named(best))):
        return other
    if scores[best] < LEAST_SCORE:
        if _LOCAL_WORDS.search(text_of(head[:4096])):
            raise SourceError(
                f"{file_name}: looks like dmesg -T with the days and months of another language; "
                "take the log with LC_ALL=C dmesg -T, or journalctl -k -o json"
            )
        if why := why_unreadable(head, names_step_alone(head)):
            raise SourceError(f"{file_name}: a training log without the times of its steps: {why}")
        raise SourceError(
            f"{file_name}: no known log format; name it with --source (ettr sources lists them), "
            "or say with --table which table a CSV or Parquet file of your own holds"
        )
    ties = [name for name, score in scores.items() if score == scores[best]]
    if len(ties) > 1:
        raise SourceError(f"{file_name}: looks like {' and '.join(ties)}; choose one with --source")
    return named(best)


def runners_up(head: bytes, file_name: str, taken: Source) -> list[str]:
    """Names of other sources that a file, or what follows its first line, may be of."""
    rest = b"\n".join(_lines(head)[1:])
    return [
        source.name
        for source in all_sources().values()
        if source is not taken
        and max(source.matches(head, file_name), source.matches(rest, file_name)) >= LEAST_SCORE
    ]


def _lines(head: bytes) -> list[bytes]:
    return [line for line in head.split(b"\n") if line.strip()][:_LOOKED_AT_LINES]


def _of_most_lines(head: bytes, file_name: str, best: Source) -> Source | None:
    """Another source that recognises most lines, where `best` does only the first ones; or None."""
    lines = _lines(head)
    if not best.tables:  # a note's first line says what it is, whatever it quotes
        return None
    others = (n for n, line in enumerate(lines) if best.matches(line, file_name) < LEAST_SCORE)
    n_own = max(1, next(others, len(lines)))
    rest = lines[n_own:]
    if len(rest) <= n_own:
        return None
    text = b"\n".join(rest)
    least = max(LEAST_SCORE, best.matches(text, file_name))
    is_sure = best.matches(head, file_name) >= _SURE_SCORE
    fitting: list[tuple[int, float, Source]] = []
    for source in all_sources().values():
        if source is best or (score := source.matches(text, file_name)) < least:
            continue
        n_known = sum(source.matches(line, file_name) >= LEAST_SCORE for line in rest)
        if 2 * n_known > len(rest) or not is_sure:
            fitting.append((n_known, score, source))
    return max(fitting, key=lambda one: one[:2])[2] if fitting else None


# a stamp of dmesg -T whose day and month are words of another language
_LOCAL_WORDS = re.compile(
    r"^(?:[\w.-]{1,64}: )?\[[^\]\d]{1,20}\s+(?:\d{1,2}[^\]\d]{0,3}\s+)?[^\]]{0,20}"
    r"\d\d:\d\d:\d\d \d{4}\]",
    re.MULTILINE,
)
_TEXT_LOGS = (
    (
        # what lies between is bounded, so that a line's time does not grow as its square
        re.compile(
            rb"^[ \t]{0,40}(?:\[[^\]\n]{0,80}\] )?[ \t]{0,40}iteration[ \t]{1,20}\d{1,12}/"
            rb"[ \t]{0,20}\d{1,12} \|",
            re.MULTILINE,
        ),
        "this version of Megatron prints no times with its steps: read the event files of its "
        "--tensorboard-dir, or what --log-progress writes",
    ),
    (
        re.compile(
            rb"\bglobal_step(?:=|: )\d{1,12}(?:\.0)?\b[^\n]{0,400}\breduced_train_loss|"
            rb"\breduced_train_loss[^\n]{0,400}\bglobal_step(?:=|: )\d"
        ),
        "NeMo prints no times with its steps: read the event files of its TensorBoard logger",
    ),
    (
        re.compile(rb"^iter \d{1,12}: loss [-0-9.a-z]{1,40}, time [0-9.]{1,40}ms", re.MULTILINE),
        "it says how long an iteration took but not when: have the loop write a CSV or JSON line "
        "with step and time",
    ),
    (
        re.compile(rb'"log_history"\s*:'),
        "Hugging Face's trainer_state.json has no times: read the event files of "
        'report_to="tensorboard"',
    ),
)


def why_unreadable(head: bytes, step_column: str | None) -> str:
    """Why steps cannot be read from a log of training, and what can; empty for any other file.

    Args:
        step_column: its column of steps, if it has one and none of times.
    """
    for pattern, why in _TEXT_LOGS:
        if pattern.search(head):
            return why
    if step_column is None:
        return ""
    return (
        f"its column {step_column!r} has steps, and no column is known to have times: say which "
        "with --source metrics --columns time=NAME, or have the logger write the time of each step "
        "(TensorBoard, wandb and MLflow do)"
    )
