"""Compat, chat formats: how messages become a prompt, chosen by programs: a template, a function,
or a handler that answers by itself.

`Llama` asks here for what its `chat_format` names. Handlers for images are known by name, and say
that models here read text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from tetrad.compat.processors import StoppingCriteriaList
from tetrad.core.errors import UnsupportedError
from tetrad.text.chat import ChatTemplate
from tetrad.text.templates import ALIASES, NAMED, named_template

F = TypeVar("F", bound=Callable[..., Any])
Handler = Callable[..., Any]
Message = Mapping[str, Any]


@dataclass
class ChatFormatterResponse:
    """A prompt, and what ends the answer to it besides the model's own tokens."""

    prompt: str
    stop: str | list[str] | None = None
    stopping_criteria: StoppingCriteriaList | None = None
    added_special: bool = False


class ChatFormatter(Protocol):
    def __call__(self, *, messages: Any, **kwargs: Any) -> ChatFormatterResponse: ...


class LlamaChatCompletionHandler(Protocol):
    """Answers messages; gets the `Llama` and every argument of `create_chat_completion`."""

    def __call__(self, *, llama: Any, messages: Any, **kwargs: Any) -> Any: ...


class LlamaChatCompletionHandlerNotFoundException(Exception):
    """No handler has this name."""


class Jinja2ChatFormatter:
    """A chat template, which runs in the same sandbox as those of model files.

    >>> formatter = Jinja2ChatFormatter("{{ messages[0].content }}{{ eos_token }}", "</s>", "<s>")
    >>> formatter(messages=[{"role": "user", "content": "Hi"}]).prompt
    'Hi</s>'
    """

    def __init__(
        self,
        template: str,
        eos_token: str,
        bos_token: str,
        add_generation_prompt: bool = True,
        stop_token_ids: Sequence[int] | None = None,
    ) -> None:
        self.template, self.eos_token, self.bos_token = template, eos_token, bos_token
        self.add_generation_prompt = add_generation_prompt
        self.stop_token_ids = frozenset(stop_token_ids or ())
        self._compiled = ChatTemplate(template, bos_token, eos_token)

    def __call__(
        self, *, messages: Sequence[Message], tools: Any = None, **_: Any
    ) -> ChatFormatterResponse:
        prompt = self._compiled.render(messages, self.add_generation_prompt, tools)
        criteria = StoppingCriteriaList([self._has_ended]) if self.stop_token_ids else None
        stop = [self.eos_token] if self.eos_token else []
        return ChatFormatterResponse(prompt, stop, criteria, added_special=True)

    def _has_ended(self, tokens: np.ndarray, logits: np.ndarray) -> bool:
        return int(tokens[-1]) in self.stop_token_ids

    def to_chat_handler(self) -> Handler:
        return chat_formatter_to_chat_completion_handler(self)


class FormattedPrompt:
    """A formatter in the place of a model's chat template; keeps what else it said of the last
    prompt."""

    def __init__(self, formatter: ChatFormatter) -> None:
        self.formatter, self.source = formatter, str(getattr(formatter, "template", ""))
        self.said: ChatFormatterResponse | None = None

    def render(self, messages: Any, /, **variables: Any) -> str:
        self.said = self.formatter(messages=messages, **variables)
        return self.said.prompt

    @property
    def stop(self) -> list[str]:
        stop = None if self.said is None else self.said.stop
        return [stop] if isinstance(stop, str) else list(stop or ())

    @property
    def criteria(self) -> StoppingCriteriaList | None:
        return None if self.said is None else self.said.stopping_criteria


def chat_formatter_to_chat_completion_handler(chat_formatter: ChatFormatter) -> Handler:
    """A handler that asks the model with the prompt of a formatter."""

    def handler(*, llama: Any, messages: Sequence[Message], **chosen: Any) -> Any:
        return llama.chat_as(FormattedPrompt(chat_formatter), messages, chosen)

    return handler


# -- by name ---------------------------------------------------------------------------------------

HANDLERS: dict[str, Handler] = {}


def register_chat_completion_handler(name: str) -> Callable[[F], F]:
    """A handler for `chat_format=name`."""

    def register(handler: F) -> F:
        HANDLERS[name] = handler
        return handler

    return register


def register_chat_format(name: str) -> Callable[[F], F]:
    """A formatter for `chat_format=name`: messages in, a `ChatFormatterResponse` out."""

    def register(formatter: F) -> F:
        HANDLERS[name] = chat_formatter_to_chat_completion_handler(formatter)
        return formatter

    return register


def get_chat_completion_handler(name: str) -> Handler:
    """The handler that has this name, also one of the formats that are here from the start."""
    if name in HANDLERS:
        return HANDLERS[name]
    if ALIASES.get(name, name) not in NAMED:
        raise LlamaChatCompletionHandlerNotFoundException(f"no handler is called {name!r}")

    def handler(*, llama: Any, messages: Sequence[Message], **chosen: Any) -> Any:
        template = ChatTemplate(named_template(name), *llama.begin_and_end())
        return llama.chat_as(template, messages, chosen)

    return handler


# -- images ----------------------------------------------------------------------------------------

HINT = "models here read text alone: describe the image in words, or ask another program"
IMAGES = ("image_url", "image", "input_image", "input_audio", "audio", "video")


def check_text_only(messages: Any) -> None:
    """An error where a message has a part that is no text."""
    for at, message in enumerate(messages if isinstance(messages, list | tuple) else ()):
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list | tuple) else ():
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind in IMAGES:
                said = f"messages[{at}]: a part of type {kind!r} is not supported"
                raise UnsupportedError(said, hint=HINT)


class MTMDChatHandler:
    """A handler for images: cannot be made."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._refuse()

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> NoReturn:
        cls._refuse()

    @classmethod
    def _refuse(cls) -> NoReturn:
        raise UnsupportedError(f"{cls.__name__}: images are not supported", hint=HINT)


class Llava15ChatHandler(MTMDChatHandler): ...


class Llava16ChatHandler(MTMDChatHandler): ...


class ObsidianChatHandler(MTMDChatHandler): ...


class MoondreamChatHandler(MTMDChatHandler): ...


class NanoLlavaChatHandler(MTMDChatHandler): ...


class Llama3VisionAlphaChatHandler(MTMDChatHandler): ...


class MiniCPMv26ChatHandler(MTMDChatHandler): ...


class Qwen25VLChatHandler(MTMDChatHandler): ...


class Gemma4ChatHandler(MTMDChatHandler): ...
