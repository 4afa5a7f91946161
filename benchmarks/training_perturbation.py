"""What is left unsaved under each policy at equal bytes: the perturbation of a lost quarter.

Every policy watches the very same training run, each with a running checkpoint of its own, so that
they differ in nothing else. The bytes that each has staged are printed too: a policy that saves
only what has changed may have nothing to spend its budget on. Models: a small GPT with AdamW on the
sources of Python's standard library; an embedding table whose rows are met with Zipf's frequencies
(of 1,000 rows, 64 draws a step); a mixture of 16 experts, one for each token, and what its router
has chosen counts as touched (as in MoC-System, ASPLOS 2025); a recommender of two tables and a
network over them (as in CPR, MLSys 2021). The last columns: how near the two estimates of ‖δ‖
that `restore` gives, on a straight line and as a walk, come to the truth five steps after the last
save.
"""

import argparse
import copy
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import nn

from ettr.checkpoint import Budget, RunningCheckpoint, TrainingState, restore

STEPS, WARM_UP, AFTER = 96, 24, 5
CONTEXT, BATCH, WIDTH = 32, 16, 48
ROWS, DRAWS = 1000, 64
# what a step has touched: names (or beginnings of names) -> rows, None: all of it
Touched = dict[str, torch.Tensor | None]
Advance = Callable[[], Touched]


@dataclass(frozen=True)
class Case:
    """A model, the share of its bytes a step, the policies to compare."""

    name: str
    make: Callable[[int], tuple[nn.Module, torch.optim.Optimizer, Advance]]
    every: int  # a full save every so many steps is the same bytes as 1/every of them each step
    options: dict
    policies: tuple[str, ...]


@dataclass
class Watched:
    """One policy on one run."""

    checkpoint: RunningCheckpoint
    saved: dict[str, torch.Tensor]
    staged_bytes: int = 0
    distances: list[float] = field(default_factory=list)


class Gpt(nn.Module):
    """Two layers, one head of attention each; the output layer is the embedding."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        nn.init.normal_(self.letters.weight, std=0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the next letter."""
        h = self.letters(x) + self.places.weight[: x.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        for layer in self.layers:
            h = layer(h, mask, is_causal=True)
        return self.norm(h) @ self.letters.weight.T


def corpus() -> np.ndarray:
    """Bytes of some modules of the standard library, as tokens below 128."""
    folder = Path(os.__file__).parent
    names = ("argparse", "ast", "datetime", "inspect", "logging/__init__", "pathlib", "typing")
    text = b"".join((folder / f"{name}.py").read_bytes() for name in names)
    return np.minimum(np.frombuffer(text, np.uint8), 127).astype(np.int64)


def gpt(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Advance]:
    """The dense model: about 65,000 parameters, at a learning rate at which it learns fast."""
    torch.manual_seed(seed)
    rng, text = np.random.default_rng(seed), corpus()
    model = Gpt(128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def advance() -> Touched:
        at = rng.integers(0, len(text) - CONTEXT - 1, BATCH)[:, None] + np.arange(CONTEXT + 1)
        window = torch.from_numpy(text[at])
        optimizer.zero_grad()
        scores = model(window[:, :-1]).flatten(0, 1)
        nn.functional.cross_entropy(scores, window[:, 1:].flatten()).backward()
        optimizer.step()
        return {}

    return model, optimizer, advance


def embedding(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Advance]:
    """The sparse model: a table drawn to fixed targets, its rows met with Zipf's frequencies."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, ROWS + 1) ** 1.1
    order = rng.permutation(ROWS)
    model = nn.Embedding(ROWS, 16)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    target = torch.randn(ROWS, 16)

    def advance() -> Touched:
        rows = torch.from_numpy(order[rng.choice(ROWS, DRAWS, p=weights / weights.sum())])
        optimizer.zero_grad()
        nn.functional.mse_loss(model(rows), target[rows], reduction="sum").backward()
        optimizer.step()
        return {"weight": rows}

    return model, optimizer, advance


class Mixture(nn.Module):
    """Sixteen experts, one for each token by a router that is trained with them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 16)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH)) for _ in range(16)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """What comes out, and the experts that were used."""
        weights, chosen = self.router(x).softmax(1).max(1)
        out, used = torch.zeros_like(x), sorted(set(chosen.tolist()))
        for expert in used:
            mine = chosen == expert
            out = out.index_add(0, mine.nonzero()[:, 0], self.experts[expert](x[mine]))
        return out * weights[:, None], used


