"""What a turn costs the disk: so many commits as docs/house.md says, and no more. (house.md)"""
import concurrent.futures
import struct
import time

from lib.case import SPEAKER, ServerCase
from lib.cloister import Server
from lib.http import poll

# Acceptance, start, end; the slot's removal; every call of its broker. (docs/house.md, "Commits of a turn")
COMMITS, CALLS = 4, 1


class Log:
    """The write-ahead log of a state, read from outside: https://www.sqlite.org/fileformat2.html#walformat"""

    def __init__(self, server):
        self.path = server.config["state_file"] + "-wal"

    def commits(self):
        """How many the log holds, and its salts, which change when it begins anew."""
        data = open(self.path, "rb").read()
        page, salts = struct.unpack(">I", data[8:12])[0], data[16:24]
        count = 0
        for at in range(32, len(data) - 24 - page + 1, 24 + page):
            if data[at + 8:at + 16] != salts:
                break  # left over from before
            count += struct.unpack(">I", data[at + 4:at + 8])[0] > 0
        return count, salts


class TestCommits(ServerCase):
    config = {"pool": {"size": 2}}

    def test_of_one_turn_after_another(self):
        key = self.server.key()
        self.server.channel_on("web:a")
        self.quiet(key)
        log, turns = Log(self.server), 8
        before, salts = log.commits()
        for number in range(turns):
            self.ended(self.server.turn("web:a", f"hello {number}", key), "succeeded")
        self.quiet(key)
        after, same = log.commits()
        self.assertEqual(salts, same, "the log began anew: too many pages for so few turns")
        self.assertLessEqual(after - before, turns * (COMMITS + CALLS))
        self.assertGreaterEqual(after - before, turns * 3, "acceptance, start and end of each were waited for")

    def test_of_many_at_once(self):
        """What is accepted at the same moment shares a commit; nobody waits for a commit of its own."""
        with Server(start=False, engine_socket="/nonexistent/engine.sock") as server:
            server.start(ready=False)
            self.accept(server, server.key(), 32, 6)

    def accept(self, server, key, clients, each):
        with server.client(key) as client:
            for number in range(clients):
                self.assertIn(client.call("PUT", f"/v1/channels/many:{number}", {"enabled": True}).status, (200, 201))
        log = Log(server)
        before, salts = log.commits()

        def work(number):
            with server.client(key) as client:
                for _ in range(each):
                    body = {"channel": f"many:{number}", "speaker": SPEAKER, "text": "x"}
                    self.ok(client.call("POST", "/v1/turns", body, {"Prefer": "respond-async"}), 202)

        with concurrent.futures.ThreadPoolExecutor(clients) as threads:
            list(threads.map(work, range(clients)))
        after, same = log.commits()
        if salts == same:  # else the log was full and began anew
            self.assertLessEqual(after - before, clients * each)

    def quiet(self, key):
        """Until the last turn is buried, and the writer has nothing left."""
        poll(lambda: not any(channel["busy"] for channel in self.server.call("GET", "/v1/channels", key=key).json["data"]), 20,
             "all are buried")
        last, since = Log(self.server).commits(), time.monotonic()
        while time.monotonic() - since < 0.3:
            if (now := Log(self.server).commits()) != last:
                last, since = now, time.monotonic()
            time.sleep(0.02)
