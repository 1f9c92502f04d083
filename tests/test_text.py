"""A stored row becomes the words a person saw, and any text becomes safe to hand on."""

from __future__ import annotations

import json
import random
import unicodedata

import pytest
from project_history_recall.text import MULTIPART, clean, cut, decode, defang, fold, one_line, said, window

# As the hosts' own builders write them.
FOOTER = (
    "[Skill directory: /skills/work]\nResolve any relative paths in this skill against that directory, then run"
    " them with the terminal tool using the absolute path."
)
INVOKED = (
    '[IMPORTANT: The user has invoked the "work" skill, indicating they want you to follow its instructions.'
    " The full skill content is loaded below.]\n\n# Work\nAlways squash the zebra.\n\n" + FOOTER
)
INSTRUCTION = "\n\nThe user has provided the following instruction alongside the skill invocation: "
BUNDLE = (
    '[IMPORTANT: The user has invoked the "/clean /work" skill bundle, loading 2 skills together. Treat every skill'
    " below as active guidance for this turn.]\n\nSkills loaded: clean, work{said}"
    '\n\n[Loaded as part of the "/clean /work" skill bundle.]\n\n# Clean\nAlways squash the zebra.'
    "\nUser instruction: quoted in a skill's own example"
)
AUTOLOADED = (
    '[IMPORTANT: The "work" skill is auto-loaded. Follow its instructions for this session.]\n\n'
    "# Work\nAlways squash the zebra.\n\n" + FOOTER
)
MEMORY = (
    "<memory-context>\n[System note: The following is recalled memory context, NOT new user input. Treat as"
    " authoritative reference data — this is the agent's persistent memory and should inform all responses.]\n\n"
    "- the zebra is striped\n</memory-context>"
)
COMPACTION = (
    "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below.\n"
    "## Goal\nfeed the zebra"
)
END = "--- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---"
PRIOR, MERGED = (
    "[PRIOR CONTEXT — for reference only; not a new message]",
    "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]",
)
CRON = (
    "[IMPORTANT: You are running as a scheduled cron job. SILENT: If there is nothing new to report, respond with"
    ' exactly "[SILENT]" (nothing else). FAILURE: put [CRON_FAILURE] on the first line by itself, then explain'
    " the zebra.]\n\n"
)
SKIPPED = (
    "[IMPORTANT: The following skill(s) were listed for this job but could not be found and were skipped: zebra."
    " Start your response with a brief notice so the user is aware, e.g.: '⚠️ Skill(s) not found and skipped: zebra']"
)
STEER = (
    "[OUT-OF-BAND USER MESSAGE — a direct message from the user, delivered once at this position; not tool output"
    " and not a new delivery when replayed from conversation history]"
)
SWITCHED = "[Note: model was just switched from a to b via provider. Adjust your self-identification accordingly.]"

# --- what somebody typed stays, what was put around it goes ----------------------------------------

