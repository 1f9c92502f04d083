"""What people read: every text in both languages, with the placeholders its callers fill."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator

import pytest
from project_history_recall import words

from demo import hosts

CHINESE = re.compile("[\u4e00-\u9fff]")
# Names and abbreviations, and layouts without a word in them, are the same in both.
SAME = {"status.hermes", "doctor.python", "doctor.hermes", "ask", "sessions.child", "column.id"}


def placeholders(text: str) -> list[str]:
    return sorted({name for _, name, _, _ in string.Formatter().parse(text) if name is not None})


def said_in_code() -> Iterator[tuple[str, set[str] | None]]:
    """(a pattern for the key, the names that fill it) of every `say(...)`; None for names that are not spelt out."""
    for path in sorted(hosts.ROOT.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="say") | ast.Attribute(attr="say"), args=[first, *_], keywords=given):
                    names = {keyword.arg for keyword in given}
                    for key in keys(first):
                        yield key, None if None in names else {name for name in names if name}


def keys(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(key)):
            yield re.escape(key)
        case ast.JoinedStr(values=parts):
            yield "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"[a-z_]+" for p in parts)
        case ast.IfExp(body=one, orelse=other):
            yield from keys(one)
            yield from keys(other)
        case ast.BoolOp(values=several):
            for each in several:
                yield from keys(each)


def spelt_out() -> set[str]:
    """Every string in the code that is a key: some are handed on before they are said."""
    found = set()
    for path in hosts.ROOT.glob("*.py"):
        if path.stem != "words":
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and node.value in words.CATALOGUE:
                    found.add(node.value)
    return found


def test_every_key_that_is_said_is_in_the_catalogue() -> None:
    said = {pattern for pattern, _ in said_in_code()}
    assert len(said) > 60
    missing = [p for p in said if not any(re.fullmatch(p, key) for key in words.CATALOGUE)]
    assert missing == []


def test_every_text_of_the_catalogue_is_said_somewhere() -> None:
    said = {pattern for pattern, _ in said_in_code()}
    whole = spelt_out()
    unused = [k for k in words.CATALOGUE if k not in whole and not any(re.fullmatch(p, k) for p in said)]
    assert unused == []


def test_callers_fill_exactly_the_placeholders() -> None:
    for pattern, names in said_in_code():
        if names is not None:
            for key in (key for key in words.CATALOGUE if re.fullmatch(pattern, key)):
                assert placeholders(words.CATALOGUE[key][0]) == sorted(names), key


@pytest.mark.parametrize("key", words.CATALOGUE)
def test_both_languages_have_the_text_and_the_same_placeholders(key: str) -> None:
    english, chinese = words.CATALOGUE[key]
    assert english.strip()
    assert chinese.strip()
    assert placeholders(english) == placeholders(chinese)
    assert not CHINESE.search(english)
    assert (english == chinese) if key in SAME else CHINESE.search(chinese)


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("zh", "zh"),
        ("zh_CN.UTF-8", "zh"),
        ("zh-Hant", "zh"),
        ("ZH_tw", "zh"),
        ("en_GB.UTF-8", "en"),
        ("C", "en"),
        ("", "en"),
        ("de", "en"),
    ],
)
def test_a_locale_chooses_the_language(tag: str, language: str) -> None:
    assert words.choose(tag) == language


def test_a_text_is_said_with_its_placeholders_filled() -> None:
    assert words.speak("zh")("index.others", owed=3) == "另有 3 段尚待处理，由正在运行的其他进程或下次运行完成。"
    assert words.speak("fr")("index.others", owed=3).startswith("3 pieces")
    assert words.speak()("search.nothing") == "Nothing found. No hit is no proof."
