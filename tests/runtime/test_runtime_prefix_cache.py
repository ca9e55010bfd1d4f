"""Prefix cache: what is found, why not more, what is dropped first, and that counts add up."""

import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from prefix_scene import SALT, Scene, words

from ninfer.errors import CapacityError
from ninfer.request import Media, MediaRun
from ninfer.runtime import prefix_keys
from ninfer.runtime.prefix_keys import MediaSpan, PrefixKey, media_spans, prefix_salt
from ninfer.runtime.prefix_match import MissReason, PrefixMatch, worth_keeping

PAD = 63


def image(start: int, digest: bytes, length: int = 70) -> MediaSpan:
    return MediaSpan(start, length, 0, (1, 7, length // 7), digest)


def test_d1_seven_borders_of_one_request_are_found_again() -> None:
    scene = Scene(states=2)
    tokens, marks = words(1000, 1), tuple(range(100, 700, 100))
    first = scene.run(tokens, marks=marks)
    assert scene.cache.stats.inserted == 7
    assert scene.cache.stats.refused == 0
    assert (first.length, scene.run(tokens, marks=marks).length) == (0, 960)


def test_d1_a_budget_below_one_state_is_said_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("ninfer"), "propagate", True)
    scene = Scene(states=0)
    assert "prefix reuse is off" in caplog.text
    match = scene.run(words(200, 1))
    assert match.reason is MissReason.DISABLED
    assert not scene.cache.active
    assert scene.cache.stats.refused == 1
    assert scene.pool.free_count == scene.pool.capacity


@pytest.mark.parametrize(("pages", "states"), [(8, 8), (64, 2)], ids=["pages", "states"])
def test_d2_a_used_up_budget_drops_the_old_and_takes_the_new(pages: int, states: int) -> None:
    """Three conversations, of which not all fit, are asked again and again."""
    scene = Scene(page_count=pages, states=states)
    for _ in range(2):
        for seed in (1, 2, 3):
            scene.run(words(300, seed))
            again = scene.run(words(300, seed))
            assert (again.length, again.reason) == (256, None)
    assert scene.cache.stats.refused == 0
    assert scene.cache.stats.dropped_states > 0


@pytest.mark.parametrize("states", [2, 3, 8])
def test_d4_the_restore_point_follows_a_tool_loop(states: int) -> None:
    scene = Scene(page_count=200, states=states)
    tokens = words(500, 1)
    for turn in range(20):
        before = len(tokens)
        tokens = tokens + words(100 + turn, 2)
        scene.run(tokens[:before]) if turn == 0 else None
        match = scene.run(tokens)
        assert match.length >= before - PAD - 1
        assert len(tokens) - match.length <= 100 + turn + PAD + 1


@pytest.mark.parametrize("states", [2, 8])
def test_d5_two_conversations_with_one_head_keep_apart(states: int) -> None:
    """`Scene.start` compares pages and state of each match with those of a cold prefill."""
    scene = Scene(page_count=100, states=states)
    head = words(1024, 1)
    first, second = head + words(200, 2), head + words(200, 3)
    scene.run(first)
    scene.run(second)
    again = scene.run(first + words(200, 4))
    assert again.length == 1216 if states > 2 else again.length >= 1024
    third = scene.run(head + words(100, 5))
    assert third.length == 1024, "the shared head got a border of its own"


def test_d8_reuse_grows_with_every_appended_turn() -> None:
    scene, tokens, reused = Scene(page_count=100), words(300, 1), []
    for _ in range(5):
        reused.append(scene.run(tokens).length)
        tokens = tokens + words(150, 2)
    assert reused == [0, 256, 448, 576, 704]


def test_d10_failed_admissions_give_back_what_a_match_took() -> None:
    scene = Scene(page_count=8)
    running = scene.start(words(300, 1))
    free = scene.pool.free_count
    for _ in range(1000):
        with pytest.raises(CapacityError):
            scene.start(words(300, 1) + words(400, 2))
    assert scene.pool.free_count == free
    scene.check()
    scene.stop(running)
    assert scene.cache.evict(8) == 4
    assert scene.pool.free_count == scene.pool.capacity


def test_l5_equal_text_with_another_picture_is_another_prompt() -> None:
    scene, tokens = Scene(), words(300, 1)
    scene.run(tokens, (image(70, b"cat"),))
    other = scene.run(tokens, (image(70, b"dog"),))
    assert (other.length, str(other.miss)) == (0, "media_changed:70")
    assert scene.run(tokens, (image(70, b"cat"),)).length == 256
    assert scene.run(tokens).length == 64, "the page before the picture is the same"


@pytest.mark.parametrize(
    "span",
    [
        MediaSpan(70, 70, 0, (1, 10, 7), b"cat"),  # grid
        MediaSpan(70, 70, 70, (1, 7, 10), b"cat"),  # rows
        MediaSpan(71, 70, 0, (1, 7, 10), b"cat"),  # place
        MediaSpan(70, 140, 0, (1, 7, 20), b"cat"),  # length
    ],
)
def test_l5_rows_grid_and_place_of_a_picture_count(span: MediaSpan) -> None:
    scene, tokens = Scene(), words(300, 1)
    scene.run(tokens, (image(70, b"cat"),))
    match = scene.run(tokens, (span,))
    assert (match.length, match.reason) == (0, MissReason.MEDIA_CHANGED)


def test_a_picture_inside_the_reused_part_needs_no_vision() -> None:
    scene, tokens = Scene(), words(200, 1)
    spans = (image(10, b"cat"),)
    scene.run(tokens, spans)
    more = (*spans, image(210, b"dog"))
    assert scene.run(tokens + words(200, 2), more).length == 192


def test_spans_of_a_prepared_prompt() -> None:
    media = [Media("image", (1, 4, 4), torch.empty(0).numpy(), digest) for digest in (b"a", b"b")]
    runs = [MediaRun(5, (1, 2, 2), 0, 0), MediaRun(20, (1, 2, 2), 1, 4)]
    assert media_spans(runs, media) == (
        MediaSpan(5, 4, 0, (1, 2, 2), b"a"),
        MediaSpan(20, 4, 4, (1, 2, 2), b"b"),
    )


def test_a_salt_names_its_fields_and_parts_prompts() -> None:
    one, two = (prefix_salt({"kv": kv, "artifact": "a\nb"}) for kv in ("bf16", "int8"))
    assert one == b"artifact='a\\nb'\nkv='bf16'\n"
    scene = Scene(salt=one)
    scene.run(words(300, 1))
    scene.salt = two
    assert scene.run(words(300, 1)).reason is MissReason.SALT_CHANGED
    assert scene.run(words(300, 1)).length == 256


def test_each_miss_has_its_reason() -> None:
    scene = Scene(page_count=200)
    base = words(400, 1)

    def reason(tokens: list[int]) -> str | None:
        match = scene.cache.match(scene.key(tokens))
        scene.pool.free(match.pages)
        return match.miss and str(match.miss)

    assert reason(base) == "no_match"
    scene.run(base)
    assert reason(base) is None
    assert reason(base[:390]) is None
    assert reason(base[:64]) == "too_short"
    assert reason(words(400, 2)) == "no_match"
    assert reason(base + words(400, 2)) == "new_tokens"
    assert reason(base[:300]) == "no_boundary"
    assert reason([*base[:200], 60, *base[201:]]) == "template_changed_at_token:200"
    assert reason([*base[:40], 60, *base[41:]]) == "template_changed_at_token:40"
    scene.cache.evict(1)
    assert reason(base) == "boundary_evicted"
    scene.check()
    assert scene.cache.stats.reasons[MissReason.NO_MATCH] == 3


def test_the_nearest_conversation_says_where_the_difference_is() -> None:
    scene, base = Scene(page_count=100), words(200, 1)
    for at in (3, 50, 20):
        scene.run([*base[:at], 55, *base[at + 1 :]])
    match = scene.cache.match(scene.key(base))
    assert (match.reason, match.token) == (MissReason.TEMPLATE_CHANGED, 50)


def test_a_dropped_inner_state_leaves_its_pages_to_the_later_one() -> None:
    scene, tokens = Scene(states=1), words(500, 1)
    scene.run(tokens, marks=(200,))
    assert scene.cache.page_count == 7
    assert scene.cache.state_bytes == scene.snapshots.snapshot_bytes
    branch = scene.cache.match(scene.key(tokens[:250] + words(100, 2)))
    assert (branch.length, branch.shared) == (0, 192)
    assert branch.reason is MissReason.BOUNDARY_EVICTED
    assert scene.run(tokens).length == 448


def test_what_others_use_outlives_what_nobody_asked_for_again() -> None:
    scene, head = Scene(page_count=400, states=4), words(640, 1)
    for seed in range(2, 5):
        scene.run(head + words(100, seed))
    for seed in range(5, 8):
        scene.run(words(300, seed))
        assert scene.run(head + words(100, seed + 20)).length == 640


def test_what_is_dear_to_compute_outlives_newer_entries_that_are_cheap() -> None:
    scene, dear = Scene(page_count=400, states=3), words(2000, 1)
    scene.run(dear)
    for seed in range(2, 10):
        scene.run(words(100, seed))
    assert scene.run(dear).length == 1984
    assert scene.run(words(100, 2)).reason is MissReason.BOUNDARY_EVICTED


def test_what_is_used_often_outlives_newer_entries_of_one_use() -> None:
    scene, liked = Scene(page_count=400, states=3), words(200, 1)
    for _ in range(12):
        scene.run(liked)
    for seed in range(2, 8):
        scene.run(words(200, seed))
    assert scene.run(liked).length == 192


def test_all_that_is_unused_is_dropped_in_the_end() -> None:
    scene, head = Scene(page_count=400, states=3), words(2000, 1)
    for _ in range(10):
        scene.run(head)
    for seed in range(2, 2000):
        scene.run(words(66, seed))
    assert scene.run(head).reason is MissReason.BOUNDARY_EVICTED


def test_pages_of_running_sequences_stay() -> None:
    scene = Scene(page_count=12)
    running = scene.start(words(300, 1))
    scene.run(words(300, 2))
    assert scene.cache.reclaimable == 4
    assert scene.cache.evict(12) == 4
    scene.check()
    assert scene.cache.match(scene.key(words(300, 1))).length == 256, "and so does its entry"
    scene.pool.free(running.pages[:4])
    scene.stop(running)


def test_an_entry_of_a_running_sequence_makes_way_for_pages_before_it() -> None:
    """Its own first pages were cached already, so the entry stands on pages that nobody holds."""
    scene = Scene(page_count=30, states=8)
    head = words(300, 1)
    scene.run(head)
    # Prefilled the head again, since no state was kept at its end.
    running = scene.start(head[:200] + words(200, 2))
    assert running.match.length == 0
    before = scene.pool.free_count
    reclaimable = scene.cache.reclaimable
    assert reclaimable == 4
    assert scene.cache.evict(reclaimable) == reclaimable
    assert scene.pool.free_count == before + reclaimable
    scene.stop(running)
    assert scene.pool.free_count == scene.pool.capacity - scene.cache.page_count


def test_equal_hashes_are_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_keys, "chain_hash", lambda before, content: bytes(20))
    scene = Scene()
    key = scene.key(words(300, 1))
    pages = scene.pool.allocate(5)
    assert scene.cache.insert(key, 256, pages, scene.state_of(b"a" * 20)) == 4
    other = scene.key(words(300, 2))
    assert scene.cache.match(other).length == 0
    assert scene.cache.insert(other, 256, pages, scene.state_of(b"b" * 20)) == 0
    assert scene.cache.stats.refused == 1
    assert scene.cache.match(key).length == 256


