"""Writes tests/fixtures/templates: published chat templates and what transformers renders.

    pip install transformers trl gguf
    python tests/scripts/chat_templates.py SMOLLM2.gguf    (transformers 5.24.0, trl 1.16.0)

Sources: qwen2_5, llama3, llama3_1, llama3_2 and deepseek_r1_distill are the models' own templates as the
package trl (Apache-2.0) ships them; qwen2_5_math is qwen2_5 with that model's default system message;
smollm2 is in SmolLM2-135M-Instruct's GGUF file (Apache-2.0). `features` is ours: it touches the
Jinja and Python functions that other templates use.
"""

import json
import pathlib
import sys
from datetime import datetime

import gguf
import trl
from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template

OUT = pathlib.Path(__file__).parent.parent / "fixtures" / "templates"
TRL = pathlib.Path(trl.__file__).parent / "chat_templates"
NOW = datetime(2025, 3, 9, 7, 5, 3)

FEATURES = r"""
{%- set ns = namespace(count=0) -%}
{% for m in messages %}
    {% if m.role == 'skip' %}{% continue %}{% endif %}
    {% if m.role == 'stop' %}{% break %}{% endif %}
    {% set ns.count = ns.count + 1 %}
  [{{ loop.index }}/{{ loop.length }}] {{ m['content'] | trim }}|{{ m.content.strip().split('\n')[-1] }}|
    {%- if m.content is string and 'x' in m.content %} has-x{% endif +%}
    {% generation %}
<{{ m.content.replace('a', 'b').upper() }}>
    {% endgeneration %}
{% endfor %}
{{ ns.count }} {{ bos_token }}{{ messages[-1].content[:3] }} {{ missing }} {{ missing is defined }} {{ tools is none }}
{{ tools is iterable }} {{ missing is iterable }} {{ 1 is iterable }} {{ 'a' is iterable }} {{ messages is iterable }} {{ {} is iterable }} {{ true is iterable }}
{# a comment #}
{{ {'b': [1, 2.0, 1e-7, 1e20, -0.5, true, none], 'a': 'é"\\<&>\u2028\x7f\n'} | tojson }}
{{ {'b': [1, {}], 'a': [], 'c': {'d': 'é'}} | tojson(indent=2) }}
{{ {'b': 1, 'a': 'é😀'} | tojson(sort_keys=true, ensure_ascii=true) }}
{{ [1, 2] | tojson(separators=(',', ':')) }}
{{ messages | map(attribute='role') | join(',') }} {{ 'abc'.startswith('ab') }} {{ 7 // 2 }} {{ 7 % 4 }} {{ 'a' ~ 1 }}
{{ strftime_now('%d %b %Y|%Y-%m-%d|%A %B %-d|%H:%M:%S|%I %p|%j|%y') }}
{% macro wrap(text, n=2) %}{{ '(' * n ~ text ~ ')' * n }}{% endmacro %}
{{ wrap('m') }}{{ wrap('n', n=1) }}
{{ '\x1c padded \xa0' | trim }}|{{ messages | length }}|{{ (messages | selectattr('role', 'equalto', 'user') | list | length) }}
{% if not messages %}{{ raise_exception('none') }}{% endif %}
"""

USER = {"role": "user", "content": "  What is 2 + 2?\n"}
ASSISTANT = {"role": "assistant", "content": "It is 4. "}
SYSTEM = {"role": "system", "content": " Be brief.\n"}
ODD = {"role": "user", "content": "tab\t, \"quotes\" 'single' \\boxed{1} {{ x }} {% if %} é 漢字 😀 <|im_end|> & <b>"}
CHATS = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [USER, ASSISTANT, ODD],
    "answered": [SYSTEM, USER, ASSISTANT],
    "empty": [{"role": "user", "content": ""}],
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather <now> & \"later\" in é",
        "parameters": {
            "type": "object",
            "properties": {"z": {"type": "string"}, "a": {"type": "number", "default": 1.5}},
            "required": ["z"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"z": "São", "a": 2}}}],
}
RESULT = {"role": "tool", "content": '{"t": 21}'}
THOUGHT = {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\nIt is 4."}
FEATURE_CHAT = [
    {"role": "user", "content": " ax\nline two "},
    {"role": "skip", "content": "no"},
    {"role": "assistant", "content": "plain\n"},
    {"role": "stop", "content": "end"},
]


class Clock:
    @staticmethod
    def now():
        return NOW


def render(template, messages, generation, tokens, **variables):
    texts, _ = render_jinja_template(
        conversations=[messages],
        chat_template=template,
        add_generation_prompt=generation,
        **tokens,
        **variables,
    )
    return texts[0]


def main():
    chat_template_utils.datetime = Clock
    reader = gguf.GGUFReader(sys.argv[1])
    qwen = (TRL / "qwen2_5.jinja").read_text()
    math = qwen.replace(
        "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        "Please reason step by step, and put your final answer within \\\\boxed{}.",
    )
    chatml = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    llama = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    templates = {
        "qwen2_5": (qwen, chatml),
        "qwen2_5_math": (math, chatml),
        "llama3": ((TRL / "llama3.jinja").read_text(), llama),
        "llama3_1": ((TRL / "llama3_1.jinja").read_text(), llama),
        "llama3_2": ((TRL / "llama3_2.jinja").read_text(), llama),
        "deepseek_r1_distill": (
            (TRL / "deepseek_r1_distill.jinja").read_text(),
            {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
        ),
        "smollm2": (reader.fields["tokenizer.chat_template"].contents(), {"bos_token": "<|im_start|>"} | chatml),
        "features": (FEATURES, {"bos_token": "<s>"}),
    }
    OUT.mkdir(parents=True, exist_ok=True)
    cases = []
    for name, (template, tokens) in templates.items():
        (OUT / f"{name}.jinja").write_text(template)

        def case(messages, generation, **variables):
            entry = {"template": name, "tokens": tokens, "messages": messages, "generation": generation,
                     "variables": variables}
            try:
                entry["text"] = render(template, messages, generation, tokens, **variables)
            except Exception as error:
                entry["error"] = str(error)
            cases.append(entry)

        if name == "features":
            case(FEATURE_CHAT, False)
            case([], False)
            continue
        for messages in CHATS.values():
            case(messages, True)
            case(messages, False)
        if name.startswith(("llama3_", "qwen")):
            case([SYSTEM, USER, CALL, RESULT], True, tools=[TOOL])
            case([USER, CALL, RESULT, ASSISTANT], False, tools=[TOOL])
            case([USER, CALL | {"tool_calls": CALL["tool_calls"] * 2}], False)
        if name.startswith("deepseek"):
            case([USER, THOUGHT, ODD], True)
        if name.startswith("llama3_"):
            case([USER], True, date_string="26 Jul 2024")
            case([USER], True, tools=[TOOL], tools_in_user_message=False)
    stamp = {"now": NOW.isoformat(), "cases": cases}
    (OUT / "cases.json").write_text(json.dumps(stamp, ensure_ascii=False, indent=1) + "\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "errors")
    for c in cases:
        if "error" in c or c["template"] == "features":
            print(c["template"], repr(c.get("error")), c.get("text"))


main()
