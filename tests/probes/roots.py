"""Ask the host's own git probe for the roots of folders; report [[{repo_root, worktree_root} or null]].

Argument: a JSON file of questions, each an environment to set and the folders to ask for in it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import probing
from tui_gateway import git_probe

base = dict(os.environ)
answers = []
for question in json.loads(Path(sys.argv[1]).read_text()):
    os.environ.clear()
    os.environ.update(base | question["env"])
    git_probe.invalidate()
    answers.append([git_probe.resolve(cwd) for cwd in question["cwds"]])
probing.report(answers=answers)
