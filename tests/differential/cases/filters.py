"""Filters: by labels, annotations, fields, values, changes, callbacks; and the stealth mode."""

from __future__ import annotations

from tests.differential.lives import Case, Step, annotate, create, delete, edit, label, settle, start, stop

LABELLED = (
    create(labels={"a": "b"}),
    create("another"),
    create("empty", labels={"a": ""}),
    settle(),
    label("another", a="b"),
    settle(),
    label(a="c"),
    settle(),
    label(a=None),
    settle(),
    delete(),
    delete("another"),
    settle(),
)
ANNOTATED = (
    create(annotations={"a": "b"}),
    create("another"),
    settle(),
    annotate("another", a="b"),
    settle(),
    annotate(a="c"),
    settle(),
    annotate(a=None),
    settle(),
    delete(),
    settle(),
)
FIELDS = (
    create(),
    create("another", spec={"other": 1}),
    create("null", spec={"field": None}),
    settle(),
    edit(field=2),
    edit("another", other=2),
    settle(),
    edit("another", field=5),
    settle(),
    edit(field=None),
    settle(),
    edit("another", field={"deep": [1]}),
    settle(),
    delete(),
    delete("another"),
    settle(),
)
VALUES = (
    create(spec={"field": "x"}),
    create("another", spec={"field": "y"}),
    create("absent", spec={}),
    settle(),
    edit(field="y"),
    edit("another", field="x"),
    edit("absent", field="x"),
    settle(),
    edit(field="z"),
    edit("another", field=None),
    settle(),
    edit(field="x", other=1),
    settle(),
    edit(other=2),
    settle(),
    delete(),
    delete("another"),
    settle(),
)


def declare(*decorators: str) -> str:
    lines = [f"@kopf.{decorator}\ndef fn{number}(**kw):\n    see(kw)\n" for number, decorator in enumerate(decorators)]
    return "\n".join(lines)


def all_kinds(filters: str) -> str:
    return declare(*(f"on.{kind}(*E, {filters})" for kind in ("create", "update", "delete", "event")))


def resumed(life: tuple[Step, ...]) -> tuple[Step, ...]:
    return (*life[:-1], stop(), start(), settle())


WRITERS = {
    "creation": ("on.create({kind!r})", "patch.status['x'] = 1"),
    "update": ("on.update({kind!r}, field='spec.field')", "patch.status['x'] = kw['new']"),
    "timer": ("timer({kind!r}, interval=30)", "patch.status['x'] = 1"),
    "daemon": ("daemon({kind!r})", "patch.status['x'] = 1"),
    "result": ("on.create({kind!r}, id='x')", "return 1"),
}
"""Who of the own handlers writes the status, and how."""


def follow_status(writer: str, kind: str) -> Case:
    """Whether those who want to know of the field are told that another handler has written it."""
    decorator, line = WRITERS[writer]
    plural = {"kex": "kopfexamples", "sub": "kopfstatusexamples"}[kind]
    return Case(
        f"filter-status-by-{writer}-of-{kind}",
        f"""
        @kopf.{decorator.format(kind=plural)}
        def write(patch, **kw):
            {line}
        @kopf.on.update({plural!r}, field='status.x')
        def follow(**kw): see(kw)
        @kopf.on.field({plural!r}, field='status.x')
        def follow_field(**kw): see(kw)
        """,
        (create(kind=kind), settle(), edit(kind=kind, field=2), settle(), edit(kind=kind, other=3), settle()),
        kinds=(kind,),
        watches=plural,
    )


