"""The table of cards: spellings that drivers and rental sites use, and plausible numbers."""

import pytest

from ninfer.cards import CARDS, cards_named, find_card


@pytest.mark.parametrize(
    ("spelling", "memory", "name"),
    [
        ("NVIDIA GeForce RTX 3060", 11.8, "RTX 3060"),
        ("NVIDIA GeForce RTX 3080", 9.8, "RTX 3080"),
        ("NVIDIA GeForce RTX 3090", 24.0, "RTX 3090"),
        ("RTX 3090", 23.6, "RTX 3090"),
        ("RTX_3090", None, "RTX 3090"),
        ("NVIDIA GeForce RTX 3090 Ti", 24.0, "RTX 3090 Ti"),
        ("rtx-3090-ti", None, "RTX 3090 Ti"),
        ("NVIDIA GeForce RTX 4090", 24.0, "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", 24.0, "RTX 4090 D"),
        ("RTX 4090D", 24.0, "RTX 4090 D"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16.0, "RTX 4090 Laptop"),
        ("RTX 4070S Ti", 16.0, "RTX 4070 Ti SUPER"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 16.0, "RTX 4070 Ti SUPER"),
        ("RTX 4080S", None, "RTX 4080 SUPER"),
        ("NVIDIA GeForce RTX 5090", 31.8, "RTX 5090"),
        ("RTX 5090", 31.8, "RTX 5090"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", 23.9, "RTX 5090 Laptop"),
        ("NVIDIA RTX A6000", 47.5, "RTX A6000"),
        ("NVIDIA RTX 6000 Ada Generation", 47.9, "RTX 6000 Ada"),
        ("RTX 6000Ada", 47.9, "RTX 6000 Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 95.0, "RTX PRO 6000 Workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95.0, "RTX PRO 6000 Server"),
        ("RTX PRO 6000 WS", 95.6, "RTX PRO 6000 Workstation"),
        ("NVIDIA A10", 22.5, "A10"),
        ("NVIDIA A40", 44.5, "A40"),
        ("NVIDIA A100-SXM4-40GB", 39.6, "A100 SXM4"),
        ("NVIDIA A100-PCIE-40GB", None, "A100 PCIe"),
        ("NVIDIA A100 80GB PCIe", 79.3, "A100 PCIe"),
        ("A100 SXM4", 79.3, "A100 SXM4"),
        ("NVIDIA L4", 22.0, "L4"),
        ("NVIDIA L40S", 44.5, "L40S"),
        ("NVIDIA H100 80GB HBM3", 79.6, "H100 SXM"),
        ("H100 SXM", 79.6, "H100 SXM"),
        ("NVIDIA H100 PCIe", 79.6, "H100 PCIe"),
        ("H100 PCIE", None, "H100 PCIe"),
        ("NVIDIA H100 NVL", 93.6, "H100 NVL"),
        ("NVIDIA H200", 140.4, "H200 SXM"),
        ("H200 NVL", 140.4, "H200 NVL"),
        ("NVIDIA B200", 178.4, "B200"),
        ("NVIDIA B300 SXM6 AC", 268.6, "B300"),
        ("NVIDIA GB10", 119.6, "GB10"),
    ],
)
def test_spellings(spelling: str, memory: float | None, name: str) -> None:
    card = find_card(spelling, memory)
    assert card is not None and card.name == name
    assert memory is None or abs(card.memory_gib - memory) <= 0.1 * card.memory_gib


def test_memory_tells_variants_apart() -> None:
    for name, sizes in {
        "NVIDIA GeForce RTX 3060": (8, 12),
        "RTX 3080": (10, 12),
        "RTX 4060 Ti": (8, 16),
        "RTX 5060 Ti": (8, 16),
        "A100 SXM4": (40, 80),
        "A100 PCIE": (40, 80),
    }.items():
        assert tuple(card.memory_gib for card in cards_named(name)) == sizes
        assert find_card(name) is None
        for size in sizes:
            card = find_card(name, size * 0.97)
            assert card is not None and card.memory_gib == size


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("NVIDIA GeForce GTX 1080 Ti", 11.0),
        ("Tesla V100-SXM2-16GB", 16.0),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.8),
        ("NVIDIA GeForce RTX 4090", 48.0),
        ("RTX 3090 Ti Super", None),
        ("", None),
    ],
)
def test_what_is_not_in_the_table_is_not_guessed(name: str, memory: float | None) -> None:
    assert find_card(name, memory) is None


def test_numbers_are_plausible() -> None:
    for card in CARDS:
        assert card.capability in (80, 86, 89, 90, 100, 103, 120, 121), card
        assert card.architecture == f"sm_{card.capability}"
        assert 8 <= card.memory_gib <= 288, card
        assert card.bandwidth is None or 200 <= card.bandwidth <= 8000, card
        assert card.bf16_tflops is None or 20 <= card.bf16_tflops <= 2500, card
    assert len({(card.name, card.memory_gib) for card in CARDS}) == len(CARDS)


def test_geforce_rates_are_half_of_those_of_their_workstation_twins() -> None:
    """The same chip with about as many units: the table must not mix the two ways of counting."""
    for geforce, workstation in (
        (("RTX 3090", 24), "RTX A6000"),
        (("RTX 4090", 24), "RTX 6000 Ada"),
        (("RTX 5090", 32), "RTX PRO 6000 Workstation"),
    ):
        half, whole = find_card(*geforce), find_card(workstation)
        assert half is not None and whole is not None
        assert half.bf16_tflops is not None and whole.bf16_tflops is not None
        assert 0.4 < half.bf16_tflops / whole.bf16_tflops < 0.55


def test_fp8_is_twice_bf16_where_there_is_any() -> None:
    rates = {card.name: card.fp8_tflops for card in CARDS}
    assert rates["RTX 4090"] == 330.4 and rates["H200 SXM"] == 1978.8 and rates["B200"] == 4500
    assert rates["A100 SXM4"] is None and rates["RTX 3090"] is None and rates["A10G"] is None


@pytest.mark.parametrize(
    ("name", "shown"), [("RTX 4090", 23.6), ("RTX 5090", 31.4), ("H100 SXM", 79.1)]
)
def test_usable_memory_is_no_more_than_drivers_show(name: str, shown: float) -> None:
    """What torch counted on such cards, in GiB."""
    card = find_card(name)
    assert card is not None
    assert 0.95 * shown <= card.usable_bytes / 2**30 <= shown - 0.4


def test_a_family_is_meant_by_its_bare_name() -> None:
    assert {card.name for card in cards_named("a100")} == {"A100 PCIe", "A100 SXM4"}
    assert {card.name for card in cards_named("NVIDIA H100")} == {"H100 PCIe", "H100 SXM"}
    assert [card.memory_gib for card in cards_named("rtx4060ti")] == [8, 16]


def test_no_torch_is_needed() -> None:
    import subprocess
    import sys

    code = "import sys, ninfer.cards; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
