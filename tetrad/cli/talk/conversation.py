"""Command line, conversations: the messages of a chat and the commands that begin with a slash.

Receives lines, returns what to print; knows nothing of terminals. A conversation can be saved as
JSON and loaded again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tetrad.cli.talk.parts import AnswerPart, Partner, Turns
from tetrad.core.errors import SettingError, TetradError
from tetrad.models.decoding.settings import RULES, WHOLE, Number, Positive

HELP = """/set NAME VALUE    temperature, top_k, top_p, min_p, seed, max_tokens, repeat_penalty, ...
/set stop TEXT     where answers end; /set format json: only JSON, /set noformat
/set system TEXT   what the model is told before everything else
/set verbose|quiet timings after each answer, or none
/set think|nothink let the model think before it answers, or not
/set hidethinking  show answers alone; /set showthinking: thoughts too
/set nowordwrap    lines as the terminal breaks them; /set wordwrap: between words
/show              the settings; /show system | messages | template | info
/clear             forget the conversation
/save FILE         the conversation as JSON
/load FILE         and back
/retry             forget the last answer and write another
/bye               the end (also Ctrl-D)

\"\"\" begins and ends a message of several lines. Ctrl-C stops an answer, not the program."""

NUMBERS: dict[str, Callable[[str], Any]] = {
    name: int if isinstance(rule, WHOLE) else float
    for name, rule in RULES.items()
    if isinstance(rule, (*WHOLE, Number, Positive)) and name not in ("logprobs", "keep")
}
# as people also call them
NAMES = {"temp": "temperature", "num_predict": "max_tokens", "n": "max_tokens"}


class Ended(Exception):
    """The user has said goodbye."""


class CommandError(TetradError, ValueError):
    """A slash command that makes no sense."""


