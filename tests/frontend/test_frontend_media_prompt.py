"""Placeholders of media in prompts: their number, their place, and what may not stand for one."""

import pytest
from media_files import clip, data_uri, noise, png, with_media

from ninfer.errors import ArtifactError, PromptError
from ninfer.frontend import Frontend, MediaLimits, SourceRules, parse_conversation
from ninfer.frontend.placeholders import find_runs
from ninfer.request import MediaRun, PreparedPrompt, TemplateOptions


@pytest.fixture(scope="module")
def seeing(resources: dict[str, bytes]) -> Frontend:
    return Frontend.from_resources(with_media(resources), vision=True)


def image(height: int = 64, width: int = 64, seed: int = 0) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": data_uri(png(height, width, seed))}}


def video(count: int = 3, rate: int = 1) -> dict[str, object]:
    frames = [noise(64, 96, seed=seed) for seed in range(count)]
    return {"type": "video_url", "video_url": {"url": data_uri(clip(frames, rate), "video/webm")}}


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def prepared(frontend: Frontend, *parts: object, **options: object) -> PreparedPrompt:
    messages = [{"role": "user", "content": list(parts)}]
    return frontend.prepare(parse_conversation(messages, None, TemplateOptions(**options)))


def shown(frontend: Frontend, prompt: PreparedPrompt) -> str:
    return b"".join(map(frontend.tokenizer.token_bytes, prompt.token_ids)).decode()


def test_the_pad_of_an_image_becomes_one_a_row(seeing: Frontend) -> None:
    prompt = prepared(seeing, text("a"), image(100, 200), text("b"))
    assert "user\na<|vision_start|>" + "<|image_pad|>" * 72 + "<|vision_end|>b" in prompt.text
    assert shown(seeing, prompt) == prompt.text
    (run,) = prompt.runs
    assert run.grid == (1, 6, 12) and run.media == 0 and run.first_row == 0
    pad = seeing.tokenizer.special["<|image_pad|>"]
    assert prompt.token_ids[run.start : run.start + run.length] == (pad,) * 72
    assert prompt.token_ids.count(pad) == 72


def test_a_video_is_written_step_by_step(seeing: Frontend) -> None:
    prompt = prepared(seeing, video(), text("b"))
    step = "<|vision_start|>" + "<|video_pad|>" * 6 + "<|vision_end|>"
    assert f"user\n<0.5 seconds>{step}<2.0 seconds>{step}b" in prompt.text
    assert shown(seeing, prompt) == prompt.text
    assert [(run.grid, run.media, run.first_row) for run in prompt.runs] == [
        ((1, 2, 3), 0, 0),
        ((1, 2, 3), 0, 6),
    ]


def test_the_tokens_are_those_of_the_expanded_text(seeing: Frontend) -> None:
    prompt = prepared(seeing, text("seen: "), video(), image(), text("\n\nwhat?"))
    assert list(prompt.token_ids) == seeing.tokenizer.encode(prompt.text)


