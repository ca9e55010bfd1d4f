"""The source that a machine builds from: one commit of a git repository, ready to be sent."""

import base64
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ninfer.errors import UsageError

_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Source:
    """A repository that the machine can reach at `url`, or else a bare one, packed in base64."""

    ref: str
    url: str = ""
    packed: str = ""
    revision: str = ""


def source_of(url: str, ref: str, checkout: Path) -> Source:
    """The ref of `url`; without a URL, of the checkout that holds the folder `checkout`.

    Of a checkout one commit is sent, so the machine needs no way to a repository. Raises UsageError
    for a ref that is not there, for a checkout that is none, and for a URL with a password in it.
    """
    if not ref or ref.startswith("-") or any(c.isspace() for c in ref):
        raise UsageError(f"NINFER_SRC_BRANCH={ref}: must be a branch, a tag or a commit")
    if url:
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http", "git", "ssh", "file") or parts.password:
            raise UsageError("NINFER_SRC_URL: must be a git address without a password in it")
        return Source(ref, url=url)
    with tempfile.TemporaryDirectory(prefix="ninfer-source-") as folder:
        top = _git(checkout, "rev-parse", "--show-toplevel")
        revision = _git(Path(top), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        bare = Path(folder) / "source.git"
        _git(Path(folder), "init", "--quiet", "--bare", str(bare))
        _git(bare, "fetch", "--quiet", "--depth", "1", f"file://{top}", revision)
        _git(bare, "update-ref", "refs/heads/source", "FETCH_HEAD")
        archive = Path(folder) / "source.tar"
        with tarfile.open(archive, "w") as tar:  # git's objects are compressed already
            tar.add(bare, "source.git")
        packed = base64.b64encode(archive.read_bytes()).decode()
    return Source("refs/heads/source", packed=packed, revision=revision)


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except FileNotFoundError:
        raise UsageError("git: not on PATH; install it, or set NINFER_SRC_URL") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {words[0]}: no end after {_SECONDS} s") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[:200]
        if words[:2] == ("rev-parse", "--show-toplevel"):
            raise UsageError(
                f"{folder} is in no git checkout; set NINFER_SRC_URL to a repository's address"
            )
        raise UsageError(f"git {words[0]} {words[-1]}: {said or 'no such commit'}")
    return done.stdout.strip()
