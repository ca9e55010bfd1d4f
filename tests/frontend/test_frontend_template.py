"""The template sandbox: bounds, closed doors, and what a template is asked about itself."""

import logging
import time

import pytest

from ninfer.errors import PromptError
from ninfer.frontend import ChatTemplate, Frontend, parse_conversation
from ninfer.frontend import template_sandbox as sandbox
from ninfer.request import TemplateOptions

ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "filtered loop": "{% for a in range(99999) if range(99999)|list|length < 0 %}{% endfor %}",
    "silent filtered loop": "{% set s = range(999)|join %}{% set s = s ~ s ~ s ~ s ~ s ~ s ~ s %}"
    "{% for a in range(99999) if 'zz' in s %}{% endfor %}",
    "branching macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
}

TOO_LARGE = {
    "doubled text": "{% set n = namespace(s='ab') %}{% for a in range(60) %}"
    "{% set n.s = n.s ~ n.s %}{% endfor %}",
    "added text": "{% set n = namespace(s='ab') %}{% for a in range(60) %}"
    "{% set n.s = n.s + n.s %}{% endfor %}",
    "nested lists": "{% set n = namespace(s=[1]) %}{% for a in range(60) %}"
    "{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
    "nested objects": "{% set n = namespace(s={}) %}{% for a in range(60) %}"
    "{% set n.s = {'a': n.s, 'b': n.s} %}{% endfor %}",
    "replace": "{% set n = namespace(s='aa') %}{% for a in range(60) %}"
    "{% set n.s = n.s.replace('a', 'aa') %}{% endfor %}",
    "replace filter": "{% set n = namespace(s='aa') %}{% for a in range(60) %}"
    "{% set n.s = n.s|replace('a', n.s) %}{% endfor %}",
    "join": "{% set n = namespace(s='ab') %}{% for a in range(60) %}"
    "{% set n.s = n.s.join(n.s) %}{% endfor %}",
    "join filter": "{% set n = namespace(s='ab') %}{% for a in range(60) %}"
    "{% set n.s = [n.s, n.s]|join(n.s) %}{% endfor %}",
    "wide separator": "{{ range(999)|join(range(2999)|join) }}",
    "wide separator method": "{{ (range(2999)|join).join(range(999)) }}",
    "repeated text": "{{ 'a' * 10**8 }}",
    "power": "{{ 9 ** 999999999 }}",
    "squares": "{% set n = namespace(s=9) %}{% for a in range(60) %}"
    "{% set n.s = n.s * n.s %}{% endfor %}",
    "printf width": "{{ '%999999999d' % 1 }}",
    "indent": "{{ range(9999)|list|tojson(indent=9) }}",
    "output": "{% set s = range(99999)|join %}{% for a in range(99999) %}{{ s }}{% endfor %}",
    "captured output": "{% set s = range(99999)|join %}{% set t %}"
    "{% for a in range(99999) %}{{ s }}{% endfor %}{% endset %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "source": " " * (1 << 18),
    "slices": "{% set s = range(99999)|join %}{% for a in range(999) %}{% set t = s[1:] %}"
    "{% endfor %}",
}

BIG_NUMBER_STEPS = ("n + 1", "n - 1", "n * n", "n / 3", "n // 3", "n % 7", "3 // n", "n ** 2")

UNCOMPILED = {
    "many outputs": "{{a}}" * 25000,
    "many statements": "{% set a=1 %}" * 9000,
    "many elements": "{{ [" + "a," * 60000 + "] }}",
    "break outside": "{% break %}",
    "continue in a macro": "{% for a in x %}{% macro f() %}{% continue %}{% endmacro %}"
    "{% endfor %}",
    "argument twice": "{{ range(a=1, a=2) }}",
    "parameter twice": "{% macro f(a, a) %}{% endmacro %}",
    "deep loops": "{% for a in x %}" * 25 + "{% endfor %}" * 25,
    "deep conditions": "{% if a %}" * 120 + "{% endif %}" * 120,
    "deep lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "long sum": "{{ 1" + " + 1" * 250 + " }}",
    "long filter chain": "{{ a" + "|trim" * 250 + " }}",
    "long member chain": "{{ a" + ".b" * 250 + " }}",
}

