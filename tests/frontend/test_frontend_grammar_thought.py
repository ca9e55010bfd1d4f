"""Constraints behind thoughts and along drafts: free until closed, exact after any rollback."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from grammar_walks import PLAIN, THINKING, accepts, allowed_ids, takes

from ninfer.convert.byte_tokenizer import build_tokenizer
from ninfer.frontend import Frontend, OutputParser
from ninfer.frontend.grammar.vocabulary import CLOSED, thought_depth
from ninfer.request import (
    ChoiceSpec,
    GrammarSpec,
    JsonObjectSpec,
    JsonSchemaSpec,
    RegexSpec,
    StopRules,
    ToolCallSpec,
    ToolRule,
)

TOOL = ToolRule(
    "w",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["days"],
    },
)
SPECS = (
    JsonObjectSpec(),
    JsonSchemaSpec({"type": "array", "items": {"enum": ["a", "ab", 1]}}),
    RegexSpec("(the|an)+ [0-9]{3}"),
    ChoiceSpec(("a", "ab", "the number")),
    GrammarSpec('root ::= "(" root ")" | "x"'),
    ToolCallSpec((TOOL, ToolRule("now")), required=True),
    ToolCallSpec((TOOL, ToolRule("now")), parallel=False),
)


def test_h2_the_thought_is_free_and_the_answer_is_content(frontend):
    """Everything but the end of the turn may come before the closing tag; JSON only behind it."""
    constraint = frontend.new_constraint(THINKING, JsonObjectSpec())
    everything = set(range(frontend.tokenizer.addressable))
    thought = "Should I write [1, 2]? <think> No: {\n\n</tool_call> "
    ids = frontend.tokenizer.encode(thought)
    for index in ids:
        assert set(allowed_ids(constraint)) == everything - set(frontend.stop_ids)
        assert constraint.advance(index)
    rest = frontend.tokenizer.encode("</think>\n\n") + frontend.tokenizer.encode("{")
    for index in rest:
        assert index in allowed_ids(constraint)
        assert constraint.advance(index)
    assert frontend.tokenizer.encode("[")[0] not in allowed_ids(constraint)
    assert takes(frontend, constraint, '"a": 1}')
    assert set(allowed_ids(constraint)) == set(frontend.stop_ids)
    parser = OutputParser(
        frontend.tokenizer,
        starts_in_reasoning=True,
        stop=StopRules(),
        hidden_ids=frontend.stop_ids,
    )
    deltas = parser.feed([*ids, *rest])
    assert "".join(delta.text for delta in deltas if delta.channel == "content") == "{"


def test_a_thought_ends_the_turn_only_where_no_answer_is_needed(frontend):
    stop = frontend.stop_ids[0]
    needed = frontend.new_constraint(THINKING, JsonObjectSpec())
    assert stop not in allowed_ids(needed) and not needed.advance(stop)
    spare = frontend.new_constraint(THINKING, ToolCallSpec((TOOL,)))
    assert stop in allowed_ids(spare) and spare.advance(stop)
    assert spare.is_finished
    spare.rollback(1)
    assert not spare.is_finished and len(allowed_ids(spare)) > 700


@pytest.mark.parametrize(
    ("depth", "data", "reached"),
    [
        (0, b"abc", 0),
        (0, b"a<", 1),
        (0, b"</think>", CLOSED),
        (0, b"x</think>\n\n", CLOSED),
        (0, b"</think>{", None),
        (1, b"<", 1),
        (1, b"/th", 4),
        (4, b"ink", 7),
        (7, b">", CLOSED),
        (7, b">\n", CLOSED),
        (7, b">{", None),
        (7, b"x", 0),
        (7, b"</", 2),
        (4, b"", 4),
        (0, b"\xe4<\xff", 0),
    ],
)
def test_the_closing_tag_is_read_in_any_pieces(depth, data, reached):
    assert thought_depth(depth, data) == reached


@pytest.fixture(scope="module")
def crossing() -> Frontend:
    """A vocabulary with tokens that close a spelled tag and go on: `>{` and a harmless one."""
    return Frontend.from_resources(build_tokenizer(800, [(">", "{"), ("k", ">")]))


def test_a_spelled_tag_closes_and_no_token_crosses_it(crossing):
    constraint = crossing.new_constraint(THINKING, JsonObjectSpec())
    token = {crossing.tokenizer.token_bytes(index): index for index in range(800)}
    assert constraint.advance(token[b">{"])
    for letter in b"</think":
        assert token[b">{"] in allowed_ids(constraint)
        assert constraint.advance(token[bytes([letter])])
    assert token[b">{"] not in allowed_ids(constraint)
    assert not constraint.advance(token[b">{"])
    assert constraint.advance(token[b">"])
    assert token[b"x"] not in allowed_ids(constraint)
    constraint.rollback(2)
    assert constraint.advance(token[b"k>"])
    assert takes(crossing, constraint, ' {"a": 1}') and constraint.may_stop


def test_white_space_between_thought_and_answer_is_bounded(frontend):
    assert accepts(frontend, ChoiceSpec(("x",)), "</think>" + "\n" * 8 + "x", THINKING)
    assert not accepts(frontend, ChoiceSpec(("x",)), "</think>" + "\n" * 9 + "x", THINKING)
    assert not accepts(frontend, ChoiceSpec(("x",)), "\nx", PLAIN)


def test_h4_a_drafted_closing_tag_is_judged_like_any_draft(frontend):
    """[.., </think>, ..] with partial acceptance: bad drafts end the walk, and nothing breaks."""
    close = frontend.tokenizer.added["</think>"]
    brace, quote = (frontend.tokenizer.encode(text)[0] for text in '{"')
    thought = frontend.tokenizer.encode("so")[0]
    constraint = frontend.new_constraint(THINKING, JsonObjectSpec())
    assert constraint.advance(thought)
    before = constraint.allowed()
    masks = constraint.allowed_ahead([thought, close, brace, close, quote])
    assert len(masks) == 4  # the second tag may not stand where a key or a brace must
    assert constraint.allowed() == before == masks[0]
    for accepted in range(4):
        for index in [thought, close, brace][:accepted]:
            assert constraint.advance(index)
        assert constraint.allowed() == masks[accepted]
        fresh = frontend.new_constraint(THINKING, JsonObjectSpec())
        for index in [thought, thought, close, brace][: accepted + 1]:
            assert fresh.advance(index)
        assert fresh.allowed() == masks[accepted]
        constraint.rollback(accepted)
    assert not constraint.advance(frontend.stop_ids[0])
    # Inside a string the tag is text like any other.
    inside = frontend.new_constraint(PLAIN, JsonObjectSpec())
    assert takes(frontend, inside, '{"') and len(inside.allowed_ahead([close, close, quote])) == 4


def test_h7_nothing_follows_the_stop_id(frontend):
    stop = frontend.stop_ids[-1]
    one = frontend.tokenizer.encode("1")[0]
    for prompt, lead in ((PLAIN, ""), (THINKING, "</think>")):
        constraint = frontend.new_constraint(prompt, RegexSpec("1+"))
        assert takes(frontend, constraint, lead + "1")
        assert len(constraint.allowed_ahead([stop, one, one])) == 1
        assert len(constraint.allowed_ahead([one, stop, one])) == 2
        assert not constraint.is_finished
        assert constraint.advance(stop) and constraint.is_finished
        assert not constraint.may_stop
        assert not constraint.advance(stop) and not constraint.advance(one)
        constraint.rollback(1)
        assert constraint.may_stop and constraint.advance(one)
        with pytest.raises(AssertionError):
            constraint.rollback(1000)


def test_forks_go_their_own_ways(frontend):
    for prompt in (PLAIN, THINKING):
        constraint = frontend.new_constraint(prompt, ChoiceSpec(("7qz", "xzq")))
        if prompt is THINKING:
            assert takes(frontend, constraint, "hm</think>")
        fork = constraint.fork()
        assert takes(frontend, constraint, "7q") and takes(frontend, fork, "xzq")
        assert fork.may_stop and not constraint.may_stop
        other = constraint.fork()
        constraint.rollback(1)
        assert takes(frontend, other, "z") and takes(frontend, constraint, "qz")


def test_threads_share_compiled_grammars(frontend):
    def walk(seed: int) -> list[list[int]]:
        rng = random.Random(seed % 3)
        constraint = frontend.new_constraint(PLAIN, SPECS[seed % 3])
        seen = []
        while not constraint.is_finished and len(seen) < 30:
            seen.append(allowed_ids(constraint))
            assert constraint.advance(rng.choice(seen[-1]))
        return seen

    with ThreadPoolExecutor(4) as pool:
        walks = list(pool.map(walk, range(24)))
    assert walks == walks[:3] * 8


@pytest.mark.parametrize("seed", range(40))
def test_masks_after_any_rollback_equal_those_of_a_fresh_matcher(frontend, seed):
    """Random walks with wrong tokens, blocks of drafts and rollbacks, over every kind."""
    rng = random.Random(seed)
    spec = SPECS[seed % len(SPECS)]
    prompt = THINKING if seed % 2 else PLAIN
    constraint = frontend.new_constraint(prompt, spec)
    close = frontend.tokenizer.added["</think>"]
    path: list[int] = []
    for _ in range(40):
        if path and rng.random() < 0.3:
            count = rng.randint(1, min(6, len(path)))
            constraint.rollback(count)
            del path[-count:]
        if constraint.is_finished:
            continue
        fresh = frontend.new_constraint(prompt, spec)
        assert all(fresh.advance(index) for index in path)
        ids = allowed_ids(constraint)
        assert ids == allowed_ids(fresh)
        assert constraint.may_stop == fresh.may_stop
        wrong = rng.randrange(frontend.tokenizer.addressable)
        assert constraint.advance(wrong) == (wrong in ids)
        if wrong in ids:
            constraint.rollback(1)
        drafts = [rng.choice(ids), rng.choice(ids), rng.choice(ids)]
        masks = constraint.allowed_ahead(drafts)
        assert masks[0] == fresh.allowed()
        assert fresh.advance(drafts[0])
        if len(masks) > 1 and not fresh.is_finished:
            assert masks[1] == fresh.allowed()
        index = close if close in ids and rng.random() < 0.1 else rng.choice(ids)
        assert constraint.advance(index)
        path.append(index)
