"""Queries as people write them, each with its right answer, on the indexes of all three hosts."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from project_history_recall import keywords
from project_history_recall.errors import EmptyQuery
from project_history_recall.keywords import Found, KeywordLeg, Term, parse, stem
from project_history_recall.state import State

from tests import small

each_layout = pytest.mark.parametrize("layout", small.LAYOUTS)

# What was said in the project, each in a conversation of its own.
SAID: dict[str, object] = {
    "callback": "上次回调重复入账的问题：给 order_id 加唯一索引，重复的回调直接返回成功，这样就修好了。",
    "callback question": "支付的回调有时候会来两次吗？",
    "ownership": "会话归属判断错了，子目录的会话归到了父项目。",
    "ownership at the end": "今天讨论了归属",
    "youer glued": "我昨天修改youer服务端的配置，重启之后就好了。",
    "youer": "The youer server restarts at night.",
    "api glued": "改了api的签名",
    "v2": "use the v2 endpoint from now on",
    "v2 glued": "接口v2改了签名",
    "guangxi": "广西的报税表已经交了。",
    "guilin": "桂林的行程：阳朔住两晚。",
    "token": "刷新令牌的有效期改成七天。",
    "token, concurrent": "刷新令牌在并发时会失效，要加锁。",
    "reset": "read ECONNRESET from the upstream after 30s",
    "path": "the panic is in src/app/main.rs:42, an unwrap on None",
    "path, other line": "see src/app/main.rs:7 for the parser",
    "call": "foo_bar.baz() returns nothing while the cache is cold",
    "call in words": "foo, bar and baz are no good names",
    "cpp": "rewrite the parser in C++ for speed",
    "csharp": "port the client to C# later",
    "c": "the C compiler is old",
    "dotnet": "the .NET runtime is at 8.0",
    "net": "the net result is the same",
    "flag": "git commit --no-verify, just this once",
    "flag in words": "there is no need to verify it",
    "phrase": "connection pool exhausted under load",
    "phrase in words": "the pool was exhausted by one slow connection",
    "rocket": "release done 🚀 all green",
    "camel": "refreshTokenStore leaks handles",
    "deployment": "the deployment hangs at its last step",
    "deploying": "we were deploying from main",
    "smart home": "connected the Tuya bulbs to the smart home hub",
    "constraint": "NOT NULL constraint failed: messages.session_id",
    "not found": "the registry says 404 NOT FOUND",
    "café": "the Café-Maschine is broken",
    "korean": "로그인 버튼이 동작하지 않습니다",
    "japanese": "ログイン画面が真っ白になる",
    "screenshot": [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "报表导出按钮是灰的 zebra"}],
    "quotes": 'he wrote "as is" in the ticket',
    "hash": "fixed in commit 3f2a9bc",
    "version": "pin numpy==1.26.4 for now",
    "mail": "write to ops@example.org",
    "url": "see https://example.org/docs/setup?tab=2#linux",
    "constant": "MAX_RESULT_CHARS is too small",
    "issue": "that was issue #1234",
    "windows": r"it lies in C:\Users\lin\notes.txt",
}  # fmt: skip
ONLY = "only"

# query: (what comes first, what else must come; `ONLY` in it: and nothing more)
ANSWERS: dict[str, tuple[str, set[str]]] = {
    # questions
    "what did we do about the smart home?": ("smart home", set()),
    "Why does the deployment hang": ("deployment", {"deploying"}),
    "what's wrong with the connection pool, is it exhausted?": ("phrase", {"phrase in words"}),
    "how do I fix it when the upstream sends ECONNRESET.": ("reset", set()),
    "上次回调重复入账怎么修的": ("callback", {"callback question"}),
    "为什么归属判断错了？": ("ownership", {"ownership at the end"}),
    "刷新令牌的有效期是多少": ("token", {"token, concurrent"}),
    "报税表交了吗": ("guangxi", {ONLY}),
    "按钮为什么是灰的": ("screenshot", set()),
    # Chinese, Japanese, Korean
    "归属": ("ownership at the end", {"ownership", ONLY}),
    "阳朔": ("guilin", {ONLY}),
    "归属判断": ("ownership", {"ownership at the end", ONLY}),
    '"归属判断"': ("ownership", {ONLY}),
    '"归属"': ("ownership at the end", {"ownership", ONLY}),
    "导出": ("screenshot", {ONLY}),
    "报表导出": ("screenshot", set()),
    "并": ("token, concurrent", {ONLY}),
    "ログイン画面": ("japanese", {ONLY}),
    "画面": ("japanese", {ONLY}),
    "로그인": ("korean", {ONLY}),
    "버튼": ("korean", {ONLY}),
    "回调，入账": ("callback", {"callback question"}),
    "回调 入账": ("callback", {"callback question"}),
    # both scripts
    "修改youer服务端": ("youer glued", {"youer"}),
    "youer": ("youer", {"youer glued", ONLY}),
    "youer服务端": ("youer glued", {"youer"}),
    "api": ("api glued", {ONLY}),
    "v2": ("v2", {"v2 glued", ONLY}),
    "接口v2": ("v2 glued", {"v2", ONLY}),
    "order_id唯一索引": ("callback", set()),
    # lists and refusals
    "广西 OR 桂林 OR 贵州": ("guangxi", {"guilin", ONLY}),
    "广西 or 桂林": ("guangxi", {"guilin", ONLY}),
    "桂林 AND 阳朔": ("guilin", {ONLY}),
    "广西 | 桂林": ("guangxi", {"guilin", ONLY}),
    "刷新令牌 NOT 并发": ("token", {ONLY}),
    "youer NOT server": ("youer glued", {ONLY}),
    "pool NOT \"connection pool\"": ("phrase in words", {ONLY}),
    "NOT NULL constraint failed": ("constraint", set()),
    "registry 404 NOT FOUND": ("not found", set()),
    # symbols, codes and paths
    "ECONNRESET": ("reset", {ONLY}),
    "econnreset": ("reset", {ONLY}),
    "ＥＣＯＮＮＲＥＳＥＴ": ("reset", {ONLY}),
    "src/app/main.rs:42": ("path", {"path, other line", ONLY}),
    "src/app/main.rs": ("path, other line", {"path", ONLY}),
    "main.rs": ("path, other line", {"path", ONLY}),
    "app/main": ("path, other line", {"path", ONLY}),
    "`src/app/main.rs:42`": ("path", {"path, other line", ONLY}),
    "foo_bar.baz()": ("call", set()),
    "foo_bar.baz": ("call", set()),
    "foo_bar": ("call", set()),
    "C++": ("cpp", {ONLY}),
    "C#": ("csharp", {ONLY}),
    ".NET": ("dotnet", set()),
    "--no-verify": ("flag", set()),
    "numpy==1.26.4": ("version", {ONLY}),
    "1.26.4": ("version", {ONLY}),
    "3f2a9bc": ("hash", {ONLY}),
    "3f2a9": ("hash", {ONLY}),
    "ops@example.org": ("mail", set()),
    "https://example.org/docs/setup?tab=2#linux": ("url", set()),
    "MAX_RESULT_CHARS": ("constant", {ONLY}),
    "#1234": ("issue", {ONLY}),
    r"C:\Users\lin\notes.txt": ("windows", {ONLY}),
    # phrases
    '"connection pool exhausted"': ("phrase", {ONLY}),
    '"as is"': ("quotes", {ONLY}),
    '"pool exhausted" OR "no good names"': ("call in words", {"phrase", ONLY}),
    # parts and inflections
    "refreshToken": ("camel", {ONLY}),
    "TokenStore": ("camel", {ONLY}),
    "tokenstore": ("camel", {ONLY}),
    "refresh": ("camel", {ONLY}),
    "deploys": ("deploying", {"deployment", ONLY}),
    "deployments": ("deploying", {"deployment", ONLY}),
    "deployed": ("deploying", {"deployment", ONLY}),
    "deploying": ("deploying", {"deployment", ONLY}),
    "Deploy": ("deploying", {"deployment", ONLY}),
    "cafe": ("café", {ONLY}),
    "CAFÉ": ("café", {ONLY}),
    # pictures
    "🚀": ("rocket", {ONLY}),
    "🚀 green": ("rocket", {ONLY}),
    # multipart
    "zebra": ("screenshot", {ONLY}),
}  # fmt: skip

# What stands around or between words and must not change the answer.
DECORATED = [
    "{}.", "{}...", "{}…", "{}。", "({})", "({}).", "{}),", "[{}]", "<{}>", "{{}}", '"{}', '{}"', "'{}'", "“{}”",
    "`{}`", "**{}**", "_{}_", "{}!", "{}?!", "¿{}?", "- {}", "{} -", "-{}", "+{}", "^{}", "{}*", "*{}", "%{}%", "{}:",
    "content:{}", "content : {}", "NEAR({})", "NEAR({}, 5)", "{} AND", "OR {}", "AND {} OR", "{} NOT",
    "({} OR", ") {} (", '"" {}', '" {}', "{}\0", "\0{}", "{}\n{}", "\u202e{}", "\ufeff{}", "{}\ud800", "{} \\",
    "{}^2", "{}||{}", "{}--",
]  # fmt: skip


Corpus = tuple[small.SmallHome, dict[int, str]]


@pytest.fixture(scope="module", params=small.LAYOUTS)
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A home in which all of it was said, with the name of each message by its id."""
    home = small.furnished(tmp_path_factory.mktemp("corpus"), request.param)
    return home, told(home)