# Each pairs two long texts in one step that cannot be interrupted.
SLOW_PAIRS = ("s.strip(t)", "s.lstrip(t)", "s.rfind(t)", "s.rsplit(sep=t)", "s|trim(t)")

CLOSED = {
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import '/etc/passwd' as x %}",
    "extends": "{% extends '/etc/passwd' %}",
    "class": "{{ ''.__class__.__mro__ }}",
    "subscript": "{{ ''['__class__'].__mro__ }}",
    "globals": "{{ raise_exception.__globals__.get('a') }}",
    "environment": "{{ cycler.__init__.__globals__ }}",
    "attr filter": "{{ ''|attr('__class__') }}",
    "change of input": "{{ messages.append(1) }}",
    "format": "{{ '{0.__class__}'.format(1) }}",
    "wide format": "{{ '{:99999999}'.format(1) }}",
    "wide text": "{{ 'x'.ljust(10 ** 8) }}",
    "unknown filter": "{{ 'x'|center(10) }}",
    "object text": "{{ namespace() }}",
    "syntax": "{% for %}",
    "fault": "{{ 1 / 0 }}",
    "undefined": "{{ absent.member }}",
    "empty cycle": "{{ cycler() }}",
    "type": "{% for a in 5 %}{% endfor %}",
}


def run(source: str) -> str:
    return ChatTemplate(source).render({"messages": []})


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_templates_end(monkeypatch, name):
    monkeypatch.setattr(sandbox, "SECONDS_LIMIT", 0.1)
    started = time.process_time()
    with pytest.raises(PromptError, match=r"more than 0\.1 s"):
        run(ENDLESS[name])
    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", TOO_LARGE)
def test_large_values_are_refused(monkeypatch, name):
    monkeypatch.setattr(sandbox, "VALUE_LIMIT", 1 << 22)
    monkeypatch.setattr(sandbox, "VOLUME_LIMIT", 1 << 23)
    with pytest.raises(PromptError) as caught:
        run(TOO_LARGE[name])
    assert "\n" not in str(caught.value)
    assert "more than 10 s" not in str(caught.value)


@pytest.mark.parametrize("name", CLOSED)
def test_closed_doors(name):
    with pytest.raises(PromptError) as caught:
        run(CLOSED[name])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("expression", BIG_NUMBER_STEPS)
def test_arithmetic_with_big_numbers_is_refused(expression):
    shown = "{{ " + expression + " }}"
    assert run("{% set n = 65535 %}" + shown)
    with pytest.raises(PromptError, match="more than 256 bits"):
        run("{% set n = range(999)|join|int %}" + shown)


@pytest.mark.parametrize("name", UNCOMPILED)
def test_what_cannot_be_compiled_is_refused_soon_in_one_line(name):
    started = time.process_time()
    with pytest.raises(PromptError, match=r"does not compile: \S") as caught:
        ChatTemplate(UNCOMPILED[name])
    assert time.process_time() - started < 8
    assert "\n" not in str(caught.value)
    assert ".py" not in str(caught.value) and "<template>" not in str(caught.value)


@pytest.mark.parametrize("call", SLOW_PAIRS)
def test_steps_whose_time_is_a_product_are_refused(call):
    texts = "{% set s = range(99999)|join %}{% set t = 'x' ~ s %}"
    with pytest.raises(PromptError, match="an argument has more than 64 characters"):
        run(texts + "{{ " + call + " }}")
    assert run("{% set s = '  a b ' %}{% set t = ' ' %}{{ " + call + " }}")


@pytest.mark.parametrize("step", ["s == t", "s is eq t"])
def test_comparisons_look_at_the_time(monkeypatch, step):
    monkeypatch.setattr(sandbox, "SECONDS_LIMIT", -1.0)
    with pytest.raises(PromptError, match="rendering takes more than"):
        run("{% if " + step + " %}{% endif %}")


