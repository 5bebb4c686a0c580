"""Compat, arguments: which arguments of llama-cpp-python are understood, which change nothing,
which are refused.

Receives what a program passed, returns it as this package takes it. Nothing is ignored in silence:
what changes nothing here, or is no argument there either, is a warning, what cannot be done an
error.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any

from tetrad.core.errors import SettingError, UnsupportedError
from tetrad.models.decoding.settings import DEFAULTS, Processor
from tetrad.quant import formats
from tetrad.text.templates import ALIASES, NAMED, named_template

KV_TYPES = {formats[name].number: name for name in ("f32", "f16", "q8_0", "bf16")}
ROPE_TYPES = {0: "none", 1: "linear", 2: "yarn"}  # of rope_scaling_type; -1 and None: the model's

ROPE = {  # argument: key of the architecture, and the value that stands for what the model says
    "rope_freq_base": ("rope.freq_base", 0.0),
    "yarn_ext_factor": ("rope.scaling.yarn_ext_factor", -1.0),
    "yarn_attn_factor": ("rope.scaling.attn_factor", 1.0),
    "yarn_beta_fast": ("rope.scaling.yarn_beta_fast", 32.0),
    "yarn_beta_slow": ("rope.scaling.yarn_beta_slow", 1.0),
    "yarn_orig_ctx": ("rope.scaling.original_context_length", 0),
}

# -- arguments of methods --------------------------------------------------------------------------

# Arguments of methods in their order, with their defaults: those of the settings, where
# llama-cpp-python has the same. They come after the prompt, the messages or the tokens.
Method = Callable[[Callable[..., Any]], Callable[..., Any]]
OLD = {"tfs_z": 1.0}  # of single values, which llama.cpp has given up
MIROSTAT = {"mirostat_mode": DEFAULTS["mirostat"]}
TEMP = {"temp": DEFAULTS["temperature"]}
LENT = ("frequency_penalty", "presence_penalty")


def defaults(*names: str) -> dict[str, Any]:
    return {name: DEFAULTS[name] for name in names}


COMPLETION = {
    "suffix": None, "max_tokens": 16, **defaults("temperature", "top_p", "min_p", "typical_p"),
    "logprobs": None,
    "echo": False, **defaults("stop", *LENT, "repeat_penalty", "top_k", "stream", "seed"), **OLD,
    **MIROSTAT,
    **defaults("mirostat_tau", "mirostat_eta"), "model": None,
    **defaults("stopping_criteria", "logits_processor", "grammar", "logit_bias"),
}  # fmt: skip
CHAT = {
    "functions": None, "function_call": None, "tools": None, "tool_choice": None,
    "temperature": 0.2,
    **defaults("top_p", "top_k", "min_p", "typical_p", "stream", "stop", "seed"),
    "response_format": None,
    "max_tokens": None, **defaults("presence_penalty", "frequency_penalty", "repeat_penalty"),
    **OLD, **MIROSTAT,
    **defaults("mirostat_tau", "mirostat_eta"), "model": None,
    **defaults("logits_processor", "grammar", "logit_bias"), "logprobs": None, "top_logprobs": None,
}  # fmt: skip
SAMPLE = {
    **defaults("top_k", "top_p", "min_p", "typical_p"), **TEMP, **defaults("repeat_penalty", *LENT),
    **OLD, **MIROSTAT,
    **defaults("mirostat_eta", "mirostat_tau"), "penalize_nl": True, **defaults("logits_processor",
    "grammar"),
    "idx": None,
}  # fmt: skip
TOKENS = {
    **defaults("top_k", "top_p", "min_p", "typical_p"), **TEMP, **defaults("repeat_penalty"),
    "reset": True,
    **defaults(*LENT), **OLD, **MIROSTAT, **defaults("mirostat_tau", "mirostat_eta"),
    "penalize_nl": True,
    **defaults("logits_processor", "stopping_criteria", "grammar"),
}  # fmt: skip
RENAMED = {"mirostat_mode": "mirostat", "temp": "temperature"}
# Settings whose values are the same there and here.
ALIKE = frozenset({
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty", *LENT, "mirostat",
    "mirostat_tau",
    "mirostat_eta",
})  # fmt: skip


def settings_alike(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `generate` among the arguments of a method."""
    named = {RENAMED.get(name, name): value for name, value in chosen.items()}
    return {name: value for name, value in named.items() if name in ALIKE}


def takes(
    table: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]], subjects: int = 1
) -> Method:
    """A method that takes these arguments, by position or name, and gets all of them in one
    mapping. Those it has not are refused, unless `neutral` has the value."""

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: Any, *values: Any, **named: Any) -> Any:
            others = {
                name: named.pop(name) for name in [*named] if name not in signature.parameters
            }
            bound = signature.bind(self, *values, **named)
            chosen = {**table, **{n: v for n, v in bound.arguments.items() if n in table}}
            refuse(
                method.__name__,
                {**{n: chosen[n] for n in neutral if n in chosen}, **others},
                neutral,
            )
            return method(*bound.args[: 1 + subjects], chosen)

        kept = list(inspect.signature(method).parameters.values())[: 1 + subjects]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        shown = [inspect.Parameter(name, kind, default=default) for name, default in table.items()]
        signature = inspect.Signature([*kept, *shown])
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate


