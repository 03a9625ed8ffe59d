import kopf


@kopf.on.create("widgets")  # expect: declaration
def create_fn(spce, **_):
    pass


@kopf.timer("widgets", interval=60)  # expect: declaration
def check_fn(spec):
    pass


@kopf.on.event("widgets", when=lambda spec, retry, **_: retry)  # expect: declaration
def event_fn(event, **_):
    pass
