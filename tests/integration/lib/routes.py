"""The service's routes as its sources list them, for tests that must not miss one."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")


def route_table():
    """{(method, path): scopes} of both tables in handlers/routes.c, and the same for those of the admin socket alone."""
    text = (ROOT / "handlers/routes.c").read_text()
    row = re.compile(r'\{"([A-Z]+)",\s+"(/[^"]*)",\s+([A-Z_| ]+),')
    shared, admin = text.split("admin_routes[]")
    return tuple({(method, path): scopes.strip() for method, path, scopes in row.findall(part)} for part in (shared, admin))


def openapi():
    return (ROOT / "openapi.yaml").read_text()


def openapi_routes(text):
    """{(method, path)} of the `paths` of an OpenAPI document in YAML, written in blocks."""
    routes, path = set(), None
    block = re.search(r"^paths:\n((?:[ #].*\n|\n)+)", text, re.M).group(1)
    for line in block.splitlines():
        if found := re.fullmatch(r"  (/\S*):", line):
            path = found.group(1)
        elif (found := re.fullmatch(r"    ([a-z]+):", line)) and found.group(1) in METHODS:
            routes.add((found.group(1).upper(), path))
    return routes
