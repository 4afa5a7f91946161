"""What a job's steps say of it: sacct prints them behind their job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sources.slurm import fields as words
from ettr.sources.slurm.columns import INT, TEXT, Mask, mapped, matches


@dataclass(frozen=True, slots=True)
class Steps:
    """What the steps of each job say of it; null where the log holds none.

    `folded` is the number of steps that follow their job; others say nothing of any.
    """

    state: pa.Array
    code: pa.Array
    signal: pa.Array
    folded: int = 0

    @classmethod
    def fold(
        cls, given: Mapping[str, pa.Array], ids: pa.Array, is_job: Mask, is_step: Mask
    ) -> Steps:
        """Fold the steps among some records into the jobs that they follow."""
        n_jobs = int(is_job.sum())
        if not is_step.any() or not n_jobs:
            return cls(pa.nulls(n_jobs, TEXT), pa.nulls(n_jobs, INT), pa.nulls(n_jobs, INT))
        at = np.flatnonzero(is_step)
        job_number = np.cumsum(is_job) - 1
        job_at = np.flatnonzero(is_job)
        parent = job_number[at]
        own = pc.replace_substring_regex(ids.take(pa.array(at)), r"\..*$", "")
        same = pc.equal(own, ids.take(pa.array(job_at[np.maximum(parent, 0)])))
        is_own = same.to_numpy(zero_copy_only=False) & (parent >= 0)
        at, parent = at[is_own], parent[is_own]
        ranks, _ = mapped(given["state"].take(pa.array(at)), _rank, INT)
        worst = np.full(n_jobs, 99, dtype=np.int64)
        np.minimum.at(worst, parent, ranks.fill_null(99).to_numpy())
        names = pa.array([*words.STEP_RANK], TEXT)
        state = names.take(pa.array(worst, mask=worst >= len(names)))
        code, signal = _highest_exit(given, at, parent, ids, n_jobs)
        return cls(state, code, signal, len(at))


def _highest_exit(
    given: Mapping[str, pa.Array],
    at: npt.NDArray[np.int64],
    parent: npt.NDArray[np.int64],
    ids: pa.Array,
    n_jobs: int,
) -> tuple[pa.Array, pa.Array]:
    """Highest exit code of each job's numbered steps, as Slurm's DerivedExitCode has it."""
    if "exitcode" not in given:
        return pa.nulls(n_jobs, INT), pa.nulls(n_jobs, INT)
    numbered = matches(ids.take(pa.array(at)), r"\.\d+$")
    at, parent = at[numbered], parent[numbered]
    both, _ = mapped(given["exitcode"].take(pa.array(at)), _exit_in_one, INT)
    highest = np.full(n_jobs, -1, dtype=np.int64)
    np.maximum.at(highest, parent, both.fill_null(-1).to_numpy())
    none = highest < 0
    return pa.array(highest // 1000, INT, mask=none), pa.array(highest % 1000, INT, mask=none)


def _exit_in_one(text: str) -> int | None:
    code, signal = words.exit_code(text)
    return None if code is None else 1000 * code + min(signal or 0, 999)


def _rank(text: str) -> int | None:
    return words.STEP_RANK.get(words.state_and_user(text)[0])
