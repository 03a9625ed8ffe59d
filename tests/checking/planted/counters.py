import kopf

total = 0


@kopf.on.create("widgets")
def create_fn(patch, **_):
    global total
    total += 1  # expect: global-state
    patch.status["phase"] = f"It is number {total}."