class Conversation:
    """What was said, and how the next answer is drawn."""

    def __init__(
        self,
        partner: Partner,
        settings: dict[str, Any],
        system: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.partner, self.settings, self.system = partner, settings, system
        self.is_verbose, self.hides, self.wraps = verbose, False, True
        self.turns: Turns = []

    @property
    def messages(self) -> Turns:
        return [*self.told, *self.turns]

    @property
    def told(self) -> Turns:
        """What stands before all turns."""
        return [{"role": "system", "content": self.system}] if self.system else []

    def ask(self, text: str) -> Iterator[AnswerPart]:
        """The parts of the answer; `keep` is told what came of it."""
        self.turns.append({"role": "user", "content": text})
        self.turns, parts = self.partner.answer(self.told, self.turns, self.settings)
        return parts

    def keep(self, answer: str) -> None:
        """An answer, also one that was stopped; without any, the question is taken back."""
        if answer:
            self.turns.append({"role": "assistant", "content": answer})
        else:
            self.turns.pop()

    # -- commands ----------------------------------------------------------------------------------

    def command(self, line: str) -> str:
        """Does what `/word ...` says and returns what to print."""
        word, _, rest = line.strip().partition(" ")
        actions = {
            "/help": lambda _: HELP,
            "/?": lambda _: HELP,
            "/set": self.set,
            "/show": self.show,
            "/clear": self.clear,
            "/save": self.save,
            "/load": self.load,
        }
        if word in ("/bye", "/exit", "/quit"):
            raise Ended
        if word not in actions:
            raise CommandError(
                f"there is no command {word}", hint=f"commands: {', '.join(actions)}, /retry, /bye"
            )
        return actions[word](rest.strip())

    def set(self, rest: str) -> str:
        """`/set NAME VALUE`: changes a setting of this chat, and says what holds now."""
        # ollama says /set parameter NAME
        name, _, value = rest.removeprefix("parameter ").lstrip().partition(" ")
        name, value = NAMES.get(name, name), value.strip()
        if name in self.switches():
            return self.switches()[name]()
        if name == "system":
            self.system = value.strip('"') or None
            return "the system message is set" if self.system else "there is no system message"
        if name in ("format", "noformat"):
            return self.set_format(value if name == "format" else "")
        if name == "stop":
            self.settings["stop"] = (value.strip('"'),) if value.strip('"') else ()
            return (
                f"answers end before {value}" if self.settings["stop"] else "no text ends answers"
            )
        if name not in NUMBERS:
            known = ", ".join([*NUMBERS, "stop", "format", "noformat", "system", *self.switches()])
            raise CommandError(f"/set: there is no setting {name!r}", hint=f"settings: {known}")
        try:
            number = NUMBERS[name](value)
        except ValueError:
            raise CommandError(f"/set {name}: expected a number, got {value!r}") from None
        self.check(name, number)
        self.settings[name] = None if name == "seed" and number < 0 else number
        return f"{name} = {number}"

    def switches(self) -> dict[str, Callable[[], str]]:
        """What is set by its name alone, as ollama has it."""
        return {
            "verbose": lambda: self.switch("is_verbose", True, "timings are shown"),
            "quiet": lambda: self.switch("is_verbose", False, "timings are not shown"),
            "think": lambda: self.think(True),
            "nothink": lambda: self.think(False),
            "showthinking": lambda: self.switch("hides", False, "thoughts are shown"),
            "hidethinking": lambda: self.switch("hides", True, "thoughts are hidden"),
            "wordwrap": lambda: self.switch("wraps", True, "words wrap at the edge"),
            "nowordwrap": lambda: self.switch("wraps", False, "words do not wrap"),
        }

    def switch(self, name: str, value: bool, said: str) -> str:
        setattr(self, name, value)
        return said

    def think(self, is_on: bool) -> str:
        """A variable of the template, where the model knows it."""
        variables = self.settings.get("template") or {}
        self.settings["template"] = variables | {"enable_thinking": is_on}
        return f"the model is asked {'' if is_on else 'not '}to think"

    def check(self, name: str, number: Any) -> None:
        """A value that no answer could be drawn with is refused now, not when it is used."""
        try:
            RULES[name].check(name, max(number, -1) if name == "seed" else number)
        except SettingError as error:
            raise CommandError(f"/set {error}") from None

    def set_format(self, value: str) -> str:
        if value not in ("json", ""):
            raise CommandError(f"/set format: expected json, got {value!r}")
        self.settings |= {"json_schema": {"type": "object"} if value else None, "grammar": None}
        return "answers are JSON" if value else "answers are any text"

    def show(self, rest: str) -> str:
        topics: dict[str, Callable[[], str]] = {
            "": self.show_settings,
            "parameters": self.show_settings,
            "system": lambda: self.system or "there is no system message",
            "messages": lambda: (
                "\n".join(f"{m['role']}: {m['content']}" for m in self.messages)
                or "nothing was said"
            ),
            **self.partner.topics(),
        }
        if rest not in topics:
            raise CommandError(
                f"/show: there is no {rest!r}", hint=f"/show {' | '.join(filter(None, topics))}"
            )
        return topics[rest]()

    def show_settings(self) -> str:
        return "\n".join(
            f"{name:18} {value}" for name, value in self.settings.items() if name in NUMBERS
        )

    def clear(self, rest: str) -> str:
        self.turns.clear()
        return "the conversation is forgotten"

    def save(self, rest: str) -> str:
        path = one_path("/save", rest)
        held = {"model": self.partner.name, "system": self.system, "messages": self.turns}
        try:
            path.write_text(json.dumps(held, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise CommandError(f"/save: {path}: {error.strerror}") from None
        return f"{len(self.turns)} messages are in {path}"

    def load(self, rest: str) -> str:
        path = one_path("/load", rest)
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CommandError(f"/load: {path}: {error.strerror}") from None
        except ValueError as error:
            raise CommandError(f"/load: {path} is no JSON: {error}") from None
        turns, system = checked_turns(held, path), held.get("system")
        self.turns, self.system = turns, system if isinstance(system, str) else None
        return f"{len(self.turns)} messages from {path}"

    def retry(self) -> str:
        """Takes the last question back and returns it."""
        if self.turns and self.turns[-1]["role"] == "assistant":
            self.turns.pop()
        if not self.turns:
            raise CommandError("/retry: nothing was asked yet")
        return self.turns.pop()["content"]


def one_path(command: str, rest: str) -> Path:
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise CommandError(f"{command}: {error}") from None
    if len(words) != 1:
        raise CommandError(f"{command}: expected the name of one file, got {len(words)}")
    return Path(words[0]).expanduser()


def checked_turns(held: Any, path: Path) -> Turns:
    turns: Any = held.get("messages") if isinstance(held, dict) else None
    if not isinstance(turns, list) or not all(is_message(turn) for turn in turns):
        raise CommandError(f"/load: {path} holds no conversation", hint="it is what /save writes")
    return [{"role": t["role"], "content": t["content"]} for t in turns]


def is_message(turn: Any) -> bool:
    return isinstance(turn, dict) and all(
        isinstance(turn.get(key), str) for key in ("role", "content")
    )
