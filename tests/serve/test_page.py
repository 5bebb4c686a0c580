"""The web page in a real browser, against a server that says what it is told to."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.browser import Profile, answered, ask, launch, profile, until
from tests.serve.stub import Answer, Stub
from tetrad.serve.page import FOLDER, POLICY, page_files

SLOW = Answer("word " * 400, delay=0.02)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launch()


@pytest.fixture(scope="module")
def server() -> Iterator[Stub]:
    with Stub() as stub:
        yield stub


@pytest.fixture
def stub(server: Stub) -> Stub:
    server.reset()
    return server


@pytest.fixture
def tabs(browser: Any, stub: Stub) -> Iterator[Profile]:
    yield from profile(browser, stub.url, reduced_motion="reduce")


# -- files -----------------------------------------------------------------------------------------


def test_every_file_has_the_strict_policy() -> None:
    assert "default-src 'none'" in POLICY and "unsafe" not in POLICY
    for file in page_files().values():
        assert file.headers["Content-Security-Policy"] == POLICY
        assert file.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", sorted(p.name for p in FOLDER.iterdir() if p.is_file()))
def test_no_file_parses_markup_or_names_another_host(name: str) -> None:
    text = (FOLDER / name).read_text()
    text = text.replace("http://www.w3.org/2000/svg", "")
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert unsafe not in text
    assert not re.search(r"[\"'(]https?://\w", text)
    assert not re.search(r"<[^>]+\s(style|on\w+)=", text)


def test_what_index_html_names_is_there() -> None:
    named = re.findall(r'(?:src|href)="page/([^"]+)"', (FOLDER / "index.html").read_text())
    for file in FOLDER.glob("*.js"):
        named += re.findall(r'from "\./([^"]+)"', file.read_text())
    assert named and set(named) <= set(page_files())


# -- a conversation --------------------------------------------------------------------------------


def test_an_answer_streams_and_is_there_after_a_reload(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    stub.answers.append(Answer("It is **blue** and `code`.\n\n- one\n- two", delay=0.03))
    ask(page, "Why is the sky blue?")
    page.locator("article.assistant[aria-busy=true]").get_by_text("It is").wait_for()
    answer = answered(page, "two")
    assert answer.locator("strong").inner_text() == "blue"
    assert answer.locator("li").all_inner_texts() == ["one", "two"]
    assert "123 tokens/s" in answer.inner_text()
    asked = stub.asked[0]
    assert asked["messages"] == [{"role": "user", "content": "Why is the sky blue?"}]
    assert asked["stream"] and asked["stream_options"] == {"include_usage": True}
    page.reload()
    assert answered(page, "two").locator("strong").inner_text() == "blue"
    assert page.locator(".row a").inner_text() == "Why is the sky blue?"


def test_the_whole_conversation_is_sent_with_the_system_prompt(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    page.get_by_role("button", name="Settings").click()
    assert page.get_by_label("Temperature").get_attribute("placeholder") == "0.7"
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.25")
    page.get_by_label("More fields").fill('{"stop": ["END"]}')
    page.get_by_role("button", name="Done").click()
    ask(page, "One")
    answered(page, "Hello.")
    ask(page, "Two")
    page.locator("article").nth(3).wait_for()
    answered(page, "Hello.")
    roles = [(one["role"], one["content"]) for one in stub.asked[1]["messages"]]
    begin = [("system", "Be brief."), ("user", "One"), ("assistant", "Hello."), ("user", "Two")]
    assert roles == begin
    assert stub.asked[1]["temperature"] == 0.25 and stub.asked[1]["stop"] == ["END"]
    assert "top_p" not in stub.asked[1]


def test_escape_stops_the_answer_and_frees_the_server(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    stub.answers.append(SLOW)
    ask(page, "Go on")
    page.get_by_text("word word").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("stopped", exact=False).first.wait_for()
    assert stub.left.wait(5)
    kept = page.locator("article.assistant .prose").inner_text()
    page.reload()
    assert answered(page, "word").locator(".prose").inner_text() == kept


def test_the_button_stops_too_and_enter_does_not(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    stub.answers.append(SLOW)
    ask(page, "Go on")
    page.get_by_text("word word").wait_for()
    page.press("#prompt", "Enter")
    assert page.locator("article.assistant").get_attribute("aria-busy") == "true"
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Send").wait_for()
    assert stub.left.wait(5)


def test_an_answer_whose_tab_was_closed_does_not_seem_to_go_on(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    other = tabs.open()
    stub.answers.append(SLOW)
    ask(page, "Go on")
    other.locator(".row a").click()
    other.locator("article.assistant[aria-busy=true] .prose").get_by_text("word").wait_for()
    page.close()
    tabs.pages.remove(page)
    other.add_init_script("(now => { Date.now = () => now() + 60_000; })(Date.now)")
    other.reload()
    answered(other, "word").get_by_role("button", name="Regenerate").wait_for()


def test_editing_and_asking_again_keep_what_was(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    stub.answers.extend([Answer("First."), Answer("Second."), Answer("Third.")])
    ask(page, "Qestion")
    answered(page, "First.").get_by_label("Regenerate").click()
    answered(page, "Second.").get_by_text("2 / 2").wait_for()
    page.get_by_label("Earlier version").click()
    answered(page, "First.")
    page.locator("article.user").hover()
    page.locator("article.user").get_by_label("Edit").click()
    page.get_by_label("Edit the message").fill("Question")
    page.keyboard.press("Enter")
    answered(page, "Third.")
    assert stub.asked[2]["messages"] == [{"role": "user", "content": "Question"}]
    assert page.locator("article.user .turner").inner_text() == "2 / 2"
    page.locator("article.user").get_by_label("Earlier version").click()
    answered(page, "First.")


def test_a_message_is_deleted_and_comes_back(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    ask(page, "One")
    answered(page, "Hello.").get_by_label("Delete").click()
    page.get_by_text("Message deleted").wait_for()
    assert page.locator("article").count() == 1
    page.get_by_role("button", name="Undo").click()
    answered(page, "Hello.")


def test_a_long_answer_is_whole_and_followed(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    text = "\n\n".join(f"Paragraph {n} with **some** words and `code {n}`." for n in range(1500))
    stub.answers.append(Answer(text + "\n\nLast words.", piece=200))
    begun = time.monotonic()
    ask(page, "Write a lot")
    answer = answered(page, "Last words.")
    assert answer.locator("p").count() == 1501
    assert answer.locator("p").last.is_visible() and page.locator("#jump").is_hidden()
    assert time.monotonic() - begun < 10
    page.evaluate("document.getElementById('scroll').scrollTop = 0")
    page.locator("#jump").click()
    left = "(e => e.scrollHeight - e.scrollTop - e.clientHeight)"
    assert page.evaluate(f"{left}(document.getElementById('scroll'))") < 5


def test_thinking_is_folded_and_tools_get_their_results(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    call = {"name": "weather", "arguments": '{"city": "Köln"}'}
    stub.answers.append(Answer("", "Let me see.", (call,), finish="tool_calls"))
    stub.answers.append(Answer("Rain."))
    ask(page, "Weather?")
    answer = page.locator("article.assistant[aria-busy=false]")
    answer.get_by_text("Thought for").wait_for()
    assert answer.get_by_text("Let me see.").is_hidden()
    answer.get_by_text("Thought for").click()
    assert answer.get_by_text("Let me see.").is_visible()
    assert json.loads(answer.locator(".call pre").inner_text()) == {"city": "Köln"}
    page.get_by_label("Result of weather").fill("12 degrees, rain")
    page.get_by_role("button", name="Send the result").click()
    answered(page, "Rain.")
    _, told, result = stub.asked[1]["messages"]
    assert told["tool_calls"][0]["function"] == call and "Let me see" not in str(told)
    assert result == {"role": "tool", "tool_call_id": "call-0", "content": "12 degrees, rain"}


def test_files_go_along_as_text(stub: Stub, tabs: Profile, tmp_path: Path) -> None:
    page = tabs.open()
    (tmp_path / "notes.md").write_text("```\nfence\n```\n")
    (tmp_path / "data.bin").write_bytes(bytes(range(256)))
    (tmp_path / "large.txt").write_text("x" * 600_000)
    page.set_input_files("#file", [tmp_path / "notes.md", tmp_path / "data.bin"])
    page.get_by_text("data.bin: this is not text in UTF-8").wait_for()
    page.set_input_files("#file", [tmp_path / "large.txt"])
    page.get_by_text("large.txt: too large").wait_for()
    ask(page, "Summarise")
    answered(page, "Hello.")
    sent = stub.asked[0]["messages"][0]["content"]
    assert sent == 'File "notes.md":\n````\n```\nfence\n```\n\n````\n\nSummarise'
    assert page.locator("article.user .chip").inner_text().startswith("notes.md")


# -- several tabs, several conversations -----------------------------------------------------------


KEPT = """async () => {
    const { allMessages } = await import("./page/store.js");
    return (await allMessages()).map(message => [message.role, message.content.trim()]).sort();
}"""


def dumped(pairs: list[list[str]]) -> str:
    return json.dumps(sorted(pairs), separators=(",", ":"))


def test_two_tabs_that_write_at_once_lose_nothing(stub: Stub, tabs: Profile) -> None:
    first = tabs.open()
    second = tabs.open()
    ask(first, "Shared")
    answered(first, "Hello.")
    second.locator(".row a").click()
    answered(second, "Hello.")
    texts = [("answer A " * 30).strip(), ("answer B " * 30).strip()]
    stub.answers.extend(Answer(text, delay=0.01) for text in texts)
    ask(first, "From the first")
    ask(second, "From the second")
    asked = ["From the first", "From the second", "Shared"]
    want = [["assistant", text] for text in ("Hello.", *texts)] + [["user", text] for text in asked]
    until(first, f"({KEPT})().then(kept => JSON.stringify(kept) === {json.dumps(dumped(want))})")
    for page, name in ((first, "first"), (second, "second")):
        page.locator("article.user").get_by_text(f"From the {name}").wait_for()


BRANCH = """async () => {
    const store = await import("./page/store.js");
    const first = (await store.allMessages()).find(message => message.role === "user");
    await store.putMessage({...first, id: store.newId(), at: Date.now(), content: "Another"});
}"""


def test_what_another_tab_adds_is_a_branch(stub: Stub, tabs: Profile) -> None:
    page, other = tabs.open(), tabs.open()
    ask(page, "One")
    answered(page, "Hello.")
    other.evaluate(BRANCH)
    page.locator("article.user .turner").get_by_text("1 / 2").wait_for()
    answered(page, "Hello.")
    page.get_by_label("Later version").click()
    page.locator("article.user").get_by_text("Another").wait_for()


def test_a_conversation_is_found_renamed_exported_deleted_and_imported(
    stub: Stub, tabs: Profile, tmp_path: Path
) -> None:
    page = tabs.open()
    stub.answers.append(Answer("A sentence about penguins."))
    ask(page, "Birds")
    answered(page, "penguins")
    page.get_by_role("button", name="New conversation").click()
    ask(page, "Fish")
    answered(page, "Hello.")
    assert page.locator(".row").count() == 2
    page.keyboard.press("Control+k")
    page.keyboard.type("penguin")
    until(page, "document.querySelectorAll('.row').length === 1")
    page.keyboard.press("Enter")
    page.get_by_text("A sentence about penguins.").wait_for()
    page.locator(".row").hover()
    page.get_by_label("Rename Birds").click()
    page.keyboard.type("Feathers")
    page.keyboard.press("Enter")
    page.locator("h1").get_by_text("Feathers").wait_for()
    with page.expect_download() as saved:
        page.get_by_label("Export all conversations").click()
    saved.value.save_as(tmp_path / "all.json")
    page.locator(".row").hover()
    page.get_by_label("Delete Feathers").click()
    page.get_by_text("Nothing found").wait_for()
    page.fill("#search", "")
    page.set_input_files("#import-file", tmp_path / "all.json")
    page.get_by_text("2 conversations imported").wait_for()
    page.locator(".row a").get_by_text("Feathers").click()
    answered(page, "penguins")
    (tmp_path / "bad.json").write_text('{"format": "tetrad-conversations", "conversations": [3]}')
    page.set_input_files("#import-file", tmp_path / "bad.json")
    page.get_by_text("was not imported").wait_for()


# -- what goes wrong -------------------------------------------------------------------------------

PROBLEMS = [
    (Answer(status=429, error={"message": "9 wait"}), "The server is busy"),
    (Answer(status=400, error={"message": "context of 2048"}), "longer than the model can read"),
    (Answer(status=500, error={"message": "oops"}), "The server made a mistake"),
    (Answer("Half an", cut=True), "No connection to the server"),
    (Answer("Half an", error={"message": "deadline", "code": 503}), "The server is not ready"),
]


@pytest.mark.parametrize(("answer", "title"), PROBLEMS, ids=[title for _, title in PROBLEMS])
def test_a_problem_is_said_kindly_and_can_be_tried_again(
    stub: Stub, tabs: Profile, answer: Answer, title: str
) -> None:
    page = tabs.open()
    stub.answers.append(answer)
    ask(page, "Well?")
    problem = page.get_by_role("alert")
    problem.get_by_text(title).wait_for()
    if answer.status == 200:
        assert page.locator("article.assistant .prose").inner_text() == "Half an"
    problem.get_by_role("button", name="Try again").click()
    answered(page, "Hello.")
    assert page.get_by_role("alert").count() == 0


def test_a_key_is_asked_for_and_kept_for_the_tab(stub: Stub, tabs: Profile) -> None:
    stub.key = "secret"
    page = tabs.open()
    page.get_by_label("API key").fill("secret")
    page.get_by_role("button", name="Use it").click()
    page.locator("#model").get_by_text("stub-1b").wait_for()
    ask(page, "Hi")
    answered(page, "Hello.")
    kept = page.evaluate("[sessionStorage['tetrad.key'], JSON.stringify(localStorage)]")
    assert kept[0] == "secret" and "secret" not in kept[1]


# -- a hostile model -------------------------------------------------------------------------------

HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>
<iframe src="javascript:alert(4)"></iframe><style>*{display:none}</style><base href="http://evil.invalid/">

[click](javascript:alert(5)) [data](data:text/html,<script>alert(6)</script>) [vb](VBScript:x)
[tab](java\tscript:alert(7)) [file](file:///etc/passwd) [relative](/v1/models) <javascript:alert(8)>
![pixel](http://evil.invalid/p.png) [ok](https://example.invalid/"onclick="alert(9))

# <img src=x onerror=alert(10)>

| <b onclick=alert(11)>a</b> | b |
|---|---|
| <script>alert(12)</script> | [x](javascript:alert(13)) |

`<script>alert(14)</script>` \x1b[31mred\x1b[0m \x1b]0;title\x07 abc\u202edcba\u2066x\u2069

- <details open ontoggle=alert(15)>
  > <form action=http://evil.invalid><button>go</button></form>

```html"><script>alert(16)</script>
<script>alert(17)</script>
"""


