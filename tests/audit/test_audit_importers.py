"""Files of other tools become responses; what they do not tell stays unknown."""

import json
from pathlib import Path
from typing import Any

import pytest

from ninfer.audit import ResponseFile, StoredResponse, Timings, TokenCounts, judge, read_responses
from ninfer.audit.record import Drafts, Origin, response_of
from ninfer.audit.termination import Ending, ending_of
from ninfer.errors import UsageError

WHOLE = StoredResponse(
    fixture="code",
    text="a\u2028b \ud83d",
    finish_reason="stop",
    category="code",
    mode="mtp3",
    sampling="greedy",
    seed=7632647173703958409,
    request={"messages": [], "max_completion_tokens": 9},
    contract={"kind": "text", "equals": "x"},
    reasoning="hm",
    tool_calls=({"id": "1"},),
    token_ids=(1, 2, 3),
    usage=TokenCounts(1, 3, 1, 0),
    timings=Timings(1.0, 0.5, 0.25, 0.4),
    drafts=Drafts(2, 6, 4, (2, 1, 1)),
    pieces=((0.5, 1), (1.0, 4)),
    origin=Origin("http://x", "tiny", "ninfer", "abc", "cpu"),
    command="ninfer bench corpus",
)


def written(path: Path, *values: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, values)) + "\n", encoding="utf-8")
    return path


def test_a_response_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with ResponseFile(path) as file:
        file.add(WHOLE)
        file.add(StoredResponse("b", "", "length"))
    assert read_responses(path) == [WHOLE, StoredResponse("b", "", "length")]
    assert WHOLE.decode_rate == 2 / 0.4
    with path.open("a", encoding="utf-8") as file:
        file.write('{"schema": 1, "fixture": "cut')
    assert len(read_responses(path)) == 2
    with ResponseFile(path) as again:
        assert list(again.responses) == [WHOLE.key, ("b", "", None, "", "")]
        again.add(StoredResponse("b", "later", "stop"))
    assert [response.text for response in read_responses(path)] == [WHOLE.text, "", "later"]
    with ResponseFile(path) as again:
        assert again.responses["b", "", None, "", ""].text == "later"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "no response of schema 1"),
        ({"schema": 1, "fixture": "a", "text": "b"}, "x.finish_reason: missing"),
        ({"text": 1}, "x.text: 1 must be of type str"),
        ({"seed": True}, "x.seed: True must be of type int"),
        ({"colour": 1}, "x.colour: unknown"),
        ({"token_ids": [1, "2"]}, "x.token_ids: must hold whole numbers only"),
        ({"usage": {"prompt": 1.5}}, "x.usage.prompt: 1.5 must be of type int"),
        ({"usage": 3}, "x.usage: 3 must be an object"),
        ({"pieces": [[1]]}, "x.pieces[0]: [1] must hold 2 values"),
        ({"tool_calls": {}}, "x.tool_calls: {} must be a list"),
    ],
)
def test_damaged_responses_are_refused(values: dict[str, Any], message: str) -> None:
    whole = {"schema": 1, "fixture": "a", "text": "b", "finish_reason": "stop"}
    given = values if "finish_reason" in message or not values else {**whole, **values}
    with pytest.raises(UsageError) as caught:
        response_of(given, "x")
    assert message in str(caught.value)


VLLM = {
    "date": "20260101-000000",
    "backend": "openai-chat",
    "model_id": "Qwen/Qwen3",
    "num_prompts": 3,
    "duration": 2.5,
    "completed": 2,
    "total_output_tokens": 8,
    "input_lens": [10, 11, 12],
    "output_lens": [5, 3, 0],
    "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.01, 0.01, 0.01, 0.01], [0.02, 0.02], []],
    "generated_texts": ["one two three four five", "six", ""],
    "errors": ["", "", "Connection reset"],
}


