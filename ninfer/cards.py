"""NVIDIA cards from compute capability 8.0 on as data: memory, bandwidth, compute, and their names.

Numbers are the maker's for the plain card at its boost clock: bandwidth in GB/s (10**9 bytes),
compute in dense bfloat16 TFLOP/s with float32 sums. None is what the maker does not state, or what
depends on the power that a laptop gives its card. GeForce cards do float32 sums at half rate, and
the number here is the half.
"""

import re
from dataclasses import dataclass
from typing import Final

# The first architecture whose matrix instructions take FP8.
_FIRST_FP8: Final = 89
# torch counts 23.6 of 24 GiB on a 4090, 31.4 of 32 on a 5090, 15.6 of 16 on a 4060 Ti, 139.8 of 141
# on an H200 and 79.1 of 80 on an H100.
_USABLE: Final = 0.975
# What the context of a program takes before its first tensor: 300 to 450 MiB on recent cards.
_CONTEXT: Final = 448 << 20


@dataclass(frozen=True, slots=True)
class Card:
    """One card. `memory_gib` is nominal: a driver shows up to 7 % less.

    `capability` is the compute capability times ten, 86 for sm_86. `other_names` are spellings
    beyond those that differ from `name` only in case, separators and the maker's own words.
    """

    name: str
    capability: int
    memory_gib: int
    bandwidth: float | None
    bf16_tflops: float | None
    other_names: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """The target that kernels are compiled for, `sm_86` for one."""
        return f"sm_{self.capability}"

    @property
    def fp8_tflops(self) -> float | None:
        """Dense FP8 TFLOP/s with float32 sums: twice bfloat16 from Ada on; None before, or unknown.

        The makers' sheets have this ratio for every card of the table that has both numbers.
        """
        if self.capability < _FIRST_FP8 or self.bf16_tflops is None:
            return None
        return 2 * self.bf16_tflops

    @property
    def usable_bytes(self) -> int:
        """Bytes that an idle card lets a program have: less the driver's part and a context."""
        return int(self.memory_gib * _USABLE * 2**30) - _CONTEXT


