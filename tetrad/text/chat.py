"""Chat messages to the prompt that a model was trained with.

Receives the template of a model (Jinja, untrusted) and messages; returns text to encode with
`parse_special`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tetrad.core.errors import TemplateError
from tetrad.text.budget import CURRENT, DEPTH, Budget
from tetrad.text.sandbox import GLOBALS, compile_template, render
from tetrad.text.templates import named_template
from tetrad.text.tokenizer import Tokenizer

RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", *GLOBALS}
)


TRUSTED = ("system", "developer", "assistant")  # roles whose texts may hold control tokens
GUARDS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # characters that stand for nothing


class ChatTemplate:
    """A compiled template. Renders in a sandbox with limits; safe to share between threads.

    >>> source = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    >>> ChatTemplate(source, bos="<s>", eos="</s>").render([{"role": "user", "content": "Hi"}])
    'user: Hi</s>'
    """

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        self.source, self.bos, self.eos = source, bos, eos
        self.template = compile_template(source)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        /,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        **kwargs: object,
    ) -> str:
        """The prompt. `kwargs` are further variables of the template, such as `enable_thinking`."""
        taken = RESERVED & kwargs.keys()
        if taken:
            raise TemplateError(f"chat template: {min(taken)!r} is not a variable that can be set")
        data = {name: plain(value, name) for name, value in kwargs.items()}
        data |= {"messages": checked_messages(messages), "tools": plain(tools, "tools")}
        data |= {
            "add_generation_prompt": bool(add_generation_prompt),
            "bos_token": self.bos,
            "eos_token": self.eos,
        }
        token = CURRENT.set(Budget(data))
        try:
            return render(self.template, data)
        finally:
            CURRENT.reset(token)


def default_template(bos: str = "", eos: str = "") -> ChatTemplate:
    """ChatML, for models that bring no template.

    >>> default_template().render([{"role": "user", "content": "Hi"}])
    '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
    """
    return ChatTemplate(named_template("chatml"), bos, eos)


def guarded_messages(
    messages: Sequence[Mapping[str, object]], tokenizer: Tokenizer
) -> tuple[Sequence[Mapping[str, object]], str]:
    """Messages in which what users and tools wrote cannot become a control token, and the character
    that guards it."""
    if not isinstance(messages, Sequence):  # which rendering says
        return messages, ""
    said = "".join(
        text
        for message in messages
        if is_foreign(message)
        for text in texts_of(message.get("content"))
    )
    guard = next((one for one in GUARDS if one not in said), "")
    if not guard or tokenizer.guarded(said, guard) == said:
        return messages, ""
    contents = [
        guarded_content(m.get("content"), tokenizer, guard) if is_foreign(m) else None
        for m in messages
    ]
    return [
        m if c is None else {**m, "content": c} for m, c in zip(messages, contents, strict=True)
    ], guard


def is_foreign(message: object) -> bool:
    return isinstance(message, Mapping) and message.get("role") not in TRUSTED


def texts_of(content: object) -> list[str]:
    parts = content if isinstance(content, list | tuple) else [content]
    found = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return [text for text in found if isinstance(text, str)]


def guarded_content(content: object, tokenizer: Tokenizer, guard: str) -> object:
    if isinstance(content, str):
        return tokenizer.guarded(content, guard)
    if not isinstance(content, list | tuple):
        return content
    is_text = [isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content]
    return [
        {**part, "text": tokenizer.guarded(part["text"], guard)} if known else part
        for part, known in zip(content, is_text, strict=True)
    ]


def template_from_gguf(
    metadata: Mapping[str, object], tokenizer: Tokenizer, tools: bool = False
) -> ChatTemplate:
    """The template in the metadata of a GGUF file, that for tools where it has one, ChatML where it
    has none."""
    source = metadata.get("tokenizer.chat_template")
    if tools:
        source = metadata.get("tokenizer.chat_template.tool_use", source)
    bos, eos = (
        "" if i is None else tokenizer.token_text(i) for i in (tokenizer.bos, tokenizer.eos)
    )
    if source is None:
        return default_template(bos, eos)
    if not isinstance(source, str):
        raise TemplateError(f"tokenizer.chat_template: expected text, got {type(source).__name__}")
    return ChatTemplate(source, bos, eos)


def checked_messages(messages: object) -> list[object]:
    """Messages as plain data: each has a role, and content unless it calls tools."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise TemplateError(f"messages: expected a list of messages, got {type(messages).__name__}")
    for at, message in enumerate(messages):
        check_message(message, f"messages[{at}]")
    return [plain(with_text(message), f"messages[{at}]") for at, message in enumerate(messages)]


def with_text(message: Mapping[str, object]) -> Mapping[str, object]:
    """Content given as parts that are all text becomes that text, a part a line: most templates
    know no parts."""
    parts = message.get("content")
    if not isinstance(parts, list | tuple):
        return message
    texts = [
        part.get("text")
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == "text"
    ]
    if len(texts) != len(parts) or not all(isinstance(text, str) for text in texts):
        return message
    return {**message, "content": "\n".join(map(str, texts))}


def check_message(message: object, place: str) -> None:
    if not isinstance(message, Mapping):
        raise TemplateError(
            f"{place}: expected a mapping, got {type(message).__name__}",
            hint='a message looks like {"role": "user", "content": "Hello"}',
        )
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        got = "nothing" if role is None else repr(role)
        raise TemplateError(f"{place}: role: expected a name such as 'user', got {got}")
    if content is None and not message.get("tool_calls"):
        raise TemplateError(
            f"{place}: content: expected text, got {'None' if 'content' in message else 'nothing'}"
        )
    if content is not None and not isinstance(content, str | list | tuple):
        raise TemplateError(
            f"{place}: content: expected text or a list of parts, got {type(content).__name__}"
        )


def plain(value: object, place: str, depth: int = 0) -> object:
    """A copy made of dict, list, str, numbers, booleans and None only: nothing else enters the
    sandbox."""
    if depth > DEPTH:
        raise TemplateError(f"{place}: nested more than {DEPTH} deep")
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TemplateError(f"{place}: expected text as keys")
        return {str(key): plain(part, f"{place}.{key}", depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, f"{place}[{at}]", depth + 1) for at, part in enumerate(value)]
    raise TemplateError(
        f"{place}: expected text, a number, a list or a mapping, got {type(value).__name__}"
    )
