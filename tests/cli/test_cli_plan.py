"""`ninfer plan`: the table, the JSON object and the exit status."""

import json
from pathlib import Path

import pytest

from ninfer.artifact.published import ALIASES
from ninfer.bench.artifact import IDENTITY, write_sparse
from ninfer.cli import main
from ninfer.engine.registered import full_directory


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with the directory of the 27B and a hole for its payload."""
    path = tmp_path_factory.mktemp("plan") / "27b.ninfer"
    write_sparse(path, full_directory(IDENTITY))
    return str(path)


def test_a_plan_that_fits(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device-memory", "32GiB", "--max-context", "131072", "--kv-dtype", "int8"]
    assert main(["plan", dense, *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "model    qwen3.6-27b/groupwise-int"
    assert "131,072 tokens as int8: 2,048 pages of 2,162,688 bytes" in lines[2]
    table = {
        line[:18].rstrip(): int(line[18:37].replace(",", "")) for line in lines if " GiB" in line
    }
    assert table["KV pages"] == 2048 * 2_162_688
    assert (table.pop("free now"), table.pop("stays free")) == (32 << 30, 1 << 30)
    assert table.pop("needed") == sum(table.values())
    assert lines[-1].startswith("fits: ")


def test_the_json_object_has_the_same_numbers(
    dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """K4: what gave way is a field of its own, beside what was wanted."""
    arguments = ["--device-memory", "24GiB", "--max-context", "65536", "--max-concurrency", "8"]
    assert main(["plan", dense, *arguments, "--kv-dtype", "int8", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["fits"] and plan["missing"] == 0 and plan["would_fit"] == []
    assert sum(plan["parts"].values()) == plan["needed"]
    assert plan["memory"] == plan["needed"] + plan["margin"] + plan["left"]
    kv = plan["kv"]
    assert 65_536 <= kv["tokens"] < kv["tokens_wanted"] == 8 * 65_536
    assert plan["gave_way"].startswith(f"--kv-capacity auto: {kv['tokens']:,} tokens in place")
    assert kv["page_bytes"] > plan["left"], "one page more would fit"


def test_a_plan_that_misses_says_by_how_much_and_what_would_fit(
    dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """K7: eight sequences of full length on 32 GiB, answered from the directory."""
    arguments = ["--max-context", "262144", "--max-concurrency", "8", "--kv-capacity", "2097152"]
    assert main(["plan", dense, "--device-memory", "32GiB", *arguments, "--json"]) == 1
    plan = json.loads(capsys.readouterr().out)
    assert plan["missing"] == plan["needed"] + plan["margin"] - (32 << 30) > 0
    assert plan["would_fit"]
    assert main(["plan", dense, "--device-memory", "32GiB", *arguments]) == 1
    out = capsys.readouterr().out
    assert f"{plan['missing']:,} bytes are missing" in out
    assert [line for line in out.splitlines() if line.startswith("would fit: ")] == [
        f"would fit: {text}" for text in plan["would_fit"]
    ]


def test_what_this_version_cannot_run_yet_can_be_planned(
    dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {}
    for extra in ((), ("--vision",), ("--spec", "mtp", "--lm-head-draft")):
        assert main(["plan", dense, "--device-memory", "48GB", *extra, "--json"]) == 0
        sizes[extra] = json.loads(capsys.readouterr().out)["parts"]
    assert sizes["--vision",].keys() - sizes[()].keys() == {"vision weights"}
    drafting = sizes["--spec", "mtp", "--lm-head-draft"]
    assert drafting.keys() - sizes[()].keys() == {"MTP weights", "draft head weights"}
    assert drafting["KV pages"] * 16 == sizes[()]["KV pages"] * 17


def test_all_artifacts_on_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--card", "rtx3090"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out.startswith("device   RTX 3090 of 24 GiB: ")
    assert "int-27b: " in out and "moe-35b: " in out and "gave way: --max-context " in out
    assert "tok/s are an estimate, not a measurement" in out
    assert main(["plan", "--card", "rtx3090", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {plan["artifact"] for plan in found["plans"]} == set(ALIASES)
    for plan in found["plans"]:
        assert plan["fits"] and sum(plan["parts"].values()) == plan["needed"]
        assert 0 < plan["estimate"]["one"] < plan["estimate"]["bound"]
        assert all(item["missing"] > 0 for item in plan["given_up"])
    assert main(["plan", "--card", "RTX 3060", "--device-memory", "11GiB"]) == 1
    assert capsys.readouterr().out.count("does not fit: ") == len(ALIASES)


def test_one_artifact_by_its_alias(capsys: pytest.CaptureFixture[str]) -> None:
    """What is given is planned as it is; with --auto the rest is chosen, to the same end."""
    assert main(["plan", "int-27b", "--card", "rtx4090", "--auto", "--vision", "--json"]) == 0
    chosen = json.loads(capsys.readouterr().out)
    assert chosen["options"]["vision"] and chosen["options"]["kv_dtype"] == "int8"
    again = ["--max-context", str(chosen["max_context"]), "--kv-dtype", "int8", "--vision"]
    again += ["--max-concurrency", str(chosen["max_concurrency"]), "--spec", "mtp", "--json"]
    assert main(["plan", "int-27b", "--card", "rtx4090", *again]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert (plain["parts"], plain["given_up"]) == (chosen["parts"], [])
    assert main(["plan", "int-27b", "--card", "rtx4090", "--vision"]) == 0
    text = capsys.readouterr().out
    assert (
        text.startswith("device   RTX 4090 of 24 GiB\nmodel    qwen3.6-27b") and "estimate" in text
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device-memory", "lots"], "--device-memory 'lots': must be a size such as 24GiB"),
        (["--device-memory", "24GiB", "--kv-dtype", "nvfp4"], "--kv-dtype nvfp4: not available"),
        (["--device-memory", "24GiB", "--spec", "dflash2"], "--spec dflash2: the drafters"),
        (["--device-memory", "24GiB", "--max-context", "0"], "--max-context 0: must be positive"),
        (["--card", "rtx1"], "--card rtx1: not in the table of cards"),
        (["--max-concurrency", "65"], "--max-concurrency 65: must be 1..64"),
    ],
)
def test_a_bad_option_is_one_line(
    dense: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", dense, *arguments]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err


def test_a_file_that_is_no_artifact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.ninfer"
    path.write_bytes(b"no artifact")
    assert main(["plan", str(path)]) == 1
    assert capsys.readouterr().err.startswith("ninfer: error: ")