def told(home: small.SmallHome) -> dict[int, str]:
    names = {}
    for name, text in SAID.items():
        home.session(name)
        names[home.say(name, text)] = name
    home.session("other", cwd=small.BOREALIS)
    for text in SAID.values():  # the same again, in another project
        home.say("other", text)
    return names


def found(corpus: Corpus, query: str, **args: Any) -> list[str]:
    """The names of the messages that a search finds, best first."""
    home, names = corpus
    return [names[i] for i in small.ids(home.ask(query, limit=20, context=0, **args))]


@pytest.mark.parametrize("query", ANSWERS)
def test_a_query_finds_what_a_person_means_by_it(corpus: Corpus, query: str) -> None:
    first, others = ANSWERS[query]
    names = found(corpus, query)
    assert names[:1] == [first]
    assert set(names) >= others - {ONLY}
    if ONLY in others:
        assert set(names) == others - {ONLY} | {first}


@pytest.mark.parametrize("word", ["ECONNRESET", "deploys", "归属判断"])
def test_what_stands_around_a_word_changes_nothing(corpus: Corpus, word: str) -> None:
    plain = found(corpus, word)
    for form in DECORATED:
        names = found(corpus, form.replace("{}", word))
        assert names[:1] == plain[:1], form
        assert set(names) >= set(plain), form


