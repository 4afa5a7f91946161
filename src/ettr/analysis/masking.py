"""A store whose names are pseudonyms, for reports that leave the site.

A pseudonym is a keyed hash: without the site's key it cannot be found by trying names, with it the
same name has the same pseudonym in every report. Users, accounts, jobs, nodes, partitions, places,
folders, files and devices have one each. Texts keep the words that the taxonomy itself has, short
numbers and PCI addresses; a name in them has its pseudonym. What a text may hold in too many
forms is left out: commands that submitted jobs, notes of the site, rejected rows, details.

Names are changed before anything is computed: every answer rests on pseudonyms alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ettr.errors import UsageError
from ettr.selection import Selection
from ettr.sources.node_lists import expand_nodes
from ettr.store import Store
from ettr.store.base import Ingestion
from ettr.store.computing import DUCKDB, with_arrow
from ettr.store.opening import on_duckdb
from ettr.tables import TABLES
from ettr.tables.rows import DEFAULT_CLUSTER, SIMULATION, UNNAMED_NOTE, taken_note
from ettr.taxonomy.catalogue import Taxonomy
from ettr.taxonomy.rules import read_kernel_forms

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from ettr.tables.schemas import EventSummary

LEAST_KEY_BYTES = 16
LEFT_OUT = "(left out)"
_NAME_DIGITS, _ID_DIGITS = 12, 16
# accounts of the system, which name nobody
_NOBODY = ("root", "slurm", "nobody")
_OF_A_JOB = ("job_id", "job_id_raw", "array_job_id", "het_job_id", "related_job_id")
_OF_A_NODE = ("node", "failed_node")
_KINDS = {
    "cluster": "cluster",
    **dict.fromkeys(("rack", "pod", "switch", "hardware_group"), "place"),
    **{name: name for name in ("user", "account", "partition", "qos")},
    "name": "name",
    "work_dir": "folder",
    "run_id": "run",
    "run": "run",
    "attempt_id": "attempt",
    "event_id": "event",
    "incident_id": "incident",
    "file_id": "file",
}
_CALLS = {
    **dict.fromkeys(("node_list", "excluded_nodes"), "nodes"),
    **dict.fromkeys(("reason", "message", "comment", "kind", "action", "check"), "text"),
    **dict.fromkeys(("entity_type", "gate", "evidence"), "text"),
    "cancelled_by": "numbers",
    "dependency": "jobs",
}
# a JSON object of numbers alone
_NUMBERS = '[{]("[a-z_]+": *(true|false|null|[-0-9.eE+]+)[,} ]*)*'
_DEVICE = "[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}([.][0-7])?|[0-9]{1,3}"
_PCI = re.compile(r"(?:PCI:)?(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?", re.I)
_TOKEN = re.compile(r"[^\s,;=()\[\]{}<>\"'|!?*&%$\\`]+")
_PIECES = re.compile(r"[-_./:+@#~^]+")
_JOB_BEFORE = re.compile(r"job(?:[ _-]?id)?\s*[=: #]?\s*$", re.I)
# words of Slurm's own lines, which are read for states and requests
_OWN_WORDS = (
    "reason set to state with not responding update_node request from uid job killed signal "
    "cancelled cancel requeue preempted preempt node nodes down drain drained draining resume idle "
    "gpu gpus gres count reported lower than configured error failed failure fatal unknown by of "
    "the and for on in is was has have been after before at from to no none due too low high limit "
    "xid nvrm pci pid name has fallen off bus health check prolog epilog reboot rebooted "
    "unexpectedly maintenance kernel panic memory ecc nvlink fabric timeout timed out killed "
    "process task link fan power temperature thermal disk full mount network storage filesystem "
    "lustre nfs slurmctld slurmd nhc dcgm operation user job jobs hardware software driver reset "
    "uncorrectable correctable machine events logged invalid state set received response launch"
)


class Masks:
    """Pseudonyms by one key.

    Args:
        key: bytes that only the site has.
    """

    def __init__(self, key: bytes, taxonomy: Taxonomy) -> None:
        self._key = sha256(key).hexdigest()
        self._taxonomy = taxonomy
        self._words = frozenset(_words_of(taxonomy))
        self._names: dict[str, str] = {}

    def knows(self, names: Iterable[tuple[str, str]]) -> None:
        """Take names, with their pseudonyms, that texts may hold."""
        self._names.update((name.lower(), masked) for name, masked in names)

    def digits(self, text: str, n_digits: int) -> str:
        """The keyed hash of a text as so many decimal digits, as `digits_sql` makes it."""
        inner = sha256(f"{self._key}{text}".encode()).hexdigest()
        outer = sha256(f"{self._key}{inner}".encode()).hexdigest()
        return outer[:n_digits].translate(str.maketrans("abcdef", "123456"))

    def digits_sql(self, text: str, n_digits: int) -> str:
        """An expression of DuckDB for the same; null of null."""
        inner = f"sha256('{self._key}' || {text})"
        outer = f"sha256('{self._key}' || {inner})"
        return f"translate(left({outer}, {n_digits}), 'abcdef', '123456')"

    def name(self, kind: str, text: str) -> str:
        """The pseudonym of a name of a kind."""
        if kind == "user" and text in _NOBODY:
            return text
        if kind == "cluster" and text == DEFAULT_CLUSTER:
            return text
        return f"{kind}-{self.digits(text, _NAME_DIGITS)}"

    def name_sql(self, kind: str, column: str) -> str:
        """An expression of DuckDB for the same."""
        masked = f"'{kind}-' || {self.digits_sql(column, _NAME_DIGITS)}"
        plain = {"user": _NOBODY, "cluster": (DEFAULT_CLUSTER,)}.get(kind, ())
        if not plain:
            return masked
        listed = ", ".join(f"'{name}'" for name in plain)
        return f"CASE WHEN {column} IN ({listed}) THEN {column} ELSE {masked} END"

    def node(self, text: str) -> str:
        """The pseudonym of a node: of its host name in lower case, and of its domain."""
        host, dot, domain = text.lower().partition(".")
        if not dot or host.isdigit():
            return f"node-{self.digits(text.lower(), _NAME_DIGITS)}"
        parts = self.digits(host, _NAME_DIGITS), self.digits(domain, _NAME_DIGITS)
        return f"node-{parts[0]}.domain-{parts[1]}"

    def node_sql(self, column: str) -> str:
        """An expression of DuckDB for the same."""
        low = f"lower({column})"
        whole = self.digits_sql(low, _NAME_DIGITS)
        host = self.digits_sql(f"split_part({low}, '.', 1)", _NAME_DIGITS)
        domain = self.digits_sql(f"substr({low}, strpos({low}, '.') + 1)", _NAME_DIGITS)
        return (
            f"CASE WHEN strpos({low}, '.') = 0 OR regexp_full_match({low}, '[0-9]+[.].*') "
            f"THEN 'node-' || {whole} ELSE 'node-' || {host} || '.domain-' || {domain} END"
        )

    def job(self, text: str) -> str:
        """The pseudonym of a job's id: 7_1 stays a task of its array."""
        found = re.match(r"([0-9]+)((?:[_+][0-9]+|_?\[[0-9,%-]+\])?)", text)
        if found is None:
            return f"job-{self.digits(text, _ID_DIGITS)}"
        return f"{self.digits(found[1], _ID_DIGITS)}{found[2]}"

    def job_sql(self, column: str) -> str:
        """An expression of DuckDB for the same."""
        number = f"regexp_extract({column}, '^[0-9]+')"
        tail = f"regexp_extract({column}, '^[0-9]+([_+][0-9]+|_?\\[[0-9,%-]+\\])?', 1)"
        return (
            f"CASE WHEN {number} = '' THEN 'job-' || {self.digits_sql(column, _ID_DIGITS)} "
            f"ELSE {self.digits_sql(number, _ID_DIGITS)} || {tail} END"
        )

    def nodes(self, text: str) -> str:
        """The pseudonyms of a list of nodes, one after another."""
        try:
            return ",".join(self.node(name) for name in expand_nodes(text))
        except ValueError:
            return LEFT_OUT

    def jobs(self, text: str) -> str:
        """What a job waits for: the ids in it are pseudonyms."""
        kept = re.sub(r"[^a-z0-9_+:,?]+", "", text)
        return re.sub(r"[0-9]+", lambda found: self.digits(found[0], _ID_DIGITS), kept)

    def numbers(self, text: str) -> str:
        """The id of a user."""
        return self._token(text, is_job=False)

    def text(self, text: str) -> str:
        """A text with its names as pseudonyms; what a pattern of a reason names stays readable."""
        low = text.lower()
        for rule in self._taxonomy.reasons:
            if rule.fits(low):
                return self._between(rule.pattern, text)
        return self._words_in(text)

    def _between(self, pattern: str, text: str) -> str:
        """Keep what the literal parts of a shell-like pattern match; all else is changed."""
        done, rest = [], text
        for part in re.split(r"\*|\?|\[[^]]*\]", pattern):
            place = rest.lower().find(part)
            if not part or place < 0:
                continue
            done += [self._words_in(rest[:place]), rest[place : place + len(part)]]
            rest = rest[place + len(part) :]
        return "".join([*done, self._words_in(rest)])

    def _words_in(self, text: str) -> str:
        def one(found: re.Match[str]) -> str:
            before = text[: found.start()]
            return self._token(found[0], is_job=_JOB_BEFORE.search(before[-12:]) is not None)

        return _TOKEN.sub(one, text)

    def _token(self, token: str, *, is_job: bool) -> str:
        word = token.rstrip(".:")
        if known := self._names.get(word.lower()):
            return known + token[len(word) :]
        if word.isdigit():
            return self.job(word) if is_job or len(word) > 3 else token
        pieces = [piece for piece in _PIECES.split(word.lower()) if piece]
        if _PCI.fullmatch(word) or not pieces:
            return token
        numbers = sum(piece.isdigit() for piece in pieces)
        if all(piece in self._words for piece in pieces):
            return token
        is_plain = all(piece.isdigit() and len(piece) <= 3 for piece in pieces)
        if is_plain and numbers <= 2:
            return token
        return f"x-{self.digits(word.lower(), _NAME_DIGITS)}{token[len(word) :]}"


