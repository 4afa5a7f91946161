"""Range queries of a Prometheus server, asked in pieces and saved one answer a line.

A piece has fewer points than a server gives (11,000 a series) and is smaller where there are many
series. Of values that stay only the ends are kept. A later collection goes on where the file ends.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ettr.collect.running import CollectError

Samples = list[tuple[float, str]]

_MOST_POINTS, _MOST_SAMPLES, _FIRST_POINTS, _TIMEOUT_S = 10_000, 1_000_000, 240, 120.0
_TOO_LARGE = frozenset((400, 413, 422))


@dataclass(frozen=True, slots=True)
class Answered:
    """How many answers were written, of how many series in all."""

    answers: int
    series: int


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection, which could take the token elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Answer as if there were none."""


def collect_prometheus(
    url: str,
    path: Path,
    queries: Iterable[str],
    since_s: float | None,
    until_s: float,
    step_s: float,
    token: str | None,
    reduced: Callable[[Samples, float], list[Samples]],
    complain: Callable[[str], None],
) -> Answered:
    """Append the answers to a file, from where it ends.

    Args:
        since_s: where it begins for queries that are not in the file yet; seconds from 1970.
        token: sent as bearer, and nowhere else.
        reduced: a series without the samples that say nothing new, in stretches without a gap.

    Raises:
        CollectError: the server refuses, does not answer, `since_s` is needed, or the file is not
            one of these.
        OSError: the file cannot be written.
    """
    place = urllib.parse.urlsplit(url)
    if place.scheme not in {"http", "https"} or not place.hostname or "@" in place.netloc:
        raise CollectError(
            f"{url.rpartition('@')[2][:200]}: give the server as http:// or https://, without a "
            "user or a password; a token comes from --token-file or PROMETHEUS_TOKEN"
        )
    n_answers = n_series = 0
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "rb+") as file:
        try:
            ends = _ends(file)
        except (ValueError, KeyError, TypeError):
            raise CollectError(
                f"{path}: is not what this command writes; give another folder, or move it away"
            ) from None
        for query in queries:
            first_s = ends[query] + step_s if query in ends else since_s
            if first_s is None:
                raise CollectError(f"{path}: {query} was not asked before; give --since")
            for end_s, answer in _pieces(url, query, first_s, until_s, step_s, token, complain):
                series = [
                    {"metric": one["metric"], "step": step_s, "values": part}
                    for one in answer
                    for part in reduced([(float(t), str(v)) for t, v in one["values"]], step_s)
                ]
                data = {"resultType": "matrix", "result": series}
                line = {"query": query, "end": end_s, "status": "success", "data": data}
                file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                file.flush()
                n_answers, n_series = n_answers + 1, n_series + len(answer)
    return Answered(n_answers, n_series)


def _ends(file: Any) -> dict[str, float]:
    """Until when each query of a file was answered; half a line at its end is cut off."""
    found: dict[str, float] = {}
    whole = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        whole += len(line)
        value = json.loads(line)
        found[value["query"]] = max(found.get(value["query"], 0.0), value["end"])
    file.seek(whole)
    file.truncate()
    return found


def _pieces(
    url: str,
    query: str,
    first_s: float,
    until_s: float,
    step_s: float,
    token: str | None,
    complain: Callable[[str], None],
) -> Iterator[tuple[float, list[Any]]]:
    """Answers for following times, each with the time of its last point."""
    points = _FIRST_POINTS
    while first_s <= until_s:
        end_s = min(first_s + (points - 1) * step_s, until_s)
        end_s = first_s + (end_s - first_s) // step_s * step_s
        found = _asked(url, query, first_s, end_s, step_s, token, complain, may_shrink=points > 1)
        if found is None:
            points = max(1, points // 4)
            continue
        yield end_s, found
        first_s = end_s + step_s
        points = min(_MOST_POINTS, 4 * points, max(1, _MOST_SAMPLES // max(1, len(found))))


def _asked(
    url: str,
    query: str,
    first_s: float,
    end_s: float,
    step_s: float,
    token: str | None,
    complain: Callable[[str], None],
    may_shrink: bool,
) -> list[Any] | None:
    """The series of one answer; None where it would be too large."""
    given = {
        "query": query,
        "start": f"{first_s:.3f}",
        "end": f"{end_s:.3f}",
        "step": f"{step_s:g}",
    }
    where = f"{url.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(given)}"
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    opener = urllib.request.build_opener(_Stay)
    for left in (2, 1, 0):
        try:
            request = urllib.request.Request(where, headers=headers)  # noqa: S310 - http or https
            with opener.open(request, timeout=_TIMEOUT_S) as answer:
                value = json.loads(answer.read())
            series = list(value["data"]["result"])
            for one in value.get("warnings") or ():  # of Thanos: part of its stores did not answer
                complain(
                    f"{query}: the server says that its answer may lack data: {str(one)[:300]}"
                )
            return series
        except urllib.error.HTTPError as error:
            answer_text = error.read(2000).decode("utf-8", "replace")
            if error.code in _TOO_LARGE and may_shrink:
                return None
            if error.code < 500 or not left:
                raise CollectError(
                    f"{url}: HTTP {error.code} to {query}: {answer_text[:300]}"
                ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            # cut within its JSON, or no answer at all: once more
            if not left:
                raise CollectError(f"{url}: no answer to {query}: {error}") from None
    return None
