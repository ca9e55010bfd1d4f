"""Entries in host memory and on disk: round trips, damage, layouts, limits."""

import os
import random
from pathlib import Path

import pytest
import torch
from prefix_scene import Scene, files, record_of, words

from ninfer.errors import UsageError
from ninfer.runtime.prefix_match import MissReason
from ninfer.runtime.prefix_record import Record, encode, encoded_bytes
from ninfer.runtime.prefix_store import DiskTier, HostTier

LARGE = 1 << 30


def stored(folder: Path, length: int = 300, **changes: object) -> Scene:
    """A scene that has written one entry of four pages."""
    scene = Scene(tier=DiskTier(folder, LARGE), **changes)
    scene.run(words(length, 1))
    assert scene.cache.store_all() == 1
    return scene


@pytest.mark.parametrize("kv_format", ["bf16", "fp32", "int8", "fp8", "int4"])
@pytest.mark.parametrize("in_host_memory", [False, True])
def test_an_entry_comes_back_after_a_restart(
    tmp_path: Path, kv_format: str, in_host_memory: bool
) -> None:
    """`Scene.start` compares every page and the state with those of a cold prefill."""
    stored(tmp_path, kv_format=kv_format)
    fresh = Scene(
        tier=DiskTier(tmp_path, LARGE), kv_format=kv_format, in_host_memory=in_host_memory
    )
    match = fresh.run(words(300, 1) + words(100, 2))
    assert (match.length, match.reason) == (256, MissReason.NEW_TOKENS)
    assert fresh.cache.stats.restored == 1


def test_evicted_entries_come_back_by_themselves(tmp_path: Path) -> None:
    scene = Scene(page_count=8, states=2, tier=HostTier(LARGE, DiskTier(tmp_path, LARGE)))
    for _ in range(3):
        for seed in range(1, 6):
            assert scene.run(words(300, seed)).reason in (None, MissReason.NO_MATCH)
    assert scene.cache.stats.restored == 10
    assert scene.cache.stats.reused_tokens == 10 * 256


def test_a_shared_beginning_is_stored_once(tmp_path: Path) -> None:
    scene = Scene(page_count=200, tier=DiskTier(tmp_path, LARGE))
    head = words(640, 1)
    for seed in (2, 3, 4):
        scene.run(head + words(100, seed))
    scene.cache.store_all()
    pages = sum(len(record_of(path, scene).contents) for path in files(tmp_path))
    assert pages == scene.cache.page_count == 10 + 3
    fresh = Scene(page_count=200, tier=DiskTier(tmp_path, LARGE))
    for seed in (3, 2, 4):
        assert fresh.run(head + words(100, seed) + words(50, 9)).length == 704


def test_an_entry_without_its_beginning_is_a_miss_and_goes(tmp_path: Path) -> None:
    scene = Scene(page_count=200, tier=DiskTier(tmp_path, LARGE))
    tokens = words(300, 1)
    scene.run(tokens)
    scene.run(tokens + words(200, 2))
    assert scene.cache.store_all() == 2
    starts = {record_of(path, scene).start: path for path in files(tmp_path)}
    starts[0].unlink()
    fresh = Scene(page_count=200, tier=DiskTier(tmp_path, LARGE))
    match = fresh.cache.match(fresh.key(tokens + words(200, 2)))
    assert (match.length, match.reason) == (0, MissReason.BOUNDARY_EVICTED)
    assert files(tmp_path) == []


def test_an_entry_takes_its_beginning_along(tmp_path: Path) -> None:
    """The head never leaves the first process, and is on disk when that is killed."""
    scene = Scene(page_count=200, states=3, tier=DiskTier(tmp_path, LARGE))
    head = words(320, 1)
    for seed in range(2, 40):
        scene.run(head + words(150, seed))
    assert scene.cache.stats.stored == 36 + 1
    fresh = Scene(page_count=200, tier=DiskTier(tmp_path, LARGE))
    for seed in range(2, 20):
        assert fresh.run(head + words(150, seed)).length == 448