def read_key(path: Path) -> bytes:
    """The key in a file.

    Raises:
        UsageError: there is none, or it is too short to be secret.
    """
    make = f"make one with `head -c 32 /dev/urandom > {path}` and keep it"
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"--anonymise {path}: {error.strerror}; {make}") from None
    if len(key) < LEAST_KEY_BYTES:
        raise UsageError(
            f"--anonymise {path}: holds {len(key)} bytes, and a key has {LEAST_KEY_BYTES} or more; "
            f"{make}"
        )
    return key


def masked_selection(chosen: Selection, masks: Masks) -> Selection:
    """The same rows by their pseudonyms; its nodes are names, no patterns."""

    def of(kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(masks.name(kind, name) for name in names)

    return replace(
        chosen,
        partition=of("partition", chosen.partition),
        account=of("account", chosen.account),
        user=of("user", chosen.user),
        qos=of("qos", chosen.qos),
        cluster=of("cluster", chosen.cluster),
        node=tuple(map(masks.node, chosen.node)),
    )


def masked_node(name: str, masks: Masks) -> str:
    """A node, or CLUSTER/NODE, as a command names it."""
    cluster, slash, node = name.rpartition("/")
    return f"{masks.name('cluster', cluster) if slash else ''}{slash}{masks.node(node)}"


class MaskedStore(Store):
    """The tables of a store with pseudonyms; read only."""

    def __init__(self, store: Store, masks: Masks) -> None:
        if store.computing.engine != DUCKDB:
            raise UsageError(
                f"--anonymise: names are replaced on {DUCKDB}; leave --engine out, or leave "
                "--anonymise out"
            )
        self._store = on_duckdb(store)
        self._masks = masks
        duck = self.connection
        for name, function in (
            ("ettr_text", masks.text),
            ("ettr_nodes", masks.nodes),
            ("ettr_jobs", masks.jobs),
            ("ettr_numbers", masks.numbers),
        ):
            duck.create_function(f"{name}_{id(self)}", _cached(function), ["VARCHAR"], "VARCHAR")
        self._take_names()

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB of the store."""
        duck = self._store.connection
        if duck is None:
            raise UsageError(f"{self.where}: its engine is not DuckDB")
        return duck

    @property
    def where(self) -> str:
        """Nothing that names the place."""
        return "the store"

    @property
    def file_mode(self) -> int:
        """As of the store."""
        return self._store.file_mode

    def source(self, name: str) -> str:
        """The named table, with pseudonyms."""
        columns = ", ".join(
            f'{self._column(name, column.name)} AS "{column.name}"' for column in TABLES[name]
        )
        return f"(SELECT {columns} FROM {self._store.source(name)} t)"  # noqa: S608 - names of ours

    def summary(self, summary: EventSummary) -> str | None:
        """A kept summary, with pseudonyms."""
        place = self._store.summary(summary)
        if place is None:
            return None
        columns = ", ".join(
            f'{self._column("events", column.name)} AS "{column.name}"' for column in summary.table
        )
        return f"(SELECT {columns} FROM {place} t)"  # noqa: S608 - names of ours

    def rows(self, name: str) -> pa.Table:
        """All rows of a table."""
        query = f"SELECT * FROM {self.source(name)}"  # noqa: S608 - names of ours
        return with_arrow(self.connection).sql(query).to_arrow_table()

    def is_small(self, name: str) -> bool:
        """As of the store."""
        return self._store.is_small(name)

    def part_files(self) -> tuple[str, ...]:
        """As of the store."""
        return self._store.part_files()

    def ingestion(self, file_id: str) -> AbstractContextManager[Ingestion]:
        """Refuse. Raises UsageError: always."""
        raise UsageError("a store under pseudonyms is read only")

    def check_integrity(self) -> None:
        """As of the store."""
        self._store.check_integrity()

    def close(self) -> None:
        """Leave the store to its owner."""

    def _take_names(self) -> None:
        """Names that texts may hold, each with its pseudonym."""
        masks, asked = self._masks, self.connection.execute
        for table, column, kind in (
            *((table, "node", "node") for table in ("nodes", "allocations", "node_states")),
            *((table, "node", "node") for table in ("log_days", "events")),
            *(("attempts", column, column) for column in ("user", "account", "partition", "qos")),
            ("node_states", "user", "user"),
            ("attempts", "cluster", "cluster"),
        ):
            # names of ours
            sql = f'SELECT DISTINCT "{column}" FROM {self._store.source(table)} t'  # noqa: S608
            names = [name for (name,) in asked(sql).fetchall() if name]
            of = masks.node if kind == "node" else lambda name, kind=kind: masks.name(kind, name)
            masks.knows((name, of(name)) for name in names)

    def changes(self, table: str, column: str) -> bool:
        """Whether a column of a table, stored or derived, holds pseudonyms or nothing."""
        return column == "job_ids" or self._column(table, column) != f't."{column}"'

    def _column(self, table: str, column: str) -> str:
        """The expression of a column, of rows `t`."""
        raw = f't."{column}"'
        if table == "files":
            return self._of_files(column, raw)
        if table == "rejects" and column in ("detail", "raw"):
            return f"'{LEFT_OUT}'"
        if (table, column) == ("progress", "detail"):
            return f"CASE WHEN regexp_full_match({raw}, '{_NUMBERS}') THEN {raw} END"
        if column == "submit_line":
            return "CAST(NULL AS VARCHAR)"
        return self._masked(column, raw)

    def _masked(self, column: str, raw: str) -> str:
        """The expression of a column that is masked alike in every table."""
        masks = self._masks
        if column in _CALLS:
            return self._call(_CALLS[column], raw)
        if column in _KINDS:
            return masks.name_sql(_KINDS[column], raw)
        if column in _OF_A_NODE:
            return masks.node_sql(raw)
        if column in _OF_A_JOB:
            return masks.job_sql(raw)
        if column == "partitions":
            return _each(raw, masks.name_sql("partition", "x"))
        if column == "other_names":
            return _each(raw, masks.node_sql("x"))
        if column == "entity":
            masked = masks.name_sql("device", raw)
            return f"CASE WHEN regexp_full_match({raw}, '{_DEVICE}') THEN {raw} ELSE {masked} END"
        return raw

    def _of_files(self, column: str, raw: str) -> str:
        if column == "file_id":
            return self._masks.name_sql("file", raw)
        if column == "name":
            return self._masks.name_sql("log", raw)
        if column == "options":
            return f"CASE WHEN t.source = '{SIMULATION}' THEN {raw} ELSE '{{}}' END"
        if column == "notes":
            kept = " || ".join(
                f"CASE WHEN contains({raw}, '{note}') THEN '{note}' ELSE '' END"
                for note in (
                    UNNAMED_NOTE.replace("'", "''"),
                    taken_note(DEFAULT_CLUSTER).replace("'", "''"),
                )
            )
            return f"nullif({kept}, '')"
        return raw

    def _call(self, name: str, raw: str) -> str:
        return f"ettr_{name}_{id(self)}({raw})"


def _each(names: str, masked: str) -> str:
    """An expression of a list after commas, each name of which is masked as `x`."""
    return f"array_to_string(list_transform(string_split({names}, ','), lambda x: {masked}), ',')"


def _cached(function: Callable[[str], str]) -> Callable[[str], str]:
    kept = cache(function)

    def masked(text: str) -> str:
        return kept(text)

    return masked


def _words_of(taxonomy: Taxonomy) -> Iterable[str]:
    """Words of the taxonomy and of Slurm's own lines."""
    yield from _OWN_WORDS.split()
    texts: list[str] = []
    for rule in taxonomy.rules:
        texts += [rule.check, rule.code, rule.source]
    for reason in taxonomy.reasons:
        texts += [reason.pattern, reason.reason_class]
    for form in (*read_kernel_forms(), *taxonomy.site_kernel):
        texts += [form.code, form.mark, re.sub(r"\\\\[a-zA-Z]", " ", form.pattern)]
    for text in texts:
        yield from re.findall(r"[a-z]{2,}", text.lower())
