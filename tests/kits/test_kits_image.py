"""The image: an OCI layout with the same bytes twice, checked when unpacked, and run by chroot."""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from kit_files import CONTENT, GROUP, KERNEL, write_kit

from ninfer.errors import KitError
from ninfer.version import VERSION
from tools.image import USER, unpack_image, write_image

ROOT = Path(__file__).parents[2]


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A root file system of two files and a link."""
    root = tmp_path / "system"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/sh").write_text("a shell")
    (root / "usr/bin/sh").chmod(0o755)
    (root / "bin").symlink_to("/usr/bin")
    return root


@pytest.fixture
def layout(tmp_path: Path, system: Path) -> Path:
    write_image(system, write_kit(tmp_path / "kit.tar.gz"), tmp_path / "image")
    return tmp_path / "image"


def test_it_holds_system_and_kit(tmp_path: Path, layout: Path):
    config = unpack_image(layout, tmp_path / "out")
    out = tmp_path / "out"
    assert (out / "usr/bin/sh").read_text() == "a shell" and os.access(out / "usr/bin/sh", os.X_OK)
    assert os.readlink(out / "bin") == "/usr/bin"
    for name, content in CONTENT.items():
        if name != GROUP:
            assert (out / "opt/ninfer" / name).read_bytes() == content, name
    # Where the image has it, not where it was packed.
    group = json.loads((out / "opt/ninfer" / GROUP).read_text())
    assert group["child_paths"] == {"attend.cubin": f"/opt/ninfer/{KERNEL}"}
    assert config["os"] == "linux" and config["architecture"] == "amd64"
    assert config["config"]["User"] == f"{USER}:{USER}"
    assert config["config"]["Entrypoint"] == ["/opt/ninfer/bin/ninfer"]


def test_it_is_laid_out_as_oci_says(layout: Path):
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout / "index.json").read_text())
    (top,) = index["manifests"]
    blobs = layout / "blobs" / "sha256"

    def blob(descriptor: dict) -> Path:
        path = blobs / descriptor["digest"].removeprefix("sha256:")
        assert path.stat().st_size == descriptor["size"]
        return path

    document = json.loads(blob(top).read_text())
    kinds = [document["config"]["mediaType"], *(x["mediaType"] for x in document["layers"])]
    start = "application/vnd.oci.image."
    assert kinds == [start + "config.v1+json", *2 * [start + "layer.v1.tar+gzip"]]
    named = {blob(x) for x in (top, document["config"], *document["layers"])}
    assert named == set(blobs.iterdir())


def test_the_same_folders_are_the_same_image(tmp_path: Path, system: Path, layout: Path):
    os.utime(system / "usr/bin/sh", (1, 1))
    again = tmp_path / "again"
    write_image(system, tmp_path / "kit.tar.gz", again)
    files = {path.relative_to(layout): path for path in layout.rglob("*") if path.is_file()}
    assert len(files) == 6
    for name, path in files.items():
        assert (again / name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("fault", ["flipped", "missing"])
def test_a_damaged_blob_is_refused(tmp_path: Path, layout: Path, fault: str):
    largest = max((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    if fault == "missing":
        largest.unlink()
    else:
        data = bytearray(largest.read_bytes())
        data[len(data) // 2] ^= 1
        largest.write_bytes(data)
    want = f"blob sha256:{largest.name} is {'missing' if fault == 'missing' else 'damaged'}"
    with pytest.raises(KitError, match=want):
        unpack_image(layout, tmp_path / "out")


def test_a_damaged_kit_makes_no_image(tmp_path: Path, system: Path):
    kit = write_kit(tmp_path / "kit.tar.gz")
    kit.write_bytes(kit.read_bytes()[:-20])
    with pytest.raises(KitError, match="not a whole kit archive"):
        write_image(system, kit, tmp_path / "image")
    assert not (tmp_path / "image" / "index.json").exists()


def copied_python(root: Path) -> None:
    """The Python of these tests with its standard library, and what both load, as they lie here."""
    program = Path(sys.executable).resolve()
    library = Path(os.__file__).parent
    wanted = {Path("/bin/sh"), Path(shutil.which("readlink")), Path(shutil.which("dirname"))}
    modules = library / "lib-dynload"
    binaries = [program, *wanted, *modules.glob("*.so")]
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    libraries = {Path(found) for found in re.findall(r"(/\S+\.so\S*) \(0x", said)}
    for file in {program, *wanted, *libraries}:
        target = root / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        target.chmod(0o755)
    left_out = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__")
    shutil.copytree(library, root / library.relative_to("/"), ignore=left_out, symlinks=False)


@pytest.mark.e2e
@pytest.mark.chroot
@pytest.mark.timeout(900)
def test_the_package_runs_in_the_unpacked_image(tmp_path: Path):
    """With all of the package but torch, which the commands asked for do without."""
    system, out = tmp_path / "system", tmp_path / "out"
    copied_python(system)
    (system / "tmp").mkdir()
    files = {
        f"lib/{path.relative_to(ROOT).as_posix()}": path.read_bytes()
        for path in (ROOT / "ninfer").rglob("*.py")
    }
    kit = write_kit(tmp_path / "kit.tar.gz", {**CONTENT, **files})
    write_image(system, kit, tmp_path / "image")
    config = unpack_image(tmp_path / "image", out)["config"]
    # Devices come from whoever runs an image.
    (out / "dev").mkdir()
    os.mknod(out / "dev" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (out / "dev" / "null").chmod(0o666)
    environment = dict(item.split("=", 1) for item in config["Env"])
    environment["NINFER_PYTHON"] = str(Path(sys.executable).resolve())

    def ninfer(*arguments: str) -> subprocess.CompletedProcess[str]:
        user, group = config["User"].split(":")
        command = [
            shutil.which("chroot"),
            f"--userspec={user}:{group}",
            str(out),
            *config["Entrypoint"],
        ]
        return subprocess.run(
            [*command, *arguments],
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    version = ninfer("--version")
    assert (version.stdout.strip(), version.returncode) == (VERSION, 0), version.stderr
    told = ninfer("--help")
    assert "compiled ahead of time" in told.stdout and told.returncode == 0, told.stderr
    # The image's user writes launchers beside the kernels, and nothing else of the image.
    assert (out / "opt/ninfer/kernels/triton").stat().st_uid == USER
    assert (out / "usr").stat().st_uid == 0


INSTRUCTIONS = {
    *("FROM", "RUN", "ARG", "COPY", "ENV", "WORKDIR", "USER", "EXPOSE"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}


def instructions() -> list[tuple[str, str]]:
    """Those of the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [tuple(line.split(None, 1)) for line in lines if line and not line.startswith("#")]


