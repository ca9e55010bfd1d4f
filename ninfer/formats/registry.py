"""Closed table of the numeric formats that weights and KV caches are stored in; needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from ninfer.errors import FormatError

Kind = Literal["direct", "grouped", "fp4", "fp8"]

# Grouped rows are padded to this many lanes, so that 32- and 64-lane groups share one width.
ROW_LANES: Final = 128


@dataclass(frozen=True, slots=True)
class NumericFormat:
    """What one stored number means, apart from where its bytes lie.

    `bits` is the width of a code. `group` counts the codes along K that share one scale: 0 for
    formats without scales and for formats with one scale a row. `qmin` and `qmax` bound both the
    legal integer codes and the codes that the encoder makes (both 0 for other kinds).
    `bits_per_weight` counts the code and its share of group scales, not padding or row scales.
    """

    name: str
    kind: Kind
    bits: int
    group: int
    qmin: int
    qmax: int
    bits_per_weight: float

    @property
    def base_bytes(self) -> int:
        """Bytes a group takes in the base plane: nibbles, or whole bytes for 8-bit codes."""
        assert self.kind == "grouped", self.name
        return self.group if self.bits == 8 else self.group // 2

    @property
    def high_bits(self) -> int:
        """Bits of a code that do not fit its nibble and lie in the high plane."""
        assert self.kind == "grouped", self.name
        return 0 if self.bits == 8 else self.bits - 4

    @property
    def high_bytes(self) -> int:
        """Bytes a group takes in the high plane."""
        return self.group * self.high_bits // 8

    def groups_per_row(self, width: int) -> int:
        """Groups that hold a row of `width` codes, with padding to a multiple of 128 lanes."""
        assert self.kind == "grouped", self.name
        return -(-width // ROW_LANES) * (ROW_LANES // self.group)

    def legal_codes(self) -> range:
        """Integer codes that a stored object may hold; 0x80 of W8G32_F16S is not among them."""
        assert self.kind == "grouped", self.name
        return range(self.qmin, self.qmax + 1)


def _direct(name: str, bits: int) -> NumericFormat:
    return NumericFormat(name, "direct", bits, 0, 0, 0, float(bits))


def _grouped(name: str, bits: int, group: int, qmin: int) -> NumericFormat:
    qmax = (1 << (bits - 1)) - 1
    return NumericFormat(name, "grouped", bits, group, qmin, qmax, bits + 16 / group)


FORMATS: Final[Mapping[str, NumericFormat]] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            _direct("BF16", 16),
            _direct("FP32", 32),
            _direct("I32", 32),
            _grouped("Q4G64_F16S", 4, 64, -8),
            _grouped("Q5G64_F16S", 5, 64, -16),
            _grouped("Q6G64_F16S", 6, 64, -32),
            _grouped("W8G32_F16S", 8, 32, -127),
            NumericFormat("NVFP4", "fp4", 4, 16, 0, 0, 4.5),
            NumericFormat("FP8_E4M3FN_ROW_BF16S", "fp8", 8, 0, 0, 0, 8.0),
        )
    }
)


def numeric_format(name: str) -> NumericFormat:
    """The format of that name. Raises FormatError for a name outside the table."""
    found = FORMATS.get(name)
    if found is None:
        raise FormatError(f"unknown numeric format {name!r}; known: {', '.join(FORMATS)}")
    return found


@dataclass(frozen=True, slots=True)
class KVFormat:
    """How cached keys and values are stored: bytes of a word, and of the scale of each group.

    `group` counts the numbers along head_dim that share one scale; 0 means no scales. A word holds
    `codes` numbers, the first in its lowest bits.
    """

    name: str
    word_bytes: int
    group: int = 0
    scale_bytes: int = 0
    codes: int = 1

    def words(self, head_dim: int) -> int:
        """Words of one head row. Raises FormatError for a head_dim that does not fill them."""
        if head_dim % self.codes:
            raise FormatError(
                f"KV format {self.name} stores {self.codes} numbers a word: heads of {head_dim} do "
                "not fill them; use int8"
            )
        return head_dim // self.codes

    def scale_groups(self, head_dim: int) -> int:
        """Scales of one head row; a head_dim that the group does not divide has a short group."""
        return -(-head_dim // self.group) if self.group else 0

    def bytes_per_token(self, heads: int, head_dim: int) -> int:
        """Bytes of one token's keys and values together, in one layer."""
        row = (
            self.words(head_dim) * self.word_bytes + self.scale_groups(head_dim) * self.scale_bytes
        )
        return 2 * heads * row


KV_FORMATS: Final[Mapping[str, KVFormat]] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            KVFormat("bf16", 2),
            KVFormat("fp32", 4),
            KVFormat("int8", 1, group=64, scale_bytes=2),
            # One scale for a head row of any published model.
            KVFormat("fp8", 1, group=256, scale_bytes=2),
            KVFormat("int4", 1, group=64, scale_bytes=2, codes=2),
        )
    }
)


def kv_format(name: str) -> KVFormat:
    """The KV format of that name. Raises FormatError for a name outside the table."""
    found = KV_FORMATS.get(name)
    if found is None:
        raise FormatError(f"unknown KV cache format {name!r}; known: {', '.join(KV_FORMATS)}")
    return found