def mixture(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Advance]:
    """A mixture of experts on clusters of which some are met often and some seldom."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    centres, turn = 2 * torch.randn(64, WIDTH), torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    weights = 1.0 / np.arange(1, 65) ** 1.1
    model = Mixture()
    # an expert without a token has no gradient, and AdamW leaves it and its moments alone
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def advance() -> Touched:
        x = centres[rng.choice(64, 16, p=weights / weights.sum())]
        x = x + 0.1 * torch.from_numpy(rng.standard_normal(x.shape, np.float32))
        optimizer.zero_grad()
        out, used = model(x)
        nn.functional.mse_loss(out, (x @ turn).tanh()).backward()
        optimizer.step()
        return {"router": None, **{f"experts.{expert}": None for expert in used}}

    return model, optimizer, advance


class Recommender(nn.Module):
    """Two tables of embeddings and a network over both."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(ROWS, 16), nn.Embedding(ROWS, 16)
        self.top = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))


def recommender(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Advance]:
    """Clicks of users on items, both met with Zipf's frequencies; Adagrad, as is usual for it."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, ROWS + 1) ** 1.1
    orders = rng.permutation(ROWS), rng.permutation(ROWS)
    tastes = torch.randn(2, ROWS, 4)
    model = Recommender()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)

    def advance() -> Touched:
        users, items = (
            torch.from_numpy(order[rng.choice(ROWS, DRAWS, p=weights / weights.sum())])
            for order in orders
        )
        clicked = ((tastes[0, users] * tastes[1, items]).sum(1) > 0).float()
        optimizer.zero_grad()
        both = torch.cat([model.users(users), model.items(items)], 1)
        nn.functional.binary_cross_entropy_with_logits(
            model.top(both).squeeze(1), clicked
        ).backward()
        optimizer.step()
        return {"users.weight": users, "items.weight": items, "top": None}

    return model, optimizer, advance


CASES = (
    Case("dense", gpt, 8, {"block_bytes": 6144}, ("full", "round-robin", "random", "priority")),
    Case(
        "embedding",
        embedding,
        32,
        {"rows": {"weight": 1}},
        ("full", "round-robin", "random", "priority", "touched"),
    ),
    Case(
        "embedding",
        embedding,
        8,
        {"rows": {"weight": 1}},
        ("full", "round-robin", "random", "priority", "touched"),
    ),
    Case(
        "experts",
        mixture,
        8,
        {"block_bytes": 1 << 16},
        ("full", "round-robin", "random", "priority", "touched"),
    ),
    Case(
        "recommender",
        recommender,
        16,
        {"rows": {"users.weight": 1, "items.weight": 1}},
        ("full", "round-robin", "random", "priority", "touched"),
    ),
)


def watch(case: Case, seed: int, folder: Path) -> dict[str, tuple[float, ...]]:
    """Policy -> mean perturbation, MB staged, the two estimates of ‖δ‖ over the truth."""
    model, optimizer, advance = case.make(seed)
    advance()
    state = TrainingState(model, optimizer)
    with ExitStack() as stack:
        watched = {
            policy: Watched(
                stack.enter_context(
                    RunningCheckpoint(
                        folder / policy,
                        state,
                        policy=policy,
                        seed=seed,
                        every_steps=case.every if policy == "full" else 1,
                        budget=Budget(fraction=1 / case.every),
                        **case.options,
                    )
                ),
                {name: p.detach().clone() for name, p in model.named_parameters()},
            )
            for policy in case.policies
        }
        for one in watched.values():
            one.checkpoint.save_all(0)
        for step in range(1, STEPS + 1):
            touched = advance()
            for one in watched.values():
                _step(one, step, touched, dict(model.named_parameters()))
    for _ in range(AFTER):
        advance()
    return {
        policy: (
            statistics.mean(one.distances),
            one.staged_bytes / 1e6,
            *estimates_over_truth(folder / policy, model, optimizer),
        )
        for policy, one in watched.items()
    }


def _step(one: Watched, step: int, touched: Touched, live: dict[str, nn.Parameter]) -> None:
    checkpoint = one.checkpoint
    for name, rows in touched.items():
        checkpoint.touch(name, rows)
    one.staged_bytes += checkpoint.step(step).staged_bytes
    checkpoint.wait()
    for block in checkpoint.ages():
        if block.step == step:
            region = tuple(slice(o, o + s) for o, s in zip(block.offsets, block.sizes, strict=True))
            one.saved[block.fqn][region] = live[block.fqn].detach()[region]
    if step > WARM_UP:
        # A quarter of the blocks drawn at random carries a quarter of the squared distance.
        square = sum(
            float((live[name].detach() - saved).square().sum()) for name, saved in one.saved.items()
        )
        one.distances.append(math.sqrt(square / 4))


def estimates_over_truth(
    root: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[float, float]:
    """Estimated ‖δ‖ of a restore over the exact one, on copies of the live state."""
    found = []
    for drill in (True, False):
        live = TrainingState(*copy.deepcopy((model, optimizer)))
        report = restore(root, live, reached_step=STEPS + AFTER, drill=drill)
        if report.perturbation is None:
            raise RuntimeError("no perturbation, though the step reached was given")
        found.append(report.perturbation)
    exact, estimated = found
    if estimated.walk_norm is None:
        raise RuntimeError("an estimate without the one of a walk")
    return estimated.delta_norm / exact.delta_norm, estimated.walk_norm / exact.delta_norm


def half_width(values: list[float]) -> float:
    """Half the 95 % interval of the mean by Student's t; endless from fewer than two values."""
    if len(values) < 2:
        return math.inf
    return float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))


