"""Answers as lines that people read, in their language. Pure.

Everything comes in as the commands' JSON has it; `columns` is the width of a
terminal, None for a pipe, where nothing is cut and nothing is in bold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .doctor import Check
from .printing import amount, mark, table
from .text import one_line
from .words import Say

Told = Mapping[str, Any]


def found(answer: Told, say: Say, columns: int | None = None) -> list[str]:
    """A search's answer, or the messages around one."""
    project = answer["project"]
    lines = [say("search.head", project=project["name"], count=answer["sessions_in_scope"])]
    if answer.get("reason"):
        lines.append(str(answer["reason"]))
    bold = columns is not None
    for number, hit in enumerate(answer["results"], 1):
        words = hit.get("matched", []) if bold else []
        head = f"{hit['session_id']}#{hit['message_id']}  {hit['when']}  {hit['role']}  {hit['title']}{_origin(hit)}"
        lines += ["", f"{number}. {head}" if bold else head]
        beside = hit.get("context", [])
        lines += [line for other in beside if other["message_id"] < hit["message_id"] for line in _beside(other)]
        lines += ["  " + mark(line, words) for line in hit["snippet"].splitlines()]
        lines += [line for other in beside if other["message_id"] > hit["message_id"] for line in _beside(other)]
    if not answer["results"] and "reason" not in answer:
        lines.append(say("search.nothing"))
    if bold and answer["results"] and "score_source" in answer["results"][0]:
        lines += ["", say("search.open")]
    if answer.get("elsewhere"):
        others = ", ".join(f"{row['name']} ({row['messages']})" for row in answer["elsewhere"])
        lines += ["", say("search.elsewhere", projects=others)]
    if answer.get("semantic_detail"):
        status = say(f"meaning.{answer['semantic_status']}")
        lines += ["", say("search.meaning", status=status, detail=answer["semantic_detail"])]
    return lines


def _beside(other: Told) -> list[str]:
    return [f"  | {other['role']}: {one_line(other['text'], 200)}"]


def _origin(told: Told) -> str:
    """Whose words they are, where a chat brought them."""
    return f"  ({told['via']})" if told.get("via") else ""


def brief(answer: Told, say: Say) -> list[str]:
    """The same for a chat message: a line of each hit."""
    lines = [say("search.head", project=answer["project"]["name"], count=answer["sessions_in_scope"])]
    if answer.get("reason"):
        lines.append(str(answer["reason"]))
    for hit in answer["results"]:
        head = f"{hit['session_id']}#{hit['message_id']}  {hit['when']}  {one_line(hit['title'], 60)}"
        lines += [head.rstrip() + _origin(hit)]
        lines += ["  " + one_line(hit["snippet"], 220)]
    if not answer["results"] and "reason" not in answer:
        lines.append(say("search.nothing"))
    return lines


def stands(told: Told, say: Say, columns: int | None = None, most: int | None = None) -> list[str]:
    """What `status` gathered."""
    index, provider = told["index"], told["provider"]
    endpoint = told.get("endpoint")
    meaning = f"{endpoint['model']} ({endpoint['base_url']})" if endpoint else provider
    facts = [
        (say("status.home"), told["home"]),
        (say("status.profile"), told["profile"] if told["profile"] != "default" else say("default")),
        (say("status.hermes"), told["hermes"] or say("status.not_here")),
        (say("status.provider"), say(f"status.provider.{provider}") if provider in ("local", "none") else meaning),
        (say("status.index"), _index(index, say)),
        (say("status.grants"), str(len(told["grants"])) if told["grants"] else say("none")),
    ]
    facts += [(say("status.problem"), problem) for problem in told["problems"]]
    facts += [(say("status.index"), say("status.error", count=n, kind=kind)) for kind, n in told["errors"].items()]
    lines = [f"{name}: {value}" for name, value in facts]
    if not told["projects"]:
        return [*lines, say("status.no_projects")]
    rows = [
        (
            row["name"] if row["kind"] != "home" else say("status.homeless"),
            str(row["conversations"]),
            f"{100 * row['index']['share']:.0f}%" if "index" in row else "",
            row["id"],
        )
        for row in told["projects"][:most]
    ]
    heads = [say(f"column.{name}") for name in ("project", "conversations", "indexed", "id")]
    return [*lines, "", *table(heads, rows, columns, whole=(1, 2))]


