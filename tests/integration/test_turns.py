"""POST /v1/turns and GET /v1/turns/{id}: what a body may hold, and what a turn looks like. (mission.md section 1)"""
import datetime
import http.client
import json
import time

from lib.case import SPEAKER, Checks, ServerCase
from lib.cloister import Server
from lib.http import Answer, raw

CHANNEL = "web:turns"
BODY_LIMIT = 384 * 1024
SHAPE = {"id", "object", "channel", "status", "speaker", "reply", "error", "created_at", "started_at", "finished_at",
         "metrics", "attempts", "trace"}
# Takes no place in the queue and starts no container, but passes the same checks of the body.
IGNORED = {"author_is_bot": True, "integration": False, "is_direct": False, "mentions_bot": True, "replies_to_bot": False}
WIDE = "\U0001F980"  # one character, four bytes


class TurnCase(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key("turns")
        cls.plain = cls.server.key("plain", scopes=["turns"])
        cls.server.channel_on(CHANNEL)

    def post(self, body, **headers):
        """Posts a body as bytes or as JSON, UTF-8 unescaped."""
        if not isinstance(body, bytes):
            body = json.dumps(body, ensure_ascii=False).encode()
        return self.server.call("POST", "/v1/turns", body, self.key, headers)

    def body(self, **change):
        """A body that is answered without a container; None takes a member away."""
        body = {"channel": CHANNEL, "speaker": SPEAKER, "text": "hello", "origin": IGNORED, **change}
        return {name: value for name, value in body.items() if value is not None}

    def accepted(self, **change):
        turn = self.ok(self.post(self.body(**change)))
        self.assertEqual(turn["status"], "ignored")
        return turn

    def refused(self, *pointers, **change):
        """422 whose errors lie at exactly these places: the sentences by pointer."""
        faults = self.problem(self.post(self.body(**change)), 422, "invalid")
        self.assertEqual(sorted(faults), sorted(pointers))
        return faults


class Outcome(TurnCase):
    """A turn that runs."""

    def test_waits_and_returns_the_turn(self):
        before = datetime.datetime.now(datetime.timezone.utc)
        answer = self.post({"channel": CHANNEL, "speaker": SPEAKER, "text": "hello, world"})
        after = datetime.datetime.now(datetime.timezone.utc)
        turn = self.ended(self.ok(answer), "succeeded")
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(set(turn), SHAPE | {"logs"})
        self.assertRegex(turn["id"], r"^turn_[0-9a-f]{32}$")
        self.assertEqual((turn["object"], turn["channel"], turn["speaker"]), ("turn", CHANNEL, SPEAKER))
        self.assertEqual(turn["reply"], {"text": "hello, world"})
        times = [datetime.datetime.fromisoformat(turn[name]) for name in ("created_at", "started_at", "finished_at")]
        self.assertEqual(times, sorted(times))
        margin = datetime.timedelta(milliseconds=2)
        self.assertTrue(before - margin <= times[0] and times[2] <= after + margin, turn)
        metrics = turn["metrics"]
        self.assertEqual((metrics["model_calls"], metrics["tool_calls"], metrics["oom_kills"]), (1, 0, 0))
        self.assertGreater(metrics["prompt_tokens"], 0)
        self.assertGreaterEqual(metrics["run_ms"], metrics["start_ms"])
        self.assertGreater(metrics["start_ms"], 0)

    def test_get_gives_the_same_turn(self):
        turn = self.server.turn(CHANNEL, "again", self.key)
        again = self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key))
        # What is known only after the container's death may have been added.
        self.assertEqual({**again, "metrics": None}, {**turn, "metrics": None})
        self.assertLessEqual(set(turn["metrics"]), set(again["metrics"]))

    def test_stderr_needs_turns_read(self):
        body = {"channel": CHANNEL, "speaker": SPEAKER, "text": "quiet"}
        turn = self.ok(self.server.call("POST", "/v1/turns", body, self.plain))
        self.assertEqual(set(turn), SHAPE)
        self.assertEqual(set(self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.plain))), SHAPE)
        self.assertIn("logs", self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key)))

    def test_metadata_comes_back(self):
        metadata = {"order": "17", "naïve": ""}
        turn = self.server.turn(CHANNEL, "noted", self.key, metadata=metadata)
        self.assertEqual((turn["status"], turn["metadata"]), ("succeeded", metadata))

    def test_long_text_of_wide_characters_runs(self):
        """32,000 characters of four bytes fit; the worker shows the model 48 KiB of them, cut between characters."""
        turn = self.ended(self.server.turn(CHANNEL, WIDE * 32000, self.key), "succeeded")
        text = turn["reply"]["text"]
        self.assertTrue(text.endswith(" [cut]"), text[-20:])
        kept = text.removesuffix(" [cut]")
        self.assertEqual(set(kept), {WIDE})
        self.assertLessEqual(len(text.encode()), 48 * 1024)
        self.assertGreater(len(text.encode()), 48 * 1024 - 16)

    def test_unknown_turns_are_404(self):
        for turn in ("turn_" + "0" * 32, "turn_", "x", "turn_%C3%A9", "../channels"):
            self.problem(self.server.call("GET", f"/v1/turns/{turn.replace('/', '%2F')}", key=self.key), 404, "not_found")

    def test_prefer(self):
        sleepy = {"channel": CHANNEL, "speaker": SPEAKER, "text": "/sleep 700\nslept"}
        with self.subTest("respond-async"):
            answer = self.post(sleepy, Prefer="respond-async")
            turn = self.ok(answer, 202)
            self.assertIn(turn["status"], ("queued", "running"))
            self.assertEqual((turn["reply"], turn["error"], turn["finished_at"]), (None, None, None))
            self.assertEqual(answer.headers["location"], f"/v1/turns/{turn['id']}")
            self.assertEqual(answer.headers["preference-applied"], "respond-async")
            self.assertEqual(answer.headers["vary"], "Accept, Prefer")
            self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
            self.ended(self.wait(turn, self.key), "succeeded")
        with self.subTest("wait, too short"):
            began = time.monotonic()
            answer = self.post({**sleepy, "text": "/sleep 2500\nslept"}, Prefer="wait=1")
            took = time.monotonic() - began
            turn = self.ok(answer, 202)
            self.assertEqual(answer.headers["preference-applied"], "wait")
            self.assertTrue(1 <= took < 2.2, took)
            self.ended(self.wait(turn, self.key), "succeeded")
        with self.subTest("wait, long enough"):
            answer = self.post({**sleepy, "text": "quick"}, Prefer="wait=60")
            self.ended(self.ok(answer), "succeeded")
            self.assertEqual(answer.headers["preference-applied"], "wait")
        with self.subTest("not known"):
            answer = self.post({**sleepy, "text": "quick"}, Prefer="handling=strict")
            self.ended(self.ok(answer), "succeeded")
            self.assertNotIn("preference-applied", answer.headers)


