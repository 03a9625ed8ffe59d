from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

from tests.admission.servers import fake_ngrok
from tests.authorities import Authority


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def ngrok(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """The program of ngrok, though not the real one; with a configuration that is not of the user."""
    config = tmp_path / "ngrok.yml"
    config.write_text("version: '2'\n")
    monkeypatch.setattr("pyngrok.conf.DEFAULT_CONFIG_PATH", str(config))
    path = tmp_path / "bin" / "ngrok"
    path.parent.mkdir()
    assert fake_ngrok.__file__ is not None
    source = pathlib.Path(fake_ngrok.__file__).read_text()
    path.write_text(source.replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1))
    path.chmod(0o755)
    yield path
    (path.parent / "exit").touch()
