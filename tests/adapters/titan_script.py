"""torchtitan's own Trainer with its own parts on a CPU: `main(OUT, STEPS, DIE_AT)`.

Its checkpoint is the block of the page "Ten lines for your loop" as printed, but for the interval.

Without a GPU only look-ups of the device are replaced, and what waits on one; with one nothing is:

* `torch._utils._get_available_device_type` says "cpu", `_get_device_module` gives `CpuDevice`;
* the module of Triton kernels of one way of expert parallelism is not loaded (none is used);
* `set_pg_timeouts` does nothing: it begins with a barrier by device, which gloo does not take;
* FSDP2 reduces by sums alone (`set_force_sum_reduction_for_comms`), all that gloo has.

Attention is that of torch (`ScaledDotProductAttention`, torchtitan's class), which is an option of
the model: the flexible one has no backward pass on a CPU. Losses go to OUT/losses.txt.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

import torch
from torch.distributed.fsdp import FSDPModule

from adapters.page_loops import block

LENGTH, WORDS = 32, 60
# asks no driver, which would not survive a fork
HAS_GPU = Path("/dev/nvidiactl").exists()


class CpuDevice(types.ModuleType):
    """What torchtitan asks of a device."""

    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda device=None: "cpu")
    get_device_properties = staticmethod(lambda _: types.SimpleNamespace(total_memory=2**30))
    memory_stats = staticmethod(lambda device=None: {})
    set_device = staticmethod(lambda device: None)
    reset_peak_memory_stats = empty_cache = synchronize = staticmethod(lambda: None)


def without_gpu() -> None:
    """Replace what is listed above."""
    import torch._utils

    torch._utils._get_available_device_type = lambda: "cpu"
    torch._utils._get_device_module = lambda _: CpuDevice("cpu_device")
    sys.modules["torchtitan.distributed.minimal_async_ep.kernels"] = MagicMock()
    import torchtitan.distributed.utils

    torchtitan.distributed.utils.set_pg_timeouts = lambda **_: None


def load() -> None:
    """Import what a run needs, which takes longer than the run."""
    if not HAS_GPU:
        without_gpu()
    for name in ("torchtitan.models.llama3.config_registry", "ettr.adapters.torchtitan"):
        importlib.import_module(name)


def assets(place: Path) -> Path:
    """A tokenizer of words and a dataset, in the files that torchtitan reads."""
    if (place / "c4").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: i for i, word in enumerate(["<s>", "</s>", *(f"w{n}" for n in range(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(words, "</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(place / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    (place / "tokenizer_config.json").write_text(json.dumps(special))
    generator = torch.Generator().manual_seed(1)
    rows = [
        {
            "text": " ".join(
                f"w{n}" for n in torch.randint(WORDS, (37,), generator=generator).tolist()
            )
        }
        for _ in range(200)
    ]
    (place / "c4").mkdir()
    (place / "c4" / "train.json").write_text("\n".join(map(json.dumps, rows)))
    return place


def configured(out: Path, steps: int):
    """torchtitan's debug model of Llama 3, of two layers."""
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    place = assets(out.parent / "assets")
    config = llama3_debugmodel()
    config.hf_assets_path, config.dump_folder = str(place), str(out)
    config.dataloader.dataset_path = str(place / "c4")
    config.training.steps, config.training.seq_len = steps, LENGTH
    config.training.local_batch_size = 4
    config.training.disable_cuda_graphs = True
    config.training.mixed_precision_param = "float32"
    config.validator.enable = False
    config.parallelism.spmd_backend = "partial_dtensor"
    config.model_spec.model.layers = config.model_spec.model.layers[:2]
    for layer in config.model_spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return config


def main(
    out: Path, steps: int, die_at: int, *, interval: int = 3, seed: int = 1, without: str = ""
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("MASTER_PORT", "0")}
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")):
        os.environ.setdefault(name, value)
    torch.set_num_threads(1)
    load()
    config = configured(out, steps)
    config.debug.seed = seed
    exec(block("torchtitan").replace("interval=10", f"interval={interval}"), {"config": config})  # noqa: S102
    config.checkpoint.exclude_from_loading = [without] if without else []
    trainer = config.build()
    if not HAS_GPU:
        for part in (module for model in trainer.model_parts for module in model.modules()):
            if isinstance(part, FSDPModule):
                part.set_force_sum_reduction_for_comms(True)
    log = trainer.metrics_processor.log

    def logged(step: int, loss: float, *values, **named) -> None:
        if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
            with (out / "losses.txt").open("a") as file:
                file.write(f"{step} {loss.hex()}\n")
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        log(step, loss, *values, **named)

    trainer.metrics_processor.log = logged
    trainer.train()
    trainer.close()
    torch.distributed.destroy_process_group()


if not HAS_GPU:
    load()  # in the process that is forked
