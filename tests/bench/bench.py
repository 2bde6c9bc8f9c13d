"""The figures of tests/bench/run. Every round measures each path once, one after the other, so that a busy machine moves all
of them; what is compared are the medians of one run."""
import argparse
import json
import os
import pathlib
import secrets
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

from lib.cloister import Server
from lib.engine import Engine
from lib.http import poll

IMAGE = "cloister-worker:test"
WARM_UP = 3


class Gone:
    """Measures how long until something that is asked again and again says yes."""

    def __init__(self, began):
        self.began = began

    def wait(self, condition):
        poll(condition, 30, "the end of the container")
        return (time.monotonic() - self.began) * 1000


class ColdTurn:
    """A turn as a client sees it: from the request to the answer; then until its channel is free, its container proven dead."""
    name = "cold turn (embedded:echo)"

    def __init__(self, server, key):
        self.client = server.client(key)
        self.server = server
        self.body = {"channel": "bench:one", "speaker": {"id": "u", "name": "U"}, "text": "hello"}

    def run(self):
        began = time.monotonic()
        answer = self.client.call("POST", "/v1/turns", self.body)
        newline = (time.monotonic() - began) * 1000
        assert answer.status == 200 and answer.json["reply"]["text"] == "hello", answer
        gone = Gone(began).wait(lambda: not self.client.call("GET", "/v1/channels/bench:one").json["busy"])
        return newline, gone


class Seal:
    """Folders of our own, and the service's own create body for them."""

    def __init__(self, engine, spec, account):
        self.engine = engine
        self.account = account
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="clo-bench-", dir="/tmp"))
        self.dir.chmod(0o755)
        for name in ("broker", "workspace"):
            (self.dir / name).mkdir(mode=0o700)
            os.chown(self.dir / name, account.pw_uid, account.pw_gid)
        image = engine.get(f"/images/{IMAGE}/json")["Id"]
        self.slot = secrets.token_hex(16)
        made = subprocess.run([spec, image, self.dir / "broker", self.dir / "workspace", str(account.pw_uid),
                               str(account.pw_gid), self.slot], check=True, stdout=subprocess.PIPE)
        self.body = json.loads(made.stdout)
        self.line = (json.dumps({
            "version": 1, "id": "turn_bench", "text": "hello", "speaker": {"id": "u", "name": "U"}, "model": "m",
            "prompt": "", "time_zone": "UTC", "tools": [], "mcp": [], "caller_tools": [], "reset": False,
            "workspace": "/workspace", "deadline_ms": 60000}) + "\n").encode()

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def stdout_of(frames):
    """What the Engine's frames hold of stdout: 8 bytes of head each, the stream in the first, the length in the last four."""
    out = b""
    while len(frames) >= 8:
        length = int.from_bytes(frames[4:8], "big")
        if frames[0] == 1:
            out += frames[8:8 + length]
        frames = frames[8 + length:]
    return out