def test_vllm(tmp_path: Path) -> None:
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(VLLM, indent=1), encoding="utf-8")
    first, second, third = read_responses(path)
    assert first.decode_rate == pytest.approx(100) and first.usage == TokenCounts(10, 5)
    assert first.timings.total == pytest.approx(0.14) and first.pieces[-1][1] == len(first.text)
    assert first.origin.model == "Qwen/Qwen3" and second.case == "1"
    assert ending_of(first) is Ending.NOT_TOLD and judge(first).usable
    assert judge(third).reasons == ("error: Connection reset",)
    path.write_text(json.dumps({**VLLM, "generated_texts": []}), encoding="utf-8")
    with pytest.raises(UsageError, match="--save-detailed"):
        read_responses(path)


LLAMA = {
    "content": "Hello there",
    "stop": True,
    "stop_type": "limit",
    "model": "qwen.gguf",
    "tokens_predicted": 2,
    "tokens_evaluated": 7,
    "generation_settings": {"n_predict": 2, "seed": 42},
    "timings": {
        "prompt_ms": 50.0,
        "predicted_ms": 100.0,
        "draft_n": 10,
        "draft_n_accepted": 4,
        "cache_n": 3,
    },
}
CHAT = {
    "object": "chat.completion",
    "model": "qwen",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "42", "reasoning_content": "6 times 7"},
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 9},
    "timings": {"prompt_ms": 10.0, "predicted_ms": 80.0},
}


def test_llama_cpp_and_bodies_of_the_protocol(tmp_path: Path) -> None:
    path = written(tmp_path / "bodies.jsonl", LLAMA, CHAT)
    first, second = read_responses(path)
    assert ending_of(first) is Ending.LIMIT and first.seed == 42
    assert first.decode_rate == pytest.approx(10) and first.drafts == Drafts(0, 10, 4)
    assert first.usage == TokenCounts(7, 2, None, 3) and first.timings.total == pytest.approx(0.15)
    assert (second.text, second.reasoning, second.fixture) == ("42", "6 times 7", "bodies")
    assert second.decode_rate == pytest.approx(100)
    old = {"content": "x", "tokens_predicted": 1, "stopped_word": True, "stopping_word": "END"}
    (third,) = read_responses(written(tmp_path / "old.json", old))
    assert ending_of(third) is Ending.STOP_STRING


def test_lines_of_a_batch(tmp_path: Path) -> None:
    good = {"custom_id": "q1", "response": {"status_code": 200, "body": CHAT}, "error": None}
    bad = {
        "custom_id": "q2",
        "response": {"status_code": 500, "body": {}},
        "error": {"message": "x"},
    }
    first, second = read_responses(written(tmp_path / "out.jsonl", good, bad))
    assert (first.case, first.text) == ("q1", "42")
    assert judge(second).reasons == ("error: x",)


PREDICTION = {
    "index": 3,
    "model": "tiny",
    "model_output": {
        "model": "tiny",
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": [
                        {"type": "reasoning", "reasoning": "so"},
                        {"type": "text", "text": "B"},
                    ],
                },
                "stop_reason": "stop",
            }
        ],
        "usage": {"input_tokens": 20, "output_tokens": 4, "total_tokens": 24},
        "time": 0.5,
        "error": None,
    },
}
REVIEW = {
    "index": 3,
    "target": "C",
    "sample_score": {
        "score": {
            "value": {"acc": 0.0},
            "extracted_prediction": "B",
            "prediction": "B",
            "main_score_name": "acc",
        }
    },
}


def test_evalscope_folder(tmp_path: Path) -> None:
    for kind, line in (("predictions", PREDICTION), ("reviews", REVIEW)):
        folder = tmp_path / "20260101" / kind / "tiny"
        folder.mkdir(parents=True)
        written(folder / "gpqa_diamond.jsonl", line)
    (found,) = read_responses(tmp_path)
    assert (found.fixture, found.case, found.text, found.reasoning) == (
        "gpqa_diamond",
        "3",
        "B",
        "so",
    )
    assert found.usage == TokenCounts(20, 4) and found.timings.total == 0.5
    verdict = judge(found)
    assert verdict.ending is Ending.NATURAL
    assert verdict.reasons == ("EvalScope graded 'B' as wrong",)
    right = {**REVIEW["sample_score"]["score"], "value": {"acc": 1.0}}
    written(
        tmp_path / "20260101" / "reviews" / "tiny" / "gpqa_diamond.jsonl",
        {"index": 3, "sample_score": {"score": right}},
    )
    assert judge(read_responses(tmp_path)[0]).usable


