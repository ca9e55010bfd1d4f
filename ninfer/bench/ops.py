"""Kernels on this card: each is checked, then timed beside the memory rate of the same minute.

Weights are random numbers and no text is computed: these are rates of kernels, not of a model.
"""

from dataclasses import replace
from typing import Final

import torch

from ninfer.bench import attention_case, linear_case, linear_chain, ops_moe
from ninfer.bench.attention_case import Attention
from ninfer.bench.delta_rows import delta_rows
from ninfer.bench.linear_case import PORTABLE, Product
from ninfer.bench.replay import replayed
from ninfer.bench.report import Findings, Row, rate_row, time_row
from ninfer.bench.sampling_case import cuda_rows, sampling_rows
from ninfer.bench.timer import Timing
from ninfer.errors import FormatError, UnsupportedError
from ninfer.ops.attention import fast as fast_attention
from ninfer.ops.linear.compiler import compiler_version
from ninfer.ops.linear.launcher import driver_version
from ninfer.ops.linear.roof import read_all

TERABYTE: Final = 1e12
CUDA: Final = "CUDA"
_ROOF_BYTES: Final = 1 << 31

# Format, rows, columns, token counts.
CASES: Final = (
    ("Q4", 34816, 5120, (1, 8, 16, 64)),
    ("Q5", 34816, 5120, (1, 8, 16)),
    ("Q5", 5120, 17408, (1, 8, 16)),
    ("Q5", 5120, 6144, (1, 8, 16)),
    ("Q6", 248320, 5120, (1, 8)),
    ("W8", 12288, 2048, (1, 8, 16)),
    ("W8", 34816, 5120, (1, 8, 16, 64)),
)
# The portable tier on the shapes where the two are compared.
PORTABLE_CASES: Final = (
    ("Q4", 34816, 5120, (1, 8, 16, 64)),
    ("Q5", 5120, 17408, (1, 8)),
    # The 35B's shared expert by itself: gate and up, then down.
    ("W8", 1024, 2048, (1, 8)),
    ("W8", 2048, 512, (1, 8)),
)
CHAIN_TOKENS: Final = (1, 8)
# KV format, query and KV heads, positions, token counts; heads of 256, as both models have.
ATTENTION_CASES: Final = (
    ("int8", (24, 4), 262144, (1, 4)),
    ("int8", (16, 2), 262144, (1, 4)),
    ("fp8", (24, 4), 262144, (1, 4)),
    ("int8", (24, 4), 8192, (1, 4, 16)),
)
# The same with torch's attention beside it: one row, a verify window, a whole prompt.
BESIDE_TORCH: Final = (("bf16", (24, 4), 1024, (1, 4, 1024)),)


def run() -> Findings:
    """Roofs, products, attention, a layer's chain, DeltaNet, experts, rows and draws, on this card.

    A part whose check fails has no row; it is named among the failures. Raises UnsupportedError
    without a card.
    """
    if not torch.cuda.is_available():
        raise UnsupportedError("bench ops: torch sees no NVIDIA GPU")
    device = torch.device("cuda", torch.cuda.current_device())
    rows = roofs(device)
    read = rows[0].value
    failures: list[str] = []
    cases = [*((*case, "CUDA") for case in CASES), *((*case, PORTABLE) for case in PORTABLE_CASES)]
    for form, height, width, tokens, tier in cases:
        try:
            case = linear_case.product(form, height, width, device, tier=tier)
            rows += product_rows(case, tokens, read)
        except (FormatError, UnsupportedError) as error:
            failures.append(str(error))
    attended = [(*case, False, tier) for case in ATTENTION_CASES for tier in (PORTABLE, CUDA)]
    attended += [(*case, True, PORTABLE) for case in BESIDE_TORCH]
    for form, heads, length, tokens, beside_torch, tier in attended:
        try:
            rows += attention_rows(form, heads, length, tokens, read, device, beside_torch, tier)
        except (FormatError, UnsupportedError) as error:
            failures.append(f"{tier}: {error}")
    for part in (chain_rows, delta_rows, sampling_rows, cuda_rows):
        try:
            rows += part(device, read)
        except (FormatError, UnsupportedError) as error:
            failures.append(str(error))
    more, wrong = ops_moe.all_rows(device, read, rows[1].value)
    rows += more
    failures += wrong
    note = f"random weights, no text; NVRTC {compiler_version()}, driver CUDA {driver_version()}"
    return Findings(rows, note, tuple(failures))