def test_the_dockerfile_follows_the_rules_of_the_usual_linter():
    """What hadolint asks for, as far as it concerns these instructions; nothing builds the file."""
    found = instructions()
    words = [word for word, _ in found]
    assert set(words) <= INSTRUCTIONS and words[0] == "FROM" and words.count("FROM") == 1
    base = found[0][1]
    assert ":" in base and not base.endswith(":latest")
    for word, rest in found:
        if word in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(rest), list)
        if word == "RUN":
            shell = subprocess.run(["sh", "-n", "-c", rest], capture_output=True, text=True)
            assert shell.returncode == 0, shell.stderr
            assert "sudo" not in shlex.split(rest) and not re.search(r"(^|&& )cd ", rest)
            if "apt-get install" in rest:
                assert "--yes --no-install-recommends" in rest
                assert "rm -rf /var/lib/apt/lists/*" in rest
            if "pip install" in rest:
                assert "--no-cache-dir --require-hashes" in rest
    users = [rest for word, rest in found if word == "USER"]
    assert users == [f"{USER}:{USER}"]
    after = words.index("USER")
    assert "RUN" not in words[after:] and "COPY" not in words[after:]
    assert all(rest.startswith("/") for word, rest in found if word == "WORKDIR")


def test_the_dockerfile_and_the_image_agree():
    found = dict(instructions())
    assert json.loads(found["ENTRYPOINT"]) == ["/opt/ninfer/bin/ninfer"]
    assert json.loads(found["CMD"]) == ["--help"]
    assert "NINFER_KIT=/opt/ninfer" in found["ENV"] and found["EXPOSE"] == "8080"
