"""Compiled kernels: names by content, a folder that is believed, every kernel for every card."""

from pathlib import Path

import pytest

from ninfer.errors import UnsupportedError
from ninfer.ops.linear import compiler
from ninfer.ops.linear.compiler import Program, binary, compile_program
from ninfer.ops.linear.fast_plan import ARCHITECTURES
from ninfer.ops.linear.kit import compile_kit, programs

READ = Program.of("read.cu", 90, {})


def test_names_tell_contents_apart(monkeypatch: pytest.MonkeyPatch):
    one = Program.of("wide.cu", 90, {"BITS": 4, "STAGES": 3})
    assert one.name == Program.of("wide.cu", 90, {"STAGES": 3, "BITS": 4}).name
    others = [
        Program.of("wide.cu", 86, {"BITS": 4, "STAGES": 3}),
        Program.of("wide.cu", 90, {"BITS": 5, "STAGES": 3}),
        Program.of("stream.cu", 90, {"BITS": 4, "STAGES": 3}),
    ]
    assert len({one.name, *(other.name for other in others)}) == 4
    before = one.name
    monkeypatch.setattr(compiler, "source_text", lambda name: b"another text")
    assert one.name != before


def test_a_compiled_kernel_is_kept_and_then_believed(tmp_path: Path, monkeypatch):
    code = binary(READ, tmp_path / "new")
    assert code[:4] == b"\x7fELF"
    assert [path.name for path in (tmp_path / "new").iterdir()] == [READ.name]
    monkeypatch.setattr(compiler, "compile_program", lambda program: pytest.fail("compiled"))
    assert binary(READ, tmp_path / "new") == code
    monkeypatch.setenv("NINFER_KERNELS", str(tmp_path / "new"))
    assert binary(READ) == code


def test_a_folder_that_cannot_be_written_to_costs_only_time(tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert binary(READ, file)[:4] == b"\x7fELF"


def test_an_unknown_architecture_is_refused_with_its_name():
    with pytest.raises(UnsupportedError, match=r"read\.cu for sm_55"):
        compile_program(Program.of("read.cu", 55, {}))


def test_what_does_not_compile_is_refused_with_the_compilers_words():
    with pytest.raises(UnsupportedError, match=r"wide\.cu for sm_90.*BITS"):
        compile_program(Program.of("wide.cu", 90, {}))


def test_without_the_library_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch):
    def absent(*_):
        raise RuntimeError("no libnvrtc\nanywhere")

    monkeypatch.setattr(compiler.nvrtc, "nvrtcCreateProgram", absent)
    with pytest.raises(UnsupportedError, match=r"no libnvrtc anywhere.*ninfer\[cuda\]"):
        compile_program(READ)


@pytest.mark.parametrize(("architecture", "many"), [(80, "ROW_WARPS"), (90, "ROW_GROUPS")])
def test_the_kit_of_an_architecture_has_every_format_and_token_range(architecture: int, many: str):
    found = programs(architecture)
    assert len(found) == len(set(found))
    # Experts and draws in one launch are Hopper's.
    families = {p.source.rpartition("/")[0] for p in found}
    everywhere = {"", "attention", "delta_net"}
    assert families == everywhere | ({"moe", "sampling"} if architecture == 90 else set())
    # What arranges activations goes with products of warpgroups.
    arranged = {dict(p.defines)["TOKENS"] for p in found if p.source == "arrange.cu"}
    assert arranged == ({32, 64} if architecture == 90 else set())
    for bits in (4, 5, 6, 8):
        mine = [dict(p.defines) for p in found if dict(p.defines).get("BITS") == bits]
        assert {d["TOKEN_TILES"] for d in mine if "WARPS" in d} == {1, 2}
        assert {d["TOKEN_TILES"] for d in mine if many in d} == {4, 8}


@pytest.mark.e2e
@pytest.mark.timeout(600)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_part_of_the_kernels_compiles_for_each_architecture(architecture: int, tmp_path: Path):
    """Each architecture another part, so that together they are of all families."""
    first = ARCHITECTURES.index(architecture) * 5
    for program in programs(architecture)[first::30]:
        assert binary(program, tmp_path)[:4] == b"\x7fELF"


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles_for_every_architecture(architecture: int, tmp_path: Path):
    wanted = programs(architecture)
    assert compile_kit(architecture, tmp_path) == len(wanted)
    assert {path.name for path in tmp_path.iterdir()} == {program.name for program in wanted}
    assert compile_kit(architecture, tmp_path) == 0