def interval(values: list[float]) -> str:
    """Mean and the 95 % interval of it."""
    mean, half = statistics.mean(values), half_width(values)
    if half == 0 or math.isinf(half):
        return f"{mean:.3f}"
    return f"{mean:.3f} ({mean - half:.3f} to {mean + half:.3f})"


Runs = list[dict[str, tuple[float, ...]]]


def ratios_of(runs: Runs, policy: str, other: str) -> list[float]:
    """The perturbation under one policy over that under another, seed by seed."""
    return [run[policy][0] / run[other][0] for run in runs]


def table(case: Case, seeds: int, folder: Path) -> Runs:
    """Measure and print one case."""
    runs = [watch(case, seed, folder / f"{case.name}-{case.every}-{seed}") for seed in range(seeds)]
    print(f"\n{case.name}, 1/{case.every} of the bytes a step, {seeds} seeds")
    print(
        f"{'policy':13}{'staged MB':>10}{'perturbation':>14}   {'of round-robin at its bytes':34}"
        f"{'line / truth':26}walk / truth"
    )
    budget_mb = statistics.mean(run["round-robin"][1] for run in runs)
    for policy in case.policies:
        distances, megas, lines, walks = (
            list(column) for column in zip(*(run[policy] for run in runs), strict=True)
        )
        said = interval(ratios_of(runs, policy, "round-robin"))
        mega = statistics.mean(megas)
        if mega < 0.97 * budget_mb:
            said += f", spent {mega / budget_mb:.0%}"
        print(
            f"{policy:13}{mega:>10.3f}{statistics.mean(distances):>14.4f}   {said:34}"
            f"{interval(lines):26}{interval(walks)}",
            flush=True,
        )
    return runs


def verdicts(case: Case, runs: Runs) -> list[tuple[bool, str]]:
    """Whether priority's perturbation is below another's, by the upper end of the interval."""
    found = []
    for other in ("round-robin", "random"):
        ratios = ratios_of(runs, "priority", other)
        name = f"{case.name}, 1/{case.every}: priority / {other}: {interval(ratios)}"
        found.append((statistics.mean(ratios) + half_width(ratios) < 1, name))
    return found


def main() -> int:
    """Print the tables; 1 if priority is not below round-robin and random in every one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 - speed only
    print("perturbation of a lost quarter: L2 over parameters, root of the mean square over the")
    print(f"draws of the quarter, mean over steps {WARM_UP + 1} to {STEPS}; below 1 is better")
    with tempfile.TemporaryDirectory(dir=base) as name:
        held = [
            verdict
            for case in CASES
            for verdict in verdicts(case, table(case, given.seeds, Path(name)))
        ]
    print()
    for good, text in held:
        print(f"{'ok  ' if good else 'MISS'} {text} (below 1)")
    return int(not all(good for good, _ in held))


if __name__ == "__main__":
    sys.exit(main())
