"""
Hierarchies: making the objects that an operator creates into children of the object that it handles.

The functions modify the objects before they are sent to the API by any client. Where the owner, the labels,
the name, or the namespace is not given, it is taken from the object of the handler that is being executed.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._handlers.current_handler import current_cause
from kopf._kits.manifests import K8sObjects, Manifest, get_field, get_meta, list_nested, open_manifests, set_meta
from kopf._values.fields import FieldPath, parse_field
from kopf._values.references import OwnerReference, build_owner_reference

logger = logging.getLogger(__name__)

NestedSpec = str | Iterable[str | tuple[str, ...] | list[str] | None] | None

RECONCILER_LABEL = "kopf.dev/reconciler"
"""Who has yielded the object. It is never inherited: the children would be taken for what is not yielded anymore."""

# Of the kinds that Kubernetes itself brings, those without namespaces. Custom resources can be either.
CLUSTER_SCOPED_KINDS = frozenset(
    {
        ("", "Namespace"),
        ("", "Node"),
        ("", "PersistentVolume"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("networking.k8s.io", "IngressClass"),
        ("node.k8s.io", "RuntimeClass"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
    }
)


def adopt(
    objs: K8sObjects,
    owner: Mapping[str, Any] | None = None,
    *,
    forced: bool = False,
    strict: bool = False,
    nested: NestedSpec = None,
) -> None:
    """
    Make the object(s) children of the owner: named, placed, and labelled after it, and deleted with it.

    It is the same as calling, with the same options, :func:`harmonize_naming`, :func:`adjust_namespace`,
    :func:`label`, and :func:`append_owner_reference`.

    :raises LookupError: if the owner is not given and no handler is being executed.
    """
    body = _get_owner(owner)
    meta: Mapping[str, Any] = body.get("metadata") or {}
    for manifest in open_manifests(objs):
        _set_name(manifest, meta.get("name"), forced=forced, strict=strict)
        if not _is_cluster_scoped(manifest):
            _set_namespace(manifest, meta.get("namespace"), forced=forced)
        _set_labels(manifest, _get_inherited_labels(body), forced=forced, nested=nested)
        _append_owner(manifest, body, build_owner_reference(body))


def append_owner_reference(
    objs: K8sObjects,
    owner: Mapping[str, Any] | None = None,
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> None:
    """
    Make the object(s) owned by the owner, so that Kubernetes deletes them when the owner is deleted.

    If an object is already owned by this owner, the existing reference is kept as it is.

    If the owner is in a namespace, and the object is in another one or in none, this is done, too, but warned of:
    Kubernetes does not find such an owner and deletes the child as an orphan. See
    https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/

    :param controller: whether the owner is the managing controller; an object can have only one such owner.
    :param block_owner_deletion: whether the owner stays until this child is gone in foreground deletions.
    :raises LookupError: if the owner is not given and no handler is being executed.
    """
    body = _get_owner(owner)
    ref = build_owner_reference(body, controller=controller, block_owner_deletion=block_owner_deletion)
    for manifest in open_manifests(objs):
        _append_owner(manifest, body, ref)


def remove_owner_reference(
    objs: K8sObjects,
    owner: Mapping[str, Any] | None = None,
) -> None:
    """
    Make the object(s) not owned by the owner anymore; nothing happens if they are not.

    :raises LookupError: if the owner is not given and no handler is being executed.
    """
    uid = build_owner_reference(_get_owner(owner)).get("uid")
    for manifest in open_manifests(objs):
        refs: list[OwnerReference] | None = get_meta(manifest, "ownerReferences")
        if refs and any(ref.get("uid") == uid for ref in refs):
            set_meta(manifest, "ownerReferences", [ref for ref in refs if ref.get("uid") != uid])


def label(
    objs: K8sObjects,
    labels: Mapping[str, str | None] | None = None,
    *,
    forced: bool = False,
    nested: NestedSpec = None,
    force: bool | None = None,
) -> None:
    """
    Add the labels to the object(s); the labels that are already there are kept unless ``forced``.

    :param labels: the labels to add; by default, the labels of the object being handled.
    :param nested: the fields with nested structures to be labelled too, if they exist:
        e.g. ``'spec.template'`` for pods of deployments. In lists, every item is labelled.
    :param force: the former name of ``forced``.
    :raises LookupError: if the labels are not given and no handler is being executed.
    """
    if force is not None:
        warnings.warn("force= is deprecated in kopf.label(); use forced=.", DeprecationWarning, stacklevel=2)
        forced = force
    if labels is None:
        labels = _get_inherited_labels(_get_owner(None))
    for manifest in open_manifests(objs):
        _set_labels(manifest, labels, forced=forced, nested=nested)


def harmonize_naming(
    objs: K8sObjects,
    name: str | None = None,
    *,
    forced: bool = False,
    strict: bool = False,
) -> None:
    """
    Name the object(s); those with names (or with name prefixes) keep them unless ``forced``.

    :param name: the name to give; by default, the name of the object being handled.
    :param strict: whether to give exactly this name; by default, it becomes a prefix, and Kubernetes adds
        a random suffix on creation (``metadata.generateName``).
    :raises LookupError: if the name is not given and no handler is being executed.
    """
    if name is None:
        name = (_get_owner(None).get("metadata") or {}).get("name")
    for manifest in open_manifests(objs):
        _set_name(manifest, name, forced=forced, strict=strict)


def adjust_namespace(
    objs: K8sObjects,
    namespace: str | None = None,
    *,
    forced: bool = False,
) -> None:
    """
    Put the object(s) into the namespace; those with namespaces keep them unless ``forced``.

    :param namespace: the namespace to set; by default, the one of the object being handled. If that object
        is cluster-scoped, then the namespaces are left as they are, or removed if ``forced``.
    :raises LookupError: if the namespace is not given and no handler is being executed.
    """
    if namespace is None:
        namespace = (_get_owner(None).get("metadata") or {}).get("namespace")
    for manifest in open_manifests(objs):
        _set_namespace(manifest, namespace, forced=forced)


def _get_owner(owner: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if owner is not None:
        return owner
    try:
        return current_cause.get().body
    except LookupError:
        raise LookupError(
            "No handler is being executed here, so there is no object to take as the owner (or to take the "
            "labels, the name, the namespace from). Pass it explicitly, e.g. kopf.adopt(obj, owner=body). "
            "Note that threads started by handlers are not handlers themselves."
        ) from None


def _set_name(manifest: Manifest, name: str | None, *, forced: bool, strict: bool) -> None:
    if forced or not (get_meta(manifest, "name") or get_meta(manifest, "generateName")):
        set_meta(manifest, "name", name if strict else None)
        set_meta(manifest, "generateName", None if strict or not name else f"{name}-")


def _set_namespace(manifest: Manifest, namespace: str | None, *, forced: bool) -> None:
    if forced or not get_meta(manifest, "namespace"):
        set_meta(manifest, "namespace", namespace)


def _get_inherited_labels(owner: Mapping[str, Any]) -> Mapping[str, str | None]:
    labels = (owner.get("metadata") or {}).get("labels") or {}
    return {key: value for key, value in labels.items() if key != RECONCILER_LABEL}


def _set_labels(
    manifest: Manifest,
    labels: Mapping[str, str | None],
    *,
    forced: bool,
    nested: NestedSpec = None,
) -> None:
    if not labels:
        return
    targets = [manifest, *(inner for path in _parse_nested(nested) for inner in list_nested(manifest, path))]
    for target in targets:
        existing: Mapping[str, str | None] = get_meta(target, "labels") or {}
        set_meta(target, "labels", {**existing, **labels} if forced else {**labels, **existing})


def _parse_nested(nested: NestedSpec) -> list[FieldPath]:
    specs = [nested] if nested is None or isinstance(nested, str) else nested
    return [path for spec in specs if (path := parse_field(spec))]


def _append_owner(manifest: Manifest, owner: Mapping[str, Any], ref: OwnerReference) -> None:
    _warn_of_scopes(manifest, owner)
    refs: list[OwnerReference] = get_meta(manifest, "ownerReferences") or []
    if not any(existing.get("uid") == ref.get("uid") for existing in refs):
        set_meta(manifest, "ownerReferences", [*refs, ref.copy()])


def _warn_of_scopes(manifest: Manifest, owner: Mapping[str, Any]) -> None:
    """Warn of the owner that Kubernetes is not going to find, as far as the scopes are known in advance."""
    owner_meta: Mapping[str, Any] = owner.get("metadata") or {}
    owner_namespace = owner_meta.get("namespace")
    if not owner_namespace:
        return  # cluster-scoped owners can own anything
    namespace = get_meta(manifest, "namespace")
    if _is_cluster_scoped(manifest):
        scope = "cluster-scoped"
    elif namespace and namespace != owner_namespace:
        scope = f"in the namespace {namespace!r}"
    else:
        return
    child = get_meta(manifest, "name") or get_meta(manifest, "generateName") or ""
    logger.warning(
        "%s %r in the namespace %r cannot own %s %r, which is %s: Kubernetes looks for owners only in the same "
        "namespace, and deletes the children with no owners. Delete such a child in a deletion handler instead.",
        owner.get("kind") or "The object",
        owner_meta.get("name"),
        owner_namespace,
        get_field(manifest, "kind") or "the object",
        child,
        scope,
    )


def _is_cluster_scoped(manifest: Manifest) -> bool:
    group, _, _ = (get_field(manifest, "apiVersion") or "").rpartition("/")
    return (group, get_field(manifest, "kind")) in CLUSTER_SCOPED_KINDS
