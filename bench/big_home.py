"""Run by a host's python: a HERMES_HOME with many messages, for measuring time.

    python big_home.py HOME MESSAGES [SCOPE,SCOPE,...]

Makes one explicit project for each SCOPE with that many sessions (default 12,200,2000) and one more with what
is left of MESSAGES / 80 sessions. Sessions are made by the real SessionDB, their messages by plain INSERT into
its tables, so that its own triggers fill the index. The text is synthetic: words of a Zipf-like vocabulary in
English and Chinese, a quarter of it tool output, with a few rare words spread evenly for queries to find.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
from pathlib import Path

RARE = ("ECONNRESET", "token_store", "src/auth/oauth_client.py", "回调重复入账", "幂等")
SYLLABLES = "ba ce di fo gu ka le mi no pu ra se ti vo wu xa ye zi".split()
HAN = (
    "配置接口参数返回异常日志线程进程内存磁盘网络超时重试队列缓存索引查询事务"
    "测试部署发布回滚监控告警权限登录用户订单支付退款对账报表"
)


def main() -> None:
    home, messages = Path(sys.argv[1]).absolute(), int(sys.argv[2])
    scopes = [int(n) for n in (sys.argv[3] if len(sys.argv) > 3 else "12,200,2000").split(",")]
    workspace = home.with_name(home.name + "-ws")
    home.mkdir(parents=True)
    os.environ["HERMES_HOME"] = str(home)
    from hermes_cli import projects_db
    from hermes_state import SessionDB

    dice = random.Random(7)
    english = ["".join(dice.choices(SYLLABLES, k=dice.randint(2, 4))) for _ in range(9_000)]
    chinese = ["".join(dice.choices(HAN, k=2)) for _ in range(3_000)]
    projects = projects_db.connect()
    db = SessionDB(home / "state.db")
    total = max(sum(scopes), messages // 80)
    sizes = [*scopes, total - sum(scopes)] if total > sum(scopes) else scopes
    names = [f"scope-{n}" for n in scopes] + ["rest"]
    sessions: list[str] = []
    for name, count in zip(names, sizes, strict=False):
        folder = workspace / name
        folder.mkdir(parents=True)
        projects_db.create_project(projects, name=name, folders=[str(folder)])
        for k in range(count):
            sessions.append(f"{name}-{k:05d}")
            db.create_session(sessions[-1], source="cli", cwd=str(folder))
    projects.close()
    db.close()

    def word() -> str:
        words = chinese if dice.random() < 0.3 else english
        return words[min(len(words) - 1, int(len(words) ** dice.random()) - 1)]

    def text(size: int) -> str:
        out = [word() for _ in range(size)]
        if dice.random() < 0.01:
            out.insert(dice.randrange(size), dice.choice(RARE))
        return " ".join(out)

    state = sqlite3.connect(home / "state.db", isolation_level=None)
    each, left = divmod(messages, len(sessions))
    at = 1_750_000_000.0
    for number, session in enumerate(sessions):
        rows = []
        for k in range(each + (number < left)):
            at += 30
            role = ("user", "assistant", "tool", "assistant")[k % 4]
            size = {"user": 14, "assistant": 60, "tool": 250}[role]
            rows.append((session, role, text(max(3, int(dice.lognormvariate(0, 0.6) * size))), at))
        state.execute("BEGIN")
        state.executemany("INSERT INTO messages(session_id, role, content, timestamp) VALUES (?, ?, ?, ?)", rows)
        state.execute("UPDATE sessions SET message_count = ? WHERE id = ?", (len(rows), session))
        state.execute("COMMIT")
    state.close()
    (home / "map.json").write_text(json.dumps({"sessions": len(sessions), "messages": messages}), encoding="utf-8")


main()
