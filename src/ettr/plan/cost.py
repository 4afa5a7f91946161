"""The cost of a run in GPU-hours and money, with the part that failures take."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.estimates import Interval
from ettr.plan.renewal import exact_ettr, time_shares
from ettr.plan.run import PlannedRun
from ettr.plan.wallclock import ends
from ettr.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

_PRICE = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]+)?)\s*([A-Za-z]{3})\s*", re.ASCII)
_LONGEST_SHOWN = 60
_MOST_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one GPU for one hour, in some currency."""

    per_gpu_hour: float
    currency: str

    def __post_init__(self) -> None:
        """Check the price. Raises UsageError: it is negative or not finite."""
        if not 0 <= self.per_gpu_hour < math.inf:
            raise UsageError(
                f"a price of {self.per_gpu_hour} a GPU-hour is not possible; give 0 or more"
            )


def price_of(text: str, name: str) -> Price:
    """A price of a GPU-hour such as `2.50USD`.

    Args:
        text: A number and the ISO 4217 code of its currency; XXX is a unit of one's own.

    Raises:
        UsageError: it is malformed, has no currency, or an unknown one.
    """
    match = _PRICE.fullmatch(text)
    if match is None:
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
        raise UsageError(
            f"{name} {shown!r}: give a number and the three letters of its currency, such as "
            "2.50USD"
        )
    currency = match[2].upper()
    if currency not in CURRENCIES:
        raise UsageError(f"{name} {text.strip()!r}: {_unknown(currency)}")
    return Price(float(match[1]), currency)


def _unknown(code: str) -> str:
    """What to say of a code that is no currency."""
    similar = similar_currencies(code)
    meant = f"did you mean {' or '.join(similar[:_MOST_SHOWN])}? Else give" if similar else "give"
    return (
        f"{code} is no currency of ISO 4217; {meant} one of its codes, such as USD or EUR, or "
        f"{NO_CURRENCY} for a unit of your own"
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """GPU-hours of a run, over its whole length or, for one without end, over a day.

    GPUs are held while the run restarts, trains and writes, not while it waits in the queue.

    Attributes:
        days: Wall-clock time that is counted: the mean length of the run, or one day.
        held_gpu_hours: For which GPUs are held; its ends are those of the failure rate.
        simulated: Whether a simulation of the run says how long it takes.
    """

    days: float
    whole_run: bool
    productive_gpu_hours: float
    held_gpu_hours: Interval
    price: Price | None
    simulated: bool = False

    @property
    def lost_gpu_hours(self) -> Interval:
        """Held and not productive: writes, lost work, restarts."""
        kept, held = self.productive_gpu_hours, self.held_gpu_hours
        return Interval(
            None if held.estimate is None else held.estimate - kept,
            held.low - kept,
            held.high - kept,
        )

    def money(self, gpu_hours: float) -> float | None:
        """Price of so many GPU-hours; None without a price."""
        return None if self.price is None else gpu_hours * self.price.per_gpu_hour


def cost_of(
    run: PlannedRun, ettr: Interval, price: Price | None, *, simulated: bool = False
) -> Cost | None:
    """Cost of a run; None where it makes no progress or will not end.

    Args:
        ettr: Of the run, at the rate planned with and at the ends of its interval.
        simulated: The ETTR is of a simulation; else that of the exact form is taken.
    """
    middle = ettr.estimate or 0.0 if simulated else exact_ettr(run)
    whole = math.isfinite(run.productive_s)
    if middle <= 0 or (whole and not simulated and not ends(run)):
        return None
    gpus = run.n_nodes * run.gpus_per_node
    productive_s = run.productive_s if whole else middle * SECONDS_PER_DAY
    gpu_hours = gpus * productive_s / SECONDS_PER_HOUR
    held_share = 1.0 - time_shares(run).queued

    def held(at: float) -> float:
        return held_share * gpu_hours / at if at > 0 else math.inf

    return Cost(
        days=productive_s / middle / SECONDS_PER_DAY,
        whole_run=whole,
        productive_gpu_hours=gpu_hours,
        held_gpu_hours=Interval(held(middle), held(ettr.high), held(ettr.low)),
        price=price,
        simulated=simulated,
    )


# -- Currencies by their codes --------------------------------------------------------------------
#
# Source: ISO 4217:2015, list one (current currencies and funds), as of 2026, with those that other
# codes replaced since 2023 (ANG, BGN, HRK, SLL) and XXX, which means no currency. Metals, units of
# account and the code for tests are left out.

NO_CURRENCY = "XXX"
_CODES = """
AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP
BYN BZD CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR
FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY
KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR
MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB
RWF SAR SBD SCR SDG SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD
TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
CURRENCIES = frozenset((*_CODES.split(), NO_CURRENCY))


def similar_currencies(code: str) -> list[str]:
    """Codes of which one letter differs from those of an unknown one, in the order of letters."""
    return sorted(
        one
        for one in CURRENCIES
        if sum(mine == its for mine, its in zip(code, one, strict=True)) == len(one) - 1
    )