def test_sql_is_text(corpus: Corpus) -> None:
    assert found(corpus, "ECONNRESET'; DROP TABLE messages; --")[:1] == ["reset"]
    assert found(corpus, "ECONNRESET") == ["reset"]


@pytest.mark.parametrize("ending", [".", "...", "…", "?", "!", ")", ").", ":", ";", ",", "'", '"'])
@pytest.mark.parametrize("word", ["deploys", "it", "the", "v2"])
def test_a_word_is_the_same_word_at_the_end_of_a_sentence(word: str, ending: str) -> None:
    assert parse(word + ending).terms == parse(word).terms


@pytest.mark.parametrize(
    "filler", ["lorem ipsum dolor sit amet ", "at TLSWrap.onStreamRead (node:internal/stream:217:20)\n", "啊"]
)
def test_ten_thousand_characters_are_a_query_like_another(corpus: Corpus, filler: str) -> None:
    assert found(corpus, f"ECONNRESET {filler * (10_000 // len(filler))}")[:1] == ["reset"]


def test_ten_thousand_different_words_are_answered(corpus: Corpus) -> None:
    assert found(corpus, "ECONNRESET " + " ".join(f"w{i}" for i in range(2_000)))[:1] == ["reset"]


def test_one_word_of_ten_thousand_characters_is_answered(corpus: Corpus) -> None:
    assert found(corpus, "x" * 10_000) == []
    assert found(corpus, "/" * 10_000) == []
    assert found(corpus, '"' * 2_000 + "ECONNRESET") == ["reset"]