CPU = "everything runs on the CPU"

# Arguments without effect: the value at which nothing needs to be said, and why it changes nothing.
WITHOUT_EFFECT: dict[str, tuple[Any, str]] = {
    "n_gpu_layers": (0, CPU), "split_mode": (1, CPU), "main_gpu": (0, CPU), "tensor_split": (None,
    CPU),
    "offload_kqv": (True, CPU), "op_offload": (None, CPU), "use_mmap": (True,
    "files are always mapped"),
    "use_mlock": (False, "the system decides what stays in memory"), "numa": (False,
    "threads are not bound to nodes"),
    "device": (None, CPU), "swa_full": (None, "every layer keeps all positions"),
}  # fmt: skip
# Those of which no value changes anything, or the result says it all.
QUIET = frozenset({
    "n_batch", "n_ubatch", "n_threads_batch", "flash_attn", "no_perf", "verbose", "attention_type",
    "spm_infill", "vocab_only", "f16_kv", "n_parts",
})  # fmt: skip
# Those that would change something, were they followed; at these values they do not.
LOADING: dict[str, tuple[Any, ...]] = {
    "lora_base": (None,), "lora_scale": (1.0,), "lora_path": (None,), "tokenizer": (None,),
}  # fmt: skip
# Words of JSON schemas: values that are no schemas; schemas by names; what says whether an object
# is open.
LITERAL = frozenset({"const", "enum", "default", "examples", "required", "allOf"})
NAMED_PARTS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
OPENNESS = frozenset({
    "additionalProperties", "patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf",
    "$ref",
    "if", "not",
})  # fmt: skip


# Those that `Llama` has by name.
OWN = frozenset({
    "model_path", "kv_overrides", "seed", "n_ctx", "n_threads", "pooling_type", "logits_all",
    "embedding", "last_n_tokens_size", "chat_format", "chat_handler", "draft_model", "type_k",
    "type_v",
})  # fmt: skip


def take_loading(given: dict[str, Any]) -> None:
    """Arguments of `Llama` that this package does not have."""
    for name in [name for name in given if name in QUIET]:
        del given[name]
    for name in [name for name in given if name in WITHOUT_EFFECT]:
        value, (quiet, why) = given.pop(name), WITHOUT_EFFECT[name]
        if value != quiet:
            warnings.warn(f"Llama: {name}={value!r} has no effect: {why}", stacklevel=3)
    for name in [name for name in given if name not in LOADING]:
        close = difflib.get_close_matches(name, {*QUIET, *WITHOUT_EFFECT, *ROPE, *LOADING, *OWN}, 1)
        said = f"; did you mean {close[0]}?" if close else ""
        value = given.pop(name)
        warnings.warn(f"Llama: {name}={value!r} is no argument of it{said}", stacklevel=3)
    refuse("Llama", given, LOADING)


def guesses_of(draft_model: Any) -> Any:
    """`draft_model` as the setting `speculate`: a function of the tokens so far."""
    if draft_model is None:
        return 0
    if isinstance(draft_model, type) or not callable(draft_model):
        raise UnsupportedError(
            f"Llama: draft_model={draft_model!r}",
            hint="LlamaPromptLookupDecoding(), or another LlamaDraftModel",
        )
    return draft_model


def refuse(what: str, given: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]]) -> None:
    """An argument that would change something, were it followed, is an error."""
    for name, value in given.items():
        if name not in neutral:
            raise UnsupportedError(f"{what}: there is no argument {name!r}")
        if value not in neutral[name]:
            allowed = " or ".join(repr(v) for v in neutral[name])
            raise UnsupportedError(
                f"{what}: {name}={value!r} is not supported",
                hint=f"leave it out, or pass {allowed}",
            )


def cache_kind(type_k: int | None, type_v: int | None) -> str:
    kinds = [1 if kind is None else kind for kind in (type_k, type_v)]
    if kinds[0] != kinds[1] or kinds[0] not in KV_TYPES:
        known = ", ".join(f"{number} ({name})" for number, name in KV_TYPES.items())
        raise UnsupportedError(
            f"Llama: type_k={type_k!r}, type_v={type_v!r}: both alike, of {known}"
        )
    return KV_TYPES[kinds[0]]


def rope_overrides(given: dict[str, Any]) -> dict[str, Any]:
    """Keys of the architecture, from the arguments about rotary positions, which are taken out of
    `given`."""
    found = {}
    for name, (key, neutral) in ROPE.items():
        value = given.pop(name, neutral)
        if value not in (neutral, None):
            found[key] = value
    if (kind := given.pop("rope_scaling_type", -1)) not in (None, -1):
        if kind not in ROPE_TYPES:
            raise UnsupportedError(
                f"Llama: rope_scaling_type={kind!r}", hint=f"known: {ROPE_TYPES}"
            )
        found["rope.scaling.type"] = ROPE_TYPES[kind]
    if scale := given.pop("rope_freq_scale", 0.0):
        found["rope.scaling.factor"] = 1 / scale
    return found


