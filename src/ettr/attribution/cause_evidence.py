"""Causes of interruptions, and what each of them leaves to be seen.

Source:
    Kokolis et al. (HPCA 2025), Table I.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ettr.taxonomy import Symptom

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CauseDomain(StrEnum):
    """The failure domains, and what is in none of them."""

    NODE = "node_hardware"
    SHARED = "shared"
    SYSTEM = "system_software"
    USER = "user_program"
    OPERATOR = "operator"
    UNKNOWN = "unknown"


CAUSES = tuple(CauseDomain)
NODE_FAILED, FAILED, OUT_OF_MEMORY, BY_OPERATOR = "node-failed", "failed", "oom", "operator"
"""What is seen where no symptom is: the scheduler says that a node failed; an end without a sign;
memory used up; an operator's act."""
SIGNS = frozenset({NODE_FAILED, FAILED, OUT_OF_MEMORY, BY_OPERATOR})
PUBLISHED_COINCIDENCES = 0.01
"""Of attempts that completed, the share with a failed check in its window (Kokolis et al. 2025),
taken where no completed attempt could show one."""
_SHARED_SIGNS = frozenset({"infiniband", "ethlink", "filesystem", "facility", "nvlink"})
_CANNOT_SHOW = np.array([3e-3, 3e-3, 3e-3, 1e-4, 1e-4, 1.0])
"""What a cause is seen as though it cannot show it; coincidences come on top."""
_NO_ACT = 1e-4
"""The same of an operator's act where no operator acted."""
FAULTS = (CauseDomain.NODE, CauseDomain.SHARED, CauseDomain.SYSTEM)
BURSTS = (CauseDomain.SHARED, CauseDomain.SYSTEM)
"""What can end jobs of many users at one moment."""


@dataclass(frozen=True, slots=True)
class Coincidences:
    """How often the window around the end of an attempt that nothing ended shows a symptom."""

    per_attempt: float = PUBLISHED_COINCIDENCES
    per_node: float = 0.0
    of_kind: Mapping[str, int] = field(default_factory=dict)

    def chance(self, kinds: Sequence[str], nodes: Floats) -> Floats:
        """How likely an attempt shows each kind by coincidence, shape (kinds, attempts).

        Symptoms that no completed attempt showed count as half a coincidence each; signs never do.
        """
        counts = np.array(
            [0.0 if kind in SIGNS else self.of_kind.get(kind, 0) + 0.5 for kind in kinds]
        )
        share = counts / max(sum(self.of_kind.values()) + 0.5, float(counts.sum()))
        met = -np.expm1(-(self.per_attempt + self.per_node * nodes))
        return np.asarray(share[:, None] * met, dtype=np.float64)


def coincidences(
    nodes: Floats, attempts: Floats, met: Floats, of_kind: Mapping[str, int]
) -> Coincidences:
    """What attempts that completed show of coincidences, by their sizes.

    Args:
        met: how many of those had a symptom in their window, by size.
    """
    if not attempts.sum() > 0:
        return Coincidences()
    # none of many is half of one
    expected = -np.log1p(-np.minimum(met / np.maximum(attempts, 1.0), 1 - 1e-6))
    weight = np.sqrt(attempts / (1 + nodes))
    design = np.stack([np.ones(len(nodes)), nodes], axis=1) * weight[:, None]
    per_attempt, per_node = _least_squares_above_zero(design, expected * weight)
    least = 0.5 / float(attempts.sum())
    return Coincidences(max(float(per_attempt), least), float(per_node), dict(of_kind))


def _least_squares_above_zero(design: Floats, target: Floats) -> tuple[float, float]:
    """Least squares of two coefficients, neither negative; SciPy's `nnls` takes .2 s to load."""
    (a, b), _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
    if rank == 2 and a >= 0 and b >= 0:
        return float(a), float(b)
    # one is zero: the better fit of the two alone; of columns that say the same, the larger
    slope = np.maximum(target @ design, 0.0)
    alone = slope / np.maximum((design**2).sum(axis=0), 1e-300)
    gain = slope * alone if rank == 2 else slope
    return (float(alone[0]), 0.0) if gain[0] >= gain[1] else (0.0, float(alone[1]))


