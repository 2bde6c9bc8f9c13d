"""A real server for a test: its own folders, port, database and configuration, run as the account cloister-test.

    with Server() as server:                      # or Server(image="cloister-test-flood:local", pool={"size": 2})
        key = server.key("ops", scopes=["turns", "channels"], channels=["web:*"])
        server.channel_on("web:lobby")
        answer = server.call("POST", "/v1/turns", {"channel": "web:lobby", ...}, key=key)
        assert answer.status == 200 and answer.json["status"] == "succeeded"

Leaving the block stops the server with SIGTERM and checks that it ended with 0, left no container and no turn's folder, and
printed no report of a sanitizer. The environment says what runs: CLOISTER_BINARY, CLOISTER_TEST_IMAGE, DOCKER_HOST and
CLOISTER_SANITIZED, and CLOISTER_PROXY for clients that hold each answer against openapi.yaml (lib/contract.py).
"""
import atexit
import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile

from lib.contract import Checked
from lib.engine import Engine
from lib.http import Client, poll
from lib.process import end
from lib.routes import ROOT

ACCOUNT = "cloister-test"
START_S, STOP_S = 30, 60
LIVE = set()


def release_only(test):
    """Marks a test whose figures (memory, time) mean nothing under a sanitizer; it runs with the release build only."""
    test.release_only = True
    return test


def binary():
    path = pathlib.Path(os.environ.get("CLOISTER_BINARY", ROOT / "build/cloister"))
    if not path.is_file():
        raise RuntimeError(f"{path} is not there: build it, or run tests/run")
    return path


def merge(base, change):
    """A copy of base with the keys of change, folders (mappings) merged; None takes a key away."""
    result = dict(base)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


