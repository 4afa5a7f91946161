"""The option that puts money next to GPU-hours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli.groups import OptionGroup
from ettr.cli.limits import shortened
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.plan.cost import Price

PriceOption = Annotated[
    str | None,
    typer.Option("--gpu-hour-price", metavar="PRICE", help="Of a GPU-hour: 2.50USD."),
]


@dataclass(frozen=True, slots=True)
class Pricing(OptionGroup):
    """What a GPU-hour costs."""

    gpu_hour_price: PriceOption = None

    def price(self) -> Price | None:
        """The price; None where none was typed.

        Raises:
            UsageError: it is malformed or has no currency.
        """
        return None if self.gpu_hour_price is None else price(self.gpu_hour_price)


def price(text: str) -> Price:
    """A price of a GPU-hour such as `2.50USD`.

    Raises:
        UsageError: it is malformed or has no currency.
    """
    from ettr.plan.cost import Price

    match = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]+)?)\s*([A-Za-z]{3})\s*", text, re.ASCII)
    if match is None:
        raise UsageError(
            f"--gpu-hour-price {shortened(text)!r}: give a number and the three letters of its "
            "currency, such as 2.50USD"
        )
    return Price(float(match[1]), match[2].upper())