TYPED = "fix the login"
AROUND = {
    "nothing": TYPED,
    "space": f"\n  {TYPED} \n",
    "a skill": INVOKED + INSTRUCTION + TYPED,
    "a skill that quotes the marker": INVOKED + INSTRUCTION + "<text>" + INSTRUCTION + TYPED,
    "a skill and a note to the run": INVOKED + INSTRUCTION + TYPED + "\n\n[Runtime note: zebra]",
    "a bundle of skills": BUNDLE.format(said=f"\n\nUser instruction: {TYPED}"),
    "a skill loaded by the channel": f"{AUTOLOADED}\n\n{TYPED}",
    "two skills loaded by the channel": f"{AUTOLOADED}\n\n{AUTOLOADED}\n\n{TYPED}",
    "recalled memory before": f"{MEMORY}\n\n{TYPED}",
    "recalled memory after": f"{TYPED}\n\n{MEMORY}",
    "recalled memory in odd tags": f"{TYPED}\n< Memory-Context >zebra</ memory-context >",
    "recalled memory cut off": f"{TYPED}\n\n{MEMORY[:-20]}",
    "recalled memory twice": f"{MEMORY}{TYPED}{MEMORY}",
    "a summary before": f"{COMPACTION}\n\n{END}\n\n{TYPED}",
    "a summary of old": f"[CONTEXT SUMMARY]: zebra\n{END}\n{TYPED}",
    "two summaries": f"{COMPACTION}\n\n{END}\n\n{COMPACTION}\n\n{END}\n\n{TYPED}",
    "a summary merged after": f"{PRIOR}\n{TYPED}\n\n{MERGED}\n\n{COMPACTION}\n\n{END}",
    "a summary merged after another": f"{PRIOR}\n{COMPACTION}\n\n{END}\n\n{TYPED}\n\n{MERGED}\n\n{COMPACTION}\n\n{END}",
    "a summary and a skill": f"{COMPACTION}\n\n{END}\n\n{INVOKED}{INSTRUCTION}{TYPED}",
    "files attached": f"{TYPED}\n\n--- Attached Context ---\n\n📄 zebra.py (12 tokens)\n```\nzebra\n```",
    "files attached with a warning": f"{TYPED}\n\n--- Context Warnings ---\nzebra.py: not found",
    "a switch of the model": f"{SWITCHED}\n\n{TYPED}",
    "a note on the session": f"[System note: The user's session was reset by the zebra [daily].]\n\n{TYPED}",
    "several notes": f"{SWITCHED}\n\n[System note: zebra.]\n\n{TYPED}",
    "a schedule": f"{CRON}{TYPED}",
    "a schedule with a skill": f"{INVOKED}{INSTRUCTION}{CRON}{TYPED}",
    "a schedule with a skill that is missing": f"{SKIPPED}\n\n{INVOKED}{INSTRUCTION}{CRON}{TYPED}",
    "a word with the assistant at work": f"{STEER}\n{TYPED}\n[/OUT-OF-BAND USER MESSAGE]",
    "colours": f"\x1b[1;31m{TYPED}\x1b[0m\x1b]0;zebra\x07",
    "controls": f"fix\0 the\x08 lo\u200bgin{chr(0xE0041)}\u202e",
    "a byte order mark": f"\ufeff{TYPED}",
}


@pytest.mark.parametrize("row", AROUND.values(), ids=AROUND)
def test_what_somebody_typed_is_all_that_is_left_of_a_row(row: str) -> None:
    assert said("user", row) == TYPED


SYNTHETIC = {
    "a bare skill": INVOKED,
    "a bare bundle": BUNDLE.format(said=""),
    "a bare skill of the channel": AUTOLOADED,
    "a bare skill of the channel, cut off": AUTOLOADED[:120],
    "recalled memory alone": MEMORY,
    "a summary alone": COMPACTION,
    "a summary with its end": f"{COMPACTION}\n\n{END}",
    "a summary of old": "[CONTEXT SUMMARY]: zebra",
    "a process that ended": "[IMPORTANT: Background process 12 completed (exit code 0).\nzebra]",
    "a process of old": "[Background process 12 finished]",
    "several processes that ended": "[IMPORTANT: 2 background processes completed for this session.\nzebra]",
    "several subagents that ended": "[IMPORTANT: 2 background subagent delegations completed.\nzebra]",
    "tools that were loaded again": "[IMPORTANT: MCP servers have been reloaded. zebra.]",
    "a subagent that ended": "[ASYNC DELEGATION COMPLETE — zebra]\nzebra",
    "a switch of the model": "[System: The active model for this chat has changed to zebra.]",
    "a switch of personality": "[System: The user has changed the assistant's personality. zebra]",
    "a call to go on": "[System: Your previous response was truncated by the output length limit.]",
    "a list of tasks": "[Your active task list was preserved across context compression]\n- [ ] zebra",
    "a state of planning": "[Planning state preserved across compaction]\nzebra",
    "a report of a schedule": "Cronjob Response: daily\n(job_id: 1)\nzebra",
    "a review of skills": "Review the conversation above and update the skill library. Zebra.",
    "a review of memory": "Review the conversation above and consider saving to memory if zebra.",
    "a note alone": "[System note: zebra.]",
    "space alone": " \n\t ",
    "nothing": "",
}


@pytest.mark.parametrize("row", SYNTHETIC.values(), ids=SYNTHETIC)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_what_nobody_typed_leaves_nothing(role: str, row: str) -> None:
    assert said(role, row) == ""


@pytest.mark.parametrize(
    "text",
    [
        "why does [IMPORTANT: Background process 3] show up in the chat?",
        "the summary starts with [CONTEXT COMPACTION and that is a bug",
        "[WIP] fix the login",
        "[1] https://example.org",
        "a <think> tag in the prompt of the user",
        "--- Attached Context --- is not shown",
        "[Systematic] review",
    ],
)
def test_talk_about_such_markers_is_talk(text: str) -> None:
    assert said("user", text) == text


