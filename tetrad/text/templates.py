"""Chat templates by name, for models that bring none or a wrong one: the names that llama.cpp and
its relatives use.

Receives a name, returns Jinja. Every one of them writes turns one after another, so each is a few
pieces of text.
"""

from __future__ import annotations

from tetrad.core.errors import TemplateError
from tetrad.core.record import record

Ends = tuple[str, str]  # what stands before a text, and after it
EOS = "\0"  # stands for the token that ends an answer, which is the model's


@record
class Turns:
    """How turns are written. `is_inside`: a system message is a part of the first message of the
    user."""

    system: Ends
    user: Ends
    assistant: Ends
    ask: str  # what an answer follows
    trimmed: tuple[str, ...] = ()  # roles whose texts lose the space around them
    is_inside: bool = False


ROLES = ("system", "user", "assistant")


def marked(before: str, between: str, after: str, trimmed: tuple[str, ...] = ()) -> Turns:
    """Every turn is a mark that holds the name of the role, and text."""
    system, user, assistant = ((before + role + between, after) for role in ROLES)
    return Turns(system, user, assistant, assistant[0], trimmed)


INST_END = " [/INST]"
NAMED = {
    "chatml": marked("<|im_start|>", "\n", "<|im_end|>\n"),
    "llama2": Turns(("", "\n"), ("[INST] ", INST_END), ("", "</s>"), "", is_inside=True),
    "llama2-sys": Turns(
        ("<<SYS>>\n", "\n<</SYS>>\n\n"), ("[INST] ", INST_END), ("", "</s>"), "", is_inside=True
    ),
    "llama3": marked("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", trimmed=ROLES),
    "gemma": Turns(
        ("", "\n\n"), ("<start_of_turn>user\n", "<end_of_turn>\n"), ("<start_of_turn>model\n",
        "<end_of_turn>\n"),
        "<start_of_turn>model\n", ROLES, is_inside=True,
    ),
    "mistral-v1": Turns(("", "\n\n"), (" [INST] ", INST_END), (" ", "</s>"), "", is_inside=True),
    "mistral-v3": Turns(
        ("", "\n\n"), ("[INST] ", "[/INST]"), (" ", "</s>"), "", ("assistant",), is_inside=True
    ),
    "mistral-v3-tekken": Turns(("", "\n\n"), ("[INST]", "[/INST]"), ("", "</s>"), "",
    is_inside=True),
    "mistral-v7": Turns(("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"), ("[INST] ", "[/INST]"), (" ",
    "</s>"), ""),
    "zephyr": marked("<|", "|>\n", EOS + "\n"),
    "vicuna": Turns(("", "\n\n"), ("USER: ", "\n"), ("ASSISTANT: ", "</s>\n"), "ASSISTANT:"),
    "vicuna-orca": Turns(("SYSTEM: ", "\n"), ("USER: ", "\n"), ("ASSISTANT: ", "</s>\n"),
    "ASSISTANT:"),
    "phi3": marked("<|", "|>\n", "<|end|>\n"),
    "phi4": marked("<|im_start|>", "<|im_sep|>", "<|im_end|>"),
    "falcon3": marked("<|", "|>\n", "\n"),
    "granite": marked("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n"),
    "openchat": Turns(
        ("", "<|end_of_turn|>"), ("GPT4 Correct User: ", "<|end_of_turn|>"),
        ("GPT4 Correct Assistant: ", "<|end_of_turn|>"), "GPT4 Correct Assistant:",
    ),
    "deepseek": Turns(
        ("", ""), ("### Instruction:\n", "\n"), ("### Response:\n", "\n<|EOT|>\n"),
        "### Response:\n"
    ),
    "command-r": Turns(
        ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", ROLES,
    ),
}  # fmt: skip
ALIASES = {  # as llama-cpp-python spells them
    "llama-2": "llama2-sys", "llama-3": "llama3", "mistral-instruct": "mistral-v1",
    "qwen": "chatml", "phi-3": "phi3",
}  # fmt: skip


def named_template(name: str) -> str:
    """The template of this name, as Jinja; an unknown name is an error that lists the known
    ones."""
    turns = NAMED.get(ALIASES.get(name, name))
    if turns is None:
        known = ", ".join(sorted({*NAMED, *ALIASES}))
        raise TemplateError(
            f"there is no chat template called {name!r:.60}", hint=f"known: {known}; or give Jinja"
        )
    return jinja(turns)


def jinja(turns: Turns) -> str:
    """
    >>> jinja(NAMED["chatml"]).count("im_start")
    4
    """
    system = written(turns.system, "message", "system" in turns.trimmed)
    keep = f"{{% set held.system = {system} %}}" if turns.is_inside else f"{{{{ {system} }}}}"
    inside = "held.system ~ " if turns.is_inside else ""
    user = written(turns.user, "message", "user" in turns.trimmed, inside)
    answer = written(turns.assistant, "message", "assistant" in turns.trimmed)
    return (
        "{% set held = namespace(system='') %}{% for message in messages %}"
        f"{{% if message.role == 'system' %}}{keep}"
        f"{{% elif message.role == 'assistant' %}}{{{{ {answer} }}}}"
        f"{{% else %}}{{{{ {user} }}}}{{% set held.system = '' %}}{{% endif %}}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}{{{{ {literal(turns.ask)} }}}}{{% endif %}}"
    )


def written(ends: Ends, name: str, is_trimmed: bool, inside: str = "") -> str:
    before, after = (literal(end) for end in ends)
    return f"{before} ~ {inside}{name}.content{'|trim' if is_trimmed else ''} ~ {after}"


def literal(text: str) -> str:
    """Text as Jinja writes it."""
    quoted = [f"'{part}'" for part in text.replace("\n", "\\n").split(EOS)]
    return "(" + " ~ eos_token ~ ".join(quoted) + ")"
