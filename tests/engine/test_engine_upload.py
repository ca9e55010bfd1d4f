"""The ring of pinned slots: the same bytes as the file's, whatever the card is late with."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ninfer.artifact import TensorEntry, open_artifact
from ninfer.engine.upload import UploadRing
from ninfer.errors import ArtifactError
from ninfer.formats import PackedMatrix


class LateCard:
    """A card that reads a source as late as it may: when somebody waits for the copy."""

    def __init__(self) -> None:
        self.slots: list[Tensor] = []
        self.open: dict[int, Callable[[], None]] = {}
        self.most = 0

    def pinned(self, count: int) -> Tensor:
        self.slots.append(torch.zeros(count, dtype=torch.uint8))
        return self.slots[-1]

    def empty(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.uint8)

    def copy(self, target: Tensor, source: Tensor) -> Callable[[], object]:
        key = len(self.open) and max(self.open) + 1

        def finish() -> None:
            if self.open.pop(key, None):
                target.copy_(source)

        self.open[key] = finish
        self.most = max(self.most, len(self.open))
        return finish


def reader(data: bytes) -> Callable[[int, memoryview], None]:
    def read(start: int, out: memoryview) -> None:
        out[:] = data[start : start + len(out)]

    return read


@pytest.mark.parametrize("count", [1, 63, 64, 65, 500, 64 * 7, 64 * 9 + 1])
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_bytes_arrive_as_they_are(count: int, slots: int) -> None:
    card, draw = LateCard(), random.Random(count)
    ring = UploadRing(card, slots=slots, slot_bytes=64, threads=3)
    wanted = [draw.randbytes(count) for _ in range(4)]
    found = [ring.fetch(count, reader(data)) for data in wanted]
    ring.close()
    assert [bytes(one.numpy()) for one in found] == wanted
    assert len(card.slots) == slots and not card.open
    # Copies are waited for only when their slot is needed again.
    assert card.most == min(slots, 4 * -(-count // 64))


def test_reads_run_at_the_same_time() -> None:
    """Or the ring would be as fast as one thread."""
    barrier = threading.Barrier(3)

    def read(start: int, out: memoryview) -> None:
        barrier.wait(60)  # nobody goes on before three read
        out[:] = bytes([start // 64]) * len(out)

    ring = UploadRing(LateCard(), slots=3, slot_bytes=64, threads=3)
    found = ring.fetch(64 * 9, read)
    ring.close()
    assert found.view(9, 64)[:, 0].tolist() == list(range(9))


def test_a_read_that_fails_is_raised_and_the_ring_goes_on() -> None:
    def failing(start: int, out: memoryview) -> None:
        if start == 128:
            raise ArtifactError("cannot be read")

    ring = UploadRing(LateCard(), slots=2, slot_bytes=64, threads=2)
    with pytest.raises(ArtifactError, match="cannot be read"):
        ring.fetch(640, failing)
    good = ring.fetch(100, reader(b"x" * 100))
    ring.close()
    assert bytes(good.numpy()) == b"x" * 100


def words_of(stored: Tensor | PackedMatrix) -> Tensor:
    if isinstance(stored, Tensor):
        return stored.contiguous().view(-1).view(torch.uint8)
    return stored.dequantise(torch.float32).view(-1).view(torch.uint8)


def test_every_object_of_an_artifact_is_the_same_through_the_ring(
    micro_artifacts: dict[str, Path],
) -> None:
    with open_artifact(micro_artifacts["moe"]) as artifact:
        names = [e.name for e in artifact.directory.entries if isinstance(e, TensorEntry)]
        ring = UploadRing(LateCard(), slots=3, slot_bytes=1000, threads=2)
        through = {name: artifact.tensor_through(name, ring.fetch) for name in names[::7]}
        ring.close()
        for name, found in through.items():
            assert torch.equal(words_of(found), words_of(artifact.tensor(name))), name


def test_a_file_that_was_cut_is_an_error(micro_artifacts: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "cut.ninfer"
    path.write_bytes(micro_artifacts["dense"].read_bytes())
    with open_artifact(path) as artifact:
        last = [e for e in artifact.directory.entries if isinstance(e, TensorEntry)][-1]
        with path.open("r+b") as file:
            file.truncate(artifact.payload_offset + last.offset + last.bytes // 2)
        payload = artifact._open()
        with pytest.raises(ArtifactError, match="was cut while it was read"):
            payload.read_into(last.offset, memoryview(bytearray(last.bytes)))
