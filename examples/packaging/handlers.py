"""Each greeting gets a ConfigMap. The permissions in the manifests follow from this code."""

import kopf


@kopf.reconcile("greetings", owns="configmaps")
async def greet(spec, **_):
    yield {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": spec["text"]}}
