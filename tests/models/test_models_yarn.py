"""A context stretched by YaRN: as transformers has it, in the decoder and in MTP alike."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hf_model import ROPE, TEXT, our_config
from transformers import Qwen3_5TextConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ninfer import ops
from ninfer.models.config import AttentionSizes, ModelConfig, TextConfig, stretched
from ninfer.models.forward_batch import ForwardBatch
from ninfer.models.qwen3_6.attention import attention_mixer
from ninfer.models.qwen3_6.weights import AttentionWeights, FusedProjection
from ninfer.ops.rope.yarn import magnitude
from ninfer.ops.tensors import PagedKV, RaggedRows

YARN = {
    **ROPE,
    "rope_type": "yarn",
    "factor": 2.0,
    "original_max_position_embeddings": TEXT["max_position_embeddings"],
}


def test_a_factor_of_one_changes_nothing() -> None:
    config = our_config(moe=False)
    assert stretched(config, None) is config and stretched(config, 1.0) is config
    x, positions = torch.randn(3, 2, 64), torch.randint(0, 9999, (3, 3))
    plain = ops.mrope(x, positions, theta=1e7, rotary_dim=16)
    assert torch.equal(
        ops.mrope(x, positions, theta=1e7, rotary_dim=16, factor=1.0, native=77), plain
    )


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
@pytest.mark.parametrize(("head", "native"), [(256, 262_144), (64, 4096)])
def test_frequencies_are_those_of_transformers(factor: float, head: int, native: int) -> None:
    """Read off the rotation itself, at positions where an error would have grown."""
    fields = {
        **TEXT,
        "head_dim": head,
        "max_position_embeddings": native,
        "rope_parameters": {
            **YARN,
            "factor": factor,
            "original_max_position_embeddings": native,
        },
    }
    wanted, scale = ROPE_INIT_FUNCTIONS["yarn"](Qwen3_5TextConfig(**fields), "cpu")
    rotary = head // 4
    x = torch.zeros(1, 1, head, dtype=torch.float64)
    x[..., : rotary // 2] = 1.0
    for position in (1, 1000, round(factor * native) - 1):
        turned = ops.mrope(
            x,
            torch.full((3, 1), position),
            theta=1e7,
            rotary_dim=rotary,
            factor=factor,
            native=native,
        )[0, 0]
        pairs = torch.complex(turned[: rotary // 2], turned[rotary // 2 : rotary])
        assert magnitude(factor) == pytest.approx(scale)
        angle = position * wanted.double()
        error = (pairs - scale * torch.polar(torch.ones_like(angle), angle)).abs()
        # Theirs are float32 frequencies.
        assert error.max() < 2e-7 * position + 1e-6


def stretched_config() -> ModelConfig:
    return stretched(our_config(moe=False), 2.0)


def test_the_config_has_twice_the_context_and_remembers_its_own() -> None:
    config, plain = stretched_config(), our_config(moe=False)
    assert config.text.context == 2 * plain.text.context
    assert config.text.attention.native == plain.text.context
    assert config.text.attention.rope_factor == 2.0
    back = replace(config.text.attention, rope_factor=1.0, native=1)
    assert back == plain.text.attention


# The scaled model of the needle: one attention layer of Qwen's proportions, context of the 27B.
HEAD, ROTARY, HIDDEN, NATIVE = 128, 32, 256, 262_144
LENGTH, PAGE = 400_000, 64
# The needle, and rows that look like it from elsewhere: only rotation tells them apart.
NEEDLES = (200_001, 3, 65_536, 131_071, 262_143, 262_144, 399_800)


def turned(x: torch.Tensor, first: int, inverse: torch.Tensor, scale: float) -> torch.Tensor:
    """Rows [T, D] at positions from `first` on, rotated by complex numbers in float64."""
    position = torch.arange(first, first + x.shape[0], dtype=torch.float64)
    turn = scale * torch.polar(torch.ones(1, dtype=torch.float64), position[:, None] * inverse)
    half = ROTARY // 2
    pairs = torch.complex(x[:, :half].double(), x[:, half:ROTARY].double()) * turn
    return torch.cat([pairs.real, pairs.imag, x[:, ROTARY:].double()], dim=-1)


def exact_frequencies(factor: float) -> tuple[torch.Tensor, float]:
    """YaRN by its paper, in Python's float64: those of transformers are float32, which at 400,000
    tokens is an angle of a fiftieth."""
    found = []
    for pair in range(ROTARY // 2):
        plain = 1e7 ** (-2 * pair / ROTARY)

        def where(turns: float) -> float:
            return ROTARY * math.log(NATIVE / (2 * math.pi * turns)) / (2 * math.log(1e7))

        low, high = math.floor(where(32)), math.ceil(where(1))
        divided = min(max((pair - low) / (high - low), 0.0), 1.0)
        found.append(divided * plain / factor + (1 - divided) * plain)
    return torch.tensor(found, dtype=torch.float64), 1 + 0.1 * math.log(factor)


def normed(x: torch.Tensor, gain: float) -> torch.Tensor:
    x = x.double()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain


def long_text(factor: float) -> TextConfig:
    text = our_config(moe=False).text
    attention = AttentionSizes(2, 1, HEAD, ROTARY, 1e7)
    text = replace(text, hidden=HIDDEN, context=NATIVE, attention=attention)
    return stretched(replace(our_config(moe=False), text=text), factor).text


@pytest.mark.soak
@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_a_needle_at_400k_equals_the_reference(
    factor: float, record_property: Callable[[str, object], None]
) -> None:
    """The mixer writes the needle and reads it 200,000 tokens later; the rest of the cache and the
    expected result are by float64."""
    gain, count = 1.8, 4
    draw = torch.Generator().manual_seed(5)
    rows = torch.randn(LENGTH, HIDDEN, generator=draw)
    query_row = torch.randn(HIDDEN, generator=draw)
    rows[-count:] = query_row + 0.02 * torch.randn(count, HIDDEN, generator=draw)
    key_matrix = torch.randn(HEAD, HIDDEN, generator=draw) * HIDDEN**-0.5
    value_matrix, output = (
        torch.randn(n, m, generator=draw) * m**-0.5 for n, m in ((HEAD, HIDDEN), (HIDDEN, 2 * HEAD))
    )
    asking = torch.randn(HEAD, HIDDEN, generator=draw) * HIDDEN**-0.5
    query_matrix = torch.cat([asking, -asking])
    # Rows whose keys are what is asked for, and whose values all differ.
    answer = torch.linalg.pinv(key_matrix)
    beside = torch.randn(len(NEEDLES), HIDDEN, generator=draw)
    beside -= beside @ (answer @ key_matrix).T
    rows[list(NEEDLES)] = answer @ asking @ query_row + beside
    gate_matrix = torch.randn(2 * HEAD, HIDDEN, generator=draw) * HIDDEN**-0.5
    parts = ("query", "key", "gate", "value")
    matrices = (query_matrix, key_matrix, gate_matrix, value_matrix)
    projection = FusedProjection(
        tuple(matrices), tuple((p,) for p in parts), tuple((m.shape[0],) for m in matrices)
    )
    norm = torch.full((HEAD,), gain - 1.0)
    weights = AttentionWeights(projection, norm, norm, output)
    inverse, scale = exact_frequencies(factor)
    keys = torch.cat(
        [
            turned(normed(part @ key_matrix.T, gain), first, inverse, scale).float()
            for first, part in zip(range(0, LENGTH, 50_000), rows.split(50_000), strict=True)
        ]
    )
    values = rows @ value_matrix.T

    def mixed(text: TextConfig) -> torch.Tensor:
        pages = -(-LENGTH // PAGE)
        cache = PagedKV("fp32", *(torch.zeros(pages, PAGE, 1, HEAD) for _ in range(2)))
        cache.keys.view(-1, HEAD)[:LENGTH], cache.values.view(-1, HEAD)[:LENGTH] = keys, values
        needle = NEEDLES[0]
        for first, stop in ((needle, needle + 1), (LENGTH - count, LENGTH)):
            cache.keys.view(-1, HEAD)[first:stop] = 0
            slots = torch.arange(first, stop)
            ragged = RaggedRows(
                torch.tensor([0, stop - first]),
                torch.tensor([stop]),
                torch.arange(pages)[None],
                torch.zeros(1, dtype=torch.int64),
            )
            batch = ForwardBatch(slots, slots.expand(3, -1), ragged, slots, slots[:0])
            found = attention_mixer(rows[first:stop], weights, text, batch, cache)
        return found

    heads = [
        turned(normed(s * rows[-count:] @ asking.T, gain), LENGTH - count, inverse, scale)
        for s in (1.0, -1.0)
    ]
    parts_of = []
    for head in heads:
        scores = head @ keys.double().T / math.sqrt(HEAD)
        scores[:, -count:] += torch.full((count, count), -math.inf).triu(1)
        share = scores.softmax(-1)
        parts_of.append(share @ values.double())
        if head is heads[0]:
            assert share[0, list(NEEDLES)].sum() > 0.5
    gated = torch.cat(parts_of, -1) * torch.sigmoid((rows[-count:] @ gate_matrix.T).double())
    wanted = gated @ output.double().T
    error = (mixed(long_text(factor)) - wanted).abs().max() / wanted.abs().max()
    assert error < 2e-4, error
    # Or it would not matter how the needle and the question are turned.
    assert (mixed(long_text(1.0)) - wanted).abs().max() / wanted.abs().max() > 1e-2
    record_property("count", 1)
    record_property("unit", "needles at 400,000 tokens in a context stretched by YaRN")
