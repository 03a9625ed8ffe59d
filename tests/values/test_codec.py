from __future__ import annotations

import pytest
from hypothesis import given

from kopf._values import codec
from tests.values.strategies import nullables


@given(nullables)
def test_all_json_values_survive_the_round_trip(value: object) -> None:
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(codec.dumps(value)) == value


def test_the_text_is_compact_and_in_the_given_order() -> None:
    assert codec.dumps({"b": [1, None], "a": "ё"}) == '{"b":[1,null],"a":"ё"}'


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "nope", '{"a":1}garbage'])
def test_malformed_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        codec.decode(text)
