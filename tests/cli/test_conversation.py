"""Conversations: what slash commands do, without a model or a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tetrad.cli.chat import block, said
from tetrad.cli.talk.conversation import CommandError, Conversation, Ended
from tetrad.cli.talk.local import LocalPartner


class Echo:
    """Stands for a model: answers with what it was asked."""

    name, path, metadata = "echo", "echo.gguf", {"tokenizer.chat_template": "the template"}
    config = SimpleNamespace(arch="echo", layers=1, width=2, context=3)

    context = 40

    def chat_tokens(self, messages: list[dict[str, str]], **variables: Any) -> list[Any]:
        """A token for every character, and one before each message, which is the message."""
        return [token for message in messages for token in (message, *message["content"])]

    def generate(self, tokens: list[Any], **settings: Any) -> Any:
        self.asked = [token for token in tokens if isinstance(token, dict)], settings
        return iter(())


def asked(talk: Conversation, text: str) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """The messages and settings that a question leads to."""
    talk.ask(text)
    found: Any = talk.partner
    messages, settings = found.model.asked
    return messages, settings


def conversation(settings: dict[str, Any], system: str | None = None) -> Conversation:
    model: Any = Echo()
    return Conversation(LocalPartner(model), settings, system)


@pytest.fixture
def talk() -> Conversation:
    return conversation({"temperature": 0.8, "seed": None, "max_tokens": -1}, "Be kind.")


def test_messages_grow_and_carry_the_system_message(talk: Conversation) -> None:
    talk.ask("Hi")
    talk.keep("Hello")
    messages, settings = asked(talk, "And?")
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert settings == {"stream": True, "temperature": 0.8, "seed": None, "max_tokens": -1}


def test_a_question_without_an_answer_is_taken_back(talk: Conversation) -> None:
    talk.ask("Hi")
    talk.keep("")
    assert talk.turns == []


def test_settings(talk: Conversation) -> None:
    assert talk.command("/set temperature 0.2") == "temperature = 0.2"
    talk.command("/set temp 0.3")
    talk.command("/set seed 7")
    talk.command("/set num_predict 5")
    assert talk.settings == {"temperature": 0.3, "seed": 7, "max_tokens": 5}
    talk.command("/set seed -1")
    assert talk.settings["seed"] is None
    talk.command('/set system "Be brief."')
    assert talk.messages == [{"role": "system", "content": "Be brief."}]
    talk.command("/set verbose")
    assert talk.is_verbose
    assert talk.command("/set hidethinking") == "thoughts are hidden" and talk.hides
    assert talk.command("/set nowordwrap") == "words do not wrap" and not talk.wraps
    assert talk.command("/set nothink") == "the model is asked not to think"
    assert talk.settings["template"] == {"enable_thinking": False}
    talk.command("/set think")
    assert talk.settings["template"] == {"enable_thinking": True}
    assert "temperature" in talk.command("/show") and "max_tokens" in talk.command(
        "/show parameters"
    )


def test_settings_as_ollama_says_them(talk: Conversation) -> None:
    assert talk.command("/set parameter temperature 0.7") == "temperature = 0.7"
    assert talk.command(
        '/set parameter stop "END"'
    ) == 'answers end before "END"' and talk.settings["stop"] == ("END",)
    assert talk.command("/set stop") == "no text ends answers" and talk.settings["stop"] == ()
    assert talk.command("/set format json") == "answers are JSON"
    assert talk.settings["json_schema"] == {"type": "object"}
    talk.command("/set noformat")
    assert talk.settings["json_schema"] is None and talk.settings["temperature"] == 0.7


def test_show(talk: Conversation) -> None:
    talk.ask("Hi")
    assert talk.command("/show system") == "Be kind."
    assert talk.command("/show messages") == "system: Be kind.\nuser: Hi"
    assert talk.command("/show template") == "the template"
    assert "1 layers of width 2, context 3" in talk.command("/show info")


def test_save_and_load(talk: Conversation, tmp_path: Path) -> None:
    talk.ask("Grüße")
    talk.keep("Hallo")
    path = tmp_path / "a talk.json"
    assert talk.command(f'/save "{path}"') == f"2 messages are in {path}"
    other = conversation({})
    assert other.command(f"/load '{path}'") == f"2 messages from {path}"
    assert other.messages == talk.messages
    talk.command("/clear")
    assert talk.turns == []


def full(*turns: tuple[str, str]) -> Conversation:
    talk = conversation({"shift": True, "keep": 0}, "Kind.")
    talk.turns = [{"role": role, "content": content} for role, content in turns]
    return talk


def test_a_full_context_forgets_the_oldest_turns_and_keeps_the_system_message() -> None:
    talk = full(
        ("user", "one one"), ("assistant", "1" * 8), ("user", "two two"), ("assistant", "2" * 8)
    )
    messages, settings = asked(talk, "three")
    assert [m["content"] for m in messages] == ["Kind.", "two two", "22222222", "three"]
    assert talk.messages == messages and settings["keep"] == 6  # the message, its five characters
    talk.keep("3")
    assert [m["content"] for m in asked(talk, "x")[0]] == [
        "Kind.",
        "two two",
        "22222222",
        "three",
        "3",
        "x",
    ]


def test_what_a_system_said_among_the_turns_is_kept() -> None:
    talk = full(
        ("system", "Rule."),
        ("user", "one" * 5),
        ("assistant", "1" * 8),
        ("user", "two"),
        ("assistant", "2"),
    )
    assert [m["content"] for m in asked(talk, "three")[0]] == [
        "Kind.",
        "Rule.",
        "two",
        "2",
        "three",
    ]


def test_nothing_is_forgotten_for_a_message_that_never_fits() -> None:
    talk = full(("user", "one"), ("assistant", "1"))
    talk.ask("x" * 60)
    talk.keep("")
    assert [turn["content"] for turn in talk.turns] == ["one", "1"]


def test_retry_gives_the_last_question_back(talk: Conversation) -> None:
    with pytest.raises(CommandError, match="nothing was asked yet"):
        talk.retry()
    talk.ask("Hi")
    talk.keep("Hello")
    assert talk.retry() == "Hi" and talk.turns == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/sing", "there is no command /sing\n  hint: commands: /help, "),
        ("/set mood 3", "there is no setting 'mood'\n  hint: settings: temperature"),
        ("/set temperature warm", "expected a number, got 'warm'"),
        ("/set temperature -1", "/set temperature: expected a number of at least 0, got -1.0"),
        ("/set top_p nan", "/set top_p: expected a number, got nan"),
        ("/set max_tokens -5", "/set max_tokens: expected a whole number of at least -1, got -5"),
        ("/set format xml", "/set format: expected json, got 'xml'"),
        ("/show weather", "there is no 'weather'"),
        ("/save", "expected the name of one file, got 0"),
        ("/save 'a", "No closing quotation"),
        ("/save /no/such/folder/x", "No such file"),
        ("/load /no/such/file", "No such file"),
    ],
)
def test_what_makes_no_sense_is_said(talk: Conversation, line: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        talk.command(line)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "held", ["{", "[]", '{"messages": [{"role": "user"}]}', json.dumps({"messages": "x"})]
)
def test_files_that_hold_no_conversation(talk: Conversation, tmp_path: Path, held: str) -> None:
    (tmp_path / "x").write_text(held)
    with pytest.raises(CommandError, match=r"no JSON|no conversation"):
        talk.command(f"/load {tmp_path / 'x'}")


@pytest.mark.parametrize("word", ["/bye", "/exit", "/quit"])
def test_goodbye(talk: Conversation, word: str) -> None:
    with pytest.raises(Ended):
        talk.command(word)


def reader(*lines: str | type[BaseException]) -> Any:
    left = iter(lines)

    def read(prompt: str) -> str:
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


def test_lines_blocks_and_interrupts() -> None:
    lines = (
        "one",
        "",
        '"""two',
        'three"""',
        KeyboardInterrupt,
        '  """four"""',
        '"""dropped',
        KeyboardInterrupt,
        "five",
    )
    assert list(said(reader(*lines))) == ["one", "two\nthree", "four", "five"]


def test_a_block_that_never_ends() -> None:
    with pytest.raises(EOFError):
        block("text", reader("more"))
