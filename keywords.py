"""The keyword leg: read a query as people write it, and find the messages that hold its words.

Every statement joins the eligible ids of the scope (`CROSS JOIN`, so that SQLite
keeps that order) and the role before its LIMIT, and scores with `bm25()`:
`ORDER BY rank` would make FTS5 score every hit of the profile first.

Terms are OR-ed. A Latin word is found with its inflections by a query-side
prefix; a symbol, path or code as it is written, by trigrams; a run of Chinese,
Japanese or Korean as overlapping bigrams weighted by rarity and length, by one
scan in a small scope and by trigrams that begin with the bigram in a large one.
What the index cannot know (rows it has not reached, rows stored as JSON, a
damaged or missing index) is scanned.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sqlite3
import time
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .state import State
from .text import MULTIPART, clean, fold, said

MAX_QUERY = 4_000  # characters read of a query
MAX_TERMS = 40
MAX_GRAMS = 48  # one bit each in a scan's mask
SCAN_ROWS = 25_000  # up to here bigrams are scanned, above it trigrams find them
FEW = 10  # hits of the word leg under which substrings are tried too
MAX_EXPANSION = 400  # trigrams one bigram may begin before it is scanned instead
MULTIPART_ROWS, MULTIPART_BYTES = 300, 8_000_000
LITERAL_WEIGHT = 1.5  # as written beats in pieces
SUBSTRING_WEIGHT = 0.7  # inside another word: worth less than the word

TALK = ("user", "assistant")

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
_RUN = re.compile(f"[{_CJK}]+")
_TOKEN = re.compile(r'"([^"]+)"|(\S+)')
_EDGE = "，。？！、；：“”‘’（）《》【】「」…,;:?!\"'`"
_BRACKETS = "()[]{}<>"

# Words a question is made of. They cut a Chinese run; what is left is read by bigrams.
_CUT = re.compile(
    "|".join(
        sorted(
            "为什么 怎么样 怎么 怎样 什么 如何 是否 有没有 是不是 能不能 哪里 哪个 哪些 哪儿 多少 我们 你们 他们 它们 "
            "这个 那个 这些 那些 这样 那样 上次 上回 之前 那次 以前 当时 后来 因为 所以 但是 如果 一下 请问 关于 时候 "
            "的 了 吗 呢 吧 啊 呀 是 在 我 你 他 她 它 这 那 哪 谁 和 与 或 就 都 也 还 把 被 很 们".split(),
            key=len,
            reverse=True,
        )
    )
)
_STOP = frozenset(
    "a an the of to in on at for and or is are was were be do does did what when who where which how why i me my you "
    "your he she it its we they our their this that these those with from by as about has have had not no if so then "
    "than but can could would should".split()
)
_SUFFIXES = ("ments", "ment", "ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "es", "ed", "s", "e", "y")

Kind = Literal["word", "phrase", "literal", "short", "gram"]


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for. `text` is folded; `stem` is a shorter prefix that also counts ("" for none).

    word: a token of the index; phrase: tokens in a row; literal: three or more
    characters as written; short: one or two; gram: a CJK bigram (or a lone character).
    """

    kind: Kind
    text: str
    stem: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. `shown` are its pieces as a person wrote them, for `matched`."""

    terms: tuple[Term, ...]
    excluded: tuple[str, ...]
    shown: tuple[tuple[str, tuple[Term, ...]], ...]

    def of(self, *kinds: Kind) -> list[Term]:
        return [t for t in self.terms if t.kind in kinds]

    def matched(self, folded: str) -> list[str]:
        """The query's words as this folded text has them; of a CJK run, the parts it holds."""
        found: list[str] = []
        for piece, terms in self.shown:
            if _RUN.fullmatch(piece) and len(piece) > 2:
                found += _covered(piece, folded)
            elif held := [t.text for t in terms if t.text in folded and stands(t, folded)]:
                found.append(piece if fold(piece) in folded else held[0])
            else:
                found += filter(None, (_as_written(t, folded) for t in terms))
        return list(dict.fromkeys(found))

    def needles(self, folded: str) -> list[str]:
        """The strings of this query that stand in this folded text, for placing a snippet."""
        return [t.stem if t.stem and t.text not in folded else t.text for t in self.terms if stands(t, folded)]

    def standing(self, folded: str) -> list[Term]:
        """The terms that stand in this folded text."""
        return [t for t in self.terms if stands(t, folded)]

    def refuses(self, folded: str) -> bool:
        # A text that says "404 not found" itself is what a query of these words was pasted from.
        return any(word in folded.replace(f"not {word}", "") for word in self.excluded)

    def loosened(self) -> Query:
        """The words of its symbols one by one, for when nothing holds them as they are written."""
        words = [
            (word, (Term("word", word, stem(word)),))
            for term in self.of("phrase")
            for word in dict.fromkeys(term.text.split())
            if len(word) > 2 and word not in _STOP
        ]
        return Query(tuple(t for _, ts in words for t in ts)[:MAX_TERMS], self.excluded, tuple(words))


