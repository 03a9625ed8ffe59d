"""Checks and completes KopfExamples before they are stored: on a laptop, and in a cluster."""

import os

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.admission.managed = "kopfexamples.kopf.dev"
    if "POD_NAMESPACE" in os.environ:  # see deployment.yaml & service.yaml
        settings.admission.server = kopf.WebhookServiceServer(
            "kopfexample-webhooks",
            namespace=os.environ["POD_NAMESPACE"],
            port=int(os.environ.get("WEBHOOK_PORT", "9443")),
        )
    else:
        settings.admission.server = kopf.WebhookAutoServer(port=0)


@kopf.on.validate("kopf.dev", "v1", "kopfexamples", operations=["CREATE", "UPDATE"])
def check_duration(spec, warnings, **_):
    duration = spec.get("duration", "1m")
    if not (isinstance(duration, str) and duration[:-1].isdigit() and duration[-1] in "smhd"):
        raise kopf.AdmissionError(f"The duration must be a number with s, m, h, or d: not {duration!r}.", code=400)
    if duration.endswith("d"):
        warnings.append(f"It will run for {duration}. Are you sure?")


@kopf.on.mutate("kopf.dev", "v1", "kopfexamples", operation="CREATE")
def set_duration(spec, patch, **_):
    if "duration" not in spec:
        patch.spec["duration"] = "1m"


@kopf.on.mutate("kopf.dev", "v1", "kopfexamples", operation="CREATE")
def note_creator(userinfo, patch, **_):
    patch.meta.annotations["kopf.dev/created-by"] = userinfo["username"]


@kopf.on.validate("kopf.dev", "v1", "kopfexamples", operation="DELETE", labels={"protected": kopf.PRESENT})
def protect(name, **_):
    raise kopf.AdmissionError(f"{name} is protected. To delete it, remove the label first.", code=403)
