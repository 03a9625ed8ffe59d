from __future__ import annotations

import copy
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_cluster.kinds import structures
from kopf_cluster.kinds.builtin_pruning import MistypedError, prune
from tests.cluster.kinds.strategies import KINDS, spoiled, values

POD = structures.of_definition("io.k8s.api.core.v1.Pod")


@given(st.data())
def test_well_formed_objects_are_kept_as_they_are(data: st.DataObject) -> None:
    structure = structures.of_definition(data.draw(st.sampled_from(KINDS)))
    obj = data.draw(values(structure))
    before = copy.deepcopy(obj)
    kept, unknown = prune(obj, structure)
    assert kept is obj
    assert obj == before
    assert unknown == []


@given(st.data())
def test_unknown_fields_are_dropped_and_reported_exactly(data: st.DataObject) -> None:
    structure = structures.of_definition(data.draw(st.sampled_from(KINDS)))
    dirty, clean, paths = data.draw(spoiled(structure))
    before = copy.deepcopy(dirty)
    kept, unknown = prune(dirty, structure)
    assert kept == clean
    assert sorted(unknown) == sorted(paths)
    assert dirty == before


_ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "name",
                    "containers",
                    "env",
                    "labels",
                    "ports",
                    "resources",
                    "limits",
                    "template",
                    "x",
                ],
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(
    value=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "data", "x"]), _ANYTHING),
    definition=st.sampled_from(KINDS),
)
def test_whatever_is_accepted_is_clean_the_second_time(value: Any, definition: str) -> None:
    structure = structures.of_definition(definition)
    try:
        kept, _ = prune(value, structure)
    except MistypedError:
        return
    again, unknown = prune(kept, structure)
    assert again is kept
    assert unknown == []


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            {"spec": {"containers": [{"env": [{"name": "A", "value": 1}]}]}},
            "json: cannot unmarshal number into the field spec.containers.env.value of type string",
        ),
        ({"spec": []}, "json: cannot unmarshal array into the field spec of type v1.PodSpec"),
        (
            {"spec": {"containers": {}}},
            "json: cannot unmarshal object into the field spec.containers of type []v1.Container",
        ),
        (
            {"metadata": {"labels": {"a": True}}},
            "json: cannot unmarshal bool into the field metadata.labels of type string",
        ),
        (
            {"metadata": {"labels": "a"}},
            "json: cannot unmarshal string into the field metadata.labels of type map[string]string",
        ),
        ({"spec": {"priority": "5"}}, "json: cannot unmarshal string into the field spec.priority of type int32"),
        ({"spec": {"priority": 1.5}}, "json: cannot unmarshal number 1.5 into the field spec.priority of type int32"),
        (
            {"spec": {"priority": 3_000_000_000}},
            "json: cannot unmarshal number 3000000000 into the field spec.priority of type int32",
        ),
        (
            {"spec": {"hostNetwork": "true"}},
            "json: cannot unmarshal string into the field spec.hostNetwork of type bool",
        ),
        (
            {"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": True}}}]}},
            "json: cannot unmarshal bool into a value of type int32",
        ),
        (
            {"spec": {"containers": [{"resources": {"limits": {"cpu": "much"}}}]}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ({"status": {"startTime": "today"}}, 'parsing time "today": it is not of RFC 3339'),
        ([], "json: cannot unmarshal array into a value of type v1.Pod"),
    ],
)
def test_wrong_types_are_refused_in_the_words_of_the_server(obj: Any, message: str) -> None:
    with pytest.raises(MistypedError) as caught:
        prune(obj, POD)
    assert str(caught.value) == message


@pytest.mark.parametrize("data", ["*", "YWJj!", "YWJ", "YQ==YQ"])
def test_broken_base64_is_refused(data: str) -> None:
    with pytest.raises(MistypedError, match="^illegal base64 data$"):
        prune({"data": {"key": data}}, structures.of_definition("io.k8s.api.core.v1.Secret"))


def test_nulls_are_absent_in_objects_and_zeros_elsewhere() -> None:
    kept, unknown = prune({"spec": None, "metadata": {"labels": {"a": None, "b": "c"}, "finalizers": [None]}}, POD)
    assert kept == {"metadata": {"labels": {"a": "", "b": "c"}, "finalizers": [""]}}
    assert unknown == []


def test_what_has_no_structure_is_kept() -> None:
    revisions = structures.of_definition("io.k8s.api.apps.v1.ControllerRevision")
    obj = {"data": {"spec": {"anything": [None, {"goes": True}]}}}
    assert prune(obj, revisions) == (obj, [])


def test_arbitrary_state_is_lost_in_the_status_of_pods() -> None:
    kept, unknown = prune({"status": {"kopf": {"progress": {}}, "phase": "Running"}}, POD)
    assert kept == {"status": {"phase": "Running"}}
    assert unknown == ["status.kopf"]


def test_quantities_and_timestamps_become_canonical() -> None:
    kept, _ = prune(
        {
            "metadata": {"creationTimestamp": "2024-01-01T01:00:00.5+01:00"},
            "spec": {"overhead": {"cpu": 1, "memory": "1024Mi", "x": 0.5}},
        },
        POD,
    )
    assert kept == {
        "metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"overhead": {"cpu": "1", "memory": "1Gi", "x": "500m"}},
    }


def test_pruning_takes_a_few_calls_for_each_value() -> None:
    """Calls are counted, not seconds: these depend on what else the machine does."""
    pod = _make_pod()
    assert prune(pod, POD)[0] is pod
    assert _count_calls(lambda: prune(pod, POD)) < 6 * _count_values(pod)


def _count_calls(action: Callable[[], object]) -> int:
    events: Counter[str] = Counter()
    sys.setprofile(lambda _frame, event, _argument: events.update([event]))
    try:
        action()
    finally:
        sys.setprofile(None)
    return events["call"] + events["c_call"]


def _count_values(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_count_values, items))


def _make_pod() -> dict[str, Any]:
    def container(name: str) -> dict[str, Any]:
        return {
            "name": name,
            "image": "registry/image:1",
            "args": ["--a", "--b"],
            "env": [{"name": letter, "value": "x"} for letter in "ABCDE"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "100m"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 10},
        }

    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}
        for kind in itertools.islice(["Initialized", "Ready", "ContainersReady", "PodScheduled"], 4)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "x",
            "namespace": "y",
            "labels": {"app": "web"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u", "controller": True}
            ],
        },
        "spec": {
            "containers": [container("a"), container("b")],
            "nodeName": "n",
            "priority": 0,
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
        "status": {"phase": "Running", "conditions": conditions, "podIPs": [{"ip": "10.1.0.1"}]},
    }
