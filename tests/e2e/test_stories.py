"""A tiny model of children's stories tells one over HTTP, the same from both file formats."""

import re
import shutil
from pathlib import Path

import openai
import pytest

from octavo.testing.server import ServerFailed, running_server
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.weights.gguf import read_gguf

STORIES = Path(__file__).resolve().parents[2] / "../shared/data/models/stories260K"

pytestmark = [
    pytest.mark.skipif(not STORIES.exists(), reason="needs ../shared/data/models/stories260K"),
    pytest.mark.timeout(300),
]

PROMPT = "Once upon a time"
MAX_TOKENS = 120
# What every story of its size is full of.
COMMON = frozenset(
    ("a", "and", "the", "to", "was", "she", "he", "her", "his", "it", "in", "they", "of", "with")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The safetensors folder with a tokenizer.json, which the original lacks: made of the GGUF
    file's vocabulary, so that only the weights and the configuration differ."""
    folder = tmp_path_factory.mktemp("stories") / "stories260K"
    shutil.copytree(STORIES / "hf", folder)
    folder.chmod(0o755)
    tokenizer = tokenizer_from_gguf(read_gguf(STORIES / "stories260K.gguf").metadata)
    tokenizer._backend.save(str(folder / "tokenizer.json"))
    return folder


def story(model):
    """The answer of a server that serves `model`."""
    with (
        running_server(str(model)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        (card,) = client.models.list().data
        return client.completions.create(
            model=card.id, prompt=PROMPT, temperature=0, max_tokens=MAX_TOKENS
        )


def test_the_same_story_from_both_formats(folder):
    gguf = story(STORIES / "stories260K.gguf")
    safetensors = story(folder)
    text = gguf.choices[0].text
    assert safetensors.choices[0].text == text
    assert safetensors.usage == gguf.usage
    assert gguf.usage.completion_tokens == MAX_TOKENS or gguf.choices[0].finish_reason == "stop"
    assert gguf.usage.completion_tokens > 60

    assert re.match(r",? there was an? [a-z]+ ", text), text
    assert re.fullmatch(r"[A-Za-z\s.,!?;:'\"-]+", text), f"other than words: {text}"
    words = re.findall(r"[A-Za-z']+", text)
    assert len(words) > 50
    assert sum(word.lower() in COMMON for word in words) > len(words) / 5, text
    assert len(set(words)) > 20, f"it repeats itself: {text}"
    assert text.count(".") >= 3, text


def test_a_folder_without_tokenizer_is_refused():
    with (
        pytest.raises(ServerFailed, match=r"ended with code 1(.|\n)*no tokenizer\.json"),
        running_server(str(STORIES / "hf")),
    ):
        pytest.fail("it served a model without knowing its tokens")
