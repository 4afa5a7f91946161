"""Models of a local folder as Hugging Face's libraries save them; no code of the folder is run."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ettr.errors import UsageError
from ettr.language.models import LanguageModel, ModelError

# -- the bytes of each token of a `tokenizer.json`: byte-level BPE, sentencepiece, WordPiece -------


_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"
_DO = (
    "byte-level BPE, sentencepiece and WordPiece can be read; write an object with `vocabulary` "
    "and name it py:FILE:NAME"
)


def vocabulary_of(text: str) -> list[bytes]:
    """The bytes of each token, by its number; empty for special tokens and numbers without one.

    Args:
        text: What a `tokenizer.json` holds.

    Raises:
        UsageError: it is no tokenizer, or one of another kind.
    """
    try:
        document = json.loads(text)
        tokens = _tokens(document["model"])
        added = [
            (int(one["id"]), str(one["content"]), bool(one["special"]))
            for one in document.get("added_tokens") or ()
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"MODEL: tokenizer.json cannot be read ({error!r}); {_DO}") from error
    spelled = _spelling(document)
    size = 1 + max([*tokens.values(), *(number for number, _, _ in added)], default=-1)
    if size > 10_000_000:
        raise UsageError(f"MODEL: tokenizer.json has a token of number {size - 1:,}; {_DO}")
    found = [b""] * size
    for token, number in tokens.items():
        found[number] = spelled(token)
    for number, content, special in added:
        found[number] = b"" if special else content.encode()
    return found


def _tokens(model: dict[str, Any]) -> dict[str, int]:
    """Numbers of tokens; a unigram model lists them with their scores."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {str(token): number for number, (token, _) in enumerate(vocabulary)}
    return {str(token): int(number) for token, number in vocabulary.items()}


def _spelling(document: dict[str, Any]) -> Callable[[str], bytes]:
    """How a token of this kind spells its bytes."""
    decoder = document.get("decoder") or {}
    steps = decoder.get("decoders") or [decoder]
    kinds = {str(step.get("type")) for step in steps}
    if "ByteLevel" in kinds:
        return _byte_level
    if "WordPiece" in kinds:
        mark = next(str(step.get("prefix", "##")) for step in steps if step["type"] == "WordPiece")
        return lambda token: (
            token.removeprefix(mark).encode() if token.startswith(mark) else f" {token}".encode()
        )
    replaces = [step for step in steps if step.get("type") == "Replace"]
    if "Metaspace" in kinds or any(_SPACE in str(step.get("pattern")) for step in replaces):
        return _sentencepiece
    raise UsageError(f"MODEL: tokenizer.json has the decoder {', '.join(sorted(kinds))}; {_DO}")


