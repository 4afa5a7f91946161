"""TOML files that say in their first line which format they have."""

from __future__ import annotations

import tomllib

from ettr.errors import UsageError


def tables_of(text: str, where: str, file_format: str, what: str) -> dict[str, object]:
    """The tables of such a file.

    Args:
        text: Of the file.
        where: Its name, for messages.
        file_format: The value of its key `format`.
        what: It describes, such as "a failure model".

    Raises:
        UsageError: it is no TOML, or has another format.
    """
    try:
        tables = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:  # numbers of too many digits are no TOML error
        raise UsageError(f"{where}: no TOML ({error})") from None
    if tables.get("format") != file_format:
        raise UsageError(
            f"{where}: format is {tables.get('format')!r}; a file of {what} begins with "
            f'format = "{file_format}"'
        )
    return tables
