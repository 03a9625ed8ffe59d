"""How several replicas are asked for in the command line, and what is misuse."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner

import kopf
from kopf.cli import CLIControls, main

HANDLERS = """
import kopf

@kopf.on.startup()
def stop(settings, **_):
    raise kopf.PermanentError("It is only about the options.")
"""


@pytest.fixture
def operator(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_operator", raising=False)
    path = tmp_path / "my_operator.py"
    path.write_text(HANDLERS)
    return path


def configure(*args: str, env: Mapping[str, str] | None = None) -> kopf.OperatorSettings:
    """Get what the options make of the settings."""
    settings = kopf.OperatorSettings()
    result = CliRunner().invoke(main, ["run", *args], obj=CLIControls(settings=settings), env=env)
    assert "It is only about the options." in result.output
    return settings


@pytest.mark.parametrize(
    ("args", "env", "mode", "name"),
    [
        (["my_operator.py"], {}, None, "kopf"),
        (["--shards", "my_operator.py"], {}, "shards", "my-operator"),
        (["my_operator.py", "--leader-election"], {}, "leader", "my-operator"),
        (["--leader-election=web", "my_operator.py"], {}, "leader", "web"),
        (["--shards=web", "--", "my_operator.py"], {}, "shards", "web"),
        (["--shards", "-m", "my_operator"], {}, "shards", "my-operator"),
        (["my_operator.py"], {"KOPF_RUN_SHARDS": "web"}, "shards", "web"),
        (["my_operator.py"], {"KOPF_RUN_SHARDS": "true"}, "shards", "my-operator"),
        (["my_operator.py"], {"KOPF_RUN_LEADER_ELECTION": "No"}, None, "kopf"),
        (["--shards", "my_operator.py"], {"KOPF_RUN_LEADER_ELECTION": "0"}, "shards", "my-operator"),
        (["--shards=web", "my_operator.py"], {"KOPF_RUN_SHARDS": "db"}, "shards", "web"),
    ],
)
def test_modes(operator: pathlib.Path, args: list[str], env: Mapping[str, str], mode: Any, name: str) -> None:
    settings = configure(*args, env=env)
    assert (settings.coordination.mode, settings.coordination.name) == (mode, name)


@pytest.mark.parametrize("args", [["--standalone"], ["--peering=web"], ["--priority=5"], ["--dev"]])
@pytest.mark.parametrize("mode", ["--shards", "--leader-election"])
def test_modes_go_with_peering_and_without_it(operator: pathlib.Path, mode: str, args: list[str]) -> None:
    settings = configure(mode, *args, str(operator))
    assert settings.coordination.mode is not None


@pytest.mark.parametrize(
    ("args", "env", "text"),
    [
        (["--shards", "--leader-election"], {}, "Either --leader-election or --shards can be used, not both."),
        (["--shards=web"], {"KOPF_RUN_LEADER_ELECTION": "web"}, "Either --leader-election or --shards"),
        (["--shards=My_Operator"], {}, "'My_Operator' is not a valid name: use at most 63 lowercase letters"),
        (["--leader-election=" + "x" * 64], {}, "at most 63 lowercase letters"),
        (["--shards", "web"], {}, "Cannot load 'web': there is no such file."),
    ],
)
def test_misuse(operator: pathlib.Path, args: list[str], env: Mapping[str, str], text: str) -> None:
    result = CliRunner().invoke(main, ["run", *args, str(operator)], env=env)
    assert result.exit_code in (1, 2)
    assert text in " ".join(result.output.split())


def test_settings_that_are_not_safe_end_the_operator(operator: pathlib.Path) -> None:
    operator.write_text(
        "import kopf\n\n@kopf.on.startup()\ndef fn(settings, **_):\n    settings.coordination.renew_deadline = 20\n"
    )
    result = CliRunner().invoke(main, ["run", "--shards", str(operator)])
    assert result.exit_code == 1
    assert "The operator cannot go on: In settings.coordination, renew_deadline (20) must be less" in result.output
    assert "Traceback" not in result.output


def test_one_mode_in_embedded_operators() -> None:
    with pytest.raises(ValueError, match="not both"):
        kopf.run(registry=kopf.OperatorRegistry(), leader_election=True, shards=True)
