"""
Users of a PostgreSQL server: each has a role in the server, and a Secret with the password of that role.

To change the password, edit it in the Secret, or delete the Secret to get a random one.
"""

import base64
import secrets

import kubernetes
import postgres

import kopf


@kopf.on.create("postgresusers", owns="secrets", backoff=10)
@kopf.on.update("postgresusers", owns="secrets", backoff=10)
def ensure_user(uid, name, namespace, spec, patch, **_):
    role = get_role(namespace, name)
    password = ensure_password(uid, name, namespace, role)  # it is stored before it is used: no crash can lose it
    try:
        postgres.ensure_role(role, password, spec.get("memberOf", []))
    except postgres.UnavailableError as e:
        raise kopf.TemporaryError(f"The server is not available: {e}", delay=10) from e
    except postgres.NoSuchRoleError as e:
        raise kopf.PermanentError(f"There is no such role: {e}") from e  # until the spec is changed
    patch.status["role"] = role


@kopf.on.delete("postgresusers", backoff=10)
def drop_user(name, namespace, **_):
    try:
        postgres.drop_role(get_role(namespace, name))
    except postgres.UnavailableError as e:
        raise kopf.TemporaryError(f"The server is not available: {e}", delay=10) from e


def get_role(namespace, name):
    """Name the role. The names of Kubernetes have no underscores, so no two objects have the same role."""
    role = f"{namespace}_{name}"
    if len(role) > postgres.MAX_NAME:
        raise kopf.PermanentError(f"The name of the role is too long: {role}")
    return role


def ensure_password(uid, name, namespace, role):
    """Give the password that is in the Secret; if there is no Secret, make one."""
    api = kubernetes.client.CoreV1Api()
    secret = {"metadata": {"name": name}, "stringData": {"username": role, "password": secrets.token_urlsafe(24)}}
    kopf.adopt(secret)
    try:
        stored = api.create_namespaced_secret(namespace, secret)
    except kubernetes.client.ApiException as e:
        if e.status != 409:
            raise
        stored = api.read_namespaced_secret(name, namespace)
    if uid not in {owner.uid for owner in stored.metadata.owner_references or []}:
        raise kopf.TemporaryError(f"There is a Secret {name!r} already, which is not ours.", delay=60)
    return base64.b64decode(stored.data["password"]).decode()