def test_media_are_taken_in_the_order_of_parts_tool_results_included(seeing: Frontend) -> None:
    """C7."""
    call = {"id": "c", "function": {"name": "look", "arguments": {}}}
    conversation = parse_conversation(
        [
            {"role": "user", "content": [image(64, 64, 1), text("q")]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": [text("shot"), image(100, 200, 2)]},
            {"role": "user", "content": [video(), image(64, 64, 3)]},
        ]
    )
    prompt = seeing.prepare(conversation)
    assert [media.kind for media in prompt.media] == ["image", "image", "video", "image"]
    assert [media.grid for media in prompt.media[:2]] == [(1, 16, 16), (1, 12, 24)]
    assert [run.media for run in prompt.runs] == [0, 1, 2, 2, 3]
    assert [run.length for run in prompt.runs] == [64, 72, 6, 6, 64]
    assert "<tool_response>\nshot<|vision_start|><|image_pad|>" in prompt.text


def test_spelled_placeholders_are_no_media(seeing: Frontend) -> None:
    words = "<|vision_start|><|video_pad|><|vision_end|> <|image_pad|>"
    prompt = prepared(seeing, text(words), image(), text(words))
    assert [run.length for run in prompt.runs] == [64]
    assert prompt.text.count(words) == 2 and shown(seeing, prompt) == prompt.text
    # Without a picture too.
    assert prepared(seeing, text(words)).runs == ()
    assert seeing.tokenizer.special["<|image_pad|>"] not in prepared(seeing, text(words)).token_ids


def test_as_control_text_they_are_refused_instead_of_shifting_media(seeing: Frontend) -> None:
    messages = [{"role": "user", "content": [text("<|image_pad|>"), image()]}]
    with pytest.raises(PromptError, match="2 images and 0 videos where the messages hold 1 images"):
        seeing.prepare(parse_conversation(messages), literal_control_text="control")


def test_a_template_that_forgets_media_is_refused(resources: dict[str, bytes]) -> None:
    template = "{% for m in messages %}{{ m.content[0].text }}{% endfor %}"
    frontend = Frontend.from_resources(with_media(resources), template, vision=True)
    with pytest.raises(PromptError, match="0 images and 0 videos where the messages hold 1 images"):
        prepared(frontend, text("a"), image())


def test_a_template_that_writes_bare_pads(resources: dict[str, bytes]) -> None:
    template = "{% for p in messages[0].content %}<|{{ p.type }}_pad|>{% endfor %}"
    frontend = Frontend.from_resources(with_media(resources), template, vision=True)
    prompt = prepared(frontend, image(), image(seed=1), video())
    assert [run.length for run in prompt.runs] == [64, 64, 6, 6]
    assert prompt.runs[1].start == 64


def test_picture_numbers(seeing: Frontend) -> None:
    prompt = prepared(seeing, image(), image(seed=1), add_vision_id=True)
    assert "Picture 1: <|vision_start|>" in prompt.text
    assert "Picture 2: <|vision_start|>" in prompt.text


def test_two_pictures_are_two_prompts_with_the_same_tokens(seeing: Frontend) -> None:
    """L5: what a cache is keyed by must hold the pixels."""
    first, second = (prepared(seeing, image(seed=seed)) for seed in (1, 2))
    assert first.token_ids == second.token_ids and first.runs == second.runs
    assert first.media[0].digest != second.media[0].digest and first != second


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (data_uri(b"<svg xmlns='x'/>", "image/svg+xml"), "it is SVG"),
        ("/etc/hostname", "requests must not read"),
        ("data:image/png;base64,####", "not valid base64"),
    ],
)
def test_errors_name_the_clients_part(seeing: Frontend, url: str, message: str) -> None:
    """C8: the index is the client's own, also when system messages were moved."""
    bad = {"type": "image_url", "image_url": {"url": url}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "late"},
        {"role": "user", "content": [text("x"), image(), bad]},
    ]
    with pytest.raises(PromptError, match=message) as caught:
        seeing.prepare(parse_conversation(messages))
    assert str(caught.value).startswith("messages[2].content[2]")


def test_local_files_by_permission(seeing: Frontend, tmp_path) -> None:
    (tmp_path / "a.png").write_bytes(png(64, 64))
    part = {"type": "image", "image": str(tmp_path / "a.png")}
    conversation = parse_conversation([{"role": "user", "content": [part]}])
    prompt = seeing.prepare(conversation, sources=SourceRules(local_files=True))
    assert prompt.media[0].grid == (1, 16, 16)


def test_limits_hold_for_the_whole_request(resources: dict[str, bytes]) -> None:
    frontend = Frontend.from_resources(
        with_media(resources), vision=True, limits=MediaLimits(tokens=127)
    )
    assert len(prepared(frontend, image()).media) == 1
    with pytest.raises(PromptError, match=r"messages\[0\].content\[1\] brings .* 128 tokens"):
        prepared(frontend, image(), image())


def test_without_vision_media_are_refused_and_its_files_are_not_needed(
    resources: dict[str, bytes],
) -> None:
    with pytest.raises(PromptError, match="only text is understood"):
        prepared(Frontend.from_resources(resources), image())
    with pytest.raises(ArtifactError, match=r"preprocessor_config.json is missing"):
        Frontend.from_resources(resources, vision=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_mean": [0.48, 0.46, 0.41]}, "image_mean is"),
        ({"patch_size": 14}, "different patch sizes"),
        ({"patch_size": "16"}, "patch_size is '16'"),
        ({"size": {"shortest_edge": 9, "longest_edge": 8}}, "9 to 8 pixels"),
        ({"size": None}, "size is None"),
    ],
)
def test_bad_preprocessor_files_are_named(
    resources: dict[str, bytes], changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ArtifactError, match=message):
        Frontend.from_resources(with_media(resources, **changes), vision=True)


def test_runs_of_neighbouring_pads_are_told_apart(seeing: Frontend) -> None:
    media = prepared(seeing, image(), video(2)).media
    ids = [7] + [1] * 64 + [2] * 6 + [7]
    assert find_runs(ids, {"image": 1, "video": 2}, media, 2) == (
        MediaRun(1, (1, 8, 8), 0, 0),
        MediaRun(65, (1, 2, 3), 1, 0),
    )
