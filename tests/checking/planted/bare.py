import kopf
from kopf import on


@kopf.on.create  # expect: declaration
def create_fn(**_):
    pass


@on.field("widgets")  # expect: declaration
def field_fn(**_):
    pass


class Operator:
    @kopf.on.delete("widgets")  # expect: declaration
    def delete_fn(self, **_):
        pass
