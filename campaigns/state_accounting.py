"""What an optimizer holds, saved, and a run that has changed when it goes on.

Each optimizer trains a small model for three steps and is saved; the model and the optimizer are
built again with other values and one change, and resume. What was saved and what is there then are
compared by a walk over all attributes of the optimizer, which knows nothing of how it was saved:
every tensor, number and option, parameter by parameter. Where the change leaves the function as it
was, three further steps must have the losses of the run that was not interrupted.

`exact`: nothing differs. `said`: the same, and the printed line says what was built otherwise.
`named`: refused by the name of what differs; and with what the refusal offers, all that differs
stands in the report. `silent`: anything else. `-`: this optimizer cannot train so.
"""

from __future__ import annotations

import ast
import copy
import logging
import multiprocessing
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from campaigns import Table
from campaigns.small_optimizers import SMALL, CutGroups
from ettr.checkpoint import RunningCheckpoint
from ettr.checkpoint.resuming import Start
from ettr.errors import EttrError

TITLE = "Optimizers and changed runs"
SIZE = 1
CHANGES = (
    "none",
    "frozen",
    "renamed",
    "grown",
    "dtype",
    "groups",
    "groups joined",
    "lr",
    "EMA added",
    "compile",
    "DDP",
    "FSDP2",
    "ranks",
    "library version",
)
EXACT, SAID, NAMED, SILENT, IMPOSSIBLE = "exact", "said", "named", "silent", "-"
RATE, STEPS = 0.02, 3
_SAME_FUNCTION = {"none", "renamed", "EMA added", "compile", "DDP", "FSDP2", "library version"}
_MUST_SAY = {"lr": r"\blr 0\.02 for 0\.01", "groups": r"\blr 0\.02 for 0\.01"}
_WRAPPERS = re.compile(r"(^|\.)(_orig_mod|module)\.")
_NOT_STATE = {"_numel_cache", *vars(torch.optim.SGD([torch.zeros(1)]))} - {"state", "param_groups"}
_NOT_VALUES = {"params", "foreach", "fused", "capturable", "differentiable"}


class Net(nn.Module):
    """Words to classes."""

    def __init__(self, *, words: int, body: str, sparse: bool) -> None:
        super().__init__()
        self.emb = nn.Embedding(words, 64, sparse=sparse)
        setattr(self, body, nn.Linear(64, 64))
        self.head = nn.Linear(64, 8)
        self.called = body

    def forward(self, words: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.head(torch.tanh(getattr(self, self.called)(self.emb(words))))
        return scores


@dataclass(frozen=True)
class Kind:
    """An optimizer: how it is built of groups, and which parameters it takes."""

    build: Callable[[list[dict[str, Any]]], Optimizer]
    takes: Callable[[str, Tensor], bool] = lambda name, tensor: True
    closure: bool = False
    sparse: bool = False


def kinds() -> dict[str, Kind]:
    """Every optimizer that is installed here, by name."""
    optim = torch.optim
    found = {
        "SGD": Kind(lambda g: optim.SGD(g, RATE)),
        "SGD, momentum": Kind(lambda g: optim.SGD(g, RATE, momentum=0.9)),
        "SGD, Nesterov": Kind(lambda g: optim.SGD(g, RATE, momentum=0.9, nesterov=True)),
        "Adam": Kind(lambda g: optim.Adam(g, RATE)),
        "Adam, amsgrad": Kind(lambda g: optim.Adam(g, RATE, amsgrad=True)),
        "AdamW": Kind(lambda g: optim.AdamW(g, RATE)),
        "AdamW, fused": Kind(lambda g: optim.AdamW(g, RATE, fused=True)),
        "AdamW, rate in a tensor": Kind(lambda g: optim.AdamW(_rates(g), torch.tensor(RATE))),
        "NAdam": Kind(lambda g: optim.NAdam(g, RATE)),
        "RAdam": Kind(lambda g: optim.RAdam(g, RATE)),
        "Adamax": Kind(lambda g: optim.Adamax(g, RATE)),
        "Adagrad": Kind(lambda g: optim.Adagrad(g, RATE)),
        "Adadelta": Kind(lambda g: optim.Adadelta(g, RATE)),
        "Rprop": Kind(lambda g: optim.Rprop(g, RATE)),
        "RMSprop": Kind(lambda g: optim.RMSprop(g, RATE)),
        "RMSprop, centred": Kind(lambda g: optim.RMSprop(g, RATE, centered=True, momentum=0.5)),
        "ASGD": Kind(lambda g: optim.ASGD(g, RATE)),
        "Adafactor": Kind(lambda g: optim.Adafactor(g, RATE)),
        "SparseAdam": Kind(
            lambda g: optim.SparseAdam(g, RATE), lambda name, _: name == "emb.weight", sparse=True
        ),
        "LBFGS": Kind(lambda g: optim.LBFGS(g, RATE), closure=True),
    }
    if hasattr(optim, "Muon"):
        found["Muon"] = Kind(lambda g: optim.Muon(g, RATE), lambda _, tensor: tensor.ndim == 2)
    if find_spec("schedulefree"):
        import schedulefree as free

        found |= {
            "schedule-free SGD": Kind(lambda g: free.SGDScheduleFree(g, RATE)),
            "schedule-free AdamW": Kind(lambda g: free.AdamWScheduleFree(g, RATE)),
            "schedule-free RAdam": Kind(lambda g: free.RAdamScheduleFree(g, RATE)),
            "schedule-free wrapper": Kind(
                lambda g: free.ScheduleFreeWrapper(optim.SGD(g, RATE, momentum=0.9), momentum=0.9)
            ),
        }
    if find_spec("torchao"):
        from torchao import optim as low

        found |= {
            "torchao Adam, 8 bits": Kind(lambda g: low.Adam8bit(g, RATE)),
            "torchao AdamW, 8 bits": Kind(lambda g: low.AdamW8bit(g, RATE)),
            "torchao AdamW, 4 bits": Kind(lambda g: low.AdamW4bit(g, RATE)),
            "torchao AdamW, float8": Kind(lambda g: low.AdamWFp8(g, RATE)),
        }
    if find_spec("accelerate"):
        from accelerate import Accelerator

        def prepared(groups: list[dict[str, Any]]) -> Optimizer:
            wrapped: Optimizer = Accelerator(cpu=True).prepare(optim.AdamW(groups, RATE))
            return wrapped

        found["AdamW in accelerate's"] = Kind(prepared)
    for name, (build, closure) in SMALL.items():
        found[name] = Kind(partial(_with_rate, build), closure=closure)
    return found


def _with_rate(
    build: Callable[[CutGroups, float], Optimizer], groups: list[dict[str, Any]]
) -> Optimizer:
    return build(groups, RATE)


def _rates(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**g, "lr": torch.tensor(g["lr"])} if "lr" in g else g for g in groups]


