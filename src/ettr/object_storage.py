"""Objects under a URL (`s3`, `gs`, `az`), and numbered manifests of which each has one writer.

Requests are tried again where that may help, and then end in a sentence. Credentials are the
platform's own; nothing of them is kept or printed. Needs obstore.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ettr.errors import EttrError

SCHEMES = ("s3", "gs", "az")
TRIES = 4
_TIMEOUT_S, _RETRY_S = 120, 180
_AT_ONCE = 8
_MANIFESTS = "manifest/"
_DIGITS = 20

_T = TypeVar("_T")


class CutError(Exception):
    """An object came cut short."""


class ObjectStorage:
    """The objects below a URL; what fails is an `error`.

    Raises:
        EttrError: the URL names no bucket, or holds credentials; obstore is not there.
    """

    def __init__(self, url: str, error: type[EttrError]) -> None:
        self._error = error
        self.url = _checked(url, error)
        self._objects: Any = self._opened()

    def _opened(self) -> Any:
        """The object store, with the platform's own credentials."""
        try:
            from obstore.store import from_url
        except ImportError as error:
            raise self._error(
                f"{self.url}: obstore is not installed; pip install 'ettr[object-storage]'"
            ) from error
        endpoints = [value for key, value in os.environ.items() if "ENDPOINT" in key]
        options: Any = {
            "timeout": timedelta(seconds=_TIMEOUT_S),
            # an endpoint without TLS is one that the user named so
            "allow_http": any(value.startswith("http://") for value in endpoints),
        }
        retries: Any = {"max_retries": TRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
        try:
            return from_url(self.url, client_options=options, retry_config=retries)
        except Exception as error:  # an option of the environment is any exception of the driver
            raise self._refused(error) from None

    def listed(self, prefix: str) -> list[Any]:
        """Path, size and time of each object below a prefix."""
        return self._ask(lambda: [one for page in self._objects.list(prefix) for one in page])

    def get(self, name: str) -> bytes:
        """One object.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        return self._ask(lambda: bytes(self._objects.get(name).bytes()))

    def copy_to(self, name: str, file: Any) -> None:
        """Write an object into a file.

        Raises:
            FileNotFoundError: there is none of that name.
            CutError: it came cut short.
        """
        from obstore.exceptions import BaseError

        answer = self._ask(lambda: self._objects.get(name))
        n_bytes = 0
        try:
            for chunk in answer.stream():
                n_bytes += file.write(chunk)
        except BaseError as error:
            raise CutError(type(error).__name__) from None
        if n_bytes != answer.meta["size"]:
            raise CutError(f"{n_bytes} bytes of {answer.meta['size']}")

    def put(self, name: str, data: bytes | Path) -> None:
        """Put an object in place of any other."""
        self._ask(lambda: self._objects.put(name, data))

    def create(self, name: str, data: bytes) -> bool:
        """Create an object; False where there is another one."""
        # an answer may have been lost, and the object be ours
        return self._put_new(name, data) or self.get(name) == data

    def delete(self, names: list[str]) -> None:
        """Delete objects."""
        if names:
            self._ask(lambda: self._objects.delete(names))

    def numbers(self) -> dict[int, Any]:
        """When each manifest was made, by its number."""
        found = {}
        for one in self.listed(_MANIFESTS):
            name = one["path"].rpartition("/")[2]
            if re.fullmatch(rf"\d{{{_DIGITS}}}\.json", name):
                found[int(name.partition(".")[0])] = one["last_modified"]
        return found

    def check_condition(self, name: str, data: bytes) -> None:
        """See that the server refuses to create what is there, before anything depends on it."""
        if self._put_new(name, data):
            raise self._error(
                f"{self.url}: this server creates an object although there is one (it ignores "
                "If-None-Match), so of two processes one would lose what it wrote; nothing was "
                "written. Use a server with conditional writes, or a folder"
            )

    def _put_new(self, name: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put() -> bool:
            try:
                self._objects.put(name, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        return self._ask(put)

    def _ask(self, request: Callable[[], _T]) -> _T:
        """What a request answers; obstore tries again where a server is busy or does not answer."""
        from obstore.exceptions import BaseError, NotFoundError

        try:
            return request()
        except (FileNotFoundError, NotFoundError) as error:
            raise FileNotFoundError(str(error)) from None
        except (BaseError, OSError, ValueError) as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> EttrError:
        """The sentence for a request that failed, and was tried again where that may help."""
        name, text = type(error).__name__, str(error)
        if (
            name in {"PermissionDeniedError", "UnauthenticatedError"}
            or "credential" in text.lower()
        ):
            why = (
                "the server does not let this machine's credentials do that (readers list and get, "
                "who writes puts and deletes, too); check AWS_*, GOOGLE_* or AZURE_*, the policy"
            )
        else:
            # the first line alone, without addresses and what the server quotes of the request
            found = re.search(
                r"status code: (\d{3}[\w ]*)|: ((?:HTTP )?error [a-z ]+)$", text[:600], re.M
            )
            status = next((part for part in found.groups() if part), "") if found else name
            why = (
                f"the object storage does not answer as it should ({status}), {TRIES} tries; "
                "try later"
            )
        return self._error(f"{self.url}: {why}")


def manifest_name(number: int) -> str:
    """The name of a manifest."""
    return f"{_MANIFESTS}{number:0{_DIGITS}}.json"


def at_once(do: Callable[[_T], object], items: Iterable[_T]) -> None:
    """Do something with each item, several of them at once."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(do, items))


def _checked(url: str, error: type[EttrError]) -> str:
    """The URL without a slash at its end.

    Raises:
        EttrError: it names no bucket, or holds credentials.
    """
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise error(
            f"{shown}: give the bucket and a prefix alone; credentials and endpoints come from the "
            "environment (AWS_*, GOOGLE_*, AZURE_*)"
        )
    if parts.scheme not in SCHEMES:
        raise error(f"{shown}: give a URL that begins with {', '.join(SCHEMES)} and ://")
    if not parts.netloc or not parts.path.strip("/"):
        raise error(f"{shown}: give a bucket and a prefix, such as {parts.scheme}://logs/site")
    return url.rstrip("/")
