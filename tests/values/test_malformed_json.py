"""Documents that are nested too deeply: what can be decoded of them, nevertheless."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kopf._client.resources.patching import compose
from kopf._values import codec, malformed_json
from kopf._values.diffs import diff
from kopf._values.objects import KubeObject
from kopf._values.patches import Patch, merge, thaw

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)

LARGE = 300_000


def _prune(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return {key: _prune(item, depth - 1) for key, item in value.items()} if depth else None
    if isinstance(value, list):
        return [_prune(item, depth - 1) for item in value] if depth else None
    return value


@given(JSON, st.integers(1, 5))
def test_the_upper_levels_are_as_they_were(value: Any, depth: int) -> None:
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert json.loads(malformed_json.prune(data, depth)) == _prune(json.loads(data), depth)


@given(JSON)
def test_what_is_taken_out_can_be_put_back(value: Any) -> None:
    data = json.dumps({"a": [value, {"b": ']}"\\'}], "c": {}}, ensure_ascii=False).encode("utf-8", "replace")
    shallow, inner = malformed_json.split(data, 1)
    assert {key: json.loads(inner[index]) for key, [index] in json.loads(shallow).items()} == json.loads(data)


@given(st.dictionaries(st.text(), JSON, max_size=3), st.sampled_from([(",", ":"), (" , ", " : "), (",\n", ": ")]))
def test_the_members_are_told_apart(value: dict[str, Any], separators: tuple[str, str]) -> None:
    data = json.dumps(value, ensure_ascii=False, separators=separators).encode("utf-8", "replace")
    assert {json.loads(name): json.loads(item) for name, item in malformed_json.split_members(data)} == json.loads(data)


@pytest.mark.parametrize("malformed", ["NaN", "1e999", '"\\ud800"', "01", '{"a" 1}', "[1,]", "tru", "", '"\udcff"'])
def test_malformed_members_do_not_hide_the_others(malformed: str) -> None:
    data = f'{{"a":1,"b":{malformed},"c":{{"d":{malformed}}},"e":["f"]}}'.encode("utf-8", "surrogateescape")
    members = dict(malformed_json.split_members(data))
    assert (members[b'"a"'], members[b'"e"']) == (b"1", b'["f"]')
    assert [*members] == [b'"a"', b'"b"', b'"c"', b'"e"']


@example(b'"a":[1]')
@example(b'{}"a":[5]')
@example(b']]{"a":[1]}')
@example(b'{"a":[1] 2,"b":[1][2]}')
@example(b'"a":[' + b"9" * 5000 + b"]")
@given(st.binary() | st.text('[]{}"\\,: a1').map(str.encode))
def test_garbage_is_not_an_error(data: bytes) -> None:
    malformed_json.prune(data, 1)
    malformed_json.split(data, 1)
    list(malformed_json.split_members(data))


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":' * LARGE,
        b"[" * LARGE,
        b'\\"' * LARGE,
        b'"\\"' * LARGE,
        b'"' + b"\\" * LARGE,
        b"]}" * LARGE,
    ],
    ids=lambda data: repr(data[:8]),
)
def test_it_takes_linear_time(data: bytes) -> None:
    started = time.process_time()
    malformed_json.prune(data, 1)
    list(malformed_json.split_members(data))
    assert time.process_time() - started < 5


@pytest.mark.parametrize("item", [b"[" * 10_000 + b"1" + b"]" * 10_000, b'{"a":[' * 5_000 + b"1" + b"]}" * 5_000])
def test_deep_values_are_skipped_fast(item: bytes) -> None:
    """They cost less than to decode a text of the same size with brackets that are flat."""
    data = b"[" + b",".join([item] * (2**20 // len(item))) + b"]"
    flat = b"[" + b",".join([b"[[[[1]]]]"] * (2**20 // 10)) + b"]"

    def measure(action: Callable[[bytes], object], data: bytes) -> float:
        started = time.process_time()
        action(data)
        return time.process_time() - started

    taken = min(measure(lambda data: malformed_json.prune(data, 2), data) for _ in range(5))
    assert taken < min(measure(codec.decode, flat) for _ in range(5))


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"[{":', b"}]")])
def test_depths_are_known(opening: bytes, closing: bytes) -> None:
    levels = 1000 // len(closing)
    for inner in (b"1", b'"[[{{"', b"[],{}"):
        data = opening * levels + inner + closing * levels
        assert malformed_json.is_deeper(data, 999)
        assert malformed_json.is_deeper(data, 1000) is (b"[]" in inner)
        assert not malformed_json.is_deeper(data, 1001)


@pytest.mark.parametrize("levels", [20_000, 100_000])
def test_the_metadata_of_an_object_are_known_at_any_depth(levels: int) -> None:
    metadata = b'{"name":"n","uid":"u","managedFields":[{"f":' + b"[" * levels + b"]" * levels + b"}]}"
    spec = b'{"a":' * levels + b"1" + b"}" * levels
    obj = KubeObject.from_json(b'{"metadata":' + metadata + b',"spec":' + spec + b"}")
    assert obj.pruned
    assert obj.head.name == "n"
    assert obj["metadata"] == {"name": "n", "uid": "u"}
    assert dict(obj.make_stub()) == {"metadata": {"name": "n", "uid": "u"}}


@pytest.mark.parametrize("text", ["[" * 30_000, "[" * 30_000 + "]" * 30_000, '{"a":' * 30_000 + "1" + "}" * 30_000])
def test_the_codec_raises_value_errors(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply|malformed"):
        codec.decode(text)


def _nest(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"a": leaf}
    return leaf


@pytest.mark.parametrize("levels", [500, 1000, 12_000])
def test_diffs_and_patches_are_not_recursive(levels: int) -> None:
    old, new = _nest(levels, 1), _nest(levels, [{"x": 1}])
    (item,) = diff(old, new)
    assert (item.old, item.new, len(item.field)) == (1, [{"x": 1}], levels)
    assert not diff(old, thaw(old))
    assert diff([old], [new])
    assert not diff([new], [thaw(new)])
    merge(old, new)
    assert not diff(old, new)
    body = {"metadata": {"finalizers": ["x"]}, "spec": new}
    assert compose(Patch({}, fns=[lambda body: body["metadata"].clear()]), body, status_subresource=False)
