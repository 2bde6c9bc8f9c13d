"""Every way in which a turn can end badly, for real: its code, its sentence, and what is kept. (mission.md section 1)"""
import contextlib
import json
import os
import pathlib
import re
import secrets
import sqlite3
import subprocess

from lib.case import SPEAKER, Checks, ServerCase
from lib.cloister import ROOT, Server
from lib.crash import IMAGE
from lib.engine import Engine
from lib.http import poll
from lib.proxy import EngineProxy
from lib.upstream import Upstream, calls, says

TABLE = re.compile(r'X\(END_\w+,\s*"(\w+)",[\s\\]*((?:"[^"]*"[\s\\]*)+)\)')
SENTENCES = {code: "".join(re.findall(r'"([^"]*)"', text))
             for code, text in TABLE.findall((ROOT / "server/base/ending.h").read_text())}
LIMITS = {"timeout_ms": 20000, "grace_ms": 200, "memory_mb": 64, "pids": 16}
STATUS = {"timeout": "timed_out", "canceled": "canceled", "channel_disabled": "canceled", "server_restarted": "interrupted"}
UNSTARTED = ("channel_disabled",)
UNKEPT = ("channel_disabled", "server_restarted")  # the one had not begun, what the other wrote died with the server


class Endings(Checks):
    server = key = None

    def post(self, text, channel="web:a", **more):
        body = {"channel": channel, "speaker": SPEAKER, "text": text, **more}
        return self.ok(self.server.call("POST", "/v1/turns", body, self.key, {"Prefer": "respond-async"}), 202)

    def read(self, turn):
        return self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key))

    def wait(self, turn, seconds=30):
        return poll(lambda: (t := self.read(turn))["finished_at"] and t, seconds, f"{turn['id']} ends")

    def running(self, turn):
        poll(lambda: self.read(turn)["status"] == "running" and self.server.containers(), 20, "it runs")

    def rows(self, turn):
        with contextlib.closing(sqlite3.connect(f"file:{self.server.config['state_file']}?mode=ro", uri=True)) as state:
            return state.execute("SELECT e.type, e.data FROM events e JOIN turns t ON t.seq = e.turn WHERE t.id = ? ORDER BY e.n",
                                 [turn["id"]]).fetchall()

    def judge(self, code, turn):
        """A turn that ended by this code, told everywhere in the same words."""
        turn = self.wait(turn)
        status = STATUS.get(code, "failed")
        self.ended(turn, status, code)
        self.assertEqual(turn["error"], {"code": code, "detail": SENTENCES[code]})
        self.assertIsNone(turn["reply"])
        self.assertEqual(turn["started_at"] is None, code in UNSTARTED)
        kind, data = self.rows(turn)[-1]
        self.assertEqual((kind, json.loads(data)), ("ended", {"status": status, "code": code}))
        if code not in UNKEPT:
            for name in ("stdout", "stderr"):
                self.assertEqual(set(turn["logs"][name]), {"text", "bytes", "truncated"})
            self.assertGreaterEqual(turn["metrics"]["run_ms"], 0)
            self.assertEqual(turn["trace"]["spans"][0]["name"], "accept")
        return turn