@dataclass
class Run:
    """A model, its optimizer, and what else is saved."""

    net: nn.Module
    model: nn.Module
    optimizer: Optimizer
    kind: Kind
    average: nn.Module | None = None

    @property
    def state(self) -> dict[str, object]:
        """As it is given to a checkpoint."""
        average = {} if self.average is None else {"average": self.average}
        return {"model": self.model, "optimizer": self.optimizer, **average}


def built(kind: Kind, seed: int, change: str = "none", *, joined: bool = True) -> Run:
    """A run with a change; `joined` is False where the optimizer is to have two groups."""
    torch.manual_seed(seed)
    net: nn.Module = Net(
        words=40 if change == "grown" else 32,
        body="trunk" if change == "renamed" else "body",
        sparse=kind.sparse,
    )
    if change == "dtype":
        net.to(torch.bfloat16)
    if change == "frozen":
        net.get_submodule("body").requires_grad_(False)
    average = copy.deepcopy(net).requires_grad_(False) if change == "EMA added" else None
    model = net
    if change in ("FSDP2", "ranks"):
        for layer in net.children():
            fully_shard(layer)
        fully_shard(net)
    elif change == "DDP":
        model = DistributedDataParallel(net)
    elif change == "compile":
        model = cast(nn.Module, torch.compile(net, backend="eager"))
    named = [(n, p) for n, p in net.named_parameters() if kind.takes(n, p) and p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": [p for _, p in named]}]
    if not joined or change == "groups":
        groups = [
            {"params": [p for n, p in named if "head" not in n]},
            {"params": [p for n, p in named if "head" in n], "lr": RATE / 2},
        ]
    groups = [group for group in groups if group["params"]]
    if change == "lr":
        groups = [{**group, "lr": RATE / 2} for group in groups]
    optimizer = kind.build(groups)
    if change == "library version":
        newer(optimizer)
    return Run(net, model, optimizer, kind, average)


def newer(optimizer: Optimizer) -> None:
    """As a later version of its library: one more option, and one more moment of each parameter."""
    inner = next((one for one in vars(optimizer).values() if isinstance(one, Optimizer)), None)
    if inner is not None:
        newer(inner)
        return
    before = type(optimizer)

    def step(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        loss = before.step(self, closure) if closure else before.step(self)  # type: ignore[call-arg]
        if before is not torch.optim.LBFGS:
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None and not parameter.grad.is_sparse:
                        moments = self.state[parameter]
                        moments.setdefault("added", torch.zeros_like(parameter)).add_(1)
        return loss

    optimizer.__class__ = type(before.__name__, (before,), {"step": step})
    for group in optimizer.param_groups:
        group["added_option"] = True


def train(run: Run, first: int, n_steps: int) -> list[float]:
    """Losses of some steps, each with data of its own."""
    losses: list[float] = []
    if hasattr(run.optimizer, "train"):
        run.optimizer.train()
    for step in range(first, first + n_steps):
        generator = torch.Generator().manual_seed(step)
        words = torch.randint(0, 32, (16,), generator=generator)
        classes = torch.randint(0, 8, (16,), generator=generator)

        def closure(words: Tensor = words, classes: Tensor = classes) -> Tensor:
            run.net.zero_grad()
            loss = nn.functional.cross_entropy(run.model(words).float(), classes)
            loss.backward()
            return loss

        losses.append(float(closure()))
        with warnings.catch_warnings(action="ignore"):
            if run.kind.closure:
                run.optimizer.step(closure)  # type: ignore[arg-type]
            else:
                run.optimizer.step()
    return losses


def accounted(run: Run) -> dict[tuple[str, ...], object]:
    """Path -> each tensor and number of a run; parameters by their names without wrappers."""
    names = {
        id(parameter): _WRAPPERS.sub(r"\1", name).replace("trunk.", "body.")
        for name, parameter in run.net.named_parameters()
    }
    found: dict[tuple[str, ...], object] = {}
    for parameter in run.net.parameters():
        _values(found, ("model", names[id(parameter)]), parameter.detach())
    _walk(found, ("optimizer",), run.optimizer, names, set())
    return found


def _values(found: dict[tuple[str, ...], object], path: tuple[str, ...], value: Tensor) -> None:
    value = value.to_local() if isinstance(value, DTensor) else value
    if is_traceable_wrapper_subclass(value):
        for inner in value.__tensor_flatten__()[0]:
            _values(found, (*path, inner), getattr(value, inner))
    else:
        found[path] = value.detach().clone()


def _walk(
    found: dict[tuple[str, ...], object],
    path: tuple[str, ...],
    value: object,
    names: Mapping[int, str],
    seen: set[int],
) -> None:
    if isinstance(value, Tensor):
        if id(value) in names:
            found[path] = names[id(value)]
        else:
            _values(found, path, value)
    elif isinstance(value, int | float | str | None):
        found[path] = value
    elif isinstance(value, Mapping | list | tuple):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in pairs:
            name = names[id(key)] if id(key) in names else str(key)
            at = path if isinstance(one, Optimizer) else (*path, name)
            _walk(found, at, one, names, seen)
    elif id(value) not in seen and hasattr(value, "__dict__") and not callable(value):
        seen.add(id(value))
        _walk_object(found, path, value, names, seen)


def _walk_object(
    found: dict[tuple[str, ...], object],
    path: tuple[str, ...],
    value: object,
    names: Mapping[int, str],
    seen: set[int],
) -> None:
    for name, one in vars(value).items():
        if isinstance(value, Optimizer) and (name in _NOT_STATE or callable(one)):
            continue
        if name == "param_groups":
            for group in one:
                options = {k: v for k, v in group.items() if k not in _NOT_VALUES}
                for parameter in group["params"]:
                    at = (*path, "options", names.get(id(parameter), "?"))
                    _walk(found, at, options, names, seen)
        elif not isinstance(one, nn.Module):
            _walk(found, (*path, name), one, names, seen)


def differing(
    old: Mapping[tuple[str, ...], object], new: Mapping[tuple[str, ...], object]
) -> list[tuple[str, ...]]:
    """Paths that are not on both sides with one value, as far as numbers go into both types."""
    trained = {path[2] for path in new if "options" in path[1:-1] for path in [_of_options(path)]}
    return sorted(
        path
        for path in old.keys() | new.keys()
        if not _equal(old.get(path), new.get(path))
        and not ("options" in path and _of_options(path)[2] not in trained)
        and path[-1] != "added_option"
    )


def _of_options(path: tuple[str, ...]) -> tuple[str, ...]:
    at = path.index("options")
    return path[at - 1 :]


def _equal(one: object, two: object) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return one.shape == two.shape and torch.equal(one.to(two.dtype), two)
    if isinstance(two, Tensor):
        one, two = two, one
    if isinstance(one, Tensor):
        return isinstance(two, int | float) and one.numel() == 1 and float(one) == two
    return one == two


@dataclass(frozen=True)
class Cell:
    """What became of one optimizer under one change, and why."""

    verdict: str
    reason: str = ""


@dataclass
class Matrix:
    """All cells, by optimizer and change."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)

    def counts(self) -> Counter[str]:
        """Cells of each verdict."""
        return Counter(cell.verdict for cell in self.cells.values())

    def silent(self) -> list[str]:
        """The cells that are silent, with what they kept to themselves."""
        return [
            f"{name}, {change}: {cell.reason}"
            for (name, change), cell in self.cells.items()
            if cell.verdict == SILENT
        ]


def cell(name: str, change: str, folder: Path, saved_by_two: Path | None = None) -> Cell:
    """One optimizer under one change."""
    kind = kinds()[name]
    try:
        new = built(kind, 1, change)
        trial = built(kind, 1, change)
        train(trial, 0, STEPS + 1)
        built(kind, 0, joined=change != "groups joined")
    except Exception as error:  # of an optimizer that cannot be built or make a step so
        return Cell(IMPOSSIBLE, f"{type(error).__name__}: {error}")
    if change == "ranks":
        if saved_by_two is None or not (saved_by_two / "values.pt").exists():
            return Cell(IMPOSSIBLE, "two ranks could not train so")
        values = torch.load(saved_by_two / "values.pt", weights_only=False)
        if refusal := values.get(("refused",)):
            return _refused(refusal, name, change, new)
        return _judged(name, change, saved_by_two, new, values, None)
    old = built(kind, 0, joined=change != "groups joined")
    train(old, 0, STEPS)
    try:
        with RunningCheckpoint(folder, old.state, policy="full") as checkpoint:
            checkpoint.save_all(STEPS)
    except EttrError as error:
        return _refused(str(error), name, change, old)
    values = accounted(old)
    losses = train(old, STEPS, 3) if change in _SAME_FUNCTION else None
    return _judged(name, change, folder, new, values, losses)


def _judged(
    name: str,
    change: str,
    folder: Path,
    new: Run,
    values: Mapping[tuple[str, ...], object],
    losses: list[float] | None,
) -> Cell:
    start, refusals = _resumed(folder, new)
    for refusal in refusals:
        judged = _refused(refusal, name, change, new)
        if judged.verdict == SILENT or start is None:
            return judged
    if start is None or start.report is None:
        return Cell(SILENT, f"it began again: {start}")
    report = start.report
    reported = " ".join(
        [
            *report.missing,
            *report.fresh_moments,
            *report.unused_moments,
            *report.unused_tensors,
            *report.missing_objects,
            *report.unused_objects,
        ]
    ).replace("trunk.", "body.")
    differs = differing(values, accounted(new))
    groups_reported = "parameter groups" in report.missing_objects
    unnamed = [
        path
        for path in differs
        if not any(part in reported for part in path if "." in part)
        and not (groups_reported and "options" in path)
    ]
    if unnamed:
        return Cell(SILENT, f"{'.'.join(unnamed[0])} and {len(unnamed) - 1} more differ; {start}")
    said = str(start)
    if (pattern := _MUST_SAY.get(change)) and not re.search(pattern, said) and name != "SparseAdam":
        return Cell(SILENT, f"nothing is said of it; {said}")
    if losses is not None and not differs:
        found = train(new, STEPS, len(losses))
        if found != losses:
            return Cell(SILENT, f"losses {found} are not {losses}")
    if refusals or differs:
        return Cell(NAMED, refusals[0] if refusals else said)
    return Cell(SAID if report.replaced_options else EXACT, said)


def _resumed(folder: Path, new: Run) -> tuple[Start | None, list[str]]:
    """The start, with all that refusals offered; and the refusals."""
    options: dict[str, Any] = {}
    refusals: list[str] = []
    while True:
        try:
            with RunningCheckpoint(folder, new.state, policy="full") as checkpoint:
                return checkpoint.resume_or_begin(**options), refusals
        except EttrError as error:
            refusals.append(str(error))
        before = dict(options)
        if offered := re.search(r"rename=(\{[^}]*\})", refusals[-1]):
            options["rename"] = ast.literal_eval(offered[1])
        if re.search(r"allow_missing=True", refusals[-1]) and (not offered or len(refusals) > 1):
            options["allow_missing"] = True
        if "cast=True" in refusals[-1]:
            options["cast"] = True
        if options == before:
            return None, refusals


_NAMES_OF = {
    "frozen": r"body\.(weight|bias)",
    "renamed": r"trunk|body",
    "grown": r"emb\.weight",
    "dtype": r"\w+\.(weight|bias).*(bfloat16|float32)",
    "groups joined": r"head\.|param",
    "FSDP2": r"body\.weight: exp_avg\b",
    "ranks": r"body\.weight: exp_avg\b|parameter group of emb\.weight",
    "EMA added": r"average\.|model\.",
}


def _refused(message: str, name: str, change: str, run: Run) -> Cell:
    """Named where the message says what differs, or names the optimizer that is not saved so."""
    classes = {type(one).__name__ for one in (run.optimizer, *vars(run.optimizer).values())}
    own = rf"{'|'.join(classes)}|object 'optimizer'|keeps \w+ as a list"
    if re.search(f"{_NAMES_OF.get(change, '$^')}|{own}", message):
        return Cell(NAMED, message)
    return Cell(SILENT, f"refused without a name: {message}")


def _save_as_one_of_two(rank: int, folder: Path, names: list[str], port_file: Path) -> None:
    """Train each optimizer under FSDP2 on two ranks, and save it."""
    store = dist.FileStore(str(port_file), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    _quiet()
    with _eager():
        for number, name in enumerate(names):
            place = folder / str(number)
            place.mkdir(parents=True, exist_ok=True)
            try:
                run = built(kinds()[name], 0, "ranks")
                train(run, 0, STEPS)
                with RunningCheckpoint(place, run.state, slot=rank, policy="full") as checkpoint:
                    checkpoint.save_all(STEPS)
                mine: dict[tuple[str, ...], object] | None = accounted(run)
            except EttrError as error:
                mine = {("refused",): str(error)}
            except Exception:  # it cannot train so: without a file
                mine = None
            both: list[Any] = [None, None]
            dist.all_gather_object(both, mine)
            if rank == 0 and None not in both:
                torch.save(_joined(*both), place / "values.pt")
    dist.destroy_process_group()


def _joined(
    first: dict[tuple[str, ...], object], second: dict[tuple[str, ...], object]
) -> dict[tuple[str, ...], object]:
    """The values of both ranks: tensors in rows, one after the other."""
    values: dict[tuple[str, ...], object] = {}
    for path in first.keys() | second.keys():
        parts = [one[path] for one in (first, second) if path in one]
        tensors = [one for one in parts if isinstance(one, Tensor) and one.ndim]
        values[path] = torch.cat(tensors) if len(tensors) == 2 else parts[0]
    return values


@contextmanager
def _eager() -> Iterator[None]:
    """Nothing is compiled: torchao compiles each step, and what counts here is what is held."""
    with torch.compiler.set_stance("force_eager"):
        yield


def _quiet() -> None:
    logging.getLogger("ettr.checkpoint").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


@contextmanager
def _group_of_one() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def matrix(names: list[str], changes: tuple[str, ...] = CHANGES) -> Matrix:
    """The cells of these optimizers and changes."""
    found = Matrix()
    memory = Path("/dev/shm")  # noqa: S108  a disk that syncs is no part of it
    where = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="ettr-accounting-", dir=where) as place:
        root = Path(place)
        if "ranks" in changes:
            arguments = (root / "two", names, root / "store")
            start = multiprocessing.get_context("spawn")
            ranks = [
                start.Process(target=_save_as_one_of_two, args=(r, *arguments)) for r in (0, 1)
            ]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join()
        with _group_of_one(), _eager(), warnings.catch_warnings(action="ignore"):
            for number, name in enumerate(names):
                for change in changes:
                    folder = root / f"{number}-{change}"
                    of_two = root / "two" / str(number)
                    found.cells[name, change] = cell(name, change, folder, of_two)
    return found


def run(size: int) -> Table:
    """Every optimizer that is installed, under every change; the size has no meaning."""
    _quiet()
    names = list(kinds())
    found = matrix(names)
    counts = found.counts()
    rows = [(name, *(found.cells[name, change].verdict for change in CHANGES)) for name in names]
    counted = ", ".join(f"{counts[v]} {v}" for v in (EXACT, SAID, NAMED, SILENT))
    silent = "".join(f"\n* {line}" for line in found.silent())
    return Table(
        ("optimizer", *CHANGES),
        tuple(rows),
        "0 before the save, 1 after it",
        "each cell restored exactly, or named; none silent",
        f"{len(names)} optimizers, {len(CHANGES) - 1} changes and none: {counted}; "
        f"{counts[IMPOSSIBLE]} that cannot train so.{silent}",
    )
