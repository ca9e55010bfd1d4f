"""The same model out of v1, v2, v3, v3 in parts, and v3 with objects shared differently."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import framing_files
import pytest
import torch

from ninfer.artifact import ModelMap, Part, open_artifact
from ninfer.artifact.migrate import migrate_to_v2, migrate_to_v3
from ninfer.convert import synthesise
from ninfer.engine import Engine, EngineOptions, GenerationOptions
from ninfer.engine.contents import read_contents
from ninfer.engine.loader import LoadedModel, load_model
from ninfer.engine.residency import Residency
from ninfer.errors import ArtifactError, ConfigError, InventoryError, UsageError
from ninfer.models.qwen3_6 import decode, logits
from ninfer.models.qwen3_6.named_source import named_source
from ninfer.request import ContentPart, Conversation, GenerationResult, Message
from ninfer.runtime import RuntimeConfig, pages_for
from ninfer.runtime.batch import Piece, build_batch
from ninfer.runtime.caches import allocate_caches
from ninfer.runtime.sequence import Sequence

KINDS = {
    "dense": "qwen3.6-27b",
    "moe": "qwen3.6-35b-a3b",
    "nvfp4": "qwen3.6-27b/nvfp4",
    "fp8": "qwen3.8-27b/nvfp4",
}
WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "v3": framing_files.write_v3,
    "v3 in parts": lambda source, target: framing_files.write_v3(
        source, target, file_limit=framing_files.PART_LIMIT
    ),
}


def made(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.ninfer"
    synthesise(path, like=KINDS[kind], scale="micro", seed=4)
    return path


@pytest.fixture(scope="module", params=list(KINDS))
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("framings"), request.param)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("framings"), "dense")


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("framings"), "moe")


def loaded(path: Path) -> LoadedModel:
    residency = Residency(torch.device("cpu"), torch.float32, decoded=False)
    return load_model(EngineOptions(path), lambda config: residency, lambda *_: None)


@torch.inference_mode()
def logits_of(model: LoadedModel) -> torch.Tensor:
    """Logits of 70 tokens in one pass: a whole chunk of the recurrence and a rest."""
    runtime = RuntimeConfig(
        device=torch.device("cpu"),
        dtype=torch.float32,
        kv_format="fp32",
        max_context=128,
        pages=pages_for(128),
        state_slots=1,
        prefill_chunk=128,
    )
    tokens = [(7 * i) % 500 for i in range(70)]
    sequence = Sequence(tokens, len(tokens), None, list(range(pages_for(128))), 0)
    batch = build_batch([Piece(sequence, len(tokens), True)], runtime.device)
    caches = allocate_caches(model.config, runtime)
    hidden, _ = decode(model.weights, model.config.text, batch, caches, dtype=torch.float32)
    return logits(model.weights, hidden, torch.arange(len(tokens)))


def payload(path: Path) -> bytes:
    with open_artifact(path) as artifact:
        last = artifact.directory.entries[-1]
        return artifact.payload(0, last.offset + last.bytes)


@pytest.mark.parametrize("write", WRITERS)
def test_framings_give_the_same_logits(source: Path, tmp_path: Path, write: str) -> None:
    target = tmp_path / "a.ninfer"
    WRITERS[write](source, target)
    assert (len(list(tmp_path.iterdir())) > 4) == ("parts" in write)
    expected, found = loaded(source), loaded(target)
    assert found.config.text == expected.config.text
    assert torch.equal(logits_of(found), logits_of(expected))


@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_v1_gives_the_same_logits(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    source = request.getfixturevalue(kind)
    target = tmp_path / "a.ninfer"
    framing_files.write_v1(source, target)
    with open_artifact(target) as artifact:
        assert artifact.framing == 1
    assert torch.equal(logits_of(loaded(target)), logits_of(loaded(source)))


def test_every_parameter_in_an_object_of_its_own(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.ninfer"
    framing_files.write_regrouped(source, target, {})
    expected, found = loaded(source), loaded(target)
    assert len(found.weights.layers[3].mixer.projections.matrices) == 4
    assert (logits_of(found) - logits_of(expected)).abs().max() < 1e-4


def test_projections_fused_in_another_order(moe: Path, tmp_path: Path) -> None:
    """Value above gate, an input norm of its own; experts from the last to the first."""
    attention, routed = "text/layers/3/attention", "text/layers/0/moe/experts"
    parts = [f"{routed}/{e}/{part}" for e in reversed(range(8)) for part in ("up", "gate")]
    groups = {
        "attention": [f"{attention}/{part}" for part in ("value", "gate", "key")],
        "experts": parts,
        "shared": [f"text/layers/{i}/moe/shared/gate" for i in range(4)],
    }
    target = tmp_path / "a.ninfer"
    framing_files.write_regrouped(moe, target, groups)
    expected, found = loaded(moe), loaded(target)
    projections = found.weights.layers[3].mixer.projections
    assert projections.parts == (("query",), ("value", "gate", "key"))
    assert (logits_of(found) - logits_of(expected)).abs().max() < 1e-4


def test_projections_of_two_layers_in_one_object(dense: Path, tmp_path: Path) -> None:
    """Rows of another layer lie between those of this one."""
    names = [f"text/layers/{i}/gdn/{part}" for part in ("query", "key") for i in (0, 1)]
    target = tmp_path / "a.ninfer"
    framing_files.write_regrouped(dense, target, {"both": names})
    expected, found = loaded(dense), loaded(target)
    parts = found.weights.layers[0].mixer.projections.parts
    assert ("query",) in parts and ("key",) in parts
    assert (logits_of(found) - logits_of(expected)).abs().max() < 1e-4


def test_drafters_are_found_by_their_v2_names(source: Path, tmp_path: Path) -> None:
    """Out of a v3 file that fuses nothing."""
    target = tmp_path / "a.ninfer"
    framing_files.write_regrouped(source, target, {})
    with open_artifact(source) as old, open_artifact(target) as new:
        contents = read_contents(new)
        named = named_source(new.tensor, contents.config, contents.table)
        names = [n for n in old.names if n.startswith(("mtp/", "dflash/", "text/draft_head"))]
        assert len(names) > 13
        for name in names:
            expected, found = old.tensor(name), named(name)
            if not isinstance(expected, torch.Tensor):
                assert found.format == expected.format
                expected, found = expected.dequantise(), found.dequantise()
            assert torch.equal(found, expected), name
        holed = {n: p for n, p in contents.table.items() if n != "mtp/layers/0/attention/gate"}
        named = named_source(new.tensor, contents.config, holed)
        with pytest.raises(InventoryError, match="does not hold parameter 'mtp/layers/0/attention"):
            named("mtp/layer/attention/query_key_gate_value")


def test_an_object_is_read_once(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.ninfer"
    framing_files.write_v3(source, target)
    seen: list[tuple[str, int, int]] = []
    residency = Residency(torch.device("cpu"), torch.float32, decoded=False)
    load_model(EngineOptions(target), lambda _: residency, lambda *step: seen.append(step))
    assert len({name for name, _, _ in seen}) == len(seen)
    assert seen[-1][1] == seen[-1][2] > 500_000


def test_generation_from_parts(dense: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.ninfer"
    WRITERS["v3 in parts"](dense, target)
    answers = []
    for path in (dense, target):
        engine = Engine.load(replace(EngineOptions(path), max_context=256, device="cpu"))
        message = Message("user", (ContentPart("text", "What is a part file?"),))
        prompt = engine.prepare(Conversation((message,)))
        events = engine.generate(prompt, GenerationOptions(greedy=True, max_new=16))
        answers.append([e.token_ids for e in events if isinstance(e, GenerationResult)])
    assert answers[0] == answers[1]


def test_migration_keeps_every_payload_byte(dense: Path, tmp_path: Path) -> None:
    """v1 to v2 to v3 to v2."""
    first, second, third, last = (tmp_path / f"{i}.ninfer" for i in range(4))
    framing_files.write_v1(dense, first)
    with open_artifact(first) as artifact:
        migrate_to_v2(artifact, second)
    framing_files.write_v3(second, third, file_limit=framing_files.PART_LIMIT)
    with open_artifact(third) as artifact:
        migrate_to_v2(artifact, last)
    wanted = payload(dense)
    for path in (first, second, third, last):
        assert payload(path) == wanted
    assert second.read_bytes() == last.read_bytes() == dense.read_bytes()


def test_migration_refuses_what_has_no_place(dense: Path, tmp_path: Path) -> None:
    with open_artifact(dense) as artifact:
        model_map = replace(framing_files.mapped(artifact), metadata={"name": "m"})
        migrate_to_v3(artifact, tmp_path / "a.ninfer", model_map)
    with open_artifact(tmp_path / "a.ninfer") as artifact:
        assert str(artifact.identity) == "m"
        with pytest.raises(UsageError, match="names no weights id; give the identity for v2"):
            migrate_to_v2(artifact, tmp_path / "b.ninfer")
    assert not (tmp_path / "b.ninfer").exists()


def changed_map(source: Path, target: Path, change: Callable[[ModelMap], ModelMap]) -> None:
    with open_artifact(source) as artifact:
        migrate_to_v3(artifact, target, change(framing_files.mapped(artifact)))


def with_binding(name: str, *parts: Part) -> Callable[[ModelMap], ModelMap]:
    return lambda found: replace(found, bindings={**found.bindings, name: parts})


def without(name: str) -> Callable[[ModelMap], ModelMap]:
    return lambda found: replace(
        found,
        bindings={key: value for key, value in found.bindings.items() if key != name},
        uses=tuple(use for use in found.uses if use.parameter != name),
    )


ROWS = "text/layers/0/moe/routed_gate_up"
REFUSED = {
    "missing": (without("text/final_norm"), "parameter 'text/final_norm' has no binding"),
    "missing expert": (
        without("text/layers/0/moe/experts/5/up"), "'text/layers/0/moe/experts/5/up' has no bind",
    ),
    "unknown text": (
        with_binding("text/layers/0/extra", Part("text/final_norm")),
        "parameter 'text/layers/0/extra' is not part of this model; nothing may be added",
    ),
    "expert of half its rows": (
        with_binding("text/layers/0/moe/experts/5/up", Part(ROWS, (0, 32 * 128))),
        r"parameter 'text/layers/0/moe/experts/5/up' is bound to 32 rows; expected shape \[64, 128",
    ),
    "expert between rows": (
        with_binding("text/layers/0/moe/experts/5/up", Part(ROWS, (5, 64 * 128 + 5))),
        "'text/layers/0/moe/experts/5/up' is bound to elements 5 to .* not whole rows of 128",
    ),
    "norm in another format": (
        with_binding("text/layers/0/gdn/a_log", Part("text/layers/0/gdn/norm")),
        "parameter 'text/layers/0/gdn/a_log' is stored as BF16 .* expected FP32",
    ),
    "draft head missing": (without("proposal/head"), "parameter 'proposal/head' has no binding"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bindings_of_another_model_are_refused(moe: Path, tmp_path: Path, case: str) -> None:
    change, message = REFUSED[case]
    changed_map(moe, tmp_path / "a.ninfer", change)
    with (
        open_artifact(tmp_path / "a.ninfer") as artifact,
        pytest.raises(InventoryError, match=message),
    ):
        read_contents(artifact)


def test_experts_in_two_formats_are_refused_by_name(moe: Path, tmp_path: Path) -> None:
    name = "text/layers/0/moe/experts/5/up"
    other = Part("text/layers/0/moe/shared_gate_up", (0, 64 * 128))
    changed_map(moe, tmp_path / "a.ninfer", with_binding(name, other))
    with pytest.raises(InventoryError, match=f"parameter '{name}': rows stored as Q4G64_F16S of"):
        loaded(tmp_path / "a.ninfer")


def test_unknown_parameters_elsewhere_are_reported_once_a_component(
    moe: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    norm = (Part("mtp/final_norm"),)

    def change(found: ModelMap) -> ModelMap:
        more = dict.fromkeys(("mtp/a", "mtp/b", "audio/x", "dflash/y", "mtp/hidden_norm"), norm)
        return replace(found, bindings={**found.bindings, **more})

    changed_map(moe, tmp_path / "a.ninfer", change)
    with (
        caplog.at_level(logging.WARNING, logger="ninfer"),
        open_artifact(tmp_path / "a.ninfer") as artifact,
    ):
        contents = read_contents(artifact)
    assert contents.table["mtp/hidden_norm"][0].object == "mtp/final_norm"
    assert sorted(record.getMessage().split(",")[0] for record in caplog.records) == [
        f"{count} parameters of {name!r} are not known to this version of ninfer"
        for count, name in ((1, "audio"), (1, "dflash"), (2, "mtp"))
    ]


def test_an_optional_parameter_that_does_not_fit_is_left_out(
    moe: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed_map(
        moe, tmp_path / "a.ninfer", with_binding("mtp/final_norm", Part("text/layers/0/gdn/a_log"))
    )
    with open_artifact(tmp_path / "a.ninfer") as artifact:
        contents = read_contents(artifact)
    assert "mtp/final_norm" not in contents.table and "mtp/hidden_norm" in contents.table
    assert "parameter 'mtp/final_norm' is stored as FP32" in caplog.text


def test_a_missing_part_is_named(dense: Path, tmp_path: Path) -> None:
    WRITERS["v3 in parts"](dense, tmp_path / "a.ninfer")
    (tmp_path / "a.ninfer.part-0002").unlink()
    with pytest.raises(ArtifactError, match=r"a\.ninfer\.part-0002: no such file; it is part 2"):
        loaded(tmp_path / "a.ninfer")


def test_ids_beyond_the_tokenizer_are_not_addressable(dense: Path, tmp_path: Path) -> None:
    """Configurations of other writers count the rows of the embedding only."""

    def change(found: ModelMap) -> ModelMap:
        text = found.components["text"]
        config = {k: v for k, v in text.config.items() if k != "addressable_vocab_size"}
        return replace(found, components={**found.components, "text": replace(text, config=config)})

    changed_map(dense, tmp_path / "a.ninfer", change)
    assert loaded(tmp_path / "a.ninfer").config == loaded(dense).config


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_hidden_layers": 1000}, "'text' states 8000 layers or experts, but the file binds"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_experts": 10**12}, "num_experts"),
        ({"rope_parameters": {"rope_theta": 10**400}}, "rope_theta must be a positive number"),
    ],
)
def test_sizes_that_no_file_has_are_refused_at_once(
    moe: Path, tmp_path: Path, sizes: dict[str, Any], message: str
) -> None:
    def change(found: ModelMap) -> ModelMap:
        old = found.components["text"]
        rope = {**old.config["rope_parameters"], **sizes.get("rope_parameters", {})}
        new = replace(old, config={**old.config, **sizes, "rope_parameters": rope})
        return replace(found, components={**found.components, "text": new})

    changed_map(moe, tmp_path / "a.ninfer", change)
    with (
        open_artifact(tmp_path / "a.ninfer") as artifact,
        pytest.raises((InventoryError, ConfigError), match=message),
    ):
        read_contents(artifact)
