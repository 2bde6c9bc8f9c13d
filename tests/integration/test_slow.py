"""Clients that send and read as slowly as they can: the service stays available, to reads and to turns. (http.md)"""
import concurrent.futures
import csv
import pathlib
import selectors
import shutil
import socket
import subprocess
import tempfile
import threading
import time

from lib.case import SPEAKER, ServerCase
from lib.cloister import release_only
from lib.http import poll

CLIENTS, SECONDS = 400, 12
HEAD_S, REFUSED_S = 10, 5  # LIMIT_HTTP_HEAD_MS, LIMIT_HTTP_REFUSED_MS
CHANNEL = "web:slow"


class Slow(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key("slow")
        cls.server.channel_on(CHANNEL)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="clo-slow-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def attack(self, name, *arguments):
        """slowhttptest with all its clients at once, and a probe of its own that waits 2 s at most."""
        program = shutil.which("slowhttptest")
        self.assertTrue(program, "slowhttptest is not there; tests/run installs it")
        log = (self.folder / f"{name}.log").open("wb")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [program, "-c", str(CLIENTS), "-r", str(CLIENTS), "-i", "1", "-p", "2", "-l", str(SECONDS), "-v", "1", "-g",
             "-o", str(self.folder / name), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.terminate)
        return process

    def figures(self, name):
        """Its table, as numbers: the service was available in each of its seconds."""
        with (self.folder / f"{name}.csv").open() as file:
            rows = [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]
        self.assertGreater(len(rows), 3)
        for row in rows:
            self.assertGreater(row["Service Available"], 0, rows)
        self.assertGreater(max(row["Connected"] for row in rows), CLIENTS // 2, "they were not there at once")
        return rows

    def watch(self, over, seen):
        """Reads and turns without a pause: (seconds, what, status) each."""
        body = {"channel": CHANNEL, "speaker": SPEAKER, "text": "still there"}
        while not over.wait(0.05):
            for method, path in (("GET", "/livez"), ("GET", "/readyz"), ("GET", "/v1/channels"), ("POST", "/v1/turns")):
                began = time.monotonic()
                answer = self.server.call(method, path, body if method == "POST" else None, self.key, timeout=30)
                seen.append((time.monotonic() - began, path, answer.status))
                if method == "POST":
                    self.ended(answer.json, "succeeded")

    @release_only
    def test_slow_heads_bodies_and_readers(self):
        """All three at once."""
        base = f"http://127.0.0.1:{self.server.port}"
        attacks = {
            "heads": self.attack("heads", "-H", "-u", f"{base}/livez"),
            "bodies": self.attack("bodies", "-B", "-u", f"{base}/v1/turns", "-s", "8192", "-f", "application/json"),
            "readers": self.attack("readers", "-X", "-u", f"{base}/openapi.yaml", "-n", "1", "-z", "32", "-w", "10",
                                   "-y", "20"),
        }
        over, seen = threading.Event(), []
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            watcher = pool.submit(self.watch, over, seen)
            for process in attacks.values():
                process.wait(SECONDS + 30)
            over.set()
            watcher.result(60)
        times = {path: sorted(took for took, what, _ in seen if what == path) for path in {what for _, what, _ in seen}}
        print({path: f"{len(list_)} times, worst {list_[-1]:.2f} s" for path, list_ in times.items()})
        self.assertEqual({status for _, _, status in seen}, {200})
        self.assertGreater(len(times["/v1/turns"]), 5)
        for path, list_ in times.items():
            self.assertLess(list_[-1], 10 if path == "/v1/turns" else 2, path)
        with self.subTest("slow heads are cut off"):
            rows = self.figures("heads")
            self.assertTrue(any(row["Closed"] >= CLIENTS // 2 for row in rows if row["Seconds"] > HEAD_S), rows)
        with self.subTest("so are bodies that are refused"):
            rows = self.figures("bodies")
            self.assertTrue(any(row["Closed"] >= CLIENTS // 2 for row in rows if row["Seconds"] > REFUSED_S), rows)
        with self.subTest("slow readers hold nobody else"):
            self.figures("readers")

    def test_slow_bodies_of_a_known_client(self):
        """Many bodies that are welcome, a byte now and then; others are served meanwhile."""
        head = (f"POST /v1/turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n"
                "Content-Type: application/json\r\nContent-Length: 300000\r\n\r\n{").encode()
        with selectors.DefaultSelector() as selector:
            for _ in range(CLIENTS):
                sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=10)
                self.addCleanup(sock.close)
                sock.sendall(head)
                selector.register(sock, selectors.EVENT_READ)
            for _ in range(3):
                for key in list(selector.get_map().values()):
                    key.fileobj.sendall(b" ")
                self.ended(self.server.turn(CHANNEL, "me too", self.key, timeout=20), "succeeded")
                began = time.monotonic()
                self.ok(self.server.call("GET", "/v1/channels", key=self.key))
                self.assertLess(time.monotonic() - began, 2)
            self.assertFalse(selector.select(0), "a slow body was answered too soon")
            for key in list(selector.get_map().values()):
                key.fileobj.close()
        poll(lambda: self.server.call("GET", "/readyz").status == 200, 5, "ready")