CASES = [
    *(follow_status(writer, kind) for writer in WRITERS for kind in ("kex", "sub")),
    Case("filter-label-value", all_kinds("labels={'a': 'b'}"), LABELLED),
    Case("filter-field-on-update", declare("on.update(*E, field='spec.field')"), FIELDS),
    Case("filter-label-present", all_kinds("labels={'a': kopf.PRESENT}"), LABELLED),
    Case("filter-label-absent", all_kinds("labels={'a': kopf.ABSENT}"), LABELLED),
    Case("filter-label-callback", all_kinds("labels={'a': lambda value, **_: value in ('b', 'c')}"), LABELLED),
    Case(
        "filter-two-labels",
        all_kinds("labels={'a': 'b', 'c': 'd'}"),
        (create(labels={"a": "b"}), settle(), label(c="d"), settle(), label(c=None), settle(), delete(), settle()),
    ),
    Case("filter-annotation-value", all_kinds("annotations={'a': 'b'}"), ANNOTATED),
    Case("filter-annotation-present", all_kinds("annotations={'a': kopf.PRESENT}"), ANNOTATED),
    Case("filter-annotation-absent", all_kinds("annotations={'a': kopf.ABSENT}"), ANNOTATED),
    Case("filter-when-spec", all_kinds("when=lambda spec, **_: spec.get('field') == 'x'"), VALUES),
    Case("filter-when-name", all_kinds("when=lambda name, **_: name == 'another'"), VALUES),
    Case(
        "filter-when-diff",
        declare("on.update(*E, when=lambda diff, **_: any(op[1] == ('spec', 'field') for op in diff))"),
        FIELDS,
    ),
    Case(
        "filter-when-with-field",
        declare(
            "on.update(*E, field='spec.field', when=lambda new, **_: 'spec' in (new or {}))",
            "on.update(*E, field='spec.other', when=lambda diff, **_: any(op[1][0] == 'spec' for op in diff))",
        ),
        FIELDS,
    ),
    Case(
        "filter-when-with-field-old-new",
        declare("on.field(*E, field='spec.field', when=lambda old, new, **_: old['spec'] != new['spec'])"),
        (create(), settle(), edit(field=2), settle(), edit(other=2), settle()),
    ),
    Case(
        "filter-when-failing",
        declare("on.create(*E, when=lambda spec, **_: spec['nothing'])", "on.create(*E)"),
        (create(spec={"nothing": 1}), settle()),
    ),
    Case(
        "filter-helpers",
        declare(
            "on.create(*E, when=kopf.all_([lambda name, **_: 'o' in name, lambda spec, **_: spec.get('field') == 1]))",
            "on.create(*E, when=kopf.any_([lambda name, **_: name == 'another', lambda name, **_: name == 'obj']))",
            "on.create(*E, when=kopf.none_([lambda name, **_: name == 'another', lambda name, **_: name == 'x']))",
            "on.create(*E, when=kopf.not_(lambda name, **_: name == 'another'))",
            "on.create(*E, labels={'a': kopf.not_(lambda value, **_: value == 'b')})",
        ),
        (create(), create("another"), create("labelled", labels={"a": "b"}), settle()),
    ),
    Case("filter-field-on-create", declare("on.create(*E, field='spec.field')"), FIELDS),
    Case("filter-field-on-delete", declare("on.delete(*E, field='spec.field')"), FIELDS),
    Case("filter-field-on-resume", declare("on.resume(*E, field='spec.field')", "on.create(*E)"), resumed(FIELDS[:6])),
    Case("filter-field-on-event", declare("on.event(*E, field='spec.field')"), FIELDS),
    Case("filter-field-value-on-create", declare("on.create(*E, field='spec.field', value='x')"), VALUES),
    Case("filter-field-value-on-update", declare("on.update(*E, field='spec.field', value='x')"), VALUES),
    Case("filter-field-value-on-field", declare("on.field(*E, field='spec.field', value='x')"), VALUES),
    Case("filter-field-value-on-delete", declare("on.delete(*E, field='spec.field', value='x')"), VALUES),
    Case("filter-field-value-on-event", declare("on.event(*E, field='spec.field', value='x')"), VALUES),
    Case(
        "filter-field-value-present",
        declare(*(f"on.{kind}(*E, field='spec.field', value=kopf.PRESENT)" for kind in ("create", "update", "field"))),
        VALUES,
    ),
    Case(
        "filter-field-value-absent-on-update", declare("on.update(*E, field='spec.field', value=kopf.ABSENT)"), VALUES
    ),
    Case(
        "filter-field-value-absent-on-create", declare("on.create(*E, field='spec.field', value=kopf.ABSENT)"), VALUES
    ),
    Case(
        "filter-field-value-callback",
        declare(
            "on.update(*E, field='spec.field', value=lambda value, **_: value in ('x', None))",
            "on.create(*E, field='spec.field', value=lambda value, **_: value in ('x', None))",
        ),
        VALUES,
    ),
    Case(
        "filter-old",
        declare("on.update(*E, field='spec.field', old='x')", "on.field(*E, field='spec.field', old='y')"),
        VALUES,
    ),
    Case(
        "filter-new",
        declare("on.update(*E, field='spec.field', new='x')", "on.field(*E, field='spec.field', new='y')"),
        VALUES,
    ),
    Case("filter-old-and-new", declare("on.update(*E, field='spec.field', old='x', new='y')"), VALUES),
    Case("filter-added", declare("on.update(*E, field='spec.field', old=kopf.ABSENT, new=kopf.PRESENT)"), VALUES),
    Case("filter-removed", declare("on.update(*E, field='spec.field', old=kopf.PRESENT, new=kopf.ABSENT)"), VALUES),
    Case(
        "filter-new-callback", declare("on.update(*E, field='spec.field', new=lambda value, **_: value == 'x')"), VALUES
    ),
    Case(
        "filter-old-callback", declare("on.update(*E, field='spec.field', old=lambda value, **_: value == 'x')"), VALUES
    ),
    Case(
        "filter-two-fields-of-one-function",
        """
        @kopf.on.update(*E, field='spec.field', param='field')
        @kopf.on.update(*E, field='spec.other', param='other')
        @kopf.on.update(*E, field='spec', param='spec')
        def fn(**kw):
            see(kw)
            return kw['param']
        """,
        (create(), settle(), edit(field=2), settle(), edit(field=3, other=4), settle()),
    ),
    Case(
        "filter-fields-as-lists",
        """
        @kopf.on.update(*E, field=['spec', 'field'])
        @kopf.on.field(*E, field=('metadata', 'labels', 'a.b/c'))
        def fn(**kw): see(kw)
        """,
        (create(), settle(), edit(field=2), settle(), label(**{"a.b/c": "d"}), settle()),
    ),
    Case(
        "filter-field-of-labels",
        declare("on.field(*E, field='metadata.labels')", "on.field(*E, field='metadata.labels.a')"),
        LABELLED[:-2],
    ),
    Case(
        "filter-field-of-status",
        """
        @kopf.on.field(*E, field='status.x')
        def fn(**kw): see(kw)
        """,
        (
            create(extra={"status": {"x": 1}}),
            settle(),
            Step(
                "patch", {"kind": "kex", "name": "obj", "body": {"status": {"x": 2}}, "namespace": "default", "sub": ""}
            ),
            settle(),
            edit(field=3),
            settle(),
        ),
    ),
    Case(
        "filter-overlapping-fields-of-status",
        """
        @kopf.on.field(*E, field='status')
        def whole(**kw): see(kw)
        @kopf.on.field(*E, field='status.deep.one')
        def deep(**kw): see(kw)
        """,
        (
            create(extra={"status": {"deep": {"one": 1}}}),
            settle(),
            Step(
                "patch",
                {
                    "kind": "kex",
                    "name": "obj",
                    "body": {"status": {"deep": {"one": 2}}},
                    "namespace": "default",
                    "sub": "",
                },
            ),
            settle(),
            Step(
                "patch",
                {"kind": "kex", "name": "obj", "body": {"status": {"other": 2}}, "namespace": "default", "sub": ""},
            ),
            settle(),
        ),
    ),
    Case(
        "filter-memo",
        """
        @kopf.on.event(*E)
        def remember(memo, spec, **_):
            memo.seen = spec.get('field')
        @kopf.on.update(*E, when=lambda memo, **_: memo.get('seen') == 2)
        def fn(**kw): see(kw)
        """,
        (create(), settle(), edit(field=2), settle(), edit(field=3), settle()),
    ),
    Case(
        "stealth",
        declare("on.create(*E, labels={'mine': 'yes'})", "on.delete(*E, labels={'mine': 'yes'})"),
        (
            create(),
            settle(),
            edit(field=2),
            settle(),
            label(mine="yes"),
            settle(),
            label(mine=None),
            settle(),
            edit(field=3),
            settle(),
            delete(),
            settle(),
        ),
    ),
    Case(
        "stealth-field-appears",
        declare("on.create(*E, field='spec.late')"),
        (create(), settle(), edit(late=1), settle(), edit(late=2), settle(), edit(late=None), settle()),
    ),
    Case(
        "stealth-on-field-without-the-field",
        declare("on.field(*E, field='spec.late')"),
        (create(), settle(), edit(field=2), settle(), edit(late=1), settle(), edit(late=2), settle()),
    ),
    Case(
        "stealth-delete-of-another-value",
        declare("on.delete(*E, field='spec.field', value='x')"),
        (create(spec={"field": "y"}), settle(), edit(field="z"), settle(), delete(), settle()),
    ),
    Case(
        "stealth-secrets",
        "@kopf.on.field('secrets', field='data.x')\ndef fn(**kw):\n    see(kw)\n",
        (
            create(kind="secret", spec={}, extra={"data": {"y": "eA=="}}),
            settle(),
            Step(
                "patch",
                {"kind": "secret", "name": "obj", "body": {"data": {"x": "eQ=="}}, "namespace": "default", "sub": ""},
            ),
            settle(),
            Step(
                "patch",
                {"kind": "secret", "name": "obj", "body": {"data": {"x": "eg=="}}, "namespace": "default", "sub": ""},
            ),
            settle(),
        ),
        kinds=("secret",),
        watches="secrets",
    ),
    Case(
        "stealth-ends-with-the-label",
        """
        @kopf.on.create(*E, labels={'mine': 'yes'})
        def create_fn(**kw): see(kw)
        @kopf.on.update(*E, labels={'mine': 'yes'})
        def update_fn(**kw): see(kw)
        @kopf.daemon(*E, labels={'mine': 'yes'})
        async def daemon_fn(stopped, **kw):
            note('begin')
            await stopped.wait()
            note('end')
        """,
        (
            create(labels={"mine": "yes"}),
            settle(),
            label(mine=None),
            settle(),
            label(mine="yes"),
            settle(),
            delete(),
            settle(),
        ),
    ),
]
