"""One handler, one state of the object: no cluster, no operator."""

import handlers
import pytest
import registrar

from kopf.testing import run_handler


def test_domains_are_checked():
    assert run_handler(handlers.check_domain, "spec: {domain: example.org}").outcome == "allowed"
    run = run_handler(handlers.check_domain, "spec: {domain: nonsense}")
    assert run.outcome == "denied"
    assert run.denial["message"] == "It is not a domain: nonsense"


@pytest.mark.parametrize(
    ("status", "is_issued"),
    [
        ({}, True),
        ({"certificate": {"expires": "2020-01-01T00:00:00+00:00"}}, True),
        ({"certificate": {"expires": "2999-01-01T00:00:00+00:00"}}, False),
    ],
)
def test_certificates_are_issued_if_needed(registrations, status, is_issued):
    run = run_handler(handlers.renew_certificate, {"spec": {"domain": "example.org"}, "status": status})
    assert run.outcome == "succeeded"
    assert ("certificate" in run.patch.get("status", {})) == is_issued


def test_failures_of_the_registrar_are_temporary(registrations):
    registrations.is_down = True
    run = run_handler(handlers.register_domain, {"spec": {"domain": "example.org"}}, reason="create")
    assert (run.outcome, run.delay) == ("retried", 60)
    assert isinstance(run.exception.__cause__, registrar.RegistrarError)
