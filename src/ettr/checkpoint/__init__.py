"""Running checkpoints, checked storage for DCP, restores and exports.

    from ettr.checkpoint import Budget, RunningCheckpoint, restore

Names are resolved when they are first used. Importing the package needs the standard library only,
and so does verifying a checkpoint: `verify`, `survey`, `block_ages` and the metrics. What touches
tensors needs torch (the `torch` extra).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ettr.errors import CheckpointError, FencedError

if TYPE_CHECKING:
    from ettr.checkpoint.dcp import CheckedReader, CheckedWriter, verify_dcp
    from ettr.checkpoint.export import Export, export_dcp, export_safetensors
    from ettr.checkpoint.notice import RunStopped, StopNotice
    from ettr.checkpoint.object_selection import saved_objects
    from ettr.checkpoint.recovery_cost import (
        CostShare,
        RecoveryCosts,
        RecoveryExperiment,
        measure_recovery,
    )
    from ettr.checkpoint.remote import CheckpointCopy, download, upload
    from ettr.checkpoint.restore_report import Perturbation, RestoreReport
    from ettr.checkpoint.restoring import restore
    from ettr.checkpoint.resuming import Start
    from ettr.checkpoint.retention import Keep, kept_steps
    from ettr.checkpoint.running_checkpoint import RunningCheckpoint, StepReport
    from ettr.checkpoint.selection import POLICIES, Budget
    from ettr.checkpoint.slots.durable_io import fence
    from ettr.checkpoint.slots.reader import BadBlock
    from ettr.checkpoint.state import State, TensorState, TrainingState
    from ettr.checkpoint.tensors.objects import RandomStates, Stateful, rng_state, set_rng_state
    from ettr.checkpoint.tensors.typed_values import SavedValues, read_values, write_values
    from ettr.checkpoint.verification import (
        BlockAge,
        Survey,
        block_ages,
        prometheus_text,
        survey,
        verify,
        write_metrics,
    )

__all__ = [
    "POLICIES",
    "BadBlock",
    "BlockAge",
    "Budget",
    "CheckedReader",
    "CheckedWriter",
    "CheckpointCopy",
    "CheckpointError",
    "CostShare",
    "Export",
    "FencedError",
    "Keep",
    "Perturbation",
    "RandomStates",
    "RecoveryCosts",
    "RecoveryExperiment",
    "RestoreReport",
    "RunStopped",
    "RunningCheckpoint",
    "SavedValues",
    "Start",
    "State",
    "Stateful",
    "StepReport",
    "StopNotice",
    "Survey",
    "TensorState",
    "TrainingState",
    "block_ages",
    "download",
    "export_dcp",
    "export_safetensors",
    "fence",
    "kept_steps",
    "measure_recovery",
    "prometheus_text",
    "read_values",
    "restore",
    "rng_state",
    "saved_objects",
    "set_rng_state",
    "survey",
    "upload",
    "verify",
    "verify_dcp",
    "write_metrics",
    "write_values",
]

_NAMES = {
    "dcp": "CheckedReader CheckedWriter verify_dcp",
    "export": "Export export_dcp export_safetensors",
    "notice": "RunStopped StopNotice",
    "object_selection": "saved_objects",
    "restore_report": "Perturbation RestoreReport",
    "recovery_cost": "CostShare RecoveryCosts RecoveryExperiment measure_recovery",
    "remote": "CheckpointCopy download upload",
    "restoring": "restore",
    "resuming": "Start",
    "retention": "Keep kept_steps",
    "selection": "Budget POLICIES",
    "running_checkpoint": "RunningCheckpoint StepReport",
    "slots.durable_io": "fence",
    "slots.reader": "BadBlock",
    "state": "State TensorState TrainingState",
    "tensors.objects": "RandomStates Stateful rng_state set_rng_state",
    "tensors.typed_values": "SavedValues read_values write_values",
    "verification": "BlockAge Survey block_ages prometheus_text survey verify write_metrics",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker reads the imports above, and knows no other name

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{module}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
