"""The server is killed in the middle of its work, and stopped by request. (mission.md sections 2 to 4, house.md)"""
import concurrent.futures
import contextlib
import datetime
import os
import random
import signal
import time

from lib.cloister import Server
from lib.crash import ENDED, IMAGE, Crash
from lib.engine import Events
from lib.http import poll


class TestServerKilled(Crash):
    config = {"limits": {"timeout_ms": 60000}}

    def test_recovery(self):
        """What ran is interrupted, what waited runs, in order, and only when the channel's old container is gone."""
        self.on("web:a", "web:b")
        first = {name: self.submit(f"web:{name}", "ignore-term") for name in "ab"}
        waiting = {name: [self.submit(f"web:{name}", f"echo {name}{n}") for n in range(3)] for name in "ab"}
        for turn in first.values():
            self.wait(turn, status=("running",))
        poll(lambda: len(self.pids()) == 2, 20, "both run")
        old, pids = {name: self.container_of(f"web:{name}") for name in "ab"}, self.pids()
        folders = {path.name for path in (self.server.root / "run").iterdir()}
        self.assertEqual(len(folders), 2)
        with Events(self.server.engine, self.installation()) as events:
            self.server.kill()
            self.assertEqual(set(self.server.containers()), set(old.values()), "they live on")
            self.assertTrue(all(os.path.exists(f"/proc/{pid}") for pid in pids))
            self.assertTrue((self.server.root / "state/admin.sock").exists())
            # Without a server: the command line finds no server behind the old socket, and takes the lock itself.
            self.assertIn("web:a", self.server.cli("channel", "list").stdout)
            self.assertTrue(self.server.key("offline").startswith("clo_"))
            self.server.start()
            self.assertTrue(self.server.key("online").startswith("clo_"))
            started = {}
            for name in "ab":
                turn = self.read(first[name])
                self.ended(turn, "interrupted", "server_restarted")
                self.assertTrue(turn["finished_at"])
                ends = [self.ended(self.wait(turn), "succeeded") for turn in waiting[name]]
                self.assertEqual([turn["reply"]["text"] for turn in ends], [f"echo {name}{n}" for n in range(3)])
                times = [time for turn in ends for time in (turn["started_at"], turn["finished_at"])]
                self.assertEqual(times, sorted(times), "one at a time, in order")
                started[name] = datetime.datetime.fromisoformat(times[0]).timestamp()
            poll(lambda: not self.server.containers(), 20, "all are gone")
            poll(lambda: [action for action, *_ in events.list()].count("start") >= 6, 10, "the engine has told of all")
            destroyed = {container: at for action, container, at in events.list() if action == "destroy"}
        for name in "ab":
            self.assertLess(destroyed[old[name]], started[name] + 0.001, "told in whole milliseconds")
        self.assertFalse(folders & {path.name for path in (self.server.root / "run").iterdir()})
        self.server.close()

    def container_of(self, channel):
        folder = str(self.server.workspace(channel))
        docs = map(self.server.engine.inspect, self.server.containers())
        return next(doc["Id"] for doc in docs if folder in [mount["Source"] for mount in doc["Mounts"]])

    def test_again_and_again(self):
        """Killed at any moment: no accepted turn is lost, none runs out of order, none is left running."""
        chance = random.Random(7)
        self.on("web:a", "web:b", "web:c")
        turns = []
        for round_ in range(4):
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
