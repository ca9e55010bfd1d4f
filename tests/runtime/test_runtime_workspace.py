"""The plan's workspace against the tensors that passes keep alive."""

import pytest
import torch
from peak_memory import PeakBytes

from ninfer.convert.synthetic_model import RandomWeights, synthetic_model
from ninfer.formats import PackedMatrix
from ninfer.models.forward_batch import ForwardBatch
from ninfer.models.qwen3_6 import bind_text, bind_vision, encode_media, recipe_for
from ninfer.ops.tensors import RaggedRows, Weight
from ninfer.runtime import RuntimeConfig, pages_for
from ninfer.runtime.model_runner import ModelRunner
from ninfer.runtime.workspace import PassSizes, encode_bytes, pass_bytes

MODELS = {
    like: RandomWeights(synthetic_model(like, "micro"), "cpu", seed=0)
    for like in ("qwen3.6-27b", "qwen3.6-35b-a3b")
}


def source(weights: RandomWeights, name: str, dtype: torch.dtype) -> Weight:
    stored = weights(name)
    if isinstance(stored, PackedMatrix) or stored.dtype is not torch.bfloat16:
        return stored
    return stored.to(dtype)


def pass_peak(weights: RandomWeights, sizes: PassSizes, dtype: torch.dtype, form: str) -> int:
    """Peak of the last `rows` rows of a prompt that fills the context, run for the second time."""
    config, identity = weights.model.config, weights.model.identity
    places = recipe_for(config, identity.weights_id)
    text = bind_text(lambda name: source(weights, name, dtype), config, places)
    pages = pages_for(sizes.context)
    runtime = RuntimeConfig(torch.device("cpu"), dtype, form, sizes.context, pages, 1, 1024)
    runner = ModelRunner(text, config, runtime)
    positions = torch.arange(sizes.context - sizes.rows, sizes.context)
    batch = ForwardBatch(
        tokens=positions % config.text.addressable,
        positions=positions.expand(3, -1),
        rows=RaggedRows(
            offsets=torch.tensor([0, sizes.rows]),
            kv_lengths=torch.tensor([sizes.context]),
            page_table=torch.arange(pages).unsqueeze(0),
            state_slots=torch.tensor([0]),
        ),
        kv_slots=positions,
        logit_rows=torch.arange(sizes.rows - sizes.logit_rows, sizes.rows),
    )
    runner.run(batch)
    with PeakBytes() as memory:
        runner.run(batch)
    return memory.peak


@pytest.mark.parametrize("like", MODELS)
@pytest.mark.parametrize("form", ["bf16", "int8", "fp8"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("rows", "logit_rows", "context"), [(128, 1, 128), (64, 1, 16_384), (320, 320, 320)]
)
def test_a_pass_stays_within_its_workspace(
    like: str, form: str, dtype: torch.dtype, rows: int, logit_rows: int, context: int
) -> None:
    weights = MODELS[like]
    sizes = PassSizes(rows, logit_rows, context, dtype.itemsize)
    peak = pass_peak(weights, sizes, dtype, form)
    planned = pass_bytes(weights.model.config.text, sizes)
    # The room for decoded blocks of weights is fixed, and large for so small a model.
    assert peak <= planned <= 4 * peak + (16 << 20)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("side", [8, 32, 64])
def test_a_picture_stays_within_its_workspace(dtype: torch.dtype, side: int) -> None:
    weights = MODELS["qwen3.6-27b"]
    config = weights.model.config
    places = recipe_for(config, weights.model.identity.weights_id)
    tower = bind_vision(lambda name: source(weights, name, dtype), config, places)
    assert config.vision is not None
    patches = torch.zeros((side * side, config.vision.patch_row), dtype=torch.uint8)
    with torch.inference_mode(), PeakBytes() as memory:
        encode_media(tower, config.vision, patches, (1, side, side), dtype=dtype)
    planned = encode_bytes(config.vision, side * side, dtype.itemsize)
    assert memory.peak <= planned <= 4 * memory.peak + (16 << 20)


def test_the_meter_counts_what_is_alive_and_new() -> None:
    old = torch.zeros(1000)
    with PeakBytes() as memory:
        old[10:20] += 1
        first = torch.zeros(100)
        view = first[3:]
        del first
        second = view + 1
        del second, view
        torch.ones(50)
    assert memory.peak == 400 + 388
