#!/usr/bin/python3
"""Runs the Criterion programs of a build, one per folder of tests/unit, and counts their tests.

A program that is missing, ends without its report, or runs no test is a failure. Criterion runs each test in a child, so
that a leak or a late memory error leaves the exit code as it was: any report of a sanitizer is a failure too.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1:check_initialization_order=1"


def environment(scratch, sanitizer):
    env = dict(os.environ, LC_ALL="C.UTF-8", TMPDIR=str(scratch))
    if sanitizer:
        # Tests that become another user write their reports too.
        reports = scratch / "reports"
        reports.mkdir()
        reports.chmod(0o1777)
        env["ASAN_OPTIONS"] = f"{OPTIONS}:log_path={reports}/asan"
        env["UBSAN_OPTIONS"] = f"print_stacktrace=1:log_path={reports}/ubsan"
    return env


def read_report(path):
    """The tests of a TAP report as (name, status), and what is wrong with the report. TAP, since the JSON and XML of
    Criterion 2.4 break on quotes in a message."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    plan = next((int(line[3:]) for line in lines if re.fullmatch(r"1\.\.\d+", line)), None)
    tests = []
    for line in lines:
        found = re.match(r"(not ok|ok) - (\w+::\w+)(.*)", line)
        if found:
            skipped = "# SKIP" in found.group(3)
            status = "failed" if found.group(1) == "not ok" else "skipped" if skipped else "passed"
            tests.append((found.group(2), status, found.group(3).strip()))
    if plan is None:
        return tests, "left no report"
    if plan != len(tests):
        return tests, f"reported {len(tests)} of its {plan} tests"
    return tests, None if tests else "ran no test"


def is_of_criterion(report):
    """Is this only a leak of Criterion's own runner, which no test had a part in? Each stack of a test shows the program."""
    frames = [line for line in report.splitlines() if re.match(r"\s*#\d+ ", line) and "__interceptor_" not in line]
    return "LeakSanitizer" in report and frames and all("libcriterion.so" in line for line in frames)


def last(text, lines=40):
    return [f"    {line}" for line in text.splitlines()[-lines:]]


def run_program(program, scratch, options):
    """Runs one program; the counts (passed, failed, skipped) and what there is to say."""
    scratch.chmod(0o1777)
    report = scratch / "report.tap"
    started = time.monotonic()
    problem, output = None, ""
    if not program.exists():
        problem = "was not built"
    else:
        command = [str(program), f"--tap={report}", "--timeout", str(options.test_timeout)]
        try:
            done = subprocess.run(command, env=environment(scratch, options.sanitizer), cwd=scratch, timeout=options.timeout,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            output = done.stdout.decode(errors="replace")
            if done.returncode not in (0, 1):
                problem = f"ended with {done.returncode}"
        except subprocess.TimeoutExpired as expired:
            output = (expired.stdout or b"").decode(errors="replace")
            problem = f"was stopped after {options.timeout} s"
    tests, doubt = read_report(report)
    problem = problem or doubt

    passed = sum(status == "passed" for _, status, _ in tests)
    skipped = sum(status == "skipped" for _, status, _ in tests)
    bad = [test for test in tests if test[1] == "failed"]
    reports = [path for path in sorted(scratch.glob("reports/*"))
               if not is_of_criterion(path.read_text(errors="replace"))]
    failed = len(bad) + (problem is not None) + len(reports)

    verdict = "ok" if not failed else "FAILED"
    lines = [f"{program.name:<58}{verdict} {time.monotonic() - started:6.1f} s  {passed} passed"
             + (f", {failed} failed" if failed else "") + (f", {skipped} skipped" if skipped else "")]
    lines += [f"  {name}: {status} {note}" for name, status, note in tests if status != "passed"]
    if problem:
        lines.append(f"  {program.name} {problem}")
    if failed:
        lines += last(output)
    for path in reports:
        lines += [f"  sanitizer report {path.name}:", *last("\n".join(path.read_text(errors="replace").splitlines()[:40]))]
    return (passed, failed, skipped), lines


def run_room(room, options):
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="clo-unit-", dir="/tmp"))
    try:
        return run_program(options.build.resolve() / "tests/unit" / f"unit_{room}", scratch, options)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--sanitizer", action="store_true")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one program")
    parser.add_argument("--test-timeout", type=int, default=120, help="seconds for one test")
    parser.add_argument("rooms", nargs="*", help="folders of tests/unit; all by default")
    options = parser.parse_args()
    rooms = options.rooms or sorted(path.name for path in (ROOT / "tests/unit").iterdir()
                                    if path.is_dir() and list(path.glob("*.c")))
    totals = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(2) as threads:  # most wait for an engine or a clock most of the time
        for future in concurrent.futures.as_completed([threads.submit(run_room, room, options) for room in rooms]):
            counts, lines = future.result()
            print(*lines, sep="\n", flush=True)
            totals = [a + b for a, b in zip(totals, counts)]
            if options.counts:
                with options.counts.open("a") as file:
                    print(*counts, file=file)
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())