def test_the_bounds_of_one_rendering_do_not_reach_the_next(monkeypatch):
    monkeypatch.setattr(sandbox, "VOLUME_LIMIT", 3000)
    template = ChatTemplate("{{ text }}")
    for _ in range(5):
        assert template.render({"text": "a" * 2000}) == "a" * 2000


def test_a_template_variable_cannot_switch_bounds_off(monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS_LIMIT", 0.1)
    source = "{% set tick = 1 %}{% set environment = 1 %}" + ENDLESS["nested loops"]
    with pytest.raises(PromptError, match=r"more than 0\.1 s"):
        run(source)


def test_language_that_published_templates_use():
    source = (
        "{%- for a in items if a.n > 1 %}{% if a.n == 4 %}{% break %}{% endif %}\n"
        "{{- loop.index0 ~ ':' ~ a.n ~ ' ' }}{% endfor %}\n"
        "{{- items[::-1][0].n }} {{ items|map(attribute='n')|join(',') }}"
        " {{ items|selectattr('n', 'equalto', 2)|list|length }}"
        " {{ {'b': '<é>', 'a': None}|tojson }}"
        " {{ x is defined }} {{ 'a,b'.split(',')|last }} {{ 1.0 }} {{ true }} {{ y|default('d') }}"
    )
    items = [{"n": n} for n in (1, 2, 3, 4, 2)]
    expected = '0:2 1:3 2 1,2,3,4,2 2 {"b": "<é>", "a": null} False b 1.0 True d'
    assert ChatTemplate(source).render({"items": items}) == expected


EFFORT_TEMPLATE = (
    "{% set effort = reasoning_effort if reasoning_effort is defined else 'xhigh' %}"
    "{% if effort not in ['low', 'medium', 'xhigh'] %}{{ raise_exception('bad') }}{% endif %}"
    "{{ effort }}: {{ messages[0].content }}"
)


def test_efforts_are_those_that_the_template_accepts(resources, frontend):
    assert ChatTemplate(EFFORT_TEMPLATE).reasoning_efforts() == ("low", "medium", "xhigh")
    assert frontend.reasoning_efforts == ()
    other = Frontend.from_resources(resources, chat_template=EFFORT_TEMPLATE)
    assert other.prepare_text("q", TemplateOptions(reasoning_effort="low")).text == "low: q"
    assert other.prepare_text("q").text == "xhigh: q"
    with pytest.raises(PromptError, match="it offers low, medium, xhigh"):
        other.prepare_text("q", TemplateOptions(reasoning_effort="high"))


def test_options_that_the_template_lacks_are_refused_by_name(frontend, resources):
    with pytest.raises(PromptError, match="reasoning effort 'low'"):
        frontend.prepare_text("q", TemplateOptions(reasoning_effort="low"))
    other = Frontend.from_resources(resources, chat_template="{{ messages[0].content }}")
    with pytest.raises(PromptError, match="preserve_thinking"):
        other.prepare_text("q", TemplateOptions(preserve_thinking=True))


def test_a_template_that_leaves_out_the_question_is_reported(resources, caplog):
    messages = [{"role": "user", "content": text} for text in ("first", " last\n")]
    conversation = parse_conversation(messages)
    for index, warnings in ((0, 1), (1, 0)):
        caplog.clear()
        source = f"{{{{ messages[{index}].content|trim }}}}"
        with caplog.at_level(logging.WARNING):
            Frontend.from_resources(resources, chat_template=source).prepare(conversation)
        assert len(caplog.records) == warnings
        assert all("last user message" in record.message for record in caplog.records)


def test_media_is_refused_by_place(frontend):
    part = {"type": "image_url", "image_url": {"url": "data:,"}}
    conversation = parse_conversation([{"role": "user", "content": [part]}])
    with pytest.raises(PromptError, match=r"messages\[0\].content\[0\] has a part of kind image"):
        frontend.prepare(conversation)
