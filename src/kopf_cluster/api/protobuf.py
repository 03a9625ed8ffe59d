"""
Requests in Kubernetes' binary form: protobuf → the same object as in JSON.

``kubectl create namespace`` and its like, and clients in Go, send built-in objects only so, whatever the server
offers. Answers are always in JSON, as those clients accept that too. Known are the messages that such
commands and leader elections send; everything else is refused with the advice to send JSON.

The wire format is that of protocol buffers; the envelope is described in "Kubernetes Protobuf encoding"
of the Kubernetes "API Concepts".
"""
from __future__ import annotations

import base64
import datetime
import functools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .. import codec

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"

# Messages with their fields: ``number name type``. The types: s(tring), i(nteger), b(oolean), x (bytes), t(ime),
# q(uantity), j (raw JSON of ``FieldsV1``),
# o (integer or string), - (ignored), or another message; with ``[]`` for lists and ``{}`` for maps from strings.
# Where a kind differs from group to group, it has the version after an ``@``.
# ``?`` marks the fields that can be absent: their empty values have a meaning, while those of the others have none.
_MESSAGES: Final = """
ObjectMeta: 1 name s, 2 generateName s, 3 namespace s, 4 selfLink s, 5 uid s, 6 resourceVersion s, 7 generation i,
    8 creationTimestamp t, 9 deletionTimestamp t, 10 deletionGracePeriodSeconds i?, 11 labels {}s, 12 annotations {}s,
    13 ownerReferences []OwnerReference, 14 finalizers []s, 17 managedFields []ManagedFieldsEntry
ManagedFieldsEntry: 1 manager s, 2 operation s, 3 apiVersion s, 4 time t, 6 fieldsType s, 7 fieldsV1 j,
    8 subresource s
OwnerReference: 1 kind s, 3 name s, 4 uid s, 5 apiVersion s, 6 controller b?, 7 blockOwnerDeletion b?
LabelSelector: 1 matchLabels {}s, 2 matchExpressions []LabelSelectorRequirement
LabelSelectorRequirement: 1 key s, 2 operator s, 3 values []s
DeleteOptions: 1 gracePeriodSeconds i?, 2 preconditions Preconditions, 3 orphanDependents b?, 4 propagationPolicy s?,
    5 dryRun []s
Preconditions: 1 uid s?, 2 resourceVersion s?
ObjectReference: 1 kind s, 2 namespace s, 3 name s, 4 uid s, 5 apiVersion s, 6 resourceVersion s, 7 fieldPath s
LocalObjectReference: 1 name s
Namespace: 1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status -
NamespaceSpec: 1 finalizers []s
ConfigMap: 1 metadata ObjectMeta, 2 data {}s, 3 binaryData {}x, 4 immutable b?
Secret: 1 metadata ObjectMeta, 2 data {}x, 3 type s, 4 stringData {}s, 5 immutable b?
ServiceAccount: 1 metadata ObjectMeta, 2 secrets []ObjectReference, 3 imagePullSecrets []LocalObjectReference,
    4 automountServiceAccountToken b?
Service: 1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status -
ServiceSpec: 1 ports []ServicePort, 2 selector {}s, 3 clusterIP s, 4 type s, 5 externalIPs []s, 7 sessionAffinity s,
    8 loadBalancerIP s, 9 loadBalancerSourceRanges []s, 10 externalName s, 11 externalTrafficPolicy s,
    12 healthCheckNodePort i, 13 publishNotReadyAddresses b, 17 ipFamilyPolicy s?, 18 clusterIPs []s, 19 ipFamilies []s,
    20 allocateLoadBalancerNodePorts b?, 21 loadBalancerClass s?, 22 internalTrafficPolicy s?
ServicePort: 1 name s, 2 protocol s, 3 port i, 4 targetPort o, 5 nodePort i, 6 appProtocol s?
ResourceQuota: 1 metadata ObjectMeta, 2 spec ResourceQuotaSpec, 3 status -
ResourceQuotaSpec: 1 hard {}q, 2 scopes []s
Event: 1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason s, 4 message s, 5 source EventSource,
    6 firstTimestamp t, 7 lastTimestamp t, 8 count i, 9 type s, 10 eventTime t, 12 action s, 11 series EventSeries,
    13 related ObjectReference, 14 reportingComponent s, 15 reportingInstance s
Event@events.k8s.io/v1: 1 metadata ObjectMeta, 2 eventTime t, 3 series EventSeries, 4 reportingController s,
    5 reportingInstance s, 6 action s, 7 reason s, 8 regarding ObjectReference, 9 related ObjectReference, 10 note s,
    11 type s, 12 deprecatedSource EventSource, 13 deprecatedFirstTimestamp t, 14 deprecatedLastTimestamp t,
    15 deprecatedCount i
EventSeries: 1 count i, 2 lastObservedTime t
EventSource: 1 component s, 2 host s
Pod: 1 metadata ObjectMeta, 2 spec PodSpec, 3 status -
PodTemplateSpec: 1 metadata ObjectMeta, 2 spec PodSpec
PodSpec: 1 volumes []Volume, 2 containers []Container, 3 restartPolicy s, 4 terminationGracePeriodSeconds i?,
    5 activeDeadlineSeconds i?, 6 dnsPolicy s, 7 nodeSelector {}s, 8 serviceAccountName s, 9 serviceAccount s,
    10 nodeName s, 11 hostNetwork b, 12 hostPID b, 13 hostIPC b, 14 securityContext PodSecurityContext?,
    15 imagePullSecrets []LocalObjectReference, 16 hostname s, 17 subdomain s, 19 schedulerName s,
    20 initContainers []Container, 21 automountServiceAccountToken b?, 22 tolerations []Toleration,
    24 priorityClassName s, 25 priority i?, 27 shareProcessNamespace b?, 29 runtimeClassName s?,
    30 enableServiceLinks b?, 31 preemptionPolicy s?, 35 setHostnameAsFQDN b?, 37 hostUsers b?
PodSecurityContext: 2 runAsUser i?, 3 runAsNonRoot b?, 4 supplementalGroups []i, 5 fsGroup i?, 6 runAsGroup i?,
    9 fsGroupChangePolicy s?
SecurityContext: 1 capabilities Capabilities, 2 privileged b?, 4 runAsUser i?, 5 runAsNonRoot b?,
    6 readOnlyRootFilesystem b?, 7 allowPrivilegeEscalation b?, 8 runAsGroup i?
Capabilities: 1 add []s, 2 drop []s
Toleration: 1 key s, 2 operator s, 3 value s, 4 effect s, 5 tolerationSeconds i?
Volume: 1 name s, 2 - VolumeSource
VolumeSource: 1 hostPath HostPathVolumeSource, 2 emptyDir EmptyDirVolumeSource?, 6 secret SecretVolumeSource,
    10 persistentVolumeClaim PersistentVolumeClaimVolumeSource, 19 configMap ConfigMapVolumeSource
HostPathVolumeSource: 1 path s, 2 type s?
EmptyDirVolumeSource: 1 medium s, 2 sizeLimit q
SecretVolumeSource: 1 secretName s, 2 items []KeyToPath, 3 defaultMode i?, 4 optional b?
PersistentVolumeClaimVolumeSource: 1 claimName s, 2 readOnly b
ConfigMapVolumeSource: 1 - LocalObjectReference, 2 items []KeyToPath, 3 defaultMode i?, 4 optional b?
KeyToPath: 1 key s, 2 path s, 3 mode i?
VolumeMount: 1 name s, 2 readOnly b, 3 mountPath s, 4 subPath s, 5 mountPropagation s?
Container: 1 name s, 2 image s, 3 command []s, 4 args []s, 5 workingDir s, 6 ports []ContainerPort, 7 env []EnvVar,
    8 resources ResourceRequirements, 9 volumeMounts []VolumeMount, 10 livenessProbe Probe, 11 readinessProbe Probe,
    13 terminationMessagePath s, 14 imagePullPolicy s, 15 securityContext SecurityContext?, 16 stdin b, 17 stdinOnce b,
    18 tty b, 19 envFrom []EnvFromSource, 20 terminationMessagePolicy s, 22 startupProbe Probe
Probe: 1 - ProbeHandler, 2 initialDelaySeconds i, 3 timeoutSeconds i, 4 periodSeconds i, 5 successThreshold i,
    6 failureThreshold i, 7 terminationGracePeriodSeconds i?
ProbeHandler: 1 exec ExecAction, 2 httpGet HTTPGetAction, 3 tcpSocket TCPSocketAction
ExecAction: 1 command []s
HTTPGetAction: 1 path s, 2 port o, 3 host s, 4 scheme s
TCPSocketAction: 1 port o, 2 host s
EnvFromSource: 1 prefix s, 2 configMapRef OptionalReference, 3 secretRef OptionalReference
OptionalReference: 1 - LocalObjectReference, 2 optional b?
ContainerPort: 1 name s, 2 hostPort i, 3 containerPort i, 4 protocol s, 5 hostIP s
EnvVar: 1 name s, 2 value s, 3 valueFrom EnvVarSource
EnvVarSource: 1 fieldRef ObjectFieldSelector, 3 configMapKeyRef KeySelector, 4 secretKeyRef KeySelector
ObjectFieldSelector: 1 apiVersion s, 2 fieldPath s
KeySelector: 1 - LocalObjectReference, 2 key s, 3 optional b?
ResourceRequirements: 1 limits {}q, 2 requests {}q
Deployment: 1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status -
DeploymentSpec: 1 replicas i?, 2 selector LabelSelector, 3 template PodTemplateSpec, 4 strategy DeploymentStrategy,
    5 minReadySeconds i, 6 revisionHistoryLimit i?, 7 paused b, 9 progressDeadlineSeconds i?
DeploymentStrategy: 1 type s, 2 rollingUpdate RollingUpdate
RollingUpdate: 1 maxUnavailable o, 2 maxSurge o
Job: 1 metadata ObjectMeta, 2 spec JobSpec, 3 status -
JobSpec: 1 parallelism i?, 2 completions i?, 3 activeDeadlineSeconds i?, 4 selector LabelSelector, 5 manualSelector b?,
    6 template PodTemplateSpec, 7 backoffLimit i?, 8 ttlSecondsAfterFinished i?, 9 completionMode s?, 10 suspend b?,
    14 podReplacementPolicy s?
CronJob: 1 metadata ObjectMeta, 2 spec CronJobSpec, 3 status -
CronJobSpec: 1 schedule s, 2 startingDeadlineSeconds i?, 3 concurrencyPolicy s, 4 suspend b?,
    5 jobTemplate JobTemplateSpec, 6 successfulJobsHistoryLimit i?, 7 failedJobsHistoryLimit i?, 8 timeZone s?
JobTemplateSpec: 1 metadata ObjectMeta, 2 spec JobSpec
HorizontalPodAutoscaler@autoscaling/v1: 1 metadata ObjectMeta, 2 spec AutoscalerSpec1, 3 status -
AutoscalerSpec1: 1 scaleTargetRef ScaleTarget, 2 minReplicas i?, 3 maxReplicas i, 4 targetCPUUtilizationPercentage i?
HorizontalPodAutoscaler@autoscaling/v2: 1 metadata ObjectMeta, 2 spec AutoscalerSpec2, 3 status -
AutoscalerSpec2: 1 scaleTargetRef ScaleTarget, 2 minReplicas i?, 3 maxReplicas i, 4 metrics []MetricSpec
ScaleTarget: 1 kind s, 2 name s, 3 apiVersion s
MetricSpec: 1 type s, 4 resource ResourceMetricSource
ResourceMetricSource: 1 name s, 2 target MetricTarget
MetricTarget: 1 type s, 2 value q, 3 averageValue q, 4 averageUtilization i?
Scale: 1 metadata ObjectMeta, 2 spec ScaleSpec, 3 status -
ScaleSpec: 1 replicas i
Eviction: 1 metadata ObjectMeta, 2 deleteOptions DeleteOptions
Binding: 1 metadata ObjectMeta, 2 target ObjectReference
Role: 1 metadata ObjectMeta, 2 rules []PolicyRule
ClusterRole: 1 metadata ObjectMeta, 2 rules []PolicyRule, 3 aggregationRule AggregationRule
AggregationRule: 1 clusterRoleSelectors []LabelSelector
PolicyRule: 1 verbs []s, 2 apiGroups []s, 3 resources []s, 4 resourceNames []s, 5 nonResourceURLs []s
RoleBinding: 1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef
ClusterRoleBinding: 1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef
Subject: 1 kind s, 2 apiGroup s, 3 name s, 4 namespace s
RoleRef: 1 apiGroup s, 2 kind s, 3 name s
PriorityClass: 1 metadata ObjectMeta, 2 value i, 3 globalDefault b, 4 description s, 5 preemptionPolicy s?
PodDisruptionBudget: 1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec, 3 status -
PodDisruptionBudgetSpec: 1 minAvailable o, 2 selector LabelSelector, 3 maxUnavailable o
Ingress: 1 metadata ObjectMeta, 2 spec IngressSpec, 3 status -
IngressSpec: 1 defaultBackend IngressBackend, 2 tls []IngressTLS, 3 rules []IngressRule, 4 ingressClassName s?
IngressTLS: 1 hosts []s, 2 secretName s
IngressRule: 1 host s, 2 - IngressRuleValue
IngressRuleValue: 1 http HTTPIngressRuleValue
HTTPIngressRuleValue: 1 paths []HTTPIngressPath
HTTPIngressPath: 1 path s, 2 backend IngressBackend, 3 pathType s?
IngressBackend: 4 service IngressServiceBackend
IngressServiceBackend: 1 name s, 2 port ServiceBackendPort
ServiceBackendPort: 1 name s, 2 number i
Lease: 1 metadata ObjectMeta, 2 spec LeaseSpec
LeaseSpec: 1 holderIdentity s?, 2 leaseDurationSeconds i?, 3 acquireTime t, 4 renewTime t, 5 leaseTransitions i?
SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec SubjectAccessReviewSpec, 3 status -
SubjectAccessReview: 1 metadata ObjectMeta, 2 spec SubjectAccessReviewSpec, 3 status -
LocalSubjectAccessReview: 1 metadata ObjectMeta, 2 spec SubjectAccessReviewSpec, 3 status -
SubjectAccessReviewSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes,
    3 user s, 4 groups []s, 6 uid s
ResourceAttributes: 1 namespace s, 2 verb s, 3 group s, 4 version s, 5 resource s, 6 subresource s, 7 name s
NonResourceAttributes: 1 path s, 2 verb s
SelfSubjectRulesReview: 1 metadata ObjectMeta, 2 spec SelfSubjectRulesReviewSpec, 3 status -
SelfSubjectRulesReviewSpec: 1 namespace s
SelfSubjectReview: 1 metadata ObjectMeta, 2 status -
TokenReview: 1 metadata ObjectMeta, 2 spec TokenReviewSpec, 3 status -
TokenReviewSpec: 1 token s, 2 audiences []s
TokenRequest: 1 metadata ObjectMeta, 2 spec TokenRequestSpec, 3 status -
TokenRequestSpec: 1 audiences []s, 3 boundObjectRef BoundObjectReference, 4 expirationSeconds i?
BoundObjectReference: 1 kind s, 2 apiVersion s, 3 name s, 4 uid s
Time: 1 seconds i, 2 nanos i
Quantity: 1 string s?
FieldsV1: 1 raw r
IntOrString: 1 type i, 2 intVal i?, 3 strVal s?
Unknown: 1 typeMeta TypeMeta, 2 raw r, 3 contentEncoding s, 4 contentType s
TypeMeta: 1 apiVersion s, 2 kind s
"""


