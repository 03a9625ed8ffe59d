"""
The walkthrough of the ephemeral volume claims, unattended: every step is done as a user would do it, and
what was expected is compared with what has really happened. The exit code is 0 only if all of it is the same.

Nothing is needed but Python: the Kubernetes API is served by the local cluster of the framework. The operator
is a real `kopf run` in a process of its own, and the user is the official Kubernetes client.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import kubernetes
import yaml

from kopf.testing import LocalCluster

HERE = pathlib.Path(__file__).parent
EVC = {"group": "kopf.dev", "version": "v1", "plural": "ephemeralvolumeclaims", "namespace": "default"}

STEP_TIMEOUT = 60  # seconds
TOTAL_TIMEOUT = 120  # seconds


class Demo:
    """Goes through the steps, and remembers if anything was not as expected."""

    def __init__(self, operator, log):
        self.operator = operator
        self.log = log.open()
        self.steps = 0
        self.failures = 0

    def step(self, title, action, expectations):
        """Do something, and wait until everything is as expected: what -> (the expected value, a way to see it)."""
        self.steps += 1
        started = time.monotonic()
        print(f"\n{self.steps}. {title}")
        try:
            action()
        except kubernetes.client.ApiException as e:
            print(f"   FAIL the API has refused it: {e.status} {e.reason}")
            self.failures += 1
            return
        while True:
            seen = {what: see() for what, (_, see) in expectations.items()}
            differing = [what for what, (expected, _) in expectations.items() if seen[what] != expected]
            if not differing or time.monotonic() > started + STEP_TIMEOUT or self.operator.poll() is not None:
                break
            time.sleep(0.05)
        self.show_log()
        for what, (expected, _) in expectations.items():
            mark = "FAIL" if what in differing else "ok"
            print(f"   {mark:4} {what}: expected {expected!r}, seen {seen[what]!r}")
        print(f"   done in {time.monotonic() - started:.2f} seconds")
        self.failures += bool(differing)

    def show_log(self):
        """Print what the operator has logged since the last time."""
        for line in self.log:
            print(f"   operator | {line.rstrip()}")


def main():
    print("Starting a local cluster, and an operator on it...", flush=True)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(simulate=True))
        cluster.apply(HERE / "crd.yaml")
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = folder / "operator.log"
        operator = stack.enter_context(run_operator(cluster, log))

        kubernetes.config.load_kube_config(config_file=str(cluster.kubeconfig))
        demo = Demo(operator, log)
        walk_through(demo)

        demo.step(
            "The operator is asked to stop.",
            operator.terminate,
            {"exit code": (0, lambda: operator.wait(STEP_TIMEOUT))},
        )

    if demo.failures:
        print(f"\n{demo.failures} of {demo.steps} steps were NOT as expected.")
        return 1
    print(f"\nAll {demo.steps} steps were as expected.")
    return 0


@contextlib.contextmanager
def run_operator(cluster, log):
    """Run the operator as a user would do, though with the logs in a file."""
    command = [sys.executable, "-m", "kopf", "run", "--log-format=plain", str(HERE / "ephemeral.py")]
    with log.open("wb") as file:
        operator = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        )
    try:
        yield operator
    finally:
        if operator.poll() is None:
            operator.kill()
            operator.wait()


def walk_through(demo):
    """Do what the walkthrough does, and expect what it promises."""
    core = kubernetes.client.CoreV1Api()
    custom = kubernetes.client.CustomObjectsApi()

    def see_evc(name, *path):
        return see(lambda: custom.get_namespaced_custom_object(**EVC, name=name), path)

    def see_pvc(name, *path):
        def read():
            pvc = core.read_namespaced_persistent_volume_claim(namespace="default", name=name)
            return kubernetes.client.ApiClient().sanitize_for_serialization(pvc)

        return see(read, path)

    def see_events(name):
        events = core.list_namespaced_event("default", field_selector=f"involvedObject.name={name}").items
        return sorted({event.message for event in events if event.type != "Normal"})

    def patch(body):
        custom.patch_namespaced_custom_object(**EVC, name="my-claim", body=body)

    storage = ("spec", "resources", "requests", "storage")
    labels = ("metadata", "labels")
    owner = ("metadata", "ownerReferences", 0)

    demo.step(
        "An EphemeralVolumeClaim is created, 1G. Its child PVC is to be created and adopted.",
        lambda: custom.create_namespaced_custom_object(**EVC, body=read_yaml("evc.yaml")),
        {
            "size of the PVC": ("1G", lambda: see_pvc("my-claim", *storage)),
            "phase of the PVC": ("Bound", lambda: see_pvc("my-claim", "status", "phase")),
            "owner of the PVC": ("EphemeralVolumeClaim", lambda: see_pvc("my-claim", *owner, "kind")),
            "name of the owner": ("my-claim", lambda: see_pvc("my-claim", *owner, "name")),
            "result in the status": ({"pvc-name": "my-claim"}, lambda: see_evc("my-claim", "status", "create_pvc")),
        },
    )
    demo.step(
        "The size is changed to 2G. The PVC is to follow.",
        lambda: patch({"spec": {"size": "2G"}}),
        {"size of the PVC": ("2G", lambda: see_pvc("my-claim", *storage))},
    )
    demo.step(
        "The PVC gets a label of its own, and the parent gets two labels. All three are to be on the PVC.",
        lambda: (
            core.patch_namespaced_persistent_volume_claim(
                namespace="default", name="my-claim", body={"metadata": {"labels": {"own": "label"}}}
            ),
            patch({"metadata": {"labels": {"application": "some-app", "owner": "me"}}}),
        ),
        {
            "labels of the PVC": (
                {"own": "label", "application": "some-app", "owner": "me"},
                lambda: see_pvc("my-claim", *labels),
            )
        },
    )
    demo.step(
        "One label of the parent is changed.",
        lambda: patch({"metadata": {"labels": {"owner": "you"}}}),
        {
            "labels of the PVC": (
                {"own": "label", "application": "some-app", "owner": "you"},
                lambda: see_pvc("my-claim", *labels),
            )
        },
    )
    demo.step(
        "One label of the parent is removed. It is to be removed from the PVC, and its own label is to stay.",
        lambda: patch({"metadata": {"labels": {"application": None}}}),
        {"labels of the PVC": ({"own": "label", "owner": "you"}, lambda: see_pvc("my-claim", *labels))},
    )
    error = "Handler 'create_pvc' failed permanently: The size must be set in the spec. Got None."
    demo.step(
        "A claim without a size is created. The error is to be seen in the events, and nothing is to be created.",
        lambda: custom.create_namespaced_custom_object(
            **EVC, body={**read_yaml("evc.yaml"), "metadata": {"name": "bad-claim"}, "spec": {}}
        ),
        {
            "errors in the events": ([error], lambda: see_events("bad-claim")),
            "errors in the logs": (True, lambda: error in pathlib.Path(demo.log.name).read_text()),
            "PVC of the bad claim": (None, lambda: see_pvc("bad-claim")),
        },
    )
    demo.step(
        "Both claims are deleted. Kubernetes is to delete the PVC with its parent.",
        lambda: [custom.delete_namespaced_custom_object(**EVC, name=name) for name in ("my-claim", "bad-claim")],
        {
            "the claims": ([None, None], lambda: [see_evc("my-claim"), see_evc("bad-claim")]),
            "the PVC": (None, lambda: see_pvc("my-claim")),
        },
    )


def see(read, path):
    """Get a field of an object, or nothing if there is no such a field or no such an object."""
    try:
        value = read()
    except kubernetes.client.ApiException as e:
        if e.status != 404:
            raise
        return None
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError):
            return None
    return value


def read_yaml(name):
    return yaml.safe_load((HERE / name).read_text())


def give_up(signum, frame):
    raise TimeoutError(f"The whole demo has not finished in {TOTAL_TIMEOUT} seconds.")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(TOTAL_TIMEOUT)
    sys.exit(main())
