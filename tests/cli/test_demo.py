"""``kopf demo``: each promise of the show comes true, or the show says so."""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess
import sys

import psutil
import pytest

from kopf.cli.demo.command import FOLDER, make_next_command
from tests.cli.conftest import Starter
from tests.cli.processes import ROOT
from tests.patience import PATIENCE

COLOUR = re.compile(r"\x1b\[[\d;]*m")

PROMISES = [
    "1. A user creates a Shop.",
    "Its domain is bought: $12.",
    "It has a Deployment and a Service.",
    "2. A user deletes the Service, and scales up.",
    "The Service is back.",
    "The Deployment follows.",
    "3. A new Shop, and kill -9 between two writes.",
    "The Deployment is written ...",
    "kill -9: the operator is dead.",
    "... and there is no Service.",
    "4. A new process continues.",
    "The Service is there.",
    "The domain was not bought again.",
    "5. The clock leaps by a day, as in tests.",
    "The daily backup of tea has run.",
    "The daily backup of books has run.",
    "6. Why did a handler run? And what is next?",
    "It explains each handler.",
    "7. How much work was that?",
    "Two backups.",
    "8. Two replicas, and kill -9 of the leader.",
    "Replica a has the Lease.",
    "It handles a change: 4 replicas.",
    "Replica b stands by.",
    "kill -9, and another change: 5 replicas.",
    "Replica b has the Lease.",
    "It handles the change.",
    "9. The console: objects, timelines, causes.",
]

# The show with an operator that is wrong: as it never comes to the promise, nobody waits for that for long.
MISTAKEN = """
import pathlib
import kopf.cli, kopf.cli.demo.command
from kopf.cli.demo import stage

class ImpatientStage(stage.Stage):
    def expect(self, promise, see):
        stage.TIMEOUT = 1 if "Service" in promise else 100
        super().expect(promise, see)

kopf.cli.demo.command.Stage = ImpatientStage
kopf.cli.demo.command.OPERATOR = pathlib.Path("wrong.py")
kopf.cli.main(["demo", "--fast"])
"""


def list_leftovers(home: pathlib.Path) -> list[list[str]]:
    """The operators of the test that run after the show."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ValueError):  # it can end while its files are read
            if process.environ().get("HOME") == str(home) and "run" in process.cmdline():
                found.append(process.cmdline())
    return found


def read_promises(output: str) -> list[str]:
    """The titles and the kept promises, without the log and the outputs."""
    return [line.strip(" ✓") for line in output.splitlines() if re.match(r"\d\. |   ✓ ", line)]


def test_all_promises_come_true(start: Starter, tmp_path: pathlib.Path) -> None:
    with start("demo", "--fast", PYTHONUTF8="1") as process:
        assert process.wait() == 0
    output = process.output
    assert "\x1b" not in output  # it is not a terminal
    assert read_promises(output) == PROMISES
    assert "Traceback" not in output

    log = [line.partition("│ ")[2] for line in output.splitlines() if line.startswith("   operator │ ")]
    assert len([line for line in log if "Bought books.example.com" in line]) == 1
    assert log.count("killed") == 1
    assert log.count("a killed") == 1
    assert any(line.startswith("b ") and "Leading as b" in line for line in log)

    assert "timer back_up: yes" in output
    assert re.search(r'^ +kopf_handler_duration_seconds_count\{handler="back_up",.*\} 2\.0$', output, re.MULTILINE)
    assert output.rstrip().endswith(" kopf init my-operator && cd my-operator && kopf dev")
    assert list_leftovers(tmp_path) == []


def test_the_next_command_works_in_the_users_shell(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `make demo`, the environment of the demo is not active."""
    scripts = tmp_path / "with space" / "bin"
    scripts.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    begin = "kopf init my-operator && cd my-operator && kopf dev"
    assert make_next_command() == begin
    (scripts / "activate").touch()
    assert make_next_command() == f". '{scripts / 'activate'}' && {begin}"
    (scripts / "kopf").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(scripts))
    assert make_next_command() == begin


def test_the_log_is_beside_the_steps_in_a_terminal(start: Starter, tmp_path: pathlib.Path) -> None:
    with start("demo", "--fast", terminal=True, COLUMNS="132", LINES="50", PYTHONUTF8="1") as process:
        process.wait_for("The Deployment follows")
        assert process.stop() == 143
    assert list_leftovers(tmp_path) == []
    assert "\x1b[35m\x1b[1m1. A user creates a Shop.\x1b[0m" in process.output
    assert "\x1b[32m   ✓ Its domain is bought: $12.\x1b[0m" in process.output
    assert "\x1b[36mdefault/tea\x1b[0m" in process.output
    rows = [line for line in COLOUR.sub("", process.output).splitlines() if "│" in line]
    assert all(len(row.lstrip("\x1b[0123456789FJ")) <= 132 for row in rows), rows
    assert any(re.search(r"1\. A user creates a Shop\. +│ \d\d:\d\d:\d\d INFO ", row) for row in rows), rows


def test_no_colours_if_they_are_not_wanted(start: Starter, tmp_path: pathlib.Path) -> None:
    with start("demo", "--fast", terminal=True, COLUMNS="80", NO_COLOR="1", PYTHONUTF8="1") as process:
        process.wait_for("Bought tea.example.com")
        process.press_ctrl_c()
        assert process.wait() != 0
    assert "\x1b" not in process.output
    assert [line for line in process.output.splitlines() if "operator │" in line and len(line) > 80] == []
    assert list_leftovers(tmp_path) == []


def test_it_fails_if_a_promise_does_not_come_true(tmp_path: pathlib.Path) -> None:
    shop = (FOLDER / "shop_operator.py").read_text()
    assert shop.count('yield make("v1", "Service"') == 1
    (tmp_path / "wrong.py").write_text(shop.replace('yield make("v1", "Service"', 'make("v1", "Service"'))
    command = [sys.executable, "-c", MISTAKEN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr == "Error: The demo waited 1 seconds in vain for this step: It has a Deployment and a Service.\n"
    assert read_promises(done.stdout) == PROMISES[:2]


def test_the_picture_shows_the_same_steps() -> None:
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text()
    assert len(picture) < 200_000
    shown = set(re.findall(r">(?:✓ )?([^<>]+)</tspan>", picture))
    assert set(PROMISES[6:16]) <= shown
