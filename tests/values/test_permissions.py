from __future__ import annotations

import yaml

from kopf._values.permissions import format_advice, format_rule
from kopf._values.resources import NAMESPACES, Resource

KEX = Resource("kopf.dev", "v1", "kopfexamples", namespaced=True)


def test_rules_can_be_pasted() -> None:
    assert yaml.safe_load(format_rule(KEX, ["list", "watch"])) == [
        {"apiGroups": ["kopf.dev"], "resources": ["kopfexamples"], "verbs": ["list", "watch"]}
    ]
    assert yaml.safe_load(format_rule(NAMESPACES, ["get"])) == [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    ]
    assert yaml.safe_load(format_rule(KEX, ["patch"], subresource="status")) == [
        {"apiGroups": ["kopf.dev"], "resources": ["kopfexamples/status"], "verbs": ["patch"]}
    ]


def test_advice_ends_with_the_rule() -> None:
    assert format_advice(KEX, ["patch"]) == (
        "Add this rule to a ClusterRole of the operator: "
        "- {apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [patch]}"
    )
    assert format_advice(KEX, ["patch"], namespace="ns1").startswith(
        "Add this rule to a ClusterRole, or a Role in the namespace 'ns1', of the operator: - {"
    )
