"""Writers of a shared folder that are killed in the middle of a file."""

import fcntl
import subprocess
import sys
from pathlib import Path

from prefix_scene import Scene, files, record_of, words

from ninfer.runtime.prefix_store import DiskTier

LARGE = 1 << 30

KILLED_WRITERS = """
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, sys.argv[2])
import torch

torch.set_num_threads(1)
from prefix_scene import Scene, words
from ninfer.runtime import prefix_store

encode = prefix_store.encode

def slowly(record):
    for piece in encode(record):
        yield piece
        time.sleep(0.04)

def write(seed):
    prefix_store.encode = slowly
    scene = Scene(page_count=64, tier=prefix_store.DiskTier(folder, 1 << 30))
    while os.getppid() == parent:
        scene.run(words(3000, seed))
        scene.cache.store_all()
        scene.cache.clear()
        seed += 1
    os._exit(0)

def wait_for(pattern, known=frozenset()):
    while not set(folder.glob(pattern)) - known:
        time.sleep(0.005)

folder, rng, cut, parent = Path(sys.argv[1]), random.Random(5), 0, os.getpid()
for round in range(6):
    known = set(folder.glob(".*.partial"))
    writer = os.fork()
    if not writer:
        write(1 + 1000 * round)
    if round == 0:
        wait_for("*.prefix")
    wait_for(".*.partial", known)
    time.sleep(0.3 * rng.random())
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    cut += bool(list(folder.glob(".*.partial")))
assert cut, "no kill fell into a write"
"""


def test_a_killed_writer_leaves_whole_files_only(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", KILLED_WRITERS, str(tmp_path), here]
    subprocess.run(command, check=True, timeout=280)
    scene = Scene(page_count=64, tier=DiskTier(tmp_path, LARGE))
    found = files(tmp_path)
    assert found
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in found}
    for path in found:
        assert record_of(path, scene).length == 46
    assert scene.run(words(3000, 1)).length == 46 * 64


def test_a_start_removes_what_dead_writers_left_and_spares_the_living(tmp_path: Path) -> None:
    dead, living = tmp_path / ".00.1.partial", tmp_path / ".00.2.partial"
    dead.write_bytes(b"half")
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        DiskTier(tmp_path, LARGE)
        assert (dead.exists(), living.exists()) == (False, True)
