"""Writes an OCI image layout: a root file system, a kit in /opt/ninfer, and how to start it.

    python -m tools.image ROOT KIT image/

ROOT is a folder with an operating system, Python 3 and the packages of the kit's requirements.lock.
No container program is needed. The same folders give the same image. As OCI's image specification
1.1 has it: https://github.com/opencontainers/image-spec
"""

import argparse
import gzip
import hashlib
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ninfer.errors import KitError
from ninfer.kits.archive import unpack as unpack_kit
from ninfer.kits.home import TRITON
from ninfer.kits.manifest import Manifest
from ninfer.kits.triton_cache import relocate

PLACE: Final = "opt/ninfer"
USER: Final = 10001
EPOCH: Final = 1577836800
_CREATED: Final = "2020-01-01T00:00:00Z"
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_KIND: Final = "application/vnd.oci.image."
_PIECE: Final = 1 << 20


def main(argv: Sequence[str]) -> int:
    """Write the layout; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("kit", type=Path)
    parser.add_argument("output", type=Path, help="folder, empty or new")
    options = parser.parse_args(argv)
    if not options.root.is_dir():
        parser.error(f"{options.root}: no such folder")
    if options.output.exists() and any(options.output.iterdir()):
        parser.error(f"{options.output} is not empty; an image is made from nothing")
    print(write_image(options.root, options.kit, options.output))
    return 0


def write_image(root: Path, kit: Path, output: Path) -> str:
    """Write the layout into a folder; gives the digest of the image's manifest.

    Raises KitError for a kit that is damaged, of an unknown machine, or holds what it must not.
    """
    blobs = output / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ninfer-image-") as made:
        folder = Path(made) / PLACE
        folder.mkdir(parents=True)
        manifest = unpack_kit(kit, folder)
        relocate(folder / TRITON, Path("/") / PLACE / TRITON)
        layers = [write_layer(blobs, root, owned=""), write_layer(blobs, Path(made), owned=PLACE)]
    config = _put(blobs, _config(manifest, [diff for _, diff in layers]), "config.v1+json")
    document = {
        "schemaVersion": 2,
        "mediaType": f"{_KIND}manifest.v1+json",
        "config": config,
        "layers": [descriptor for descriptor, _ in layers],
    }
    top = _put(blobs, document, "manifest.v1+json")
    top["annotations"] = {"org.opencontainers.image.ref.name": manifest.id}
    index = {"schemaVersion": 2, "mediaType": f"{_KIND}index.v1+json", "manifests": [top]}
    (output / "index.json").write_text(_text(index), encoding="utf-8")
    layout = {"imageLayoutVersion": "1.0.0"}
    (output / "oci-layout").write_text(_text(layout), encoding="utf-8")
    return str(top["digest"])


def write_layer(blobs: Path, folder: Path, owned: str) -> tuple[dict[str, Any], str]:
    """Pack a folder as a layer: its descriptor, and the digest of the tar inside.

    All is root's, but what lies at `owned` (if that is not empty) belongs to the image's user, who
    has to write launchers beside the kernels.
    """
    part = blobs / ".layer"
    with part.open("wb") as raw:
        packed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0)
        # tarfile asks for less than the whole interface of a file.
        inner: Any = _Digest(packed)
        with packed, tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in _paths(folder):
                _add(tar, path, path.relative_to(folder).as_posix(), owned)
    digest = _digest_of(part)
    part.replace(blobs / digest)
    size = (blobs / digest).stat().st_size
    kind = f"{_KIND}layer.v1.tar+gzip"
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}, str(inner.digest)


def unpack_image(layout: Path, target: Path) -> dict[str, Any]:
    """Check every blob and put the layers into a folder; gives the image's configuration.

    Needs root to give files their owners; without it they are the caller's. Raises KitError for a
    blob that is missing or is not what its digest says.
    """
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    document = json.loads(_blob(layout, index["manifests"][0]).read_bytes())
    config: dict[str, Any] = json.loads(_blob(layout, document["config"]).read_bytes())
    for descriptor, diff in zip(document["layers"], config["rootfs"]["diff_ids"], strict=True):
        with gzip.open(_blob(layout, descriptor)) as packed:
            digest = _of_stream(packed)
        if digest != diff:
            raise KitError(f"{layout}: layer {descriptor['digest']} holds {digest}, not {diff}")
        with tarfile.open(_blob(layout, descriptor)) as tar:
            # Links of a root file system are absolute, which the stricter filter refuses.
            tar.extractall(target, filter="tar", numeric_owner=True)
    return config


def _config(manifest: Manifest, layers: Sequence[str]) -> dict[str, Any]:
    machine = _MACHINES.get(manifest.stack.machine)
    if machine is None:
        raise KitError(f"{manifest.id}: machine {manifest.stack.machine} has no name in OCI")
    return {
        "created": _CREATED,
        "architecture": machine,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"8080/tcp": {}},
            "Env": [
                f"PATH=/{PLACE}/bin:/usr/local/bin:/usr/bin:/bin",
                f"NINFER_KIT=/{PLACE}",
                "HOME=/tmp",
                "NVIDIA_VISIBLE_DEVICES=all",
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            ],
            "Entrypoint": [f"/{PLACE}/bin/ninfer"],
            "Cmd": ["--help"],
            "WorkingDir": "/tmp",
            "Labels": {
                "org.opencontainers.image.title": "ninfer",
                "org.opencontainers.image.version": manifest.ninfer,
                "org.opencontainers.image.revision": manifest.revision,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": list(layers)},
        "history": [
            {"created": _CREATED, "created_by": "root file system"},
            {"created": _CREATED, "created_by": f"kit {manifest.id}"},
        ],
    }


def _paths(folder: Path) -> Iterator[Path]:
    """Everything below, parents first, the same order everywhere; links are not followed."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _paths(path)


def _add(tar: tarfile.TarFile, path: Path, name: str, owned: str) -> None:
    entry = tar.gettarinfo(path, name)
    entry.mtime, entry.uname, entry.gname = EPOCH, "", ""
    mine = bool(owned) and (name == owned or name.startswith(f"{owned}/"))
    entry.uid = entry.gid = USER if mine else 0
    if owned and entry.isdir():
        entry.mode = 0o755
    if entry.isreg():
        with path.open("rb") as content:
            tar.addfile(entry, content)
    else:
        tar.addfile(entry)


class _Digest:
    """A file that is written to, with the digest of what was written."""

    def __init__(self, target: gzip.GzipFile) -> None:
        self._target, self._sum = target, hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write on."""
        self._sum.update(data)
        return self._target.write(data)

    @property
    def digest(self) -> str:
        """Of everything so far, as OCI writes it."""
        return f"sha256:{self._sum.hexdigest()}"


def _put(blobs: Path, document: Mapping[str, Any], kind: str) -> dict[str, Any]:
    content = _text(document).encode()
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": _KIND + kind, "digest": f"sha256:{digest}", "size": len(content)}


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def _blob(layout: Path, descriptor: Mapping[str, Any]) -> Path:
    digest = str(descriptor["digest"])
    path = layout / "blobs" / "sha256" / os.path.basename(digest.removeprefix("sha256:"))
    if not path.is_file():
        raise KitError(f"{layout}: blob {digest} is missing")
    if f"sha256:{_digest_of(path)}" != digest or path.stat().st_size != descriptor["size"]:
        raise KitError(f"{layout}: blob {digest} is damaged")
    return path


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return _of_stream(file).removeprefix("sha256:")


def _of_stream(stream: Any) -> str:
    digest = hashlib.sha256()
    while piece := stream.read(_PIECE):
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
