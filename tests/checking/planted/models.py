import dataclasses

import kopf


@dataclasses.dataclass
class Spec:
    size: int


@dataclasses.dataclass  # expect: declaration
class Status:
    phase: str


class Gadget(kopf.CustomResource[Spec, Status], group="example.com", version="v1"):
    pass


@kopf.on.create(Gadget)
def create_fn(spec: Spec, **_):
    pass
