"""Chat templates: what they render, what stops a hostile one, what is wrong with messages."""

from __future__ import annotations

import json
import resource
import threading
import time
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.text.naive import score_metadata
from tetrad.core.errors import TemplateError
from tetrad.text.budget import DEPTH
from tetrad.text.chat import ChatTemplate, default_template, plain, template_from_gguf
from tetrad.text.tokenizer import tokenizer_from_gguf

HI = [{"role": "user", "content": "Hi"}]
CHAT = [
    {"role": "system", "content": "Be <b>brief</b> & kind."},
    {"role": "user", "content": "  Wetter in Zürich?  "},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, None]}}}],
    },
    {"role": "tool", "content": '{"t": 20}'},
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "f", "description": "ä & <x>", "parameters": {"type": "object"}},
    }
]

REAL = {
    "chatml": """{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}\
{% endfor %}""",
    "tools": """{%- if tools %}{% for tool in tools %}{{ tool | tojson(indent=2) }}
{% endfor %}{% endif %}{% for m in messages %}
{{ m.tool_calls|tojson if m.tool_calls else m.content|trim }}{% endfor %}""",
    "namespace": """{% set ns = namespace(last=-1, text='') %}
{%- for m in messages[::-1] %}\
{% if m.role == 'user' and ns.last < 0 %}{% set ns.last = loop.index0 %}{% endif %}
{%- set ns.text = ns.text ~ loop.index ~ ':' ~ m.role.upper() + ', ' %}{% endfor %}\
{{ ns.last }} {{ ns.text }}""",
    "macro": """{% macro show(m, sep='|') %}\
{{ sep }}{{ m.role }}{{ caller() if caller else '' }}{% endmacro %}
{%- for m in messages if m.role != 'tool' %}\
{{ show(m) }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}""",
    "filters": """{{ messages|map(attribute='role')|join(', ') }}
{{ messages|selectattr('role', 'equalto', 'tool')|list|length }}
{{- messages|length }} {{ 'a,b'.split(',')[-1] }} \
{{ '%s-%d' % ('x', 3) }} {{ '{:>4}|{}'.format('a', 1.5) }}
{{- {'b': 1, 'a': [2]}|dictsort|string }} \
{{ undefined_name|default('none') }} {{ (3 * 'ab')|replace('b', '') }}""",
    "blocks": """{% set text %}{% for m in messages %}{{ m.role[:2] }}{% endfor %}{% endset %}\
{{ text|upper }}
{%- filter lower %}{{ text }}X{% endfilter %}\
{% generation %}{% set text = 1 %}G{% endgeneration %}{{ text }}""",
}


