"""Pickles of builtins only: dict, list, tuple, str, int, float, bool and None.

PyTorch writes flight records with a pickler of its own in C++. Every byte of such a file is matched
against the few opcodes that it uses before the interpreter's unpickler runs. A file by another
pickler goes through the slower one in Python, with the same few opcodes. Neither can name a class
or a function, so nothing of the file is ever called.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from typing import TYPE_CHECKING, NoReturn

# The operations that make builtins, with their arguments, but for strings. A tuple may not be put
# into the memo: tuples that hold each other many times hash in exponential time. Indices of the
# memo end at 2^20, as the unpickler makes room for all below; integers have nine bytes.
_RUN = re.compile(
    rb"(?:h.|[(N\x88\x89\]})aesu]+|[\x85-\x87t](?![qr\x94\x95])|[qK].|M..|J....|\x8a[\x00]"
    rb"|\x8a\x08.{8}|\x8a\x05.{5}|\x8a\x06.{6}|\x8a\x07.{7}|\x8a\x09.{9}|\x8a\x04.{4}"
    rb"|\x8a\x03.{3}|\x8a\x02..|\x8a\x01.|r..[\x00-\x0f]\x00|j....|G.{8})*+",
    re.DOTALL,
)
_ALLOWED = (
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_LIST", "EMPTY_DICT"),
    *("EMPTY_TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "TUPLE", "TUPLE1", "TUPLE2"),
    *("TUPLE3", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"),
    *("SHORT_BINUNICODE", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
)
# what a broken or foreign pickle makes the unpicklers raise
_BROKEN = (
    *(pickle.UnpicklingError, EOFError, KeyError, IndexError, AttributeError, TypeError),
    *(ValueError, OverflowError, RecursionError, MemoryError),
)


class _NoClasses(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")


class _FewOpcodes(pickle._Unpickler):
    """The unpickler in Python with the allowed opcodes, and text as the only key of a dict."""

    dispatch = {  # noqa: RUF012 - as its base class has it
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if code in {ord(one.code) for one in pickletools.opcodes if one.name in _ALLOWED}
    }
    stack: list[object]

    if TYPE_CHECKING:

        def pop_mark(self) -> list[object]:
            """The items since the last mark."""

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self._put(items)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put([key, value])

    def _put(self, items: list[object]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or any(type(key) is not str for key in items[::2]):
            raise pickle.UnpicklingError("a key is no text")
        target.update(zip(items[::2], items[1::2], strict=True))

    dispatch[pickle.SETITEM[0]] = load_setitem  # type: ignore[assignment]
    dispatch[pickle.SETITEMS[0]] = load_setitems  # type: ignore[assignment]

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}")


def load_builtins(data: bytes) -> object:
    """The object in a pickle of builtins.

    Raises:
        ValueError: the bytes are no such pickle; says what is wrong with them.
    """
    unpickler = _NoClasses if _is_plain(data) else _FewOpcodes
    try:
        # buffered: the unpickler in C asks for single bytes otherwise
        return unpickler(io.BufferedReader(io.BytesIO(data))).load()
    except _BROKEN as error:
        raise ValueError(_reason(error)) from None


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError) and error.args and type(error.args[0]) is int:
        return f"a pickle with more than builtins (opcode {error.args[0]:#04x})"
    return f"no whole pickle of builtins ({str(error)[:100] or type(error).__name__})"


def _is_plain(data: bytes) -> bool:
    """Whether every byte is one of the operations of PyTorch's own pickler."""
    if data[:2] != b"\x80\x02" or data[-1:] != b".":
        return False
    place, end = 2, len(data) - 1
    while place < end:
        matched = _RUN.match(data, place, end)
        place = matched.end() if matched else place
        if place == end:
            return True
        if data[place] != pickle.BINUNICODE[0]:
            return False
        place += 5 + int.from_bytes(data[place + 1 : place + 5], "little")
    return False
