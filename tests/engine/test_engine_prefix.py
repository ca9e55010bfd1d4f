"""The prefix cache as a user meets it: options, usage, reasons, restarts, a disk that fails."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from test_engine_vision import picture
from test_engine_vision import prompt_of as picture_prompt

from ninfer.artifact import open_artifact
from ninfer.artifact.fingerprint import fingerprint
from ninfer.convert import synthesise
from ninfer.engine import AsyncEngine, Engine, EngineOptions, GenerationOptions
from ninfer.errors import UsageError
from ninfer.request import (
    ContentPart,
    Conversation,
    GenerationResult,
    Message,
    PrefixMiss,
    PreparedPrompt,
    TemplateOptions,
)

GREEDY = GenerationOptions(greedy=True, max_new=8, thinking=False)
# Of processes that run a piece of this file.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
TEXT = " ".join(f"word {index}" for index in range(60))


def load(path: Path, **changes: object) -> Engine:
    options = EngineOptions(artifact=path, max_context=1024, device="cpu")
    return Engine.load(replace(options, **changes))


def ask(engine: Engine, *texts: str) -> PreparedPrompt:
    """A conversation of user and assistant turns in turn, the user's first."""
    turns = [
        Message("assistant" if index % 2 else "user", (ContentPart("text", text),))
        for index, text in enumerate(texts)
    ]
    options = TemplateOptions(enable_thinking=False)
    return engine.prepare(Conversation(tuple(turns), template=options))


def run(
    engine: Engine, prompt: PreparedPrompt, options: GenerationOptions = GREEDY
) -> GenerationResult:
    *_, result = engine.generate(prompt, options)
    assert isinstance(result, GenerationResult)
    return result


