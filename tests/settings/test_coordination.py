from __future__ import annotations

from typing import Any

import pytest

from kopf._settings.coordination import CoordinationSettings, check_coordination, set_coordination
from kopf._settings.settings import OperatorSettings, PeeringSettings, settle_coordination
from kopf._values.operator_error import OperatorError


@pytest.mark.parametrize("mode", [None, "leader", "shards"])
def test_defaults_are_safe(mode: Any) -> None:
    check_coordination(CoordinationSettings(mode=mode))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": "master"}, "coordination.mode must be 'leader', 'shards', or None, got 'master'"),
        ({"name": "My_Operator"}, "coordination.name must be of lowercase letters.* got 'My_Operator'"),
        ({"name": ""}, "coordination.name must be"),
        ({"name": None}, "coordination.name must be"),
        ({"name": "x" * 64}, "coordination.name must be"),
        ({"name": "x\n"}, "coordination.name must be"),
        ({"namespace": "a/b"}, "coordination.namespace must be"),
        ({"lease_duration": 0}, "lease_duration must be a whole number"),
        ({"lease_duration": 10.5}, "lease_duration must be a whole number"),
        ({"renew_deadline": 15}, r"renew_deadline \(15\) must be less than lease_duration \(15\)"),
        ({"retry_period": 9}, r"more than 1.2 of retry_period \(9\)"),
        ({"retry_period": 0}, "retry_period"),
        ({"renew_deadline": float("nan")}, "renew_deadline"),
        ({"drain_timeout": -1}, "drain_timeout cannot be negative"),
    ],
)
def test_refused_settings(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(OperatorError, match=text):
        check_coordination(CoordinationSettings(**{"mode": "shards", **changes}))


def test_nothing_is_checked_without_a_mode() -> None:
    check_coordination(CoordinationSettings(name="My_Operator", lease_duration=0))


@pytest.mark.parametrize(
    ("leader_election", "shards", "expected"),
    [
        (None, None, (None, "mine")),
        (False, False, (None, "mine")),
        (True, None, ("leader", "mine")),
        ("web", None, ("leader", "web")),
        (None, True, ("shards", "mine")),
        (False, "web", ("shards", "web")),
    ],
)
def test_options(leader_election: Any, shards: Any, expected: tuple[str | None, str]) -> None:
    settings = CoordinationSettings(name="mine")
    set_coordination(settings, leader_election=leader_election, shards=shards)
    assert (settings.mode, settings.name) == expected


def test_one_mode_at_a_time() -> None:
    with pytest.raises(ValueError, match="not both"):
        set_coordination(CoordinationSettings(), leader_election=True, shards="web")


def test_no_replicas_where_there_can_be_none() -> None:
    settings = OperatorSettings(coordination=CoordinationSettings(mode="shards", renew_deadline=100))
    settle_coordination(settings, has_replicas=False)
    assert settings.coordination.mode is None
    assert settings.peering.standalone


@pytest.mark.parametrize(
    ("mode", "peering", "is_alone"),
    [
        (None, PeeringSettings(), False),
        ("leader", PeeringSettings(), True),
        ("shards", PeeringSettings(), True),
        ("shards", PeeringSettings(mandatory=True), False),
        ("shards", PeeringSettings(priority=5), False),
        ("shards", PeeringSettings(standalone=True, priority=5), True),
    ],
)
def test_no_peering_unless_it_is_asked_for(mode: Any, peering: PeeringSettings, is_alone: bool) -> None:
    settings = OperatorSettings(peering=peering, coordination=CoordinationSettings(mode=mode))
    settle_coordination(settings)
    assert peering.standalone is is_alone
