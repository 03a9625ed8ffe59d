"""
Outcomes made comparable: what differs from run to run is taken out, what has no promised order is put in order.

An outcome is a list of lines, so that a difference is a difference of lines.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

VOLATILE = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "digest",
    "baseline",
    "exception",
}
TIMES = {"started", "stopped", "delayed", "lastseen", "deletionTimestamp", "deletionGracePeriodSeconds"}
PREFIXES = ("kopf.zalando.org/", "my.example.com/")
"""Under which the frameworks keep their state; when exactly each of it is there, is theirs to decide."""

_REPLACEMENTS = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"/\S*/life-\d+\S*?/"), "<folder>/"),
    (re.compile(r"\b\d+\.\d{3,}\b"), "<number>"),
    (re.compile(r" at 0x[0-9a-f]+"), ""),
]


def tidy(text: str) -> str:
    """Take out of the text what differs from run to run."""
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


def clean(value: Any, *, is_seen_by_handlers: bool = False) -> Any:
    """Take out of the data what differs from run to run; and for views of handlers, the traces of the framework."""
    if isinstance(value, dict):
        return {
            key: "<time>" if key in TIMES and item is not None else _clean_item(key, item, is_seen_by_handlers)
            for key, item in value.items()
            if key not in VOLATILE and not (is_seen_by_handlers and str(key).startswith(PREFIXES))
        }
    if isinstance(value, list):
        return [clean(item, is_seen_by_handlers=is_seen_by_handlers) for item in value]
    if isinstance(value, str):
        return tidy(value)
    return value


def _clean_item(key: str, value: Any, is_seen_by_handlers: bool) -> Any:
    if isinstance(value, str) and value.startswith("{") and "/" in key:  # an annotation of the framework
        try:
            return clean(json.loads(value))
        except ValueError:
            return tidy(value)
    return clean(value, is_seen_by_handlers=is_seen_by_handlers)


def dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def describe_object(obj: dict[str, Any]) -> Iterator[str]:
    """The object at rest: one line for each thing that can differ."""
    meta = obj["metadata"]
    name = f"{obj['kind']} {meta.get('namespace', '')}/{meta['name']}"
    yield f"{name}: exists"
    cleaned = clean(obj)
    for key in ("labels", "annotations"):
        for item, value in sorted(cleaned["metadata"].get(key, {}).items()):
            yield f"{name} {key} {item}: {dump(value)}"
    rest = {
        key: value
        for key, value in cleaned["metadata"].items()
        if key not in {"labels", "annotations", "name", "namespace"} and value
    }
    for key, value in sorted(rest.items()):
        yield f"{name} {key}: {dump(value)}"
    for key in sorted(cleaned.keys() - {"metadata", "apiVersion", "kind"}):
        value = cleaned[key]
        if key == "status" and isinstance(value, dict):
            for item, content in sorted(value.items()):
                yield f"{name} status {item}: {dump(content)}"
        elif key != "status":
            yield f"{name} {key}: {dump(value)}"


def describe_journal(lines: Iterable[dict[str, Any]], *, parallel: bool, first: dict[str, int]) -> list[str]:
    """What happened in one life of the operator: in order within each track, the tracks sorted."""
    tracks: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    lines = [*lines]
    watchers = {line["fn"] for line in lines if line["is"] == "call" and "event" in line["kwargs"]}
    for line in lines:
        match line["is"]:
            case "call":
                counts[line["fn"]] = counts.get(line["fn"], 0) + 1
                if counts[line["fn"]] <= first.get(line["fn"], 1_000_000):
                    if parallel:  # what the others have done by then, is a matter of luck
                        line["kwargs"].pop("status", None)
                    tracks.setdefault(_get_call_track(line, parallel), []).append(_describe_call(line))
            case "note":
                tracks.setdefault("notes", []).append(tidy(line["text"]))
            case "log" if not _is_about(line, watchers):
                tracks.setdefault(_get_log_track(line), []).append(_describe_log(line))
    for track in [track for track in tracks if track.startswith("log ") and track.rpartition(" ")[2] in first]:
        del tracks[track]  # what goes on for ever is logged for ever
    return [f"{track} | {item}" for track, items in sorted(tracks.items()) for item in _arrange(track, items, parallel)]


def _is_about(line: dict[str, Any], watchers: set[str]) -> bool:
    """Whether the line tells the success of a handler of raw events: how many there are, depends on the speed."""
    match = re.fullmatch(r"Handler '([^'/]+)(/[^']*)?' succeeded.", line["message"])
    return match is not None and match[1] in watchers


def _arrange(track: str, items: list[str], parallel: bool) -> list[str]:
    if track.startswith("events "):  # how many changes are seen as one, depends on the speed
        return [next(same) for _, same in itertools.groupby(items, key=_get_content)]
    return sorted(items) if parallel or track == "notes" else items


def _get_content(item: str) -> list[str]:
    """What a call for a raw event is about; the first of several about the same is enough, but for the last one."""
    lines = item.split("\n")
    return lines if 'type: "DELETED"' in lines else [line for line in lines if not line.startswith(("type:", "event:"))]


def _get_call_track(line: dict[str, Any], parallel: bool) -> str:
    kwargs = line["kwargs"]
    name = _get_name(kwargs.get("body", {}).get("kind"), kwargs.get("namespace"), kwargs.get("name"))
    if "event" in kwargs:
        return f"events {name} {line['fn']}"
    if "reason" in kwargs and not parallel:
        return f"calls {name}"
    return f"calls {name} {line['fn']}"


def _get_name(kind: str | None, namespace: str | None, name: str | None) -> str:
    return "-" if name is None else f"{kind} {namespace or ''}/{name}"


def _describe_call(line: dict[str, Any]) -> str:
    """The head of the call, and its kwargs as the further lines."""
    kwargs = line["kwargs"]
    retry = f" retry={kwargs['retry']}" if "retry" in kwargs else ""
    head = f"{line['fn']} reason={kwargs.get('reason')} param={dump(kwargs.get('param'))}{retry}"
    rest = [
        f"{key}: {dump(_clean_kwarg(key, value))}"
        for key, value in sorted(kwargs.items())
        if key not in {"name", "uid", "reason", "param", "retry"}
    ]
    return "\n".join([head, *rest])


def _clean_kwarg(key: str, value: Any) -> Any:
    value = clean(value, is_seen_by_handlers=True)
    match key:
        case "body":  # the rest of it is in other kwargs
            return {name: item for name, item in value.items() if name not in {"spec", "status", "metadata"}}
        case "meta":
            # Whether the finalizer is put or removed before or after the call, is a matter of time.
            return {
                name: item
                for name, item in value.items()
                if item and name not in {"labels", "annotations", "name", "namespace", "finalizers"}
            }
        case "status":
            return {name: item for name, item in value.items() if name not in {"kopf", "my"}}
        case "diff" if isinstance(value, list):
            return sorted(value, key=dump)
        case "event":
            return {"type": value["type"]}
        case "new" | "old" if isinstance(value, dict) and "metadata" in value:
            return drop_empty(value)
        case _:
            return value


def drop_empty(value: Any) -> Any:
    """Take out empty labels, annotations, etc.: whether they are there, depends on what else was there."""
    if isinstance(value, dict):
        filled = {key: drop_empty(item) for key, item in value.items()}
        return {key: item for key, item in filled.items() if item != {}}
    return value


def _get_log_track(line: dict[str, Any]) -> str:
    if line["logger"] == "activities":
        return "log activities"
    name = _get_name(line["kind"], line["namespace"], line["name"])
    if (match := re.match(r"(Daemon|Timer) '?([^' ]+)", line["message"])) is not None:
        return f"log {name} {match[2]}"
    return f"log {name}"


def _describe_log(line: dict[str, Any]) -> str:
    error = f" ({line['error']})" if line["error"] else ""
    return tidy(f"{line['level']} {line['message']}{error}")


def describe_events(events: Iterable[dict[str, Any]]) -> list[str]:
    """The events that are posted: in no order, and however often."""
    return sorted(
        {
            tidy(
                "event {0[kind]} {0[namespace]}/{0[name]}: {1} {2}: {3} [{4}, {5}, {6}]".format(
                    {"namespace": "", "name": "", "kind": "", **event["involvedObject"]},
                    event["type"],
                    event["reason"],
                    repr(event.get("message")),
                    event.get("source", {}).get("component"),
                    event.get("reportingComponent"),
                    event.get("reportingInstance"),
                )
            )
            for event in events
        }
    )