def test_a_hostile_model_is_only_read(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    stub.answers.append(Answer(HOSTILE, reasoning=HOSTILE, piece=7))
    ask(page, HOSTILE[:200])
    answer = answered(page, "alert(17)")
    allowed = {"P", "CODE", "PRE", "DIV", "SPAN", "A", "H3", "UL", "LI", "BLOCKQUOTE", "TABLE"}
    allowed |= {"THEAD", "TBODY", "TR", "TH", "TD", "BUTTON", "SVG", "PATH", "EM"}
    made = answer.locator(".prose *").evaluate_all(
        "all => all.map(e => [e.nodeName.toUpperCase(),"
        " e.getAttributeNames().filter(n => n.startsWith('on') || n === 'style').length,"
        " e.href === undefined ? '' : String(e.href)])"
    )
    assert {name for name, _, _ in made} <= allowed
    assert all(count == 0 for _, count, _ in made)
    links = {link for _, _, link in made if link}
    assert links and all(link.startswith(("http://", "https://")) for link in links)
    text = answer.inner_text()
    assert "\x1b" not in text and "␛[31mred" in text
    assert "\u202e" not in text and "\\u202edcba" in text
    page.locator("article.user").get_by_text("<script>alert(1)</script>").wait_for()
    page.reload()
    answered(page, "alert(17)")


def test_a_hostile_title_and_file_name_are_text(stub: Stub, tabs: Profile, tmp_path: Path) -> None:
    page = tabs.open()
    file = tmp_path / "<img src=x onerror=alert(1)>.txt"
    file.write_text("<script>alert(2)</script>")
    page.set_input_files("#file", file)
    ask(page, "<img src=x onerror=alert(3)>\u202e")
    answered(page, "Hello.")
    assert page.locator("h1").inner_text() == "<img src=x onerror=alert(3)>\\u202e"
    assert page.locator("img").count() == 0


def test_what_takes_long_to_parse_does_not_hold_the_page(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    bombs = [
        "**a " * 20_000,
        "*a " * 20_000,
        "__a _a " * 10_000,
        "[" * 20_000,
        "`" * 20_000,
        "> " * 5_000 + "x",
        "- " * 5_000,
        "_" * 20_000,
    ]
    bombs += ["|" * 20_000 + "\n" + "|-" * 10_000 + "|\n" + "|x" * 10_000, "![[](" * 5_000]
    bombs += ["\n".join("|a|b|" if n != 1 else "|-|-|" for n in range(5_000)), "$x" * 10_000]
    spent = page.evaluate(
        """async bombs => {
            const { MarkdownView } = await import("./page/markdown.js");
            return bombs.map(text => {
                const begun = performance.now();
                new MarkdownView(document.createElement("div")).update(text);
                return performance.now() - begun;
            });
        }""",
        bombs,
    )
    assert max(spent) < 2000, [(bomb[:8], ms) for bomb, ms in zip(bombs, spent, strict=True)]


# -- Markdown --------------------------------------------------------------------------------------

RENDER = """async pieces => {
    const { MarkdownView } = await import("./page/markdown.js");
    const element = document.createElement("div");
    const view = new MarkdownView(element);
    pieces.forEach(text => view.update(text));
    element.querySelectorAll("button, .code-head").forEach(e => e.remove());
    element.querySelectorAll("*").forEach(e => ["dir", "tabindex", "aria-label", "role", "rel",
        "target", "title"].forEach(name => e.removeAttribute(name)));
    return element.innerHTML;
}"""

MARKDOWN = [
    ("a *b* **c** ~~d~~ `e`", "<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e</code></p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("**a *b***", "<p><strong>a <em>b</em></strong></p>"),
    ("*a **b** c*", "<p><em>a <strong>b</strong> c</em></p>"),
    (
        "__a__ _b c_ _snake_case_ 2**3",
        "<p><strong>a</strong> <em>b c</em> <em>snake_case</em> 2**3</p>",
    ),
    ("**open", "<p>**open</p>"),
    ("snake_case_name and 2 * 3 * 4", "<p>snake_case_name and 2 * 3 * 4</p>"),
    ("\\*no\\*", "<p>*no*</p>"),
    ("$a_b$ and _c_", '<p><span class="math">$a_b$</span> and <em>c</em></p>'),
    ("costs $5 or $6_7_", "<p>costs $5 or $6_7_</p>"),
    ("# A\ntext", "<h3>A</h3><p>text</p>"),
    ("1. a\n2. b", "<ol><li>a</li><li>b</li></ol>"),
    ("3. a", '<ol start="3"><li>a</li></ol>'),
    ("- a\n  - b\n- c", "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>"),
    ("- a\n\n  b", "<ul><li><p>a</p><p>b</p></li></ul>"),
    ("text\n- a", "<p>text</p><ul><li>a</li></ul>"),
    ("> a\n> b", "<blockquote><p>a\nb</p></blockquote>"),
    ("```\na\n```\nb", '<div class="code"><pre><code>a</code></pre></div><p>b</p>'),
    ("```\nopen <b>", '<div class="code"><pre><code>open &lt;b&gt;</code></pre></div>'),
    ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    ("see https://a.org/x(y).", '<p>see <a href="https://a.org/x(y)">https://a.org/x(y)</a>.</p>'),
    ("[a](https://a.org)", '<p><a href="https://a.org/">a</a></p>'),
    ("[a](javascript:x)", "<p>[a](javascript:x)</p>"),
]


def test_markdown_becomes_the_elements_it_means(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    made = {text: page.evaluate(RENDER, [text]) for text, _ in MARKDOWN}
    assert made == dict(MARKDOWN)


def test_a_text_that_grows_ends_as_it_would_at_once(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    text = "\n\n".join(text for text, _ in MARKDOWN) + "\n\n" + HOSTILE
    grown = [text[:end] for end in range(0, len(text), 3)] + [text]
    assert page.evaluate(RENDER, grown) == page.evaluate(RENDER, [text])


# -- the rest of the page --------------------------------------------------------------------------


def test_everything_can_be_reached_with_the_keyboard(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    page.evaluate("document.activeElement.blur()")
    focused = "document.activeElement.ariaLabel || document.activeElement.textContent.trim()"
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(focused))
    for name in ("Skip to the message box", "Settings", "Live", "Attach files as text"):
        assert name in seen
    page.keyboard.press("Control+Shift+O")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("line one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("line two")
    page.keyboard.press("Enter")
    answered(page, "Hello.")
    assert stub.asked[0]["messages"][0]["content"] == "line one\nline two"
    unnamed = page.locator("button, a[href], input, textarea, select").evaluate_all(
        "all => all.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length))"
        ".map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_a_narrow_screen_has_everything(browser: Any, stub: Stub) -> None:
    size = {"width": 390, "height": 844}
    for tabs in profile(browser, stub.url, viewport=size, has_touch=True):
        page = tabs.open()
        wide = (
            "|"
            + "column |" * 30
            + "\n|"
            + "-|" * 30
            + "\n\n```\n"
            + "x" * 500
            + "\n```\n"
            + "y" * 500
        )
        stub.answers.append(Answer(wide, piece=100))
        ask(page, "z" * 300)
        answered(page, "yyy")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        across = "(e => e.scrollWidth - e.clientWidth)(document.getElementById('scroll'))"
        assert page.evaluate(across) == 0
        assert page.locator("#sidebar").is_hidden()
        page.get_by_role("button", name="Conversations").tap()
        page.get_by_role("button", name="New conversation").tap()
        page.get_by_text("What shall we look into?").wait_for()
        until(page, "getComputedStyle(sidebar).visibility === 'hidden'")


def test_the_theme_follows_the_system_until_it_is_chosen(stub: Stub, tabs: Profile) -> None:
    page = tabs.open()
    shown = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(shown)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(shown)
    assert light != dark
    button = page.get_by_label("Theme: system, light, dark")
    button.click()
    assert page.evaluate(shown) == light
    page.reload()
    assert page.evaluate(shown) == light
    button.click()
    page.emulate_media(color_scheme="light")
    assert page.evaluate(shown) == dark


def test_of_several_models_one_is_chosen(stub: Stub, tabs: Profile) -> None:
    stub.models = ["first", "second"]
    page = tabs.open()
    page.get_by_label("Model", exact=True).select_option("second")
    page.reload()
    page.get_by_label("Model", exact=True).wait_for()
    ask(page, "Hi")
    answered(page, "Hello.")
    assert stub.asked[0]["model"] == "second"


LIVE = {
    "uptime": 60,
    "slots": [
        {"id": 0, "state": "answer", "tokens": 512, "limit": 1024},
        {"id": 1, "state": "idle", "tokens": 0, "limit": 1024},
    ],
    "queue": {"waiting": 3, "limit": 256},
    "totals": {"requests": 7, "prompt_tokens": 100, "predicted_tokens": 1000},
    "memory": {"rate": 20e9, "roof": 40e9},
    "cache": {"bytes": 1_000_000, "limit": 0},
}


def test_the_live_view_shows_rates_of_totals(stub: Stub, tabs: Profile) -> None:
    stub.live = json.loads(json.dumps(LIVE))
    page = tabs.open("#/live")
    page.get_by_text("1 of 2 at work").wait_for()
    stub.live["totals"]["predicted_tokens"] += 500
    until(page, "parseFloat(document.querySelector('.answered .figure').textContent) > 300")
    shown = page.locator("#live-view").inner_text()
    for words in ("50 %", "20.0 GB/s of 40.0 GB/s", "512 of 1024 tokens", "of at most 256"):
        assert words in shown


def test_a_server_without_a_live_view_says_so(stub: Stub, tabs: Profile) -> None:
    page = tabs.open("#/live")
    page.get_by_text("This server has no live view.").wait_for()
    page.goto(stub.url + "#/inside")
    page.get_by_text("This server does not show its inside.").wait_for()


INSIDE = {
    "model": {"name": "Tiny", "architecture": "llama", "quant": "Q4_1", "parameters": 135e6}
    | {"layers": 30, "width": 576, "weight_bytes": 96e6},
    "memory": [{"name": "q4_1, 3 tensors", "bytes": 3e6}],
    "step": {"ns": 2.5e6, "launches": 2, "threads": 2, "bytes": 9e7, "roof": 40e9, "busy": False},
    "kernels": [
        {"name": "matmul", "text": "program <matmul>", "launches": 1, "bytes": 9e6, "flops": 1}
        | {"ns": 2e6, "least_ns": 1e6, "bound": "memory"},
        {"name": "add", "text": "program add", "launches": 1, "bytes": 10, "flops": 1}
        | {"ns": 1e3, "least_ns": 10, "bound": "starting"},
    ],
    "sequence": [[0, 2e6], [1, 1e3]],
    "graphs": [
        {"name": "step", "width": 100, "height": 140, "edges": [[[50, 35], [50, 105]]]}
        | {
            "nodes": [
                {"label": "input 0", "type": "f32[8]", "line": "%0", "x": 50, "y": 35}
                | {"width": 80, "kernel": None},
                {"label": "matmul", "type": "f32[8]", "line": "%1", "x": 50, "y": 105}
                | {"width": 80, "kernel": 0},
            ]
        }
    ],
    "arena": {"bytes": 64, "unshared": 128, "steps": 2}
    | {"buffers": [{"name": "b", "bytes": 64, "offset": 0, "first": 0, "last": 1}]},
}


def test_the_inside_leads_from_the_graph_to_the_kernel(stub: Stub, tabs: Profile) -> None:
    stub.inside = INSIDE
    page = tabs.open("#/inside")
    page.get_by_role("button", name="matmul").wait_for()
    assert page.get_by_text("program <matmul>").is_hidden()
    page.locator("g.node", has_text="matmul").click()
    page.get_by_text("program <matmul>").wait_for()
    assert page.get_by_role("button", name="matmul").get_attribute("aria-expanded") == "true"
    assert page.locator(".launch").count() == 2 and page.locator(".life").count() == 1