def evidence_table(
    kinds: Sequence[str], symptoms: Mapping[str, Symptom], has_checks: bool
) -> Floats:
    """How likely each cause is to leave each kind of evidence, before the data.

    Columns sum to one where all kinds occur that a cause can leave, else to less.

    Table I says which symptoms a domain can show. What it cannot show may still have been seen by
    chance, so that nothing has probability 0.

    Args:
        has_checks: whether any log could have shown a symptom; where none could, a fault leaves
            nothing but the end of the job.
    """
    silent = 0.1 if has_checks else 0.5
    signs = {
        CauseDomain.NODE: {
            NODE_FAILED: 0.3,
            FAILED: silent,
            OUT_OF_MEMORY: 0.002,
            BY_OPERATOR: 0.001,
        },
        CauseDomain.SHARED: {NODE_FAILED: 0.25, FAILED: min(2 * silent, 0.5), BY_OPERATOR: 0.001},
        CauseDomain.SYSTEM: {NODE_FAILED: 0.2, FAILED: min(2 * silent, 0.5), OUT_OF_MEMORY: 0.02},
        CauseDomain.USER: {FAILED: 0.85, OUT_OF_MEMORY: 0.1, NODE_FAILED: 0.003},
        CauseDomain.OPERATOR: {
            BY_OPERATOR: 0.85,
            FAILED: 0.002,
            NODE_FAILED: 0.001,
            "operations": 0.08,
        },
    }
    made = np.tile(_CANNOT_SHOW, (len(kinds), 1))
    made[:, CAUSES.index(CauseDomain.UNKNOWN)] = 1.0
    # only an act of an operator is recorded as one; a few end jobs that a fault has hit
    made[[kind == BY_OPERATOR for kind in kinds], :-1] = _NO_ACT
    for column, cause in enumerate(CAUSES[:-1]):
        shown = [kind for kind in kinds if _may_show(cause, symptoms.get(kind))]
        left = max(0.05, 1.0 - sum(signs[cause].values()))
        for row, kind in enumerate(kinds):
            made[row, column] += signs[cause].get(kind, 0.0)
            if kind in shown:
                made[row, column] += (0.04 if cause is CauseDomain.USER else left) / len(shown)
    # what a cause leaves where none of it occurs is left out: an operator's act is no crash
    return np.asarray(made / np.maximum(made.sum(axis=0), 1.0), dtype=np.float64)


def outage_signs(evidence: Ints, prior: Floats, kinds: Sequence[str] = ()) -> Floats:
    """How much likelier than the usual ends an outage is to leave what was seen of each end.

    A row for what nodes share and one for system software, which can end many jobs at once too.

    Args:
        evidence: the kind of each end, by its row of `prior`.
        prior: `evidence_table`.
        kinds: its rows. A symptom of what nodes share (a filesystem) that many nodes show at one
            moment is not of the software of each: at most half as likely.
    """
    usual = np.bincount(evidence, minlength=len(prior)) + 0.5
    columns = [CAUSES.index(one) for one in BURSTS]
    left = prior[:, columns].T.copy()
    shared = np.array([kind in _SHARED_SIGNS for kind in kinds], dtype=np.bool_)
    if shared.any():
        left[1, shared] = np.minimum(left[1, shared], left[0, shared] / 2.0)
    ratio = left / (usual / usual.sum())
    return np.asarray(ratio[:, evidence], dtype=np.float64)


def _may_show(cause: CauseDomain, symptom: Symptom | None) -> bool:
    if symptom is None:
        return False
    if cause is CauseDomain.SHARED:
        return symptom.slug in _SHARED_SIGNS or symptom.domain.count("+") == 2
    if cause is CauseDomain.NODE:
        return symptom.hardware
    if cause is CauseDomain.SYSTEM:
        return symptom.system_software
    return cause is CauseDomain.USER and symptom.user_program
