"""The page at ``/schema``: what OpenAPI says, as one document that loads nothing from anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from litestar import Request
from litestar.openapi.plugins import OpenAPIRenderPlugin

_METHODS = ("get", "post", "put", "patch", "delete")
_STYLE = """
:root { color-scheme: light dark; --ink: #1b2432; --soft: #55627a; --paper: #fff; --card: #f1f4f9;
  --edge: #c3ccda; --accent: #0f766e }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8edf5; --soft: #aab6c9; --paper: #12161d; --card: #1a2029; --edge: #3d4a5e;
    --accent: #2dd4bf }
}
body { margin: 0 auto; padding: 2rem 1.5rem 6rem; max-width: 60rem; color: var(--ink);
  background: var(--paper);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif }
h1, h2, h3 { line-height: 1.2 }
h2 { margin-top: 3rem }
a { color: var(--accent) }
code, pre { font-size: .88em;
  font-family: ui-monospace, "DejaVu Sans Mono", "Liberation Mono", Menlo, monospace }
article { background: var(--card); border-radius: 12px; padding: .3rem 1.2rem 1rem; margin: 1rem 0 }
article h3 code:first-child { color: var(--accent); margin-right: .6rem }
pre { overflow-x: auto; background: var(--paper); border: 1px solid var(--edge); border-radius: 8px;
  padding: .8rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-top: 1px solid var(--edge) }
th { border-top: 0 }
td:first-child { white-space: nowrap }
.soft, summary { color: var(--soft) }
summary { cursor: pointer }
"""


class SchemaPage(OpenAPIRenderPlugin):
    """Every route with its fields, answers and examples, from the same description that programs read."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return render_page(openapi_schema).encode()


def render_page(schema: Mapping[str, Any]) -> str:
    """An OpenAPI description as HTML."""
    info = schema["info"]
    title = f"{info['title']} {info['version']}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{escape(info.get('description', ''))}</p>"
        '<p class="soft">For programs: <a href="/schema/openapi.json">openapi.json</a></p>'
        f"{''.join(_routes(schema))}<h2>Bodies</h2>{''.join(_bodies(schema))}</body></html>"
    )


def _routes(schema: Mapping[str, Any]) -> Iterator[str]:
    operations = [
        (method, path, item[method])
        for path, item in schema["paths"].items()
        for method in _METHODS
        if method in item
    ]
    for tag in dict.fromkeys(tag for _, _, each in operations for tag in each.get("tags", [""])):
        yield f"<h2>{escape(tag)}</h2>"
        for method, path, each in operations:
            if tag in each.get("tags", [""]):
                yield _route(method, path, each)


def _route(method: str, path: str, about: Mapping[str, Any]) -> str:
    said = [f"<h3><code>{method.upper()}</code><code>{escape(path)}</code></h3>"]
    said += [
        f"<p><strong>{escape(about.get('summary', ''))}</strong></p>",
        _prose(about.get("description", "")),
    ]
    if about.get("parameters"):
        rows = [
            (each["name"], each.get("in", ""), _type(each.get("schema", {})), each.get("description", ""))
            for each in about["parameters"]
        ]
        said.append(_table(("parameter", "in", "type", "is"), rows))
    for kind, media in about.get("requestBody", {}).get("content", {}).items():
        said += [f"<p>Body: <code>{escape(kind)}</code></p>", _content(media)]
    for status, answer in sorted(about.get("responses", {}).items()):
        kinds = answer.get("content", {})
        inner = "".join(
            f"<p><code>{escape(kind)}</code></p>{_content(media)}" for kind, media in kinds.items()
        )
        is_open = " open" if status < "300" else ""
        head = f"<code>{status}</code> {escape(answer.get('description', ''))}"
        said.append(f"<details{is_open}><summary>{head}</summary>{inner}</details>")
    return f"<article>{''.join(said)}</article>"


def _content(media: Mapping[str, Any]) -> str:
    schema = media.get("schema", {})
    said = [_fields(schema) if "properties" in schema else f"<p>{_type(schema)}</p>"]
    for example in media.get("examples", {}).values():
        value = example.get("value")
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        said.append(f'<p class="soft">{escape(example.get("summary", ""))}</p><pre>{escape(text)}</pre>')
    return "".join(said)


def _bodies(schema: Mapping[str, Any]) -> Iterator[str]:
    for name, each in schema.get("components", {}).get("schemas", {}).items():
        about = _prose(each.get("description", ""))
        yield f'<article id="{escape(name)}"><h3>{escape(name)}</h3>{about}{_fields(each)}</article>'


def _fields(schema: Mapping[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = [
        (name, "required" if name in needed else "", _type(each), each.get("description", ""))
        for name, each in schema.get("properties", {}).items()
    ]
    return _table(("field", "", "type", "is"), rows) if rows else f"<p>{_type(schema)}</p>"


def _type(schema: Mapping[str, Any]) -> str:
    """A type in a few words of HTML; named ones are links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(each))}</code>" for each in schema["enum"])
    several = schema.get("oneOf") or schema.get("anyOf")
    if several:
        return " or ".join(_type(each) for each in several)
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(kind if isinstance(kind, str) else " or ".join(kind))


def _table(headings: tuple[str, ...], rows: list[tuple[str, str, str, str]]) -> str:
    """The third column is HTML already, the others are text."""
    head = "".join(f"<th>{escape(each)}</th>" for each in headings)
    body = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(more)}</td><td>{kind}</td><td>{_inline(about)}</td></tr>"
        for name, more, kind, about in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _prose(text: str) -> str:
    """Paragraphs and bullets of a description."""
    said = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("* "):
            points = "".join(f"<li>{_inline(point)}</li>" for point in re.split(r"(?:^|\n)\* ", block)[1:])
            said.append(f"<ul>{points}</ul>")
        elif block:
            said.append(f"<p>{_inline(block)}</p>")
    return "".join(said)


def _inline(text: str) -> str:
    return re.sub(r"``?([^`]+)``?", r"<code>\1</code>", escape(text))
