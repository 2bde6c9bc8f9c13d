"""Test cases whose server, or whose engine, ends in the middle of its work: a server for each test."""
import contextlib
import sqlite3

from lib.case import Checks
from lib.cloister import Server
from lib.http import poll

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

    def submit(self, channel, text, **more):
        body = {"channel": channel, "speaker": {"id": "u1", "name": "Ada"}, "text": text, **more}
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
