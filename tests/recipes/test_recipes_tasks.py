"""Text tasks: the same seed gives the same, answers are right, the held-out suite is apart."""

import json
import random
import re
from collections import Counter

import jsonschema
import pytest

from ninfer.evals.answer import Answer
from ninfer.evals.graders import grade, parse_grade
from ninfer.evals.suite import parse_item
from ninfer.request import FinishReason, ToolCall
from recipes.tiny import build_suite, heldout
from recipes.tiny.encode import Encoder
from recipes.tiny.sample import Sample
from recipes.tiny.tasks import TEXT_TASKS
from recipes.tiny.tasks.arithmetic import add_by_columns, multiply_by_parts, subtract_by_columns
from recipes.tiny.tasks.facts import FACTS
from recipes.tiny.tasks.needle import needle
from recipes.tiny.tasks.tool_pool import POOL
from recipes.tiny.tasks.translation import sentence_pair

COUNT = 200


def drawn(name, count=COUNT):
    rng = random.Random(name)
    return [TEXT_TASKS[name](rng) for _ in range(count)]


def answer_of(message):
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return Answer(
        content=message["content"],
        reasoning=message.get("reasoning_content", ""),
        tool_calls=tuple(ToolCall(call["name"], call["arguments"]) for call in calls),
        finish_reason=FinishReason.STOP_TOKEN,
        prompt_tokens=0,
        reasoning_tokens=0,
        token_ids=(),
        seconds=0.0,
    )


def spoilt(message):
    """An answer that no grade may take."""
    if message.get("tool_calls"):
        call = message["tool_calls"][0]["function"]
        renamed = {**call, "name": call["name"] + "x"}
        return {**message, "tool_calls": [{"function": renamed}, *message["tool_calls"][1:]]}
    return {**message, "content": "zebra 123456789"}


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_the_same_seed_gives_the_same(name):
    assert drawn(name, 30) == drawn(name, 30)
    assert len({str(sample.messages) for sample in drawn(name, 30)}) > 20


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_shape(name):
    samples = drawn(name)
    for sample in samples:
        assert sample.messages[-1]["role"] == "assistant"
        last = max(n for n, m in enumerate(sample.messages) if m["role"] == "user")
        answers = [m for m in sample.messages[last:] if m["role"] == "assistant"]
        assert all(bool(m.get("reasoning_content")) == sample.thinking for m in answers)
        assert sample.task == name or (sample.task, name) == ("arithmetic", "arithmetic_direct")
        json.dumps(sample.messages), json.dumps(dict(sample.grade))
        for message in sample.messages:
            assert "<|" not in str(message)
            for text in (message["content"], message.get("reasoning_content", "")):
                assert text == text.strip()


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_grades_take_the_answer_and_refuse_another(name):
    for sample in drawn(name):
        grader = parse_grade(sample.grade, name)
        assert grade(grader, answer_of(sample.messages[-1])) == (), sample
        if sample.grade.get("calls") != []:  # any text is right where nothing may be called
            assert grade(grader, answer_of(spoilt(sample.messages[-1]))) != (), sample


def test_thinking_is_the_smaller_part_but_for_arithmetic():
    for name in TEXT_TASKS:
        share = sum(sample.thinking for sample in drawn(name)) / COUNT
        low, high = {"arithmetic": (0.7, 0.95), "arithmetic_direct": (0, 0)}.get(name, (0.02, 0.4))
        assert low <= share <= high, (name, share)


@pytest.mark.parametrize(
    ("work", "sign"),
    [(add_by_columns, "+"), (subtract_by_columns, "-"), (multiply_by_parts, "x")],
)
def test_every_line_of_worked_arithmetic_is_true(work, sign):
    rng = random.Random(sign)
    for _ in range(500):
        low, high = (10, 99) if sign == "x" else (0, 10 ** rng.randint(1, 4) - 1)
        left, right = rng.randint(low, high), rng.randint(low, high)
        text = work(left, right)
        for part in re.findall(r"[\d x+-]+ = -?\d+", text):
            formula, _, result = part.strip().partition(" = ")
            terms = re.sub(r"\b0+(?=\d)", "", formula.replace("x", "*"))
            assert eval(terms) == int(result), part  # digits and signs only
        result = {"+": left + right, "-": left - right, "x": left * right}[sign]
        assert int(re.findall(r"-?\d+", text)[-1]) == result, text


def test_lists_are_what_was_asked():
    for sample in drawn("lists"):
        if sample.grade["kind"] == "number":
            continue
        question, items = sample.messages[-2]["content"], sample.grade["items"]
        assert all(item in question for item in items)
        numbers = all(item.isdigit() for item in items)
        ordered = sorted(items, key=int) if numbers else sorted(items, key=str.lower)
        lower = question.lower()
        if re.search(r"descending|largest to|largest first|downward|from z|reverse alpha", lower):
            assert items == ordered[::-1], sample
        elif re.search(r"ascending|smallest|upward|alphabetical|from a to z", lower):
            assert items == ordered, sample


def test_translations_agree_with_the_grammar():
    known = {
        "The black horse buys the small tree.": "Das schwarze Pferd kauft den kleinen Baum.",
        "A young friend sees a big cup today.": "Ein junger Freund sieht heute eine große Tasse.",
        "We look for the old books.": "Wir suchen die alten Bücher.",
    }
    rng = random.Random(1)
    pairs = dict(sentence_pair(rng) for _ in range(60_000))
    assert len(pairs) > 40_000
    assert len(set(pairs.values())) == len(pairs)
    for english, german in pairs.items():
        assert known.get(english, german) == german
        assert not re.search(r"\ba [aeio]|\ban [^aeio]", english)
        subject = re.match(rf"{PHRASE}(?= [a-z]+)", german[0].lower() + german[1:])
        if not german.startswith(("Ich ", "Wir ")):
            assert fits(*subject.groups(), NOMINATIVE), german
        target = re.search(rf"{PHRASE}\.$", german)
        assert fits(*target.groups(), ACCUSATIVE), german


