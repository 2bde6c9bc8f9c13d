"""Holds components.schemas of openapi.yaml equal to schemas/*.json, which are what the service checks with.

components.py checks; components.py --write puts the section there anew.
"""
import json
import re
import sys

from tree import ROOT, lint

# File → component of its root; of a file without one only the $defs count.
ROOTS = {"turn_request": "TurnRequest", "channel_put": "ChannelPut", "key_create": "KeyCreate", "common": None,
         "answers": None}
# Notes of our own; openapi's readers know nothing of them.
PRIVATE = re.compile(r"^(\$schema|\$defs|\$comment|x-.*)$")


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


def reference(ref, file):
    """common.json#/$defs/channel_key → #/components/schemas/ChannelKey"""
    match = re.fullmatch(r"(?:(\w+)\.json)?#/\$defs/(\w+)", ref)
    if not match or (match[1] or file) not in ROOTS:
        raise SystemExit(f"schemas/{file}.json: {ref} has no component")
    return f"#/components/schemas/{camel(match[2])}"


def convert(schema, file, names=False):
    """The schema as openapi.yaml has it. `names`: the keys are names of properties, not keywords."""
    if isinstance(schema, list):
        return [convert(item, file) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        if not names and (PRIVATE.match(key) or (key, value) == ("format", "no-control")):
            continue
        if key == "$ref" and not names:
            result[key] = reference(value, file)
        else:
            result[key] = convert(value, file, names=key == "properties" and not names)
    return result


def components():
    found = {}
    for file, root in ROOTS.items():
        document = json.loads((ROOT / f"schemas/{file}.json").read_text())
        for name, schema in document.get("$defs", {}).items():
            found[camel(name)] = convert(schema, file)
        if root:
            found[root] = {key: value for key, value in convert(document, file).items() if key != "title"}
    return dict(sorted(found.items()))


def scalar(value):
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9 ._/;-]*", value) and \
            value not in ("null", "true", "false", "yes", "no", "on", "off"):
        return value
    return json.dumps(value, ensure_ascii=False)


def block(value, indent):
    """YAML lines of a mapping or a list."""
    pad = " " * indent
    if isinstance(value, dict):
        for key, item in value.items():
            name = key if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) else json.dumps(key)
            if isinstance(item, (dict, list)) and not flat(item):
                yield f"{pad}{name}:"
                yield from block(item, indent + 2)
            else:
                yield f"{pad}{name}: {inline(item)}"
    else:
        for item in value:
            if isinstance(item, dict) and not flat(item):
                lines = list(block(item, indent + 2))
                yield f"{pad}- {lines[0].lstrip()}"
                yield from lines[1:]
            else:
                yield f"{pad}- {inline(item)}"


def flat(value):
    if isinstance(value, dict):
        return len(inline(value)) < 90 and all(not isinstance(item, (dict, list)) for item in value.values())
    return len(inline(value)) < 100 and all(not isinstance(item, (dict, list)) for item in value)


def inline(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k) if k.startswith('$') else k}: {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return scalar(value)


def main():
    path = ROOT / "openapi.yaml"
    text = path.read_text()
    start = text.index("\n  schemas:\n") + 1
    end = re.compile(r"^ {0,2}[a-z]", re.M).search(text, start + len("  schemas:\n"))
    stop = end.start() if end else len(text)
    section = "  schemas:\n    # From schemas/*.json by tests/lint/components.py --write\n" + \
        "\n".join(block(components(), 4)) + "\n"
    if "--write" in sys.argv:
        path.write_text(text[:start] + section + text[stop:])
        return 0
    if text[start:stop] == section:
        return 0
    return lint(["openapi.yaml: components.schemas differ from schemas/*.json: run tests/lint/components.py --write"])


sys.exit(main())