def test_a_longer_key_is_that_of_all_its_tokens() -> None:
    tokens, spans = words(500, 1), (image(30, b"cat"),)
    longer = PrefixKey(tokens[:150], SALT, spans)
    assert longer.chain(2) == PrefixKey(tokens[:128], SALT, spans).chain(2)
    longer = longer.extended(tokens[150:])
    assert len(longer) == 500
    assert longer.chain(7) == PrefixKey(tokens, SALT, spans).chain(7)
    assert (longer.pages, longer.reusable) == (7, 7)
    assert PrefixKey(tokens[:448], SALT).reusable == 6


SMALL_SPANS = st.lists(
    st.builds(
        MediaSpan,
        start=st.integers(0, 150),
        length=st.integers(1, 40),
        row=st.integers(0, 1),
        grid=st.sampled_from([(1, 2, 4), (1, 4, 2)]),
        digest=st.sampled_from([b"a", b"ab"]),
    ),
    max_size=1,
)


@given(
    st.lists(st.integers(0, 1), min_size=192, max_size=192),
    st.integers(0, 192),
    SMALL_SPANS,
    SMALL_SPANS,
)
def test_hashes_agree_exactly_when_tokens_and_media_do(
    tokens: list[int], change: int, one: list[MediaSpan], two: list[MediaSpan]
) -> None:
    other = [token ^ (place == change) for place, token in enumerate(tokens)]
    left, right = PrefixKey(tokens, SALT, one), PrefixKey(other, SALT, two)
    by_token = [_identity(tokens, one, place) for place in range(192)]
    by_other = [_identity(other, two, place) for place in range(192)]
    for pages in range(4):
        same = by_token[: pages * 64] == by_other[: pages * 64]
        assert (left.chain(pages) == right.chain(pages)) == same
    for page in range(3):
        places = range(page * 64, page * 64 + 64)
        expected = next((p - page * 64 for p in places if by_token[p] != by_other[p]), None)
        found = prefix_keys.difference(left.page(page), right.page(page))
        if expected is None:
            assert found is None
        else:
            # A part of media that ends earlier differs from its first token on.
            assert found is not None and found[0] <= expected


