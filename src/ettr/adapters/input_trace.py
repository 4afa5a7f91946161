"""What the stages of an input pipeline take: a trace of callables, SPDL or torch's `DataLoader`.

    table, notes = trace_input([paths, read, decode, augment], batches=200)
    write_stages("stages.jsonl", table.stages, table.host)

A chain is a source (an iterable, or a function that returns one) and functions of one argument.
Each call is timed by the wall and by the clock of its thread.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import os
import pickle
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ettr.errors import UsageError
from ettr.progress.stages import InputHost, InputStage, StageTable
from ettr.words import counted

_PROBED_ITEMS = 8
_SLEEP_S = 0.0005
_PROBE_S = 0.08
_NAMED_ERRORS = 3
_ENDED = object()


@dataclass(slots=True)
class Timed:
    """Times of one stage: all walls, the CPU time, and what was read and handed on."""

    name: str
    walls_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    out_bytes: float = 0.0
    read_bytes: float = 0.0
    probed: int = 0
    errors: list[str] = field(default_factory=list)
    failed: int = 0

    def add(self, wall_s: float, cpu_s: float, made: object) -> None:
        """One call of the stage."""
        self.walls_s.append(wall_s)
        self.cpu_s += cpu_s
        self.out_bytes += bytes_of(made)

    def fail(self, item: int, error: Exception) -> None:
        """The stage raised for an item."""
        self.failed += 1
        if len(self.errors) < _NAMED_ERRORS:
            says = str(error).splitlines() or [""]
            self.errors.append(f"item {item}: {type(error).__name__}: {says[0][:200]}")

    def note(self) -> str | None:
        """What the stage raised, in a sentence; None where it raised nothing."""
        if not self.failed:
            return None
        return (
            f"stage {self.name} raised for {counted(self.failed, 'item')}, left out: "
            + "; ".join(self.errors)
        )

    def stage(self, run: str, outputs: int, **more: Any) -> InputStage | None:
        """The stage as a line; None where no call of it was timed."""
        if not self.walls_s:
            return None
        calls, walls = len(self.walls_s), sorted(self.walls_s)
        p50, p90, p99 = (walls[min(int(calls * share), calls - 1)] for share in (0.5, 0.9, 0.99))
        return InputStage(
            run=run,
            stage=self.name,
            items=calls,
            cpu_s=self.cpu_s / calls,
            wall_s=sum(walls) / calls,
            p50_s=p50,
            p90_s=p90,
            p99_s=p99,
            read_bytes=self.read_bytes / max(self.probed, 1),
            out_bytes=self.out_bytes / calls,
            visits=calls / max(outputs, 1),
            **more,
        )


class StageTimer:
    """Times parts of a dataset's own code: `with timer.stage("decode"): ...`.

    Give it to the trace with the loader: a function that returns `(loader, timer)`.
    """

    def __init__(self) -> None:
        self.timed: dict[str, Timed] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block as a stage."""
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        yield
        one = self.timed.setdefault(name, Timed(name))
        one.add(time.perf_counter() - wall_s, time.thread_time() - cpu_s, None)


def trace_input(
    pipeline: Any, *, batches: int = 200, run: str = "trace", probe: bool = True
) -> tuple[StageTable, tuple[str, ...]]:
    """The stages of a pipeline, and in words what went wrong on the way.

    Args:
        pipeline: a chain of callables, an SPDL `PipelineBuilder` or `PipelineConfig`, a
            `DataLoader`, or a loader with a `StageTimer`.
        batches: items that leave the pipeline.
        probe: also test which stages hold Python's lock and which are random; each is called some
            times more.

    Raises:
        UsageError: the object is no such pipeline, or nothing came out of it.
    """
    if batches < 1:
        raise UsageError(f"batches: {batches} was given; give 1 or more")
    timer = None
    if isinstance(pipeline, tuple) and len(pipeline) == 2 and isinstance(pipeline[1], StageTimer):
        pipeline, timer = pipeline
    if callable(getattr(pipeline, "get_config", None)):
        pipeline = pipeline.get_config()
    if hasattr(pipeline, "pipes") and hasattr(pipeline, "src"):
        return _spdl(pipeline, batches, run, probe=probe)
    if hasattr(pipeline, "dataset") and hasattr(pipeline, "num_workers"):
        return _dataloader(pipeline, batches, run, timer)
    if isinstance(pipeline, list | tuple) and len(pipeline) > 1:
        for place, one in enumerate(pipeline[1:], 1):
            if not callable(one):
                raise UsageError(
                    f"item {place} of the list, {one!r:.80}, is no function; "
                    f"give a source and functions of one argument"
                )
        return _chain(pipeline[0], pipeline[1:], batches, run, probe=probe)
    raise UsageError(
        f"a {type(pipeline).__name__} is no pipeline that can be traced; give a list of a source "
        f"and functions, an SPDL PipelineBuilder or a torch DataLoader"
    )


