"""Ends that nobody asked for, and stops that were asked for: of the server, and of the engine under it. (mission.md sections 2
to 4, house.md)"""
import concurrent.futures
import contextlib
import os
import random
import signal
import sqlite3
import time

from lib.case import Checks
from lib.cloister import Server
from lib.engine import Events
from lib.http import poll
from lib.own_engine import OwnEngine

IMAGE = "cloister-test-by-text:local"
ENDED = ("succeeded", "failed", "timed_out", "canceled", "interrupted", "ignored")


class Crash(Checks):
    """A server and a key for each test."""

    config = {}
    engine = None

    def setUp(self):
        self.server = Server(start=False, engine=self.engine, **{"image": IMAGE, "pool": {"size": 2}, **self.config})
        self.addCleanup(self.server.discard)
        self.server.start()
        self.key = self.server.key()

    def on(self, *channels):
        for channel in channels:
            self.server.channel_on(channel)

    def submit(self, channel, text):
        body = {"channel": channel, "speaker": {"id": "u1", "name": "Ada"}, "text": text}
        return self.ok(self.server.call("POST", "/v1/turns", body, self.key, {"Prefer": "respond-async"}), 202)

    def read(self, turn):
        return self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key))

    def channel(self, key):
        return self.ok(self.server.call("GET", f"/v1/channels/{key}", key=self.key))

    def wait(self, turn, seconds=30, status=ENDED):
        return poll(lambda: (t := self.read(turn))["status"] in status and t, seconds, f"{turn['id']} is {status}")

    def running(self, turn):
        """Until its container is up."""
        turn = self.wait(turn, status=("running",))
        poll(self.pids, 20, "its container runs")
        return turn

    def pids(self):
        docs = filter(None, map(self.server.engine.inspect, self.server.containers()))
        return [doc["State"]["Pid"] for doc in docs if doc["State"]["Running"]]

    def not_ready(self, reason):
        answer = self.server.call("GET", "/readyz")
        return answer.status == 503 and answer.json["detail"].startswith(reason + ": ") and answer

    def installation(self):
        with contextlib.closing(sqlite3.connect(f"file:{self.server.config['state_file']}?mode=ro", uri=True)) as state:
            return state.execute("SELECT value FROM meta WHERE name = 'installation'").fetchone()[0]


