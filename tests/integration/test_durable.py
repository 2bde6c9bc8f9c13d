"""Nothing that was accepted is lost, whatever dies meanwhile: the server, or the engine under it. (mission.md sections 2, 4)"""
import os
import random
import signal
import time

from lib.case import SPEAKER, Checks
from lib.cloister import Server, release_only
from lib.http import poll
from lib.load import Load
from lib.own_engine import OwnEngine

IMAGE = "cloister-test-by-text:local"
LONG = bool(os.environ.get("LONG"))
SEED = int(os.environ.get("CLOISTER_TEST_SEED", time.time_ns() % 2**32))


def cycles(short, long):
    if LONG:
        return long
    return max(short // 4, 1) if os.environ.get("CLOISTER_SANITIZED") else short


class TestServerKilled(Checks):
    """SIGKILL while it starts, recovers, accepts, runs and buries; slow and quick turns; some may run again."""

    def one(self, size, rounds):
        chance = random.Random(SEED + size)
        print(f"seed {SEED}")
        with Server(image=IMAGE, pool={"size": size}) as server:
            load = Load(server, server.key(), 6, SEED)
            for number in range(rounds):
                load.begin(1 if load.open() < 40 else 0)  # what is accepted here must run in the end
                time.sleep(chance.uniform(0, chance.choice((0.1, 0.3, 0.6, 2))))  # not to wait for anything: the moment is what is tested
                server.kill()
                load.join()
                if chance.random() < 0.25:  # once more, before it has come up
                    server.launch()
                    time.sleep(chance.uniform(0, 0.15))
                    server.kill()
                server.start(ready=False)
            load.settle()
            turns = load.check(self, ["server_restarted"])
            ends = [turn["error"] is None for turn in turns]
            self.assertGreater(sum(ends), len(ends) // 10, "it got somewhere")
            print(f"{rounds} kills, {len(turns)} turns, {len(ends) - sum(ends)} interrupted, "
                  f"{sum(turn['attempts'] > 1 for turn in turns)} run again")

    def test_two_threads(self):
        self.one(2, cycles(20, 250))

    def test_six_threads(self):
        self.one(6, cycles(20, 250))


class TestEngineFaults(Checks):
    @classmethod
    def setUpClass(cls):
        cls.engine = OwnEngine(IMAGE)
        cls.addClassCleanup(cls.engine.discard)

    @release_only
    def test_reply_that_the_engine_holds_back(self):
        """The worker has replied and exited while the engine hung: what it said counts, when it is handed on in time."""
        with Server(image=IMAGE, engine=self.engine) as server:
            key = server.key()
            server.channel_on("web:a")
            for seconds, code in ((2.3, None), (5.5, "engine_unavailable")):
                with server.client(key) as client:
                    body = {"channel": "web:a", "speaker": SPEAKER, "text": "count 700"}
                    turn = client.call("POST", "/v1/turns", body, {"Prefer": "respond-async"}).json
                    poll((server.workspace("web:a") / "runs").exists, 20, "the worker has its turn")
                    (server.workspace("web:a") / "runs").unlink()
                    pid = self.pids(server)[0]
                    self.engine.signal(signal.SIGSTOP)
                    try:
                        poll(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), 10, "its process has ended")
                        time.sleep(seconds)  # the engine's patience is what is tested
                    finally:
                        self.engine.signal(signal.SIGCONT)
                    turn = poll(lambda: (t := client.call("GET", f"/v1/turns/{turn['id']}").json)["finished_at"] and t, 20, "the end")
                    self.ended(turn, "failed" if code else "succeeded", code)

    def pids(self, server):
        docs = filter(None, map(self.engine.inspect, server.containers()))
        return [doc["State"]["Pid"] for doc in docs if doc["State"]["Running"]]

    def hang(self, chance):
        self.engine.signal(signal.SIGSTOP)
        time.sleep(chance.uniform(0.2, 3.5))  # shorter and longer than what the server is patient for
        self.engine.signal(signal.SIGCONT)

    def killed(self, _):
        self.engine.kill()
        self.engine.start()

    def restarted(self, _):
        self.engine.restart()

    def test_under_load(self):
        """Killed, stopped and restarted in the middle of turns: these end typed, the others wait and run, once."""
        chance = random.Random(SEED)
        print(f"seed {SEED}")
        with Server(image=IMAGE, pool={"size": 4}, engine=self.engine, limits={"timeout_ms": 5000, "grace_ms": 300}) as server:
            load = Load(server, server.key(), 6, SEED)
            for number in range(cycles(10, 60)):
                load.begin(2)
                time.sleep(chance.uniform(0.1, 0.8))
                (self.killed, self.hang, self.restarted)[number % 3](chance)
                load.join()
            load.settle()
            turns = load.check(self, ["engine_unavailable", "engine_error", "timeout"])
            print({(turn["error"] or {"code": "succeeded"})["code"] for turn in turns}, len(turns))
            self.assertEqual(server.call("GET", "/readyz").status, 200)
