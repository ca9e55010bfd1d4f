"""A program `sky` for tests: the calls that we make and their documented JSON, over a folder.

The folder FAKE_SKY holds `clusters.json`, `calls` and the script of a job; `fault` names what goes
wrong. Its machine is this one, with `/root/.ninfer` at FAKE_SKY/box.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ["FAKE_SKY"])
CLUSTERS = HOME / "clusters.json"
ENTRY = {
    "cloud": "AWS",
    "instance_type": "p5en.48xlarge",
    "accelerator_name": "H200",
    "accelerator_count": 1.0,
    "cpu_count": 24.0,
    "device_memory": 141.0,
    "memory": 256.0,
    "price": 3.5,
    "spot_price": 1.1,
    "region": "us-east-1",
}


def load() -> dict:
    return json.loads(CLUSTERS.read_text()) if CLUSTERS.exists() else {}


def save(clusters: dict) -> None:
    CLUSTERS.write_text(json.dumps(clusters))


def fault() -> str:
    return (HOME / "fault").read_text().strip() if (HOME / "fault").exists() else ""


def launch(words: list[str]) -> int:
    name = words[words.index("--cluster") + 1]
    task = json.loads(Path(words[-1]).read_text())
    (HOME / "task.json").write_text(json.dumps(task))
    if fault() == "no capacity":
        sys.stderr.write("sky.exceptions.ResourcesUnavailableError: no capacity" + "\n")
        return 1
    script = task["run"].replace("/root/.ninfer", str(HOME / "box"))
    job = subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    record = {"name": name, "status": "UP", "cloud": "AWS", "region": "us-east-1", "autostop": 1}
    save({**load(), name: {**record, "to_down": True, "resources_str": "1x H200", "job": job.pid}})
    if fault() == "answer lost":
        sys.stderr.write("the connection to the API server broke" + "\n")
        return 1
    return 0


def alive(pid: int) -> bool:
    """Whether the job runs; one that nobody waited for is over too."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def status() -> int:
    if fault() == "garbage":
        sys.stdout.write("Traceback (most recent call last):" + "\n")
        return 0
    if fault() == "no server":
        sys.stderr.write("cannot connect to API server" + "\n")
        return 1
    # A cluster whose job is over is idle, and is taken down by itself.
    clusters = {name: one for name, one in load().items() if alive(one["job"])}
    save(clusters)
    sys.stdout.write("Cluster(s) refreshed." + "\n")
    sys.stdout.write(json.dumps(list(clusters.values()), indent=2) + "\n")
    return 0


def down(name: str) -> int:
    clusters = load()
    if fault() == "down does nothing":
        return 0
    found = clusters.pop(name, None)
    if found is None:
        sys.stderr.write(f"Cluster {name} not found" + "\n")
        return 1
    subprocess.run(["kill", "-9", "--", f"-{found['job']}"])
    save(clusters)
    return 0


def main(words: list[str]) -> int:
    with (HOME / "calls").open("a") as file:
        file.write(json.dumps(words) + "\n")
    leaked = [name for name in ("VAST_API_KEY", "NINFER_API_KEY") if name in os.environ]
    assert not leaked, leaked
    if words[:2] == ["gpus", "list"]:
        eight = {**ENTRY, "accelerator_count": 8.0, "price": 28.0}
        free = {**ENTRY, "price": None, "instance_type": None}
        dear = {**ENTRY, "price": 9.0, "region": "eu-west-1"}
        found = [eight, dear, free, ENTRY]
        sys.stdout.write(json.dumps({"H200": found} if words[2] == "H200" else {}) + "\n")
        return 0
    if words[0] == "launch":
        return launch(words)
    if words[0] == "status":
        return status()
    if words[0] == "down":
        return down(words[-1])
    raise AssertionError(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