# -- a chain of callables --------------------------------------------------------------------------


def _chain(
    source: Any, functions: Sequence[Callable[[Any], Any]], batches: int, run: str, *, probe: bool
) -> tuple[StageTable, tuple[str, ...]]:
    items = iter(source() if callable(source) else source)
    first, others = Timed("source"), [Timed(name) for name in _names(functions)]
    kept: list[list[Any]] = [[] for _ in functions]
    begin_s, count, spent_s = time.perf_counter(), 0, 0.0
    notes: list[str] = []
    for number in itertools.count():
        if count == batches:
            break
        try:
            item, spent = _called(first, lambda _: next(items), None, probes=False)
        except StopIteration:
            notes.append(f"the source ended after {number} items; {batches} were asked for")
            break
        except Exception as error:
            first.fail(number, error)
            break  # a source that raised has nothing more to give
        for timed, function, samples in zip(others, functions, kept, strict=True):
            if probe and len(samples) < _PROBED_ITEMS:
                copy_s = time.perf_counter()
                samples.append(_copied(item))
                spent += time.perf_counter() - copy_s
            try:
                item, more_s = _called(timed, function, item, probes=True)
            except Exception as error:
                timed.fail(number, error)
                break
            spent += more_s
        else:
            count += 1
        spent_s += spent
    took_s = time.perf_counter() - begin_s - spent_s
    stages = []
    named: Sequence[Callable[[Any], Any] | None] = (None, *functions)
    for timed, made_by, samples in zip((first, *others), named, ([], *kept), strict=True):
        found = timed.stage(run, count, sequential=made_by is None)
        if found is None or count == 0:
            raised = (note for one in (first, *others) if (note := one.note()))
            says = next(raised, notes[0] if notes else "the source is empty")
            raise UsageError(f"nothing came out of the pipeline: {says}")
        stages.append(_probed(found, made_by, samples) if made_by and probe else found)
    notes += [note for timed in (first, *others) if (note := timed.note())]
    host = replace(host_of("chain"), rate=count / took_s if took_s > 0 else None)
    return StageTable(tuple(stages), host), tuple(notes)


def _called(
    timed: Timed, function: Callable[[Any], Any], item: Any, *, probes: bool
) -> tuple[Any, float]:
    """What a stage makes of an item, and the seconds that measuring it took."""
    before = read_bytes_so_far() if probes and timed.probed < 2 * _PROBED_ITEMS else None
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    made = function(item)
    cpu_s, over_s = time.thread_time() - cpu_s, time.perf_counter()
    timed.add(over_s - wall_s, cpu_s, made)
    if before is not None:
        timed.read_bytes += read_bytes_so_far() - before
        timed.probed += 1
    return made, time.perf_counter() - over_s


def _names(functions: Iterable[Any]) -> list[str]:
    """A name of its own for each function."""
    names: list[str] = []
    for place, function in enumerate(functions, 1):
        name = getattr(function, "__name__", None) or type(function).__name__
        name = f"stage{place}" if name == "<lambda>" else name
        names.append(f"{name}-{place}" if name in names else name)
    return names


def _probed(stage: InputStage, function: Callable[[Any], Any], samples: list[Any]) -> InputStage:
    if not samples:
        return stage
    return replace(
        stage,
        random=is_random(function, samples[0]),
        gil_share=gil_share(function, samples, stage.cpu_s / max(stage.wall_s, 1e-9)),
        sequential=bool(getattr(function, "sequential", False)),
    )


def is_random(function: Callable[[Any], Any], item: Any) -> bool:
    """Whether two calls on one item make two things; also where that cannot be seen."""
    try:
        made = [pickle.dumps(function(_copied(item))) for _ in range(2)]
    except Exception:
        return True
    return made[0] != made[1]


def gil_share(function: Callable[[Any], Any], samples: Sequence[Any], busy: float) -> float:
    """The part of a function's CPU time in which it holds Python's lock.

    A thread that sleeps in short bits needs the lock to wake: how late it does is compared with
    how late it does next to a loop of Python, which always holds it, and next to a hash, which
    never does. So the load of the machine is in all three.
    """
    data = bytes(1 << 20)
    free_s = _lateness_s(lambda: hashlib.sha256(data))
    held_s = _lateness_s(lambda: sum(range(20_000)))
    turn = itertools.cycle(samples)
    try:
        late_s = _lateness_s(lambda: function(_copied(next(turn))))
    except Exception:
        return 1.0
    if held_s <= free_s:
        return 1.0
    held = min(max((late_s - free_s) / (held_s - free_s), 0.0), 1.0)
    return min(held / max(busy, 1e-3), 1.0)