def test_what_evalscope_1_14_wrote_of_tiny() -> None:
    """Two answers of a real run, as it left them; the marks of its grader are in the reviews."""
    right, wrong = read_responses(Path(__file__).parent / "evalscope_1_14")
    assert (right.fixture, right.case, right.text) == ("general_qa_sums", "0", "900 - 1 = 899")
    assert right.reasoning.startswith("900 - 001\n")
    assert right.usage == TokenCounts(18, 75, 62, 0)
    assert (right.timings.total, right.timings.first) == pytest.approx((29.4402, 1.14003), rel=1e-4)
    assert right.decode_rate == pytest.approx(1 / 0.382434, rel=1e-4)  # its own time per token
    assert judge(right).usable and not judge(wrong).usable
    (reason,) = judge(wrong).reasons
    assert reason.startswith("EvalScope graded 'Speculation checks several guessed tokens")


def test_evalscope_lines_of_version_0(tmp_path: Path) -> None:
    old = {
        "answer_id": "a",
        "index": 0,
        "raw_input": {},
        "choices": [
            {
                "index": 0,
                "finish_reason": "length",
                "message": {"role": "assistant", "content": "x"},
                "review": {"gold": "y", "pred": "x", "result": False},
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    (found,) = read_responses(written(tmp_path / "arc.jsonl", old))
    assert judge(found).reasons == ("ended by output limit", "EvalScope graded 'x' as wrong")


def test_results_of_evals(tmp_path: Path) -> None:
    header = {"schema": 1, "suite": "tiny", "model": "ab", "artifact": "t.ninfer", "ninfer": "0.1"}
    answer = {
        "content": "899",
        "reasoning": "",
        "tool_calls": [],
        "finish_reason": "stop_token",
        "prompt_tokens": 8,
        "reasoning_tokens": 0,
        "token_ids": [1, 2],
        "seconds": 0.25,
    }
    right = {
        "id": "a-0",
        "task": "a",
        "digest": "d",
        "reasons": [],
        "answer": answer,
        "right": True,
    }
    wrong = {**right, "id": "a-1", "reasons": ["898 is not 899"], "right": False}
    first, second = read_responses(written(tmp_path / "r.jsonl", header, right, wrong))
    assert judge(first).usable and first.usage == TokenCounts(8, 2, 0)
    assert judge(second).reasons == ("898 is not 899",)


def test_files_that_are_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is nothing that is read here"):
        read_responses(written(tmp_path / "a.json", {"a": 1}))
    with pytest.raises(UsageError, match="holds no responses"):
        read_responses(written(tmp_path / "b.json"))
    (tmp_path / "c.jsonl").write_text('{"schema": 1}\n{"schema": 2}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"c.jsonl:1.fixture: missing"):
        read_responses(tmp_path / "c.jsonl")
    (tmp_path / "d.jsonl").write_text('{"a": 1}\nnot json\n{"b": 1}\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"d.jsonl:2: not JSON"):
        read_responses(tmp_path / "d.jsonl")
    with pytest.raises(UsageError, match=r"no predictions/MODEL/DATASET.jsonl"):
        read_responses(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        read_responses(tmp_path / "missing")


def test_a_failure_that_was_tried_again_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    failed = StoredResponse("a", "", "error", seed=1, error="503")
    with ResponseFile(path) as file:
        for response in (failed, StoredResponse("a", "x", "stop", seed=1), failed, failed):
            file.add(response)
    assert [response.error for response in read_responses(path)] == [None, "503"]