class Bodies(TurnCase):
    """What a body may hold; no container is started."""

    def test_text(self):
        self.accepted(text=WIDE * 32000)
        self.accepted(text="x")
        self.accepted(text="line\nand\ttab, \u0001 and \u007f")
        self.assertIn("32000", self.refused("/text", text=WIDE * 32001)["/text"].replace(",", ""))
        self.refused("/text", text="")
        for wrong in (17, True, [], {"text": "x"}):
            self.refused("/text", text=wrong)

    def test_channel(self):
        longest = "web:" + WIDE * 49
        self.server.cli("channel", "on", longest)
        self.assertEqual(len(longest.encode()), 200)
        self.assertEqual(self.accepted(channel=longest)["channel"], longest)
        # 200 characters but 201 bytes, and 201 bytes of one each
        for wrong in ("web:" + "x" * 195 + "é", "web:" + "x" * 197, "web", "web:", ":lobby", "Web:lobby", "1web:lobby",
                      "w.b:lobby", "web:a\u0001b", "web:a\nb", "web:\u007f", "web:\u0085", "", 5):
            self.refused("/channel", channel=wrong)
        for good in ("w:x", "web-2_x:../../etc/passwd", "web:a:b/c d%2F"):
            self.server.channel_on(good)
            self.assertEqual(self.accepted(channel=good)["channel"], good)

    def test_speaker(self):
        self.accepted(speaker={"id": WIDE * 256, "name": "é" * 256})
        self.refused("/speaker/id", speaker={"id": "x" * 257, "name": "Ada"})
        self.refused("/speaker/name", speaker={"id": "u1", "name": WIDE * 257})
        self.refused("/speaker/id", "/speaker/name", speaker={"id": "a\u0000b".replace("\u0000", "\u0007"), "name": "x\ny"})
        self.refused("/speaker/id", "/speaker/name", speaker={"id": "", "name": ""})
        self.refused("/speaker", speaker={"id": "u1"})
        self.refused("/speaker", speaker={"name": "Ada"})
        self.refused("/speaker/email", speaker={**SPEAKER, "email": "a@b"})
        self.refused("/speaker/id", speaker={"id": 1, "name": "Ada"})
        for wrong in ("Ada", [], True):
            self.refused("/speaker", speaker=wrong)

    def test_metadata(self):
        full = {f"{i:02}" + WIDE * 62: WIDE * 512 for i in range(16)}
        self.assertEqual(self.accepted(metadata=full)["metadata"], full)
        self.refused("/metadata", metadata={str(i): "" for i in range(17)})
        for name in ("k" * 65, "", "a\u0002b"):
            self.assertEqual(len(self.problem(self.post(self.body(metadata={name: "v"})), 422, "invalid")), 1)
        self.refused("/metadata/k", metadata={"k": "v" * 513})
        self.refused("/metadata/k", "/metadata/l", "/metadata/m", metadata={"k": 1, "l": None, "m": {}})
        self.refused("/metadata", metadata=[])
        self.assertEqual(self.accepted(metadata={})["metadata"], {})

    def test_reset(self):
        self.accepted(reset=True)
        self.accepted(reset=False)
        for wrong in ("true", 1, []):
            self.refused("/reset", reset=wrong)

    def test_required_and_unknown(self):
        for name in ("channel", "speaker", "text"):
            faults = self.problem(self.post(self.body(**{name: None})), 422, "invalid")
            self.assertEqual(list(faults), [""])
            self.assertIn(name, faults[""])
        self.refused("/attachments", "/model", attachments=[], model="gpt")
        self.refused("/a~1b~0c", **{"a/b~c": 1})
        for wrong in ([], "x", 7, True, None):
            self.assertEqual(list(self.problem(self.post(json.dumps(wrong).encode()), 422, "invalid")), [""])

    def test_all_faults_at_once(self):
        self.refused("/channel", "/text", "/speaker/id", "/speaker/age", "/reset", "/origin", "/metadata/k", "/wish",
                     channel="LOBBY", text="x" * 32001, speaker={"id": "\u0003", "name": "Ada", "age": 7}, reset="yes",
                     origin={name: True for name in list(IGNORED)[:4]}, metadata={"k": 5}, wish=True)

    def test_not_json(self):
        """What the JSON library cannot hold is 400 with line and column."""
        with self.subTest("duplicate key"):
            self.not_json(b'{"channel": "web:turns",\n "text": "a", "text": "b"}', "line 2, column")
        with self.subTest("NUL"):
            self.not_json(b'{\n\n"text": "a\\u0000b"}', "line 3, column")
            self.not_json(b'{"text": "a\x00b"}', "line 1, column")
        with self.subTest("number out of range"):
            self.not_json(b'{"text": 1e999}', "line 1, column")
            self.not_json(b'{"text":\n 99999999999999999999}', "line 2, column")
        with self.subTest("malformed"):
            for body in (b"{", b"{}{}", b"{'text': 1}", b'{"a": 01}', b'{"a": NaN}', b"[1,]", b"\xff", b'{"a": "\xc3("}',
                         b'{"a": "\\ud800"}', b'{"a": "x\ny"}', b"{} x", b"\xef\xbb\xbf{}", b"nul"):
                self.not_json(body, "line ")
        with self.subTest("empty"):
            self.not_json(b"", "empty")
            self.not_json(b" \n ", "line 2")

    def not_json(self, body, place):
        self.assertEqual(self.problem(answer := self.post(body), 400, "invalid_json"), {})
        self.assertIn(place, answer.json["detail"])

    def test_depth(self):
        def nested(depth):
            body = json.dumps(self.body(deep="DEEP"))
            return body.replace('"DEEP"', "[" * (depth - 1) + "]" * (depth - 1)).encode()

        self.assertEqual(list(self.problem(self.post(nested(64)), 422, "invalid")), ["/deep"])
        self.not_json(nested(65), "deeper than 64")
        self.not_json(b"[" * 100000, "deeper than 64")
        self.accepted(text="[" * 1000)

    def test_content_type(self):
        body = json.dumps(self.body()).encode()
        for wrong in ("text/plain", "application/jsonx", "application/x-www-form-urlencoded", "application/problem+json",
                      "multipart/form-data; boundary=x", "", None):
            self.problem(self.post(body, **{"Content-Type": wrong}), 415, "unsupported_media_type")
        for right in ("application/json", "Application/JSON; charset=utf-8", "application/json ;charset=utf-8"):
            self.ok(self.post(body, **{"Content-Type": right}))
        self.problem(self.post(body, **{"Content-Encoding": "gzip"}), 415, "unsupported_media_type")
        self.ok(self.post(body, **{"Content-Encoding": "identity"}))

    def test_body_limit(self):
        body = json.dumps(self.body()).encode()
        self.ok(self.post(body + b" " * (BODY_LIMIT - len(body))))
        self.problem(self.post(body + b" " * (BODY_LIMIT + 1 - len(body))), 413, "body_too_large")
        self.problem(self.post(body + b" " * (BODY_LIMIT + 500_000)), 413, "body_too_large")
        # What nobody would read is refused by its length alone.
        head = (f"POST /v1/turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n"
                "Content-Type: application/json\r\nContent-Length: 5000000000\r\n\r\n")
        self.assertTrue(raw(self.server.port, head.encode()).startswith(b"HTTP/1.1 413 "))

    def test_body_limit_chunked(self):
        body = json.dumps(self.body()).encode()
        self.ok(self.chunked(body, 7))
        self.ok(self.chunked(body + b" " * (BODY_LIMIT - len(body)), 4096))
        self.problem(self.chunked(body + b" " * (BODY_LIMIT + 1 - len(body)), 4096), 413, "body_too_large")

    def chunked(self, body, size):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        self.addCleanup(connection.close)
        pieces = (body[i:i + size] for i in range(0, len(body), size))
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json",
                   "Transfer-Encoding": "chunked"}
        connection.request("POST", "/v1/turns", body=pieces, headers=headers, encode_chunked=True)
        response = connection.getresponse()
        return Answer(response.status, response.getheaders(), response.read())

    def test_an_ignored_turn_has_no_course(self):
        turn = self.accepted()
        self.assertEqual(set(turn), SHAPE | {"logs"})
        self.assertEqual((turn["reply"], turn["error"], turn["started_at"], turn["metrics"]), (None,) * 4)
        self.assertEqual(turn["created_at"], turn["finished_at"])


class Line(Checks):
    """With a long prompt the turn may not fit on the worker's line of 256 KiB although its body is allowed."""

    def test_line_limit(self):
        prompt = WIDE * 32000
        with Server(model={"url": "embedded:echo", "prompt": prompt}) as server:
            key = server.key()
            server.channel_on(CHANNEL)
            # Each of these characters is one byte in memory and six on the line.
            body = {"channel": CHANNEL, "speaker": SPEAKER, "text": "\u0001" * 32000}
            self.problem(server.call("POST", "/v1/turns", body, key), 422, "invalid")
            self.ended(server.turn(CHANNEL, "\u0001" * 20000, key), "succeeded")