def roofs(device: torch.device) -> list[Row]:
    """Rates of a kernel that only reads and of a copy (bytes read and written), 2 GiB each."""
    source = torch.zeros(_ROOF_BYTES, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    sink = torch.zeros(1, dtype=torch.int32, device=device)
    read = replayed([lambda: read_all(source, sink)])
    copied = replayed([lambda: target.copy_(source)])
    size = {"bytes": _ROOF_BYTES}
    roof = ("memory read", _ROOF_BYTES / TERABYTE / read.median)
    return [
        rate_row("memory read", size, "TB/s", _ROOF_BYTES / TERABYTE, read, roof),
        rate_row("memory copy", size, "TB/s", 2 * _ROOF_BYTES / TERABYTE, copied, roof),
    ]


def product_rows(case: Product, tokens: tuple[int, ...], read: float) -> list[Row]:
    """Check a product, then its rate beside the read roof and its time beside that of one token.

    Raises FormatError when the check fails.
    """
    linear_case.check(case, tokens)
    timings = {count: replayed(case.calls(count)) for count in tokens}
    rows = []
    for count, timing in timings.items():
        name = f"linear {case.form} {case.tier}"
        rows += _rows(name, case, count, timing, timings[tokens[0]], read)
    return rows


def _rows(
    name: str, case: Product, count: int, timing: Timing, first: Timing, read: float
) -> list[Row]:
    height, width = case.matrix.shape
    shape: dict[str, int | str] = {"N": height, "K": width, "T": count}
    size = case.bytes / TERABYTE
    share = {"MB": round(case.bytes / 1e6), "GFLOP": round(case.operations(count) / 1e9)}
    return [
        rate_row(name, {**shape, **share}, "TB/s", size, timing, ("memory read", read)),
        time_row(name, shape, timing, ("T=1", first.median), unit="us"),
    ]


def attention_rows(
    form: str,
    heads: tuple[int, int],
    length: int,
    tokens: tuple[int, ...],
    read: float,
    device: torch.device,
    beside_torch: bool,
    tier: str = PORTABLE,
) -> list[Row]:
    """Check a tier's attention, then its rate beside the read roof, its time beside T = 1's.

    Or beside that of torch's attention.

    Raises FormatError when the check fails.
    """
    case = attention_case.attention(form, heads, 256, length, max(tokens), device)
    if tier == CUDA:
        case = replace(case, attend=fast_attention.paged_attention)
    attention_case.check(case, tokens)
    timings = {count: replayed(case.calls(count)) for count in tokens}
    rows = []
    for count, timing in timings.items():
        reference = ("T=1", timings[tokens[0]].median)
        if beside_torch:
            reference = ("torch SDPA", replayed(case.torch_calls(count)).median)
        rows += _attention_rows(case, count, timing, reference, read, tier)
    return rows


def _attention_rows(
    case: Attention,
    count: int,
    timing: Timing,
    reference: tuple[str, float],
    read: float,
    tier: str,
) -> list[Row]:
    name = f"attention {case.form} {tier}"
    heads = f"{case.heads[0]}/{case.heads[1]}x{case.dim}"
    shape: dict[str, int | str] = {"heads": heads, "positions": case.length, "T": count}
    size = {"MB": round(case.bytes / 1e6), "GFLOP": round(case.operations(count) / 1e9)}
    rate = case.bytes / TERABYTE
    return [
        rate_row(name, {**shape, **size}, "TB/s", rate, timing, ("memory read", read)),
        time_row(name, shape, timing, reference, unit="us"),
    ]


def chain_rows(device: torch.device, read: float) -> list[Row]:
    """The chain of one layer, checked, with dependent launches and without."""
    rows = []
    chain = linear_chain.layer(device)
    for count in CHAIN_TOKENS:
        linear_chain.check(chain, count)
        plain = replayed(chain.calls(count, dependent=False), per=chain.copies)
        early = replayed(chain.calls(count, dependent=True), per=chain.copies)
        shape = {"T": count, "MB": round(chain.bytes / 1e6)}
        size = chain.bytes / TERABYTE
        name = "layer of linears CUDA"
        rows += [
            rate_row(name, shape, "TB/s", size, early, ("memory read", read)),
            time_row(name, shape, early, ("serial launches", plain.median), unit="us"),
        ]
    return rows
