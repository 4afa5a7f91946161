"""Random states as values that a checkpoint can save, and their way back.

    RunningCheckpoint(root, {"model": model, "random": RandomStates(), ...})

Python's, NumPy's and torch's global generators (each CUDA device's where CUDA is in use) and any
generator that is named. Nothing is pickled.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from ettr.errors import UsageError

Generator: TypeAlias = torch.Generator | np.random.Generator


class RandomStates:
    """The global random states and those of named generators, as an object with `state_dict`.

    Args:
        generators: by name: a data loader's or a sampler's own, torch's or NumPy's.
    """

    def __init__(self, generators: Mapping[str, Generator] | None = None) -> None:
        self._generators = generators

    def state_dict(self) -> dict[str, Any]:
        """The states now, about 10 kB."""
        return rng_state(self._generators)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put them back; raises as `set_rng_state`."""
        set_rng_state(state_dict, self._generators)


def rng_state(generators: Mapping[str, Generator] | None = None) -> dict[str, Any]:
    """The global random states and those of named generators, about 10 kB.

    Args:
        generators: by name: a data loader's or a sampler's own, torch's or NumPy's.
    """
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "own": {name: _generator_state(one) for name, one in (generators or {}).items()},
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(
    state: Mapping[str, Any], generators: Mapping[str, Generator] | None = None
) -> None:
    """Put back what `rng_state` returned.

    Raises:
        UsageError: a generator is missing or was not saved, or the number of CUDA devices differs.
    """
    names, saved = set(generators or {}), set(state["own"])
    if names != saved:
        raise UsageError(
            f"random states: generators {sorted(names)} were given and {sorted(saved)} were saved; "
            f"give those by the same names"
        )
    devices = state.get("cuda")
    here = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if devices is not None and len(devices) != here:
        raise UsageError(
            f"random states: of {len(devices)} CUDA devices, and {here} are here; leave 'cuda' out "
            f"and seed the devices again"
        )
    python = state["python"]
    words = tuple(int(word) for word in python["words"])
    random.setstate((python["version"], words, python["gauss"]))
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if devices is not None:
        torch.cuda.set_rng_state_all(devices)
    for name, one in (generators or {}).items():
        if isinstance(one, torch.Generator):
            one.set_state(state["own"][name])
        else:
            one.bit_generator.state = state["own"][name]


def _generator_state(generator: Generator) -> object:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return generator.bit_generator.state