def _lateness_s(work: Callable[[], Any]) -> float:
    late_s: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            begin_s = time.perf_counter()
            time.sleep(_SLEEP_S)
            late_s.append(time.perf_counter() - begin_s - _SLEEP_S)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        end_s = time.perf_counter() + _PROBE_S
        while time.perf_counter() < end_s:
            work()
    finally:
        done.set()
        watcher.join()
    return statistics.fmean(late_s) if late_s else 0.0


# -- SPDL ------------------------------------------------------------------------------------------


def _spdl(
    config: Any, batches: int, run: str, *, probe: bool
) -> tuple[StageTable, tuple[str, ...]]:
    from spdl.pipeline import build_pipeline

    timed: list[tuple[Timed, int, Callable[[Any], Any], list[Any]]] = []
    notes: list[str] = []
    pipes = [_with_times(pipe, timed, notes) for pipe in config.pipes]
    threads = max(sum(concurrency for _, concurrency, *_ in timed), 1)
    begin_s, count = None, 0
    pipeline = build_pipeline(
        replace(config, pipes=pipes), num_threads=threads, task_hook_factory=lambda _: []
    )
    first_s = last_s = 0.0
    with pipeline.auto_stop():
        for _ in pipeline.get_iterator(timeout=60):
            last_s = time.perf_counter()
            if begin_s is None:
                begin_s = first_s = last_s
            count += 1
            if count == batches:
                break
    if not count:
        says = next((note for one, *_ in timed if (note := one.note())), "the source is empty")
        raise UsageError(f"nothing came out of the pipeline: {says}")
    if count < batches:
        notes.append(f"the pipeline ended after {count} items; {batches} were asked for")
    elapsed_s = max(last_s - first_s, 1e-9)
    stages = []
    flight = threads + 4 * (len(timed) + 1)  # in slots and queues when the last item left
    for one, concurrency, op, samples in timed:
        more = {"concurrency": concurrency, "sequential": False}
        found = one.stage(run, count, **more)
        if found is None:
            continue
        busy = sum(one.walls_s) / (elapsed_s * concurrency)
        found = replace(
            found, occupancy=min(busy, 1.0), visits=_visits(found.visits, flight / count)
        )
        stages.append(_probed(found, op, samples) if probe else found)
    notes += [note for one, *_ in timed if (note := one.note())]
    rate = (count - 1) / elapsed_s if count > 1 else None
    host = replace(host_of("threads"), engine_s=engine_cost_s(), rate=rate)
    return StageTable(tuple(stages), host), tuple(notes)


def _visits(measured: float, in_flight: float) -> float:
    """Calls for each item that left; what was on its way at the end is no further call."""
    whole = max(float(round(measured)), 1.0)
    return whole if abs(measured - whole) <= in_flight else measured


def _with_times(pipe: Any, timed: list[Any], notes: list[str]) -> Any:
    """The stage with its function timed; without a function, or elsewhere, as it is."""
    arguments: Any = getattr(pipe, "_args", None)
    op: Any = getattr(arguments, "op", None)
    if op is None:
        return pipe
    name = str(getattr(pipe, "name", None) or getattr(op, "__name__", "stage"))
    executor = getattr(arguments, "executor", None)
    if not callable(op) or _is_asynchronous(op) or "Process" in type(executor).__name__:
        notes.append(f"stage {name} runs outside the threads of the pipeline: it was not timed")
        return pipe
    one, samples = Timed(name), list[Any]()
    lock, calls = threading.Lock(), itertools.count()

    def call(item: Any) -> Any:
        number = next(calls)
        if len(samples) < _PROBED_ITEMS:
            samples.append(_copied(item))
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        try:
            made = op(item)
        except Exception as error:
            with lock:
                one.fail(number, error)
            raise
        cpu_s, wall_s = time.thread_time() - cpu_s, time.perf_counter() - wall_s
        with lock:
            one.add(wall_s, cpu_s, made)
        return made

    timed.append((one, arguments.concurrency, op, samples))
    return replace(pipe, _args=replace(arguments, op=call))


def _is_asynchronous(op: Any) -> bool:
    import inspect

    kinds = (
        inspect.iscoroutinefunction,
        inspect.isasyncgenfunction,
        inspect.isgeneratorfunction,
    )
    return any(kind(one) for kind in kinds for one in (op, getattr(op, "__call__", op)))  # noqa: B004


def engine_cost_s(items: int = 600, stages: int = 3) -> float:
    """CPU seconds that SPDL itself takes for an item and a stage, on this machine now."""
    from spdl.pipeline import PipelineBuilder

    builder: Any = PipelineBuilder()
    builder = builder.add_source(range(items))
    for _ in range(stages):
        builder = builder.pipe(_itself, concurrency=2)
    pipeline = builder.add_sink(2).build(num_threads=2 * stages)
    with pipeline.auto_stop():
        begin_s = time.process_time()
        for _ in pipeline.get_iterator(timeout=60):
            pass
        spent_s = time.process_time() - begin_s
    return spent_s / (items * stages)


