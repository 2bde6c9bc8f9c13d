#!/usr/bin/python3
"""Files to 450 lines (tests 700), functions to 75 (tests 100), server/main.c to 80: what is longer does more than one thing."""
import re
import sys

from tree import lint, sources

FILE_LINES, FUNCTION_LINES, MAIN_LINES = 450, 75, 80
TEST_FILE_LINES, TEST_FUNCTION_LINES = 700, 100


def functions(lines):
    """(name, first line, length) of each function: clang-format puts its braces alone in the first column."""
    start = name = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            head = " ".join(lines[max(0, number - 6):number - 1])
            found = re.findall(r"(\w+)\s*\(", head)
            start, name = number, found[-1] if found else "?"
            for back in range(number - 1, max(0, number - 6), -1):
                match = re.match(r"^[A-Za-z_].*?\b(\w+)\(", lines[back - 1])
                if match:
                    start, name = back, match.group(1)
                    break
        elif line == "}" and start:
            yield name, start, number - start + 1
            start = None


def check():
    for path, text in sources(".c", ".h", ".py", ".sh", ""):
        lines = text.splitlines()
        test = path.parts[0] == "tests"
        most = TEST_FILE_LINES if test else FILE_LINES
        if str(path) == "server/main.c":
            most = MAIN_LINES
        if len(lines) > most:
            yield f"{path}: {len(lines)} lines, {most} at most"
        if path.suffix != ".c":
            continue
        most = TEST_FUNCTION_LINES if test else FUNCTION_LINES
        for name, start, length in functions(lines):
            if length > most:
                yield f"{path}:{start}: {name} has {length} lines, {most} at most"


sys.exit(lint(check()))
