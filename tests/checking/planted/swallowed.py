import kopf


@kopf.on.create("widgets")
def create_fn(spec, logger, **_):
    try:
        if "size" not in spec:
            raise kopf.PermanentError("There must be a size.")
        if spec["size"] > 10:
            raise kopf.TemporaryError("It is too large for now.", delay=60)
    except Exception:  # expect: swallowed-error
        logger.exception("It has failed.")