class Server:
    """One installation. Not started by the constructor, so that a test may prepare its folders first."""

    def __init__(self, start=True, environment=None, engine=None, **config):
        self.account = pwd.getpwnam(ACCOUNT)
        self.engine = engine or Engine()
        source = binary()
        # Sockets live in it, and their paths are short; others may pass through but not look.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="clo-", dir="/tmp"))
        self.root.chmod(0o711)
        for name in ("state", "run", "workspaces", "reports"):
            folder = self.root / name
            folder.mkdir(mode=0o700)
            os.chown(folder, self.account.pw_uid, self.account.pw_gid)
        # A copy, since the account need not be able to reach the build folder.
        self.binary = self.root / "cloister"
        shutil.copy2(source, self.binary)
        self.binary.chmod(0o755)
        self.config = merge({
            "listen": "127.0.0.1:0",
            "state_file": str(self.root / "state/cloister.db"),
            "run_root": str(self.root / "run"),
            "workspace_root": str(self.root / "workspaces"),
            "engine_socket": self.engine.socket,
            "image": os.environ.get("CLOISTER_TEST_IMAGE", "cloister-worker:test"),
            "model": {"url": "embedded:script", "allow_script": True},
        }, config)
        self.config_file = self.root / "cloister.yaml"
        self.log_file = self.root / "log"
        self.log_file.touch()
        self.environment = dict(environment or {})
        self.process = None
        self.port = None
        self.installations = set()
        self.write_config()
        LIVE.add(self)
        if start:
            try:
                self.start()
            except BaseException:
                self.discard()
                raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.close()
        finally:
            self.discard()

    # The process

    def write_config(self, **change):
        """JSON is YAML, but for the escapes of characters beyond 16 bits; so the standard library can write it."""
        self.config = merge(self.config, change)
        self.config_file.write_text(json.dumps(self.config, indent=2, ensure_ascii=False) + "\n")
        os.chown(self.config_file, 0, self.account.pw_gid)
        self.config_file.chmod(0o640)

    def full_environment(self):
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        if os.environ.get("CLOISTER_SANITIZED"):
            # The leak check needs to trace the process, which makes itself undumpable.
            env["ASAN_OPTIONS"] = f"detect_leaks=0:log_path={self.root}/reports/asan"
            env["UBSAN_OPTIONS"] = f"print_stacktrace=1:log_path={self.root}/reports/ubsan"
            env["TSAN_OPTIONS"] = f"second_deadlock_stack=1:exitcode=0:log_path={self.root}/reports/tsan"
        env.update(self.environment)
        return env

    def as_account(self, *command):
        return ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--init-groups", "--inh-caps=-all",
                "--pdeathsig=KILL", *map(str, command)]

    def launch(self):
        """Starts `serve` and waits for nothing: where in its log this run begins."""
        assert self.process is None, "the server runs already"
        offset = self.log_file.stat().st_size
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(self.as_account(self.binary, "serve", "--config", self.config_file),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.full_environment(), cwd="/")
        return offset

    def start(self, ready=True):
        """Starts `serve` and waits until it listens, and until it is ready unless told otherwise."""
        offset = self.launch()
        self.port = poll(lambda: self.listening(offset), START_S, "the server listens")
        if ready:
            try:
                poll(self.ready, START_S, "the server is ready")
            except AssertionError as error:
                raise AssertionError(f"{error}: {self.call('GET', '/readyz')}\n{self.log()[-4000:]}") from None
        return self

    def listening(self, offset):
        """The port that the server says it took, once it does."""
        ended = self.process.poll() is not None  # before the look at what it said
        text = self.log_file.read_bytes()[offset:].decode(errors="replace")
        found = re.search(r"listening.*http://127\.0\.0\.1:(\d+)", text)
        if not found and ended:
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{text[-4000:]}")
        return int(found.group(1)) if found else None

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log()[-4000:]}")
        return self.call("GET", "/readyz").status == 200

    def stop(self, seconds=STOP_S):
        """SIGTERM, and the exit code."""
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)
            raise AssertionError(f"the server did not end within {seconds} s of SIGTERM:\n{self.log()[-4000:]}") from None

    def kill(self):
        """SIGKILL, as after a crash."""
        process, self.process = self.process, None
        process.kill()
        process.wait(timeout=10)

    def restart(self):
        code = self.stop()
        assert code == 0, f"the server ended with {code}:\n{self.log()[-4000:]}"
        return self.start()

    def close(self):
        """Stops it and checks that nothing was left behind."""
        if self.process is not None:
            code = self.stop()
            assert code == 0, f"the server ended with {code}:\n{self.log()[-4000:]}"
        self.check_nothing_left()
        self.check_reports()

    def check_nothing_left(self):
        left = self.containers()
        assert not left, f"containers are left: {left}"
        folders = [path.name for path in (self.root / "run").iterdir() if path.is_dir()]
        assert not folders, f"folders of turns are left: {folders}"

    def check_reports(self):
        reports = [path.read_text(errors="replace")[:4000] for path in (self.root / "reports").iterdir()]
        assert not reports, "a sanitizer reported:\n" + "\n".join(reports)

    def discard(self):
        """Ends and removes whatever is there, without a check."""
        LIVE.discard(self)
        if self.process is not None:
            end(self.process, STOP_S)
            self.process = None
        for container in self.containers():
            self.engine.remove(container)
        shutil.rmtree(self.root, ignore_errors=True)

    # What it is made of

    def log(self):
        return self.log_file.read_text(errors="replace")

    def log_lines(self):
        """Its log as objects; a line that is none is an error, since the log is one JSON object a line."""
        return [json.loads(line) for line in self.log().splitlines()]

    def containers(self):
        """Ids of all containers that mount a folder of this server, whatever their state."""
        return self.engine.containers_mounting(str(self.root))

    def workspace(self, channel):
        return self.root / "workspaces" / hashlib.sha256(channel.encode()).hexdigest()

    def memory_kib(self, field="VmRSS"):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.M).group(1))

    # The command line and HTTP

    def cli(self, *arguments, check=True, account=True, timeout=60, env=None):
        """Runs the command line with this server's configuration, as the account or as root."""
        command = [str(self.binary), *map(str, arguments)]
        if arguments[0] not in ("turn", "version", "help"):
            command += ["--config", str(self.config_file)]
        done = subprocess.run(self.as_account(*command) if account else command, stdin=subprocess.DEVNULL,
                              env={**self.full_environment(), **(env or {})}, cwd="/", timeout=timeout, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"cloister {' '.join(map(str, arguments))} ended with {done.returncode}:\n"
                                 f"{done.stdout}{done.stderr}")
        return done

    def key(self, name="test", scopes=("turns", "turns:read", "channels"), channels=("*",)):
        """A new API key."""
        arguments = ["key", "create", name]
        for scope in scopes:
            arguments += ["--scope", scope]
        for channel in channels:
            arguments += ["--channel", channel]
        return self.cli(*arguments).stdout.strip()

    def channel_on(self, channel):
        self.cli("channel", "on", channel)

    def client(self, key=None, timeout=90):
        if os.environ.get("CLOISTER_PROXY"):
            return Checked(self.port, key, timeout)
        return Client("127.0.0.1", self.port, key, timeout)

    def call(self, method, path, body=None, key=None, headers=None, timeout=90):
        """One request on a connection of its own: an Answer."""
        with self.client(key, timeout) as client:
            return client.call(method, path, body, headers)

    def turn(self, channel, text, key, timeout=90, speaker=("u1", "Ada"), **more):
        """Submits a turn and waits for its end: the turn."""
        body = {"channel": channel, "speaker": {"id": speaker[0], "name": speaker[1]}, "text": text, **more}
        answer = self.call("POST", "/v1/turns", body, key=key, timeout=timeout)
        assert answer.status == 200, answer
        return answer.json


@atexit.register
def discard_all():
    """A test that was ended leaves nothing running."""
    for server in list(LIVE):
        server.discard()
