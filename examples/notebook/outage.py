# %% [markdown]
# # How long do orders wait after an outage?
#
# An operator pays orders at a bank, and retries with growing delays. A short limit of the delays costs requests, a long
# one costs time. A simulation tells how much: an hour of the operator takes less than a second here.

# %%
import concurrent.futures
import logging

import kopf
from kopf.testing import SyncSimulation

logging.getLogger("kopf").setLevel(logging.CRITICAL)  # the retries are errors in the logs

SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "orders.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Order", "plural": "orders", "singular": "order"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}],
    },
}

# %% [markdown]
# The operator and the bank. Each simulation has another operator, so the handlers have a registry of their own.


# %%
def run_outage(maximum, minutes, orders=3):
    """Give the requests during the outage, and the seconds after it until all orders are paid."""
    registry, requests, paid = kopf.OperatorRegistry(), [], set()

    @kopf.on.create("orders", registry=registry, backoff=kopf.exponential(initial=1, maximum=maximum))
    async def pay(name, **_):
        requests.append(name)
        if simulation.now < 60 * minutes:
            raise ConnectionError("The bank is down.")
        paid.add(name)

    with SyncSimulation(registry=registry, crds=CRD) as simulation:
        for number in range(orders):
            simulation.apply({"apiVersion": "example.com/v1", "kind": "Order", "metadata": {"name": f"order-{number}"}})
        simulation.advance(minutes=minutes)
        during = len(requests)
        simulation.until(lambda: len(paid) == orders, timeout=2 * maximum)
        return during, simulation.now - 60 * minutes


# %% [markdown]
# A notebook has an event loop, and a simulation needs one of its own: so it runs in a thread.

# %%
print("longest delay   requests during an hour   seconds until all are paid")
for maximum in (30, 120, 600):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        during, after = pool.submit(run_outage, maximum, minutes=60).result()
    print(f"{maximum:>11} s {during:>25} {after:>28.0f}")
