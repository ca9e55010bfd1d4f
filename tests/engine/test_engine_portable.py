"""The engine over re-tiled weights and interpreted kernels: how weights are bound, and same ids."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.engine import engine as engine_module
from ninfer.errors import UsageError
from ninfer.ops import dispatch
from ninfer.ops.linear.fragment_order import FragmentMatrix
from ninfer.request import ContentPart, Conversation, GenerationResult, Message, TemplateOptions


@pytest.fixture
def portable(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Makes engines that load afterwards take what a card of sm_90 would."""

    def choose(device: object, backend: str) -> str:
        dispatch.set_backend("triton", 90)
        return "triton"

    yield lambda: monkeypatch.setattr(engine_module, "choose_forms", choose)
    dispatch.set_backend("reference")


def options(path: Path) -> EngineOptions:
    return EngineOptions(artifact=path, weights="packed", device="cpu", max_context=128)


def test_weights_are_bound_in_fragment_order(portable, micro_artifacts: dict[str, Path]):
    portable()
    dense = Engine.load(options(micro_artifacts["dense"]))._model.weights
    for layer in dense.layers:
        gate_up, down = layer.feed_forward.gate_up, layer.feed_forward.down
        assert isinstance(gate_up, FragmentMatrix) and gate_up.paired
        assert isinstance(down, FragmentMatrix) and not down.paired
    assert isinstance(dense.embedding, FragmentMatrix) and not dense.embedding.paired
    moe = Engine.load(options(micro_artifacts["moe"]))._model.weights
    experts = moe.layers[0].feed_forward.experts
    assert isinstance(experts.gate_up, FragmentMatrix) and not experts.gate_up.paired


def answer(path: Path) -> GenerationResult:
    engine = Engine.load(options(path))
    message = Message("user", (ContentPart("text", "hi"),))
    template = TemplateOptions(enable_thinking=False)
    prompt = engine.prepare(Conversation((message,), template=template))
    *_, last = engine.generate(prompt, GenerationOptions(greedy=True, max_new=2))
    assert isinstance(last, GenerationResult)
    return last


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
def test_interpreted_kernels_write_the_reference_ids(
    portable, micro_artifacts: dict[str, Path], record_property
):
    want = answer(micro_artifacts["dense"])
    portable()
    got = answer(micro_artifacts["dense"])
    assert got.token_ids == want.token_ids
    record_property("count", len(got.token_ids))
    record_property("unit", "ids of an engine over interpreted kernels equal to the reference's")


def test_kernels_are_refused_on_the_cpu(micro_artifacts: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="--backend triton: kernels need a CUDA device, not cpu"):
        Engine.load(replace(options(micro_artifacts["dense"]), backend="triton"))
