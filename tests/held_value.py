"""An object with `state_dict`, as users write them for values of their own."""

from __future__ import annotations

from typing import Any


class HeldValue:
    """One value that a checkpoint can save."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]
