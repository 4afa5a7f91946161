"""Bytes of tokens: vocabularies of the kinds in use, and local models of Hugging Face's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ettr.errors import EttrError, UsageError
from ettr.language.hugging_face import vocabulary_of
from ettr.language.models import ModelError, loaded_model
from ettr.language.search import Query, search
from language.small_models import docs_lines

TEXTS = ["The key is 42é €😀", "two  spaces\tand a tab", "don't; (see Fig. 3)"]


def byte_level(lines: list[str]) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<end>"],
        show_progress=False,
    )
    made.train_from_iterator(lines, trainer)
    return made


def sentencepiece(lines: list[str]) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Metaspace()
    letters = sorted(set("".join(TEXTS)))
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=400, initial_alphabet=letters, show_progress=False
    )
    made.train_from_iterator([*lines, *TEXTS], trainer)
    return made


def word_piece(lines: list[str]) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))  # noqa: S106
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.decoder = tokenizers.decoders.WordPiece()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[UNK]"], show_progress=False
    )
    made.train_from_iterator([*lines, *TEXTS], trainer)
    return made


@pytest.mark.parametrize(
    ("train", "first"), [(byte_level, ""), (sentencepiece, " "), (word_piece, " ")]
)
def test_the_bytes_of_a_text_s_tokens_are_the_text(train: Any, first: str) -> None:
    tokenizer = train(docs_lines()[:200])
    vocabulary = vocabulary_of(tokenizer.to_str())
    assert len(vocabulary) == tokenizer.get_vocab_size()
    # word pieces keep no other white space
    for text in (" ".join(one.split()) if train is word_piece else one for one in TEXTS):
        spelled = b"".join(vocabulary[token] for token in tokenizer.encode(text).ids)
        assert spelled.decode() == first + text
    assert sum(not token for token in vocabulary) <= 1, "special tokens alone have no bytes"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"model": {}}',
        '{"model": {"vocab": {"a": "x"}}}',
        '{"model": {"vocab": 3}}',
    ],
)
def test_what_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        vocabulary_of(text)


def test_a_tokenizer_of_another_kind_is_refused() -> None:
    text = '{"model": {"vocab": {"a": 0}}, "decoder": {"type": "CTC"}}'
    with pytest.raises(UsageError, match=r"decoder CTC; byte-level BPE, sentencepiece"):
        vocabulary_of(text)


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, saved as Hugging Face's libraries do."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    place = tmp_path_factory.mktemp(request.param)
    byte_level(docs_lines()[:200]).save(str(place / "tokenizer.json"))
    if request.param == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=512,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            eos_token_id=0,
            bos_token_id=0,
        )
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=512,
            max_position_embeddings=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            eos_token_id=[0, 1],
            bos_token_id=0,
        )
        model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(place, safe_serialization=True)
    return place


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_local_model_scores_as_by_itself(folder: Path) -> None:
    import torch
    import transformers

    model: Any = loaded_model(str(folder))
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert len(model.vocabulary) == 512
    assert model.longest == 64
    begun = model.encode("The key of A is")
    batches = [
        [begun],
        [[*begun, 5, 6], [*begun, 7], [*begun, 8, 9, 10]],
        [[*begun, 5, 6, 7], [*begun, 9]],
        [[3], [4, 5]],
        [[]],
    ]
    for batch in batches:
        found = model.log_probabilities(batch)
        for prefix, row in zip(batch, found, strict=True):
            with torch.no_grad():
                logits = plain(torch.tensor([[0, *prefix]])).logits[0, -1].double()
            expected = torch.log_softmax(logits, -1).numpy()
            assert np.allclose(row, expected, atol=2e-5)
    query = Query("[ab]{2}", "The key", most_calls=500, matches=1, precision=1e-3)
    got = search(model, query)
    assert 0 < got.low <= got.high < 1
    assert got.high - got.low < 1e-3 * got.high


@pytest.mark.slow
@pytest.mark.torch
def test_a_folder_that_is_no_model_is_refused_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    def copied(name: str, **change: Any) -> Path:
        place = tmp_path / name
        place.mkdir()
        for path in folder.iterdir():
            (place / path.name).write_bytes(path.read_bytes())
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(config | change))
        return place

    own_code = copied("code", auto_map={"AutoModelForCausalLM": "evil.Model"})
    with pytest.raises(UsageError, match="code of its own"):
        loaded_model(str(own_code))
    pickled = copied("pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"has no \*\.safetensors"):
        loaded_model(str(pickled))
    cut = copied("cut")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(UsageError, match="cannot be loaded"):
        loaded_model(str(cut))
    small = copied("small")
    tokenizer = json.loads((small / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["zzz"] = 600
    (small / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises((ModelError, EttrError), match="tokens and the model scores 512"):
        loaded_model(str(small))
