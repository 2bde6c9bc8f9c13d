"""The service is stopped while hundreds of clients wait: each gets a proper answer. (http.md, house.md)"""
import signal
import socket
import time

from lib.case import ServerCase
from lib.cloister import Server, release_only
from lib.crowd import Waiting
from lib.http import poll

POOL, CHANNELS, WAITING, STREAMS, IDLE = 2, 25, 400, 60, 40
MARGIN_S = 6  # to abort what runs and to remove its containers, beyond the drain time


class Stopped(ServerCase):
    """A server of its own for each test."""

    @classmethod
    def setUpClass(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        pass

    def start(self, drain_ms):
        self.server = Server(start=False, pool={"size": POOL, "drain_ms": drain_ms}, limits={"timeout_ms": 300000})
        self.addCleanup(self.server.discard)
        self.server.start()
        self.key = self.server.key("stop")
        self.channels = [f"stop:{i}" for i in range(CHANNELS)]
        for channel in self.channels:
            self.ok(self.server.call("PUT", f"/v1/channels/{channel}", {"enabled": True}, self.key), 201)

    def crowd(self):
        """Clients that wait for turns, follow streams, and keep a connection for later."""
        self.waiting, self.streams, self.idle = Waiting(self.server.port, self.key), Waiting(self.server.port, self.key), []
        self.addCleanup(self.waiting.close)
        self.addCleanup(self.streams.close)
        for i in range(POOL):
            self.waiting.send(self.channels[i], "/sleep 200000\nnever")
        poll(lambda: self.count("busy") == POOL, 30, "all of the pool is busy")
        for i in range(WAITING - POOL):
            self.waiting.send(self.channels[i % CHANNELS], f"waiting {i}")
        for i in range(STREAMS):
            self.streams.send(self.channels[i % CHANNELS], f"followed {i}", "Accept: text/event-stream")
        for _ in range(IDLE):
            sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
            self.addCleanup(sock.close)
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b" 200 ", sock.recv(4096).split(b"\r\n")[0])
            self.idle.append(sock)
        poll(lambda: self.count("queued") == WAITING - POOL + STREAMS, 30, "all wait")

    def count(self, what):
        page = self.ok(self.server.call("GET", "/v1/channels?limit=200", key=self.key))
        return sum(channel[what] for channel in page["data"])

    def stop(self, *delays):
        """SIGTERM, and more of them after these seconds: what the clients got, and how long it took."""
        process, self.server.process = self.server.process, None
        before = time.monotonic()
        process.send_signal(signal.SIGTERM)
        for delay in delays:
            time.sleep(delay)
            process.send_signal(signal.SIGTERM)
        answers, streams = self.waiting.answers(60), self.streams.ends(60)
        code = process.wait(timeout=60)
        took = time.monotonic() - before
        self.assertEqual(code, 0, self.server.log()[-4000:])
        self.server.check_nothing_left()
        self.server.check_reports()
        return answers, streams, took

    def look_at(self, answers, streams):
        self.assertNotIn(None, answers, "a client was not answered")
        for status, turn in answers[:POOL]:
            self.assertEqual((status, turn["status"], turn["error"]["code"]), (200, "interrupted", "server_restarted"))
        for status, turn in answers[POOL:]:
            self.assertEqual((status, turn["status"]), (202, "queued"), turn)
        self.assertNotIn(None, streams, "a stream did not end")
        for data in streams:
            head, _, events = data.partition(b"\r\n\r\n")
            self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
            self.assertTrue(events.endswith(b"0\r\n\r\n"), "a stream was cut off")
            self.assertIn(b"event: queued", events)
        for sock in self.idle:
            self.assertEqual(sock.recv(4096), b"")

    def started_again(self, answers, streams):
        """What waited still waits: nothing that was accepted is lost."""
        self.server.start()
        for _, turn in (answers[POOL], answers[-1]):
            self.assertEqual(self.read(turn, self.key)["id"], turn["id"])
        known = self.count("queued") + self.count("busy")
        self.assertGreater(known, (WAITING + STREAMS) // 2)
        self.assertLessEqual(known, WAITING - POOL + STREAMS + POOL)

    @release_only
    def test_within_the_drain_time(self):
        self.start(drain_ms=2000)
        self.crowd()
        answers, streams, took = self.stop()
        print(f"{WAITING} waiting, {STREAMS} streams, {IDLE} idle: stopped after {took:.2f} s with 2 s to drain")
        self.assertTrue(2 <= took < 2 + MARGIN_S, took)
        self.look_at(answers, streams)
        self.started_again(answers, streams)

    @release_only
    def test_a_second_signal(self):
        """The drain time is cut short; all are answered still."""
        self.start(drain_ms=60000)
        self.crowd()
        answers, streams, took = self.stop(0.3)
        print(f"stopped after {took:.2f} s by a second signal after 0.3 s")
        self.assertLess(took, MARGIN_S)
        self.look_at(answers, streams)
