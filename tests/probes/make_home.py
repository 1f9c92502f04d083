"""Fill a HERMES_HOME with what some months of use leave in one, through the host's own databases.

Arguments: the folder for the work directories (outside the home), and `everything` or, for the
second profile, `little`. Every conversation says words that no other says, and their form tells
what a search should make of them:

    needle-… and 针脚…   found from the conversation's own project
    output-…             found there as tool output only
    hidden-… and 暗号…   never found

Reports, for each conversation by its name: its id, its words, its project as the 0.22 sidebar
has it ("explicit:ID", "auto:PATH" or "home:"), and of a chat what the gateway knows of it; and
the highest message id.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probing
from agent import context_compressor
from hermes_cli import projects_db
from hermes_state import SessionDB

WORDS = re.compile(r"(?:needle|output|hidden)-[a-z]+(?:-[a-z]+)*|(?:针脚|暗号)[\u4e00-\u9fff]{2}")
SECRET = "sk-proj-Zq81mDf02LxTt7VbR4yWn6KcHs9PeJu3GaQo5XiM"
DISPLAY_KINDS = (
    "hidden", "model_switch", "personality_switch", "process_complete", "async_delegation_complete",
    "auto_continue", "internal_notification", "failed_turn",
)  # fmt: skip
SUMMARY_END = "--- END OF CONTEXT SUMMARY — respond to the message below, not the summary above ---"

workspace = Path(sys.argv[1])
everything = sys.argv[2] == "everything"
made: dict[str, dict[str, Any]] = {}
SHOP, LEDGER = workspace / "tea-shop", workspace / "ledger"


# --- the work directories ---------------------------------------------------------------------------


def git(folder: Path, *command: str) -> None:
    who = ["-c", "user.name=tea", "-c", "user.email=tea@example.invalid", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)


def lay_out() -> None:
    """Two repositories with worktrees of one, a third, plain folders, and a link."""
    for folder in (
        "tea-shop/web", "tea-shop/services/api/支付 模块", "tea-kit", "tea-shopping", "tea-shop-old",
        "ledger/src", "old-blog", "notes", "café",
    ):  # fmt: skip
        (workspace / folder).mkdir(parents=True)
    for repository in ("tea-shop", "ledger", "old-blog"):
        git(workspace / repository, "init", "-q")
        git(workspace / repository, "commit", "-q", "--allow-empty", "-m", "begin")
    for name, where in (
        ("export", "ledger-wt-export"),
        ("audit", "elsewhere/audit"),
        ("kb", "ledger/.worktrees/t_5e1f"),
    ):
        git(LEDGER, "worktree", "add", "-q", "-b", name, str(workspace / where))
    (workspace / "tea-link").symlink_to(SHOP, target_is_directory=True)


def found_projects() -> dict[str, str]:
    """The projects of the default profile, by a short name each: "explicit:ID"."""
    with projects_db.connect_closing() as conn:

        def found(name: str, *folders: str) -> str:
            return str(projects_db.create_project(conn, name=name, folders=[str(workspace / f) for f in folders]))

        ids = {
            "tea": found("茶铺点单", "tea-shop", "tea-kit"),
            "api": found("Tea API", "tea-shop/services/api"),
            "cafe": found("Café menu", "café"),
        }
        projects_db.archive_project(conn, found("Old blog", "old-blog"))
    return {name: f"explicit:{project_id}" for name, project_id in ids.items()}


# --- conversations ----------------------------------------------------------------------------------

db = SessionDB(probing.HOME / "state.db")


def known(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Those of `arguments` that this host's `function` has a parameter for."""
    return {name: value for name, value in arguments.items() if name in inspect.signature(function).parameters}


def serial() -> str:
    """Six digits that no other conversation of either profile has."""
    return f"{'a' if everything else 'b'}{len(made):05x}"


def begin(
    name: str, project: str, cwd: str | Path | None = None, root: str | Path | None = None,
    source: str = "cli", title: str = "", **columns: Any,
) -> str:  # fmt: skip
    """A new conversation, standing in `cwd`; `root` fills the repository column."""
    session_id = f"20260{len(made) % 9 + 1}{len(made) % 27 + 1:02}_1{len(made) % 10}0000_{serial()}"
    db.create_session(session_id, source=source, model="demo/model", system_prompt="hidden-system-prompt", **columns)
    if cwd:
        db.update_session_cwd(session_id, str(cwd), git_repo_root=str(root or ""))
    if title:
        db.set_session_title(session_id, title)
    made[name] = {"id": session_id, "project": project, "words": ["hidden-system-prompt"], "chat": None}
    return session_id


