from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._client.http import lines
from kopf._client.http.lines import LineSplitter
from kopf._client.http.transport import ProtocolError


def feed(*chunks: bytes) -> list[bytes]:
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk)]


def test_several_lines_in_a_chunk_come_at_once() -> None:
    assert LineSplitter().feed(b"a\nb\nc\n") == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([b"a", b"b", b"", b"c\nd", b"e\n"], [b"abc", b"de"], id="several-chunks"),
        pytest.param([bytes([byte]) for byte in "ñandú\n".encode()], ["ñandú".encode()], id="split-characters"),
        pytest.param([b"\n\na\n", b"\n", b"\nb\n\n"], [b"a", b"b"], id="empty-lines-are-dropped"),
        pytest.param([b"a\nb"], [b"a"], id="incomplete-last-line"),
        pytest.param([b"a"], [], id="incomplete-line"),
    ],
)
def test_lines_in_chunks(chunks: list[bytes], expected: list[bytes]) -> None:
    assert feed(*chunks) == expected


def test_endless_lines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 10)
    assert feed(b"12345", b"67890", b"\n", b"x\n12345", b"67890") == [b"1234567890", b"x"]
    with pytest.raises(ProtocolError, match="longer than 10 bytes"):
        feed(b"x\n12345", b"67890", b"!")


@given(st.binary(), st.lists(st.integers(min_value=0, max_value=100)))
def test_no_byte_is_lost_wherever_it_is_cut(content: bytes, cuts: list[int]) -> None:
    positions = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    chunks = [content[a:b] for a, b in itertools.pairwise(positions)]
    *complete, _ = content.split(b"\n")
    assert feed(*chunks) == [line for line in complete if line]


def test_cost_is_linear_in_the_length_of_the_line() -> None:
    def measure(chunks: int) -> float:
        splitter, chunk = LineSplitter(), b"x" * 1024
        started = time.process_time()
        for _ in range(chunks):
            splitter.feed(chunk)
        assert len(splitter.feed(b"\n")[0]) == chunks * 1024
        return time.process_time() - started

    # Quadratic growth would be 64 times in 8 times more chunks; a generous limit is for the noise of machines.
    assert measure(32_000) < max(30 * measure(4_000), 0.5)
