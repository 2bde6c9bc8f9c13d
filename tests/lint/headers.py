#!/usr/bin/python3
"""A header begins with its own name and what it is for, and is included once; a shell script stops at its first error."""
import re
import sys

from tree import lint, sources


def check():
    for path, text in sources(".h"):
        name = str(path).removeprefix("server/")
        first = text.split("\n", 1)[0]
        if path.parts[0] != "tests" and not re.match(rf"/\* (\S*/)?{re.escape(path.name)}: \S", first):
            yield f"{path}:1: begins with \"/* {name}: what it is for\""
        if not re.search(r"^#pragma once$", text, re.M):
            yield f"{path}: has no #pragma once"
    for path, text in sources("", ".c", ".h", ".py", ".sh"):
        if path.suffix == "" and "bash" in text.split("\n", 1)[0] and "set -euo pipefail" not in text:
            yield f"{path}: does not say \"set -euo pipefail\""
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                yield f"{path}:{number}: ends with white space"
            if path.suffix in (".c", ".h") and re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line):
                yield f"{path}:{number}: leaves work behind: an issue is the place for it"
    for path, text in sources("", ".sh", ".py", folders=["deploy", "tests", ".ci"]):
        for number, line in enumerate(text.splitlines(), 1):
            if path.name != "headers.py" and re.search(r"\b(pkill|killall)\b", line):
                yield f"{path}:{number}: ends processes by their name"


sys.exit(lint(check()))
