"""Language models that can be asked: what they offer, scores that are checked, the user's own."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ettr.errors import EttrError, UsageError

Tokens = tuple[int, ...]
_OWN = "py:"
_SUM_TOLERANCE = 1e-3
_KEPT_BYTES = 64_000_000


@runtime_checkable
class LanguageModel(Protocol):
    """A model that continues token sequences.

    It may also have `encode(text)`, the tokens of a text as the model was trained (for `--prefix`
    and canonical encodings); `end`, the token that ends a text; `longest`, the most tokens of a
    sequence; `gpus`, the number it runs on; `name`.
    """

    @property
    def vocabulary(self) -> Sequence[bytes]:
        """The bytes of each token; empty for one that writes no text."""

    def log_probabilities(self, prefixes: Sequence[Sequence[int]]) -> Any:
        """The natural logarithm of the probability of each next token, a row for each prefix."""


class ModelError(EttrError):
    """A model gave what are no log-probabilities of its vocabulary."""


class ModelScores:
    """The log-probabilities of a model: checked, kept, counted.

    Attributes:
        calls: Prefixes that the model scored.
        batches: Requests in which it did.
        model_s: Wall time of these.
    """

    def __init__(self, model: LanguageModel, prefix: Tokens = ()) -> None:
        self.model = model
        self.prefix = prefix
        self.vocabulary = checked_vocabulary(model)
        self.calls = 0
        self.batches = 0
        self.model_s = 0.0
        self._kept: OrderedDict[Tokens, NDArray[np.float64]] = OrderedDict()

    @classmethod
    def after(cls, model: LanguageModel, prefix: str) -> ModelScores:
        """ModelScores of what follows a text."""
        return cls(model, encoded(model, prefix, "--prefix") if prefix else ())

    def missing(self, paths: Sequence[Tokens]) -> int:
        """How many of these continuations the model would have to score."""
        return len({path for path in paths if path not in self._kept})

    def of(self, paths: Sequence[Tokens]) -> list[NDArray[np.float64]]:
        """A row for each continuation of the prefix.

        Raises:
            ModelError: the model gave none, or what are no log-probabilities.
        """
        needed = list(dict.fromkeys(path for path in paths if path not in self._kept))
        fresh = dict(zip(needed, self._scored(needed), strict=True)) if needed else {}
        rows = [fresh[path] if path in fresh else self._kept[path] for path in paths]
        for path, row in zip(paths, rows, strict=True):
            self._kept[path] = row
            self._kept.move_to_end(path)
        most = max(1, _KEPT_BYTES // (8 * max(1, len(self.vocabulary))))
        while len(self._kept) > most:
            self._kept.popitem(last=False)
        return rows

    def _scored(self, paths: list[Tokens]) -> NDArray[np.float64]:
        asked = [[*self.prefix, *path] for path in paths]
        started_s = time.perf_counter()
        given = _own(lambda: self.model.log_probabilities(asked), "log_probabilities")
        self.model_s += time.perf_counter() - started_s
        self.calls += len(paths)
        self.batches += 1
        return checked_scores(given, len(paths), len(self.vocabulary), asked)


def checked_vocabulary(model: LanguageModel) -> list[bytes]:
    """The bytes of each token.

    Raises:
        ModelError: it has none, or what are no bytes.
    """
    tokens = list(model.vocabulary)
    if not tokens:
        raise ModelError("MODEL: its vocabulary is empty; give the bytes of each token")
    for number, token in enumerate(tokens):
        if not isinstance(token, bytes):
            raise ModelError(
                f"MODEL: token {number} of its vocabulary is {type(token).__name__}, not bytes; "
                "give the bytes that each token writes, b'' for one that writes none"
            )
    if not any(tokens):
        raise ModelError("MODEL: no token of its vocabulary has a byte; give the bytes of each")
    return tokens


def checked_scores(
    given: Any, rows: int, size: int, asked: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """ModelScores that are log-probabilities of a vocabulary.

    Raises:
        ModelError: they have another shape, are not numbers, or do not sum to 1.
    """
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"MODEL: its scores are not an array of numbers ({error})") from error
    if found.shape != (rows, size):
        raise ModelError(
            f"MODEL: gave scores of shape {found.shape} for {rows} prefixes and a vocabulary of "
            f"{size:,} tokens; give ({rows}, {size})"
        )
    wrong = np.isnan(found) | (found == np.inf)
    if wrong.any():
        row, token = (int(one) for one in np.argwhere(wrong)[0])
        raise ModelError(
            f"MODEL: the score of token {token} after {_shown(asked[row])} is "
            f"{found[row, token]}; no bound holds without all scores"
        )
    sums = np.exp(np.minimum(found, 1.0)).sum(axis=1)
    if (np.abs(sums - 1.0) > _SUM_TOLERANCE).any():
        row = int(np.argmax(np.abs(sums - 1.0)))
        raise ModelError(
            f"MODEL: the probabilities after {_shown(asked[row])} sum to {sums[row]:.6g}, not 1; "
            "give natural logarithms of probabilities (a log-softmax)"
        )
    return found


def _shown(tokens: Sequence[int]) -> str:
    shown = ", ".join(map(str, tokens[:8]))
    return f"tokens [{shown}{', ...' if len(tokens) > 8 else ''}]"


def _own(asked: Callable[[], Any], name: str) -> Any:
    """What the model's own code gives; an error of it in a sentence."""
    try:
        return asked()
    except EttrError:
        raise
    except Exception as error:
        raise ModelError(f"MODEL: its {name} ended with {type(error).__name__}: {error}") from error