def stands(term: Term, folded: str) -> bool:
    """Whether a term is in a folded text, as the index would say."""
    if term.kind == "phrase":
        return re.search(r"[\W_]+".join(map(re.escape, term.text.split())), folded) is not None
    needle = term.stem or term.text
    if term.kind == "word" and len(needle) <= 3 and needle.isascii():
        end = "(?![a-z0-9])" if len(needle) <= 2 else ""
        return re.search(rf"(?<![a-z0-9]){re.escape(needle)}{end}", folded) is not None
    if term.kind == "literal" and " " in needle:  # a quoted phrase is made of whole words
        return re.search(rf"(?<![a-z0-9]){re.escape(needle)}(?![a-z0-9])", folded) is not None
    return needle in folded


def _as_written(term: Term, folded: str) -> str:
    """The inflection or spacing of a term that the text has, or ""."""
    if not stands(term, folded):
        return ""
    if term.kind == "phrase":
        shape = r"[\W_]+".join(map(re.escape, term.text.split()))
    else:
        shape = rf"{re.escape(term.stem or term.text)}[^\W_]*"
    found = re.search(shape, folded)
    return found.group()[:60] if found else ""


def _covered(run: str, folded: str) -> list[str]:
    """The longest parts of a run, of two characters or more, that the text holds."""
    parts: list[str] = []
    at = 0
    while at < len(run) - 1:
        end = at + 2
        if run[at:end] not in folded:
            at += 1
            continue
        while end < len(run) and run[at : end + 1] in folded:
            end += 1
        parts.append(run[at:end])
        at = end
    return parts


def parse(text: str) -> Query:
    """Read a query: quoted phrases whole, OR and AND as lists, NOT as a refusal, the rest by its script."""
    text = unicodedata.normalize("NFKC", clean(text.encode("utf-8", "replace").decode())[:MAX_QUERY])
    shown: list[tuple[str, tuple[Term, ...]]] = []
    stopped: list[tuple[str, tuple[Term, ...]]] = []
    excluded: list[str] = []
    refusing = False
    for quoted, token in _TOKEN.findall(text):
        if token in ("OR", "AND", "|", "||", "&&"):
            continue
        if token == "NOT":
            refusing = True
            continue
        pieces = _quoted(quoted.strip()) if quoted.strip() else _unquoted(token)
        if refusing:
            excluded += [fold(piece) for piece, _ in pieces]
            refusing = False
            continue
        for piece, terms in pieces:
            (stopped if _is_function_word(piece, terms) else shown).append((piece, terms))
    shown = list(dict.fromkeys(shown or stopped))
    every = list(dict.fromkeys(t for _, ts in shown for t in ts))
    grams = [t for t in every if t.kind in ("gram", "short")]
    others = [t for t in every if t.kind not in ("gram", "short")]
    if len(others) > MAX_TERMS:  # a pasted log: its longest words say most
        others = sorted(others, key=lambda t: -len(t.text))[:MAX_TERMS]
    kept = frozenset([*others, *grams[:MAX_GRAMS]])
    pieces_kept = tuple((piece, terms) for piece, terms in shown if not kept.isdisjoint(terms))
    return Query(tuple(t for t in every if t in kept), tuple(e for e in excluded if e)[:MAX_TERMS], pieces_kept)


