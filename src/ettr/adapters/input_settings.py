"""A plan's settings where a pipeline is built: SPDL's concurrency, a `DataLoader`'s workers.

plan = json.load(open("plan.json"))            # of `ettr input plan stages.jsonl --json`
loader = DataLoader(data, batch_size=64, **dataloader_options(plan))
pipeline = build_planned(plan, builder)        # an SPDL PipelineBuilder or PipelineConfig
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ettr.errors import UsageError


def dataloader_options(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Options of torch's `DataLoader`.

    Raises:
        UsageError: the plan is of another engine.
    """
    workers = plan.get("workers")
    if workers is None:
        raise UsageError(
            f"the plan is for {plan.get('engine')!r}, not for a DataLoader; trace the DataLoader"
        )
    return {
        "num_workers": workers,
        "prefetch_factor": max(int(plan.get("buffer", 2)), 2),
        "persistent_workers": True,
    }


def planned_config(plan: Mapping[str, Any], pipeline: Any) -> tuple[Any, int]:
    """SPDL's configuration with the plan's concurrency, and how many threads that takes.

    Raises:
        UsageError: a stage of the plan is not in the pipeline.
    """
    config = pipeline.get_config() if callable(getattr(pipeline, "get_config", None)) else pipeline
    slots = {one["stage"]: int(one["slots"]) for one in plan["stages"]}
    pipes, threads = [], 0
    for pipe in config.pipes:
        arguments = getattr(pipe, "_args", None)
        name = getattr(pipe, "name", None)
        if arguments is None:
            pipes.append(pipe)
            continue
        count = max(slots.pop(name, int(arguments.concurrency)), 1)
        threads += count
        pipes.append(replace(pipe, _args=replace(arguments, concurrency=count)))
    if left := [name for name in slots if name != "source"]:
        raise UsageError(f"{', '.join(left)}: in the plan, and no stage of this pipeline")
    sink = config.sink
    if hasattr(sink, "buffer_size"):
        sink = replace(sink, buffer_size=max(int(plan.get("buffer", 2)), 2))
    return replace(config, pipes=pipes, sink=sink), max(threads, 1)


def build_planned(plan: Mapping[str, Any], pipeline: Any) -> Any:
    """An SPDL pipeline with the plan's settings.

    Raises:
        UsageError: as `planned_config`.
    """
    from spdl.pipeline import build_pipeline

    config, threads = planned_config(plan, pipeline)
    return build_pipeline(config, num_threads=threads)
