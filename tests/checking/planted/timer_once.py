import kopf


@kopf.timer("widgets", initial_delay=60)  # expect: timer-interval
def check_fn(patch, **_):
    patch.status["phase"] = "Checked"