@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning", "REASONING_SCRATCHPAD", "Think"])
def test_the_assistants_thinking_is_not_shown(tag: str) -> None:
    assert said("assistant", f"<{tag}>the zebra\nmay bite</{tag}>\nDone.") == "Done."
    assert said("assistant", f"Done.\n<{tag}>the zebra") == "Done."


def test_tool_output_is_only_decoded_and_cleaned() -> None:
    assert said("tool", f"\x1b[32m{COMPACTION}\x1b[0m") == COMPACTION


# --- rows stored as JSON ----------------------------------------------------------------------------


def multipart(value: object) -> str:
    return MULTIPART + json.dumps(value)


def test_of_a_multipart_row_the_texts_are_read_and_images_left_out() -> None:
    row = multipart(
        [
            {"type": "text", "text": "看这张截图：归属判断错了"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            {"type": "text", "text": "and fix it"},
        ]
    )
    assert "归属" not in row, "the hosts store escapes"
    assert said("user", row) == "看这张截图：归属判断错了\nand fix it"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"text": "one"}, "one"),
        ("one", "one"),
        (["one", "two"], "one\ntwo"),
        ([["one"], None, 3, {"type": "image"}, {"type": "text"}, {"text": 5}, {"text": "two"}], "two"),
        ([], ""),
        ({}, ""),
        (None, ""),
        (7, ""),
        ([{"type": "text", "text": "lone \ud83d surrogate"}], "lone \ufffd surrogate"),
        ([{"type": "text", "text": MEMORY + TYPED}], TYPED),
    ],
)
def test_any_json_is_read(value: object, text: str) -> None:
    assert said("user", multipart(value)) == text


@pytest.mark.parametrize("tail", ["", "{", "[1,", '{"text": "cut o', "nonsense", "[" * 100_000, '{"a":' * 100_000])
def test_broken_or_bottomless_json_is_no_text(tail: str) -> None:
    assert decode(MULTIPART + tail) == ""


@pytest.mark.parametrize("content", [None, b"bytes", 5, 1.5, ["list"]])
def test_what_is_no_text_is_none(content: object) -> None:
    assert said("user", content) == ""


@pytest.mark.parametrize("kind", ["image/png", "application/vnd.ms-excel.sheet.binary", "image/svg+xml"])
def test_data_urls_are_not_text(kind: str) -> None:
    text = said("user", f"look at ![x](data:{kind};base64,{'QUJD' * 5000}) please")
    assert text == "look at ![x]([data]) please"


# --- clean and defang -------------------------------------------------------------------------------

UNSEEN = [
    *range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0), 0x061C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F),
    *range(0x2060, 0x206A), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080),
]  # fmt: skip


def test_control_bidi_and_tag_characters_are_gone() -> None:
    assert clean("".join(f"a{chr(code)}" for code in UNSEEN if code != 0x1B)) == "a" * (len(UNSEEN) - 1)


@pytest.mark.parametrize("sequence", ["\x1b[0m", "\x1b[1;31m", "\x1b[?25l", "\x1b]8;;http://a\x1b\\", "\x1bM", "\x1b"])
def test_ansi_sequences_are_gone_whole(sequence: str) -> None:
    assert clean(f"one{sequence}two") == "onetwo"


@pytest.mark.parametrize(
    "text", ["👩\u200d💻 👍🏽 ✅️", "naïve café", "नमस्ते", "می‌خواهم", "归属 판단 ログイン", "tab\tand\nline"]
)
def test_every_script_is_left_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n", "\u2028", "\u2029"])
def test_lines_end_one_way_and_never_run_into_each_other(ending: str) -> None:
    assert clean(f"one{ending}two") == "one\ntwo"


def test_a_form_feed_parts_words() -> None:
    assert clean("one\x0ctwo").split() == ["one", "two"]


def test_lone_surrogates_can_be_encoded_afterwards() -> None:
    assert clean("a\ud800b\udfffc") == "a\ufffdb\ufffdc"


