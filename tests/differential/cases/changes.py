"""Creation, updates, deletion, resuming: what is detected, and who is called for it."""

from __future__ import annotations

from tests.differential.lives import (
    Case,
    annotate,
    create,
    delete,
    edit,
    kill,
    label,
    patch,
    saved,
    settle,
    start,
    stop,
    until,
)

ALL = """
@kopf.on.create(*E)
@kopf.on.update(*E)
@kopf.on.delete(*E)
@kopf.on.resume(*E)
def fn(**kw): see(kw)
"""
EACH = """
@kopf.on.create(*E)
def create_fn(**kw):
    see(kw)
    return kw['spec'].get('field')

@kopf.on.update(*E)
def update_fn(**kw):
    see(kw)
    return kw['spec'].get('field')

@kopf.on.resume(*E)
def resume_fn(**kw): see(kw)

@kopf.on.delete(*E)
def delete_fn(**kw): see(kw)
"""
ODD = """
@kopf.on.resume(*E, when=lambda spec, **_: spec['field'] % 2 == 1)
def resume_fn(**kw): see(kw)
"""
UNBLOCKED = """
def is_unblocked(annotations, **_):
    return 'block' not in annotations

@kopf.on.create(*E, when=is_unblocked)
def create_fn(**kw): see(kw)

@kopf.on.resume(*E, when=is_unblocked)
def resume_fn(**kw): see(kw)
"""
HOLDING = """
@kopf.on.create(*E)
@kopf.on.update(*E)
@kopf.on.delete(*E)
def first(**kw):
    see(kw)
    return 'first'

@kopf.on.create(*E)
@kopf.on.update(*E)
@kopf.on.delete(*E)
def second(**kw):
    see(kw)
    if os.environ['LIFE'] == '1' and kw['annotations'].get('hold') == f"{kw['reason']} {kw['spec']['field']}":
        raise kopf.TemporaryError('held', delay=6)
    return 'second'

@kopf.on.create(*E)
@kopf.on.update(*E)
@kopf.on.delete(*E)
def third(**kw):
    see(kw)
    return 'third'
"""

