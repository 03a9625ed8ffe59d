"""Hierarchies: labels, owners, names, namespaces."""

from __future__ import annotations

from tests.differential.lives import Case, Step, create, settle

ONCE = (create(labels={"l": "v"}), settle())


def doing(text: str, **options: object) -> str:
    body = "\n".join(f"    {line}" for line in text.strip().splitlines())
    return f"""
def make(**meta):
    return {{'apiVersion': 'v1', 'kind': 'Pod', 'metadata': dict(meta), 'spec': {{'template': {{'metadata': {{}}}}}}}}
def tell(obj):
    import json
    return note(json.dumps(plain(obj), sort_keys=True))
def tried(fn, *args, **kw):
    try:
        note(fn(*args, **kw))
    except Exception as e:
        note(type(e).__name__)
@kopf.on.create(*E)
def fn(body, **kw):
{body}
"""


CASES = [
    Case(
        "adopt",
        doing("""
obj = make()
kopf.adopt(obj)
tell(obj)
named = make(name='own', namespace='default', labels={'own': 'label'})
kopf.adopt(named)
tell(named)
"""),
        ONCE,
    ),
    Case("adopt-another-namespace", doing("tried(kopf.adopt, make(namespace='elsewhere'))"), ONCE),
    Case(
        "adopt-options",
        doing("""
for options in [dict(forced=True), dict(strict=True), dict(forced=True, strict=True), dict(nested=['spec.template'])]:
    obj = make(name='own', labels={'l': 'own'})
    kopf.adopt(obj, **options)
    tell(obj)
objs = [make(), make()]
kopf.adopt(objs, owner=body)
tell(objs)
"""),
        ONCE,
    ),
    Case(
        "label",
        doing("""
obj = make(labels={'a': 'b'})
kopf.label(obj, {'a': 'c', 'd': 'e'})
tell(obj)
kopf.label(obj, {'a': 'c'}, forced=True)
tell(obj)
kopf.label(obj)
tell(obj)
kopf.label(obj, {'x': 'y'}, nested=['spec.template'])
tell(obj)
kopf.label([obj, make()], {'z': 'y'}, nested='spec.template')
tell(obj)
"""),
        ONCE,
    ),
    Case("label-with-none", doing("tried(kopf.label, make(), None)\ntried(kopf.label, None, {'a': 'b'})"), ONCE),
    Case(
        "owner-references",
        doing("""
obj = make()
kopf.append_owner_reference(obj)
tell(obj)
kopf.append_owner_reference(obj)
tell(obj)
kopf.append_owner_reference(obj, owner={'apiVersion': 'v1', 'kind': 'X', 'metadata': {'name': 'n', 'uid': 'u'}}, controller=False, block_owner_deletion=False)
tell(obj)
kopf.remove_owner_reference(obj)
tell(obj)
tell(kopf.build_owner_reference(body))
tell(kopf.build_owner_reference(body, controller=None, block_owner_deletion=None))
tell(kopf.build_object_reference(body))
"""),
        ONCE,
    ),
    Case(
        "names",
        doing("""
for kw in [{}, {'forced': True}, {'strict': True}, {'name': 'given'}, {'name': 'given', 'strict': True}, {'name': 'given', 'forced': True}]:
    for meta in [{}, {'name': 'own'}, {'generateName': 'own-'}]:
        obj = make(**meta)
        kopf.harmonize_naming(obj, **kw)
        tell([kw, meta, obj['metadata']])
"""),
        ONCE,
    ),
    Case(
        "namespaces",
        doing("""
for kw in [{}, {'forced': True}, {'namespace': 'given'}, {'namespace': 'given', 'forced': True}]:
    for meta in [{}, {'namespace': 'own'}]:
        obj = make(**meta)
        kopf.adjust_namespace(obj, **kw)
        tell([kw, meta, obj['metadata']])
"""),
        ONCE,
    ),
    Case(
        "adopt-nothing",
        doing(
            "tried(kopf.adopt, None)\ntried(kopf.adopt, [])\ntried(kopf.adopt, 'text')\ntried(kopf.append_owner_reference, object())"
        ),
        ONCE,
    ),
    Case(
        "adopt-outside",
        "def tried():\n    try:\n        kopf.adopt({})\n        note('adopted')\n    except Exception as e:\n        note(type(e).__name__)\n"
        "@kopf.on.startup()\ndef startup_fn(**_):\n    tried()\n@kopf.on.create(*E)\ndef fn(**_): pass\n",
        ONCE,
    ),
    Case(
        "adopt-by-wide",
        """
        @kopf.on.create('kopfwideexamples')
        def fn(**kw):
            obj = {'metadata': {'namespace': 'default'}}
            kopf.adopt(obj)
            note(obj['metadata'].get('namespace'))
            obj = {}
            kopf.adopt(obj)
            note(sorted(obj['metadata']))
        """,
        (create(kind="wide"), settle()),
        kinds=("wide",),
        watches="kopfwideexamples",
    ),
    Case(
        "adopt-and-patch",
        """
        @kopf.on.create(*E)
        def fn(spec, patch, **kw):
            child = dict(spec['template'])
            kopf.label(child, {'a': 'b'})
            kopf.adopt(child)
            patch.spec['seen'] = 'yes'
        @kopf.on.update(*E)
        def update_fn(**kw): see(kw)
        """,
        (
            create(spec={"template": {"metadata": {"labels": {"x": "y"}}}}),
            settle(),
            Step("stop", {}),
            Step("start", {"args": [], "file": "operator.py"}),
            settle(),
        ),
    ),
]
