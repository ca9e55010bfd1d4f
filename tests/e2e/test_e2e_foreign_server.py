"""A server that is not ours, unpatched, is asked the corpus and audited by the same command."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ninfer.audit import read_responses
from ninfer.bench.corpus import load_fixtures
from tests.e2e.conftest import ROOT, Program, clean_environment

pytestmark = pytest.mark.e2e

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(folder: Path) -> None:
    """A checkpoint of some 100,000 random weights that reads and writes bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: n for n, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>"
    )
    wrapped.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    wrapped.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(wrapped),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=16384,
        initializer_range=0.3,
        eos_token_id=wrapped.eos_token_id,
        pad_token_id=wrapped.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    wrapped.save_pretrained(folder)


@pytest.fixture
def foreign(tmp_path: Path, program: Program) -> Iterator[tuple[str, Path]]:
    """Address and model of `transformers serve`, as pip installs it."""
    model, packages = tmp_path / "model", tmp_path / "packages"
    write_model(model)
    # What the server needs beside the test tools; small, and in a folder of its own.
    command = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", packages)
    program(*command, "accelerate", "psutil", cwd=tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **clean_environment(),
        "PYTHONPATH": str(packages),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    script = Path(sys.executable).with_name("transformers")
    words = [script, "serve", model, "--host", "127.0.0.1", "--port", port, "--device", "cpu"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(word) for word in words], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            await_health(f"http://127.0.0.1:{port}/health", server, tmp_path / "log")
            yield f"http://127.0.0.1:{port}", model
        finally:
            server.terminate()
            server.wait(120)


def await_health(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            if httpx.get(url, timeout=60).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail(f"transformers serve did not begin:\n{log.read_text()[-3000:]}")


def test_transformers_serve_is_audited(
    foreign: tuple[str, Path], tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, model = foreign
    out, page = tmp_path / "out.jsonl", tmp_path / "out.html"
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ("--model", model, "--no-extensions", "--set", "tiny", "--seed", "1", "--seed", "2")
    asked = ("--max-new", "96", "--sampling", "stochastic,greedy", "-o", out, "--html", page)
    command = (sys.executable, "-m", "ninfer", "bench", "corpus", "--server", address)
    shown = program(*command, *words, *asked, cwd=ROOT)
    asks = 4 * len(load_fixtures("tiny"))  # two seeds, two samplings
    assert f"of {asks} responses are usable" in shown
    found = read_responses(out)
    assert len(found) == asks and not any(response.error for response in found)
    assert {response.finish_reason for response in found} <= {"stop", "length"}
    assert all(response.usage.prompt and response.usage.completion for response in found)
    assert all(response.timings.total for response in found)
    text = page.read_text(encoding="utf-8")
    assert os.path.getsize(page) < 2 << 20 and address in text
    # All is there: nothing is asked again, and the audit alone says the same.
    before = out.read_bytes()
    assert program(*command, *words, *asked, cwd=ROOT).splitlines()[-1] == shown.splitlines()[-1]
    assert out.read_bytes() == before
    alone = program(sys.executable, "-m", "ninfer", "audit", out, cwd=ROOT)
    assert alone.splitlines()[-1] == shown.splitlines()[-1]