PHRASE = r"\b(der|die|das|den|eine|ein|einen)(?: (\w+))? ([A-ZÄÖÜ]\w+)"
GENDERS = {
    "m": "Ball Apfel Stuhl Tisch Schlüssel Hut Baum Hund Vogel Mann Vater Freund König Arzt",
    "f": "Lampe Blume Tür Tasse Uhr Tasche Katze Kuh Frau Mutter Tochter",
    "n": "Buch Haus Bild Messer Fenster Auto Bett Hemd Pferd Schwein Kind Mädchen",
}
# Gender (p: plural) and article -> ending of the adjective.
BOTH = {("f", "die"): "e", ("f", "eine"): "e", ("n", "das"): "e", ("n", "ein"): "es"}
NOMINATIVE = BOTH | {("m", "der"): "e", ("m", "ein"): "er", ("p", "die"): "en"}
ACCUSATIVE = BOTH | {("m", "den"): "en", ("m", "einen"): "en", ("p", "die"): "en"}


def fits(article, adjective, noun, endings):
    """Whether article, adjective and noun agree, as singular or as plural."""
    genders = [g for g, nouns in GENDERS.items() if noun in nouns.split()]
    plural = not genders or noun in ("Schlüssel", "Messer", "Fenster", "Mädchen")
    wanted = [endings.get((g, article)) for g in [*genders, *(["p"] if plural else [])]]
    stem = re.compile("(klein|groß|alt|jung|neu|rot|blau|grün|schwarz|weiß|schön|gut|froh)(.*)")
    if adjective is None:
        return any(wanted)
    return stem.fullmatch(adjective)[2] in wanted


def test_tools_are_called_as_declared():
    seen = Counter()
    for name in ("tools", "tools_result"):
        for sample in drawn(name):
            schemas = {tool["function"]["name"]: tool["function"] for tool in sample.tools}
            assert len(schemas) == len(sample.tools)
            calls = [c["function"] for m in sample.messages for c in m.get("tool_calls", ())]
            for call in calls:
                parameters = schemas[call["name"]]["parameters"]
                jsonschema.validate(call["arguments"], parameters | {"additionalProperties": False})
                order = [n for n in parameters["properties"] if n in call["arguments"]]
                assert list(call["arguments"]) == order
                seen[schemas[call["name"]]["description"]] += 1
            seen[name, len(calls)] += 1
    assert {tool.description for tool in POOL} <= set(seen)
    assert {key for key in seen if isinstance(key, tuple)} == {
        *(("tools", n) for n in range(3)),
        *(("tools_result", n) for n in (1, 2)),
    }


def test_requests_tell_every_value():
    for sample in drawn("tools"):
        user = sample.messages[-2]["content"]
        for call in sample.messages[-1].get("tool_calls", ()):
            for value in call["function"]["arguments"].values():
                if isinstance(value, dict | list):
                    value = value.values() if isinstance(value, dict) else value
                    assert all(str(inner) in user for inner in value)
                elif not isinstance(value, bool):
                    assert str(value) in user


def test_facts_have_their_lengths():
    for fact in FACTS:
        for told in fact.values():
            assert told.question.endswith("?")
            assert len(re.findall(r"[\w'-]+", told.three_words)) == 3
            assert told.sentence.count(".") == 1 and told.two_sentences.count(".") == 2


@pytest.mark.parametrize("tokens", [200, 1000, 4096, 8192])
def test_needles_have_about_the_length_asked_for(tokens):
    encoder, rng = Encoder(), random.Random(tokens)
    lengths = [len(encoder.encode(needle(rng, tokens)).ids) for _ in range(8)]
    assert abs(sum(lengths) / 8 / tokens - 1) < 0.08
    assert all(0.8 * tokens < length < 1.2 * tokens for length in lengths)


def test_needles_tell_the_fact_once_and_others_beside_it():
    for sample in drawn("needle", 50):
        text, _, question = sample.messages[-2]["content"].rpartition("\n\n")
        (fact,) = [a for a in sample.grade["answers"] if len(a.split()) > 2 and a in text] or [""]
        assert not fact or text.count(fact) == 1
        assert question.rstrip().endswith(("?", "only."))


@pytest.mark.parametrize("name", TEXT_TASKS)
def test_one_in_sixteen_is_held_out(name):
    share = sum(map(heldout.is_held_out, drawn(name, 800))) / 800
    assert 0.02 < share < 0.14


def test_what_is_held_out_depends_on_the_question_alone():
    question = {"role": "user", "content": "What is a page?"}
    one = Sample("chat", (question, {"role": "assistant", "content": "one"}))
    other = Sample("chat", (question, {"role": "assistant", "content": "two"}), thinking=True)
    assert heldout.prompt_digest(one) == heldout.prompt_digest(other)


@pytest.mark.parametrize("name", [n for n in build_suite.SUITE_TASKS if n in TEXT_TASKS])
def test_suites_hold_different_held_out_questions(name):
    encoder, found = Encoder(), build_suite.samples(name, 20)
    assert all(map(heldout.is_held_out, found))
    assert len({heldout.prompt_digest(sample) for sample in found}) == 20
    for number, sample in enumerate(found):
        values = json.loads(json.dumps(build_suite.item(name, number, sample, encoder)))
        item = parse_item(values, name)
        assert grade(item.grader, answer_of(values["reference"])) == ()
        assert item.max_new > int(encoder.encode(sample).target.sum()) / 2
        assert values["messages"] == list(sample.messages[:-1])