CASES = [
    Case(
        "create",
        """
        @kopf.on.create(*E)
        def fn(**kw):
            see(kw)
            return {"hello": "world"}
        """,
    ),
    Case(
        "create-async",
        """
        @kopf.on.create(*E)
        async def fn(**kw):
            see(kw)
            await asyncio.sleep(0.01)
            return "done"
        """,
    ),
    Case("all-causes-one-function", ALL),
    Case("all-causes-each", EACH),
    Case(
        "update",
        """
        @kopf.on.update(*E)
        def fn(**kw): see(kw)
        """,
    ),
    Case(
        "delete",
        """
        @kopf.on.delete(*E)
        def fn(**kw):
            see(kw)
            return "bye"
        """,
    ),
    Case(
        "delete-optional",
        """
        @kopf.on.delete(*E, optional=True)
        def fn(**kw): see(kw)
        """,
    ),
    Case(
        "delete-optional-and-mandatory",
        """
        @kopf.on.delete(*E, optional=True)
        def optional(**kw): see(kw)
        @kopf.on.delete(*E)
        def mandatory(**kw): see(kw)
        """,
    ),
    Case(
        "delete-with-foreign-finalizer",
        EACH,
        (
            create(finalizers=["example.com/f"]),
            settle(),
            delete(),
            settle(),
            edit(field=3),
            settle(),
            patch({"metadata": {"finalizers": None}}),
            settle(),
        ),
    ),
    Case(
        "delete-unfinished-creation",
        HOLDING,
        (create(annotations={"hold": "create 1"}), saved("third"), delete(), settle()),
    ),
    Case(
        "delete-unfinished-update",
        HOLDING,
        (
            create(),
            settle(),
            patch({"metadata": {"annotations": {"hold": "update 5"}}, "spec": {"field": 5}}),
            saved("third"),
            delete(),
            settle(),
        ),
    ),
    Case("delete-in-downtime", EACH, (create(), settle(), stop(), delete(), start(), settle())),
    Case("delete-unseen", EACH, (delete(), settle()), given=(create(finalizers=["example.com/f"]), delete())),
    Case(
        "resume",
        EACH,
        (create(), settle(), stop(), start(), settle(), edit(field=2), settle(), stop(), start(), settle()),
    ),
    Case(
        "resume-only",
        """
        @kopf.on.resume(*E)
        def fn(**kw): see(kw)
        """,
        (create(), settle(), stop(), start(), settle(), delete(), settle()),
    ),
    Case(
        "resume-given",
        """
        @kopf.on.resume(*E)
        def fn(**kw):
            see(kw)
            return 'resumed'
        """,
        (settle(), edit(field=5), settle()),
        given=(create(),),
    ),
    Case("resume-given-with-create", EACH, (settle(), edit(field=5), settle()), given=(create(),)),
    Case("resume-one-function-given", ALL, (settle(), stop(), start(), settle()), given=(create(),)),
    Case("resume-changed-in-downtime", EACH, (create(), settle(), stop(), edit(field=7), start(), settle())),
    Case(
        "resume-one-function-changed-in-downtime", ALL, (create(), settle(), stop(), edit(field=7), start(), settle())
    ),
    Case(
        "resume-once-it-fits-changed-in-downtime",
        ODD,
        (
            create(),
            settle(),
            stop(),
            edit(field=2),
            start(),
            settle(),
            label(x="y"),
            settle(),
            edit(field=3),
            settle(),
            edit(field=5),
            settle(),
        ),
    ),
    Case(
        "resume-once-it-fits-unchanged",
        UNBLOCKED,
        (
            create(),
            settle(),
            annotate(block="yes"),
            stop(),
            start(),
            settle(),
            annotate(block=None),
            settle(),
            edit(field=8),
            settle(),
        ),
    ),
    Case(
        "resume-once-it-fits-changed",
        UNBLOCKED,
        (
            create(),
            settle(),
            annotate(block="yes"),
            stop(),
            start(),
            settle(),
            edit(field=4),
            settle(),
            annotate(block=None),
            settle(),
        ),
    ),
    Case(
        "resume-once-it-fits-deleted",
        UNBLOCKED,
        (create(), settle(), annotate(block="yes"), stop(), start(), settle(), delete(), settle()),
    ),
    Case(
        "resume-deleted",
        """
        @kopf.on.resume(*E)
        def usual(**kw): see(kw)
        @kopf.on.resume(*E, deleted=True)
        def also_deleted(**kw): see(kw)
        @kopf.on.delete(*E)
        def delete_fn(**kw): see(kw)
        """,
        (create(), settle(), stop(), delete(), start(), settle()),
    ),
    Case(
        "delete-optional-remains",
        """
        @kopf.on.delete(*E, optional=True)
        def optional(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 2:
                raise kopf.TemporaryError('again', delay=3)
        @kopf.on.delete(*E, labels={'mark': 'on'})
        def mandatory(retry, **kw):
            see({**kw, 'retry': retry})
            raise kopf.TemporaryError('again', delay=3)
        """,
        (create(labels={"mark": "on"}), settle(), delete(), until("mandatory"), label(mark="off"), settle()),
    ),
    Case(
        "resume-edited",
        """
        @kopf.on.resume(*E)
        @kopf.on.update(*E)
        def fn(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 2:
                raise kopf.TemporaryError('again', delay=0.5)
        @kopf.on.create(*E)
        def create_fn(**kw):
            pass
        """,
        (create(), settle(), stop(), start(), until("fn"), edit(field=2), settle()),
    ),
    Case(
        "resume-retried",
        """
        @kopf.on.resume(*E)
        def fn(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 2:
                raise kopf.TemporaryError('again', delay=0.1)
            return retry
        @kopf.on.create(*E)
        def create_fn(**kw):
            pass
        """,
        (create(), settle(), stop(), start(), settle()),
    ),
    Case(
        "resume-interrupted",
        """
        @kopf.on.resume(*E)
        def quick(**kw): see(kw)
        @kopf.on.resume(*E)
        def slow(retry, **kw):
            see({**kw, 'retry': retry})
            if retry < 2:
                raise kopf.TemporaryError('again', delay=3)
        @kopf.on.create(*E)
        def create_fn(**kw):
            pass
        """,
        (create(), settle(), stop(), start(), until("slow"), stop(), start(), settle()),
    ),
    Case("create-in-downtime", EACH, (start(), stop(), create(), start(), settle())),
    Case("update-twice", EACH, (create(), settle(), edit(field=2), settle(), edit(field=1), settle())),
    Case(
        "update-labels",
        EACH,
        (create(), settle(), label(a="b"), settle(), label(a="c"), settle(), label(a=None), settle()),
    ),
    Case("update-annotations", EACH, (create(), settle(), annotate(a="b"), settle(), annotate(a=None), settle())),
    Case("update-status-only", EACH, (create(), settle(), patch({"status": {"x": 1}}), settle())),
    Case(
        "update-other-stanza",
        EACH,
        (
            create(extra={"data": {"a": "b"}}),
            settle(),
            patch({"data": {"a": "c"}}),
            settle(),
            patch({"data": None}),
            settle(),
        ),
    ),
    Case(
        "update-finalizers-only",
        EACH,
        (
            create(),
            settle(),
            patch({"metadata": {"finalizers": ["example.com/f", "kopf.zalando.org/KopfFinalizerMarker"]}}),
            settle(),
        ),
    ),
    Case(
        "update-owner-references-only",
        EACH,
        (
            create(),
            settle(),
            patch(
                {
                    "metadata": {
                        "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "123"}]
                    }
                }
            ),
            settle(),
        ),
    ),
    Case(
        "update-kinds-of-values",
        EACH,
        (
            create(spec={"a": 1, "b": [1, 2], "c": {"d": 1}, "e": "x", "f": True}),
            settle(),
            edit(a="1", b=[1, 3], c={"d": None, "e": {"f": []}}, e=None, f=1),
            settle(),
            edit(b=[], c={}, g=0, h="", i=False),
            settle(),
        ),
    ),
    Case(
        "update-lists-of-dicts",
        EACH,
        (create(spec={"items": [{"name": "a"}, {"name": "b"}]}), settle(), edit(items=[{"name": "a"}]), settle()),
    ),
    Case("no-spec", EACH, (create(spec={}), settle(), edit(field=1), settle(), edit(field=None), settle())),
    Case("reverted-while-down", EACH, (create(), settle(), stop(), edit(field=2), edit(field=1), start(), settle())),
    Case("recreated", EACH, (create(), settle(), delete(), settle(), create(spec={"field": 9}), settle())),
    Case(
        "recreated-while-down",
        EACH,
        (
            create(),
            settle(),
            stop(),
            patch({"metadata": {"finalizers": None}}),
            delete(),
            create(spec={"field": 9}),
            start(),
            settle(),
        ),
    ),
    Case(
        "two-objects", EACH, (create("a"), create("b"), settle(), edit("a", field=3), settle(), delete("b"), settle())
    ),
    Case(
        "held-creation-killed",
        HOLDING,
        (create(annotations={"hold": "create 1"}), saved("third"), kill(), start(), settle()),
    ),
    Case(
        "held-creation-stopped",
        HOLDING,
        (create(annotations={"hold": "create 1"}), saved("third"), stop(), start(), settle()),
    ),
    Case(
        "held-update-killed",
        HOLDING,
        (
            create(),
            settle(),
            patch({"metadata": {"annotations": {"hold": "update 5"}}, "spec": {"field": 5}}),
            saved("third"),
            kill(),
            start(),
            settle(),
        ),
    ),
    Case(
        "held-deletion-killed",
        HOLDING,
        (create(annotations={"hold": "delete 1"}), settle(), delete(), saved("third"), kill(), start(), settle()),
    ),
    Case(
        "edited-while-held",
        HOLDING,
        (create(annotations={"hold": "create 1"}), saved("third"), edit(field=2), settle()),
    ),
    Case(
        "restart-with-another-version",
        HOLDING,
        (
            create(annotations={"hold": "create 1"}),
            saved("third"),
            stop(),
            start(file="next.py"),
            settle(),
            edit(field=3),
            settle(),
        ),
        files={
            "next.py": """
            @kopf.on.create(*E)
            @kopf.on.update(*E)
            def second(**kw):
                see(kw)
                return 'second of the next version'
            @kopf.on.create(*E)
            def fourth(**kw):
                see(kw)
                return 'fourth'
            """
        },
    ),
    Case(
        "restart-without-handlers-of-deletion",
        EACH,
        (create(), settle(), stop(), start(file="next.py"), settle(), edit(field=2), settle(), delete(), settle()),
        files={
            "next.py": """
            @kopf.on.update(*E)
            def update_fn(**kw): see(kw)
            """
        },
    ),
    Case(
        "wide",
        """
        @kopf.on.create('kopfwideexamples')
        @kopf.on.update('kopfwideexamples')
        @kopf.on.delete('kopfwideexamples')
        def fn(**kw):
            see(kw)
            return 'x'
        """,
        (create(kind="wide"), settle(), edit(kind="wide", field=2), settle(), delete(kind="wide"), settle()),
        kinds=("wide",),
        watches="kopfwideexamples",
    ),
    Case(
        "status-subresource",
        """
        @kopf.on.create('kopfstatusexamples')
        @kopf.on.update('kopfstatusexamples')
        @kopf.on.delete('kopfstatusexamples')
        def fn(patch, **kw):
            see(kw)
            patch.status['own'] = 'status'
            patch.metadata.labels['own'] = 'label'
            return 'x'
        """,
        (
            create(kind="sub"),
            settle(),
            edit(kind="sub", field=2),
            settle(),
            patch({"status": {"foreign": 1}}, kind="sub", sub="status"),
            settle(),
            delete(kind="sub"),
            settle(),
        ),
        kinds=("sub",),
        watches="kopfstatusexamples",
    ),
    Case(
        "builtin-kind",
        """
        @kopf.on.create('configmaps', labels={'mine': 'yes'})
        @kopf.on.update('configmaps', labels={'mine': 'yes'})
        @kopf.on.delete('configmaps', labels={'mine': 'yes'})
        def fn(**kw): see(kw)
        """,
        (
            create(kind="configmap", spec={}, extra={"data": {"a": "b"}}, labels={"mine": "yes"}),
            settle(),
            patch({"data": {"a": "c"}}, kind="configmap"),
            settle(),
            delete(kind="configmap"),
            settle(),
        ),
        kinds=("configmap",),
        watches="configmaps",
    ),
]