@pytest.mark.parametrize(
    "query", ["", "   ", "\n\t", "?!", "。，？！", '""', '"""', "OR", "AND OR", "NOT", "NOT x", "|", "\0", "\u202e"]
)
def test_nothing_to_look_for_is_said(corpus: Corpus, query: str) -> None:
    with pytest.raises(EmptyQuery):
        found(corpus, query)


@pytest.mark.parametrize("query", ["the", "what did we do", "is it", "的", "为什么", "我们", "是不是"])
def test_function_words_alone_are_looked_for_as_they_are(corpus: Corpus, query: str) -> None:
    assert isinstance(found(corpus, query), list)


@pytest.mark.parametrize(
    ("query", "matched"),
    [
        ("上次回调重复入账怎么修的", ["回调重复入账"]),
        ("为什么归属判断错了？", ["归属判断错"]),
        ("deploys", ["deploying"]),
        ("src/app/main.rs:42", ["src/app/main.rs:42"]),
        ("c++ parser", ["c++", "parser"]),
        ("youer NOT server", ["youer"]),
    ],
)
def test_a_hit_says_which_words_it_holds(corpus: Corpus, query: str, matched: list[str]) -> None:
    home, _ = corpus
    assert home.ask(query)["results"][0]["matched"] == matched


@pytest.mark.parametrize(
    ("word", "prefix"),
    [("deploys", "deploy"), ("deployment", "deploy"), ("deployments", "deploy"), ("deploying", "deploy"),
     ("deployed", "deploy"), ("queries", "quer"), ("query", "quer"), ("tests", "test"), ("parser", "pars"),
     ("bus", ""), ("news", ""), ("v2", ""), ("café", ""), ("归属", ""), ("utf8", "")],
)  # fmt: skip
def test_inflections_share_a_beginning(word: str, prefix: str) -> None:
    assert stem(word) == prefix