def _quoted(phrase: str) -> list[tuple[str, tuple[Term, ...]]]:
    folded = fold(phrase)
    if _RUN.fullmatch(phrase) and len(phrase) <= 2:
        return [(phrase, (Term("gram", folded),))]
    return [(phrase, (Term("literal" if len(folded) >= 3 else "short", folded),))]


def _unquoted(token: str) -> list[tuple[str, tuple[Term, ...]]]:
    """A token without its edge punctuation, split where CJK meets anything else."""
    token = token.strip(_EDGE)
    found: list[tuple[str, tuple[Term, ...]]] = []
    at = 0
    runs = list(_RUN.finditer(token))
    for run in [*runs, None]:
        between = token[at : run.start() if run else len(token)].strip(_EDGE if runs else "")
        if between:
            found += _latin(between, glued=bool(runs))
        if run:
            found += _cjk(run.group())
            at = run.end()
    return found


def _cjk(run: str) -> list[tuple[str, tuple[Term, ...]]]:
    if len(run) <= 2:
        return [(run, (Term("gram", run),))]
    parts = [p for p in _CUT.split(run) if len(p) > 1] or [run]
    return [(p, tuple(Term("gram", p[i : i + 2]) for i in range(len(p) - 1))) for p in parts]


def _is_function_word(piece: str, terms: tuple[Term, ...]) -> bool:
    """Nothing to look for by itself: used only when the whole query is made of such words."""
    if terms[0].kind == "gram":
        return not _CUT.sub("", piece)
    if terms[0].kind == "short" and piece.isascii() and not any(c.isalnum() for c in piece):
        return True  # a dash between words
    return len(terms) == 1 and terms[0].kind == "word" and terms[0].text in _STOP


def _latin(piece: str, *, glued: bool) -> list[tuple[str, tuple[Term, ...]]]:
    bare = piece.lstrip(_BRACKETS).rstrip(_BRACKETS + _EDGE + ".")
    short_form = re.fullmatch(r"(\w+?)(n?)['’](s|t|re|ve|ll|d|m)", bare, re.I)
    if short_form:  # "what's", "Anna's", "didn't"
        word, negated, end = short_form.groups()
        bare = "not" if negated and end == "t" else word + negated
    if bare.isalnum():
        folded = fold(bare)
        word = Term("word", folded, stem(folded))
        if glued and len(folded) >= 3:  # the index has it glued to its neighbours
            return [(bare, (word, Term("literal", folded)))]
        return [(bare, (word,))]
    shape = piece.rstrip(".") if len(piece) > 2 else piece
    whole = fold(shape)
    if not any(c.isalnum() for c in whole):
        return [(shape, (Term("literal" if len(whole) >= 3 else "short", whole),))] if whole.strip() else []
    terms = [Term("literal" if len(whole) >= 3 else "short", whole)]
    # `foo.baz()` is also said as `foo.baz`, `main.rs:42` as `main.rs`.
    trimmed = re.sub(r"(?:\(\)|:\d+(?:[-:]\d+)?)+$", "", whole).strip(_BRACKETS)
    if trimmed != whole and len(trimmed) >= 3:
        terms.append(Term("literal", trimmed))
    words = re.findall(r"[^\W_]+", trimmed)
    if len(words) > 1:
        terms.append(Term("phrase", " ".join(words)))
    elif words and len(words[0]) > 2 and words[0] not in _STOP:
        terms.append(Term("word", words[0], stem(words[0])))
    return [(shape, tuple(terms))]


def stem(word: str) -> str:
    """A prefix shared by a word's inflections, or "" when it has none worth trying."""
    if not (word.isascii() and word.isalpha() and len(word) > 4):
        return ""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            return word[: -len(suffix)]
    return word


@dataclass(slots=True)
class Found:
    """Message ids with their scores, and a word on what could not be searched."""

    scores: dict[int, float] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    full: bool = False  # a leg reached its limit: more rows match than are listed

    def ranked(self) -> list[int]:
        """Best first; of equals the older, which is the original of a copy."""
        return sorted(self.scores, key=lambda i: (-self.scores[i], i))


@dataclass(frozen=True, slots=True)
class _Index:
    name: str
    usable: bool
    content_only: str  # column filter that leaves tool calls out


