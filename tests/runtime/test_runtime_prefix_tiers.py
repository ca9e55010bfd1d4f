"""Host memory and disk behind the prefix cache of a running model: same tokens, no waiting."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_runtime_batching import BASE, PENALISED
from test_runtime_conversations import words
from test_runtime_generation import load

from ninfer.request import PrefixMiss, SamplingParams
from ninfer.runtime import Runtime, Sequence, SequenceRequest, Status
from ninfer.runtime.prefix_match import PrefixStats
from ninfer.runtime.prefix_reuse import PrefixOptions
from ninfer.runtime.prefix_store import DiskTier

MakeRuntime = Callable[..., Runtime]
PREFIX = PrefixOptions(state_bytes=64 << 20, salt=b"test")
LARGE = 1 << 30
DEADLINE = 60.0


def maker(path: Path) -> MakeRuntime:
    weights, config = load(path)

    def make(*, prefix: PrefixOptions | None = PREFIX, **changes: object) -> Runtime:
        return Runtime(weights, config, replace(BASE, **changes), prefix=prefix)

    return make


@pytest.fixture(scope="module")
def runtime_of(micro_artifacts: dict[str, Path]) -> MakeRuntime:
    return maker(micro_artifacts["dense"])


@pytest.fixture(scope="module", params=["dense", "moe"])
def either_of(request: pytest.FixtureRequest, micro_artifacts: dict[str, Path]) -> MakeRuntime:
    return maker(micro_artifacts[request.param])


def on_disk(folder: Path, **changes: object) -> PrefixOptions:
    return replace(PREFIX, folder=folder, disk_bytes=LARGE, **changes)


def answer(runtime: Runtime, request: SequenceRequest) -> tuple[list[int], Sequence]:
    sequence = runtime.submit(request)
    end = time.monotonic() + DEADLINE
    while runtime.has_work:
        assert time.monotonic() < end
        runtime.step()
        runtime.check()
    return sequence.tokens[sequence.prompt_length :], sequence


def stats_of(runtime: Runtime) -> PrefixStats:
    assert runtime.prefixes is not None
    return runtime.prefixes.stats


def close(runtime: Runtime) -> None:
    assert runtime.prefixes is not None
    runtime.prefixes.close()


def requests_of(count: int, seed: int) -> list[SequenceRequest]:
    draw = random.Random(seed)
    return [
        SequenceRequest(words(draw, draw.randint(200, 330)), replace(PENALISED, seed=i), 12)
        for i in range(count)
    ]


@pytest.mark.parametrize("kind", ["host", "disk", "both"])
def test_evicted_prefixes_come_back_and_change_no_token(
    either_of: MakeRuntime, tmp_path: Path, kind: str
) -> None:
    """Pages for one prompt and a half: every second visit finds the prefix in a lower tier."""
    prefix = {
        "host": replace(PREFIX, host_bytes=LARGE),
        "disk": on_disk(tmp_path),
        "both": on_disk(tmp_path, host_bytes=1 << 20),
    }[kind]
    requests = requests_of(5, 1)
    cold = either_of(prefix=None)
    expected = [answer(cold, request)[0] for request in requests]
    runtime = either_of(prefix=prefix, pages=10, state_slots=1)
    for visit in range(2):
        for request, tokens in zip(requests, expected, strict=True):
            found, sequence = answer(runtime, request)
            assert found == tokens
            cached = (len(request.prompt) - 1) // 64 * 64 if visit else 0
            assert sequence.match.length == cached
            assert sequence.match.miss == (None if visit else PrefixMiss("no_match"))
    assert stats_of(runtime).restored >= 4
    assert stats_of(runtime).failed_writes == stats_of(runtime).unstored == 0
    assert runtime.prefixes.transferred_bytes > 0
    if (held := runtime.prefixes.host) is not None:
        assert 0 < held.bytes <= held.peak_bytes <= held.capacity


@pytest.mark.parametrize("host", [0, LARGE])
def test_an_orderly_end_keeps_everything(
    runtime_of: MakeRuntime, tmp_path: Path, host: int
) -> None:
    """Entries on the device and in host memory alike: none is lost by a restart."""
    requests = requests_of(6, 2)
    first = runtime_of(prefix=on_disk(tmp_path, host_bytes=host), pages=20)
    expected = [answer(first, request)[0] for request in requests]
    close(first)
    second = runtime_of(prefix=on_disk(tmp_path))
    for request, tokens in zip(requests, expected, strict=True):
        found, sequence = answer(second, request)
        assert found == tokens
        assert sequence.match.length == (len(request.prompt) - 1) // 64 * 64
    assert stats_of(second).restored == 6


def test_idle_times_store_what_a_killed_process_would_lose(
    runtime_of: MakeRuntime, tmp_path: Path
) -> None:
    requests = requests_of(3, 3)
    first = runtime_of(prefix=on_disk(tmp_path))
    expected = [answer(first, request)[0] for request in requests]
    assert first.prefixes is not None
    end = time.monotonic() + DEADLINE
    while (pause := first.prefixes.tidy()) is not None:
        assert time.monotonic() < end
        time.sleep(pause)
    # Never closed: a second process sees what a kill would have left.
    second = runtime_of(prefix=on_disk(tmp_path))
    for request, tokens in zip(requests, expected, strict=True):
        found, sequence = answer(second, request)
        assert (found, sequence.match.length > 0) == (tokens, True)


@pytest.mark.parametrize("change", ["flip", "cut", "foreign", "empty"])
def test_d13_a_bad_record_is_a_miss_with_its_reason(
    runtime_of: MakeRuntime, tmp_path: Path, change: str
) -> None:
    request, other = requests_of(2, 4)
    first = runtime_of(prefix=on_disk(tmp_path / "a"))
    expected, _ = answer(first, request)
    close(first)
    stranger = runtime_of(prefix=on_disk(tmp_path / "b"))
    answer(stranger, other)
    close(stranger)
    longest = max((tmp_path / "a").glob("*.prefix"), key=lambda path: path.stat().st_size)
    foreign = max((tmp_path / "b").glob("*.prefix"), key=lambda path: path.stat().st_size)
    data = bytearray(longest.read_bytes())
    data[len(data) // 2] ^= 1
    longest.write_bytes(
        {
            "flip": bytes(data),
            "cut": bytes(data[:-1000]),
            "foreign": foreign.read_bytes(),
            "empty": b"",
        }[change]
    )
    second = runtime_of(prefix=on_disk(tmp_path / "a"))
    found, sequence = answer(second, request)
    assert found == expected
    assert sequence.match.length == 0
    assert sequence.match.miss == PrefixMiss("stored_entry_damaged")
    assert not longest.exists()


def test_another_salt_or_layout_finds_nothing(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    (request,) = requests_of(1, 5)
    first = runtime_of(prefix=on_disk(tmp_path))
    answer(first, request)
    close(first)
    for other in (
        runtime_of(prefix=on_disk(tmp_path, salt=b"another artifact")),
        runtime_of(prefix=on_disk(tmp_path), kv_format="int8"),
    ):
        _, sequence = answer(other, request)
        assert sequence.match.length == 0
        assert sequence.match.miss in (
            PrefixMiss("no_match"),
            PrefixMiss("stored_layout_changed"),
        )


class SlowDisk:
    """Reads of `DiskTier` that wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        read = DiskTier.get

        def slowly(tier: DiskTier, *arguments: object) -> object:
            self.started.set()
            assert self.go.wait(DEADLINE)
            return read(tier, *arguments)

        monkeypatch.setattr(DiskTier, "get", slowly)


