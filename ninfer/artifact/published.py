"""Every published artifact: names, repository, framing, size and SHA-256; needs no torch."""

from dataclasses import dataclass
from typing import Final

from ninfer.artifact.framing import NEWEST
from ninfer.errors import UsageError


@dataclass(frozen=True, slots=True)
class PublishedArtifact:
    """One uploaded file. `revision` is the commit that holds it, None where it is not known.

    A file without a known revision is taken from the head of its repository; its SHA-256 is what
    pins it in both cases.
    """

    alias: str
    id: str  # model id and weights id
    repository: str
    file: str
    framing: int
    bytes: int
    sha256: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.id} (framing v{self.framing})"


@dataclass(frozen=True, slots=True)
class _Upload:
    """What all revisions of one published file share."""

    alias: str
    id: str
    repository: str
    file: str

    def framed(self, framing: int, size: int, sha256: str) -> PublishedArtifact:
        return PublishedArtifact(
            self.alias, self.id, self.repository, self.file, framing, size, sha256
        )


_INT_27B: Final = _Upload(
    "int-27b",
    "qwen3.6-27b/groupwise-int",
    "neroued/Qwen3.6-27B-NInfer",
    "qwen3_6_27b.ninfer",
)
_NVFP4_27B: Final = _Upload(
    "nvfp4-27b",
    "qwen3.6-27b/nvfp4",
    "neroued/Qwen3.6-27B-nvfp4-NInfer",
    "qwen3_6_27b_nvfp4.ninfer",
)
_MOE_35B: Final = _Upload(
    "moe-35b",
    "qwen3.6-35b-a3b/groupwise-int",
    "neroued/Qwen3.6-35B-A3B-NInfer",
    "qwen3_6_35b_a3b.ninfer",
)
_INT_38: Final = _Upload(
    "qwen38-27b",
    "qwen3.8-27b/groupwise-int",
    "neroued/Qwen3.8-27B-NInfer",
    "qwen3_8_27b.ninfer",
)
_NVFP4_38: Final = _Upload(
    "qwen38-nvfp4-27b",
    "qwen3.8-27b/nvfp4",
    "neroued/Qwen3.8-27B-nvfp4-NInfer",
    "qwen3_8_27b_nvfp4.ninfer",
)

PUBLISHED: Final[tuple[PublishedArtifact, ...]] = (
    _INT_27B.framed(
        1, 17_495_365_888, "74fac75f3a6b7ab7b52e08c36969c7a33a8ba23465910eccd72d195adb497127"
    ),
    _INT_27B.framed(
        2, 17_495_365_888, "7b51600ffd10632b9660f56085efdd9b751d79733ad32036a652234b64bebe7b"
    ),
    _INT_27B.framed(
        3, 17_495_538_688, "9b610a7d051e7c4dbf89adb604bd269d248b643c8f6c7ef75bdb871af92c6f6b"
    ),
    _NVFP4_27B.framed(
        2, 18_324_064_000, "bce5f00d066c0f20f1317bf1fdcb458264cf95837c3b1f3fbec163694627893a"
    ),
    _NVFP4_27B.framed(
        3, 18_324_354_820, "0448262d15df2ae4fda761540c110bc19e7c3b4f43c0938e4d50474429cda083"
    ),
    _MOE_35B.framed(
        1, 22_783_246_080, "5194407dd6d3092b8c2f81ce41e014b50ca0d6f1ba4e5d8c1492b8652bfa267f"
    ),
    _MOE_35B.framed(
        2, 22_783_246_080, "1fb9ea0b5b8561e49d9604115ec89e5d9f2b6f6434e32c37c57fffd480a325d2"
    ),
    _MOE_35B.framed(
        3, 22_790_484_480, "3e33297645dc33557751be1a3c407a74ed7c00f34909b5d4e8cfdce91b3dbe84"
    ),
    _INT_38.framed(
        2, 18_210_531_328, "eec39564993d6e9c7d5e383382a760f093465c9d163ec9a1bd6b80199514bf3e"
    ),
    # From here on with the DFlash2 drafter.
    _INT_38.framed(
        3, 20_437_521_664, "81f924d440c27261d820c19a9f8d45794c5aee410f8a68bd358133fa8c0375da"
    ),
    _NVFP4_38.framed(
        2, 21_492_695_040, "bb3360522a06e136e0367f5703414d26272b7285c8a6ab6194135c17dbd81b32"
    ),
    _NVFP4_38.framed(
        3, 23_719_715_844, "74d2c57145e6ff11d1d2faa79594477f9bc903a611af1fb20218189fbbb77d82"
    ),
)

ALIASES: Final[tuple[str, ...]] = tuple(dict.fromkeys(item.alias for item in PUBLISHED))


def find_published(name: str) -> tuple[PublishedArtifact, ...]:
    """Every upload of that alias or id, the newest framing first.

    Raises UsageError for an unknown name.
    """
    found = [item for item in PUBLISHED if name in (item.alias, item.id)]
    if not found:
        raise UsageError(f"{name!r} is not a published artifact; known: {', '.join(ALIASES)}")
    return tuple(sorted(found, key=lambda item: -item.framing))


def is_readable(item: PublishedArtifact) -> bool:
    """Whether this version reads the framing of an upload."""
    return item.framing <= NEWEST


def of_size(size: int) -> tuple[PublishedArtifact, ...]:
    """The uploads of exactly that many bytes; framings v1 and v2 of one file are equally long."""
    return tuple(item for item in PUBLISHED if item.bytes == size)
