#!/usr/bin/python3
"""Rooms use only rooms below them, and a library's header stays in its rooms (docs/house.md)."""
import re
import sys

from tree import lint, sources

# Folder of a room → its level; longer folders win. Rooms of one level do not see each other, but for those in BESIDE.
LEVELS = {
    "server/main.c": 10, "server/cli": 9, "server": 8,
    "handlers": 7,
    "server/pool": 6,
    "server/broker": 5,
    "server/sandbox": 4,
    "server/docker": 3, "server/upstream": 3, "server/auth": 3,
    "server/http": 2,
    "server/config": 1, "server/metrics": 1, "server/events": 1, "server/queue": 1, "storage": 1, "schemas": 1,
    "server/base": 0,
}
# schemas is the lowest of its level: pure checks of JSON, which configuration and storage also need.
BESIDE = {("server/config", "schemas"), ("storage", "schemas")}
# Rooms that must not meet although one is above the other: rows, queue and event bus are where they meet.
NEVER = {"handlers": {"server/pool", "server/broker", "server/sandbox", "server/docker"}}
# The program inside the container shares these only.
WORKER = {"schemas", "server/base"}
LIBRARIES = {
    "microhttpd.h": {"server/http", "server/broker"},
    "curl/curl.h": {"server/upstream", "server/docker"},
    "sqlite3.h": {"storage"},
    "yaml.h": {"server/config"},
}


def room_of(path):
    """The room that a path below the root is in, or None."""
    if path.startswith("deploy/worker/"):
        return "deploy/worker"
    while path:
        if path in LEVELS:
            return path
        path = path.rpartition("/")[0]
    return None


def target_of(include):
    """The room of an include such as "base/err.h" or "schemas/schema.h"; None for a file of the same folder."""
    if "/" not in include:
        return None
    return room_of("server/" + include) if room_of("server/" + include) != "server" else room_of(include)


def allowed(room, target):
    if target is None or target == room:
        return True
    if room == "deploy/worker":
        return target in WORKER
    if target in NEVER.get(room, ()):
        return False
    return LEVELS[target] < LEVELS[room] or (room, target) in BESIDE


def check():
    for path, text in sources(".c", ".h", folders=["server", "handlers", "storage", "schemas", "deploy/worker"]):
        room = room_of(str(path))
        for number, line in enumerate(text.splitlines(), 1):
            found = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', line)
            if not found:
                continue
            own, library = found.groups()
            if own and not allowed(room, target_of(own)):
                yield f"{path}:{number}: {room} may not use \"{own}\""
            if library in LIBRARIES and room not in LIBRARIES[library]:
                yield f"{path}:{number}: <{library}> belongs in {', '.join(sorted(LIBRARIES[library]))}"


sys.exit(lint(check()))