class BareCycle:
    """The same container by the Engine API alone, with a loop of our own: create, attach, start, newline; then removal."""
    name = "bare Engine cycle"

    def __init__(self, seal):
        self.seal = seal
        self.engine = seal.engine

    def attach(self, name):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(30)
        sock.connect(self.engine.socket)
        sock.sendall(f"POST /v1.41/containers/{name}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
                     "Host: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(4096)
        assert b" 101 " in head.split(b"\r\n", 1)[0] or b" 200 " in head.split(b"\r\n", 1)[0], head
        return sock, head.split(b"\r\n\r\n", 1)[1]

    def run(self):
        name = f"cloister-bench-{secrets.token_hex(8)}"
        began = time.monotonic()
        answer = self.engine.call("POST", f"/containers/create?name={name}", self.seal.body)
        assert answer.status == 201, answer
        sock, out = self.attach(name)
        sock.sendall(self.seal.line)
        sock.shutdown(socket.SHUT_WR)
        answer = self.engine.call("POST", f"/containers/{name}/start")
        assert answer.status == 204, answer
        while b"\n" not in stdout_of(out):
            part = sock.recv(65536)
            assert part, "the attach ended without a reply"
            out += part
        newline = (time.monotonic() - began) * 1000
        assert b'"ok"' in out, out
        sock.close()
        assert self.engine.remove(name) in (204, 404, 409)
        return newline, Gone(began).wait(lambda: self.engine.inspect(name) is None)


class DockerRun:
    """`docker run` with the same flags."""
    name = "docker run, same flags"

    def __init__(self, seal):
        self.seal = seal
        self.engine = seal.engine
        options = seal.body["HostConfig"]["SecurityOpt"]
        profile = next(option.split("=", 1)[1] for option in options if option.startswith("seccomp="))
        self.profile = seal.dir / "seccomp.json"
        self.profile.write_text(profile)

    def run(self):
        seal, name = self.seal, f"cloister-bench-{secrets.token_hex(8)}"
        account = seal.account
        command = ["docker", "run", "--rm", "--interactive", "--log-driver", "none", "--pull", "never", "--name", name,
                   "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true",
                   "--security-opt", f"seccomp={self.profile}", "--user", f"{account.pw_uid}:{account.pw_gid}",
                   "--memory", "512m", "--memory-swap", "512m", "--cpus", "1", "--pids-limit", "64", "--ipc", "none",
                   "--ulimit", "nofile=256:256", "--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=64m,mode=1777",
                   "--mount", f"type=bind,src={seal.dir}/broker,dst=/broker,readonly,bind-propagation=rprivate",
                   "--mount", f"type=bind,src={seal.dir}/workspace,dst=/workspace,bind-propagation=rprivate",
                   "--env", "HOME=/tmp/home", IMAGE]
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdin.write(seal.line)
        process.stdin.close()
        line = process.stdout.readline()
        newline = (time.monotonic() - began) * 1000
        assert b'"ok"' in line, line
        process.wait(timeout=30)
        return newline, Gone(began).wait(lambda: self.engine.inspect(name) is None)


def throughput(server, key, seconds):
    """Turns a second with more channels than threads, all waiting."""
    stop, done = time.monotonic() + seconds, []

    def work(number):
        with server.client(key) as client:
            while time.monotonic() < stop:
                answer = client.call("POST", "/v1/turns", {"channel": f"bench:t{number}", "text": "x",
                                                           "speaker": {"id": "u", "name": "U"}})
                assert answer.json["status"] == "succeeded", answer
                done.append(time.monotonic())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len([moment for moment in done if moment <= stop]) / seconds


def summary(values):
    return {"min": round(min(values), 1), "median": round(statistics.median(values), 1), "max": round(max(values), 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", required=True, type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="10 rounds instead of 60")
    parser.add_argument("--json", type=pathlib.Path, help="also write the figures there")
    arguments = parser.parse_args()
    rounds = 10 if arguments.quick else 60

    engine = Engine()
    load = os.getloadavg()[0]
    with Server(model={"url": "embedded:echo", "allow_script": None}) as server:
        key = server.key("bench", scopes=["turns", "channels"], channels=["bench:*"])
        for channel in ["bench:one"] + [f"bench:t{number}" for number in range(8)]:
            server.channel_on(channel)
        seal = Seal(engine, arguments.spec, server.account)
        try:
            paths = [ColdTurn(server, key), BareCycle(seal), DockerRun(seal)]
            taken = {path.name: ([], []) for path in paths}
            for number in range(-WARM_UP, rounds):
                for path in paths[number % 3:] + paths[:number % 3]:
                    newline, gone = path.run()
                    if number >= 0:
                        taken[path.name][0].append(newline)
                        taken[path.name][1].append(gone)
            rate = throughput(server, key, 3 if arguments.quick else 10)
        finally:
            seal.close()

    figures = {"rounds": rounds, "cores": os.cpu_count(), "load_before": round(load, 2), "turns_per_second": round(rate, 1),
               "paths": {name: {"newline_ms": summary(newline), "gone_ms": summary(gone)}
                         for name, (newline, gone) in taken.items()}}
    cold, bare, docker = (figures["paths"][path.name]["newline_ms"]["median"] for path in paths)
    figures["ratios"] = {"cold turn / bare cycle": round(cold / bare, 2), "cold turn / docker run": round(cold / docker, 2)}
    quarters = statistics.quantiles(taken[paths[1].name][0], n=4)
    figures["noise"] = round((quarters[2] - quarters[0]) / bare, 2)

    print(f"\n{rounds} rounds, interleaved; milliseconds, min/median/max")
    print(f"{'':28}{'to the newline':>22}{'to proven death':>24}")
    for name, path in figures["paths"].items():
        row = ["/".join(str(path[what][which]) for which in ("min", "median", "max")) for what in ("newline_ms", "gone_ms")]
        print(f"{name:28}{row[0]:>22}{row[1]:>24}")
    for name, ratio in figures["ratios"].items():
        print(f"{name}: {ratio}")
    print(f"turns a second, 8 clients, pool of {server.config.get('pool', {}).get('size', 4)}: {figures['turns_per_second']}")
    print(f"noise: the middle half of the bare cycle spans {figures['noise']:.0%} of its median; "
          f"load before: {figures['load_before']} on {figures['cores']} cores")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


main()
