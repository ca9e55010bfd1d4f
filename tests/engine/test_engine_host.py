"""Weights in host memory: the same ids, and a plan that counts every byte where it lies."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from ninfer.artifact import open_artifact
from ninfer.artifact.packaged import locate
from ninfer.engine import Engine, EngineOptions, GenerationOptions, parse_conversation
from ninfer.engine.card_plan import CardPlan, plan_one, target_of
from ninfer.engine.contents import read_contents
from ninfer.engine.options import check_engine
from ninfer.engine.plan import EMBEDDING
from ninfer.engine.speculation import drafter_prefixes
from ninfer.errors import UsageError
from ninfer.models.qwen3_6 import vision_weights
from ninfer.models.qwen3_6.proposal import full_head
from ninfer.ops import embed
from ninfer.ops.embedding import reference
from ninfer.ops.tensors import HostTable, PagedKV

LOOK = {"vision": True, "host_vision": True}


def load(path: Path, **changes: Any) -> Engine:
    return Engine.load(EngineOptions(path, device="cpu", max_context=512, **changes))


def answers(engine: Engine, *, picture: bool = False) -> list[Sequence[int]]:
    """Ids of a greedy and of a sampled answer."""
    parts: list[dict[str, object]] = [{"type": "text", "text": "Name what you see here: "}]
    if picture:
        buffer = io.BytesIO()
        values = torch.randint(0, 255, (64, 96, 3), generator=torch.Generator().manual_seed(3))
        Image.fromarray(values.to(torch.uint8).numpy()).save(buffer, "PNG")
        url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
        parts.append({"type": "image_url", "image_url": {"url": url}})
    prompt = engine.prepare(parse_conversation([{"role": "user", "content": parts}]))
    wanted = (
        GenerationOptions(max_new=12, greedy=True),
        GenerationOptions(max_new=12, temperature=1.0, seed=5),
    )
    return [list(engine.generate(prompt, one))[-1].token_ids for one in wanted]


@pytest.mark.parametrize("spec", [None, "mtp", "dflash"])
def test_a_table_in_host_memory_gives_the_same_ids(
    micro_artifacts: dict[str, Path], spec: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "moe" if spec == "dflash" else "dense"
    asked: dict[str, Any] = {"spec": spec, "weights": "packed"}
    near = answers(load(micro_artifacts[kind], **asked))
    engine = load(micro_artifacts[kind], **asked, host_embeddings=True)
    assert isinstance(engine._model.weights.embedding, HostTable)
    tables = []
    original = reference.embed

    def spy(ids: torch.Tensor, table: Any, *, dtype: torch.dtype) -> torch.Tensor:
        tables.append(table)
        return original(ids, table, dtype=dtype)

    monkeypatch.setattr(reference, "embed", spy)
    assert answers(engine) == near
    stored = engine._model.weights.embedding.stored
    assert len(tables) > 12 and all(table is stored for table in tables)


def test_a_host_table_gives_the_rows_of_the_table() -> None:
    table, ids = torch.randn(40, 12), torch.tensor([4, 0, 39, 4])
    found = embed(ids, HostTable(table), dtype=torch.bfloat16)
    assert torch.equal(found, embed(ids, table, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="embed: ids"):
        embed(ids.to(torch.int32), HostTable(table), dtype=torch.float32)


def test_a_tower_in_host_memory_comes_part_by_part_and_gives_the_same_ids(
    micro_artifacts: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    near = answers(load(micro_artifacts["dense"], vision=True), picture=True)
    engine = load(micro_artifacts["dense"], **LOOK)
    moved: list[object] = []
    original = vision_weights._moved

    def spy(part: Any, device: torch.device) -> Any:
        moved.append(part)
        return original(part, device)

    monkeypatch.setattr(vision_weights, "_moved", spy)
    assert answers(engine, picture=True) == near
    tower = engine._model.vision
    assert tower is not None
    blocks = [part for part in moved if isinstance(part, vision_weights.VisionBlockWeights)]
    # Once for each answer.
    assert [id(block) for block in blocks] == [id(block) for block in 2 * tower.blocks]


def test_rounds_need_the_table_on_the_device(micro_artifacts: dict[str, Path]) -> None:
    assert load(micro_artifacts["dense"])._runtime.rounds is not None
    assert load(micro_artifacts["dense"], host_embeddings=True)._runtime.rounds is None


def test_a_tower_that_is_not_loaded_cannot_be_in_host_memory() -> None:
    with pytest.raises(UsageError, match="--host-vision: needs --vision"):
        check_engine(EngineOptions(Path("a.ninfer"), host_vision=True))


def planned_file(options: EngineOptions, memory: int | None = None) -> CardPlan:
    """The plan of a file that is not loaded."""
    return plan_one(options, target_of(options, None, memory), None)


def held(part: object) -> int:
    """Bytes of all weights below a view."""
    if isinstance(part, torch.Tensor) or hasattr(part, "nbytes"):
        return part.nbytes
    if isinstance(part, tuple):
        return sum(map(held, part))
    if is_dataclass(part):
        # What a block drafter calls its context are views of its projections.
        names = [item.name for item in fields(part) if item.name != "context"]
        return sum(held(getattr(part, name)) for name in names)
    return 0


CHOICES: list[dict[str, Any]] = [
    {},
    {"spec": "lookup", "state_dtype": "bf16"},
    {"host_embeddings": True},
    {"vision": True, "kv_dtype": "int8"},
    {**LOOK, "host_embeddings": True, "spec": "mtp"},
    {"spec": "mtp", "lm_head_draft": True, "kv_dtype": "fp8", "max_concurrency": 3},
    {"spec": "dflash", "host_embeddings": True},
]


@pytest.mark.parametrize("weights", ["packed", "decoded"])
@pytest.mark.parametrize("choice", CHOICES, ids=lambda one: "+".join(one) or "none")
@pytest.mark.parametrize("kind", ["tiny", "dense", "moe"])
def test_the_plan_counts_what_the_engine_holds(
    micro_artifacts: dict[str, Path], kind: str, choice: dict[str, Any], weights: str
) -> None:
    """Planner row 4 of the issue: bytes by part are those of the tensors, exactly."""
    path = locate(Path("tiny")) if kind == "tiny" else micro_artifacts[kind]
    options = EngineOptions(path, device="cpu", max_context=512, weights=weights, **choice)
    if choice.get("spec") == "dflash" and kind != "moe":
        with pytest.raises(UsageError, match="--spec dflash: the drafters"):
            planned_file(options)
        return
    plan = planned_file(options).plan
    engine, parts = Engine.load(options), plan.memory.parts
    model = engine._model
    planned = {name: size for name, size in parts.items() if name.endswith("weights")}
    text, vision = held(model.weights), held(model.vision)
    host = 0
    if options.host_embeddings:
        host += held(model.weights.embedding.stored)
        text -= host
    if options.host_vision:
        host += vision
        vision = planned.pop("vision weights")  # of one part at a time
        assert 0 < vision < host
    drafter = held(model.drafter)
    assert plan.memory.host == host
    padding = padding_of(path, options) if weights == "packed" else 0
    found = text + drafter + (0 if options.host_vision else vision)
    assert sum(planned.values()) == found + padding
    whole = model.drafter is not None and model.drafter.head is None
    ids = full_head(model.weights.head, model.config.text.addressable).token_ids.nbytes
    assert parts.get("draft ids", 0) == (ids if whole else 0)
    caches = engine._runtime._runner.caches
    assert parts["state slots"] == tensors(caches.gdn)
    pages = tensors(caches.attention) + sum(tensors(one) for one in drafter_pages(engine))
    assert parts["KV pages"] == pages


def padding_of(path: Path, options: EngineOptions) -> int:
    """Bytes between planes of the objects that the options load, which no tensor holds."""
    with open_artifact(path) as artifact:
        table = read_contents(artifact).table
        prefixes = ("text/", *drafter_prefixes(options))
        if options.vision and not options.host_vision:
            prefixes += ("vision/",)
        kept = {EMBEDDING} if options.host_embeddings else set()
        names = {
            piece.object
            for name, pieces in table.items()
            if name.startswith(prefixes) and name not in kept
            for piece in pieces
        }
        return sum(artifact.entry(name).bytes - artifact.tensor(name).nbytes for name in names)


def drafter_pages(engine: Engine) -> Iterator[PagedKV]:
    """KV pages that the proposer holds."""
    waiting: list[object] = [engine._runtime.speculation]
    while waiting:
        item = waiting.pop()
        if isinstance(item, PagedKV):
            yield item
        elif isinstance(item, tuple | list):
            waiting += item
        elif type(item).__module__.startswith("ninfer.runtime.speculative"):
            slots = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(item, name) for name in slots] or list(vars(item).values())


def tensors(item: object) -> int:
    """Bytes of all tensors but counters and indices, of which all layers share one."""
    if isinstance(item, torch.Tensor):
        return 0 if item.dtype in (torch.int64, torch.int32) else item.nbytes
    if isinstance(item, dict):
        return sum(map(tensors, item.values()))
    if is_dataclass(item):
        return sum(tensors(getattr(item, part.name)) for part in fields(item))
    return 0
