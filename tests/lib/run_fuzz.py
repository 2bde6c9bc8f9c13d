#!/usr/bin/python3
"""Runs the libFuzzer targets of tests/fuzz: first every file of the target's corpus and regressions, one by one, then the
fuzzer for a while. Each target is one test.

What a target breaks on is kept in the folder --findings. Once the cause is gone, the file goes to
tests/fuzz/regressions/TARGET/, so that it stays gone.
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
FOLDER = ROOT / "tests/fuzz"
# Words that mutations are helped with.
DICTIONARIES = {"fuzz_http": "http", "fuzz_broker": "http"}
JSON = {"json", "model_input", "schema_equal", "reply", "embedded", "upstream_answer", "worker_turn", "worker_files",
        "worker_agent"}
# Servers of several threads: what they hold while a run ends is no leak. The whole program is still checked at its end.
THREADED = {"fuzz_http", "fuzz_broker"}


def options_of(target, findings):
    word = DICTIONARIES.get(target) or ("json" if target.removeprefix("fuzz_") in JSON else None)
    return ["-rss_limit_mb=2048", "-timeout=20", "-close_fd_mask=2", f"-artifact_prefix={findings}/{target}-",
            *([f"-dict={FOLDER}/dict/{word}.dict"] if word else []),
            *(["-detect_leaks=0"] if target in THREADED else [])]


def run(command, seconds):
    """The exit code and what was said; a program that does not end is stopped."""
    env = dict(os.environ, LC_ALL="C.UTF-8", ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1",
               UBSAN_OPTIONS="print_stacktrace=1")
    try:
        done = subprocess.run(["nice", "-n", "19", *command], env=env, timeout=seconds, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as expired:
        return -1, (expired.stdout or b"").decode(errors="replace") + f"\nstopped after {seconds} s"


def test(target, options):
    """(passed, line, what the program said)"""
    program = options.build.resolve() / "tests/fuzz" / target
    kept = [FOLDER / kind / target for kind in ("corpus", "regressions")]
    files = [str(path) for folder in kept for path in sorted(folder.glob("*"))]
    started = time.monotonic()
    if not program.exists():
        return False, f"{target} was not built", ""
    if not files:
        return False, f"{target} has no corpus", ""
    common = [str(program), *options_of(target, options.findings)]
    code, said = run([*common, *files], 600)
    what = f"{len(files)} files"
    if code == 0 and said.count("Executed ") != len(files):
        code, said = -1, said + f"\nran {said.count('Executed ')} of {len(files)} files"
    if code == 0 and options.seconds:
        scratch = tempfile.mkdtemp(prefix="clo-fuzz-", dir="/tmp")
        try:
            folders = [str(folder) for folder in kept if folder.is_dir()]
            code, said = run([*common, f"-max_total_time={options.seconds}", "-print_final_stats=1", scratch, *folders],
                             options.seconds + 300)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        runs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", said)
        covered = re.findall(r" cov: (\d+)", said)
        what += f", {runs[-1] if runs else '?'} runs, coverage {covered[-1] if covered else '?'}"
        if code == 0 and not (runs and int(runs[-1]) > len(files)):
            code, said = -1, said + "\nthe fuzzer did not run"
    verdict = "ok" if code == 0 else "FAILED"
    return code == 0, f"{target:<58}{verdict} {time.monotonic() - started:6.1f} s  {what}", said


def show(said):
    lines = said.splitlines()
    first = next((i for i, line in enumerate(lines) if re.search("BROKEN|ERROR|runtime error", line)), len(lines) - 30)
    for line in lines[max(0, first):][:30]:
        print(f"    {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--findings", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=8, help="of fuzzing for each target; 0: only the kept files")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("targets", nargs="*", help="all by default")
    options = parser.parse_args()
    options.findings.mkdir(parents=True, exist_ok=True)
    targets = options.targets or sorted(path.stem for path in FOLDER.glob("fuzz_*.c"))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for passed, line, said in pool.map(lambda target: test(target, options), targets):
            print(line)
            if not passed:
                show(said)
            sys.stdout.flush()
            failed += not passed
            if options.counts:
                with options.counts.open("a") as file:
                    print(int(passed), int(not passed), 0, file=file)
    for path in sorted(options.findings.iterdir()):
        print(f"  kept: {path}")
    print(f"{len(targets) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not targets else 0


if __name__ == "__main__":
    sys.exit(main())