def _identity(tokens: list[int], spans: list[MediaSpan], place: int) -> tuple[object, ...]:
    """A token, and which row of which media it stands for."""
    inside = [s for s in spans if s.start <= place < s.start + s.length]
    return tokens[place], *((s.digest, s.grid, s.row + place - s.start) for s in inside)


def test_borders_worth_keeping() -> None:
    nothing = PrefixMatch(reason=None)
    assert worth_keeping(1000, nothing) == (960,)
    assert worth_keeping(960, nothing) == (896, 960)
    assert worth_keeping(1000, nothing, marks=(70, 1000), spacing=400) == (64, 384, 768, 960)
    assert worth_keeping(1000, PrefixMatch(length=960, reason=None)) == ()
    assert worth_keeping(1000, PrefixMatch(length=64, shared=512, reason=None)) == (512, 960)
    assert worth_keeping(50, nothing) == ()


@pytest.mark.parametrize("in_host_memory", [False, True])
def test_snapshots_put_a_slot_back(in_host_memory: bool) -> None:
    scene = Scene(in_host_memory=in_host_memory)
    views = scene.snapshots.views
    for tensor in views.tensors:
        tensor.copy_(torch.randint(-9, 9, tensor.shape))
    before = [t.clone() for t in views.tensors]
    snapshot = scene.snapshots.save(0)
    assert sum(t.numel() * t.element_size() for t in snapshot.tensors) == (
        scene.snapshots.snapshot_bytes
    )
    for tensor in views.tensors:
        tensor.zero_()
    scene.snapshots.restore(snapshot, 0)
    for tensor, expected in zip(views.tensors, before, strict=True):
        assert torch.equal(tensor, expected)


def test_a_state_with_rows_that_wait_is_not_copied() -> None:
    scene = Scene()
    scene.snapshots._pending[0] = 1
    with pytest.raises(AssertionError, match="not committed"):
        scene.snapshots.save(0)
