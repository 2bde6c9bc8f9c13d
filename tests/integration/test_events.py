"""Events of turns: pages, live streams, and what they say to whom. (mission.md sections 4 and 9)"""
import os
import pathlib
import resource
import sqlite3
import threading
import time
import unittest

from lib.case import SPEAKER, ServerCase
from lib.cloister import Server
from lib.http import poll
from lib.sse import Reader, read_all
from lib.upstream import Upstream, calls, says

TURNS, PER_TURN, ROUNDS = 50, 20, 6
READER_KIB = 64  # most of it the library's own memory of a connection
HEARTBEAT_S = 15


class EventsCase(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key("events")
        cls.server.channel_on("web:a")

    def page(self, turn, key=None, query="", server=None):
        path = f"/v1/turns/{turn['id']}/events{query}"
        return self.ok((server or self.server).call("GET", path, key=key or self.key))

    def stream(self, turn, key=None, last=None, query="", server=None, **more):
        path = f"/v1/turns/{turn['id']}/events{query}"
        reader = Reader((server or self.server).port, path, key or self.key, last, **more)
        self.addCleanup(reader.close)
        return reader

    def follow(self, body, key=None, **more):
        """POST /v1/turns as a stream."""
        reader = Reader(self.server.port, "/v1/turns", key or self.key, method="POST", body=body, **more)
        self.addCleanup(reader.close)
        return reader


def body(text, channel="web:a", **more):
    return {"channel": channel, "speaker": SPEAKER, "text": text, **more}


class Live(EventsCase):
    def test_a_turn_from_its_post_to_its_end(self):
        reader = self.follow(body("/call memory_set {\"scope\":\"channel\",\"key\":\"k\",\"value\":\"v\"}\ndone"),
                             headers={"X-Request-Id": "from-me"})
        reader.rest(30)
        self.assertEqual(reader.status, 200, reader)
        self.assertTrue(reader.over, reader)
        self.assertEqual(reader.headers["content-type"], "text/event-stream")
        self.assertEqual(reader.headers["cache-control"], "no-cache")
        self.assertEqual(reader.headers["x-accel-buffering"], "no")
        self.assertEqual(reader.headers["x-request-id"], "from-me")
        self.assertEqual(reader.fields, {"retry": "1000"})
        self.assertEqual(reader.types[:2], ["queued", "started"])
        self.assertEqual(reader.types.count("model_call"), 2)
        self.assertEqual(reader.types[-1], "ended")
        self.assertEqual([n for n, _, _ in reader.events], list(range(1, len(reader.events) + 1)))
        self.assertEqual(reader.events[-1][2]["status"], "succeeded")
        turn = self.ok(self.server.call("GET", reader.headers["location"], key=self.key))
        self.assertEqual(turn["status"], "succeeded")
        with self.subTest("the page tells the same"):
            page = self.page(turn)
            self.assertEqual([event["type"] for event in page["data"]], reader.types)
            self.assertEqual((page["has_more"], page["next_cursor"]), (False, None))
            self.assertEqual(page["data"], [data for _, _, data in reader.events])
        with self.subTest("page by page"):
            seen, query = [], "?limit=2"
            while query:
                page = self.page(turn, query=query)
                seen += page["data"]
                query = f"?limit=2&after={page['next_cursor']}" if page["has_more"] else None
            self.assertEqual(seen, [data for _, _, data in reader.events])
        with self.subTest("no argument and no text of a call"):
            for _, kind, data in reader.events:
                if kind.endswith("_call"):
                    self.assertLessEqual({"name", "status", "duration_ms", "bytes_in", "bytes_out"}, set(data))
                    self.assertNotIn("memory_set", str(data))

    def test_going_on_after_a_lost_connection(self):
        turn = self.submit("web:a", "/sleep 1500\nhello", self.key)
        first = self.stream(turn).wait(lambda reader: "started" in reader.types, 20)
        first.close()
        second = self.stream(turn, last=1).rest(20)
        self.assertEqual((second.events[0][:2], second.types[-1]), ((2, "started"), "ended"))
        self.assertEqual(self.stream(turn, last=1, query="?after=3").rest().events, second.events, "the header wins")
        self.assertEqual(self.stream(turn, query="?after=1").rest().events, second.events)
        with self.subTest("nothing is left: browsers are told to stay away"):
            self.assertEqual(self.stream(turn, last=second.last).rest().status, 204)
            rest = self.stream(turn, query=f"?after={second.last}").rest()
            self.assertEqual((rest.status, rest.events, rest.over), (200, [], True))

    def test_what_the_form_depends_on(self):
        turn = self.server.turn("web:a", "hello", self.key)
        for accept, kind in ((None, "application/json"), ("*/*", "application/json"), ("text/html", "application/json"),
                             ("application/json, text/event-stream", "application/json"),
                             ("text/event-stream;q=0", "application/json"),
                             ("text/event-stream, */*;q=0.1", "text/event-stream")):
            with self.subTest(accept=accept):
                answer = self.server.call("GET", f"/v1/turns/{turn['id']}/events", key=self.key, headers={"Accept": accept})
                self.assertEqual((answer.status, answer.headers["content-type"]), (200, kind), answer)
                self.assertEqual(answer.headers["vary"], "Accept")
        head = self.server.call("HEAD", f"/v1/turns/{turn['id']}/events", key=self.key,
                                headers={"Accept": "text/event-stream"})
        self.assertEqual((head.status, head.headers["content-type"], head.body), (200, "text/event-stream", b""))

    def test_what_is_refused(self):
        turn = self.server.turn("web:a", "hello", self.key)
        path = f"/v1/turns/{turn['id']}/events"
        for query in ("?after=-1", "?after=x", "?limit=0", "?limit=201", "?other=1"):
            self.problem(self.server.call("GET", path + query, key=self.key), 400, "bad_request")
        stranger = self.server.key("stranger", channels=["other:*"])
        foreign = self.server.key("foreign", scopes=["turns"])
        reads = self.server.key("reads", scopes=["turns:read"])
        for accept in ("application/json", "text/event-stream"):
            for key in (stranger, foreign):
                self.problem(self.server.call("GET", path, key=key, headers={"Accept": accept}), 404, "not_found")
            self.assertEqual(self.server.call("GET", path, key=reads, headers={"Accept": accept}).status, 200)
        with self.subTest("a POST that is not accepted is a problem document"):
            for bad, status, code in ((body(""), 422, "invalid"), (body("x", "web:off"), 409, "channel_disabled")):
                self.problem(self.server.call("POST", "/v1/turns", bad, self.key, {"Accept": "text/event-stream"}),
                             status, code)

    def test_a_client_that_leaves(self):
        """It frees its place, and the turn goes on."""
        reader = self.follow(body("/sleep 1000\nheld")).wait(lambda reader: "started" in reader.types, 20)
        location = reader.headers["location"]
        poll(lambda: self.sockets() == 1, 5, "others are gone")
        reader.close()
        poll(lambda: self.sockets() == 0, 1, "the server lets it go")
        turn = self.ok(self.server.call("GET", location, key=self.key))
        self.assertEqual(turn["status"], "running")
        self.ended(self.wait(turn, self.key), "succeeded")

    def sockets(self):
        """How many clients' connections the server holds open."""
        port, held = f":{self.server.port:04X}", 0
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            held += local.endswith(port) and state in ("01", "08")  # ESTABLISHED, CLOSE_WAIT
        return held

    def test_a_revoked_key(self):
        key = self.server.key("short-lived")
        turn = self.submit("web:a", "/sleep 3000\nheld", key)
        mine, other = self.stream(turn, key), self.stream(turn)
        for reader in (mine, other):
            reader.wait(lambda reader: "started" in reader.types, 20)
        self.server.cli("key", "revoke", key.split("_")[1])
        began = time.monotonic()
        mine.rest(5)
        self.assertLess(time.monotonic() - began, 1)
        self.assertNotIn("ended", mine.types)
        self.assertEqual(mine.comments, ["the key was revoked"])
        self.problem(self.server.call("GET", f"/v1/turns/{turn['id']}/events", key=key), 401, "unauthorized")
        self.assertEqual(other.rest(20).types[-1], "ended")

    def test_a_sign_of_life(self):
        turn = self.submit("web:a", f"/sleep {1000 * (HEARTBEAT_S + 3)}\nheld", self.key)
        reader = self.stream(turn).wait(lambda reader: "started" in reader.types, 20)
        began = time.monotonic()
        reader.wait(lambda reader: reader.comments, HEARTBEAT_S + 3)
        self.assertGreater(time.monotonic() - began, HEARTBEAT_S - 2)
        self.ok(self.server.call("POST", f"/v1/turns/{turn['id']}/cancel", key=self.key))
        self.assertEqual(reader.rest(10).events[-1][2]["status"], "canceled")


class Ends(EventsCase):
    """What becomes of streams when the server goes, and of histories with time."""

    def test_a_stop_ends_streams(self):
        with Server(pool={"drain_ms": 500}) as server:
            key = server.key()
            server.channel_on("web:a")
            turn = self.submit("web:a", "/sleep 30000\nheld", key, server)
            running = self.stream(turn, key, server=server).wait(lambda reader: "started" in reader.types, 20)
            queued = self.submit("web:a", "next", key, server)
            waiting = self.stream(queued, key, server=server)
            waiting.wait(lambda reader: reader.types == ["queued"])
            began = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - began, 12)
            self.assertEqual(running.rest().types[-1], "ended", "the abort is told")
            self.assertEqual(waiting.rest().comments, ["the service is stopping"])
            self.assertEqual(waiting.types, ["queued"])
            server.start()
            again = self.stream(queued, key, last=waiting.last, server=server).rest(30)
            self.assertEqual([again.types[0], again.types[-1]], ["started", "ended"])
            self.assertEqual([n for n, _, _ in again.events], list(range(2, 2 + len(again.events))))

    def test_a_crash_in_the_middle(self):
        """A turn that may run again goes on with its numbers."""
        with Server() as server:
            key = server.key()
            server.channel_on("web:a")
            turn = self.submit("web:a", "/sleep 1500\nagain", key, server, max_attempts=2)
            before = self.stream(turn, key, server=server).wait(lambda reader: "started" in reader.types, 20)
            server.kill()
            before.rest()
            self.assertTrue(before.cut, "a crash is no end")
            server.start()
            after = self.stream(turn, key, last=before.last, server=server).rest(30)
            self.assertEqual(after.types[:2] + after.types[-1:], ["queued", "started", "ended"], after)
            numbers = [n for n, _, _ in before.events + after.events]
            self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
            self.assertEqual(after.events[-1][2]["status"], "succeeded")

    def test_a_history_that_is_no_longer_kept(self):
        with Server() as server:
            key = server.key()
            server.channel_on("web:a")
            turn = server.turn("web:a", "hello", key)
            self.assertEqual(server.stop(), 0)
            with sqlite3.connect(server.root / "state/cloister.db") as db:
                db.execute("UPDATE turns SET events_pruned = 1")  # as retention does, which looks once a minute
                db.execute("DELETE FROM events")
            server.start()
            self.problem(server.call("GET", f"/v1/turns/{turn['id']}/events", key=key), 410, "gone")
            for last in (None, 1):
                self.assertEqual(self.stream(turn, key, last, server=server).rest().status, 410)
            self.assertEqual(self.read(turn, key, server)["reply"], {"text": "hello"}, "the turn itself is kept")