# --- a large scope ----------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [q for q in ANSWERS if not q.isascii()])
def test_a_large_scope_is_answered_as_a_small_one(corpus: Corpus, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_scope = found(corpus, query)
    monkeypatch.setattr(keywords, "SCAN_ROWS", 0)
    # A bigram with which a text ends begins no trigram; only by itself is it always looked for in the texts.
    least = set(small_scope) - ({"ownership at the end"} if query != "归属" else set())
    assert least <= set(found(corpus, query)) <= set(small_scope)
    assert found(corpus, query)[0] == small_scope[0]


def test_a_bigram_that_begins_too_many_trigrams_is_scanned_instead(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keywords, "SCAN_ROWS", 0)
    monkeypatch.setattr(keywords, "MAX_EXPANSION", 0)
    assert found(corpus, "归属判断")[:1] == ["ownership"]


@pytest.mark.parametrize("query", ["C# 归属", "归属 v2", "猫 归属 C#"])
def test_a_short_sign_beside_bigrams_is_found_in_a_large_scope(
    corpus: Corpus, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_scope = set(found(corpus, query)) - {"ownership at the end"}
    monkeypatch.setattr(keywords, "SCAN_ROWS", 0)
    assert {"ownership", "csharp" if "#" in query else "v2"} <= small_scope <= set(found(corpus, query))


# --- an index that lacks something ------------------------------------------------------------------

STILL_FOUND = {
    "ECONNRESET": "reset",
    "deploys": "deploying",
    "归属判断": "ownership",
    "阳朔": "guilin",
    "修改youer服务端": "youer glued",
    "src/app/main.rs:42": "path",
    "TokenStore": "camel",
    "C++": "cpp",
    '"connection pool exhausted"': "phrase",
    "报表导出": "screenshot",
    "zebra": "screenshot",
}
TABLES = [("messages_fts",), ("messages_fts_trigram",), ("messages_fts", "messages_fts_trigram")]
each_table = pytest.mark.parametrize("tables", TABLES, ids=["words", "trigrams", "both"])
each_scope = pytest.mark.parametrize("scan_rows", [keywords.SCAN_ROWS, 0], ids=["small scope", "large scope"])


def drop(home: small.SmallHome, tables: Iterable[str]) -> None:
    for table in tables:
        home.script(f"DROP TRIGGER IF EXISTS {table}_insert; DROP TABLE {table}")


def damage(home: small.SmallHome, tables: Iterable[str], seed: int = 0) -> None:
    """Make their pages nonsense; a query of them raises."""
    rng = random.Random(seed)
    for table in tables:
        home.script(f"UPDATE {table}_data SET block = x'{rng.randbytes(rng.choice([0, 3, 40, 4_000])).hex()}'")


def empty(home: small.SmallHome, tables: Iterable[str]) -> None:
    """Make them answer nothing without a word, as if all rows were indexed."""
    for table in tables:
        way = f"DELETE FROM {table}" if home.layout == "0.19" else f"INSERT INTO {table}({table}) VALUES ('delete-all')"
        home.script(
            f"CREATE TABLE kept AS SELECT * FROM {table}_docsize; {way};"
            f"INSERT INTO {table}_docsize SELECT * FROM kept; DROP TABLE kept"
        )


@each_layout
@each_table
@each_scope
@pytest.mark.parametrize("harm", [drop, damage, empty])
def test_a_missing_damaged_or_silently_empty_index_is_done_without(
    tmp_path: Path,
    layout: str,
    tables: tuple[str, ...],
    harm: Callable[[small.SmallHome, Iterable[str]], None],
    scan_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keywords, "SCAN_ROWS", scan_rows)
    home = small.furnished(tmp_path, layout)
    names = told(home)
    harm(home, tables)
    answers = {query: home.ask(query, context=0) for query in STILL_FOUND}
    firsts = {query: names.get(*small.ids(a)[:1] or [0]) for query, a in answers.items()}
    assert firsts == STILL_FOUND
    if harm in (drop, damage) and "messages_fts" in tables:
        assert "messages themselves were read" in answers["ECONNRESET"]["keyword_detail"]


@each_layout
@each_scope
@pytest.mark.parametrize("seed", range(1, 9))
def test_no_damage_of_an_index_is_more_than_its_loss(
    tmp_path: Path, layout: str, seed: int, scan_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keywords, "SCAN_ROWS", scan_rows)
    home = small.furnished(tmp_path, layout)
    told(home)
    damage(home, ("messages_fts", "messages_fts_trigram"), seed)
    assert all(home.ask(query)["results"] for query in STILL_FOUND)


@each_layout
def test_an_index_that_fails_in_the_middle_of_a_query_is_done_without(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list of terms can still be read, and its rows no longer."""
    monkeypatch.setattr(keywords, "SCAN_ROWS", 0)
    home = small.furnished(tmp_path, layout)
    names = told(home)
    rows = State.rows

    def failing(self: State, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        if "messages_fts_trigram MATCH" in sql:
            raise sqlite3.DatabaseError("database disk image is malformed")
        return rows(self, sql, params)

    monkeypatch.setattr(State, "rows", failing)
    assert names[small.ids(home.ask("归属判断"))[0]] == "ownership"


def test_of_large_attachments_the_newest_are_searched_and_the_rest_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = small.furnished(tmp_path)
    home.session("a")
    rows = [home.say("a", [{"type": "text", "text": f"斑马 {n} " + "填 " * 100}]) for n in range(20)]
    assert "keyword_detail" not in home.ask("斑马", limit=20)
    monkeypatch.setattr(keywords, "MULTIPART_BYTES", 5 * 1_300)
    answer = home.ask("斑马", limit=20)
    assert answer["keyword_detail"] == "Older messages with large attachments were not searched."
    assert 1 < len(found_ids := set(small.ids(answer))) < 20
    assert found_ids <= set(rows[-len(found_ids) :])


@each_layout
def test_a_good_index_is_not_spoken_of(tmp_path: Path, layout: str) -> None:
    home = small.furnished(tmp_path, layout)
    told(home)
    assert all("keyword_detail" not in home.ask(query) for query in STILL_FOUND)


@each_layout
@each_scope
def test_rows_that_the_index_has_not_reached_are_found(
    tmp_path: Path, layout: str, scan_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keywords, "SCAN_ROWS", scan_rows)
    home = small.furnished(tmp_path, layout)
    home.session("old")
    home.say("old", "ECONNRESET, TokenStore and 归属判断, of old")
    for table in ("messages_fts", "messages_fts_trigram"):
        home.script(f"DROP TRIGGER {table}_insert")
    names = told(home)
    firsts = {}
    for query in STILL_FOUND:
        hits = [names[i] for i in small.ids(home.ask(query, context=0)) if i in names]
        firsts[query] = hits[0] if hits else None
    assert firsts == STILL_FOUND


@each_layout
def test_rows_that_a_rebuild_has_still_to_reach_are_found(tmp_path: Path, layout: str) -> None:
    home = small.furnished(tmp_path, layout)
    names = told(home)
    if layout == "0.19":
        home.script("DELETE FROM messages_fts WHERE rowid > 3; DELETE FROM messages_fts_trigram WHERE rowid > 3")
    else:
        for table in ("messages_fts", "messages_fts_trigram"):
            home.script(f"INSERT INTO {table}({table}) VALUES ('delete-all')")
    newest = max(names)
    home.script(f"INSERT INTO state_meta VALUES ('fts_rebuild_progress', '3'), ('fts_rebuild_high_water', '{newest}')")
    home.say("callback", "written during the rebuild")  # indexed at once
    firsts = {query: names.get(*small.ids(home.ask(query, context=0))[:1] or [0]) for query in STILL_FOUND}
    assert firsts == STILL_FOUND


@pytest.mark.parametrize("value", ["", "x", "-5", "9" * 30, None])
def test_a_mark_of_a_rebuild_that_makes_no_sense_is_no_mark(tmp_path: Path, value: str | None) -> None:
    home = small.furnished(tmp_path)
    names = told(home)
    home.write(
        "INSERT INTO state_meta VALUES ('fts_rebuild_progress', ?), ('fts_rebuild_high_water', ?)", [(value, value)]
    )
    assert [names[i] for i in small.ids(home.ask("ECONNRESET"))] == ["reset"]


@each_layout
def test_without_the_covering_index_the_scope_is_still_read(tmp_path: Path, layout: str) -> None:
    home = small.furnished(tmp_path, layout)
    names = told(home)
    home.script("DROP INDEX idx_messages_session_active")
    assert names[small.ids(home.ask("ECONNRESET"))[0]] == "reset"


@each_layout
@each_scope
def test_a_scheduled_run_is_found_and_comes_after_what_people_said(
    tmp_path: Path, layout: str, scan_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keywords, "SCAN_ROWS", scan_rows)
    home = small.furnished(tmp_path, layout)
    home.session("nightly", source="cron")
    cron = home.say("nightly", "ECONNRESET in refreshTokenStore, 归属判断 of foo_bar.baz()", "assistant")
    home.session("people")
    home.fill("people", (f"some other talk {i}" for i in range(30)))
    people = home.say("people", "ECONNRESET in refreshTokenStore: 归属判断, foo_bar.baz()")
    for query in ("ECONNRESET", "TokenStore", "归属判断", "归属", "foo_bar.baz()"):
        assert small.ids(home.ask(query)) == [people, cron]


# --- tool output ------------------------------------------------------------------------------------


@each_layout
def test_tool_output_comes_last_with_its_label_and_only_where_there_is_room(tmp_path: Path, layout: str) -> None:
    home = small.furnished(tmp_path, layout)
    home.session("a")
    outputs = [home.say("a", f"ECONNRESET ECONNRESET 归属判断 src/app/main.rs {i}", "tool") for i in range(3)]
    said = home.say("a", "long ago there was some talk about ECONNRESET, 归属判断 and src/app/main.rs", "assistant")
    for query in ("ECONNRESET", "归属判断", "归属", "src/app/main.rs"):
        hits = home.ask(query)["results"]
        assert hits[0]["message_id"] == said
        assert {hit["message_id"] for hit in hits[1:]} == set(outputs)
        assert [hit["role"] for hit in hits] == ["assistant", "tool", "tool", "tool"]
        assert small.ids(home.ask(query, limit=1)) == [said]


@each_layout
def test_the_arguments_of_tool_calls_are_not_what_was_said(tmp_path: Path, layout: str) -> None:
    home = small.furnished(tmp_path, layout)
    home.session("a")
    home.say(
        "a", "let me look", "assistant", tool_calls='[{"function": {"arguments": "zebra 归属判断"}}]', tool_name="zebra"
    )
    assert home.ask("zebra")["results"] == []
    assert home.ask("归属判断")["results"] == []


# --- the statements ---------------------------------------------------------------------------------


@pytest.fixture
def issued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Sequence[Any]]]:
    """Every statement that a State runs."""
    statements: list[tuple[str, Sequence[Any]]] = []
    rows = State.rows

    def recording(self: State, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        statements.append((sql, params))
        return rows(self, sql, params)

    monkeypatch.setattr(State, "rows", recording)
    return statements


def leg(state: State, sessions: Iterable[str]) -> KeywordLeg:
    ready = KeywordLeg(state)
    ready.prepare(sessions)
    return ready


def plan(state: State, sql: str, params: Sequence[Any]) -> list[str]:
    return [row[3] for row in state.rows(f"EXPLAIN QUERY PLAN {sql}", params)]


@each_layout
@pytest.mark.parametrize("query", ["the panic", "src/app/main.rs", "TokenStore"])
def test_a_match_goes_from_the_index_to_the_scope_to_the_row(
    tmp_path: Path, layout: str, query: str, issued: list[tuple[str, Sequence[Any]]]
) -> None:
    home = small.furnished(tmp_path, layout)
    told(home)
    with State(tmp_path) as state:
        ready = leg(state, SAID)
        issued.clear()
        ready.find(parse(query))
        matches = [(sql, params) for sql, params in issued if "bm25" in sql]
        assert matches
        for sql, params in matches:
            steps = plan(state, sql, params)
            assert steps[0].startswith("SCAN f VIRTUAL TABLE INDEX 0:M"), "by MATCH, neither by rowid nor by rank"
            assert steps[1] == "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"
            assert steps[2] == "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"
            assert "m.role IN" in sql.partition("LIMIT")[0]
            assert sql.rstrip().endswith("LIMIT ?")
            assert "ORDER BY rank" not in sql


@each_layout
def test_the_scope_is_filled_from_the_covering_index(
    tmp_path: Path, layout: str, issued: list[tuple[str, Sequence[Any]]]
) -> None:
    home = small.furnished(tmp_path, layout)
    told(home)
    with State(tmp_path) as state:
        leg(state, SAID)
        live, compacted = [(sql, params) for sql, params in issued if "INTO temp.elig" in sql]
        assert plan(state, *live)[1].startswith(
            "SEARCH m USING COVERING INDEX idx_messages_session_active (session_id=?"
        )
        assert plan(state, *compacted)[1].startswith("SEARCH m USING INDEX idx_messages_session_active (session_id=?")


@each_layout
@each_scope
@pytest.mark.parametrize("query", ["zebra", "src/zebra.py", "斑马", "两只斑马", '"zebra crossing"'])
@pytest.mark.parametrize("better", ["in another project", "tool output"])
def test_a_hit_is_found_behind_hundreds_of_better_ones_that_do_not_count(
    tmp_path: Path, layout: str, query: str, better: str, scan_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keywords, "SCAN_ROWS", scan_rows)
    home = small.furnished(tmp_path, layout)
    home.session("b", cwd=small.ATLAS if better == "tool output" else small.BOREALIS)
    text = "zebra crossing src/zebra.py 两只斑马"
    home.fill("b", [text] * 600, "tool" if better == "tool output" else "user")
    home.session("a")
    said = home.say("a", f"{'a long talk about everything ' * 20} {text} {'and more, 说了很多别的事情 ' * 20}")
    hits = home.ask(query, limit=1)["results"]
    assert [hit["message_id"] for hit in hits] == [said]


@each_layout
def test_times_bound_the_rows_from_inclusive_to_exclusive(tmp_path: Path, layout: str) -> None:
    home = small.furnished(tmp_path, layout)
    home.session("a")
    rows = [home.say("a", f"zebra {i}", timestamp=float(i)) for i in range(5)]
    home.write("UPDATE messages SET active = 0, compacted = 1 WHERE id < ?", [(rows[2],)])
    with State(tmp_path) as state:
        ready = KeywordLeg(state)
        bounds: list[tuple[float | None, float | None]] = [
            (None, None),
            (1, None),
            (None, 3),
            (1, 3),
            (3, 3.5),
            (9, None),
        ]
        for after, before in bounds:
            count = ready.prepare(["a"], after, before)
            expected = [r for i, r in enumerate(rows) if (after or 0) <= i < (before or 99)]
            assert count == len(expected)
            assert sorted(ready.find(parse("zebra")).scores) == expected


@each_layout
def test_rewound_rows_are_never_eligible(tmp_path: Path, layout: str) -> None:
    home = small.furnished(tmp_path, layout)
    home.session("a")
    home.say("a", "zebra 斑马", active=0, compacted=0)
    with State(tmp_path) as state:
        ready = KeywordLeg(state)
        assert ready.prepare(["a"]) == 0
        assert ready.find(parse("zebra 斑马")).scores == {}


def test_a_leg_can_be_asked_again_with_another_scope(tmp_path: Path) -> None:
    home = small.furnished(tmp_path)
    home.session("a")
    home.session("b")
    one, two = home.say("a", "zebra"), home.say("b", "zebra")
    with State(tmp_path) as state:
        ready = KeywordLeg(state)
        for session, row in (("a", one), ("b", two)):
            ready.prepare([session])
            assert list(ready.find(parse("zebra")).scores) == [row]


def test_equal_scores_rank_the_older_first() -> None:
    assert Found({5: 1.0, 3: 1.0, 4: 2.0}).ranked() == [4, 3, 5]


def test_rare_words_are_told_from_common_ones(tmp_path: Path) -> None:
    home = small.furnished(tmp_path)
    told(home)
    with State(tmp_path) as state:
        ready = leg(state, SAID)
        rarity = [ready.document_frequency(Term("word", w)) for w in ("econnreset", "the", "absent")]
        assert rarity[0] < rarity[1]
        assert rarity[2] == 0


def test_a_statement_that_takes_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = small.furnished(tmp_path)
    told(home)
    rows = State.rows

    def interrupted(self: State, sql: str, params: Sequence[Any] = ()) -> list[Any]:
        if "bm25" in sql or "<<" in sql:
            raise sqlite3.OperationalError("interrupted")
        return rows(self, sql, params)

    monkeypatch.setattr(State, "rows", interrupted)
    answer = home.ask("ECONNRESET 归属")
    assert answer["success"] is True
    assert "time allowed" in answer["keyword_detail"]