class ProtobufError(ValueError):
    """The bytes are not protobuf, or not of a known message."""


class Field(msgspec.Struct, frozen=True):
    name: str
    type: str
    repeated: bool
    mapped: bool
    optional: bool


@functools.cache
def _tables() -> dict[str, dict[int, Field]]:
    tables: dict[str, dict[int, Field]] = {}
    for line in _MESSAGES.strip().replace("\n    ", " ").splitlines():
        message, _, fields = line.partition(":")
        tables[message] = dict(_parse_field(field.split()) for field in fields.split(",") if field.strip())
    return tables


def _parse_field(words: list[str]) -> tuple[int, Field]:
    number, name, type_ = words
    return int(number), Field(name=name, type=type_.strip("[]{}?"), repeated=type_.startswith("[]"),
                              mapped=type_.startswith("{}"), optional=type_.endswith("?"))


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode an object in its envelope, or raise `ProtobufError`."""
    if not data.startswith(_MAGIC):
        raise ProtobufError("the data does not begin as Kubernetes' protobuf does")
    envelope = _decode_message("Unknown", data[len(_MAGIC):])
    meta = envelope.get("typeMeta", {})
    kind = meta.get("kind", "")
    versioned = f"{kind}@{meta.get('apiVersion', '')}"
    kind = versioned if versioned in _tables() else kind
    if kind not in _BARE and not any(field.name == "metadata" for field in _tables().get(kind, {}).values()):
        raise ProtobufError(f"objects of the kind {kind!r} can be sent to the local cluster only as JSON")
    return {**meta, **_decode_message(kind, envelope.get("raw", b""))}


# Messages that are sent on their own, but have no metadata.
_BARE: Final = frozenset({"DeleteOptions"})


def _decode_message(message: str, data: bytes) -> dict[str, Any]:
    table = _tables()[message]
    result: dict[str, Any] = {}
    for number, value in _read_fields(data):
        field = table.get(number)
        if field is None:
            raise ProtobufError(f"field {number} of {message} is not known to the local cluster, send it as JSON")
        if field.mapped:
            key, item = _decode_entry(field.type, value)
            result.setdefault(field.name, {})[key] = item
        elif field.repeated:
            result.setdefault(field.name, []).append(_decode_value(field.type, value))
        else:
            decoded = _decode_value(field.type, value)
            if field.name == "-":
                result.update(decoded)
            elif field.optional or decoded not in (None, "", 0, False, {}, b""):
                result[field.name] = decoded
    return result


def _decode_entry(type_: str, value: int | bytes) -> tuple[str, Any]:
    entry = dict(_read_fields(_need_bytes(value)))
    empty: bytes | int = 0 if type_ in ("i", "b") else b""
    return _decode_text(_need_bytes(entry.get(1, b""))), _decode_value(type_, entry.get(2, empty))


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtobufError(f"a string is not in UTF-8: {error}") from None


def _decode_value(type_: str, value: int | bytes) -> Any:
    if type_ == "i":
        return _signed(value)
    if type_ == "b":
        return bool(value)
    if type_ == "-":
        return None
    data = _need_bytes(value)
    match type_:
        case "s":
            return _decode_text(data)
        case "x":
            return base64.b64encode(data).decode()
        case "r":
            return data
        case "t":
            return _decode_time(_decode_message("Time", data))
        case "q":
            return _decode_message("Quantity", data).get("string", "0")
        case "j":
            return _decode_json(_decode_message("FieldsV1", data).get("raw", b"{}"))
        case "o":
            choice = _decode_message("IntOrString", data)
            return choice.get("strVal", "") if choice.get("type") else choice.get("intVal", 0)
    return _decode_message(type_, data)


def _decode_json(data: bytes) -> Any:
    try:
        return codec.decode(data)
    except (codec.DecodeError, RecursionError) as error:
        raise ProtobufError(f"managed fields are not in JSON: {error}") from None


def _decode_time(parts: dict[str, int]) -> str | None:
    """Give a timestamp; the absent time is the year 1 in Go, or nothing at all."""
    seconds, nanos = parts.get("seconds", 0), parts.get("nanos", 0)
    if seconds <= 0:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{nanos // 1000:06d}Z" if nanos else f"{moment}Z"


def _signed(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ProtobufError("an integer is expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _need_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ProtobufError("bytes are expected")
    return value


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Split a message into numbered values: integers, or bytes of anything else."""
    pos = 0
    while pos < len(data):
        tag, pos = _read_varint(data, pos)
        wire = tag & 7
        if wire == 0:
            value, pos = _read_varint(data, pos)
            yield tag >> 3, value
        elif wire == 2:
            size, pos = _read_varint(data, pos)
            if pos + size > len(data):
                raise ProtobufError("the data are cut")
            yield tag >> 3, data[pos:pos + size]
            pos += size
        else:
            raise ProtobufError(f"wire type {wire} is not used by Kubernetes")


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    result = shift = 0
    while pos < len(data) and shift < 70:
        byte = data[pos]
        pos += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result, pos
        shift += 7
    raise ProtobufError("the data are cut or malformed")