class TestServerKilled(Crash):
    config = {"limits": {"timeout_ms": 60000}}

    def test_recovery(self):
        """What ran is interrupted, what waited runs, in order, and only when the old containers are gone."""
        self.on("web:a", "web:b")
        first = {name: self.submit(f"web:{name}", "ignore-term") for name in "ab"}
        waiting = {name: [self.submit(f"web:{name}", f"echo {name}{n}") for n in range(3)] for name in "ab"}
        for turn in first.values():
            self.wait(turn, status=("running",))
        old = poll(lambda: (c := self.server.containers()) and len(self.pids()) == 2 and set(c), 20, "both run")
        pids = self.pids()
        folders = {path.name for path in (self.server.root / "run").iterdir()}
        self.assertEqual(len(folders), 2)
        with Events(self.server.engine, self.installation()) as events:
            self.server.kill()
            self.assertEqual(set(self.server.containers()), old, "they live on")
            self.assertTrue(all(os.path.exists(f"/proc/{pid}") for pid in pids))
            self.assertTrue((self.server.root / "state/admin.sock").exists())
            # Without a server: the command line finds no server behind the old socket, and takes the lock itself.
            self.assertIn("web:a", self.server.cli("channel", "list").stdout)
            self.assertTrue(self.server.key("offline").startswith("clo_"))
            self.server.start()
            self.assertTrue(self.server.key("online").startswith("clo_"))
            for name in "ab":
                turn = self.read(first[name])
                self.ended(turn, "interrupted", "server_restarted")
                self.assertTrue(turn["finished_at"])
                ends = [self.ended(self.wait(turn), "succeeded") for turn in waiting[name]]
                self.assertEqual([turn["reply"]["text"] for turn in ends], [f"echo {name}{n}" for n in range(3)])
                times = [time for turn in ends for time in (turn["started_at"], turn["finished_at"])]
                self.assertEqual(times, sorted(times), "one at a time, in order")
            poll(lambda: not self.server.containers(), 20, "all are gone")
            poll(lambda: [action for action, *_ in events.list()].count("start") >= 6, 10, "the engine has told of all")
            seen = [(action, container) for action, container, _ in events.list()]
        begun = next(at for at, (action, container) in enumerate(seen) if action == "start" and container not in old)
        self.assertEqual({container for action, container in seen[:begun] if action == "destroy"} & old, old)
        self.assertFalse(folders & {path.name for path in (self.server.root / "run").iterdir()})
        self.server.close()

    def test_again_and_again(self):
        """Killed at any moment: no accepted turn is lost, none runs out of order, none is left running."""
        chance = random.Random(7)
        self.on("web:a", "web:b", "web:c")
        turns = []
        for round_ in range(5):
            for name in "abc":
                turns += [self.submit(f"web:{name}", f"echo {round_}.{n}") for n in range(2)]
            end = time.monotonic() + chance.random()
            while time.monotonic() < end and self.read(turns[-1])["status"] not in ENDED:
                pass
            self.server.kill()
            self.server.start()
        last = {}
        for turn in turns:
            turn = self.wait(turn, 60)
            self.assertIn((turn["status"], turn["error"] and turn["error"]["code"]),
                          (("succeeded", None), ("interrupted", "server_restarted")))
            self.assertGreaterEqual(turn["started_at"], last.get(turn["channel"], ""))
            last[turn["channel"]] = turn["started_at"]
        self.assertGreater(sum(self.read(turn)["status"] == "succeeded" for turn in turns), len(turns) // 2)
        poll(lambda: not self.server.containers(), 20, "all are gone")
        self.server.close()

    def test_another_installation_is_left_alone(self):
        """A server that starts removes its own leftovers only, though others use the same engine."""
        self.on("web:a")
        turn = self.running(self.submit("web:a", "ignore-term"))
        with Server(image=IMAGE) as other:
            key = other.key()
            other.channel_on("web:a")
            self.ended(other.turn("web:a", "echo", key), "succeeded")
        self.assertEqual(self.read(turn)["status"], "running")
        self.assertEqual(len(self.pids()), 1)
        self.ok(self.server.call("POST", "/v1/channels/web:a/stop", key=self.key))
        self.ended(self.wait(turn), "canceled", "canceled")
        self.server.close()


class TestServerStopped(Crash):
    config = {"limits": {"timeout_ms": 60000}, "image": "cloister-worker:test"}

    def setUp(self):
        super().setUp()
        self.threads = concurrent.futures.ThreadPoolExecutor(8)
        self.addCleanup(self.threads.shutdown)

    def parked(self, channel, text):
        """A client that waits for the end of its turn, and the turn."""
        body = {"channel": channel, "speaker": {"id": "u1", "name": "Ada"}, "text": text}
        return self.threads.submit(self.server.call, "POST", "/v1/turns", body, self.key)

    def park(self, text="/sleep 1500"):
        """Two turns that run, three that wait; a client at each."""
        self.on("web:a", "web:b")
        running = [self.parked("web:a", text), self.parked("web:b", text)]
        poll(lambda: len(self.pids()) == 2, 20, "both run")
        waiting = []
        for n in range(3):
            waiting.append(self.parked("web:a", f"later {n}"))
            poll(lambda n=n: self.channel("web:a")["queued"] == n + 1, 10, "it waits")
        return running, waiting

    def stop(self, *delays):
        """SIGTERM, more of them after these delays: the exit code and how long it took."""
        process, self.server.process = self.server.process, None
        before = time.monotonic()
        process.send_signal(signal.SIGTERM)
        for delay in delays:
            with contextlib.suppress(Exception):
                process.wait(timeout=delay)
            process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
        return code, time.monotonic() - before

    def later(self, waiting):
        """The waiting clients were told where their turns are; these run after the next start, in order."""
        turns = []
        for answer in (future.result(10) for future in waiting):
            turn = self.ok(answer, 202)
            self.assertEqual(turn["status"], "queued")
            self.assertEqual(answer.headers["location"], f"/v1/turns/{turn['id']}")
            turns.append(turn)
        self.server.start()
        ends = [self.ended(self.wait(turn), "succeeded") for turn in turns]
        self.assertEqual([turn["reply"]["text"] for turn in ends], [f"later {n}" for n in range(3)])
        self.assertEqual(sorted(turn["started_at"] for turn in ends), [turn["started_at"] for turn in ends])

    def test_term_lets_running_turns_end(self):
        running, waiting = self.park()
        code, took = self.stop()
        self.assertEqual(code, 0)
        self.assertLess(took, 10)
        for future in running:
            self.ended(self.ok(future.result(10)), "succeeded")
        self.later(waiting)
        self.server.close()

    def test_refused_while_stopping(self):
        """New turns are refused, reads are answered, /readyz says why."""
        running, _ = self.park("/sleep 3000")
        turn = self.ok(self.server.call("GET", "/v1/channels/web:a", key=self.key))
        self.assertTrue(turn["busy"])
        process, self.server.process = self.server.process, None
        process.send_signal(signal.SIGTERM)
        poll(lambda: self.not_ready("draining"), 5, "it says so")
        body = {"channel": "web:b", "speaker": {"id": "u1", "name": "Ada"}, "text": "too late"}
        self.problem(self.server.call("POST", "/v1/turns", body, self.key), 503, "draining")
        self.assertEqual(self.server.call("GET", "/livez").status, 200)
        self.assertEqual(self.channel("web:b")["busy"], True)
        self.assertEqual(process.wait(timeout=30), 0)
        for future in running:
            self.ended(self.ok(future.result(10)), "succeeded")
        self.server.close()

    def test_drain_time(self):
        """What does not end in time is aborted and says so; its client is answered."""
        self.server.write_config(pool={"drain_ms": 500})
        self.server.restart()
        running, waiting = self.park("/sleep 60000")
        code, took = self.stop()
        self.assertEqual(code, 0)
        self.assertLess(took, 8)
        for future in running:
            self.ended(self.ok(future.result(10)), "interrupted", "server_restarted")
        self.later(waiting)
        self.server.close()

    def test_second_term_is_quick(self):
        running, waiting = self.park("/sleep 60000")
        code, took = self.stop(0.5)
        self.assertEqual(code, 0)
        self.assertLess(took, 8)
        for future in running:
            self.ended(self.ok(future.result(10)), "interrupted", "server_restarted")
        self.later(waiting)
        self.server.close()


class TestEngine(Crash):
    """The engine under the server is killed, hangs, or one of its containers does."""

    config = {"limits": {"timeout_ms": 4000, "grace_ms": 500}}

    @classmethod
    def setUpClass(cls):
        cls.engine = OwnEngine(IMAGE)
        cls.addClassCleanup(cls.engine.discard)

    def setUp(self):
        self.config = {**self.config, "engine_socket": self.engine.socket}
        super().setUp()
        self.on("web:a", "web:b")

    def test_killed_and_started_again(self):
        running = self.submit("web:a", "ignore-term")
        waiting = self.submit("web:a", "echo after")
        self.running(running)
        (pid,) = self.pids()
        self.engine.kill()
        self.ended(self.wait(running, 10), "failed", "engine_unavailable")
        poll(lambda: self.not_ready("engine_unavailable"), 5, "it says so")
        self.problem(self.server.call("GET", "/readyz"), 503, "not_ready")
        self.assertEqual(self.server.call("GET", "/livez").status, 200)
        other = self.submit("web:b", "echo other")
        self.assertEqual((self.read(waiting)["status"], self.read(other)["status"]), ("queued", "queued"))
        poll(lambda: self.channel("web:a")["blocked"], 15, "its death cannot be proven")
        self.assertFalse(self.channel("web:b")["blocked"])
        self.engine.start()
        self.ended(self.wait(other), "succeeded")
        self.ended(self.wait(waiting), "succeeded")
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        poll(self.server.ready, 10, "it is ready by itself")
        self.assertFalse(self.channel("web:a")["blocked"])
        poll(lambda: not self.server.containers(), 20, "all are gone")
        self.server.close()

    def test_hangs(self):
        """A stopped engine: the turn ends in time, its channel waits for the proof of its death, and goes on."""
        running = self.running(self.submit("web:a", "ignore-term"))
        waiting = self.submit("web:a", "echo after")
        self.addCleanup(self.resume)
        self.engine.signal(signal.SIGSTOP)
        began = time.monotonic()
        self.ended(self.wait(running, 4 + 0.5 + 5), "timed_out", "timeout")
        poll(lambda: self.not_ready("engine_unavailable"), 10, "it says so")
        poll(lambda: self.channel("web:a")["blocked"], 15, "its death cannot be proven")
        self.problem(self.server.call("DELETE", "/v1/channels/web:a", key=self.key), 409, "conflict")
        other = self.submit("web:b", "echo other")
        self.assertEqual(self.read(waiting)["status"], "queued")
        self.assertGreater(time.monotonic() - began, 3)
        self.engine.signal(signal.SIGCONT)
        for turn in (waiting, other):
            self.ended(self.wait(turn), "succeeded")
        self.assertFalse(self.channel("web:a")["blocked"])
        poll(self.server.ready, 10, "it is ready by itself")
        self.server.close()

    def resume(self):
        if self.engine.processes:
            self.engine.signal(signal.SIGCONT)

    def test_one_container_hangs(self):
        """What looks after one container hangs: that channel alone is blocked, the others go on."""
        running = self.running(self.submit("web:a", "ignore-term"))
        waiting = self.submit("web:a", "echo after")
        (pid,) = self.pids()
        shim = self.engine.shim_of(pid)
        self.assertIn(shim, list(self.engine.shims()))
        os.kill(shim, signal.SIGSTOP)
        try:
            answer = self.ok(self.server.call("POST", "/v1/channels/web:a/stop", key=self.key))
            self.assertTrue(answer["stopped"])
            self.ended(self.wait(running, 10), "canceled", "canceled")
            poll(lambda: self.channel("web:a")["blocked"], 15, "its death cannot be proven")
            for n in range(3):
                self.ended(self.wait(self.submit("web:b", f"echo {n}"), 10), "succeeded")
            self.assertEqual(self.server.call("GET", "/readyz").status, 200)
            self.assertEqual(self.read(waiting)["status"], "queued")
            self.problem(self.server.call("DELETE", "/v1/channels/web:a", key=self.key), 409, "conflict")
        finally:
            os.kill(shim, signal.SIGCONT)
        self.ended(self.wait(waiting), "succeeded")
        self.assertFalse(self.channel("web:a")["blocked"])
        self.server.close()

    def test_started_before_the_engine(self):
        """The server starts without an engine, takes turns, and runs them when it is there."""
        self.assertEqual(self.server.stop(), 0)
        self.engine.kill()
        try:
            self.server.start(ready=False)
            poll(lambda: self.not_ready("engine_unavailable"), 5, "it says so")
            turn = self.submit("web:a", "echo early")
            done = self.server.cli("check", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"engine {self.engine.socket}: ")
        finally:
            self.engine.start()
        self.ended(self.wait(turn), "succeeded")
        self.server.close()
