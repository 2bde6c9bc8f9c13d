#!/usr/bin/python3
"""Discovers and runs the Python tests of a folder, prints each with its time, and counts them.

Each test module runs in a process of its own, so that a test that hangs can be ended without losing the rest. A test over
its time is failed and its module goes on in a new process with the tests after it. Two modules run at once, since most wait
for an engine most of the time; those that measure, or that fill the machine, run alone. What a module has to say is
printed when it has ended.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALONE = {"test_events", "test_fair", "test_hostile", "test_load", "test_slow", "test_stop"}


class LineResult(unittest.TestResult):
    """Writes one JSON line as a test begins and one as it ends."""

    def __init__(self, stream):
        super().__init__()
        self.stream = stream
        self.outcome = None

    def say(self, **fields):
        print(json.dumps(fields), file=self.stream, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.outcome = ("passed", "")
        self.say(begin=test.id())

    def stopTest(self, test):
        super().stopTest(test)
        self.say(end=test.id(), status=self.outcome[0], text=self.outcome[1])
        self.outcome = None

    def settle(self, test, status, text):
        if self.outcome is None:  # setUpClass, setUpModule, import: no test was begun
            self.say(begin=str(test))
            self.say(end=str(test), status=status, text=text)
        else:
            self.outcome = (status, (self.outcome[1] + "\n" + text).strip())

    def addError(self, test, err):
        self.settle(test, "failed", self._exc_info_to_string(err, test))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.settle(test, "failed", f"{subtest}\n{self._exc_info_to_string(err, test)}")

    def addSkip(self, test, reason):
        self.settle(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self.settle(test, "failed", "a test may not expect to fail")

    def addUnexpectedSuccess(self, test):
        self.settle(test, "failed", "a test may not expect to fail")


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def child(path, done, pattern, stream):
    """In a process of its own: the tests of one module, without those that ran before a test was over its time."""
    # unittest lets this one exception through; what a test started is then stopped by atexit (lib/cloister.py).
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    path = pathlib.Path(path)
    sys.path[:0] = [str(path.parent), str(ROOT / "tests/integration")]
    sanitized = bool(os.environ.get("CLOISTER_SANITIZED"))
    chosen = []
    for test in flatten(unittest.TestLoader().loadTestsFromName(path.stem)):
        method = getattr(test, getattr(test, "_testMethodName", ""), None)
        if pattern in test.id() and test.id() not in done and not (sanitized and getattr(method, "release_only", False)):
            chosen.append(test)
    unittest.TestSuite(chosen).run(LineResult(stream))


class Module:
    """Runs one module from outside and keeps the counts."""

    def __init__(self, path, options):
        self.path, self.options = path, options
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.done = []
        self.log = options.logs / f"{path.stem}.log"
        self.lines = [path.name]

    def run(self):
        self.log.write_bytes(b"")
        while self.run_process():
            pass
        if not any(self.counts.values()) and not os.environ.get("CLOISTER_SANITIZED"):
            self.report(self.path.stem, "failed", 0.0, "ran no test")
        return self

    def run_process(self):
        """One process; True when a test had to be ended, so that those after it are to be run in another one."""
        read, write = os.pipe()
        command = [sys.executable, __file__, "--child", str(self.path), self.options.pattern, str(write)]
        with self.log.open("ab") as output:
            process = subprocess.Popen(command, pass_fds=[write], stdin=subprocess.PIPE, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        os.close(write)
        process.stdin.write(json.dumps(self.done).encode())
        process.stdin.close()
        with os.fdopen(read, "rb", buffering=0) as events:
            name, took = self.follow(events)
            if took is None:
                process.wait(timeout=60)
                problem = None if process.returncode == 0 else f"the process ended with {process.returncode}"
                took = 0.0
            else:
                end_session(process)
                problem = f"was stopped after {self.options.timeout} s"
        if problem:
            self.report(name or f"{self.path.stem} (outside of a test)", "failed", took, f"{problem}\n{tail(self.log)}")
        return bool(problem and name)

    def follow(self, events):
        """Reads events to the end: the test that was running then, and how long when it was over its time."""
        buffer, name, started = b"", None, time.monotonic()
        while True:
            # What surrounds the tests (setUpClass and the like) gets the same time as a test.
            left = started + self.options.timeout - time.monotonic()
            if left <= 0:
                return name, time.monotonic() - started
            if not select.select([events], [], [], left)[0]:
                continue
            data = events.read(65536)
            if not data:
                return name, None
            *lines, buffer = (buffer + data).split(b"\n")
            for event in map(json.loads, lines):
                if "begin" in event:
                    name, started = event["begin"], time.monotonic()
                    self.done.append(name)
                else:
                    self.report(name, event["status"], time.monotonic() - started, event["text"])
                    name, started = None, time.monotonic()

    def report(self, name, status, took, text):
        self.counts[status] += 1
        short = name.removeprefix(f"{self.path.stem}.")
        self.lines.append(f"  {short:<70} {'ok' if status == 'passed' else status.upper():<7} {took:6.1f} s")
        if text and status != "passed":
            self.lines += [f"      {line}" for line in text.splitlines()[-60:]]


def end_session(process):
    """Ends the test process and what it left in its session, by their ids."""
    try:
        os.killpg(process.pid, 15)
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait(timeout=15)
    except ProcessLookupError:
        process.wait(timeout=15)


def tail(path, lines=30):
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def run_all(modules, jobs):
    """Yields the modules as they end."""
    for module in modules:
        if module.path.stem in ALONE:
            yield module.run()
    with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
        others = [threads.submit(module.run) for module in modules if module.path.stem not in ALONE]
        for future in concurrent.futures.as_completed(others):
            yield future.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "tests/integration")
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--logs", type=pathlib.Path, default=ROOT / "build/log/tests")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one test")
    parser.add_argument("--jobs", type=int, default=2, help="modules at once")
    parser.add_argument("--pattern", default="", help="only tests whose id contains this")
    parser.add_argument("modules", nargs="*", help="names such as test_turns; all by default")
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    paths = [options.folder / f"{name}.py" for name in options.modules] or sorted(options.folder.glob("test_*.py"))
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for module in run_all([Module(path, options) for path in paths], options.jobs):
        print(*module.lines, sep="\n", flush=True)
        for key, value in module.counts.items():
            totals[key] += value
        if options.counts:
            with options.counts.open("a") as file:
                print(*module.counts.values(), file=file)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**totals))
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        with os.fdopen(int(sys.argv[4]), "w") as lines:
            child(sys.argv[2], json.load(sys.stdin), sys.argv[3], lines)
    else:
        sys.exit(main())
