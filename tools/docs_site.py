"""
What the site has beside the pages in ``docs``: the generated references, and files of the repository that pages name.

The pages link to examples, tests, and code by relative paths, so that they work in the repository, too. On the site,
these files are pages of their own, under the same names.
"""

from __future__ import annotations

import inspect
import logging
import os
import pathlib
import posixpath
import re
from collections.abc import Iterator
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import kopf
from kopf import testing
from kopf.cli import main

ROOT = pathlib.Path(__file__).parent.parent
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_OPTION = re.compile(r"^- ``(\w+)``: (.*(?:\n  .*)*)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml"}
_MAX_SHOWN = 200_000
_GENERATED = ("reference/decorators.md", "reference/commands.md", "reference/api.md")

DECORATORS = [
    *("on.startup", "on.login", "on.probe", "on.cleanup"),
    *("on.create", "on.update", "on.delete", "on.resume", "on.field", "on.event", "on.validate", "on.mutate"),
    *("on.subhandler", "daemon", "timer", "index", "reconcile", "convert"),
]


def on_startup(command: str, dirty: bool) -> None:
    """Print warnings only. With ``--quiet``, strict builds would not even count them."""
    for handler in logging.getLogger("mkdocs").handlers:
        handler.setLevel(logging.WARNING)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages for machines (`llms.txt`) as in the navigation; offer only what is there."""
    if not config.repo_url:
        config.edit_uri = None
    if "MIKE_DOCS_VERSION" not in os.environ:
        del config.extra["version"]  # else the pages look for other versions
    sections = {title: list(_list_pages(items)) for entry in config.nav or [] for title, items in entry.items()}
    config.plugins["llmstxt"].config.sections = {**sections, "Decisions": ["decisions/[!R]*.md"]}
    return config


def _list_pages(items: Any) -> Iterator[str]:
    if isinstance(items, str):
        yield items
    else:
        for item in items.values() if isinstance(items, dict) else items:
            yield from _list_pages(item)


@event_priority(100)  # before the plugins, which look for pages, too
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and those of other files that are linked, which can link to others in turn."""
    texts = {_GENERATED[0]: describe_decorators(), _GENERATED[1]: describe_commands(), _GENERATED[2]: describe_api()}
    for name, text in texts.items():
        files.append(File.generated(config, name, content=text))
    waiting = [file.src_uri for file in files.documentation_pages()] + ["examples/README.md"]
    waiting = [f"docs/{name}" for name in waiting[:-1]] + waiting[-1:]
    known = set(waiting)
    _add(files, config, "examples/README.md")
    while waiting:
        page = waiting.pop()
        for path in _list_foreign(page):
            if path not in known:
                known.add(path)
                _add(files, config, path)
                waiting.append(path)
    return files


def _add(files: Files, config: MkDocsConfig, path: str) -> None:
    source, name = ROOT / path, _get_page(path)
    if name.endswith(".md"):
        text = source.read_text() if path.endswith(".md") else _show(source)
        files.append(File.generated(config, name, content=text))


def _show(source: pathlib.Path) -> str:
    path = source.relative_to(ROOT).as_posix()
    if source.is_dir():
        items = "".join(f"* `{item.name}`\n" for item in sorted(source.iterdir()) if item.name[0] not in "._")
        return f"# `{path}`\n\n{items}"
    language = _LANGUAGES.get(source.suffix, "")
    return f"# `{path}`\n\n````{language}\n{source.read_text()[:_MAX_SHOWN]}\n````\n"


