"""Deliberate breakages, each with the test that notices it: that the promises are not only written down but watched.

`BREAKAGES` says what a user would suffer, the line of the code that stands against it, and what that line is
replaced by. In a copy of the tree each breakage must make its test fail; unbroken, all those tests must pass there.
A line that is not found any more was rewritten: say here how the new code would be broken.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

for package in ("apsw", "httpx", "numpy"):
    pytest.importorskip(package)

if os.name == "nt":
    pytest.skip("some of the tests that notice are for POSIX", allow_module_level=True)


@dataclass(frozen=True, slots=True)
class Breakage:
    """`was` stands once in `module`; with `becomes` in its place the test `noticed_by` fails."""

    means: str
    module: str
    was: str
    becomes: str
    noticed_by: str


BREAKAGES = (
    # Scope first, then rank.
    Breakage(
        "Better matches of other projects crowd out a project's own words: ranked and cut first, then filtered",
        "keywords.py",
        '''            f"""SELECT f.rowid, -bm25({table}) AS score FROM {table} f
                CROSS JOIN temp.elig e ON e.id = f.rowid
                CROSS JOIN messages m ON m.id = e.id
                WHERE f.{table} MATCH ? AND m.role IN ({_marks(roles)})
                ORDER BY score DESC LIMIT ?""",
            (f"{index.content_only}({expression})", *roles, limit),''',
        '''            f"""SELECT f.id, f.score FROM
                    (SELECT rowid AS id, -bm25({table}) AS score FROM {table}
                     WHERE {table} MATCH ? ORDER BY score DESC LIMIT ?) f
                CROSS JOIN temp.elig e ON e.id = f.id
                CROSS JOIN messages m ON m.id = e.id
                WHERE m.role IN ({_marks(roles)})""",
            (f"{index.content_only}({expression})", limit, *roles),''',
        "tests/test_bites.py::test_better_words_of_another_project_take_no_place_of_ours",
    ),
    Breakage(
        "Nearer meanings of other projects crowd out a project's own: all that is in memory is ranked, then filtered",
        "vectors.py",
        "                best = nearest(held, scaled, k)\n",
        """                everything = {conv: v for (model, conv), v in self._held._vectors.items() if model == fp}
                best = [far for far in nearest(everything, scaled, k) if far.conv in names]
