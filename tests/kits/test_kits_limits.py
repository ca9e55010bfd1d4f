"""A kit's kernels are held to the limits of its cards, by what the compilers report."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer.errors import KitError
from ninfer.kits.launches import models, registered
from ninfer.kits.limits import needs
from ninfer.models.registry import REGISTERED
from ninfer.ops.attention.kit import HEADS as ATTENTION_HEADS
from ninfer.ops.cubin import resources
from ninfer.ops.delta_net.kit import HEADS as DELTA_HEADS
from ninfer.ops.linear.compiler import Program, compile_program


@pytest.fixture(scope="module")
def code() -> bytes:
    return compile_program(Program("read.cu", 86, ()))


@pytest.mark.parametrize(("shared", "fits"), [(99 * 1024, True), (99 * 1024 + 16, False)])
def test_shared_memory_of_a_launch_counts(tmp_path: Path, code: bytes, shared: int, fits: bool):
    (tmp_path / "read.cubin").write_bytes(code)
    (tmp_path / "read.json").write_text(json.dumps({"shared": shared}))
    if fits:
        found = needs(tmp_path, 86)
        (kernel,) = resources(code, "read")
        assert (found.kernels, found.registers) == (1, kernel.registers)
        assert found.shared_bytes == shared + kernel.shared_bytes
        assert found.facts()["most_shared_bytes"] == found.shared_bytes
        return
    with pytest.raises(KitError, match=r"read\.cubin: sm_86 does not have .* of 101376"):
        needs(tmp_path, 86)


def test_a_kernel_that_no_card_can_start_is_named(
    tmp_path: Path, code: bytes, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "read.cubin").write_bytes(code)
    (kernel,) = resources(code, "read")
    wide = replace(kernel, threads=1024, registers=80)
    monkeypatch.setattr("ninfer.kits.limits.resources", lambda *_: [wide])
    with pytest.raises(KitError, match="81920 registers of 65536 a block"):
        needs(tmp_path, 86)


def test_a_folder_without_kernels_is_refused(tmp_path: Path):
    with pytest.raises(KitError, match="holds no compiled kernel"):
        needs(tmp_path, 86)


def test_the_cuda_lists_have_the_heads_of_every_registered_model():
    for config in REGISTERED.values():
        attention, gdn = config.text.attention, config.text.gdn
        group = attention.query_heads // attention.kv_heads
        assert (attention.kv_heads, group) in ATTENTION_HEADS
        assert (gdn.value_heads, gdn.key_heads) in DELTA_HEADS


def test_models_of_the_package_have_a_list_too():
    assert "tiny/groupwise-int" in models()
    config, weights = registered("tiny/groupwise-int")
    assert weights == "groupwise-int" and config.text.hidden < 1024