def _get_page(path: str) -> str:
    """Where the file of the repository is on the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":  # it would be the first page of the site
        return "repository.md"
    return path if path.endswith(".md") else f"{path}.md"


def _list_foreign(page: str) -> Iterator[str]:
    """List the files outside of the docs that the page links to."""
    source = ROOT / page
    if not source.is_file() or source.suffix != ".md":
        return
    for match in _LINK.finditer(_CODE.sub("", source.read_text())):
        path = _resolve(page, match[1])
        if path is not None and not path.startswith("docs/"):
            yield path


def _resolve(page: str, link: str) -> str | None:
    """Which file of the repository is linked; those of folders are their READMEs, if there are any."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if (ROOT / path / "README.md").is_file():
        return f"{path}/README.md"
    return path if (ROOT / path).exists() else None


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links to other files of the repository lead to their pages."""
    name = page.file.src_uri
    origin = f"docs/{name}" if (ROOT / "docs" / name).is_file() else name
    here = posixpath.dirname(name)

    def replace(match: re.Match[str]) -> str:
        path = _resolve(origin, match[1])
        if path is None or (path.startswith("docs/") and origin.startswith("docs/")):
            return match[0]
        target = posixpath.relpath(_get_page(path), here or ".")
        return target + (match[2] or "")

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(replace, part) for part in parts)


def on_post_build(config: MkDocsConfig) -> None:
    """Make the links of the pages for machines relative, if nobody knows where the site will be."""
    if not config.site_url:
        site = pathlib.Path(config.site_dir)
        for path in [site / "llms.txt", *site.rglob("*.md")]:
            root = "../" * (len(path.relative_to(site).parts) - 1)
            path.write_text(path.read_text().replace("](/", f"]({root}"))


def describe_decorators() -> str:
    """All decorators with all their options."""
    parts = [
        "# Decorators\n\nEach decorator with all of its options. All of them are keywords, and all are optional.\n"
    ]
    for name in DECORATORS:
        fn: Any = kopf
        for part in name.split("."):
            fn = getattr(fn, part)
        doc = inspect.getdoc(fn) or ""
        intro = doc.partition("Options, all of which")[0].strip()
        parameters = inspect.signature(fn).parameters
        parts.append(f"\n## `@kopf.{name}`\n\n{_to_markdown(intro)}\n")
        options = dict(_OPTION.findall(doc))
        if options:
            parts.append("\n| option | default | what it is |\n| --- | --- | --- |\n")
        for option, text in options.items():
            default = parameters[option].default if option in parameters else None
            shown = "" if default in (None, inspect.Parameter.empty) else f"`{default!r}`"
            parts.append(f"| `{option}` | {shown} | {_to_markdown(' '.join(text.split()))} |\n".replace("||", "\\|\\|"))
    return "".join(parts)


def describe_commands() -> str:
    """All commands with all their options."""
    parts = ["# Commands\n\nEach command with all of its options, as `--help` tells them.\n"]
    context = click.Context(main, info_name="kopf")
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        parts.append(_describe_command(command, click.Context(command, info_name=name, parent=context)))
    return "".join(parts)


def _describe_command(command: click.Command, context: click.Context) -> str:
    usage = command.get_usage(context).removeprefix("Usage: ")
    lines = [f"\n## `{context.command_path}`\n\n```\n{usage}\n```\n\n{inspect.cleandoc(command.help or '')}\n"]
    rows = []
    for option in command.params:
        record = option.get_help_record(context)
        if record is not None:
            names, text = record
            text = re.sub(r"([|\[])", r"\\\1", " ".join(text.split()))
            rows.append(f"| `{names.replace('|', chr(92) + '|')}` | {text} |\n")
    if rows:
        lines += ["\n| option | what it is |\n| --- | --- |\n", *rows]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                lines.append(_describe_command(child, click.Context(child, info_name=name, parent=context)))
    return "".join(lines)


def describe_api() -> str:
    """All public names, from their docstrings."""
    parts = [
        "# API\n\nEverything that `import kopf` has. The decorators are [on a page of their own](decorators.md).\n"
    ]
    parts.append("\n## `kopf`\n")
    elsewhere = {"on", "cli", "testing", *DECORATORS}
    parts += [f"\n::: kopf.{name}\n" for name in sorted(kopf.__all__, key=str.lower) if name not in elsewhere]
    parts.append("\n## `kopf.testing`\n")
    parts += [f"\n::: kopf.testing.{name}\n" for name in sorted(testing.__all__, key=str.lower)]
    return "".join(parts)


def _to_markdown(text: str) -> str:
    """Convert the markup of docstrings: literals, roles, lists of parameters."""
    text = re.sub(r"^:param (\w+):", r"- `\1`:", text, flags=re.MULTILINE)
    text = re.sub(r"^:raises ([\w.]+):", r"- raises `\1`", text, flags=re.MULTILINE)
    return re.sub(r"(?::\w+:`|``)([^`]+)`+", r"`\1`", text)