def plainly(source: str, **variables: Any) -> str:
    """The same template in jinja2's own sandbox, set up as Hugging Face does."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda x, indent=None: json.dumps(
        x, ensure_ascii=False, indent=indent
    )
    source = source.replace("{% generation %}{% set text = 1 %}G{% endgeneration %}", "G")
    return environment.from_string(source).render(**variables)


@pytest.mark.parametrize("name", REAL)
def test_templates_render_as_in_jinja2(name: str) -> None:
    want = plainly(REAL[name], messages=CHAT, tools=TOOLS, add_generation_prompt=True)
    assert ChatTemplate(REAL[name]).render(CHAT, tools=TOOLS) == want


def test_json_is_not_escaped_for_html() -> None:
    assert (
        ChatTemplate("{{ messages[0].content|tojson }}").render(CHAT) == '"Be <b>brief</b> & kind."'
    )
    assert ChatTemplate("{{ 'ü'|tojson(ensure_ascii=True) }}").render(HI) == '"\\u00fc"'


def test_variables_of_the_template() -> None:
    source = (
        "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ tools }}{{ enable_thinking }}"
    )
    assert (
        ChatTemplate(source, "<s>", "</s>").render(HI, False, enable_thinking=True)
        == "<s></s>FalseNoneTrue"
    )


def test_the_time_can_be_asked() -> None:
    assert ChatTemplate("{{ strftime_now('%Y') }}").render(HI) == time.strftime("%Y")


def test_a_model_without_a_template_gets_chatml() -> None:
    tokenizer = tokenizer_from_gguf(score_metadata({"▁a": 0.0}))
    assert template_from_gguf({}, tokenizer).render(HI) == default_template().render(HI)
    own = template_from_gguf({"tokenizer.chat_template": "{{ bos_token }}!"}, tokenizer)
    assert own.render(HI) == "<s>!"
    with pytest.raises(TemplateError, match="expected text, got int"):
        template_from_gguf({"tokenizer.chat_template": 1}, tokenizer)


def test_long_chats_fit() -> None:
    chat = [{"role": "user", "content": "word " * 400}] * 1000
    assert len(ChatTemplate(REAL["chatml"]).render(chat)) > 2_000_000


def test_threads_have_budgets_of_their_own() -> None:
    template, results = ChatTemplate("{% for i in range(50000) %}{% endfor %}x"), []
    threads = [
        threading.Thread(target=lambda: results.append(template.render(HI))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["x"] * 8


# -- bombs -----------------------------------------------------------------------------------------

GROW = (
    "{%% set ns = namespace(s=%s) %%}{%% for i in range(60) %%}{%% set ns.s = %s %%}{%% endfor "
    "%%}{{ ns.s|string }}"
)
NESTED = "{% for a in range(100000) %}" * 3 + "{% endfor %}" * 3
BOMBS = [
    NESTED,
    "{% for i in range(10**9) %}x{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{{ [0] * 10**10 }}",
    "{{ 2**100000000 }}",
    "{{ 'a'|center(10**9) }}",
    "{{ 'a'.center(1000000000) }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ '1'.zfill(10**9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (10**9, 1) }}",
    "{{ '%(a(b))1000000000d' % {'a(b)': 1} }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10**9) }}",
    "{{ ('{0}' * 30000).format('a' * 30000) }}",
    "{{ ('%(a)s' * 30000) % {'a': 'a' * 30000} }}",
    GROW % ("'aaaa'", "ns.s ~ ns.s"),
    GROW % ("'aaaa'", "ns.s + ns.s"),
    GROW % ("[1]", "ns.s + ns.s"),
    GROW % ("[1]", "[ns.s, ns.s]"),
    GROW % ("(1,)", "(ns.s, ns.s)"),
    GROW % ("{}", "{'a': ns.s, 'b': ns.s}"),
    GROW % ("{}", "dict(a=ns.s, b=ns.s)"),
    GROW % ("[1]", "[ns.s].copy() + [ns.s]"),
    "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + GROW % ("'a'", "m(ns.s)"),
    "{% set ns = namespace(s=[]) %}{% for i in range(1000) %}{% set ns.s = [ns.s] %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{{ [1]|batch(10**9, 0)|list }}",
    "{{ [1]|slice(10**9)|list }}",
    "{{ 1.5|round(10**9, 'ceil') }}",
    "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
    "{{ ('b' * 100000).join('a' * 100000) }}",
    "{{ range(100000)|join('b' * 100000) }}",
    "{{ range(9000)|map('string')|join('b' * 100000) }}",
    "{{ ('a\\n' * 100000)|indent('x' * 1000) }}",
    "{{ [[1]]|tojson(indent=10**9) }}",
    "{{ strftime_now('%1000000000d') }}",
    "{% for i in range(100000) %}{% set x = range(100000)|sum %}{% endfor %}",
    "{% for i in range(100000) %}" + "x" * 60000 + "{% endfor %}",
    "{% set x %}{% for i in range(100000) %}" + "x" * 60000 + "{% endfor %}{% endset %}",
    "".join(f"{{% set x{i} = 'a' * 1000000 %}}" for i in range(500)),
    "{{ ('a' * 1000000)" + "[1:]" * 200 + " }}",
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "{{ a" + ".b" * 20000 + " }}",
    "x" * 100_000,
]


@pytest.mark.parametrize("source", BOMBS, ids=range(len(BOMBS)))
def test_bombs_do_not_go_off(source: str) -> None:
    start, before = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TemplateError):
        ChatTemplate(source).render(HI)
    assert time.thread_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__['sys'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 1}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ (10).to_bytes(9, 'big') }}",
    "{{ 'a'.encode().decode() }}",
    "{{ 'a'.translate({97: 'x'}) }}",
    "{{ lipsum(n=10) }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{{ messages[0]() }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_python_is_out_of_reach(source: str) -> None:
    with pytest.raises(TemplateError):
        print(ChatTemplate(source).render(HI))


# -- errors ----------------------------------------------------------------------------------------


def test_a_template_can_refuse() -> None:
    with pytest.raises(
        TemplateError, match=r"it refuses these messages: no system \(line 2 of the template\)"
    ):
        ChatTemplate("\n{{ raise_exception('no system') }}").render(HI)


def test_errors_name_the_line() -> None:
    with pytest.raises(TemplateError, match=r"'foo' is undefined \(line 2 of the template\)"):
        ChatTemplate("\n{{ foo.bar }}").render(HI)
    with pytest.raises(TemplateError, match=r"line 1: .*expected '\)'"):
        ChatTemplate("{{ f( }}")
    with pytest.raises(TemplateError, match="expected text of at most"):
        ChatTemplate(None)  # type: ignore[arg-type]


MESSAGES = {
    "text": ("hi", "messages: expected a list of messages, got str"),
    "a message": (
        {"role": "user", "content": "x"},
        "messages: expected a list of messages, got dict",
    ),
    "strings": (["hi"], r"messages\[0\]: expected a mapping, got str"),
    "no role": (
        [{"content": "x"}],
        r"messages\[0\]: role: expected a name such as 'user', got nothing",
    ),
    "role": ([{"role": 1, "content": "x"}], "role: expected a name such as 'user', got 1"),
    "no content": ([*HI, {"role": "user"}], r"messages\[1\]: content: expected text, got nothing"),
    "None": ([{"role": "user", "content": None}], "content: expected text, got None"),
    "content": (
        [{"role": "user", "content": 5}],
        "content: expected text or a list of parts, got int",
    ),
    "object": (
        [{"role": "user", "content": [object()]}],
        r"messages\[0\].content\[0\]: expected text, a number",
    ),
    "keys": ([{"role": "user", "content": "x", 1: 2}], "expected text as keys"),
}


@pytest.mark.parametrize("messages,match", MESSAGES.values(), ids=MESSAGES)
def test_wrong_messages_are_refused(messages: Any, match: str) -> None:
    with pytest.raises(TemplateError, match=match):
        default_template().render(messages)


def test_deep_data_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(DEPTH - 1):
        deep = [deep]
    assert nested(plain([deep], "extra")) == DEPTH + 1  # its own level, and 64 below
    with pytest.raises(TemplateError, match="nested more than 64 deep"):
        plain([[deep]], "extra")
    with pytest.raises(TemplateError, match="nested more than 64 deep"):
        default_template().render(HI, extra=[[deep]])


def nested(value: Any) -> int:
    return 1 + nested(value[0]) if value else 1


@pytest.mark.parametrize("name", ["bos_token", "raise_exception", "range"])
def test_names_of_the_sandbox_cannot_be_set(name: str) -> None:
    with pytest.raises(TemplateError, match="is not a variable that can be set"):
        default_template().render(HI, **{name: 1})


def test_content_in_parts_of_text_is_text() -> None:
    parts = [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]
    whole = default_template().render([{"role": "user", "content": "Hello\nthere"}])
    assert default_template().render([{"role": "user", "content": parts}]) == whole
