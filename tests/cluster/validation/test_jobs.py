"""
Jobs find their pods by what the server has generated; see "Specifying your own Pod selector" of the documentation.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.cluster.conftest import Client
from tests.cluster.validation.test_cross_fields import KINDS, LABELS, template
from tests.cluster.validation.test_pods import get_causes

JOBS: Final = KINDS["jobs"]
UID: Final = "batch.kubernetes.io/controller-uid"


def job(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "one"}, "spec": {"template": template(restartPolicy="Never"), **spec}}


async def test_selectors_and_labels_are_generated(client: Client) -> None:
    made = await client.create(JOBS, job())
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {UID: uid}}
    assert made["spec"]["template"]["metadata"]["labels"] == {
        **LABELS,
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "one",
        "controller-uid": uid,
        "job-name": "one",
    }
    reply = await client.send_patch(f"{JOBS}/one", {"spec": {"selector": {"matchLabels": {"a": "b"}}}})
    assert [cause.partition(": ")[0] for cause in get_causes(reply)] == ["spec.selector"]


async def test_selectors_of_users_are_left_alone(client: Client) -> None:
    made = await client.create(JOBS, job(manualSelector=True, selector={"matchLabels": LABELS}))
    assert made["spec"]["selector"] == {"matchLabels": LABELS}
    assert made["spec"]["template"]["metadata"]["labels"] == LABELS


async def test_selectors_of_users_are_required_to_match(client: Client) -> None:
    reply = await client.call("POST", JOBS, json=job(manualSelector=True))
    assert get_causes(reply) == ["spec.selector: Required value"]
    reply = await client.call("POST", JOBS, json=job(manualSelector=True, selector={"matchLabels": {"a": "b"}}))
    assert get_causes(reply) == [
        'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`'
    ]


async def test_selectors_are_not_mixed_with_generated_ones(client: Client) -> None:
    """As happens to jobs that are made of other jobs."""
    wrong = job(selector={"matchLabels": {UID: "x"}}, template=template({"job-name": "two"}, restartPolicy="Never"))
    causes = get_causes(await client.call("POST", JOBS, json=wrong))
    assert len(causes) == 3
    assert causes[0].startswith('spec.template.metadata.labels[job-name]: Invalid value: {"batch.kubernetes.io/')
    assert causes[0].endswith('"job-name":"two"}: must be \'one\'')
    assert causes[1] == (
        f'spec.selector: Invalid value: {{"matchLabels":{{"{UID}":"x"}}}}: `selector` not auto-generated'
    )
    assert causes[2].endswith("`selector` does not match template `labels`")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"completionMode": "Indexed", "parallelism": 2},
            ["spec.completions: Required value: when completion mode is Indexed"],
        ),
        (
            {"maxFailedIndexes": 1},
            [
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
                "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
            ],
        ),
        (
            {
                "podFailurePolicy": {
                    "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]
                },
                "template": template(restartPolicy="OnFailure"),
            },
            [
                'spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when '
                "podFailurePolicy "
                "is specified"
            ],
        ),
    ],
)
async def test_what_does_not_fit_together(client: Client, spec: dict[str, Any], expected: list[str]) -> None:
    assert get_causes(await client.call("POST", JOBS, json=job(**spec))) == expected


async def test_templates_of_cron_jobs_have_no_selectors(client: Client) -> None:
    inner = job(manualSelector=True, selector={"matchLabels": LABELS})["spec"]
    reply = await client.call(
        "POST",
        KINDS["cronjobs"],
        json={"metadata": {"name": "one"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": inner}}},
    )
    assert get_causes(reply) == [
        'spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"app":"web"}}: `selector` will be '
        "auto-generated",
        'spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"',
    ]