def template_override(name: str | None, known: Collection[str] = ()) -> dict[str, str]:
    """`chat_format`: None is the model's own template, and so is what programs have `known`, which
    comes in its place later."""
    if name in (None, "chat_template.default") or name in known:
        return {}
    if ALIASES.get(str(name), name) not in NAMED:
        names = ", ".join(sorted({*NAMED, *ALIASES, *known}))
        raise UnsupportedError(
            f"Llama: chat_format={name!r} is not supported",
            hint=f"leave it out for the model's own, or one of {names}",
        )
    return {"tokenizer.chat_template": named_template(str(name))}


def checked_bias(bias: Mapping[Any, float]) -> dict[int, float]:
    """Tokens may be text there, as JSON has no other keys."""
    try:
        return {int(token): float(value) for token, value in bias.items()}
    except (AttributeError, TypeError, ValueError):
        raise SettingError("logit_bias", "a mapping from token ids to numbers", bias) from None


def as_processor(name: str, given: Processor | Sequence[Processor] | None) -> Processor | None:
    """One function of a list of them: each gets what the one before it made of the logits."""
    if given is None or (callable(given) and not isinstance(given, Sequence)):
        return given
    if not isinstance(given, Sequence) or not all(callable(one) for one in given):
        raise SettingError(name, "a function, or a list of functions", given)
    return lambda tokens, logits: chained(given, tokens, logits)


def chained(processors: Sequence[Callable[[Any, Any], Any]], tokens: Any, logits: Any) -> Any:
    for one in processors:
        logits = one(tokens, logits)
    return logits


def as_criterion(given: Processor | Sequence[Processor] | None) -> Processor | None:
    """Any of a list of them."""
    if given is None or (callable(given) and not isinstance(given, Sequence)):
        return given
    if not isinstance(given, Sequence) or not all(callable(one) for one in given):
        raise SettingError("stopping_criteria", "a function, or a list of functions", given)
    return lambda tokens, logits: any(one(tokens, logits) for one in given)


def schema_of(response_format: Mapping[str, Any] | None) -> Any:
    if not isinstance(response_format, Mapping | None):
        raise SettingError(
            "response_format", 'a mapping such as {"type": "json_object"}', response_format
        )
    kind = None if response_format is None else response_format.get("type")
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":
        return closed(response_format.get("schema") or {"type": "object"})
    if kind == "json_schema":
        named = response_format.get("json_schema")
        if not isinstance(named, Mapping) or "schema" not in named:
            expected = '{"type": "json_schema", "json_schema": {"schema": ...}}'
            raise SettingError("response_format", expected, response_format)
        return closed(named["schema"])
    raise UnsupportedError(
        f"response_format: type {kind!r}", hint="known: text, json_object, json_schema"
    )


def closed(schema: Any) -> Any:
    """As there, objects have the properties that their schema names, and no others, where it does
    not say otherwise.

    Parts that hold together with others (`allOf`, a reference beside properties) stay as open as
    they are: closed, one would forbid what the other names.

    >>> closed({"properties": {"a": {"type": "integer"}}})
    {'properties': {'a': {'type': 'integer'}}, 'additionalProperties': False}
    """
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: closed_word(key, part) for key, part in schema.items()}
    names_all = isinstance(schema.get("properties"), Mapping) and not OPENNESS & schema.keys()
    return found | {"additionalProperties": False} if names_all else found


def closed_word(word: str, part: Any) -> Any:
    if word in LITERAL:
        return part
    return closed_parts(part) if word in NAMED_PARTS else closed(part)


def closed_parts(parts: Any) -> Any:
    """Schemas by names, which are not words of the language."""
    return (
        {name: closed(part) for name, part in parts.items()}
        if isinstance(parts, Mapping)
        else parts
    )


def as_tools(functions: Any, function_call: Any, tools: Any, tool_choice: Any) -> tuple[Any, Any]:
    """`functions` and `function_call`, the older names, as `tools` and `tool_choice`."""
    for name, given in (("functions", functions), ("tools", tools)):
        if given is not None and (
            isinstance(given, str) or not all(isinstance(one, Mapping) for one in given)
        ):
            raise SettingError(name, "a list of mappings", given)
    if functions is not None:
        tools = [{"type": "function", "function": function} for function in functions]
    if isinstance(function_call, Mapping):
        return tools, {"type": "function", "function": function_call}
    return tools, named_choice(tools, tool_choice if function_call is None else function_call)


def named_choice(tools: Sequence[Mapping[str, Any]] | None, choice: Any) -> Any:
    """A choice that is the name of a tool, as some programs pass it, in the usual form."""
    names = [tool.get("function", {}).get("name") for tool in tools or ()]
    is_name = isinstance(choice, str) and choice in names
    return {"type": "function", "function": {"name": choice}} if is_name else choice