@pytest.mark.parametrize("part", ["frame", "head", "payload", "checksum"])
def test_d13_a_changed_byte_is_a_miss(tmp_path: Path, part: str) -> None:
    scene = stored(tmp_path)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    head = 16 + int.from_bytes(whole[12:16], "little")
    span = {
        "frame": range(16),
        "head": range(16, head),
        "payload": range(head, len(whole) - 32),
        "checksum": range(len(whole) - 32, len(whole)),
    }[part]
    rng = random.Random(part)
    for _ in range(40):
        damaged = bytearray(whole)
        damaged[rng.choice(span)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        fresh = Scene(tier=DiskTier(tmp_path, LARGE))
        match = fresh.cache.match(scene.key(words(300, 1)))
        assert (match.length, match.reason) == (0, MissReason.STORED_DAMAGED)
        assert not path.exists()


def test_d13_a_file_that_is_cut_or_longer_is_a_miss(tmp_path: Path) -> None:
    scene = stored(tmp_path)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for data in (b"", whole[:10], whole[:40], whole[:-1], whole[:-32], whole + b"\0", whole * 2):
        path.write_bytes(data)
        fresh = Scene(tier=DiskTier(tmp_path, LARGE))
        assert fresh.cache.match(scene.key(words(300, 1))).reason is MissReason.STORED_DAMAGED


@pytest.mark.parametrize(
    "changes", [{"layers": 8}, {"layers": 3}, {"kv_format": "int8"}], ids=["more", "fewer", "kv"]
)
def test_d13_another_layout_is_a_miss(tmp_path: Path, changes: dict[str, object]) -> None:
    """The salt is the same: only the layout in the file says that states or formats differ."""
    scene = stored(tmp_path)
    other = Scene(tier=DiskTier(tmp_path, LARGE), **changes)
    match = other.cache.match(scene.key(words(300, 1)))
    assert (match.length, match.reason) == (0, MissReason.STORED_CHANGED)
    assert other.pool.free_count == other.pool.capacity


def test_d13_every_state_tensor_is_in_the_file(tmp_path: Path) -> None:
    scene = stored(tmp_path)
    record = record_of(files(tmp_path)[0], scene)
    assert len(record.state) == 2 * 3
    assert sum(t.numel() * t.element_size() for t in record.state) == (
        scene.snapshots.snapshot_bytes
    )
    for layer in range(3):
        assert f"state.{layer}.conv bfloat16 3x16\n" in record.layout
        assert f"state.{layer}.delta float32 2x4x4\n" in record.layout


def test_another_salt_finds_nothing(tmp_path: Path) -> None:
    stored(tmp_path)
    other = Scene(tier=DiskTier(tmp_path, LARGE), salt=b"artifact='b'\n")
    assert other.run(words(300, 1)).reason is MissReason.NO_MATCH
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("field", ["salt", "contents", "before", "start"])
def test_a_file_that_says_something_else_than_its_name_is_a_miss(
    tmp_path: Path, field: str
) -> None:
    """Whole, with a right checksum, but of another prompt: equal hashes are no proof."""
    scene = stored(tmp_path)
    (path,) = files(tmp_path)
    record = record_of(path, scene)
    other = {
        "salt": b"other",
        "contents": tuple(scene.key(words(300, 2)).page(i) for i in range(4)),
        "before": bytes(20),
        "start": 1,
    }[field]
    values = {name: getattr(record, name) for name in Record.__slots__} | {field: other}
    path.write_bytes(b"".join(encode(Record(**values))))
    fresh = Scene(tier=DiskTier(tmp_path, LARGE))
    match = fresh.cache.match(scene.key(words(300, 1)))
    assert match.length == 0
    assert match.reason in (MissReason.STORED_CHANGED, MissReason.STORED_DAMAGED)


def test_the_length_of_a_file_is_known_before_it_is_written(tmp_path: Path) -> None:
    scene = stored(tmp_path)
    (path,) = files(tmp_path)
    assert encoded_bytes(record_of(path, scene)) == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_stays_below_its_limit_and_drops_what_is_oldest(tmp_path: Path) -> None:
    size = _file_size(tmp_path / "one")
    folder = tmp_path / "many"
    scene = Scene(page_count=200, tier=DiskTier(folder, 3 * size))
    for seed in range(1, 7):
        scene.run(words(300, seed))
        scene.cache.evict(4)
        assert sum(path.stat().st_size for path in files(folder)) <= 3 * size
    assert len(files(folder)) == 3
    fresh = Scene(tier=DiskTier(folder, 3 * size))
    assert fresh.run(words(300, 4)).length == 256, "reading makes it the newest"
    scene.run(words(300, 7))
    scene.cache.evict(4)
    fresh = Scene(tier=DiskTier(folder, 3 * size))
    lengths = [fresh.run(words(300, seed)).length for seed in range(3, 8)]
    assert lengths == [0, 256, 0, 256, 256]


def test_a_beginning_outlasts_what_continues_it(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 12 * _file_size(tmp_path / "one"))
    scene = Scene(page_count=200, states=3, tier=tier)
    head = words(640, 1)
    for seed in range(2, 60):
        scene.run(head + words(300, seed))
    fresh = Scene(page_count=200, tier=tier)
    assert fresh.run(head + words(300, 70)).length == 640
    assert fresh.run(head + words(300, 50)).length == 896
    assert fresh.run(head + words(300, 2)).length == 640


def test_an_entry_above_the_limit_is_not_written(tmp_path: Path) -> None:
    scene = Scene(tier=DiskTier(tmp_path, 1000))
    scene.run(words(300, 1))
    assert scene.cache.store_all() == 0
    assert list(tmp_path.iterdir()) == []


def test_host_memory_overflows_to_disk(tmp_path: Path) -> None:
    size = _file_size(tmp_path / "one")
    folder = tmp_path / "disk"
    host = HostTier(2 * size, DiskTier(folder, LARGE))
    scene = Scene(page_count=200, tier=host)
    for seed in range(1, 6):
        scene.run(words(300, seed))
        scene.cache.evict(4)
    assert host.bytes <= 2 * size
    assert len(files(folder)) == 3
    for seed in range(1, 6):
        assert scene.run(words(300, seed)).length == 256


def test_processes_share_a_folder(tmp_path: Path) -> None:
    one = Scene(tier=DiskTier(tmp_path, LARGE))
    two = Scene(tier=DiskTier(tmp_path, LARGE))
    one.run(words(300, 1))
    one.cache.store_all()
    assert two.run(words(300, 1)).length == 256
    assert two.cache.store_all() == 0, "the other one has written it"
    files(tmp_path)[0].unlink()
    two.cache.clear()
    assert two.run(words(300, 1)).length == 0


def test_without_free_pages_an_entry_stays_where_it_is(tmp_path: Path) -> None:
    stored(tmp_path)
    scene = Scene(page_count=6, tier=DiskTier(tmp_path, LARGE))
    running = scene.start(words(200, 2))
    match = scene.cache.match(scene.key(words(300, 1)))
    assert (match.length, match.reason) == (0, MissReason.NO_ROOM)
    scene.stop(running)
    assert scene.cache.match(scene.key(words(300, 1))).length == 256


def test_a_restore_spares_the_pages_that_it_continues() -> None:
    """The entry that holds them is worth least, and the restore needs a page."""
    scene = Scene(page_count=12, tier=HostTier(LARGE))
    head = words(256, 1)
    scene.run(head + words(300, 2))
    scene.cache.store_all()
    scene.cache.clear()
    scene.run(head + words(70, 3))
    scene.run(words(300, 4))
    assert (scene.cache.page_count, scene.pool.free_count) == (9, 3)
    match = scene.cache.match(scene.key(head + words(300, 2)))
    assert match.length == 512
    assert scene.cache.page_count == 9
    scene.pool.free(match.pages)
    scene.check()


def test_a_disk_that_refuses_is_counted_and_costs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    tier = DiskTier(folder, LARGE)
    scene = Scene(tier=tier)
    scene.run(words(300, 1))
    folder.rmdir()
    assert scene.cache.store_all() == 0
    assert tier.failures == 1
    assert scene.run(words(300, 1)).length == 256


def test_a_name_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot hold the prefix cache: File exists"):
        DiskTier(tmp_path / "file", LARGE)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "cache"
    scene = stored(folder)
    (path,) = files(folder)
    path.rename(tmp_path / "elsewhere")
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    fresh = Scene(tier=DiskTier(folder, LARGE))
    assert fresh.cache.match(scene.key(words(300, 1))).reason is MissReason.STORED_DAMAGED


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_with_small_tiers_never_give_wrong_pages(
    tmp_path: Path, seed: int
) -> None:
    """Host and disk overflow, processes restart, bytes flip; every match is still right."""
    rng = random.Random(seed)
    size = _file_size(tmp_path / "one")
    folder = tmp_path / "disk"

    def scene_of() -> Scene:
        tier = HostTier(2 * size, DiskTier(folder, 8 * size))
        return Scene(page_count=24, states=3, tier=tier)

    scene, prompts, restored = scene_of(), [words(100, 1)], 0
    for _ in range(80):
        base = rng.choice(prompts[-4:])
        cut = len(base) if rng.random() < 0.5 else rng.randrange(len(base) + 1)
        tokens = (base[:cut] + [rng.randrange(3) for _ in range(rng.randrange(1, 200))])[:700]
        prompts.append(tokens)
        scene.run(tokens)
        if rng.random() < 0.1 and files(folder):
            path = rng.choice(files(folder))
            data = bytearray(path.read_bytes())
            data[rng.randrange(len(data))] ^= 255
            path.write_bytes(data)
        if rng.random() < 0.1:
            restored += scene.cache.stats.restored
            scene.cache.store_all()
            scene = scene_of()
    assert restored + scene.cache.stats.restored > 5
    assert torch.get_num_threads() == 1


def _file_size(folder: Path) -> int:
    stored(folder)
    return files(folder)[0].stat().st_size
