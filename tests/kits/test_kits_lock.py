"""Lock lines from pip's installation report."""

import pytest

from ninfer.errors import KitError
from ninfer.kits.lock import lock_text


def item(name: str, version: str, **download: object) -> dict[str, object]:
    return {"metadata": {"name": name, "version": version}, "download_info": download}


def test_lines_are_pinned_hashed_and_sorted():
    report = {
        "install": [
            item("ninfer", "0.1.0", dir_info={}),
            item("Torch", "2.13.0", archive_info={"hashes": {"sha256": "b" * 64}}),
            item("httpx", "0.28.1", archive_info={"hashes": {"sha256": "a" * 64}}),
        ]
    }
    assert lock_text(report).splitlines() == [
        f"httpx==0.28.1 --hash=sha256:{'a' * 64}",
        f"torch==2.13.0 --hash=sha256:{'b' * 64}",
    ]


def test_what_has_no_hash_is_named():
    with pytest.raises(KitError, match=r"thing 1\.0 has no hash.*--lock FILE"):
        lock_text({"install": [item("thing", "1.0", vcs_info={})]})