def _index(index: Told, say: Say) -> str:
    if index.get("unreadable"):
        return say("status.index.unreadable", reason=index["unreadable"])
    if not index["bytes"]:
        return say("status.index.none")
    sizes = {"have": index["pieces"], "owed": index["owed"], "size": amount(index["bytes"])}
    text = say("status.index.size", **sizes)
    if index["abandoned"]:
        text += "; " + say("status.index.abandoned", count=index["abandoned"])
    return text


def listed(told: Told, say: Say, columns: int | None = None) -> list[str]:
    """What `sessions` found."""
    profiles = len({row["profile"] for row in told["sessions"]}) > 1
    heads = [say(f"column.{name}") for name in ("last", "id", "title", "project", "messages", "folder")]
    rows = []
    for row in told["sessions"]:
        title = one_line(row.get("title") or "") or say("sessions.untitled")
        title = say("sessions.child", title=title) if row.get("child") else title
        home = row["project"]["kind"] == "home"
        project = say("status.homeless") if home else one_line(row["project"]["name"])
        cells = [row["last"], row["session_id"], title, project, str(row["messages"]), one_line(row["cwd"], 400)]
        rows.append([row["profile"], *cells] if profiles else cells)
    whole = (1, 2) if profiles else (0, 1)  # when, and which
    lines = table([say("column.profile"), *heads] if profiles else heads, rows, columns, whole) if rows else []
    lines = lines or [say("sessions.none")]
    if told["shown"] < told["total"]:
        lines.append(say("sessions.more", shown=told["shown"], total=told["total"]))
    hidden, archived = (told.get("left_out", {}).get(name, 0) for name in ("hidden", "archived"))
    if hidden or archived:
        lines.append(say("sessions.left_out", hidden=hidden, archived=archived))
    return lines


def moved(answer: Told, say: Say) -> list[str]:
    """What a move did, or would do."""
    source, target = (
        f"{place['project']['name']} ({place['cwd'] or say('move.no_folder')})"
        for place in (answer["from"], answer["to"])
    )
    key = "move.moved" if answer["moved"] else "move.would"
    return [say(key, id=answer["session_id"], source=source, target=target), *answer["warnings"]]


def lost(rows: Sequence[Told], say: Say, columns: int | None = None) -> list[str]:
    """The conversations whose folder is gone, and where each seems to belong."""
    cells = []
    for row in rows:
        names = [candidate["name"] for candidate in row["candidates"]]
        target = names[0] if len(names) == 1 else say("repair.several", names=", ".join(names)) if names else "-"
        why = say(f"why.{row['because']}") if row["because"] else say("repair.no_target")
        cells.append([row["session_id"], row["title"] or say("sessions.untitled"), row["cwd"], target, why])
    heads = [say(f"column.{name}") for name in ("id", "title", "folder", "belongs", "reason")]
    return [say("repair.found", count=len(rows)), *table(heads, cells, columns, whole=(0,))]


def excerpt(told: Told, say: Say, room: int) -> list[str]:
    """The end of a conversation that `show` read, its newest messages, in a chat message of `room` characters."""
    name = told["project"]["name"] if told["project"]["kind"] != "home" else say("status.homeless")
    title = one_line(told["title"], 60) or say("sessions.untitled")
    head = [f"{told['session_id']}  {title}  ({one_line(name, 40)}){_origin(told)}", say("slash.data")]
    room -= sum(len(line) + 1 for line in head)
    kept: list[str] = []
    for entry in reversed(told["conversation"]):
        line = f"#{entry['message_id']} {entry['role']}: {one_line(entry.get('text'), 300)}"
        room -= len(line) + 1
        if room < 0:
            break
        kept.insert(0, line)
    return [*head, *kept]


def granted(grants: Sequence[Told], say: Say) -> list[str]:
    return [
        say("consent.row", project=g["project"], model=g["model"], endpoint=g["endpoint"], since=g["since"])
        for g in grants
    ] or [say("consent.none")]


def examined(checks: Sequence[Check], say: Say, columns: int | None = None) -> list[str]:
    """The doctor's findings; a fix stands below what it fixes."""
    lines = []
    for check in checks:
        state = say(f"check.{check.state}")
        lines.append(
            f"{mark(state, [state]) if columns and check.state == 'broken' else state}  {check.name}: "
            f"{check.detail}".rstrip(": ")
        )
        if check.fix and check.state != "ok":
            lines.append(f"    {say('doctor.fix')}: {check.fix}")
    count = sum(check.state == "broken" for check in checks)
    return [*lines, say("doctor.summary", count=count) if count else say("doctor.sound")]
