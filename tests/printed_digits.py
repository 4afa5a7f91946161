"""A number as a paper prints it, to compare with."""


class Printed:
    """Equal to every number that rounds to the digits printed."""

    def __init__(self, digits: str) -> None:
        self.digits = digits
        self.places = len(digits.partition(".")[2])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and f"{other:.{self.places}f}" == self.digits

    def __hash__(self) -> int:
        return hash(self.digits)

    def __repr__(self) -> str:
        return f"printed {self.digits}"


def printed(digits: str) -> Printed:
    """`assert value == printed("0.23")` holds where the value rounds to 0.23."""
    return Printed(digits)
