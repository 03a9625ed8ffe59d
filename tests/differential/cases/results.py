"""Results, patches, and the status."""

from __future__ import annotations

from tests.differential.lives import Case, create, delete, edit, settle, start, stop

ONCE = (create(), settle())


def returning(*values: str, kind: str = "create") -> str:
    return "\n".join(
        f"@kopf.on.{kind}(*E)\ndef fn{number}(**kw):\n    return {value}\n" for number, value in enumerate(values)
    )


CASES = [
    Case(
        "results",
        returning(
            "1", "'text'", "{'a': {'b': [1, 2]}}", "[1, {'x': None}]", "True", "None", "''", "{}", "[]", "0", "1.5"
        ),
        ONCE,
    ),
    Case(
        "patch-everything",
        """
        @kopf.on.create(*E)
        def fn(patch, **kw):
            patch.spec['new'] = 'spec'
            patch.status['new'] = {'x': [1]}
            patch.metadata.labels['new'] = 'label'
            patch.metadata.annotations['new'] = 'annotation'
            patch['data'] = {'a': 1}
            return 'done'
        """,
        ONCE,
    ),
    Case(
        "results-overwritten",
        """
        @kopf.on.create(*E)
        @kopf.on.update(*E)
        def fn(spec, **kw):
            return {str(spec['field']): spec['field'], 'reason': str(kw['reason'])}
        """,
        (create(), settle(), edit(field=2), settle(), edit(field=3), settle()),
    ),
    Case(
        "results-of-events",
        """
        @kopf.on.event(*E)
        def fn(spec, patch, **kw):
            see(kw)
            return 'x'
        """,
        ONCE,
    ),
    Case(
        "results-visible-to-next",
        """
        @kopf.on.create(*E)
        def first(**kw):
            see(kw)
            return {'name': 'pvc'}
        @kopf.on.create(*E)
        def second(status, **kw):
            see({**kw, 'status': status})
            return status.get('first')
        """,
        ONCE,
    ),
    Case(
        "results-waiting-for-another",
        """
        @kopf.on.create(*E)
        def job(status, **kw):
            see({**kw, 'status': status})
            if not status.get('pvc'):
                raise kopf.TemporaryError('no pvc', delay=0.3)
            return status['pvc']
        @kopf.on.create(*E)
        def pvc(**kw):
            see(kw)
            return {'name': 'pvc'}
        """,
        ONCE,
    ),
    Case(
        "results-not-serializable",
        """
        @kopf.on.create(*E, retries=1)
        def fn(**kw):
            return object()
        @kopf.on.create(*E)
        def other(**kw):
            return 1
        """,
        ONCE,
    ),
    Case(
        "patch-removes",
        """
        @kopf.on.create(*E)
        def fn(patch, **kw):
            patch.spec['field'] = None
            patch.metadata.labels['old'] = None
            patch.status['old'] = None
        """,
        (create(labels={"old": "x"}, extra={"status": {"old": 1}}), settle()),
    ),
    Case(
        "patch-own-spec-then-update",
        """
        @kopf.on.create(*E)
        def create_fn(patch, **kw):
            see(kw)
            patch.spec['own'] = 1
        @kopf.on.update(*E)
        def update_fn(**kw): see(kw)
        """,
        ONCE,
    ),
    Case(
        "patch-own-spec-of-two",
        """
        @kopf.on.create(*E)
        def first(patch, **kw):
            see(kw)
            patch.spec['own'] = 1
        @kopf.on.create(*E)
        def second(**kw): see(kw)
        @kopf.on.update(*E)
        def update_fn(**kw): see(kw)
        """,
        ONCE,
    ),
    Case(
        "patch-own-spec-by-the-last-of-two",
        """
        @kopf.on.create(*E)
        def first(**kw): see(kw)
        @kopf.on.create(*E)
        def second(patch, **kw):
            see(kw)
            patch.spec['own'] = 1
        @kopf.on.update(*E)
        def update_fn(**kw): see(kw)
        """,
        ONCE,
    ),
    Case(
        "patch-own-labels-in-update",
        """
        @kopf.on.update(*E)
        def update_fn(patch, spec, **kw):
            see(kw)
            patch.metadata.labels['seen'] = str(spec['field'])
        """,
        (create(), settle(), edit(field=2), settle(), edit(field=3), settle()),
    ),
    Case(
        "patch-in-event",
        """
        @kopf.on.event(*E)
        def fn(patch, spec, **kw):
            see(kw)
            patch.status['seen'] = spec.get('field')
        """,
        (create(), settle(), edit(field=2), settle()),
    ),
    Case(
        "patch-in-event-and-create",
        """
        @kopf.on.event(*E)
        def fn(patch, spec, **kw):
            see(kw)
            patch.status['seen'] = str(spec.get('field'))
        @kopf.on.create(*E)
        def create_fn(**kw):
            see({**kw, 'status': {}})
        @kopf.on.update(*E)
        def update_fn(**kw):
            see({**kw, 'status': {}})
        """,
        (create(), settle(), edit(field=2), settle()),
    ),
    Case(
        "patch-and-fail",
        """
        @kopf.on.create(*E)
        def fn(patch, retry, **kw):
            patch.status['tried'] = retry
            patch.metadata.labels['tried'] = str(retry)
            if retry < 2:
                raise kopf.TemporaryError('again', delay=0.1)
        """,
        ONCE,
    ),
    Case(
        "patch-in-delete",
        """
        @kopf.on.delete(*E)
        def fn(patch, **kw):
            see(kw)
            patch.status['deleted'] = True
        """,
        (create(finalizers=["example.com/f"]), settle(), delete(), settle()),
    ),
    Case(
        "patch-fns",
        """
        @kopf.on.create(*E)
        def fn(patch, **kw):
            see(kw)
            patch.fns.append(lambda body: body['spec'].setdefault('list', []).append('a'))
        @kopf.on.update(*E)
        def update_fn(**kw): see(kw)
        """,
        ONCE,
    ),
    Case(
        "patch-finalizers",
        """
        @kopf.on.create(*E)
        def fn(patch, meta, **kw):
            patch.metadata['finalizers'] = [*meta.get('finalizers', []), 'example.com/own']
        """,
        ONCE,
    ),
    Case(
        "patch-status-of-subresource",
        """
        @kopf.on.create('kopfstatusexamples')
        def fn(patch, **kw):
            see(kw)
            patch.spec['x'] = 1
            patch.status['y'] = 2
            return 'z'
        """,
        (create(kind="sub"), settle()),
        kinds=("sub",),
        watches="kopfstatusexamples",
    ),
    Case(
        "patch-nothing",
        """
        @kopf.on.create(*E)
        def fn(patch, **kw):
            patch.spec['field'] = 1
        """,
        (create(), settle(), stop(), start(), settle()),
    ),
]
