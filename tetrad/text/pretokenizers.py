"""How byte-level BPE cuts text into words before merging, by the name a GGUF file gives
(`tokenizer.ggml.pre`).

Receives the name; returns the patterns, applied one after the other, each match a word of its own.
Patterns are those the models were trained with (their tokenizer.json). A wrong one gives wrong
tokens without any sign: none is guessed.
"""

from __future__ import annotations

from enum import Enum

from tetrad.core.errors import UnsupportedError
from tetrad.core.record import record


class Digits(Enum):
    """Whether numbers are cut in threes, counted from the right, before the patterns run.

    Written as a pattern this needs a look ahead to the end of the number at every digit, so it has
    code of its own.
    """

    AS_THEY_ARE = "as they are"
    GROUPED = "grouped"
    GROUPED_ALONE = "grouped, unless a letter follows"


@record
class PreTokenizer:
    """Patterns in order, and what else follows from the name."""

    patterns: tuple[str, ...]
    digits: Digits = Digits.AS_THEY_ARE
    ignore_merges: bool = False  # a word that is a token is that token, whatever the merges say
    add_bos: bool = False
    # False: merges run over characters, spaces are ▁, other characters fall back to bytes
    byte_level: bool = True


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
HEAD = r"[^\r\n\p{L}\p{N}]?"  # one leading space or sign belongs to the word
ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def cl100k(numbers: str, *, spaces: str = SPACES) -> str:
    """The pattern of GPT-4 and the many after it; they differ in how numbers are cut."""
    return rf"{CONTRACTIONS}|{HEAD}\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{spaces}"


def o200k(
    numbers: str,
    *,
    contractions: str = f"{CONTRACTIONS}?",
    upper: str = UPPER,
    lower: str = LOWER,
    signs_end: str = r"[\r\n/]*",
) -> str:
    """The pattern of GPT-4o: a word also ends where lower case turns to upper case."""
    return (
        rf"{HEAD}{upper}*{lower}+{contractions}|{HEAD}{upper}+{lower}*{contractions}"
        rf"|{numbers}| ?[^\s\p{{L}}\p{{N}}]+{signs_end}|{SPACES}"
    )


