"""Load the plugin with the host's own manager and view its skill with the host's own skill tool."""

from __future__ import annotations

import json

import probing

probing.load()

from hermes_cli.plugins import get_plugin_manager  # noqa: E402  (only now: loading comes first)
from tools.skills_tool import skill_view  # noqa: E402

name = f"{probing.PLUGIN}:project-history"
manager = get_plugin_manager()
entry = manager._plugin_skills.get(name, {})
probing.report(
    listed=manager.list_plugin_skills(probing.PLUGIN),
    file=str(manager.find_plugin_skill(name)),
    registered=entry.get("description"),
    viewed=json.loads(skill_view(name)),
    missing=json.loads(skill_view(f"{probing.PLUGIN}:nothing")),
)
