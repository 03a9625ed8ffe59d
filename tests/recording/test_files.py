"""Files of recordings: cut, damaged, of other versions, too large, on full disks."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import pathlib
import stat
import time
import tracemalloc
from typing import Any

import pytest

from kopf._replay import format
from kopf._replay.format import FORMAT, RecordingError, encode_entry, read_entries
from kopf._replay.recording_writer import Recorder, Writer
from kopf._values import codec
from tests.recording.reading import HEAD, list_kinds, make_entry, read_all

LIMIT = 2**20
PATH = "/apis/kopf.dev/v1/kopfexamples"


def make_line(name: str, version: int, kind: str = "MODIFIED", size: int = 500) -> bytes:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version)}
    return codec.encode({"type": kind, "object": {"metadata": metadata, "data": os.urandom(size // 2).hex()}})


def write(path: pathlib.Path, *entries: Any, limit: int = LIMIT) -> None:
    writer = Writer(path, limit)
    for entry in entries:
        writer.put(entry)
    writer.close()
    assert not writer.pending


def test_what_is_written_is_read(tmp_path: pathlib.Path) -> None:
    documents = [b'{"a": 1.0,  "b": [1e5]}', b"", b"{broken", b'"\xd0\xbf"', b"[" * 5000 + b"]" * 5000, b'{"x":\n1}']
    write(tmp_path / "file", HEAD, make_entry("lines", 1, 0.5, *documents))
    entries, is_cut = read_entries(tmp_path / "file")
    assert not is_cut
    assert [entry.kind for entry in entries] == ["head", "lines"]
    assert entries[1].documents == [*documents[:5], b'{"x": 1}']
    assert entries[1].time == 0.5


def test_it_is_plain_gzip_with_plain_json_for_its_owner_only(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "file", HEAD, make_entry("lines", 1, 0.5, b'{"a":1}'))
    lines = gzip.decompress((tmp_path / "file").read_bytes()).splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["head", "lines"]
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_links_are_not_followed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        Writer(tmp_path / "link", LIMIT)
    assert not (tmp_path / "target").exists()


def test_the_previous_recording_is_kept(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "file", HEAD, make_entry("lines"))
    write(tmp_path / "file", HEAD)
    assert list_kinds(tmp_path / "file") == ["head"]
    assert list_kinds(tmp_path / "file.1") == ["head", "lines"]


def test_a_damaged_file_is_not_taken_for_a_cut_one(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "file", HEAD, *(make_entry("lines", 1, n / 10, make_line("x", n)) for n in range(1000)))
    content = bytearray((tmp_path / "file").read_bytes())
    content[len(content) // 2 : len(content) // 2 + 16] = b"\xff" * 16
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(RecordingError, match=r"is damaged after line \d+|or it is damaged: .*, line \d+"):
        read_entries(tmp_path / "file")


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.99])
def test_a_cut_file_is_read_as_far_as_it_goes(tmp_path: pathlib.Path, share: float) -> None:
    entries = [make_entry("lines", n, 0.1 * n, make_line("obj", n)) for n in range(200)]
    write(tmp_path / "file", HEAD, *entries)
    data = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(data[: int(len(data) * share)])
    read, is_cut = read_entries(tmp_path / "file")
    assert is_cut
    assert 0.8 * share * 200 < len(read) <= 200 * share + 2
    assert [entry.number for entry in read[1:]] == [*range(len(read) - 1)]


def test_what_was_written_half_a_second_ago_survives_the_process(tmp_path: pathlib.Path) -> None:
    writer = Writer(tmp_path / "file", LIMIT)
    writer.put(HEAD)
    writer.put(make_entry("lines"))
    while writer.pending:
        time.sleep(0.01)
    assert list_kinds(tmp_path / "file") == ["head", "lines"]
    assert read_entries(tmp_path / "file")[1], "it is not ended, so it is cut"
    writer.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no readable entries"),
        (b"plain text", "has no readable entries"),
        (gzip.compress(b"text\n"), "not a recording, or it is damaged"),
        (gzip.compress(b'{"kind":"req","n":1,"t":0}\n'), "it does not begin with a head"),
        (gzip.compress(encode_entry(HEAD) + b"{}\n" + encode_entry(HEAD)), "line 2"),
        (
            gzip.compress(b'{"kind":"head","n":0,"t":0,"format":%d,"kopf":"9.0"}\n' % (FORMAT + 1)),
            "written by kopf 9.0",
        ),
    ],
    ids=["empty", "plain", "text", "no head", "broken", "newer"],
)  # the content has the time in it
def test_other_files_are_refused(tmp_path: pathlib.Path, content: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(RecordingError, match=message):
        read_entries(tmp_path / "file")


def test_absent_files_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        read_entries(tmp_path / "file")


def test_the_size_is_bounded_and_the_latest_is_kept(tmp_path: pathlib.Path) -> None:
    """Every object is known in the end: by its latest change, or by its state at the checkpoint."""
    limit = LIMIT // 4
    stream = make_entry("open", 1, 0.0, target=PATH, params={}, headers={})
    changes = [
        make_entry("lines", 1, n, make_line(f"obj{n if n < 50 else n % 50}", n), path=PATH) for n in range(1, 2000)
    ]
    gone = make_entry("lines", 1, 5.5, make_line("obj5", 5, "DELETED"), path=PATH)
    path, sizes = tmp_path / "file", []
    writer = Writer(path, limit)
    later_changes = [entry for entry in changes[60:] if entry.time % 50 != 5]
    for n, entry in enumerate([HEAD, stream, *changes[:60], gone, *later_changes]):
        writer.put(entry)
        if n % 250 == 0:
            while writer.pending:
                time.sleep(0.01)
            sizes.append(path.stat().st_size)
    writer.close()
    assert max(sizes) <= 1.8 * limit  # of random data, a member is as large as its text is
    entries, is_cut = read_entries(path)
    assert not is_cut
    assert [entry.kind for entry in entries[:2]] == ["head", "state"]
    checkpoint = next(entry for entry in entries if entry.kind == "checkpoint")
    names = [json.loads(entry.documents[0])["metadata"]["name"] for entry in entries if entry.kind == "state"]
    assert sorted(names) == sorted(f"obj{n}" for n in range(50) if n != 5)
    later = [entry.time for entry in entries if entry.kind == "lines"]
    assert later == [entry.time for entry in changes if entry.time > checkpoint.time and entry.time % 50 != 5]
    assert later[-1] == 1999
    assert [entry.number for entry in entries if entry.kind == "open"] == [1]
    assert checkpoint.fields["versions"] == {PATH: str(int(checkpoint.time))}


def test_too_many_objects_end_the_recording(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [make_entry("lines", 1, n, make_line(f"obj{n}", n), path=PATH) for n in range(1, 6000)]
    write(tmp_path / "file", HEAD, make_entry("open", 1, 0.0, target=PATH, params={}, headers={}), *lines)
    assert "The recording ends here" in caplog.text
    assert "more than half of the limit" in caplog.text
    entries, _ = read_entries(tmp_path / "file")
    assert entries[0].kind == "head"
    assert not list(tmp_path.glob("*.draft"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="It needs /dev/full.")
def test_a_full_disk_ends_the_recording_only(caplog: pytest.LogCaptureFixture) -> None:
    write(pathlib.Path("/dev/full"), HEAD, *[make_entry("lines")] * 100)
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert messages == [
        "The recording ends here, but the operator continues: the file cannot be written: No space left on device."
    ]


async def test_a_slow_disk_ends_the_recording_only(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("kopf._replay.recording_writer._PATIENCE", 0.1)
    os.mkfifo(tmp_path / "file")
    reading = os.open(tmp_path / "file", os.O_RDONLY | os.O_NONBLOCK)
    try:
        writer = Writer(tmp_path / "file", 2**30)
        recorder = Recorder(writer, {})
        for n in range(300):
            recorder.note("lines", n, {}, [make_line("obj", n, size=100_000)])
        assert writer.pending > 2**23
        await recorder.keep_up()
        assert "the disk is too slow for it" in caplog.text
        before = writer.pending
        recorder.note("lines", 1, {}, [make_line("obj", 1)])
        assert writer.pending <= before
    finally:
        os.close(reading)  # the writer gets an error instead of waiting forever
    await asyncio.to_thread(writer.close)


def test_hostile_documents_are_no_trouble(tmp_path: pathlib.Path) -> None:
    large = make_line("large", 1, size=300_000)
    deep = b'{"type":"ADDED","object":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001
    write(tmp_path / "file", HEAD, make_entry("lines", 1, 1.0, large, deep, b"\x00\xff", b'{"$text": 1}'))
    entries, _ = read_entries(tmp_path / "file")
    assert entries[1].documents[:2] == [large, deep]
    assert b"large" in read_all(tmp_path / "file")


@pytest.mark.parametrize("name", ["file", "file.draft"])
@pytest.mark.parametrize("content", ["", "something"])
def test_files_that_are_open_for_others_do_not_become_recordings(
    tmp_path: pathlib.Path,
    name: str,
    content: str,
) -> None:
    """Also those who have opened it before, see nothing of the recording."""
    (tmp_path / name).write_text(content)
    (tmp_path / name).chmod(0o666)
    with (tmp_path / name).open() as others:
        lines = [make_entry("lines", n, 0.1, make_line("x", n, size=5000)) for n in range(1000)]
        write(tmp_path / "file", HEAD, make_entry("open", 0, 0.0, target=PATH, path=PATH), *lines)
        assert others.read() == content
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"req","n":1,"t":1e300}',
        b'{"kind":"req","n":1,"t":-1}',
        b'{"kind":"req","n":1,"t":"1"}',
        b'{"kind":"req","n":"1","t":1}',
        b'{"kind":[],"n":1,"t":1}',
        b'{"kind":"req","n":1,"t":1,"x":[' + b"[]," * 2_000_000 + b"[]]}",
    ],
)
def test_senseless_entries_are_refused(tmp_path: pathlib.Path, line: bytes) -> None:
    (tmp_path / "file").write_bytes(gzip.compress(encode_entry(HEAD) + line + b"\n"))
    with pytest.raises(RecordingError, match="damaged"):
        read_entries(tmp_path / "file")


@pytest.mark.parametrize("part", [b'{"kind":"req","n":1,"t":1}\n', b"a", b'{"kind":"lines","n":1,"t":1,"docs":[0]}\n'])
def test_small_files_take_little_memory(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    part: bytes,
) -> None:
    """They are made by others, perhaps: a megabyte can become a gigabyte when it is decompressed."""
    scale = 64  # with the real limits, it takes as many times longer
    monkeypatch.setattr(format, "_LEAST_ROOM", format._LEAST_ROOM // scale)
    monkeypatch.setattr(format, "_LONGEST_LINE", format._LONGEST_LINE // scale)
    size = 400 * 2**20 // scale
    (tmp_path / "file").write_bytes(gzip.compress(encode_entry(HEAD) + part * (size // len(part)), 1))
    assert (tmp_path / "file").stat().st_size < 3 * 2**20 / scale
    tracemalloc.start()
    try:
        with pytest.raises(RecordingError, match="too"):
            read_entries(tmp_path / "file")
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()