def _itself(item: Any) -> Any:
    return item


# -- torch's DataLoader ----------------------------------------------------------------------------


def _dataloader(
    loader: Any, batches: int, run: str, timer: StageTimer | None
) -> tuple[StageTable, tuple[str, ...]]:
    """A whole worker, timed in this process; the hand-over with one real worker."""
    from torch.utils.data import DataLoader

    worker, notes = Timed("worker"), list[str]()
    alone = _same(DataLoader, loader, num_workers=0)
    source, number = iter(alone), 0
    while number < batches:
        try:
            _called(worker, lambda _: next(source), None, probes=True)
        except StopIteration:
            notes.append(f"the loader ended after {number} batches; {batches} were asked for")
            break
        except Exception as error:
            worker.fail(number, error)
            if worker.failed > batches:
                break
        number += 1
    notes += [note] if (note := worker.note()) else []
    whole = worker.stage(run, len(worker.walls_s))
    if whole is None:
        raise UsageError(f"nothing came out of the loader: {notes[0] if notes else 'it is empty'}")
    stages = [whole]
    if timer is not None and timer.timed:
        parts = [one.stage(run, whole.items) for one in timer.timed.values()]
        known = [replace(one, random=True) for one in parts if one is not None]
        wall_s = whole.wall_s - sum(one.wall_s * one.visits for one in known)
        cpu_s = whole.cpu_s - sum(one.cpu_s * one.visits for one in known)
        rest = replace(whole, stage="rest", wall_s=max(wall_s, 0.0), cpu_s=max(cpu_s, 0.0))
        stages = [*known, rest]
    host = replace(
        host_of("workers"),
        engine_s=_handing_s(_same(DataLoader, loader, num_workers=1), whole.wall_s),
        rate=max(loader.num_workers, 1) / whole.wall_s if whole.wall_s > 0 else None,
    )
    return StageTable(tuple(stages), host), tuple(notes)


def _same(kind: Any, loader: Any, *, num_workers: int) -> Any:
    """The loader with another number of workers."""
    batched = loader.batch_sampler is not None
    given: dict[str, Any] = {"batch_size": None} if not batched else {}
    if batched and not hasattr(loader.dataset, "__getitem__"):
        given = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    elif batched:
        given = {"batch_sampler": loader.batch_sampler}
    return kind(loader.dataset, num_workers=num_workers, collate_fn=loader.collate_fn, **given)


def _handing_s(loader: Any, batch_s: float, count: int = 8) -> float:
    """Seconds in which a batch that is ready is handed over: the median of some."""
    waits_s: list[float] = []
    batches = iter(loader)
    for _ in range(2 * count):  # those that raise are passed over, as in the trace
        time.sleep(1.5 * batch_s + 0.02)
        begin_s = time.perf_counter()
        with suppress(Exception):
            if next(batches, _ENDED) is _ENDED:
                break
            waits_s.append(time.perf_counter() - begin_s)
        if len(waits_s) > count:
            break
    return statistics.median(waits_s[2:] or waits_s or [0.0])


# -- the host, and sizes ---------------------------------------------------------------------------


def host_of(engine: str) -> InputHost:
    """The cores that this process may use, and what a busy thread gets of one now."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        pass  # no quota, or another kind of cgroup
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    while time.perf_counter() - wall_s < _PROBE_S:
        pass
    share = (time.thread_time() - cpu_s) / (time.perf_counter() - wall_s)
    return InputHost(
        engine=engine, cores=cores, cores_got=cores * min(share, 1.0), memory_bytes=_free_bytes()
    )


def _free_bytes() -> float | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def read_bytes_so_far() -> int:
    """Bytes that this process has read by system calls; 0 where nobody counts them."""
    try:
        return int(Path("/proc/self/io").read_bytes().split(None, 2)[1])
    except (OSError, ValueError, IndexError):
        return 0


def bytes_of(made: object) -> float:
    """How large a thing is: arrays, texts and bytes, and what holds them."""
    if (size := getattr(made, "nbytes", None)) is not None:
        return float(size)
    if isinstance(made, bytes | bytearray | str):
        return float(len(made))
    if isinstance(made, Mapping):
        return sum(map(bytes_of, made.values()))
    if isinstance(made, list | tuple):
        return sum(map(bytes_of, made))
    return float(sys.getsizeof(made, 64))


def _copied(item: Any) -> Any:
    try:
        return copy.deepcopy(item)
    except Exception:
        return item  # it cannot be copied: what follows sees it as it is