def note(name: str, *texts: object) -> None:
    """Remember the words of these texts as said in the conversation `name`."""
    made[name]["words"] += [word for text in texts for word in WORDS.findall(str(text))]


def say(name: str, *texts: Any, **columns: Any) -> int:
    """The user and the assistant in turn, one row a text; the id of the last row."""
    row = 0
    for at, text in enumerate(texts):
        row = db.append_message(made[name]["id"], "assistant" if at % 2 else "user", content=text, **columns)
    note(name, *texts, *columns.values())
    return row


def rotate(parent: str, child: str, *carried: str, summary: str) -> str:
    """Compress a conversation the old way: it goes on in a new row, after a summary and the last words."""
    old = made[parent]
    session_id = f"{old['id'][:-6]}{serial()}"
    rows = [
        {"role": "user", "content": f"{context_compressor.SUMMARY_PREFIX}\n{summary}\n\n{SUMMARY_END}"},
        *({"role": "user", "content": text} for text in carried),
    ]
    publish = getattr(db, "publish_compression_child", None)
    config = (db.get_session(old["id"]) or {}).get("model_config")
    if publish:
        publish(
            parent_session_id=old["id"], child_session_id=session_id, source="cli", messages=rows,
            model_config=json.loads(config) if config else None, require_compression_lease=False,
        )  # fmt: skip
    else:  # 0.19 writes the two rows itself, and the new one without a cwd
        db.end_session(old["id"], "compression")
        db.create_session(session_id, source="cli", parent_session_id=old["id"])
        for row in rows:
            db.append_message(session_id, row["role"], content=row["content"])
    made[child] = dict(old, id=session_id, words=[])
    note(child, summary, *carried)
    return session_id


def chat(name: str, project: str, cwd: Path | None, peer: dict[str, str], who: str, reset: str = "") -> str:
    """A conversation of the messaging gateway; with a cwd, one that its owner moved into a project.

    `reset` is the conversation that somebody left for it with /new.
    """
    session_id = begin(name, project, cwd, **peer, **(after_reset(reset) if reset else {}))
    db.record_gateway_session_peer(session_id, display_name=who, **peer)
    made[name]["chat"] = peer | {"chat_name": who}
    return session_id


def after_reset(parent: str) -> dict[str, Any]:
    """The columns of a conversation begun by leaving another; 0.19 has no marker for it."""
    marker = {"_reset_from": parent} if hasattr(db, "set_session_hidden") else None
    return {"parent_session_id": parent, "model_config": marker}


def direct(user: str) -> dict[str, str]:
    """The columns of a direct chat on Telegram."""
    key = f"agent:main:telegram:dm:{user}"
    return {"source": "telegram", "user_id": user, "chat_id": user, "chat_type": "dm", "session_key": key}


def compressed(tea: dict[str, Any]) -> None:
    """Two rotations of one conversation, and one that was compacted where it stands."""
    begin("chain root", **tea, title="退款回调重复入账")
    say("chain root", "退款回调会重复入账，怎么做幂等？ needle-chain-root", "先占位再扣款，方案叫针脚青竹。")
    rotate("chain root", "chain middle", "那对账任务呢？", summary="We chose hidden-summary-one, 暗号落叶.")
    say("chain middle", "Does the nightly reconciliation see it? needle-chain-middle", "It does, after 02:00.")
    rotate("chain middle", "chain tip", "And the report?", summary="Earlier: hidden-summary-two.")
    say("chain tip", "The report still shows two rows. needle-chain-tip", "Group by the refund id: 针脚白露。")

    session_id = begin("compacted", **tea, title="数据库锁排查")
    say("compacted", "报 database is locked 怎么排查？针脚寒山", "A write held the lock. needle-compacted")
    say("compacted", "During which call? needle-carried-tail", "The one to the printer.")
    tail = [dict(message) for message in db.get_messages_as_conversation(session_id)[-2:]]
    handoff = {"role": "user", "content": f"{context_compressor.SUMMARY_PREFIX}\nhidden-handoff\n\n{SUMMARY_END}"}
    db.archive_and_compact(session_id, [handoff, *tail], **known(db.archive_and_compact, tail_count=2))
    note("compacted", "hidden-handoff")
    say("compacted", "Then move the printing out. needle-after-compaction", "Done.")