CARDS: Final[tuple[Card, ...]] = (
    # Ampere, GeForce
    Card("RTX 3060", 86, 8, 240, 25.5),
    Card("RTX 3060", 86, 12, 360, 25.5),
    Card("RTX 3060 Ti", 86, 8, 448, 32.4),
    Card("RTX 3070", 86, 8, 448, 40.6),
    Card("RTX 3070 Ti", 86, 8, 608, 43.5),
    Card("RTX 3080", 86, 10, 760, 59.5),
    Card("RTX 3080", 86, 12, 912, 61.3),
    Card("RTX 3080 Ti", 86, 12, 912, 68.2),
    Card("RTX 3090", 86, 24, 936, 71.2),
    Card("RTX 3090 Ti", 86, 24, 1008, 80.0),
    # Ampere, workstation and data centre
    Card("RTX A4000", 86, 16, 448, 76.7),
    Card("RTX A4500", 86, 20, 640, 94.6),
    Card("RTX A5000", 86, 24, 768, 111.1),
    Card("RTX A6000", 86, 48, 768, 154.8),
    Card("A10", 86, 24, 600, 125.0),
    Card("A10G", 86, 24, 600, None),
    Card("A30", 80, 24, 933, 165.0),
    Card("A40", 86, 48, 696, 149.7),
    Card("A100 PCIe", 80, 40, 1555, 312.0, ("A100 PCIe 40GB", "A100")),
    Card("A100 PCIe", 80, 80, 1935, 312.0, ("A100 80GB PCIe", "A100")),
    Card("A100 SXM4", 80, 40, 1555, 312.0, ("A100 SXM4 40GB", "A100 SXM", "A100")),
    Card("A100 SXM4", 80, 80, 2039, 312.0, ("A100 SXM4 80GB", "A100 SXM", "A100")),
    # Ada Lovelace, GeForce
    Card("RTX 4060", 89, 8, 272, 30.2),
    Card("RTX 4060 Laptop", 89, 8, 256, None),
    Card("RTX 4060 Ti", 89, 8, 288, 44.1),
    Card("RTX 4060 Ti", 89, 16, 288, 44.1),
    Card("RTX 4070", 89, 12, 504, 58.3),
    Card("RTX 4070 Laptop", 89, 8, 256, None),
    Card("RTX 4070 SUPER", 89, 12, 504, 71.0, ("RTX 4070S",)),
    Card("RTX 4070 Ti", 89, 12, 504, 80.2),
    Card("RTX 4070 Ti SUPER", 89, 16, 672, 88.2, ("RTX 4070S Ti", "RTX 4070 Ti S")),
    Card("RTX 4080", 89, 16, 717, 97.5),
    Card("RTX 4080 Laptop", 89, 12, 432, None),
    Card("RTX 4080 SUPER", 89, 16, 736, 104.4, ("RTX 4080S",)),
    Card("RTX 4090", 89, 24, 1008, 165.2),
    Card("RTX 4090 D", 89, 24, 1008, 147.1),
    Card("RTX 4090 Laptop", 89, 16, 576, None),
    # Ada Lovelace, workstation and data centre
    Card("RTX 4000 Ada", 89, 20, 360, None),
    Card("RTX 4500 Ada", 89, 24, 432, None),
    Card("RTX 5000 Ada", 89, 32, 576, 261.1),
    Card("RTX 6000 Ada", 89, 48, 960, 364.2),
    Card("L4", 89, 24, 300, 121.0),
    Card("L40", 89, 48, 864, 181.1),
    Card("L40S", 89, 48, 864, 362.1),
    # Hopper
    Card("H100 PCIe", 90, 80, 2000, 756.0, ("H100",)),
    Card(
        "H100 SXM", 90, 80, 3350, 989.4, ("H100 80GB HBM3", "H100 SXM5", "H100 SXM5 80GB", "H100")
    ),
    Card("H100 NVL", 90, 94, 3900, 835.5),
    Card("H200 SXM", 90, 141, 4800, 989.4, ("H200", "H200 SXM5")),
    Card("H200 NVL", 90, 141, 4800, 835.5),
    Card("GH200", 90, 96, 4000, 989.4, ("GH200 480GB", "GH200 SXM", "GH200 Grace Hopper")),
    # Blackwell, GeForce
    Card("RTX 5060", 120, 8, 448, 38.4),
    Card("RTX 5060 Laptop", 120, 8, 384, None),
    Card("RTX 5060 Ti", 120, 8, 448, 47.4),
    Card("RTX 5060 Ti", 120, 16, 448, 47.4),
    Card("RTX 5070", 120, 12, 672, 61.7),
    Card("RTX 5070 Laptop", 120, 8, 384, None),
    Card("RTX 5070 Ti", 120, 16, 896, 87.9),
    Card("RTX 5070 Ti Laptop", 120, 12, 672, None),
    Card("RTX 5080", 120, 16, 960, 112.6),
    Card("RTX 5080 Laptop", 120, 16, 896, None),
    Card("RTX 5090", 120, 32, 1792, 209.5),
    # Tensor throughput of the D cards is limited, to a number that is not stated for bfloat16.
    Card("RTX 5090 D", 120, 32, 1792, None),
    Card("RTX 5090 D v2", 120, 24, 1344, None),
    Card("RTX 5090 Laptop", 120, 24, 896, None),
    # Blackwell, workstation and data centre
    Card("RTX PRO 4000", 120, 24, 672, None, ("RTX PRO 4000 Blackwell",)),
    Card("RTX PRO 4500", 120, 32, 896, None, ("RTX PRO 4500 Blackwell",)),
    Card("RTX PRO 5000", 120, 48, 1344, None, ("RTX PRO 5000 Blackwell",)),
    Card(
        "RTX PRO 6000 Workstation",
        120,
        96,
        1792,
        503.8,
        ("RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 WS"),
    ),
    Card(
        "RTX PRO 6000 Max-Q",
        120,
        96,
        1792,
        438.9,
        ("RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 MaxQ"),
    ),
    Card(
        "RTX PRO 6000 Server",
        120,
        96,
        1597,
        None,
        ("RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 S"),
    ),
    Card("B200", 100, 180, 8000, 2250.0, ("B200 SXM", "B200 180GB")),
    # The maker speaks of 288 GB; drivers show this much.
    Card("B300", 103, 268, 8000, 2250.0, ("B300 SXM", "B300 SXM6 AC")),
    # Memory is shared with the processor, which leaves a model less than all of it.
    Card("GB10", 121, 128, 273, None, ("DGX Spark",)),
)

# How far reported memory may be from nominal: drivers and hosts keep some back.
_LEAST_SHARE: Final = 0.85
_MOST_SHARE: Final = 1.03
# Words that tell nothing about which card it is.
_FILLER: Final = re.compile(r"\b(nvidia|geforce|quadro|tesla|gpu|generation|graphics)\b")
_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")


def _plain(name: str) -> str:
    """Letters and digits of a name in lower case, words of the maker left out."""
    spaced = _SEPARATORS.sub(" ", name.lower())
    return _FILLER.sub("", spaced).replace(" ", "")


def _by_plain_name() -> dict[str, tuple[Card, ...]]:
    found: dict[str, tuple[Card, ...]] = {}
    for card in CARDS:
        for name in {_plain(name) for name in (card.name, *card.other_names)}:
            found[name] = (*found.get(name, ()), card)
    return found


_BY_PLAIN_NAME: Final = _by_plain_name()


def cards_named(name: str) -> tuple[Card, ...]:
    """Every card that a driver, a shop or a rental site may mean by `name`, the least memory first.

    Case, blanks, hyphens, underscores and words such as "NVIDIA GeForce" do not matter.
    """
    return _BY_PLAIN_NAME.get(_plain(name), ())


def find_card(name: str, memory_gib: float | None = None) -> Card | None:
    """The card of that name, as the driver or a rental site spells it.

    `memory_gib` is the memory that was reported; it tells variants of one name apart. None when no
    card of the name has about that memory (a rebuilt one, or a slice of one), or when several are
    meant and no memory is given.
    """
    found = [card for card in cards_named(name) if _has_memory(card, memory_gib)]
    return found[0] if len(found) == 1 else None


def _has_memory(card: Card, memory_gib: float | None) -> bool:
    if memory_gib is None:
        return True
    return _LEAST_SHARE * card.memory_gib <= memory_gib <= _MOST_SHARE * card.memory_gib