def encoded(model: LanguageModel, text: str, what: str) -> Tokens:
    """The tokens of a text, as the model's own tokenizer has them.

    Raises:
        UsageError: the model has no tokenizer.
        ModelError: it gave what are no tokens of its vocabulary.
    """
    encode = getattr(model, "encode", None)
    if encode is None:
        raise UsageError(f"{what}: MODEL has no `encode`; add encode(text), which gives its tokens")
    tokens: Tokens = _own(lambda: tuple(int(one) for one in encode(text)), "encode")
    if any(not 0 <= one < len(model.vocabulary) for one in tokens):
        raise ModelError("MODEL: `encode` gave a token that its vocabulary does not have")
    return tokens


def is_own_encoding(scores: ModelScores, tokens: Tokens) -> bool:
    """Whether the model's tokenizer gives these tokens for the text that they spell."""
    text = b"".join(scores.vocabulary[token] for token in tokens)
    return encoded(scores.model, text.decode("utf-8", "replace"), "--canonical") == tokens


def end_of(model: LanguageModel) -> int | None:
    """The token that ends a text; None where the model has none."""
    end = getattr(model, "end", None)
    if end is None:
        return None
    if not 0 <= int(end) < len(model.vocabulary):
        raise ModelError(f"MODEL: `end` is {end}, which its vocabulary does not have")
    return int(end)


def loaded_model(named: str) -> LanguageModel:
    """The model of `py:FILE:NAME`, or of a folder with local safetensors.

    `py:FILE:NAME` runs the file, which is the user's own code. A folder runs no code of its own.

    Raises:
        UsageError: there is none of that name.
    """
    if not named.startswith(_OWN):
        from ettr.language.hugging_face import local_model

        return local_model(Path(named))
    file, _, name = named.removeprefix(_OWN).rpartition(":")
    if not file or not name:
        raise UsageError(f"MODEL {named!r}: write py:FILE:NAME, such as py:ngrams.py:MODEL")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"MODEL {named!r}: {file} is not a file")
    made = getattr(_module(path), name, None)
    if made is None:
        raise UsageError(f"MODEL {named!r}: {file} has no {name}; name an object of it")
    if not isinstance(made, LanguageModel) or isinstance(made, type):
        raise UsageError(
            f"MODEL {named!r}: needs `vocabulary`, the bytes of each token, and "
            "`log_probabilities(prefixes)`; name an object that has both"
        )
    return made


def _module(path: Path) -> Any:
    """The user's file, run as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"MODEL: {path} is not a Python file, whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(
            f"MODEL: {path} ended with {type(error).__name__}: {error}; run it by itself first"
        ) from error
    return module
