"""`ID#message`, the way answers are cited, leads back to the message."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_history_recall import errors
from project_history_recall.request import Request, cited

from tests import small


@pytest.fixture
def home(tmp_path: Path) -> small.SmallHome:
    home = small.furnished(tmp_path / "home")
    home.session("talk")
    home.talk("talk", *(f"step {i}" for i in range(9)))
    return home


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("talk#47", 47),
        (" @session:talk#47 ", 47),
        ("@session:work/talk#47", 47),
        ("room#7#47", 47),
        ("talk", None),
        ("talk#", None),
        ("#47", None),
        ("talk#4x", None),
        ("talk#-4", None),
        ("talk#" + "9" * 19, None),
        ("talk#４７", None),
    ],
)
def test_a_citation_names_a_message(given: str, message: int | None) -> None:
    assert cited(given) == message


@pytest.mark.parametrize("form", ["talk#{}", "@session:talk#{}", "@session:work/talk#{}", "ta#{}"])
def test_a_citation_without_a_query_reads_on_around_it(home: small.SmallHome, form: str) -> None:
    answer = home.ask(session_id=form.format(5))
    assert small.ids(answer) == [5]
    assert answer["results"][0]["snippet"] == "step 4"
    beside = [message["message_id"] for message in answer["results"][0]["context"]]
    assert beside == [1, 2, 3, 4, 6, 7, 8, 9]


def test_a_citation_as_an_answer_gives_it_leads_back(home: small.SmallHome) -> None:
    (hit,) = home.ask("step 4", limit=1)["results"]
    again = home.ask(session_id=f"{hit['link']}#{hit['message_id']}")
    assert small.ids(again) == [hit["message_id"]]


def test_with_a_query_a_citation_is_its_conversation(home: small.SmallHome) -> None:
    home.session("other")
    home.talk("other", "step elsewhere")
    request = Request.parse({"query": "step", "session_id": "talk#5"})
    assert request.around is None
    found = {hit["session_id"] for hit in home.ask("step", session_id="talk#5")["results"]}
    assert found == {"talk"}


def test_an_explicit_message_goes_before_a_cited_one(home: small.SmallHome) -> None:
    assert small.ids(home.ask(session_id="talk#5", around_message_id=2)) == [2]


def test_a_conversation_alone_still_needs_a_query(home: small.SmallHome) -> None:
    for given in ("talk", "talk#", "talk#last"):
        with pytest.raises(errors.EmptyQuery):
            home.ask(session_id=given)


def test_a_cited_message_of_another_conversation_is_an_error(home: small.SmallHome) -> None:
    home.session("other")
    (elsewhere,) = home.talk("other", "there")
    for message in (elsewhere, 999):
        with pytest.raises(errors.NotInProject, match=str(message)):
            home.ask(session_id=f"talk#{message}")


def test_a_cited_message_of_another_project_names_the_project(home: small.SmallHome) -> None:
    home.session("far", cwd=small.BOREALIS)
    (there,) = home.talk("far", "there")
    with pytest.raises(errors.NotInProject, match="p_borealis"):
        home.ask(session_id=f"far#{there}")
    assert small.ids(home.ask(session_id=f"far#{there}", project="Borealis")) == [there]


def test_a_citation_may_be_an_exclusion(home: small.SmallHome) -> None:
    assert home.ask("step", exclude_session_ids=["talk#5"])["results"] == []
