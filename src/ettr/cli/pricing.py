"""The option that puts money next to GPU-hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli.groups import OptionGroup

if TYPE_CHECKING:
    from ettr.plan.cost import Price

PriceOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-hour-price",
        metavar="PRICE",
        help="Price of a GPU-hour: 2.50USD; use XXX for a unit of your own.",
    ),
]


@dataclass(frozen=True, slots=True)
class Pricing(OptionGroup):
    """What a GPU-hour costs."""

    gpu_hour_price: PriceOption = None

    def price(self) -> Price | None:
        """The price; None where none was typed.

        Raises:
            UsageError: it is malformed, has no currency, or an unknown one.
        """
        return None if self.gpu_hour_price is None else price(self.gpu_hour_price)


def price(text: str) -> Price:
    """A price of a GPU-hour such as `2.50USD`.

    Raises:
        UsageError: it is malformed, has no currency, or an unknown one.
    """
    from ettr.plan.cost import price_of

    return price_of(text, "--gpu-hour-price")
