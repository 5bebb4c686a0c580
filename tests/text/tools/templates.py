"""Chat templates of every family, in their essence: enough to tell what they are."""

from __future__ import annotations

from tetrad.text.tools.deepseek import MARKS

TEMPLATES = {
    "hermes": "{% if tools %}<tools>{{ tools|tojson }}</tools><tool_call>{% endif %}",
    "generic": "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}",
    "llama": "{% if tools %}{{ tools }}{% endif %}<|start_header_id|>",
    "llama, one call": "{{ tools }}<|start_header_id|>{{ raise_exception('single tool-calls') }}",
    "mistral": "[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS][TOOL_CALLS]",
    "mistral, named": "{{ tools }}[TOOL_CALLS][ARGS]",
    "mistral, with ids": "{{ tools }}[TOOL_CALLS][CALL_ID][ARGS]",
    "phi": "<|tool|>{{ message['tools'] }}<|/tool|>",
    "gemma": "{{ tools }}<start_function_call>",
    "gemma, 4": "{{ tools }}<|tool_call>",
    "deepseek": "{{ tools }}```json" + MARKS[0],
    "deepseek, 3.1": "{{ tools }}" + MARKS[0],
}
