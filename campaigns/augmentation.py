"""A tenth of the samples augmented: which policy keeps the gain, and does the probe choose it.

Two digits of MNIST, 500 to train on and 1,500 held out, all held-out ones augmented; 256
convolutional features and a logistic layer. Each augmented sample gives four copies. *Kept* is the
share of the gain of augmenting all that the probe's choice keeps at a tenth of the work. The probe
sees the training set alone: four folds of it.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from campaigns import Table
from campaigns.small_classifiers import (
    Floats,
    Ints,
    PatchFeatures,
    fitted,
    mnist,
    probabilities,
)
from ettr.samples import POLICIES, choose_policy, influence, pick

TITLE = "Augmenting a tenth of the samples"
SIZE = 8
SEED = 4100
BUDGET = 0.1
COPIES = 4
N_TRAINING, N_HELD_OUT = 500, 1500
TASKS = (
    (3, 8, "rotate", 30),
    (3, 8, "shift", 1),
    (3, 8, "shift", 2),
    (3, 8, "shift", 3),
    (4, 9, "shift", 3),
    (4, 9, "rotate", 30),
)


class _Task:
    """One drawn training set with its features, original and augmented."""

    def __init__(self, task: tuple[int, int, str, int], rng: np.random.Generator) -> None:
        first, second, self._kind, self._most = task
        images, digits = mnist("train")
        rows = rng.permutation(np.flatnonzero((digits == first) | (digits == second)))
        train, test = rows[:N_TRAINING], rows[N_TRAINING : N_TRAINING + N_HELD_OUT]
        self.labels: Ints = (digits[train] == second).astype(np.intp)
        self._test_labels: Ints = (digits[test] == second).astype(np.intp)
        features = PatchFeatures(images[train], rng)
        self._plain = features(images[train])
        self._copies = [features(self._augmented(images[train], rng)) for _ in range(COPIES)]
        self._test = features(self._augmented(images[test], rng))

    def _augmented(self, images: Floats, rng: np.random.Generator) -> Floats:
        out = np.empty_like(images)
        for index, image in enumerate(images):
            if self._kind == "rotate":
                angle = rng.uniform(-self._most, self._most)
                out[index] = ndimage.rotate(image, angle, reshape=False, order=1)
            else:
                by = rng.integers(-self._most, self._most + 1, size=2)
                out[index] = ndimage.shift(image, by, order=0)
        return out

    def layer(self, rows: Ints, augmented: Ints) -> Floats:
        features = np.concatenate([self._plain[rows], *(c[augmented] for c in self._copies)])
        labels = np.concatenate([self.labels[rows], *[self.labels[augmented]] * COPIES])
        return fitted(features, labels, 2)

    def on_fold(self, rows: Ints, augmented: Ints, fold: Ints) -> float:
        layer = self.layer(rows, augmented)
        right = [
            (probabilities(layer, copy[fold]).argmax(1) == self.labels[fold]).mean()
            for copy in self._copies
        ]
        return float(np.mean(right))

    def on_test(self, augmented: Ints) -> float:
        layer = self.layer(np.arange(N_TRAINING), augmented)
        return float((probabilities(layer, self._test).argmax(1) == self._test_labels).mean())

    def _said(self, rows: Ints) -> Floats:
        return probabilities(self.layer(rows, rows[:0]), self._plain[rows])

    def losses(self, rows: Ints) -> Floats:
        said = self._said(rows)
        return -np.log(np.clip(said[np.arange(len(rows)), self.labels[rows]], 1e-12, 1))

    def influences(self, rows: Ints) -> Floats:
        return influence(self._plain[rows], self.labels[rows], self._said(rows), ridge=3e-3)


def run(size: int) -> Table:
    """Every task, `size` training sets each."""
    rows = []
    below = 0
    kept_where_firm: list[float] = []
    for number, task in enumerate(TASKS):
        scores: dict[str, list[float]] = {name: [] for name in ("none", "all", *POLICIES, "chosen")}
        choices: list[str] = []
        for draw in range(size):
            rng = np.random.default_rng([SEED, number, draw])
            one = _Task(task, rng)
            every = np.arange(N_TRAINING)
            by = {"loss": one.losses, "influence": one.influences}
            choice = choose_policy(one.on_fold, one.labels, by, budget=BUDGET, rng=rng)
            choices.append(choice.policy)
            scores["none"].append(one.on_test(every[:0]))
            scores["all"].append(one.on_test(every))
            for policy in POLICIES:
                own = by[policy](every) if policy in by else None
                picked = pick(policy, own, n_samples=N_TRAINING, budget=BUDGET, rng=rng)
                scores[policy].append(one.on_test(picked))
            scores["chosen"].append(scores[choice.policy][-1])
        mean = {name: float(np.mean(found)) for name, found in scores.items()}
        gain = mean["all"] - mean["none"]
        kept = {name: (mean[name] - mean["none"]) / gain for name in (*POLICIES, "chosen")}
        apart = np.subtract(scores["chosen"], scores["random"])
        noise = float(apart.std(ddof=1)) / size**0.5 if size > 1 else float("nan")
        below += bool(apart.mean() < -2 * noise) if size > 1 else 0
        if max(kept["loss"], kept["influence"]) > kept["random"]:
            kept_where_firm.append(max(kept["loss"], kept["influence"]))
        first, second, kind, most = task
        what = f"{first} or {second}, " + (f"±{most}°" if kind == "rotate" else f"{most} px")
        counts = ", ".join(f"{name} {choices.count(name)}" for name in POLICIES)
        rows.append(
            (
                what,
                *(f"{mean[name]:.3f}" for name in ("none", "all", *POLICIES)),
                *(f"{kept[name]:.2f}" for name in (*POLICIES, "chosen")),
                f"{apart.mean():+.4f} ± {noise:.4f}",
                counts,
            )
        )
    verdict = (
        f"The better of loss and influence keeps {min(kept_where_firm, default=float('nan')):.2f} "
        f"to {max(kept_where_firm, default=float('nan')):.2f} where it beats a random pick "
        f"({len(kept_where_firm)} of {len(TASKS)} tasks); the probe's choice is below a random "
        f"pick by more than twice the noise in {below}."
    )
    return Table(
        (
            "task",
            "none",
            "all",
            *POLICIES,
            *(f"kept: {name}" for name in POLICIES),
            "kept: chosen",
            "chosen less random",
            "chosen by the probe",
        ),
        tuple(rows),
        f"[{SEED}, task, draw]",
        "at a tenth of the work .70 of the gain where loss or influence wins; never below a random "
        "pick by more than the noise",
        verdict,
    )