def children(tea: dict[str, Any]) -> None:
    """Rows with a parent that continue nothing: a branch (compressed later), delegates, a reset."""
    web = {"project": tea["project"], "cwd": SHOP / "web"}
    parent = begin("branch parent", **web, title="Virtual list flickers")
    say("branch parent", "The list flickers on scroll. needle-branch-shared", "Rows have no fixed height.")
    db.end_session(parent, "branched")
    begin("branch", **web, parent_session_id=parent, model_config={"_branched_from": parent})
    say("branch", "The list flickers on scroll. needle-branch-shared", "Rows have no fixed height.")
    say("branch", "Try windowing instead. needle-branch-own", "Forty rows are enough.")
    rotate("branch", "branch rotated", "Keep forty.", summary="hidden-branch-summary")
    say("branch rotated", "Ship it on Friday. needle-branch-rotated", "Scheduled.")

    parent = begin("delegating", **tea, title="接口限流方案")
    say("delegating", "Have somebody compare rate limiters. needle-delegating", "A subagent is on it.")
    delegated = tea | {"parent_session_id": parent, "model_config": {"_delegate_from": parent}}
    begin("subagent", **delegated, source="subagent")
    say("subagent", "Compare rate limiters. hidden-subagent", "Token bucket. 暗号流水")
    begin("delegate", **delegated)
    say("delegate", "A child under its parent's source. hidden-delegate", "Yes.")

    begin("reset", **tea, **after_reset(made["chain root"]["id"]))
    say("reset", "A new conversation after /new. needle-reset", "A fresh start.")


def flagged(tea: dict[str, Any]) -> None:
    """Flags on conversations and on messages."""
    db.set_session_archived(begin("archived", **tea, title="旧的登录问题"), True)
    say("archived", "登录后过一会儿就被踢出来。针脚旧事", "The refresh raced. needle-archived")
    if hasattr(db, "set_session_hidden"):
        db.set_session_hidden(begin("hidden", **tea, title="hidden-title"), True)
        say("hidden", "Nobody needs this one. hidden-conversation", "暗号隐者")
        note("hidden", "hidden-title")

    session_id = begin("rewound", **tea, title="Cents or yuan?")
    say("rewound", "The refund is off by 100. needle-before-rewind", "Cents against yuan.")
    target = say("rewound", "Just drop the table, hidden-rewound-user 暗号删表")
    db.append_message(session_id, "tool", content="hidden-rewound-output", tool_name="terminal", tool_call_id="call_3")
    db.append_message(session_id, "assistant", content="Dropped. hidden-rewound-answer")
    note("rewound", "hidden-rewound-output hidden-rewound-answer")
    db.rewind_to_message(session_id, target)
    say("rewound", "Store cents everywhere. needle-after-rewind", "Agreed.")

    if "display_kind" in inspect.signature(db.append_message).parameters:
        begin("display kinds", **tea)
        say("display kinds", "And the receipts? needle-display-plain", "Next.")
        say("display kinds", "Mind the paper width. needle-display-steer", display_kind="steer")
        for kind in DISPLAY_KINDS:
            say("display kinds", f"hidden-kind-{kind.replace('_', '-')}", display_kind=kind)
        say("display kinds", "hidden-model-only", display_metadata={"model_only": True})


def unseen(tea: dict[str, Any]) -> None:
    """What a row holds beside the words that a person saw."""
    begin("multipart", **tea, title="截图里的报错")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,hidden-picture-data"}}
    say("multipart", [{"type": "text", "text": "截图里的报错是针脚流云 needle-multipart"}, picture], "容器内存超限。")

    session_id = begin("secrets", **tea, title="部署密钥")
    say("secrets", f"export OPENAI_API_KEY={SECRET} does nothing needle-beside-secret", "Put it into .env.")
    printed = f"output-beside-secret\nOPENAI_API_KEY={SECRET}"
    db.append_message(session_id, "tool", content=printed, tool_name="terminal", tool_call_id="call_2")
    note("secrets", printed)
    made["secrets"]["words"].append(SECRET)

    session_id = begin("scaffolds", **tea, title="Skills and injected context")
    say(
        "scaffolds",
        '[IMPORTANT: The user has invoked the "code-review" skill, indicating they want you to follow its '
        "instructions. The full skill content is loaded below.]\n\n# Review hidden-skill-body\n\n"
        "The user has provided the following instruction alongside the skill invocation: "
        "检查登录 needle-skill-instruction",
        "Nothing stands out.",
        "<memory-context>\n[System note: recalled memory, NOT new user input.] hidden-memory-block 暗号旧忆\n"
        "</memory-context>\nIs the old bug gone? needle-after-memory",
        "It is.",
        "Look at the menu. needle-before-attachment\n\n--- Attached Context ---\n\n📄 @file:menu.md\nhidden-attached",
        "Read it.",
        "[IMPORTANT: Background process proc_1 completed (exit code 0).\nhidden-background-notice]",
        "Good.",
        "Review the conversation above and update the skill library. hidden-review-prompt",
    )
    say("scaffolds", "Somebody else in the channel says hidden-observed", observed=True)
    db.append_message(
        session_id, "assistant", content="Fixed. needle-beside-reasoning",
        reasoning="hidden-reasoning", reasoning_content="hidden-reasoning",
        codex_reasoning_items=[{"type": "reasoning", "encrypted_content": "hidden-codex-item"}],
        api_content="hidden-api-content",
    )  # fmt: skip
    note("scaffolds", "needle-beside-reasoning hidden-reasoning hidden-codex-item hidden-api-content")


