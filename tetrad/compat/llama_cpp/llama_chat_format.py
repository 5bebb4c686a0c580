"""`llama_cpp.llama_chat_format`."""

from tetrad.compat.chat_formats import (
    ChatFormatter,
    ChatFormatterResponse,
    Gemma4ChatHandler,
    Jinja2ChatFormatter,
    Llama3VisionAlphaChatHandler,
    LlamaChatCompletionHandler,
    LlamaChatCompletionHandlerNotFoundException,
    Llava15ChatHandler,
    Llava16ChatHandler,
    MiniCPMv26ChatHandler,
    MoondreamChatHandler,
    MTMDChatHandler,
    NanoLlavaChatHandler,
    ObsidianChatHandler,
    Qwen25VLChatHandler,
    chat_formatter_to_chat_completion_handler,
    get_chat_completion_handler,
    register_chat_completion_handler,
    register_chat_format,
)

__all__ = [
    "ChatFormatter", "ChatFormatterResponse", "Gemma4ChatHandler", "Jinja2ChatFormatter",
    "Llama3VisionAlphaChatHandler", "LlamaChatCompletionHandler",
    "LlamaChatCompletionHandlerNotFoundException", "Llava15ChatHandler", "Llava16ChatHandler",
    "MTMDChatHandler", "MiniCPMv26ChatHandler", "MoondreamChatHandler", "NanoLlavaChatHandler",
    "ObsidianChatHandler", "Qwen25VLChatHandler", "chat_formatter_to_chat_completion_handler",
    "get_chat_completion_handler", "register_chat_completion_handler", "register_chat_format",
]  # fmt: skip
