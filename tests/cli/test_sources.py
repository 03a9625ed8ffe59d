from __future__ import annotations

import os
import pathlib

import pytest

from kopf.cli.dev.source_watcher import SourceWatcher


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path.resolve() / "handlers.py"
    path.write_text("1")
    return path


def test_nothing_has_changed(file: pathlib.Path) -> None:
    watcher = SourceWatcher([str(file)])
    assert watcher.poll() == set()


def test_changed_content(file: pathlib.Path) -> None:
    watcher = SourceWatcher([str(file)])
    file.write_text("22")
    assert watcher.poll() == {str(file)}
    assert watcher.poll() == set()


def test_changed_content_of_the_same_size(file: pathlib.Path) -> None:
    watcher = SourceWatcher([str(file)])
    file.write_text("2")
    os.utime(file, ns=(1, 1))
    assert watcher.poll() == {str(file)}


def test_removed_and_restored(file: pathlib.Path) -> None:
    watcher = SourceWatcher([str(file)])
    file.unlink()
    assert watcher.poll() == {str(file)}
    file.write_text("1")
    assert watcher.poll() == {str(file)}


def test_files_that_do_not_exist_yet(file: pathlib.Path) -> None:
    path = file.parent / "folder" / "other.py"
    watcher = SourceWatcher([str(path)])
    assert watcher.poll() == set()
    path.parent.mkdir()
    path.write_text("1")
    assert watcher.poll() == {str(path)}


def test_neighbours(file: pathlib.Path) -> None:
    neighbour = file.parent / "other.py"
    watcher = SourceWatcher([str(file)])
    neighbour.write_text("1")
    assert watcher.poll() == {str(neighbour)}
    neighbour.write_text("22")
    assert watcher.poll() == {str(neighbour)}
    neighbour.unlink()
    assert watcher.poll() == {str(neighbour)}


@pytest.mark.parametrize("name", ["text.txt", ".handlers.py", "handlers.py~"])
def test_other_files_are_of_no_interest(file: pathlib.Path, name: str) -> None:
    watcher = SourceWatcher([str(file)])
    (file.parent / name).write_text("1")
    assert watcher.poll() == set()


def test_files_added_later(file: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other").resolve() / "module.py"
    other.write_text("1")
    watcher = SourceWatcher([str(file)])
    watcher.add([str(other), str(file)])
    assert watcher.poll() == set()
    other.write_text("22")
    watcher.add([str(other)])
    assert watcher.poll() == {str(other)}


def test_neighbours_that_have_changed_before_they_are_added(file: pathlib.Path) -> None:
    neighbour = file.parent / "neighbour.py"
    neighbour.write_text("1")
    watcher = SourceWatcher([str(file)])
    neighbour.write_text("22")
    watcher.add([str(neighbour)])
    assert watcher.poll() == {str(neighbour)}


def test_the_path_is_the_same_however_it_was_named(file: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    watcher = SourceWatcher(["./handlers.py"])
    file.write_text("22")
    assert watcher.poll() == {str(file)}