def test_a_slow_disk_holds_back_only_who_needs_it(
    runtime_of: MakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, other = requests_of(2, 6)
    first = runtime_of(prefix=on_disk(tmp_path))
    expected, _ = answer(first, stored)
    close(first)
    runtime = runtime_of(prefix=on_disk(tmp_path))
    running = runtime.submit(replace(other, max_tokens=200))
    while not running.decodes:
        runtime.step()
    disk = SlowDisk(monkeypatch)
    waiting = runtime.submit(stored)
    before = running.generated
    for _ in range(50):
        runtime.step()
    assert disk.started.wait(DEADLINE)
    assert running.generated >= before + 50
    assert waiting.status is Status.WAITING
    disk.go.set()
    while runtime.has_work:
        runtime.step()
    assert waiting.tokens[waiting.prompt_length :] == expected
    assert waiting.match.length > 0


def test_j1_a_request_that_ends_while_its_prefix_is_read_holds_nothing(
    runtime_of: MakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J1: materialising a stored prefix is a state in which a client may leave."""
    (request,) = requests_of(1, 7)
    first = runtime_of(prefix=on_disk(tmp_path))
    expected, _ = answer(first, request)
    close(first)
    runtime = runtime_of(prefix=on_disk(tmp_path), state_slots=1)
    disk = SlowDisk(monkeypatch)
    sequence = runtime.submit(request)
    start = time.monotonic()
    while not disk.started.is_set():
        runtime.step()
    assert runtime.step() == [] and time.monotonic() - start < DEADLINE
    runtime.cancel(sequence)
    runtime.check()
    assert not runtime.has_work
    assert runtime.pages.free_count == runtime.pages.capacity
    assert runtime.slots.free_count == 1
    assert runtime.prefixes is not None and not runtime.prefixes._wanted
    disk.go.set()
    assert answer(runtime, request)[0] == expected


def test_one_step_copies_no_more_than_it_may(runtime_of: MakeRuntime, tmp_path: Path) -> None:
    """What there is no time for is dropped and counted; no request fails for it."""
    requests = requests_of(3, 8)
    expected = [answer(runtime_of(prefix=None), request)[0] for request in requests]
    host = replace(PREFIX, host_bytes=LARGE, step_bytes=1000)
    runtime = runtime_of(prefix=host, pages=10, state_slots=1)
    for request, tokens in zip(requests * 2, expected * 2, strict=True):
        assert answer(runtime, request)[0] == tokens
    assert stats_of(runtime).stored == stats_of(runtime).restored == 0
    assert stats_of(runtime).unstored >= 5


def test_a_disk_slower_than_evictions_refuses_and_counts(
    runtime_of: MakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    write = DiskTier.put

    def slowly(tier: DiskTier, record: object) -> bool:
        assert go.wait(DEADLINE)
        return write(tier, record)

    monkeypatch.setattr(DiskTier, "put", slowly)
    monkeypatch.setattr("ninfer.runtime.prefix_reuse.QUEUE_BYTES", 1)
    runtime = runtime_of(prefix=on_disk(tmp_path), pages=10, state_slots=1)
    requests = requests_of(5, 9)
    for request in requests:
        answer(runtime, request)
    refused = stats_of(runtime).failed_writes
    go.set()
    assert refused >= 2
    close(runtime)
    # The one that waited is there, and what was still on the device at the end.
    again = runtime_of(prefix=on_disk(tmp_path))
    lengths = [answer(again, request)[1].match.length for request in requests]
    assert 2 <= sum(length > 0 for length in lengths) <= len(lengths) - 2


def test_random_histories_over_all_tiers_give_the_tokens_of_cold_runs(
    either_of: MakeRuntime, tmp_path: Path
) -> None:
    """Companies, cancellations, restarts, tiny tiers: tokens depend on the request alone."""
    draw = random.Random(11)
    heads = [words(draw, 200) for _ in range(3)]
    requests = [
        SequenceRequest(
            draw.choice(heads)[: draw.randint(100, 200)] + words(draw, draw.randint(1, 150)),
            SamplingParams(temperature=1.0, seed=index),
            draw.randint(2, 20),
        )
        for index in range(20)
    ]
    cold = either_of(prefix=None)
    expected = [answer(cold, request)[0] for request in requests]

    def fresh() -> Runtime:
        prefix = replace(PREFIX, host_bytes=3 << 20, folder=tmp_path, disk_bytes=20 << 20)
        return either_of(prefix=prefix, pages=16, state_slots=3)

    runtime, restored = fresh(), 0
    for _ in range(8):
        picks = [draw.randrange(len(requests)) for _ in range(draw.randint(1, 5))]
        sequences = [(pick, runtime.submit(requests[pick])) for pick in picks]
        while runtime.has_work:
            runtime.step()
            runtime.check()
            if draw.random() < 0.02:
                runtime.cancel(draw.choice(sequences)[1])
        for pick, sequence in sequences:
            tokens = sequence.tokens[sequence.prompt_length :]
            assert tokens == expected[pick][: len(tokens)]
            assert sequence.finish == "cancelled" or len(tokens) == requests[pick].max_tokens
        if draw.random() < 0.4:
            restored += stats_of(runtime).restored
            close(runtime)
            runtime = fresh()
    assert restored + stats_of(runtime).restored > 2


def test_what_a_preempted_request_finds_of_itself_is_not_reported(runtime_of: MakeRuntime) -> None:
    """Cached tokens are those of earlier requests: the same request alone reports the same."""
    requests = [replace(request, max_tokens=100) for request in requests_of(3, 10)]
    runtime = runtime_of(prefix=replace(PREFIX, host_bytes=LARGE), pages=14, state_slots=3)
    sequences = [runtime.submit(request) for request in requests]
    while runtime.has_work:
        runtime.step()
        runtime.check()
    preempted = [sequence for sequence in sequences if sequence.preemptions]
    assert preempted
    for sequence in preempted:
        assert (sequence.match.length, sequence.match.miss) == (0, PrefixMiss("no_match"))
    assert stats_of(runtime).hits > 0, "none of them found its own prompt again"


def test_a_group_reads_its_prefix_from_the_disk_once(
    runtime_of: MakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one waits for the disk and computes the rest; the others take that over."""
    request = requests_of(1, 21)[0]
    group = [replace(request, sampling=replace(PENALISED, seed=seed)) for seed in range(4)]
    cold = runtime_of(prefix=None)
    expected = [answer(cold, one)[0] for one in group]
    first = runtime_of(prefix=on_disk(tmp_path))
    answer(first, request)
    close(first)
    runtime = runtime_of(prefix=on_disk(tmp_path), state_slots=2)
    searched: list[Sequence] = []
    assert runtime.prefixes is not None
    original = runtime.prefixes.is_ready

    def is_ready(sequence: Sequence) -> bool:
        searched.append(sequence)
        return original(sequence)

    monkeypatch.setattr(runtime.prefixes, "is_ready", is_ready)
    sequences = runtime.submit_many(group)
    end = time.monotonic() + DEADLINE
    while runtime.has_work:
        assert time.monotonic() < end
        runtime.step()
        runtime.check()
    assert [s.tokens[s.prompt_length :] for s in sequences] == expected
    assert set(searched) == {sequences[0]} and not runtime.prefixes.wanted
    assert {s.match.length for s in sequences} == {(len(request.prompt) - 1) // 64 * 64}