@pytest.fixture
def dense(micro_artifacts: dict[str, Path]) -> Path:
    return micro_artifacts["dense"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefix_host_mib": -1}, "--prefix-host-mib -1: must not be negative"),
        ({"prefix_disk_mib": 5}, "--prefix-disk-mib 5: needs --prefix-dir"),
        ({"prefix_dir": Path("x"), "prefix_disk_mib": 0}, "--prefix-disk-mib 0: must be positive"),
        ({"prefix_cache_mib": 0, "prefix_host_mib": 1}, "--prefix-cache-mib 0 turns prefix reuse"),
        ({"prefix_cache_mib": 0, "prefix_dir": Path("x")}, "--prefix-cache-mib 0 turns prefix"),
        ({"prefix_cache_mib": 0, "reuse_decoded": True}, "leave out --reuse-decoded"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    dense: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load(dense, **changes)


def test_a_folder_that_cannot_be_is_refused(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot hold the prefix cache"):
        load(dense, prefix_dir=tmp_path / "file")


def test_d7_a_hit_is_in_the_usage_and_an_idle_cache_says_so(
    dense: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D7: reuse works on the hybrid model, or the start says that it is inactive."""
    engine = load(dense)
    prompt = ask(engine, TEXT)
    first, second = run(engine, prompt), run(engine, prompt)
    assert (first.usage.cached_tokens, first.prefix_miss) == (0, PrefixMiss("no_match"))
    assert second.usage.cached_tokens == (len(prompt.token_ids) - 1) // 64 * 64 > 0
    assert second.prefix_miss is None
    assert second.token_ids == first.token_ids
    assert "prefix reuse is off" not in caplog.text
    off = load(dense, prefix_cache_mib=0)
    for _ in range(2):
        result = run(off, prompt)
        assert result.token_ids == first.token_ids
        assert (result.usage.cached_tokens, result.prefix_miss) == (0, PrefixMiss("disabled"))


def test_d8_cached_tokens_grow_with_every_turn(dense: Path) -> None:
    engine, cold = load(dense), load(dense, prefix_cache_mib=0)
    texts, cached = [TEXT], []
    for turn in range(5):
        prompt = ask(engine, *texts)
        result = run(engine, prompt)
        assert result.token_ids == run(cold, prompt).token_ids
        cached.append(result.usage.cached_tokens)
        texts += [f"answer {turn} " * 10, f"question {turn} " * 10]
    assert cached[0] == 0
    assert all(late > early for early, late in pairwise(cached)), cached


def test_log_probabilities_of_a_prompt_are_computed_although_it_is_cached(
    dense: Path, tmp_path: Path
) -> None:
    """In the cache or in the folder; the reason is in the result."""
    options = replace(GREEDY, prompt_logprobs=0)
    off = load(dense, prefix_cache_mib=0)
    expected = run(off, ask(off, TEXT), options)
    assert expected.prefix_miss == PrefixMiss("disabled")
    first = load(dense, prefix_dir=tmp_path)
    run(first, ask(first, TEXT))
    for engine in (first, load(dense, prefix_dir=tmp_path)):
        result = run(engine, ask(engine, TEXT), options)
        assert result.prompt_logprobs == expected.prompt_logprobs
        assert result.usage.cached_tokens == 0
        assert result.prefix_miss == PrefixMiss("prompt_logprobs")
        first.close()


def test_a_nonce_in_the_first_block_is_found_and_named(dense: Path) -> None:
    """A header that changes with every request: the client can be told which token it is."""
    engine = load(dense)
    prompts = [
        ask(engine, f"{'the same for all ' * 9} nonce {nonce} {TEXT}") for nonce in ("a1b", "c2d")
    ]
    one, two = (prompt.token_ids for prompt in prompts)
    differs = next(i for i, pair in enumerate(zip(one, two, strict=False)) if len(set(pair)) > 1)
    assert differs > 64
    run(engine, prompts[0])
    result = run(engine, prompts[1])
    assert result.prefix_miss == PrefixMiss("template_changed_at_token", differs)
    assert str(result.prefix_miss) == f"template_changed_at_token:{differs}"


def test_l5_another_picture_is_a_miss_that_names_it(dense: Path) -> None:
    """L5: a cache key that ignores pixels would caption every picture alike."""
    engine, cold = load(dense, vision=True), load(dense, vision=True, prefix_cache_mib=0)
    text = {"type": "text", "text": TEXT}
    first, other = (picture_prompt(engine, picture(seed), text) for seed in (1, 2))
    assert first.token_ids == other.token_ids
    run(engine, first)
    result = run(engine, other)
    assert result.token_ids == run(cold, other).token_ids
    assert result.prefix_miss is not None
    assert result.prefix_miss.reason == "media_changed"
    assert result.prefix_miss.token is not None
    assert result.usage.cached_tokens <= result.prefix_miss.token == first.runs[0].start
    again = run(engine, first)
    assert again.usage.cached_tokens > first.runs[0].start


def test_j4_a_turn_after_an_abort_has_right_counts_and_text(dense: Path) -> None:
    engine, cold = load(dense), load(dense, prefix_cache_mib=0)
    first = engine.generate(ask(engine, TEXT), replace(GREEDY, max_new=200))
    next(first)
    first.close()
    engine.check()
    prompt = ask(engine, TEXT, "half an answ", "go on")
    result, expected = run(engine, prompt), run(cold, prompt)
    assert result.token_ids == expected.token_ids
    assert result.usage.prompt_tokens == len(prompt.token_ids)
    assert 0 < result.usage.cached_tokens < len(prompt.token_ids)
    assert replace(result.usage, cached_tokens=0) == expected.usage


RESTARTED = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from test_engine_prefix import GREEDY, TEXT, ask, load, run
engine = load(Path(sys.argv[1]), prefix_dir=Path(sys.argv[2]), **json.loads(sys.argv[3]))
result = run(engine, ask(engine, TEXT))
print(json.dumps([result.usage.cached_tokens, str(result.prefix_miss), *result.token_ids]))
"""


def in_a_fresh_process(path: Path, folder: Path, **changes: object) -> tuple[int, str, list[int]]:
    command = [sys.executable, "-c", RESTARTED, str(path), str(folder), json.dumps(changes)]
    done = subprocess.run(command, check=True, timeout=300, stdout=subprocess.PIPE, env=ENVIRONMENT)
    cached, miss, *tokens = json.loads(done.stdout)
    return cached, miss, tokens


def test_a_fresh_process_finds_the_prefix_on_disk(dense: Path, tmp_path: Path) -> None:
    engine = load(dense, prefix_dir=tmp_path, prefix_host_mib=64)
    prompt = ask(engine, TEXT)
    result = run(engine, prompt)
    engine.close()
    reusable = (len(prompt.token_ids) - 1) // 64 * 64
    assert in_a_fresh_process(dense, tmp_path) == (reusable, "None", list(result.token_ids))
    # The same machine with other formats: nothing of it may be used.
    assert in_a_fresh_process(dense, tmp_path, kv_dtype="int8")[:2] == (0, "no_match")


@pytest.mark.parametrize(
    "formats", [{"kv_dtype": "fp8"}, {"state_dtype": "bf16"}, {"kv_dtype": "int8"}], ids=str
)
def test_narrow_formats_survive_a_restart_and_are_found_by_their_own_kind_only(
    dense: Path, tmp_path: Path, formats: dict[str, str]
) -> None:
    first = load(dense, prefix_dir=tmp_path, **formats)
    expected = run(first, ask(first, TEXT))
    first.close()
    again = load(dense, prefix_dir=tmp_path, **formats)
    result = run(again, ask(again, TEXT))
    assert result.token_ids == expected.token_ids
    assert result.usage.cached_tokens > 0 and result.prefix_miss is None
    other = load(dense, prefix_dir=tmp_path)
    assert run(other, ask(other, TEXT)).usage.cached_tokens == 0


def test_other_weights_under_the_same_name_find_nothing(tmp_path: Path) -> None:
    """Two artifacts of one identity and layout, as two finetunes are."""
    paths = [tmp_path / f"{seed}.ninfer" for seed in (1, 2)]
    for seed, path in enumerate(paths):
        synthesise(path, like="qwen3.6-27b", scale="micro", seed=seed)
        # Equal times, so that it is the words that tell them apart.
        os.utime(path, ns=(0, 0))
    with open_artifact(paths[0]) as one, open_artifact(paths[1]) as other:
        assert one.identity == other.identity
        assert fingerprint(one) != fingerprint(other)
        assert fingerprint(one) == fingerprint(open_artifact(paths[0]))
    first = load(paths[0], prefix_dir=tmp_path / "cache")
    run(first, ask(first, TEXT))
    first.close()
    second = load(paths[1], prefix_dir=tmp_path / "cache")
    result = run(second, ask(second, TEXT))
    assert (result.usage.cached_tokens, result.prefix_miss) == (0, PrefixMiss("no_match"))


def test_drafter_pages_come_back_with_the_others(dense: Path, tmp_path: Path) -> None:
    """A restored prefix without them would draft from zeros: right tokens, wasted drafts."""
    options = {"spec": "mtp", "draft_tokens": 3, "prefix_dir": tmp_path}
    first = load(dense, **options)
    prompt = ask(first, TEXT)
    tokens = run(first, prompt).token_ids
    first.close()
    second = load(dense, **options)
    result = run(second, prompt)
    assert result.token_ids == tokens
    rows = []
    for engine in (first, second):
        runtime = engine._runtime
        assert runtime.speculation is not None and runtime.prefixes is not None
        nodes = sorted(runtime.prefixes.cache._tree.nodes(), key=lambda node: node.depth)
        cache = runtime.speculation.kv_layers["mtp"]
        rows.append(cache.keys[[node.page for node in nodes]])
    assert rows[0].abs().sum() > 0
    # The last row of the last page has seen the token behind it, which is written again.
    assert torch.equal(rows[0][:, :-1], rows[1][:, :-1])


def test_speculation_over_a_prefix_from_disk(dense: Path, tmp_path: Path) -> None:
    """The class of reports on prefix reuse with MTP over a recurrent state, across a restart."""
    expected = [run(load(dense, prefix_cache_mib=0), prompt) for prompt in _turns(load(dense))]
    for spec in ("mtp", "lookup", "mtp"):
        engine = load(dense, spec=spec, prefix_dir=tmp_path)
        for prompt, cold in zip(_turns(engine), expected, strict=True):
            assert run(engine, prompt).token_ids == cold.token_ids
        engine.close()
    stats = engine.prefix_stats()
    assert stats is not None and stats.restored > 0


def _turns(engine: Engine) -> list[PreparedPrompt]:
    return [ask(engine, TEXT), ask(engine, TEXT, "yes " * 20, "and then? " * 8)]


DISK_FULL = """
import logging, resource, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
logging.basicConfig(level="WARNING")
from test_engine_prefix import TEXT, ask, load, run
engine = load(Path(sys.argv[1]), prefix_dir=Path(sys.argv[2]), max_concurrency=1)
prompts = [ask(engine, f"{n} {TEXT}") for n in range(4)]
expected = [run(engine, prompt).token_ids for prompt in prompts]
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
engine.close()
assert [run(engine, prompt).token_ids for prompt in prompts] == expected
print(engine.prefix_stats().failed_writes)
"""


def test_a_full_disk_is_survived_with_one_line(dense: Path, tmp_path: Path) -> None:
    """The kernel itself refuses to write more than 10,000 bytes of a file."""
    command = [sys.executable, "-c", DISK_FULL, str(dense), str(tmp_path)]
    done = subprocess.run(
        command, check=True, timeout=300, capture_output=True, text=True, env=ENVIRONMENT
    )
    assert int(done.stdout) >= 4
    lines = [line for line in done.stderr.splitlines() if "prefix cache" in line]
    assert len(lines) == 1, done.stderr
    assert "could not be written: File too large" in lines[0]
    assert not list(tmp_path.glob(".*")), "half a file is left"


KILLED = """
import sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from ninfer.runtime import prefix_store
encode = prefix_store.encode
def slowly(record):
    for piece in encode(record):
        yield piece
        time.sleep(0.01)
prefix_store.encode = slowly
from test_engine_prefix import TEXT, ask, load, run
engine = load(Path(sys.argv[1]), prefix_dir=Path(sys.argv[2]))
for n in range(10**6):
    run(engine, ask(engine, TEXT if n == 0 else f"{n} {TEXT}"))
    engine.tidy()
"""


def test_a_kill_in_the_middle_of_a_write_costs_that_entry_only(dense: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(dense), str(tmp_path)]
    engine = subprocess.Popen(command, env=ENVIRONMENT)
    try:
        end = time.monotonic() + 200
        while True:
            assert engine.poll() is None and time.monotonic() < end
            # Nothing moves between the look and the kill.
            engine.send_signal(signal.SIGSTOP)
            time.sleep(0.01)
            if list(tmp_path.glob("*.prefix")) and list(tmp_path.glob(".*.partial")):
                break
            engine.send_signal(signal.SIGCONT)
            time.sleep(0.02)
    finally:
        engine.send_signal(signal.SIGKILL)
        engine.wait()
    assert list(tmp_path.glob(".*.partial")), "the kill came between two writes"
    after = load(dense, prefix_dir=tmp_path)
    prompt = ask(after, TEXT)
    assert not list(tmp_path.glob(".*.partial"))
    result = run(after, prompt)
    assert result.usage.cached_tokens == (len(prompt.token_ids) - 1) // 64 * 64
    assert result.token_ids == run(load(dense, prefix_cache_mib=0), prompt).token_ids


def test_the_async_engine_stores_while_nobody_asks(dense: Path, tmp_path: Path) -> None:
    engine = load(dense, prefix_dir=tmp_path)
    served = AsyncEngine(engine)
    prompt = ask(engine, TEXT)

    async def work() -> None:
        async for _ in served.generate(prompt, GREEDY):
            pass
        end = time.monotonic() + 60
        while not list(tmp_path.glob("*.prefix")):
            assert time.monotonic() < end
            await asyncio.sleep(0.02)
        async for event in served.generate(prompt, GREEDY):
            last = event
        assert isinstance(last, GenerationResult) and last.usage.cached_tokens > 0
        await served.close()

    asyncio.run(work())
    again = load(dense, prefix_dir=tmp_path)
    assert run(again, prompt).usage.cached_tokens > 0


@pytest.mark.parametrize("spec", ["mtp", "lookup"])
def test_decoded_pages_are_committed_at_borders_under_speculation(dense: Path, spec: str) -> None:
    """Drafts in flight at a page border would be missing from the state that is kept there."""
    plain = load(dense, reuse_decoded=True)
    drafting = load(dense, reuse_decoded=True, spec=spec, draft_tokens=5, adaptive_drafts=False)
    ids = (7, 8, 9, 10, 11) * 20
    for _ in range(2):
        prompt = PreparedPrompt("", ids, False)
        options = replace(GREEDY, max_new=100, raw_output=True)
        expected, result = run(plain, prompt, options), run(drafting, prompt, options)
        assert result.token_ids == expected.token_ids
        assert result.usage.cached_tokens == expected.usage.cached_tokens
        drafting.check()
        ids += (*result.token_ids, 7, 8, 9)
    # Two pages of the last answer at least are not computed again.
    assert result.usage.cached_tokens > len(prompt.token_ids) - 70