class KeywordLeg:
    """The keyword search of one call, over one scope. Build it once, ask it several times."""

    def __init__(self, state: State) -> None:
        self._state = state
        tables = dict(
            state.rows(
                "SELECT name, sql FROM sqlite_master"
                " WHERE name IN ('messages_fts', 'messages_fts_trigram', 'idx_messages_session_active')"
            )
        )
        self._words = self._index("messages_fts", tables.get("messages_fts") or "")
        self._trigrams = self._index("messages_fts_trigram", tables.get("messages_fts_trigram") or "")
        self._has_active_index = "idx_messages_session_active" in tables
        # 0.22 keeps cron rows out of its trigram table, 0.20 and 0.22 tool rows.
        trigram_sql = tables.get("messages_fts_trigram") or ""
        self._trigrams_lack_cron = "tool_name" in trigram_sql and "tool_calls" not in trigram_sql
        self._trigrams_lack_tools = "tool_name" in trigram_sql
        self._eligible = 0
        self._newest = 0
        self._cron = "[]"
        self._unindexed: tuple[int, int] | None = None
        self._has_vocabulary = False
        self._rarity: dict[str, int] = {}

    def _index(self, name: str, sql: str) -> _Index:
        usable = False
        if sql:
            with contextlib.suppress(sqlite3.Error):  # one without a page answers nothing, and no error either
                usable = bool(self._state.rows(f"SELECT 1 FROM {name}_idx LIMIT 1"))
        return _Index(name, usable, "{content} : " if "tool_name" in sql else "")

    def prepare(
        self,
        session_ids: Iterable[str],
        after: float | None = None,
        before: float | None = None,
        *,
        cron: Iterable[str] = (),
    ) -> int:
        """Fix the scope: these sessions (`cron` among them), these times. Returns how many rows are eligible."""
        state = self._state
        self._cron = json.dumps(list(cron)) if self._trigrams_lack_cron else "[]"
        for name in ("scope", "elig"):
            state.rows(f"DROP TABLE IF EXISTS temp.{name}")
        state.rows("CREATE TEMP TABLE scope(id TEXT PRIMARY KEY) WITHOUT ROWID")
        state.rows("CREATE TEMP TABLE elig(id INTEGER PRIMARY KEY)")
        state.rows("INSERT OR IGNORE INTO temp.scope SELECT value FROM json_each(?)", (json.dumps(list(session_ids)),))
        times, bound = "", list[float]()
        if after is not None:
            times, bound = times + " AND m.timestamp >= ?", [*bound, after]
        if before is not None:
            times, bound = times + " AND m.timestamp < ?", [*bound, before]
        columns = state.columns.messages
        if "active" not in columns:
            wheres = ["1"]
        else:
            wheres = ["m.active = 1"] + (["m.active = 0 AND m.compacted = 1"] if "compacted" in columns else [])
        by = "INDEXED BY idx_messages_session_active" if self._has_active_index else ""
        for where in wheres:  # two covering scans; one with OR is none
            state.rows(
                f"""INSERT OR IGNORE INTO temp.elig SELECT m.id FROM temp.scope s CROSS JOIN messages m {by}
                    ON m.session_id = s.id WHERE {where}{times}""",
                bound,
            )
        self._eligible = int(state.rows("SELECT count(*) FROM temp.elig")[0][0])
        self._unindexed = self._rows_the_index_lacks()
        return self._eligible

    def _rows_the_index_lacks(self) -> tuple[int, int] | None:
        """Ids (from, to] that FTS has not reached: behind a rebuild or a missing trigger."""
        state = self._state
        if not self._words.usable:
            return None
        try:
            newest = state.rows("SELECT max(id) FROM messages")[0][0] or 0
            indexed = state.rows("SELECT max(id) FROM messages_fts_docsize")[0][0] or 0
        except sqlite3.Error:
            return None
        self._newest = int(newest)
        done, goal = state.meta("fts_rebuild_progress"), state.meta("fts_rebuild_high_water")
        low = indexed
        if done and goal and done.isdigit() and goal.isdigit() and int(done) < int(goal):
            low = min(low, int(done))
        return (low, newest) if low < newest else None

    def find(self, query: Query, *, roles: Sequence[str] = TALK, limit: int = 200) -> Found:
        """Rows of the scope that hold the query's terms, `limit` at most per statement, with scores."""
        found = Found()
        if not self._eligible or not query.terms:
            return found
        self._find_words(query, roles, limit, found)
        self._find_literals(query.of("literal"), roles, limit, found, LITERAL_WEIGHT)
        self._find_grams(query, roles, limit, found)
        if roles == TALK:
            self._find_multipart(query, found)
        if self._unindexed:
            beyond = f"e.id > {self._unindexed[0]} AND e.id <= {self._unindexed[1]}"
            self._scan(query.terms, roles, found, beyond)
            if roles == TALK:
                self._find_multipart(query, found, beyond)
        if len(found.scores) < FEW:
            words = [t for t in query.of("word") if t.text not in _STOP]
            self._find_literals([t for t in words if len(t.text) >= 3], roles, limit, found, SUBSTRING_WEIGHT)
            if roles == TALK or self._eligible <= SCAN_ROWS:
                self._scan([t for t in words if len(t.text) < 3], roles, found, "1", SUBSTRING_WEIGHT)
        if not found.scores and (roles == TALK or self._eligible <= SCAN_ROWS):
            # Nothing at all: a damaged index can be silently empty, so look for oneself.
            self._scan(query.terms, roles, found, "1")
            if roles == TALK:
                self._find_multipart(query, found, "1")
        if self._state.damaged:  # an index of the rows, then
            found.skipped.append("index_damaged")
        return found

    def eligible(self, ids: Sequence[int], *, except_live_of: str = "") -> set[int]:
        """Those of these messages that are in scope and in time, without what one session's agent has before it."""
        active = "m.active = 1" if "active" in self._state.columns.messages else "1"
        rows = self._state.rows(
            f"""SELECT e.id FROM json_each(?) j CROSS JOIN temp.elig e ON e.id = j.value
                CROSS JOIN messages m ON m.id = e.id WHERE NOT (m.session_id = ? AND {active})""",
            (json.dumps(list(ids)), except_live_of),
        )
        return {row[0] for row in rows}

    def rarity(self, query: Query, standing: Sequence[Sequence[Term]]) -> dict[Term, float]:
        """What each term is worth (its idf), given the terms that stand in each candidate.

        Words count by the profile's index; bigrams, symbols and phrases by how many candidates hold them.
        """
        worth: dict[Term, float] = {}
        for term in query.terms:
            if term.kind == "word" and self._words.usable:
                frequency, total = self.document_frequency(term), max(self._newest, self._eligible)
            else:
                frequency, total = sum(term in terms for terms in standing), max(self._eligible, len(standing))
            worth[term] = math.log(1 + (max(total, frequency) - frequency + 0.5) / (frequency + 0.5))
        return worth

    def document_frequency(self, term: Term) -> int:
        """In how many rows of the profile a word stands; for other terms a guess from their length."""
        if term.kind != "word" or not self._words.usable:
            return max(1, 4_000 // (1 + len(term.text)) ** 2)
        if term.text not in self._rarity:
            try:
                if not self._has_vocabulary:
                    self._state.rows("DROP TABLE IF EXISTS temp.vocabulary")
                    self._state.rows(
                        "CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'messages_fts', 'row')"
                    )
                    self._has_vocabulary = True
                row = self._state.rows("SELECT doc FROM temp.vocabulary WHERE term = ?", (term.text,))
                self._rarity[term.text] = int(row[0][0]) if row else 0
            except sqlite3.Error:
                self._rarity[term.text] = 0
        return self._rarity[term.text]

    # -- the statements -------------------------------------------------

    def _match(self, index: _Index, expression: str, roles: Sequence[str], limit: int) -> list[tuple[int, float]]:
        """Rows of the scope by bm25, best first. Scope and role are joined before LIMIT."""
        table = index.name
        return self._state.rows(
            f"""SELECT f.rowid, -bm25({table}) AS score FROM {table} f
                CROSS JOIN temp.elig e ON e.id = f.rowid
                CROSS JOIN messages m ON m.id = e.id
                WHERE f.{table} MATCH ? AND m.role IN ({_marks(roles)})
                ORDER BY score DESC LIMIT ?""",
            (f"{index.content_only}({expression})", *roles, limit),
        )

    def _collect(
        self, index: _Index, expression: str, roles: Sequence[str], limit: int, found: Found, weight: float = 1.0
    ) -> bool:
        try:
            rows = self._match(index, expression, roles, limit)
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                found.skipped.append("index_unreadable")
                return False
            found.skipped.append("too_slow")
            return True
        except sqlite3.DatabaseError:
            found.skipped.append("index_damaged")
            return False
        found.full = found.full or len(rows) >= limit
        for row_id, score in rows:
            found.scores[row_id] = found.scores.get(row_id, 0.0) + weight * score
        return True

    def _find_words(self, query: Query, roles: Sequence[str], limit: int, found: Found) -> None:
        parts = []
        for term in query.of("word", "phrase"):
            parts.append(quote(term.text))
            if term.stem:
                parts.append(f"{quote(term.stem)}*")
        if not parts:
            return
        usable = self._words.usable and self._collect(self._words, " OR ".join(parts), roles, limit, found)
        if not usable:
            if not self._words.usable:
                found.skipped.append("index_missing")
            self._scan(query.of("word", "phrase"), roles, found, "1")

    def _find_literals(
        self, terms: Sequence[Term], roles: Sequence[str], limit: int, found: Found, weight: float
    ) -> None:
        if not terms:
            return
        expression = " OR ".join(quote(t.text) for t in terms)
        lacks_tools = "tool" in roles and self._trigrams_lack_tools
        usable = (
            self._trigrams.usable
            and not lacks_tools
            and self._collect(self._trigrams, expression, roles, limit, found, weight)
        )
        if not usable:
            if roles == TALK or self._eligible <= SCAN_ROWS:
                self._scan(terms, roles, found, "1", weight)
        elif self._cron != "[]":
            self._scan(terms, roles, found, "1", weight, cron=True)

    def _find_grams(self, query: Query, roles: Sequence[str], limit: int, found: Found) -> None:
        terms = query.of("gram", "short")
        if not terms:
            return
        large = self._eligible > SCAN_ROWS
        if large and roles != TALK:
            return  # tool output of a large scope is searched by its index only
        if not large or not self._trigrams.usable or len(terms) == 1:
            self._scan(terms, roles, found, "1")
            return
        self._expand(query, terms, roles, found)

    def _expand(self, query: Query, terms: list[Term], roles: Sequence[str], found: Found) -> None:
        """Bigrams by the trigrams that begin with them (a text that ends in one is found by the one before)."""
        state = self._state
        pieces = [piece for piece, _ in query.shown]
        rows_of: dict[int, set[int]] = {}
        scanned: list[Term] = []
        try:
            state.rows("DROP TABLE IF EXISTS temp.trigrams")
            state.rows("CREATE VIRTUAL TABLE temp.trigrams USING fts5vocab('main', 'messages_fts_trigram', 'row')")
            begun = [self._trigrams_of(term) for term in terms]
        except sqlite3.Error as error:
            found.skipped.append("too_slow" if "interrupted" in str(error) else "index_damaged")
            self._scan(terms, roles, found, "1")
            return
        for i, (term, starts) in enumerate(zip(terms, begun, strict=True)):
            if not starts or len(starts) > MAX_EXPANSION:
                scanned.append(term)
                continue
            ends = {p[at - 1 : at + 2] for p in pieces if (at := p.find(term.text)) > 0}
            expression = " OR ".join(map(quote, [*starts, *ends]))
            try:
                rows_of[i] = {
                    row[0]
                    for row in state.rows(
                        """SELECT f.rowid FROM messages_fts_trigram f CROSS JOIN temp.elig e ON e.id = f.rowid
                           WHERE f.messages_fts_trigram MATCH ?""",
                        (f"{self._trigrams.content_only}({expression})",),
                    )
                }
            except sqlite3.Error:
                scanned.append(term)
        best: dict[int, float] = {}
        for ids in rows_of.values():
            weight = self._idf(len(ids))
            for row_id in ids:
                best[row_id] = best.get(row_id, 0.0) + weight
        top = sorted(best, key=lambda i: (-best[i], i))[:400]
        lengths = dict(
            state.rows(
                f"""SELECT m.id, length(m.content) FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value
                    WHERE m.role IN ({_marks(roles)})""",
                (json.dumps(top), *roles),
            )
        )
        average = sum(lengths.values()) / max(1, len(lengths)) or 1.0
        for row_id, length in lengths.items():
            score = best[row_id] * _length_norm(length, average)
            found.scores[row_id] = found.scores.get(row_id, 0.0) + score
        found.full = found.full or len(top) >= 400
        if scanned:
            rare = [t for t in scanned if len(t.text) < 2 or t.kind == "short"]
            if not best or rare:
                self._scan(scanned, roles, found, "1")
        if self._cron != "[]":
            self._scan(terms, roles, found, "1", cron=True)

    def _trigrams_of(self, term: Term) -> list[str]:
        """The trigrams of the index that begin with a bigram; none for a term that is no bigram."""
        if len(term.text) != 2 or not _RUN.fullmatch(term.text):
            return []
        rows = self._state.rows(
            "SELECT term FROM temp.trigrams WHERE term >= ? AND term < ? LIMIT ?",
            (term.text, term.text + "\U0010ffff", MAX_EXPANSION + 1),
        )
        return [row[0] for row in rows]

    def _scan(
        self,
        terms: Sequence[Term],
        roles: Sequence[str],
        found: Found,
        where: str,
        weight: float = 1.0,
        *,
        cron: bool = False,
    ) -> None:
        """Read the rows themselves (`cron`: only of those sessions): one pass, a bit for each term in a row."""
        patterns = [t.stem or t.text for t in terms][:60]
        if not patterns:
            return
        cased = any(p != p.upper() for p in patterns)
        column = "lower(m.content)" if cased else "m.content"
        holds = [f"instr({column}, ?{i + 1}) > 0" for i in range(len(patterns))]
        for i, term in enumerate(terms[: len(patterns)]):
            if term.kind == "word" and len(term.text) < 3:  # `v2`, and not every word that has these letters
                holds[i] = f"' ' || {column} || ' ' GLOB '*[^a-z0-9]' || ?{i + 1} || '[^a-z0-9]*'"
        mask = " | ".join(f"(({held}) << {i})" for i, held in enumerate(holds))
        names = ", ".join(f"?{len(patterns) + i + 1}" for i in range(len(roles)))
        source = "temp.elig e CROSS JOIN messages m ON m.id = e.id"
        if cron:
            source = f"json_each(?{len(patterns) + len(roles) + 1}) j CROSS JOIN messages m ON m.session_id = j.value"
            source += " CROSS JOIN temp.elig e ON e.id = m.id"
        try:
            rows = self._state.rows(
                f"""SELECT id, mask, size FROM (
                        SELECT m.id, {mask} AS mask, length(m.content) AS size FROM {source}
                        WHERE m.role IN ({names}) AND {where})
                    WHERE mask""",
                (*patterns, *roles, *([self._cron] if cron else [])),
            )
        except sqlite3.Error as error:
            found.skipped.append("too_slow" if "interrupted" in str(error) else "rows_unreadable")
            return
        self._score_masks(rows, len(patterns), found, weight)

    def _find_multipart(self, query: Query, found: Found, where: str = "") -> None:
        """Rows stored as JSON hide their CJK behind escapes and end at a NUL for LIKE: decode them here.

        They are known by their first token in the index, or by reading the rows `where` it does not help.
        """
        columns = f"m.id, m.role, CASE WHEN length(CAST(m.content AS BLOB)) < {MULTIPART_BYTES // 4} THEN m.content END"
        stored = "m.role IN (?, ?) AND instr(m.content, ?) = 1 ORDER BY m.id DESC LIMIT ?"
        bound = (*TALK, MULTIPART, MULTIPART_ROWS)
        try:
            if where or not self._words.usable:
                rows = self._state.rows(
                    f"""SELECT {columns} FROM temp.elig e CROSS JOIN messages m ON m.id = e.id
                        WHERE {where or "1"} AND {stored}""",
                    bound,
                )
            else:
                rows = self._state.rows(
                    f"""SELECT {columns} FROM messages_fts f CROSS JOIN temp.elig e ON e.id = f.rowid
                        CROSS JOIN messages m ON m.id = e.id WHERE f.messages_fts MATCH ? AND {stored}""",
                    ("{content} : ^ json" if self._words.content_only else "^ json", *bound),
                )
        except sqlite3.Error as error:
            if not where and "interrupted" not in str(error):
                self._find_multipart(query, found, "1")
            return
        masks, read = [], 0
        for row_id, role, content in rows:
            read += len(content or "")
            if read > MULTIPART_BYTES:
                found.skipped.append("large_attachments")
                break
            folded = fold(said(role, content))
            mask = sum(1 << i for i, t in enumerate(query.terms[:60]) if stands(t, folded))
            if mask:
                masks.append((row_id, mask, len(folded)))
                found.scores.pop(row_id, None)  # the index saw its JSON, this is its text
        self._score_masks(masks, min(60, len(query.terms)), found, 1.0)

    def _score_masks(
        self, rows: Sequence[tuple[int, int, int | None]], terms: int, found: Found, weight: float
    ) -> None:
        if not rows:
            return
        weights = [self._idf(sum(row[1] >> i & 1 for row in rows)) for i in range(terms)]
        average = sum(row[2] or 0 for row in rows) / len(rows) or 1.0
        for row_id, mask, size in rows:
            idf = sum(weights[i] for i in range(terms) if mask >> i & 1)
            score = weight * idf * _length_norm(size or 0, average)
            found.scores[row_id] = found.scores.get(row_id, 0.0) + score

    def _idf(self, frequency: int) -> float:
        return math.log(1 + (max(self._eligible, frequency) - frequency + 0.5) / (frequency + 0.5))

    def last_mention(
        self, terms: Sequence[Term], session_ids: Sequence[str], after_id: int, until: float
    ) -> int | None:
        """The last message of these sessions, later than one of them, in which all these terms stand."""
        patterns = [t.stem or t.text for t in terms]
        if not patterns or time.monotonic() > until:
            return None
        holds = " AND ".join("instr(lower(m.content), ?) > 0" for _ in patterns)
        rows = self._state.rows(
            f"""SELECT m.id FROM json_each(?) j CROSS JOIN messages m ON m.session_id = j.value
                WHERE m.id > ? AND m.role IN (?, ?) AND {self._state.shown()} AND {holds}
                ORDER BY m.id DESC LIMIT 1""",
            (json.dumps(list(session_ids)), after_id, *TALK, *patterns),
        )
        return int(rows[0][0]) if rows else None

    def count_all(
        self, query: Query, after: float | None = None, before: float | None = None
    ) -> list[tuple[str, int]]:
        """(session, messages) of that time that hold all the query's words, over the whole profile; not ranked."""
        every: list[tuple[_Index, str]] = []
        words = [
            f"({quote(t.text)} OR {quote(t.stem)}*)" if t.stem else quote(t.text) for t in query.of("word", "phrase")
        ]
        if words and self._words.usable:
            every.append((self._words, " AND ".join(words)))
        pieces = [p for p, ts in query.shown if ts[0].kind in ("gram", "literal") and len(p) >= 3]
        if pieces and self._trigrams.usable:
            every.append((self._trigrams, " AND ".join(quote(fold(p)) for p in pieces)))
        counts: dict[str, int] | None = None
        for index, expression in every:
            try:
                rows = self._state.rows(
                    f"""SELECT m.session_id, count(*) FROM {index.name} f CROSS JOIN messages m ON m.id = f.rowid
                        WHERE f.{index.name} MATCH ? AND m.role IN (?, ?) AND {self._state.shown()}
                        AND m.timestamp >= coalesce(?, m.timestamp) AND (? IS NULL OR m.timestamp < ?)
                        GROUP BY m.session_id""",
                    (f"{index.content_only}({expression})", *TALK, after, before, before),
                )
            except sqlite3.Error:
                return []
            found = dict(rows)
            counts = found if counts is None else {k: min(v, found[k]) for k, v in counts.items() if k in found}
        return list((counts or {}).items())


def _length_norm(length: int, average: float) -> float:
    """bm25's length factor with its usual k1 = 1.2, b = 0.75."""
    return 2.2 / (1 + 1.2 * (0.25 + 0.75 * length / average))


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" for _ in values)


def quote(text: str) -> str:
    """An FTS5 string: nothing in it is syntax."""
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'
