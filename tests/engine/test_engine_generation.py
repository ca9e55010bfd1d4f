"""The engine on synthetic artifacts: loading, events, limits, stops, and damaged files."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ninfer.artifact import open_artifact
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.engine.program import ProgramOptions
from ninfer.errors import (
    CapacityError,
    ConfigError,
    ContextError,
    InventoryError,
    PayloadError,
    PromptError,
    QueueTimeoutError,
    UsageError,
)
from ninfer.request import (
    ContentPart,
    Conversation,
    FinishReason,
    GenerationResult,
    Message,
    PreparedPrompt,
    TemplateOptions,
    TextDelta,
)

GREEDY = GenerationOptions(greedy=True, max_new=24)


def options_for(path: Path, **changes: object) -> EngineOptions:
    return replace(EngineOptions(artifact=path, max_context=256, device="cpu"), **changes)


@pytest.fixture(scope="module", params=["dense", "moe"])
def engine(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> Iterator[Engine]:
    yield Engine.load(options_for(micro_artifacts[request.param]))


def ask(engine: Engine, text: str, *, thinking: bool = False) -> PreparedPrompt:
    message = Message("user", (ContentPart("text", text),))
    return engine.prepare(
        Conversation((message,), template=TemplateOptions(enable_thinking=thinking))
    )


def run(
    engine: Engine, prompt: PreparedPrompt, options: GenerationOptions
) -> tuple[str, str, GenerationResult]:
    texts = {"content": "", "reasoning": ""}
    result = None
    for event in engine.generate(prompt, options):
        if isinstance(event, TextDelta):
            assert result is None, "text after the result"
            texts[event.channel] += event.text
        else:
            result = event
    assert result is not None
    return texts["content"], texts["reasoning"], result


def test_an_answer_has_text_counts_and_a_reason(engine: Engine) -> None:
    prompt = ask(engine, "What is a state slot?")
    content, reasoning, result = run(engine, prompt, GREEDY)
    assert result.finish_reason is FinishReason.OUTPUT_LIMIT
    assert result.usage.prompt_tokens == len(prompt.token_ids)
    assert result.usage.completion_tokens == len(result.token_ids) == 24
    assert content and not reasoning
    assert result.usage.reasoning_tokens == 0


def test_thinking_goes_to_its_own_channel(engine: Engine) -> None:
    """B1: cut while thinking, everything is reasoning and the answer is empty."""
    content, reasoning, result = run(engine, ask(engine, "Why?", thinking=True), GREEDY)
    assert reasoning and not content
    assert result.usage.reasoning_tokens == result.usage.completion_tokens


def test_raw_output_shows_everything_as_answer(engine: Engine) -> None:
    prompt = ask(engine, "Why?", thinking=True)
    content, reasoning, _ = run(engine, prompt, replace(GREEDY, raw_output=True))
    assert content and not reasoning


def test_the_same_seed_gives_the_same_tokens(engine: Engine) -> None:
    prompt = ask(engine, "Say something.")
    sampled = GenerationOptions(temperature=1.0, seed=4, max_new=30)
    first, again, other = (
        run(engine, prompt, replace(sampled, seed=seed))[2].token_ids for seed in (4, 4, 5)
    )
    assert first == again != other


def test_a_stop_token_ends_the_answer_and_is_not_shown(engine: Engine) -> None:
    prompt = ask(engine, "What is a page?")
    full, _, result = run(engine, prompt, GREEDY)
    token = result.token_ids[10]
    first = result.token_ids.index(token)
    content, _, stopped = run(engine, prompt, replace(GREEDY, stop_token_id=(token,)))
    assert stopped.finish_reason is FinishReason.STOP_TOKEN
    assert stopped.token_ids == result.token_ids[: first + 1]
    assert full.startswith(content) and len(content) < len(full)


def test_a_stop_string_ends_the_answer_before_it(engine: Engine) -> None:
    prompt = ask(engine, "What is a page?")
    full, _, _ = run(engine, prompt, GREEDY)
    stop = full[8:11]
    content, _, result = run(engine, prompt, replace(GREEDY, stop=(stop,)))
    assert result.finish_reason is FinishReason.STOP_STRING
    assert content == full[: full.index(stop)]
    assert result.usage.completion_tokens < 24


def test_the_context_bounds_the_answer(engine: Engine) -> None:
    prompt = ask(engine, "x" * 225)
    room = 256 - len(prompt.token_ids) + 1
    _, _, result = run(engine, prompt, replace(GREEDY, max_new=1000))
    assert result.finish_reason is FinishReason.CONTEXT_CAPACITY
    assert result.usage.completion_tokens == room
    _, _, exact = run(engine, prompt, replace(GREEDY, max_new=room))
    assert exact.finish_reason is FinishReason.OUTPUT_LIMIT


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(engine: Engine) -> None:
    prompt = ask(engine, "x" * 600)
    with pytest.raises(
        ContextError, match=rf"{len(prompt.token_ids)} tokens, the context holds 256"
    ):
        run(engine, prompt, GREEDY)
    run(engine, ask(engine, "short"), GREEDY)


def test_a_bad_request_is_refused_by_the_call_itself(engine: Engine) -> None:
    """A server has to know before it sends a status."""
    prompt = ask(engine, "hi")
    for change, error in (
        ({"max_new": -1}, "--max-new -1"),
        ({"stop_token_id": (504,)}, r"--stop-token-id 504: the model's ids are 0\.\.503"),
        ({"stop_token_id": (-5,)}, "--stop-token-id -5"),
    ):
        with pytest.raises(UsageError, match=error):
            engine.generate(prompt, replace(GREEDY, **change))


def test_the_time_of_whoever_reads_the_text_does_not_count(engine: Engine) -> None:
    begin, read = time.perf_counter(), 0.0
    for event in engine.generate(ask(engine, "hi"), replace(GREEDY, max_new=10)):
        if isinstance(event, GenerationResult):
            whole = time.perf_counter() - begin
            assert event.prefill_seconds > 0 and event.decode_seconds > 0
            assert event.prefill_seconds + event.decode_seconds <= whole - read
        else:
            start = time.perf_counter()
            time.sleep(0.1)
            read += time.perf_counter() - start


def test_a_second_generation_waits_and_leaves_nothing_behind(engine: Engine) -> None:
    expected = run(engine, ask(engine, "hi"), GREEDY)[2].token_ids
    first = engine.generate(ask(engine, "hi"), GREEDY)
    next(first)
    second = run(engine, ask(engine, "hi"), GREEDY)[2]
    assert second.token_ids == expected
    *_, last = first
    assert isinstance(last, GenerationResult) and last.token_ids == expected


def test_a_full_queue_refuses_at_the_call(engine: Engine) -> None:
    prompt = ask(engine, "hi")
    expected = run(engine, prompt, GREEDY)[2].token_ids
    waiting = [engine.generate(prompt, GREEDY) for _ in range(17)]
    with pytest.raises(CapacityError, match="17 requests are waiting already"):
        engine.generate(prompt, GREEDY)
    for events in waiting:
        events.close()
    assert run(engine, prompt, GREEDY)[2].token_ids == expected


def test_a_generation_that_is_dropped_unread_gives_its_place_back(engine: Engine) -> None:
    for _ in range(40):
        engine.generate(ask(engine, "hi"), GREEDY)
    assert not engine.has_work


def test_an_empty_prompt_is_refused(engine: Engine) -> None:
    with pytest.raises(PromptError, match="the prompt is empty"):
        run(engine, PreparedPrompt("", (), False), GREEDY)


def test_packed_and_decoded_weights_give_the_same_text(micro_artifacts: dict[str, Path]) -> None:
    results = {}
    for weights in ("packed", "decoded"):
        loaded = Engine.load(options_for(micro_artifacts["dense"], weights=weights))
        results[weights] = run(loaded, ask(loaded, "What is a page?"), GREEDY)[2].token_ids
    assert results["packed"] == results["decoded"]


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8", "int4"])
@pytest.mark.parametrize("state_dtype", ["fp32", "bf16"])
def test_narrow_numbers_run(
    micro_artifacts: dict[str, Path], kv_dtype: str, state_dtype: str
) -> None:
    narrow = options_for(
        micro_artifacts["moe"], activations="bf16", kv_dtype=kv_dtype, state_dtype=state_dtype
    )
    loaded = Engine.load(narrow)
    # Rounding may bring a stop id early.
    whole = replace(GREEDY, program=ProgramOptions(ignore_stops=True))
    assert len(run(loaded, ask(loaded, "Hi"), whole)[2].token_ids) == 24
    (delta, *_) = (state.delta for state in loaded._runtime._runner.caches.gdn.values())
    assert delta.matrix.dtype is (torch.bfloat16 if state_dtype == "bf16" else torch.float32)


def test_an_override_template_is_used(micro_artifacts: dict[str, Path], tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    loaded = Engine.load(options_for(micro_artifacts["dense"], chat_template=template))
    assert ask(loaded, "hello").text == "[hello]"


def damaged(source: Path, target: Path, old: bytes, new: bytes, *, count: int = 1) -> Path:
    data = source.read_bytes()
    assert data.count(old) >= 1 and len(old) == len(new)
    target.write_bytes(data.replace(old, new, count))
    return target


def test_a_renamed_object_is_refused_by_name(
    micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    path = damaged(
        micro_artifacts["dense"], tmp_path / "a.ninfer", b'"text/final_norm"', b'"text/final_mrom"'
    )
    with pytest.raises(InventoryError, match="'text/final_norm' is missing"):
        Engine.load(options_for(path))


def test_two_names_that_changed_places_are_refused(
    micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    """Same shape and format, so only their places tell them apart."""
    first, second = b'"vision/layers/0/norm1/bias"', b'"vision/layers/0/norm2/bias"'
    data = micro_artifacts["dense"].read_bytes()
    data = data.replace(first, b"#" * len(first), 1).replace(second, first, 1)
    (tmp_path / "a.ninfer").write_bytes(data.replace(b"#" * len(first), second, 1))
    with pytest.raises(InventoryError, match="norm2/bias' stands where 'vision/layers/0/norm1"):
        Engine.load(options_for(tmp_path / "a.ninfer"))


def test_another_model_id_is_refused(micro_artifacts: dict[str, Path], tmp_path: Path) -> None:
    path = damaged(
        micro_artifacts["dense"], tmp_path / "a.ninfer", b"qwen3.6-27b-micro", b"qwen3.6-28b-micro"
    )
    with pytest.raises(ConfigError, match="the file is damaged or mixed"):
        Engine.load(options_for(path))


def test_a_changed_text_resource_is_refused(
    micro_artifacts: dict[str, Path], tmp_path: Path
) -> None:
    path = damaged(
        micro_artifacts["dense"],
        tmp_path / "a.ninfer",
        b"add_generation_prompt",
        b"Add_generation_prompt",
    )
    with pytest.raises(InventoryError, match=r"frontend/chat_template\.jinja has SHA-256"):
        Engine.load(options_for(path))


def test_a_draft_id_twice_is_refused(micro_artifacts: dict[str, Path], tmp_path: Path) -> None:
    with open_artifact(micro_artifacts["dense"]) as artifact:
        entry = artifact.entry("text/draft_head_token_ids")
        start = artifact.payload_offset + entry.offset
    data = bytearray(micro_artifacts["dense"].read_bytes())
    data[start : start + 4] = data[start + 4 : start + 8]
    (tmp_path / "a.ninfer").write_bytes(data)
    with pytest.raises(PayloadError, match="proposal/token_ids holds an id twice"):
        Engine.load(options_for(tmp_path / "a.ninfer"))


def with_words(source: Path, target: Path, name: str, at: int, words: bytes) -> Path:
    """A copy of the file with these bytes inside one object; a negative offset is from its end."""
    with open_artifact(source) as artifact:
        entry = artifact.entry(name)
        start = artifact.payload_offset + entry.offset + (at if at >= 0 else entry.bytes + at)
    data = bytearray(source.read_bytes())
    data[start : start + len(words)] = words
    target.write_bytes(data)
    return target


@pytest.mark.parametrize("weights", ["packed", "decoded"])
@pytest.mark.parametrize(
    ("name", "at", "words", "message"),
    [
        ("text/token_embedding", -2, b"\x00\x7e", "text/token_embedding: .*nan"),
        ("text/layers/0/mlp/gate_up", -2, b"\x00\xbc", "text/layers/0/mlp/gate_up: .*-1"),
        ("text/output_head", -2, b"\x00\x7c", "text/output_head: .*inf"),
        ("text/final_norm", 4, b"\xc0\x7f", r"text/final_norm: value \[2\] is nan, not finite"),
        ("text/layers/1/gdn/a_log", 4, b"\x00\x00\x80\xff", r"a_log: value \[1\] is -inf"),
    ],
)
def test_a_number_that_no_writer_makes_is_refused_before_it_is_used(
    micro_artifacts: dict[str, Path],
    tmp_path: Path,
    weights: str,
    name: str,
    at: int,
    words: bytes,
    message: str,
) -> None:
    path = with_words(micro_artifacts["dense"], tmp_path / "a.ninfer", name, at, words)
    with pytest.raises(PayloadError, match=message):
        Engine.load(options_for(path, weights=weights))


def test_progress_ends_at_all_bytes(micro_artifacts: dict[str, Path]) -> None:
    seen: list[tuple[str, int, int]] = []
    Engine.load(
        options_for(micro_artifacts["moe"]),
        lambda name, done, all_: seen.append((name, done, all_)),
    )
    assert seen[-1][1] == seen[-1][2] > 1_000_000
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_the_configuration_must_be_json(micro_artifacts: dict[str, Path], tmp_path: Path) -> None:
    path = damaged(
        micro_artifacts["dense"],
        tmp_path / "a.ninfer",
        json.dumps({"model_id": 0}, indent=2)[:16].encode(),
        b"[" + json.dumps({"model_id": 0}, indent=2)[1:16].encode(),
    )
    with pytest.raises(ConfigError, match=r"model/config\.json: not JSON"):
        Engine.load(options_for(path))


def test_a_deadline_that_has_passed_gives_an_empty_answer(engine: Engine) -> None:
    """The time of arrival counts, so that slow preparation is part of it."""
    late = engine.generate(
        ask(engine, "hi"), replace(GREEDY, deadline_ms=50), arrived=time.monotonic() - 1
    )
    (result,) = late
    assert isinstance(result, GenerationResult)
    assert (result.finish_reason, result.token_ids) == (FinishReason.DEADLINE, ())
    engine.check()
    assert not engine.has_work


def test_who_gets_no_place_in_time_gets_an_error(engine: Engine) -> None:
    waits = engine.generate(ask(engine, "hi"), GREEDY, arrived=time.monotonic() - 31)
    with pytest.raises(QueueTimeoutError, match=r"within 30000 ms .* --pending-timeout-ms"):
        next(waits)
    assert not engine.has_work
