"""Fetch a published artifact: find it, check the disk, transfer, compare its SHA-256, rename."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ninfer.artifact.digest import file_sha256
from ninfer.artifact.file_lock import file_lock
from ninfer.artifact.published import PublishedArtifact, find_published, is_readable
from ninfer.artifact.space import check_space
from ninfer.artifact.transfer import Progress, RemoteFile, download
from ninfer.errors import FetchError
from ninfer.log import get_logger
from ninfer.version import VERSION

log = get_logger(__name__)

TRANSFERS: Final = ("http", "hub")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Hub:
    """Which server to ask, and how: None is the public hub, and no token is sent unless given."""

    endpoint: str | None = None
    token: str | None = None
    transfer: str = "http"


@dataclass(frozen=True, slots=True)
class _Remote:
    """What the server has under the wanted name and revision."""

    commit: str
    sha256: str
    bytes: int


def fetch(
    name: str, directory: Path, progress: Progress, *, revision: str | None = None, hub: Hub
) -> Path:
    """Put a published artifact whole and verified into `directory`; returns its path.

    `name` is an alias or an id; without `revision` the registered one, or else the head of the
    repository, is asked for. A file that is there already is only verified. The transfer goes to a
    hidden partial file, from where a later call goes on; fetches of one file wait for each other.

    Raises UsageError for an unknown name, ArtifactError when the disk has too little room, and
    FetchError when the server does not have the published file, the transfer fails, or the SHA-256
    differs; a file with another SHA-256 is removed.
    """
    candidates = find_published(name)
    target = directory / candidates[0].file
    with _disk_errors(target):
        directory.mkdir(parents=True, exist_ok=True)
        with file_lock(directory / f".{target.name}.lock", target.name):
            if target.exists():
                return _verified_existing(target, candidates, progress)
            item, remote = _choose(candidates, revision, hub)
            partial = directory / f".{target.name}.{item.sha256[:12]}.partial"
            _transfer(item, remote, partial, hub, progress)
            _verify(partial, item, progress)
            _put_in_place(partial, target)
    return target


def _verified_existing(
    target: Path, candidates: Sequence[PublishedArtifact], progress: Progress
) -> Path:
    size = target.stat().st_size
    if any(item.bytes == size for item in candidates):
        found = file_sha256(target, progress)
        if found in {item.sha256 for item in candidates if is_readable(item)}:
            log.info("%s is there already and whole", target)
            return target
    raise FetchError(
        f"{target} is there already, with {size:,} bytes, and is not a published "
        f"{candidates[0].id}; move it away or give another --directory"
    )


def _choose(
    candidates: Sequence[PublishedArtifact], revision: str | None, hub: Hub
) -> tuple[PublishedArtifact, _Remote]:
    """The upload that the server has at the wanted revision, which must be a registered one."""
    newest = next(item for item in candidates if is_readable(item))
    wanted = revision or newest.revision or "main"
    remote = _ask(newest, wanted, hub)
    if _COMMIT.fullmatch(wanted) and remote.commit != wanted:
        raise FetchError(
            f"{newest.repository}: asked for revision {wanted}, the server gives {remote.commit}"
        )
    found = next((item for item in candidates if item.sha256 == remote.sha256), None)
    if found is None:
        raise FetchError(
            f"{newest.repository}: revision {wanted} ({remote.commit[:12]}) holds another "
            f"{newest.file} (SHA-256 {remote.sha256}, {remote.bytes:,} bytes) than those this "
            "version knows; give --revision with a commit that has a known one, or update ninfer"
        )
    if not is_readable(found):
        raise FetchError(
            f"{newest.repository}: revision {wanted} holds framing v{found.framing}, which is "
            "newer than this version reads; give --revision with an older commit, or update ninfer"
        )
    return found, remote


def _ask(item: PublishedArtifact, revision: str, hub: Hub) -> _Remote:
    url = hf_hub_url(item.repository, item.file, revision=revision, endpoint=hub.endpoint)
    with _hub_errors(item, revision):
        # A token of False: none is looked up anywhere.
        found = get_hf_file_metadata(url, token=hub.token or False, endpoint=hub.endpoint)
    if not (found.commit_hash and found.size and _SHA256.fullmatch(found.etag or "")):
        raise FetchError(
            f"{item.repository}: the server does not state commit, size and SHA-256 of "
            f"{item.file}; it is no model hub"
        )
    assert found.etag is not None
    return _Remote(found.commit_hash, found.etag, found.size)


def _transfer(
    item: PublishedArtifact, remote: _Remote, partial: Path, hub: Hub, progress: Progress
) -> None:
    if remote.bytes != item.bytes:
        raise FetchError(
            f"{item.repository}: the server states {remote.bytes:,} bytes for {item.file}, which "
            f"has {item.bytes:,}"
        )
    have = partial.stat().st_size if partial.exists() else 0
    check_space(partial, max(item.bytes - have, 0))
    if hub.transfer == "hub" and not have:
        _transfer_by_hub(item, remote.commit, partial, hub)
        return
    url = hf_hub_url(item.repository, item.file, revision=remote.commit, endpoint=hub.endpoint)
    headers = {"User-Agent": f"ninfer/{VERSION}"}
    if hub.token:
        headers["Authorization"] = f"Bearer {hub.token}"
    download(RemoteFile(url, item.file, item.bytes, headers), partial, progress)


def _transfer_by_hub(item: PublishedArtifact, commit: str, partial: Path, hub: Hub) -> None:
    """The hub library's own download: Xet where the server offers it; shows its own progress."""
    folder = partial.with_suffix(".hub")
    try:
        with _hub_errors(item, commit):
            done = hf_hub_download(
                item.repository,
                item.file,
                revision=commit,
                local_dir=folder,
                endpoint=hub.endpoint,
                token=hub.token or False,
            )
        Path(done).replace(partial)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _verify(partial: Path, item: PublishedArtifact, progress: Progress) -> None:
    found = file_sha256(partial, progress, item.file)
    if found != item.sha256:
        partial.unlink()
        raise FetchError(
            f"{item.file}: what arrived has SHA-256 {found}, not {item.sha256}; it was removed, "
            "fetch it again"
        )


def _put_in_place(partial: Path, target: Path) -> None:
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(target)


@contextmanager
def _hub_errors(item: PublishedArtifact, revision: str) -> Iterator[None]:
    try:
        yield
    except RevisionNotFoundError as error:
        raise FetchError(
            f"{item.repository}: revision {revision} is not there; the repository was moved or "
            "rewritten, give another --revision or update ninfer"
        ) from error
    except RepositoryNotFoundError as error:
        raise FetchError(f"{item.repository}: no such repository, or it is not public") from error
    except LocalEntryNotFoundError as error:
        # The library's word for a server that does not answer.
        raise FetchError(f"{item.repository}: the server cannot be asked") from error
    except EntryNotFoundError as error:
        raise FetchError(
            f"{item.repository}: revision {revision} has no file {item.file}"
        ) from error
    except (HfHubHTTPError, httpx.HTTPError) as error:
        text = " ".join(str(error).split())
        raise FetchError(f"{item.repository}: the server cannot be asked: {text}") from error
    except OSError as error:
        # Without a number it is the library's own finding, a length that is wrong for one.
        if error.errno is not None:
            raise
        text = " ".join(str(error).split())
        raise FetchError(f"{item.repository}: the transfer failed: {text}") from error


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FetchError(f"{target}: cannot be written: {error.strerror or error}") from error
