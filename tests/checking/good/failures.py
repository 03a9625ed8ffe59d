"""Errors that reach the framework."""
import asyncio
import logging

import kopf


@kopf.on.create("widgets")
async def create_fn(spec, logger, **_):
    try:
        if "size" not in spec:
            raise kopf.PermanentError("There must be a size.")
        await asyncio.sleep(1)
    except kopf.PermanentError:
        raise
    except Exception as e:
        raise kopf.TemporaryError("It has failed.", delay=60) from e


@kopf.on.update("widgets")
async def update_fn(logger, **_):
    try:
        await asyncio.sleep(1)
    except Exception:
        logger.exception("It does not matter.")
    try:
        await asyncio.sleep(1)
    except BaseException:
        logging.warning("It is interrupted.")
        raise


@kopf.on.delete("widgets", optional=True)
def delete_fn(name, **_):
    try:
        print(name)
    except OSError:
        raise kopf.TemporaryError("The disk is full.") from None