class Logs(EventsCase):
    """What a worker wrote on stderr is told to keys with turns:read only. (mission.md section 9)"""

    config = {"image": "cloister-test-fail:local"}

    def test_logs(self):
        submits = self.server.key("submits", scopes=["turns"])
        turn = self.ended(self.server.turn("web:a", "hello", submits), "failed", "worker_failed")
        mine, reads = self.stream(turn, submits).rest(), self.stream(turn, self.server.key("r", scopes=["turns:read"])).rest()
        self.assertEqual("".join(data["text"] for _, kind, data in reads.events if kind == "log"), "this is why\n")
        self.assertEqual(mine.events, [event for event in reads.events if event[1] != "log"])
        self.assertEqual((mine.types[-1], mine.events[-1][2]["code"]), ("ended", "worker_failed"))
        self.assertEqual(self.page(turn, submits)["data"], [data for _, _, data in mine.events])
        self.assertNotIn("this is why", str(mine.events))


class Many(EventsCase):
    """1,000 readers on 50 running turns, with all connections lost in the middle."""

    @classmethod
    def setUpClass(cls):
        cls.limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = cls.limit[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, cls.limit)
        cls.gates = [threading.Event() for _ in range(ROUNDS)]
        cls.upstream = Upstream(cls.answer)
        cls.addClassCleanup(cls.upstream.close)
        cls.config = {"pool": {"size": TURNS}, "model": {"url": cls.upstream.url, "allow_http": True, "allow_script": None}}
        super().setUpClass()

    @classmethod
    def answer(cls, request):
        """Every turn's call number n is answered when gate n is open, so all turns go in step."""
        step = len(request.of_role("tool"))
        assert cls.gates[step].wait(60)
        if step + 1 < ROUNDS:
            return calls(("memory_set", {"scope": "channel", "key": f"k{step}", "value": "v"}))
        return says("done")

    def test_a_thousand_readers(self):
        self.assertGreaterEqual(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 4 * TURNS * PER_TURN)
        turns = []
        for i in range(TURNS):
            self.ok(self.server.call("PUT", f"/v1/channels/many:{i}", {"enabled": True}, self.key), 201)
            turns.append(self.submit(f"many:{i}", "go", self.key))
        for turn in turns:
            self.running(turn, self.key)
        threads, before = self.threads(), self.server.memory_kib()
        began = time.monotonic()
        readers = [self.stream(turn) for turn in turns for _ in range(PER_TURN)]
        read_all(readers, lambda reader: "started" in reader.types, 30)
        opened = time.monotonic() - began
        self.assertLess(self.threads(), threads + TURNS, "readers hold threads")  # calls of the workers hold some
        self.gates[0].set()
        read_all(readers, lambda reader: "model_call" in reader.types, 30)
        late = self.step(readers, 1)
        resumed = self.reconnect(readers, turns)
        for gate in self.gates:
            gate.set()
        read_all(resumed, lambda reader: reader.over, 60)
        self.look_at(readers, resumed, turns)
        most = self.server.memory_kib("VmHWM")
        each = (most - before) / len(readers)
        print(f"{len(readers)} readers of {TURNS} turns: open in {opened:.2f} s, one step told to all in {late:.2f} s, "
              f"VmHWM {most} KiB, {each:.0f} KiB a reader, {self.threads()} threads")
        if not os.environ.get("CLOISTER_SANITIZED"):
            self.assertLess(each, READER_KIB)

    def threads(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/task"))

    def step(self, readers, number):
        """Seconds until every reader has seen the next model call of its turn."""
        began = time.monotonic()
        self.gates[number].set()
        read_all(readers, lambda reader: reader.types.count("model_call") > number, 30)
        return time.monotonic() - began

    def reconnect(self, readers, turns):
        """Every connection is lost, at the very time that more happens; each reader goes on where it was."""
        self.gates[2].set()
        for reader in readers:
            reader.close()
        self.gates[3].set()
        return [self.stream(turns[i // PER_TURN], last=reader.last) for i, reader in enumerate(readers)]

    def look_at(self, readers, resumed, turns):
        for i, turn in enumerate(turns):
            story = [(event["n"], event["type"], event) for event in self.page(turn)["data"]]
            self.assertEqual([n for n, _, _ in story], list(range(1, len(story) + 1)))
            kinds = [kind for _, kind, _ in story]
            self.assertEqual((kinds.count("model_call"), kinds[-1]), (ROUNDS, "ended"), kinds)
            for k in range(i * PER_TURN, (i + 1) * PER_TURN):
                self.assertEqual(readers[k].events + resumed[k].events, story, f"reader {k}")


if __name__ == "__main__":
    unittest.main()