""",
        "tests/test_bites.py::test_nearer_pieces_of_other_conversations_take_no_place_of_ours[in memory]",
    ),
    Breakage(
        "What stands beside a hit is told by ids of rows, between which other conversations have theirs",
        "search.py",
        "    worded = {roots[row_id] for row_id, hit in hits.items() if hit.score > 0}\n",
        "    worded: set[str] = set()\n",
        "tests/test_search.py::test_what_stands_beside_in_a_conversation_counts_whatever_was_written_in_between",
    ),
    # What is never shown.
    Breakage(
        "A conversation of another project is among the hits",
        "scope.py",
        "        elif at.key == ref.key:\n",
        "        else:\n",
        "tests/test_search.py::test_other_projects_home_and_hidden_conversations_are_never_in_an_answer",
    ),
    Breakage(
        "A hidden conversation is among the hits",
        "scope.py",
        "            roots |= may & everywhere.kept()\n",
        "            roots |= may\n",
        "tests/test_search.py::test_other_projects_home_and_hidden_conversations_are_never_in_an_answer",
    ),
    Breakage(
        "A subagent's row is a conversation like another",
        "scope.py",
        "if s.source in INTERNAL or s.delegate_from)",
        "if False)",
        "tests/test_search.py::test_other_projects_home_and_hidden_conversations_are_never_in_an_answer",
    ),
    Breakage(
        "A chat is shown what was said in another chat",
        "scope.py",
        "            self.by_id[m].session_key == caller.session_key for m in self.lineages.members(root)\n",
        "            True for m in self.lineages.members(root)\n",
        "tests/test_search.py::test_a_chat_is_told_nothing_of_others",
    ),
    Breakage(
        "A chat is shown the whole of a conversation that only in part was its own",
        "scope.py",
        "        return bool(caller.session_key) and all(\n",
        "        return bool(caller.session_key) and any(\n",
        "tests/test_bites.py::test_a_conversation_that_went_on_in_another_chat_is_shown_to_neither",
    ),
    Breakage(
        "A chat to which the host gives no key is shown every conversation without one, the owner's among them",
        "scope.py",
        "        return bool(caller.session_key) and all(\n",
        "        return all(\n",
        "tests/test_bites.py::test_a_chat_without_a_key_finds_what_it_said_itself_and_nothing_else",
    ),
    Breakage(
        "A conversation that was hidden a moment ago is still found: the rows kept from the last call are not compared",
        "scope.py",
        "    if known is not None and known[0] == rows:\n",
        "    if known is not None:\n",
        "tests/test_search.py::test_whatever_changes_in_a_session_row_is_seen_by_the_next_call[hidden]",
    ),
    Breakage(
        "A message that was taken back (`active = 0`) is found by its words",
        "keywords.py",
        'wheres = ["m.active = 1"] +',
        'wheres = ["1"] +',
        "tests/test_keywords.py::test_rewound_rows_are_never_eligible[0.22]",
    ),
    Breakage(
        "A message that was taken back stands beside a hit",
        "state.py",
        'return f"(m.active = 1{compacted})"',
        'return "1"',
        "tests/test_search.py::test_context_shows_nothing_that_a_person_did_not_see[columns0]",
    ),
    Breakage(
        "A message that is taken back or hidden while it is being ranked is shown: the row is not looked at again",
        "state.py",
        """FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value
            WHERE {self.shown()}\"""",
        """FROM json_each(?) j CROSS JOIN messages m ON m.id = j.value\"""",
        "tests/test_bites.py::test_what_is_taken_away_between_ranking_and_reading_is_not_shown[meaning-hidden]",
    ),
    Breakage(
        "A message that leaves the project while it is being ranked is shown: its conversation is not looked at again",
        "search.py",
        "    if message.session_id not in scope.rows:\n        return None\n    text",
        "    text",
        "tests/test_bites.py::test_what_is_taken_away_between_ranking_and_reading_is_not_shown[words-moved]",
    ),
    # What is sent, and who agreed.
    Breakage(
        "After a person has withdrawn their consent a running index goes on sending: the grant is not read anew",
        "consent.py",
        "            grant = self._grants.load(key)\n            if decide(",
        "            grant = held\n            if decide(",
        "tests/test_remote.py::test_a_revocation_in_the_middle_of_an_index_run_stops_the_next_batch",
    ),
    Breakage(
        "The second try of a request is sent without asking whether the consent still stands",
        "endpoint.py",
        "        for last in (False, True):\n            self._permit.check()\n",
        "        self._permit.check()\n        for last in (False, True):\n",
        "tests/test_endpoint.py::test_a_permit_withdrawn_before_the_second_try_stops_it",
    ),
    Breakage(
        "An agent that passes `ask_semantic_consent`, as some message told it to, has consented: nobody is asked",
        "agreement.py",
        "            said = ask(*text)\n",
        '            said: Said = "accepted"\n',
        "tests/test_remote.py::test_what_a_model_says_of_consent_grants_nothing",
    ),
    Breakage(
        "`/project-history allow` counts though no person typed it",
        "slash.py",
        '            raise NotAllowedHere(say("allow.nobody"))\n',
        "            pass\n",
        "tests/test_remote.py::test_what_nobody_typed_is_no_agreement[None]",
    ),
    Breakage(
        "A home that is copied to another machine takes its consents along",
        "consent.py",
        "_digest([machine, os.path.normcase(os.path.realpath(folder))])",
        "_digest([os.path.normcase(os.path.realpath(folder))])",
        "tests/test_consent.py::test_a_whole_home_on_another_machine_grants_nothing",
    ),
    Breakage(
        "A conversation that was moved into the project after the consent is sent without another",
        "consent.py",
        "        if root in self.conversations:\n            return True",
        "        return True",
        "tests/test_remote.py::test_a_conversation_that_came_in_since_is_not_sent_without_another_yes",
    ),
    Breakage(
        "Such a conversation is sent after all: a search hits its words, and its former project left some of it owed",
        "semantic.py",
        "roots=admitted, hits={r: ids for r, ids in wanted.hits.items() if r in set(admitted)})",
        "roots=admitted)",
        "tests/test_bites.py::test_a_conversation_that_came_in_is_not_sent_because_it_was_owed_where_it_was",
    ),
    Breakage(
        "Secrets go to the endpoint with the texts: they are not redacted before they are embedded",
        "indexing.py",
        "            if text and self._redact:\n",
        "            if False:\n",
        "tests/test_remote.py::test_only_the_projects_words_and_the_query_are_sent_and_secrets_are_not",
    ),
    Breakage(
        "Secrets go to the endpoint with a query",
        "semantic.py",
        "        query = self._redact(wanted.query) if self._redact else wanted.query\n",
        "        query = wanted.query\n",
        "tests/test_bites.py::test_a_secret_in_a_query_is_not_sent",
    ),
    Breakage(
        "Where the host's redactor fails, the text goes out as it is",
        "host.py",
        "            return WITHHELD\n",
        "            return text\n",
        "tests/test_bites.py::test_a_redactor_that_fails_lets_no_text_through[redact_for_egress]",
    ),
    Breakage(
        "A redirect of the endpoint takes the texts and the key to wherever it points",
        "endpoint.py",
        "follow_redirects=False",
        "follow_redirects=True",
        "tests/test_endpoint.py::test_a_redirect_sends_nothing_further[307]",
    ),
    # What is shown cannot act, and fits.
    Breakage(
        "A past message opens a fence tag in the answer, and passes for the host's own words",
        "answers.py",
        "            self._safe[message.id] = defang(text)\n",
        "            self._safe[message.id] = text\n",
        "tests/test_search.py::test_what_is_shown_is_defanged",
    ),
    Breakage(
        "An answer is longer than its budget, and fills the agent's context",
        "answers.py",
        "        if size(payload) <= budget:\n            return payload\n    while len(kept)",
        "        return payload\n    while len(kept)",
        "tests/test_search.py::test_an_answer_never_exceeds_its_budget",
    ),
    Breakage(
        "A search hangs on a slow statement: its deadline is ignored",
        "state.py",
        "return self.deadline is not None and time.monotonic() > self.deadline",
        "return False",
        "tests/test_state.py::test_a_statement_still_running_at_the_deadline_is_interrupted",
    ),
    # The host's data, and moves.
    Breakage(
        "Reading writes: state.db is opened for writing, and what a crash of the host left there is rolled back",
        "state.py",
        'self._db = self._open("mode=ro")',
        'self._db = self._open("mode=rw")',
        "tests/test_state.py::test_a_crashed_write_is_not_seen_and_its_journal_left",
    ),
    Breakage(
        "The answer says `moved` because the host said so; the row was not read back",
        "move.py",
        "        wrong = _disagreement(plan, answered, seen, terminal) if failure is None else failure.message\n",
        '        wrong = "" if failure is None else failure.message\n',
        "tests/test_move.py::test_a_success_without_a_row_to_show_for_it_is_none",
    ),
    Breakage(
        "An undo tears a conversation from where somebody else has put it since",
        "move.py",
        "    if before.cwd != last.to.cwd:\n",
        "    if False:\n",
        "tests/test_move.py::test_one_that_was_moved_since_is_left_alone",
    ),
    Breakage(
        "Two moves at once tell of what is not so: the lock is dropped",
        "move.py",
        "        while not _lock(file):\n",
        "        while False:\n",
        "tests/test_move.py::test_a_move_waits_for_another_process_and_gives_up_in_words",
    ),
    # Our own data.
    Breakage(
        "Of two consents given at once one is lost: the lock is dropped",
        "consent.py",
        "            while not _lock(file):\n",
        "            while False:\n",
        "tests/test_consent.py::test_a_yes_waits_for_another_process_no_longer_than_it_said",
    ),
    Breakage(
        "Two processes embed the same texts: a claim does not keep others out",
        "vectors.py",
        "                        WHERE d.owner IS NULL AND d.tries < ?4 ORDER BY d.suspect",
        "                        WHERE d.tries < ?4 ORDER BY d.suspect",
        "tests/test_ledger.py::test_nobody_gets_what_another_holds",
    ),
    Breakage(
        "Vectors of a model are compared with those of the same model at another width",
        "vectors.py",
        'f"{dim}:{fingerprint}".encode()',
        "fingerprint.encode()",
        "tests/test_vectors.py::test_models_do_not_mix",
    ),
    Breakage(
        "After another model was chosen its queries are compared with the old one's vectors",
        "endpoint.py",
        "return f\"endpoint/{endpoint.base_url}/{endpoint.model}/{endpoint.dimensions or 'own'}/\"",
        "return f\"endpoint/{endpoint.base_url}/{endpoint.dimensions or 'own'}/\"",
        "tests/test_remote.py::test_vectors_of_two_models_are_never_compared",
    ),
    Breakage(
        "What was embedded of a deleted conversation stays on the disk",
        "indexing.py",
        "        if self._store.keep(kept):\n            self._store.tidy()\n",
        "",
        "tests/test_indexing.py::test_a_conversation_that_nobody_may_find_is_swept[deleted]",
    ),
    Breakage(
        "What another process has swept goes on being found: memory does not follow the file",
        "vectors.py",
        '            self._held.follow(self._number("PRAGMA data_version", ()))\n',
        "",
        "tests/test_vectors.py::test_what_is_held_in_memory_is_what_the_file_holds[0]",
    ),
    Breakage(
        "A forked child writes through its parent's connection to the index",
        "vectors.py",
        "        store._release_connection()\n        store._lock.release()\n",
        "        store._lock.release()\n",
        "tests/test_bites.py::test_a_forked_child_lets_go_of_its_parents_connection",
    ),
)

# Of our own run: what would have a copy's run do more, ask for the hosts, or count as coverage of the tree.
NOT_HANDED_ON = ("COVERAGE_", "PHR_LONG", "PHR_REQUIRE_HOSTS", "PYTEST_")
A_SLIP = re.compile(r"^E +(AttributeError|ImportError|IndentationError|NameError|SyntaxError|TypeError)\b", re.M)


@pytest.fixture(scope="module")
def tree(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what these tests need. No links: conftest.py would follow them back, and test the tree itself."""
    copy = tmp_path_factory.mktemp("tree")
    for file in (*repo_root.glob("*.py"), repo_root / "pyproject.toml"):
        shutil.copyfile(file, copy / file.name)
    for folder in ("demo", "tests"):
        shutil.copytree(repo_root / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run(tree: Path, scratch: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run some tests of a copy. No bytecode: that of another breakage made in the same second would pass for its."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(NOT_HANDED_ON)}
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["-q", "-x", "-p", "no:cacheprovider", f"--basetemp={scratch / 'basetemp'}"]
    command = [sys.executable, "-P", "-m", "pytest", *options, *tests]
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_what_is_to_be_broken_stands_once_in_its_module(repo_root: Path) -> None:
    counts = {b.means: (repo_root / b.module).read_text("utf-8").count(b.was) for b in BREAKAGES}
    assert {means: count for means, count in counts.items() if count != 1} == {}


def test_unbroken_the_tests_that_notice_all_pass(tree: Path, tmp_path: Path) -> None:
    wanted = list(dict.fromkeys(b.noticed_by for b in BREAKAGES))
    done = run(tree, tmp_path, *wanted)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert f"{len(wanted)} passed" in done.stdout, "each by itself, and none was skipped"


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda b: b.means)
def test_a_breakage_is_noticed(tree: Path, tmp_path: Path, breakage: Breakage) -> None:
    module = tree / breakage.module
    whole = module.read_text("utf-8")
    module.write_text(whole.replace(breakage.was, breakage.becomes), "utf-8")
    try:
        done = run(tree, tmp_path, breakage.noticed_by)
    finally:
        module.write_text(whole, "utf-8")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, f"nobody notices\n{done.stdout}"
    assert f"FAILED {breakage.noticed_by}" in done.stdout
    assert not A_SLIP.search(done.stdout), f"it fails because it is no program\n{done.stdout}"