LLAMA3 = cl100k(r"\p{N}{1,3}")
QWEN2 = cl100k(r"\p{N}")
QWEN35 = (
    rf"{CONTRACTIONS}|{HEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}"
)
# No look for a line's end right after white space: there was none when that was cut off, and each
# piece of a long run would look through all the rest of it.
HALVING_SPACES = "|".join(
    [
        r"(?<![^\S\r\n])\s*[\r\n]+",
        *(rf"\s{{{2**k}}}(?!\S)" for k in range(9, 1, -1)),
        r"\s{1,2}(?!\S)",
        r"\s{1}",
    ]
)
# from the first of them on: a run that is not the last is looked through once
FINAL_SPACES = r"(?<!\s)\s+$"
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n"
    r"]*|\s*[\r\n"
    r"]|\s+(?!\S)|\s+"
)
SEED_CODER = rf"{CONTRACTIONS}|{HEAD}\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{SPACES}"
EXAONE_MOE = (
    rf"{CONTRACTIONS}|{HEAD}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c" + ")]+"

NOT_HAN = r"&&[^\p{Han}]]"
KIMI = r"[\p{Han}]+|" + o200k(
    r"\p{N}{1,3}", upper=UPPER[:-1] + NOT_HAN, lower=LOWER[:-1] + NOT_HAN, signs_end=r"[\r\n]*"
)

DEEPSEEK3_WORDS = (
    rf"{ASCII_SIGNS}[A-Za-z]+|[^\r\n"
    rf"\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}"
)
# Ranges of letters and signs, exactly as the models spell them.
DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-"
    "\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-"
    "\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-"
    "\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e"
    "\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-"
    "\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-"
    "\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_SIGNS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-"
    "\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-"
    "\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)

DEEPSEEK3 = (r"\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK3_WORDS)

DIGITS_GPT2 = PreTokenizer((r"\p{N}", GPT2))
PLAIN_GPT2 = PreTokenizer((GPT2,))
PLAIN_LLAMA3 = PreTokenizer((LLAMA3,))
PLAIN_QWEN2 = PreTokenizer((QWEN2,))
PLAIN_BLOOM = PreTokenizer((BLOOM,))
PLAIN_GPT4O = PreTokenizer((o200k(r"\p{N}{1,3}"),))
PLAIN_BAILING = PreTokenizer((BAILING,))
PLAIN_DEEPSEEK3 = PreTokenizer(DEEPSEEK3)
FULL_LLAMA3 = PreTokenizer((LLAMA3,), ignore_merges=True, add_bos=True)
GROUPED_GPT4O = PreTokenizer((o200k(r"\p{N}{1,3}"),), Digits.GROUPED_ALONE)
CHARACTERS = PreTokenizer((r"\n+",), byte_level=False)

# name: (what it means, other names of the same)
FAMILIES: dict[str, tuple[PreTokenizer, tuple[str, ...]]] = {
    "default": (PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")), ()),
    "gpt-2": (
        PLAIN_GPT2,
        (
            *(
                "phi-2",
                "jina-es",
                "jina-de",
                "jina-v2-es",
                "jina-v2-de",
                "jina-v1-en",
                "jina-v2-code",
                "roberta-bpe",
            ),
            *(
                "gigachat",
                "a.x-4.0",
                "mellum",
                "modern-bert",
                "exaone4",
                "mpt",
                "olmo",
                "jais",
                "trillion",
            ),
            "granite-docling",
        ),
    ),
    "smollm": (
        DIGITS_GPT2,
        ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
    ),
    "falcon": (PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")), ()),
    "llama-bpe": (
        FULL_LLAMA3,
        (
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ),
    ),
    "dbrx": (PLAIN_LLAMA3, ("smaug-bpe", "chatglm-bpe", "glm4")),
    "minicpm5": (PreTokenizer((r"\p{N}{1,3}", cl100k(r"\p{N}+")), ignore_merges=True), ()),
    "jais-2": (PreTokenizer((cl100k(r"\p{N}{1,3}", spaces=HALVING_SPACES),)), ()),
    "qwen2": (
        PLAIN_QWEN2,
        (
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ),
    ),
    "qwen35": (PreTokenizer((QWEN35,)), ()),
    "laguna": (PreTokenizer((r"[^\n]+|[\n]+", QWEN2)), ()),
    "deepseek-llm": (
        PreTokenizer(
            (
                r"[\r\n]",
                rf"\s?[{DEEPSEEK_LETTERS}]+",
                rf"\s?[{DEEPSEEK_SIGNS}]+",
                FINAL_SPACES,
                EAST_ASIAN,
                r"\p{N}+",
            )
        ),
        (),
    ),
    "deepseek-coder": (
        PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, r"\p{N}")),
        (),
    ),
    "deepseek-v3": (PLAIN_DEEPSEEK3, ("hunyuan-dense", "joyai-llm")),
    "afmoe": (PreTokenizer((AFMOE_SCRIPTS, DEEPSEEK3_WORDS), Digits.GROUPED), ()),
    "youtu": (PreTokenizer((YOUTU_SCRIPTS, o200k(r"\p{N}")), ignore_merges=True), ()),
    "bloom": (PLAIN_BLOOM, ("poro", "poro-chat", "gpt3-finnish")),
    "viking": (PreTokenizer((BLOOM, r"\p{N}")), ()),
    "tekken": (
        PreTokenizer((o200k(r"\p{N}", contractions=""),), ignore_merges=True, add_bos=True),
        (),
    ),
    "chameleon": (
        PreTokenizer(
            (
                "<sentinel:[0-9]+>",
                "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                "([\\t\\n]|    |  )",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                GPT2,
            ),
            add_bos=True,
        ),
        (),
    ),
    "gpt-4o": (PLAIN_GPT4O, ("llama4", "kanana2", "talkie", "minimax-m2")),
    "granite-embed-multi-97m": (PreTokenizer((o200k(r"\p{N}{1,3}"),), ignore_merges=True), ()),
    "tiny_aya": (GROUPED_GPT4O, ("cohere2moe",)),
    "superbpe": (PreTokenizer((r"\p{N}+",), Digits.GROUPED), ()),
    "bailingmoe": (PLAIN_BAILING, ("bailingmoe2", "llada-moe")),
    "seed-coder": (PreTokenizer((SEED_CODER,)), ()),
    "exaone-moe": (PreTokenizer((EXAONE_MOE,)), ()),
    "kimi-k2": (PreTokenizer((KIMI,)), ()),
    "gemma4": (CHARACTERS, ("sarvam-moe", "granite-embed-multi-311m")),
}
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: family for first, (family, others) in FAMILIES.items() for name in (first, *others)
}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokeniser of this name.

    >>> pre_tokenizer("smollm").patterns[0]
    '\\\\p{N}'
    """
    if name not in PRE_TOKENIZERS:
        raise UnsupportedError(
            f"tokenizer.ggml.pre: pre-tokeniser {name!r} is not known",
            hint=f"known are {', '.join(sorted(PRE_TOKENIZERS))}; a guess would give wrong tokens "
            "without any sign",
        )
    return PRE_TOKENIZERS[name]