class TestEndings(Endings, ServerCase):
    """Those that one server can give, its engine behind a proxy."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(start=False, image=IMAGE, limits=LIMITS, pool={"size": 2})
        cls.addClassCleanup(cls.server.discard)
        cls.proxy = EngineProxy(Engine(), cls.server.root / "engine.sock", cls.server.account.pw_gid)
        cls.server.write_config(engine_socket=cls.proxy.path)
        cls.server.start()
        cls.key = cls.server.key()
        for channel in ("web:a", "web:b", "web:off", "web:link"):
            cls.server.channel_on(channel)

    def tearDown(self):
        poll(self.server.ready, 20, "it is ready for the next test")

    def test_every_code_is_tested(self):
        tests = {name.removeprefix("test_") for case in (TestEndings, TestModelEndings, TestOtherEndings) for name in dir(case)}
        self.assertEqual(len(SENTENCES), 18)
        self.assertEqual(set(SENTENCES) - tests, set())
        for sentence in SENTENCES.values():
            self.assertRegex(sentence, r"^[A-Z].*[.;].*\.$")

    def test_timeout(self):
        turn = self.judge("timeout", self.post("sleep", limits={"timeout_ms": 1000}))
        self.assertEqual((turn["logs"]["stdout"]["text"], turn["logs"]["stderr"]["text"]), ("half a reply", "still sleeping\n"))

    def test_canceled(self):
        turn = self.post("ignore-term")
        self.running(turn)
        self.ok(self.server.call("POST", f"/v1/turns/{turn['id']}/cancel", key=self.key))
        self.judge("canceled", turn)

    def test_channel_disabled(self):
        first, second = self.post("ignore-term", "web:off"), self.post("echo", "web:off")
        self.running(first)
        self.ok(self.server.call("PUT", "/v1/channels/web:off", {"enabled": False}, self.key))
        self.ok(self.server.call("POST", f"/v1/turns/{first['id']}/cancel", key=self.key))
        self.judge("channel_disabled", second)  # as its time came

    def test_out_of_memory(self):
        turn = self.judge("out_of_memory", self.post("eat-memory"))
        self.assertGreaterEqual(turn["metrics"]["oom_kills"], 1)

    def test_pid_limit(self):
        self.judge("pid_limit", self.post("pid-limit"))

    def test_exit_code(self):
        turn = self.judge("exit_code", self.post("exit-now"))
        self.assertEqual(turn["metrics"]["exit_code"], 3)

    def test_signal(self):
        self.judge("signal", self.post("crash"))

    def test_output_limit(self):
        turn = self.judge("output_limit", self.post("flood"))
        self.assertTrue(turn["logs"]["stdout"]["truncated"])

    def test_invalid_reply(self):
        self.judge("invalid_reply", self.post("garbage"))

    def test_worker_failed(self):
        turn = self.judge("worker_failed", self.post("fail"))
        self.assertEqual(turn["logs"]["stderr"]["text"], "this is why\n")

    def test_what_was_said_right_before_a_good_reply(self):
        """It comes through another pipe than the reply, which ends the turn; a machine at its limit may be too late."""
        said = [self.wait(self.post("murmur"))["logs"]["stderr"]["text"] for _ in range(10)]
        self.assertGreaterEqual(said.count("by the way\n"), 9, said)

    def test_engine_unavailable(self):
        """Lost under a running turn: this one ends, the next waits, and runs when it is back."""
        turn = self.post("sleep")
        self.running(turn)
        poll(lambda: any(kind == "log" for kind, _ in self.rows(turn)), 10, "it has said something")
        self.proxy.cut()
        waiting = self.post("echo")
        try:
            ended = self.judge("engine_unavailable", turn)
            self.assertEqual(ended["logs"]["stderr"]["text"], "still sleeping\n")
            answer = poll(lambda: (a := self.server.call("GET", "/readyz")).status == 503 and a, 10, "it says so")
            self.assertRegex(answer.json["detail"], "^engine_unavailable: ")
            self.assertEqual(self.read(waiting)["status"], "queued")
        finally:
            self.proxy.mend()
        self.ended(self.wait(waiting), "succeeded")

    def test_engine_error(self):
        self.proxy.refuse_creates = True
        try:
            turn = self.judge("engine_error", self.post("echo"))
        finally:
            self.proxy.refuse_creates = False
        self.assertNotIn("secret", json.dumps(turn), "an engine's text goes to the log only")
        self.assertIn("the secret", self.server.log())
        self.ended(self.wait(self.post("echo")), "succeeded")

    def test_a_create_with_warnings(self):
        """The turn that meets one ends, its container is removed, and what waits is not burned. (mission.md section 2)"""
        self.proxy.warn_creates = True
        try:
            turns = [self.post(text) for text in ("echo", "echo", "echo")]
            self.judge("engine_error", turns[0])
            answer = poll(lambda: (a := self.server.call("GET", "/readyz")).status == 503 and a, 10, "it says so")
            self.assertRegex(answer.json["detail"], "^engine_error: ")
            poll(lambda: not self.server.containers(), 10, "the container is removed")
            warned = self.proxy.warned
            poll(lambda: self.proxy.warned > warned + 1, 10, "it is probed again")
            self.assertFalse(self.server.ready())
            self.assertEqual([self.read(turn)["status"] for turn in turns[1:]], ["queued"] * 2)
        finally:
            self.proxy.warn_creates = False
        for turn in turns[1:]:
            self.ended(self.wait(turn), "succeeded")

    def test_server_restarted(self):
        turn = self.post("ignore-term")
        self.running(turn)
        self.server.kill()
        self.server.start()
        self.judge("server_restarted", turn)

    def test_server_restarted_by_request(self):
        """Aborted after the drain time, with what it had written; also where it might have run again."""
        self.server.write_config(pool={"drain_ms": 100})
        self.server.restart()
        turn = self.post("sleep", max_attempts=3)
        self.running(turn)
        poll(lambda: any(kind == "log" for kind, _ in self.rows(turn)), 10, "it has said something")
        self.assertEqual(self.server.stop(), 0)
        self.server.start()
        turn = self.judge("server_restarted", turn)
        self.assertEqual(turn["logs"]["stderr"]["text"], "still sleeping\n")

    def test_workspace_violation(self):
        folder = self.server.workspace("web:link")
        folder.symlink_to("/etc")
        self.judge("workspace_violation", self.post("echo", "web:link"))
        folder.unlink()
        self.ended(self.wait(self.post("echo", "web:link")), "succeeded")


class TestModelEndings(Endings, ServerCase):
    """Those that need the built-in worker and a model."""

    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream(cls.answer)
        cls.addClassCleanup(cls.upstream.close)
        cls.server = Server(model={"url": cls.upstream.url, "allow_http": True, "allow_script": None, "max_calls": 1})
        cls.addClassCleanup(cls.server.discard)
        cls.key = cls.server.key()
        cls.server.channel_on("web:a")

    @staticmethod
    def answer(request):
        text = request.of_role("user")[-1]
        if text == "refuse":
            return 500, {}, b"the secret"
        return calls(("memory_get", {"scope": "channel"})) if text == "again" else says("fine")

    def test_model_refused(self):
        turn = self.judge("model_refused", self.post("refuse"))
        self.assertNotIn("secret", json.dumps(turn))

    def test_budget_spent(self):
        turn = self.judge("budget_spent", self.post("again"))
        self.assertEqual(turn["metrics"]["model_calls"], 1)
        self.ended(self.wait(self.post("more")), "succeeded")


class TestOtherEndings(Endings):
    """Those that hurt a whole server."""

    def begin(self, **config):
        self.server = Server(start=False, **{"image": IMAGE, "limits": LIMITS, **config})
        self.addCleanup(self.server.discard)

    def ready(self):
        self.server.start()
        self.key = self.server.key()
        self.server.channel_on("web:a")

    def own_image(self, tag):
        """An image that no other tag stands for."""
        Engine().commit(IMAGE, tag)
        self.addCleanup(Engine().untag, tag)

    def test_image_missing(self):
        tag = f"cloister-test-gone:{os.getpid()}-{secrets.token_hex(4)}"
        self.own_image(tag)
        self.begin(image=tag)
        self.ready()
        self.ended(self.wait(self.post("echo")), "succeeded")
        poll(lambda: not self.server.containers(), 20, "nothing uses the image")
        self.assertEqual(self.server.engine.call("DELETE", f"/images/{tag}").status, 200)
        self.judge("image_missing", self.post("echo"))
        waiting = self.post("echo")
        answer = poll(lambda: (a := self.server.call("GET", "/readyz")).status == 503 and a, 10, "it says so")
        self.assertRegex(answer.json["detail"], "^image_missing: ")
        self.own_image(tag)
        self.ended(self.wait(waiting), "succeeded")
        self.server.close()

    def test_disk_full(self):
        self.begin()
        account, path = self.server.account, self.server.root / "workspaces"
        options = f"size=1040m,mode=0700,uid={account.pw_uid},gid={account.pw_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "cloister-test", str(path)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(path)], check=True)
        self.ready()
        self.judge("disk_full", self.post("grow"))
        for grown in pathlib.Path(path).rglob("grown"):
            grown.unlink()
        poll(self.server.ready, 10, "it goes on by itself")
        self.ended(self.wait(self.post("echo")), "succeeded")
        self.server.close()
