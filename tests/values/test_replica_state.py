from __future__ import annotations

from typing import Any

import pytest

from kopf._values.replica_state import ReplicaState
from kopf._values.slots import ALL_SLOTS


@pytest.mark.parametrize(
    ("mode", "fields", "role", "text"),
    [
        ("leader", {}, "standby", "standby web-1 of 'web'"),
        ("leader", {"is_leading": True, "held": ALL_SLOTS}, "leader", "leader web-1 of 'web'"),
        ("leader", {"is_fenced": True, "is_leading": True}, "fenced", "fenced web-1 of 'web'"),
        ("shards", {}, "member", "member web-1 of 'web' with 0 of 256 slots"),
        ("shards", {"held": frozenset({0, 1, 7})}, "member", "member web-1 of 'web' with 3 of 256 slots (0-1, 7)"),
        ("shards", {"is_leading": True}, "coordinator", "coordinator web-1 of 'web' with 0 of 256 slots"),
        ("shards", {"is_fenced": True}, "fenced", "fenced web-1 of 'web'"),
    ],
)
def test_roles(mode: str, fields: dict[str, Any], role: str, text: str) -> None:
    state = ReplicaState(mode=mode, name="web", identity="web-1", **fields)
    assert state.role == role
    assert state.describe() == text


def test_json() -> None:
    state = ReplicaState(mode="shards", name="web", identity="web-1", held=frozenset({3}), draining=frozenset({1, 2}))
    known = {"mode": "shards", "name": "web", "identity": "web-1", "role": "member"}
    assert state.as_json() == {**known, "held": "3", "draining": "1-2"}
    state = ReplicaState(mode="leader", name="web", identity="web-1", is_leading=True, held=ALL_SLOTS)
    assert state.as_json() == {**known, "mode": "leader", "role": "leader"}