def _sentencepiece(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode()


def _byte_level(token: str) -> bytes:
    try:
        return bytes(_BYTES[letter] for letter in token)
    except KeyError:
        return token.encode()  # added outside the byte alphabet


def _alphabet() -> dict[str, int]:
    """GPT-2's letters of bytes: printable ones are themselves, the others follow from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


_BYTES = _alphabet()


# -- models of a local folder as Hugging Face's libraries save them; no code of the folder is run


_INSTALL = "pip install 'ettr[language]'; install torch separately, as its builds differ"


def local_model(folder: Path) -> LanguageModel:
    """The causal language model of a folder with config.json, tokenizer.json and safetensors.

    Raises:
        UsageError: the folder lacks one of them, wants its own code run, or a library is missing.
    """
    config = _config(folder)
    if "auto_map" in config:
        raise UsageError(
            f"MODEL {folder}: config.json names code of its own (auto_map), which is never run; "
            "write an object with `vocabulary` and name it py:FILE:NAME"
        )
    if not any(folder.glob("*.safetensors")):
        raise UsageError(f"MODEL {folder}: has no *.safetensors; save it with safetensors")
    needed = ("tokenizers", "torch", "transformers")
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent:
        raise UsageError(f"MODEL {folder}: needs {', '.join(absent)}: {_INSTALL}")
    return _LocalModel(folder)


def _config(folder: Path) -> dict[str, Any]:
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise UsageError(
                f"MODEL {folder}: has no {name}; give a folder with config.json, tokenizer.json "
                "and *.safetensors, or py:FILE:NAME"
            )
    try:
        found = json.loads((folder / "config.json").read_text("utf-8"))
    except ValueError as error:
        raise UsageError(f"MODEL {folder}: config.json is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise UsageError(f"MODEL {folder}: config.json is not a JSON object")
    return found


class _LocalModel:
    """A causal language model on the GPU if there is one, with the state of the prefix kept."""

    def __init__(self, folder: Path) -> None:
        import torch
        import transformers
        from tokenizers import Tokenizer

        self.name = str(folder)
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, use_safetensors=True
            )
        except Exception as error:  # of any of the libraries, each with errors of its own
            raise UsageError(f"MODEL {folder}: cannot be loaded: {error}") from error
        self._torch = torch
        self.gpus = 1 if torch.cuda.is_available() else 0
        self._device = "cuda" if self.gpus else "cpu"
        self._model = model.to(self._device).eval()
        tokens = vocabulary_of(self._tokenizer.to_str())
        size = int(model.get_output_embeddings().weight.shape[0])
        if size < len(tokens):
            raise ModelError(
                f"MODEL {folder}: tokenizer.json has {len(tokens):,} tokens and the model scores "
                f"{size:,}; give the tokenizer that it was trained with"
            )
        # rows beyond the tokenizer's are padding of the embedding
        self.vocabulary: Sequence[bytes] = [*tokens, *[b""] * (size - len(tokens))]
        config = model.config
        self.longest = getattr(config, "max_position_embeddings", None)
        end = config.eos_token_id
        self.end = end[0] if isinstance(end, list) else end
        self._begin = config.bos_token_id if config.bos_token_id is not None else self.end
        self._shared: tuple[int, ...] = ()
        self._state: Any = None

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, without special ones."""
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def log_probabilities(self, prefixes: Sequence[Sequence[int]]) -> Any:
        """A row for each prefix; what all begin with is computed once and kept."""
        torch = self._torch
        begun = [
            (self._begin, *prefix) if self._begin is not None else tuple(prefix)
            for prefix in prefixes
        ]
        if not all(begun):
            raise ModelError("MODEL: has no token that begins a text; give --prefix")
        with torch.inference_mode():
            shared = self._kept(begun)
            tails = [one[len(shared) :] for one in begun]
            longest = max(map(len, tails))
            ids = torch.zeros((len(tails), longest), dtype=torch.long, device=self._device)
            for row, tail in enumerate(tails):  # padded on the right: nothing looks ahead
                ids[row, : len(tail)] = torch.tensor(tail)
            last = torch.tensor([len(tail) - 1 for tail in tails], device=self._device)
            scores = self._forward(ids, len(tails)) if shared else self._model(ids).logits
            rows = scores[torch.arange(len(tails), device=self._device), last]
            return torch.log_softmax(rows.double(), dim=-1).cpu().numpy()

    def _forward(self, ids: Any, count: int) -> Any:
        """ModelScores after the kept state, which is copied for each row."""
        import copy

        state = copy.deepcopy(self._state)
        state.batch_repeat_interleave(count)
        return self._model(ids, past_key_values=state, use_cache=True).logits

    def _kept(self, begun: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """What all prefixes begin with and whose state is kept; each has a token after it."""
        if self._shared and all(
            len(one) > len(self._shared) and one[: len(self._shared)] == self._shared
            for one in begun
        ):
            return self._shared
        self._shared, self._state = (), None
        common = min(begun, key=len)[:-1]
        while any(one[: len(common)] != common for one in begun):
            common = common[:-1]
        if not common:
            return ()
        ids = self._torch.tensor([common], device=self._device)
        self._state = self._model(ids, use_cache=True).past_key_values
        self._shared = common
        return common