def long_output(ledger: str) -> None:
    """A tool's output of 100,000 characters, with a word at each end, and the call that brought it."""
    session_id = begin("tool output", ledger, LEDGER, LEDGER, title="Whole log")
    arguments = '{"command": "make test # hidden-call-argument"}'
    call = {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": arguments}}
    lines = "\n".join(f"test_{n:04} ok in {n % 7} ms, no leak, no retry" for n in range(2600))
    output = f"output-first-line\n{lines}\noutput-deep-in-the-tail"
    say("tool output", "Run the whole suite.")
    db.append_message(session_id, "assistant", content="", tool_calls=[call])
    db.append_message(session_id, "tool", content=output, tool_name="terminal", tool_call_id="call_1")
    db.append_message(session_id, "assistant", content="Three borrow errors. needle-tool-answer")
    note("tool output", arguments, output, "needle-tool-answer")


def surfaces(project: str) -> None:
    """Rows of every surface. Without a person before them they are no conversations; cron and one-shot runs are."""
    for source in ("kanban", "tool"):
        begin(source, project, SHOP, source=source)
        say(source, f"A worker's own notes, hidden-source-{source}", "Done.")
    for source in ("cron", "oneshot", "acp", "api_server", "desktop", "tui"):
        begin(source, project, SHOP, source=source)
        say(source, f"Asked from {source}: needle-from-{source.replace('_', '-')}", "Answered.")
    begin("profile named", project, SHOP, profile_name="default")
    say("profile named", "A row that names its profile. needle-profile-named", "Yes.")
    begin("empty", project, SHOP)


def chats(project: str) -> None:
    """Two people's, the owner's own, a group's and a webhook's, each moved into the project by the owner."""
    group = {"source": "telegram", "user_id": "4100", "chat_id": "-1007700", "chat_type": "group"}
    hook = {"source": "webhook", "user_id": "webhook:orders", "chat_id": "webhook:orders:1", "chat_type": "webhook"}
    for name, peer, who in (
        ("lin", direct("4101"), "Lin Wei"),
        ("zhao", direct("4102"), "赵敏"),
        ("me", direct("4100"), "Me Myself"),
        ("group", group | {"session_key": "agent:main:telegram:group:-1007700:4100"}, "Tea tasters"),
        ("webhook", hook | {"session_key": "agent:main:webhook:webhook:webhook:orders:1"}, "orders hook"),
    ):
        before = chat(f"{name} before", project, SHOP, peer, who)
        say(f"{name} before", f"What did {name} order? needle-{name}-before", "Two oolong, no sugar.")
        db.end_session(before, "session_reset")
        chat(f"{name} now", project, SHOP, peer, who, reset=before)
        say(f"{name} now", f"And today? needle-{name}-now", "The same again.")

    # Whom a chat's agent delegates to: a row of its own kind, or one under the chat's own source.
    parent = made["lin now"]["id"]
    for name, source in (("subagent of lin", "subagent"), ("delegate of lin", "telegram")):
        begin(name, project, source=source, parent_session_id=parent, model_config={"_delegate_from": parent})
        say(name, f"Look up the last order. hidden-{name.replace(' ', '-')}", "Oolong.")


def at_home() -> None:
    """Conversations without a folder, or in one that is nobody's project."""
    begin("home from cli", "home:")
    say("home from cli", "No folder at all. hidden-home-cli", "暗号无家")
    chat("home from telegram", "home:", None, direct("4103"), "Sun Ke")
    say("home from telegram", "Just chatting. hidden-home-telegram", "Sure.")
    begin("home directory", "home:", Path.home())
    say("home directory", "In my home directory. hidden-home-directory", "Yes.")
    begin("hermes home", "home:", probing.HOME)
    say("hermes home", "Where my settings are. hidden-hermes-home", "Yes.")


def along_paths(project: str, api: str, cafe: str, ledger: str) -> None:
    """Folders that look like a project's and are not, and the reverse."""
    for name, owner, cwd, root in (
        ("same beginning", f"auto:{workspace / 'tea-shopping'}", workspace / "tea-shopping", None),
        # The sidebar takes `<repository>-<anything>` for a worktree of it, and repositories for projects.
        ("taken for a worktree", f"auto:{SHOP}", workspace / "tea-shop-old", None),
        ("trailing slash", project, f"{SHOP}/", None),
        ("second folder", project, workspace / "tea-kit", None),
        ("through a link", project, workspace / "tea-link" / "web", None),
        ("nested project", api, SHOP / "services/api/支付 模块", SHOP),
        ("deleted below project", project, SHOP / "gone/dir", SHOP),
        ("deleted elsewhere", "home:", workspace / "vanished/scratch", None),
        ("windows path", "home:", r"C:\work\tea\web", None),
        ("decomposed name", cafe, workspace / unicodedata.normalize("NFD", "café"), None),
        ("worktree beside", ledger, workspace / "ledger-wt-export", None),
        ("worktree elsewhere", ledger, workspace / "elsewhere/audit", None),
        ("repository below", ledger, LEDGER / "src", None),
        ("archived project", f"auto:{workspace / 'old-blog'}", workspace / "old-blog", None),
        ("plain folder", f"auto:{workspace / 'notes'}", workspace / "notes", None),
    ):
        begin(name, owner, cwd, root)
        word = f"{'hidden' if owner == 'home:' else 'needle'}-path-{name.replace(' ', '-')}"
        say(name, f"Here we agreed on {word}", "Written down.")

    begin("kanban worktree", ledger, LEDGER / ".worktrees/t_5e1f", source="kanban")
    say("kanban worktree", "hidden-kanban-worktree", "Done.")
    session_id = begin("root alone", ledger)
    say("root alone", "A row with a repository and no cwd. needle-path-root-alone", "Odd.")
    # No call of the host leaves such a row today; earlier ones did.
    db._conn.execute("UPDATE sessions SET git_repo_root = ? WHERE id = ?", (str(LEDGER), session_id))
    db._conn.commit()


def moved_away(tea: dict[str, Any], ledger: str) -> None:
    """A conversation that left for another project in its second row: all of it went."""
    begin("moved root", **tea, title="搬走的会话")
    say("moved root", "Start here, finish there. needle-moved-root", "All right.")
    tip = rotate("moved root", "moved tip", "On to the ledger.", summary="hidden-moved-summary")
    whole = known(db.update_session_cwd, replace_git_meta=True)
    db.update_session_cwd(tip, str(LEDGER), git_repo_root=str(LEDGER), **whole)
    say("moved tip", "Now in the ledger. needle-moved-tip", "针脚远行")
    made["moved root"]["project"] = made["moved tip"]["project"] = ledger


def callers(places: dict[str, tuple[str, Path | None]]) -> None:
    """One conversation in each project to ask from; it says nothing of note."""
    for name, (project, cwd) in places.items():
        begin(f"caller {name}", project, cwd)
        say(f"caller {name}", "Where were we?", "Let me look at what we did before.")


def fill() -> None:
    lay_out()
    ids = found_projects()
    ledger = f"auto:{LEDGER}"
    tea = {"project": ids["tea"], "cwd": SHOP, "root": SHOP}
    compressed(tea)
    children(tea)
    flagged(tea)
    unseen(tea)
    long_output(ledger)
    surfaces(ids["tea"])
    chats(ids["tea"])
    at_home()
    along_paths(ids["tea"], ids["api"], ids["cafe"], ledger)
    moved_away(tea, ledger)
    callers({
        "tea": (ids["tea"], SHOP),
        "api": (ids["api"], SHOP / "services/api"),
        "cafe": (ids["cafe"], workspace / "café"),
        "ledger": (ledger, LEDGER),
        "shopping": (f"auto:{workspace / 'tea-shopping'}", workspace / "tea-shopping"),
        "old": (f"auto:{SHOP}", workspace / "tea-shop-old"),
        "blog": (f"auto:{workspace / 'old-blog'}", workspace / "old-blog"),
        "notes": (f"auto:{workspace / 'notes'}", workspace / "notes"),
        "home": ("home:", None),
    })  # fmt: skip


def fill_a_little() -> None:
    """The second profile works in the first one's folder, under no project of its own."""
    begin("other profile", f"auto:{SHOP}", SHOP, title="p2 notes")
    say("other profile", "Only this profile knows needle-other-profile", "And only it tells.")
    callers({"tea": (f"auto:{SHOP}", SHOP), "home": ("home:", None)})


if everything:
    fill()
else:
    fill_a_little()
(rows,) = db._conn.execute("SELECT max(id) FROM messages").fetchone()
db.close()
probing.report(made=made, rows=rows)
