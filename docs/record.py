"""Record what the README shows from the real program: `python docs/record.py [FOLDER]`.

Fills the demo's home by a real Hermes, runs the commands below in a terminal of its own, and writes what was
printed to FOLDER (default: this one): `terminal.txt` and `terminal.svg`, and both again in Chinese. The same
home gives the same files, to the byte; a test compares them. Lines too long for the picture are folded at words.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "demo")]  # at the end: the root's own modules must hide nobody's

import hosts  # noqa: E402
import show  # noqa: E402

HOST = "0.22"
COLUMNS = 88
CELL, LINE, SIZE, MARGIN = 8.4, 20, 14, 16  # of the picture, in pixels
BOLD = re.compile(r"\x1b\[([01])m")


@dataclass(frozen=True, slots=True)
class Scene:
    """Commands typed in one folder of the demo's workspace, by somebody who reads `language`."""

    name: str
    language: str
    place: str
    commands: tuple[str, ...]


SCENES = (
    Scene(
        "terminal",
        "en",
        "dockside",
        (
            'hermes project-history search "Halyard rate limit: what did we do about it?" --limit 2',
            'hermes project-history search "paid once, but bookkeeping shows two entries" --mode semantic --limit 1',
        ),
    ),
    Scene(
        "terminal.zh-CN",
        "zh",
        "dockside",
        (
            'hermes project-history search "上次回调重复入账怎么修的" --limit 2',
            'hermes project-history search "对方嫌我们调用太频繁，把我们的密钥停用了" --mode semantic --limit 1',
        ),
    ),
)


def main(into: Path) -> None:
    host = next(host for host in hosts.HOSTS if host.name == HOST)
    python = hosts.environment(host)
    with tempfile.TemporaryDirectory(prefix="recall-record-") as folder:
        base = Path(folder).resolve()
        fill(host, python, base)
        for scene in SCENES:
            lines = [line for command in scene.commands for line in typed(host, python, base, scene, command)]
            (into / f"{scene.name}.txt").write_text("".join(f"{BOLD.sub('', line)}\n" for line in lines), "utf-8")
            (into / f"{scene.name}.svg").write_text(picture(lines), "utf-8")


def fill(host: hosts.Host, python: Path, base: Path) -> None:
    """The demo's home and workspace, below `base`, with everything in it indexed."""
    home, work = base / "home", base / "work"
    work.mkdir()
    hosts.install_plugin(home, config={"sessions": {"auto_prune": False}})
    demo = HERE.parent / "demo"
    for script, place, *arguments in (("home.py", "", str(work)), ("warm.py", "dockside")):
        subprocess.run(
            [str(python), str(demo / script), *arguments],
            env=hosts.child_env(host, home, PYTHONUTF8="1"), cwd=work / place, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip


def typed(host: hosts.Host, python: Path, base: Path, scene: Scene, command: str) -> Iterator[str]:
    """The prompt, and what the command printed, folded; bold as escape sequences."""
    config = base / "home" / "config.yaml"
    settings = json.loads(config.read_text("utf-8")) | {"display": {"language": scene.language}}
    config.write_text(json.dumps(settings), "utf-8")
    hermes, *arguments = shlex.split(command)
    assert hermes == "hermes"
    variables = {"LANG": "C.UTF-8", "LC_ALL": "", "COLUMNS": str(COLUMNS), "TERM": "xterm", "PYTHONUTF8": "1"}
    environment = hosts.child_env(host, base / "home", **variables)
    printed = in_terminal([str(python.with_name(host.command)), *arguments], environment, base / "work" / scene.place)
    yield from folded(f"~/work/{scene.place} $ {command}")
    for line in printed.replace("\r\n", "\n").rstrip("\n").split("\n"):
        yield from folded(line)
    yield ""


def in_terminal(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """What a command prints when it talks to a terminal."""
    ours, its = pty.openpty()
    try:
        with subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=its, stderr=its
        ) as process:
            os.close(its)
            printed = b"".join(chunks(ours))
    finally:
        os.close(ours)
    if process.returncode:
        raise SystemExit(f"{shlex.join(command)} ended with {process.returncode}:\n{printed.decode()}")
    return printed.decode()


def chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:  # Linux's way to say that nobody holds the other end any more
            return
        if not chunk:
            return
        yield chunk


def folded(line: str) -> Iterator[str]:
    """A line as the lines of at most COLUMNS cells that it takes, each beginning where it begins."""
    plain = BOLD.sub("", line)
    indent = re.match(r" *(?:\| )?", plain)
    assert indent is not None
    bold = [style == "1" for style, _ in styled(line)]
    start = 0
    for number, (begin, end) in enumerate(show.wrap(plain[indent.end() :], COLUMNS - indent.end()) or [(0, 0)]):
        margin = indent[0] if number == 0 else " " * indent.end()
        start, stop = indent.end() + begin, indent.end() + end
        pieces = groupby(range(start, stop), lambda i: bold[i])
        text = ["".join(plain[i] for i in run).join(("\x1b[1m", "\x1b[0m") if on else ("", "")) for on, run in pieces]
        yield (margin + "".join(text)).rstrip()


def styled(line: str) -> Iterator[tuple[str, str]]:
    """("1" for bold or "0", character) of each character."""
    style = "0"
    for part in re.split(r"(\x1b\[[01]m)", line):
        if match := BOLD.fullmatch(part):
            style = match[1]
        else:
            yield from ((style, character) for character in part)


def picture(lines: Iterable[str]) -> str:
    """The lines as an SVG. Each run of one style and one width has its own place, whatever font is at hand."""
    rows, height = [], MARGIN
    for line in lines:
        height += LINE
        cells = 0
        for (style, wide), run in groupby(styled(line), lambda c: (c[0], show._columns(c[1]))):
            text = "".join(character for _, character in run)
            kind = ' class="b"' if style == "1" else ""
            length = len(text) * wide
            if text.strip():
                place = f'x="{MARGIN + cells * CELL:.1f}" y="{height}" textLength="{length * CELL:.1f}"'
                rows.append(f"<text {place}{kind}>{escape(text, quote=False)}</text>")
            cells += length
    width, height = round(2 * MARGIN + COLUMNS * CELL), height + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f"<style>text {{ font: {SIZE}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC',"
        " monospace; fill: #d8dee9; white-space: pre } .b { font-weight: bold; fill: #ebcb8b }</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#20242c"/>\n' + "\n".join(rows) + "\n</svg>\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
