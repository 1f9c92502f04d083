"""Make an evaluation set of paraphrases that share no word with what they mean, among distractors.

    python bench/make_bilingual.py BILINGUAL_FILE EVAL_FOLDER OUT_FOLDER

BILINGUAL_FILE is a Python file with DOCS (snippets) and Q (query, language, number of its snippet); the 1,600
distractors are messages of the sets `cjk-literal` and `locomo` in EVAL_FOLDER.
"""

from __future__ import annotations

import json
import random
import runpy
import sys
from pathlib import Path
from typing import Any

from common import lines

START = 1_767_225_600.0


def main() -> None:
    material = runpy.run_path(sys.argv[1])
    folder, out = Path(sys.argv[2]), Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    dice = random.Random(3)
    others: list[str] = []
    for name, count in (("cjk-literal", 634), ("locomo", 966)):
        texts = [m["content"] for session in lines(folder / name / "sessions.jsonl") for m in session["messages"]]
        others += dice.sample(texts, count)
    dice.shuffle(others)
    sessions = [session(f"doc{i}", [text], i) for i, text in enumerate(material["DOCS"])]
    sessions += [session(f"other{k}", others[k : k + 10], k) for k in range(0, len(others), 10)]
    queries = [
        {"id": f"q{i}", "query": query, "kind": language, "project": "bilingual", "before": None,
         "gold_sessions": [f"doc{gold}"], "gold_messages": [f"doc{gold}:0"]}
        for i, (query, language, gold) in enumerate(material["Q"])
    ]  # fmt: skip
    for name, rows in (("sessions", sessions), ("queries", queries)):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / f"{name}.jsonl").write_text(text, encoding="utf-8")


def session(name: str, texts: list[str], at: int) -> dict[str, Any]:
    messages = [
        {"id": f"{name}:{j}", "role": ("assistant", "user")[j % 2], "content": text, "t": START + at + j}
        for j, text in enumerate(texts)
    ]
    return {"id": name, "project": "bilingual", "title": "", "started_at": START + at, "messages": messages}


if __name__ == "__main__":
    main()