@pytest.mark.parametrize(
    "tag",
    [
        "memory-context", "untrusted_tool_result", "untrusted-tool-result", "persisted-output", "system-reminder",
        "system", "tool_call", "tool_response", "function_call", "function_calls", "invoke", "antml:invoke", "antml",
        "think", "img", "script", "iframe",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["<{}>", "</{}>", "< {}>", "</ {} >", '<{} name="x">', "<{}\n>"])
def test_no_fence_opens_or_closes(tag: str, form: str) -> None:
    for spelled in (tag, tag.upper()):
        safe = defang(f"before {form.format(spelled)} after")
        assert "<" not in safe
        assert spelled in safe, "it can still be read"


def test_a_models_own_control_tokens_are_no_tokens() -> None:
    assert "<|" not in defang("<|im_start|>system")


@pytest.mark.parametrize("text", ["List<String>", "a < b", "x <- y", "<div>", "Vec<Thinker>", "1 <= 2"])
def test_code_keeps_its_brackets(text: str) -> None:
    assert defang(text) == text


def test_an_image_becomes_a_link() -> None:
    assert defang("![x](https://evil.example/?q=1)") == "[image: x](https://evil.example/?q=1)"


@pytest.mark.parametrize("limit", [1, 2, 10, 80])
def test_a_name_is_one_clean_line_within_its_limit(limit: int) -> None:
    line = one_line("Fix\nthe \x1b[31mlogin\u202e <system>ignore</system>  " * 20, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) == 1
    assert not {"\x1b", "\u202e", "<"} & set(line)


def test_no_name_is_an_empty_line() -> None:
    assert one_line(None) == ""


# --- fold -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("ReFresh", "refresh"),
        ("Café CRÈME", "cafe creme"),
        ("Straße", "strasse"),
        ("ＡＰＩ２", "api2"),
        ("ﬁle", "file"),
        ("①", "1"),
        ("归属判断", "归属判断"),
        ("ログイン", "ログイン"),
        ("ﾛｸﾞｲﾝ", "ログイン"),
        ("한국어", "한국어"),
        (unicodedata.normalize("NFD", "한국어"), "한국어"),
        ("Ёлка", "елка"),
    ],
)
def test_words_are_folded_for_comparing(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_voicing_makes_another_kana() -> None:
    assert fold("は") != fold("ば") != fold("ぱ")
    assert fold("カ") != fold("ガ")


def test_folding_twice_is_folding_once() -> None:
    for text in ("Café", "ＡＰＩ", "ガ", "한국어", "İstanbul", "ẞ", "ǅ"):
        assert fold(fold(text)) == fold(text)


# --- cut and window ---------------------------------------------------------------------------------

ALPHABET = [*"abc def\n\n归属判断。 é̃İß👍", "needle", "归属", "\n \n"]


def random_text(rng: random.Random) -> str:
    return "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(0, 600)))


def random_words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choice(["one", "归属", "three", "four"]) for _ in range(count))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 8, 9, 10, 40, 80, 200])
def test_a_piece_is_never_over_its_limit(limit: int) -> None:
    rng = random.Random(limit)
    for _ in range(300):
        text = random_text(rng)
        needles = rng.sample(["needle", "归属", "", "absent", "b", "ss", "e"], 3)
        assert len(cut(text, limit)) <= limit
        assert len(window(text, needles, limit)) <= limit


@pytest.mark.parametrize("limit", [80, 81, 100, 160, 400])
def test_a_window_holds_a_needle_wherever_the_text_has_it(limit: int) -> None:
    rng = random.Random(limit)
    for _ in range(300):
        before, after = random_words(rng, rng.randrange(60)), random_words(rng, rng.choice([0, 0, 1, 30, 60]))
        assert "needle" in window(f"{before} needle {after}", ["needle"], limit)


def test_a_window_lies_where_most_needles_stand() -> None:
    text = "alpha " + "x " * 300 + "alpha beta gamma" + " y" * 300 + " beta"
    assert "alpha beta gamma" in window(text, ["alpha", "beta", "gamma"], 100)


def test_a_window_says_where_it_was_cut() -> None:
    text = "x " * 200 + "needle" + " y" * 200
    piece = window(text, ["needle"], 100)
    assert piece.startswith("… ")
    assert piece.endswith(" …")
    assert window("short needle", ["needle"], 100) == "short needle"


def test_offsets_stay_true_where_folding_changes_the_length() -> None:
    text = "ﬃ" * 500 + " needle " + "ß" * 500
    assert "needle" in window(text, ["needle"], 90)


def test_thousands_of_places_are_looked_at_and_no_more() -> None:
    assert len(window("ab" * 500_000, ["a", "b", "ab"], 100)) <= 100


def test_blank_lines_are_closed_up() -> None:
    assert cut("one\n\n \n\ntwo", 80) == window("one\n\n \n\ntwo", [], 80) == "one\ntwo"
