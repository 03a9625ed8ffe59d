"""Nothing secret gets into a recording, wherever it comes from and wherever it is copied to."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
from typing import Any

import pytest

import kopf
from kopf._replay.recording import recording_to
from kopf._replay.recording_writer import Writer
from kopf._replay.redaction import Redactor
from kopf.testing import Simulation, replay, simulate
from tests.recording.reading import read_all
from tests.testing.kopfexamples import CRD, make

PASSWORD = "correct-horse+battery"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ0aGUtc3ViamVjdCJ9.c2lnbmF0dXJlLW9mLXRoYXQ"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nAQEFAASCBKcwggSjAgEA\n-----END RSA PRIVATE KEY-----\n"
SECRETS = "/api/v1/namespaces/default/secrets/s"
OTHERS = "/apis/kopf.dev/v1/namespaces/default/kopfexamples"


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def make_secret(**data: str) -> dict[str, Any]:
    metadata = {"name": "s", "namespace": "default"}
    return {"kind": "Secret", "metadata": metadata, "data": {key: encode(value) for key, value in data.items()}}


def redact(redactor: Redactor, value: Any, path: str = OTHERS, *, is_sent: bool = False) -> Any:
    return json.loads(redactor.redact(json.dumps(value).encode(), path, is_sent=is_sent))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda secret: secret,
        lambda secret: {"type": "ADDED", "object": secret},
        lambda secret: {"kind": "SecretList", "items": [{key: secret[key] for key in ("metadata", "data")}]},
        lambda secret: {"kind": "Bundle", "spec": {"templates": [secret]}},
        lambda secret: {"metadata": {}, "data": secret["data"]},  # a merge-patch
        lambda secret: [{"op": "add", "path": "/data/password", "value": secret["data"]["password"]}],
        lambda secret: [{"op": "add", "path": "/data", "value": secret["data"]}],
        lambda secret: {**secret, "data": None, "stringData": {"password": PASSWORD}},
        lambda secret: {**secret, "metadata": {"annotations": {"last-applied": json.dumps(secret)}}},
    ],
)
def test_data_of_secrets_is_hidden(wrap: Any) -> None:
    text = json.dumps(redact(Redactor(), wrap(make_secret(password=PASSWORD)), SECRETS))
    assert PASSWORD not in text
    assert encode(PASSWORD) not in text
    assert "redacted-" in text or encode("redacted-")[:10] in text


def test_changes_of_hidden_values_are_seen() -> None:
    redactor = Redactor()
    one, same, other = (redact(redactor, make_secret(x=value), SECRETS)["data"]["x"] for value in ("one", "one", "two"))
    assert one == same != other
    assert base64.b64decode(one).startswith(b"redacted-")
    assert redact(Redactor(), make_secret(x="one"), SECRETS)["data"]["x"] != one  # nobody finds it by trying


def test_copies_are_hidden_everywhere() -> None:
    redactor = Redactor()
    hidden = base64.b64decode(redact(redactor, make_secret(password=PASSWORD), SECRETS)["data"]["password"]).decode()
    url = {"spec": {"url": f"postgres://host/{PASSWORD}/db", "args": [f"--password={PASSWORD}"], "env": PASSWORD}}
    assert redact(redactor, url)["spec"] == {
        "url": f"postgres://host/{hidden}/db",
        "args": [f"--password={hidden}"],
        "env": hidden,
    }
    assert redact(redactor, {"encoded": encode(PASSWORD)}) == {"encoded": encode(hidden)}
    assert redact(redactor, {"annotation": json.dumps({"x": PASSWORD})}) == {"annotation": json.dumps({"x": hidden})}
    assert redact(redactor, {PASSWORD: 1}) == {hidden: 1}
    assert redact(redactor, {"lines": f"password:\n{PASSWORD}"}) == {"lines": f"password:\n{hidden}"}
    assert redactor.redact_text(f"ValueError: {PASSWORD} is wrong") == f"ValueError: {hidden} is wrong"


def test_glued_copies_are_hidden_when_they_are_sent_and_when_they_come_back() -> None:
    redactor = Redactor()
    redact(redactor, make_secret(password="hunter2hunter2"), SECRETS)
    assert "hunter2" not in json.dumps(redact(redactor, {"spec": "abchunter2hunter2xyz"}, is_sent=True))
    assert "hunter2" not in json.dumps(redact(redactor, {"spec": "abchunter2hunter2xyz"}))


@pytest.mark.parametrize("others", [0, 1000])
def test_glued_copies_in_base64_are_hidden_when_they_are_sent_and_when_they_come_back(others: int) -> None:
    redactor = Redactor()
    redact(redactor, make_secret(x=PASSWORD, **{f"x{n}": f"the-other-value-{n}" for n in range(others)}), SECRETS)
    copies = {"plain": f"x{PASSWORD}y", "encoded": encode(f"pre{PASSWORD}"), "long": encode(f"pre{PASSWORD}") * 1000}
    sent = redact(redactor, {"status": copies}, is_sent=True)
    assert PASSWORD not in str(sent)
    assert encode(PASSWORD).rstrip("=") not in str(sent)
    assert redact(redactor, {"status": copies}) == sent


def test_glued_copies_by_others_are_hidden_if_there_are_few_secrets() -> None:
    redactor = Redactor()
    redact(redactor, make_secret(x=PASSWORD, short="test"), SECRETS)
    shown = redact(redactor, {"spec": {"url": f"x{PASSWORD}y", "image": "app:latest"}})
    assert PASSWORD not in str(shown)
    assert shown["spec"]["image"] == "app:latest"


def test_names_of_fields_stay_whatever_the_values_of_secrets_are() -> None:
    redactor = Redactor()
    redact(redactor, make_secret(one="spec", two="metadata", three="object"), SECRETS)
    shown = redact(redactor, {"object": {"metadata": {"name": "obj"}, "spec": {"what": "metadata"}}})
    assert shown["object"]["metadata"] == {"name": "obj"}
    assert shown["object"]["spec"]["what"].startswith("redacted-")


def test_parts_of_values_are_hidden() -> None:
    redactor = Redactor()
    config = {"auths": {"registry": {"username": "robot-account", "password": "s3cr3t-of-registry"}}}
    env = "USER=somebody\nAPI_KEY=0123456789abcdef0123\n"
    redact(redactor, make_secret(dockerconfigjson=json.dumps(config), env=env, key=PEM), SECRETS)
    text = json.dumps(redact(redactor, {"a": "s3cr3t-of-registry", "b": "API_KEY=0123456789abcdef0123", "c": PEM}))
    assert not any(part in text for part in ("s3cr3t", "0123456789abcdef", "MIIEvQIBADANBgkqhkiG9w0"))


def test_short_values_stay_elsewhere() -> None:
    redactor = Redactor()
    redact(redactor, make_secret(port="443", flag="no"), SECRETS)
    assert redact(redactor, {"port": "443", "note": "no"}) == {"port": "443", "note": "no"}


def test_names_of_objects_stay() -> None:
    redactor = Redactor()
    redact(redactor, make_secret(namespace="kube-system"), SECRETS)
    obj = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "kube-system", "namespace": "kube-system"}}
    assert redact(redactor, obj) == obj


@pytest.mark.parametrize(
    "text",
    [
        TOKEN,
        f"Authorization: Bearer {TOKEN}",
        "Bearer 0123abcd4567efgh",
        PEM,
        encode(PEM),
        "https://me:pa55word@host/",
    ],
)
def test_what_looks_secret_is_hidden(text: str) -> None:
    hidden = redact(Redactor(), {"spec": {"text": text}})["spec"]["text"]
    assert "redacted-" in hidden
    assert not any(part in hidden for part in (TOKEN, "0123abcd", "MIIE", encode(PEM), "pa55word"))


def test_issued_tokens_are_hidden() -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/me/token"
    hidden = redact(Redactor(), {"kind": "TokenRequest", "status": {"token": "opaque-token-123"}}, path)
    assert hidden["status"]["token"].startswith(("redacted-", encode("redacted-")[:10]))


@pytest.mark.parametrize(
    "document",
    [
        b'{"kind": "Secret", "data": {"x": "' + encode(PASSWORD).encode() + b'"',
        b"[" * 5000 + b'"Secret"',
        b'"Secret" \xff',
    ],
)
def test_unreadable_secrets_are_hidden_as_a_whole(document: bytes) -> None:
    assert Redactor().redact(document, OTHERS, is_sent=False) == b'{"$text":"redacted"}'


def test_unreadable_documents_have_no_known_secrets() -> None:
    redactor = Redactor()
    redact(redactor, make_secret(password=PASSWORD), SECRETS)
    assert PASSWORD.encode() not in redactor.redact(b"{broken: " + PASSWORD.encode(), OTHERS, is_sent=False)


def test_nothing_secret_is_in_a_recording_and_it_can_be_replayed(tmp_path: pathlib.Path) -> None:
    registry = kopf.OperatorRegistry()
    seen = []

    @kopf.on.event("secrets", registry=registry, id="secret_fn")
    async def secret_fn(name: str, body: kopf.Body, memo: Any, **_: Any) -> None:
        for value in body.get("data", {}).values():
            memo.value = base64.b64decode(value).decode()
            seen.append(memo.value)

    @kopf.on.create("kopfexamples", registry=registry, id="copy_fn")
    async def copy_fn(patch: kopf.Patch, **_: Any) -> None:
        patch.status["copy"] = seen[-1]
        patch.status["url"] = f"postgres://host/{seen[-1]}"
        patch.status["encoded"] = encode(seen[-1])
        patch.status["token"] = TOKEN

    @kopf.on.update("kopfexamples", registry=registry, id="fail_fn")
    async def fail_fn(**_: Any) -> None:
        raise kopf.PermanentError(f"It does not work with {seen[-1]}")

    async def live(simulation: Simulation) -> None:
        simulation.instruments = instruments
        await simulation.restart()
        await simulation.advance()
        await simulation.apply({**make_secret(password=PASSWORD), "apiVersion": "v1"})
        await simulation.until(lambda: PASSWORD in seen)
        await simulation.apply(make("obj"))
        await simulation.advance(seconds=10)
        await simulation.patch("kopfexamples", "obj", {"spec": {"size": 1}})
        await simulation.advance(seconds=10)
        obj = await simulation.get("kopfexamples", "obj")
        assert obj["status"]["copy"] == PASSWORD
        await simulation.stop()

    with (
        contextlib.closing(Writer(tmp_path / "recording", 2**26)) as writer,
        recording_to(writer, options={}) as instruments,
    ):
        simulate(live, registry=registry, operator=False, crds=CRD)
    content = read_all(tmp_path / "recording")
    for text in (PASSWORD, encode(PASSWORD), TOKEN, "simulated-operator", "Authorization"):
        assert text.encode() not in content, text
    assert b"fail_fn" in content
    result = replay(tmp_path / "recording", registry=registry)
    assert result, str(result)


@pytest.mark.parametrize(
    "spec",
    [
        {"password": PASSWORD},
        {"db": [{"adminPassword": PASSWORD}]},
        {"config": f"user=me\npassword={PASSWORD}\n"},
        {"config": f"password: {PASSWORD}"},
        {"config": json.dumps({"password": PASSWORD})},
        {"args": [f"--db-password={PASSWORD}"]},
        {"env": [{"name": "DB_PASSWORD", "value": PASSWORD}]},
        {"api-key": "0123456789abcdef"},
        {"client_secret": "0123456789abcdef"},
        {"auths": {"registry": {"auth": encode(f"me:{PASSWORD}")}}},
        {"config": json.dumps({"auths": {"registry": {"auth": encode(f"me:{PASSWORD}")}}}, indent=2)},
        {"config": json.dumps([{"inner": json.dumps({"token": "0123456789abcdef"})}])},
        {"args": ["run", "--user", "me", "--token", "0123456789abcdef"]},
        {"args": ["--db-password", PASSWORD, "--verbose"]},
        {"args": ["--api-token=0123456789abcdef"]},
        {"args": ["--Access-Key", "0123456789abcdef"]},
        {"command": json.dumps(["--token", "0123456789abcdef"])},
    ],
)
def test_what_is_called_a_secret_is_hidden_before_any_secret_is_known(spec: dict[str, Any]) -> None:
    text = json.dumps(redact(Redactor(), {"spec": spec}))
    assert not any(value in text for value in (PASSWORD, encode(f"me:{PASSWORD}"), "0123456789abcdef"))
    assert "redacted-" in text


def test_what_is_given_to_options_is_hidden_however_short_it_is() -> None:
    args = ["run", "--token", "X", "--password", "Y", "--token=Z", "--token", "X"]
    shown = redact(Redactor(), {"spec": {"args": args}})["spec"]["args"]
    assert [shown[i] for i in (0, 1, 3, 6)] == [args[i] for i in (0, 1, 3, 6)]
    assert all("redacted-" in shown[i] for i in (2, 4, 5, 7))
    assert shown[2] == shown[7]


def test_what_is_called_a_secret_is_hidden_in_its_copies_too() -> None:
    annotations = {"last": json.dumps({"spec": {"password": PASSWORD}})}
    spec = {"x": PASSWORD, "password": PASSWORD}
    shown = redact(Redactor(), {"metadata": {"annotations": annotations}, "spec": spec})
    assert PASSWORD not in json.dumps(shown)
    assert shown["spec"]["x"] == shown["spec"]["password"]


def test_documents_in_documents_are_as_they_are_if_nothing_is_secret_in_them() -> None:
    text = json.dumps({"auth": "basic", "token": "my-token", "x": [1e5]}, indent=2)
    assert redact(Redactor(), {"spec": {"config": text}}) == {"spec": {"config": text}}


def test_copies_of_keys_are_the_same_in_documents_in_documents() -> None:
    """Otherwise, the last handled state would differ from the current one in a replay."""
    key = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"
    annotations = {"last": json.dumps({"spec": {"x": key}})}
    shown = redact(Redactor(), {"metadata": {"annotations": annotations}, "spec": {"x": key}})
    assert json.loads(shown["metadata"]["annotations"]["last"])["spec"] == shown["spec"]
    assert key not in shown["spec"]["x"]


@pytest.mark.parametrize(
    "spec",
    [
        {"passwordSecretRef": {"name": "my-secret", "key": "password"}},
        {"tokenSecret": "my-secret-1", "token": "my-token", "auth": "basic", "secretKey": "password"},
        {"properties": {"password": {"type": "string"}}, "required": ["password"]},
        {"env": [{"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}}]},
        {"password": ""},
        {"args": ["--token", "--password", "-v", "--password=", "--token="]},
        {"args": ["--no-password", "db", "--token-file", "/var/token", "--password-stdin", "x", "-p", "8080"]},
        {"args": ["token", "my-token", "--secret-key", "my-key", "--token"]},
    ],
)
def test_names_of_secrets_and_of_keys_are_no_secrets(spec: dict[str, Any]) -> None:
    assert redact(Redactor(), {"spec": spec}) == {"spec": spec}
