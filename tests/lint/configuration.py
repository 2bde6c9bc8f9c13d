#!/usr/bin/python3
"""The table of docs/configuration.md says what schemas/config.json says; with --write it is made anew."""
import json
import sys

from tree import ROOT, lint

DOCUMENT = ROOT / "docs/configuration.md"
BEGIN, END = "<!-- made from schemas/config.json: begin -->\n", "<!-- made from schemas/config.json: end -->\n"


def values(schema):
    """Type and range of a key in one phrase."""
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    if schema["type"] in ("integer", "number"):
        kind = "whole number" if schema["type"] == "integer" else "number"
        return f"{kind}, more than {above}, at most {high}" if above is not None else f"{kind}, {low} to {high}"
    if schema["type"] == "boolean":
        return "true or false"
    if schema["type"] == "array":
        return f"list, at most {schema['maxItems']}"
    if schema.get("pattern") == "^/":
        return f"absolute path, at most {schema['maxLength']} characters"
    return f"text, at most {schema['maxLength']} characters" if "maxLength" in schema else "text"


def rows(schema, path=""):
    for key, sub in schema["properties"].items():
        name = f"{path}{key}"
        if "properties" in sub:
            yield from rows(sub, f"{name}.")
            continue
        default = f"`{json.dumps(sub['default'])}`" if "default" in sub else "none"
        variable = f"`{sub['x-env']}`" if "x-env" in sub else "none"
        yield f"| `{name}` | {values(sub)} | {default} | {variable} | {sub['description']} |\n"


def table():
    schema = json.loads((ROOT / "schemas/config.json").read_text())
    head = "| key | values | default | variable | meaning |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(rows(schema))


def check(write):
    text = DOCUMENT.read_text()
    before, begin, rest = text.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        yield f"{DOCUMENT.relative_to(ROOT)}: has no place for the table"
        return
    new = table()
    if write:
        DOCUMENT.write_text(before + begin + new + end + after)
    elif old != new:
        yield f"{DOCUMENT.relative_to(ROOT)}: is not what schemas/config.json says: tests/lint/configuration.py --write"


sys.exit(lint(check(sys.argv[1:] == ["--write"])))
