"""Test cases that share one server, and the forms that every answer of the service keeps."""
import time
import unittest

from lib.cloister import Server

SPEAKER = {"id": "u1", "name": "Ada"}
PROBLEM_MEMBERS = {"type", "title", "status", "code", "detail", "errors"}


class Checks(unittest.TestCase):
    """Assertions about answers."""

    def problem(self, answer, status, code):
        """A problem document (RFC 9457) of this status and code: its `errors` by pointer."""
        self.assertEqual((answer.status, answer.code), (status, code), answer)
        self.assertEqual(answer.headers["content-type"], "application/problem+json")
        self.assertEqual(answer.json["type"], f"/problems/{code}")
        self.assertEqual(answer.json["status"], status)
        self.assertTrue(answer.json["title"] and answer.json["detail"], answer)
        self.assertLessEqual(set(answer.json), PROBLEM_MEMBERS)
        self.assertRegex(answer.headers["x-request-id"], r"^[A-Za-z0-9._-]{1,128}$")
        if status in (429, 503):
            self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
        return {fault["pointer"]: fault["detail"] for fault in answer.json.get("errors", [])}

    def ok(self, answer, status=200):
        """The document of an answer that is no problem."""
        self.assertEqual(answer.status, status, answer)
        return answer.json

    def ended(self, turn, status, code=None):
        """A turn that ended this way, with the error of this code."""
        error = turn["error"]["code"] if turn["error"] else None
        self.assertEqual((turn["status"], error), (status, code), turn)
        return turn


class ServerCase(Checks):
    """One server for all tests of the class; it is stopped and looked over at the end."""

    config = {}
    server = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server(**cls.config)
        cls.addClassCleanup(cls.server.discard)

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def submit(self, channel, text, key, server=None, **more):
        """A turn that is not waited for: as it was accepted."""
        body = {"channel": channel, "speaker": SPEAKER, "text": text, **more}
        server = server or self.server
        return self.ok(server.call("POST", "/v1/turns", body, key, {"Prefer": "respond-async"}), 202)

    def read(self, turn, key, server=None):
        return self.ok((server or self.server).call("GET", f"/v1/turns/{turn['id']}", key=key))

    def wait(self, turn, key, server=None, seconds=60, until=lambda turn: turn["status"] not in ("queued", "running")):
        """The turn once it has ended, or once `until` holds."""
        end = time.monotonic() + seconds
        while not until(turn):
            self.assertLess(time.monotonic(), end, f"not within {seconds} s: {turn}")
            time.sleep(0.02)
            turn = self.read(turn, key, server)
        return turn

    def running(self, turn, key, server=None):
        return self.wait(turn, key, server, until=lambda turn: turn["status"] != "queued")
