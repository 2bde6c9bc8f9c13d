"""Workers that misbehave: each ends its turn in time, with its own error code, and leaves nothing behind; nobody else is
hurt. (mission.md sections 1, 2 and 8)"""
import concurrent.futures
import datetime
import os
import threading
import time

from lib.case import Checks, ServerCase
from lib.cloister import Server
from lib.engine import Engine, Events
from lib.http import poll

TIMEOUT_S, GRACE_S = 2, 1
END_S = TIMEOUT_S + GRACE_S + 5
LIMITS = {"memory_mb": 192, "pids": 16, "timeout_ms": TIMEOUT_S * 1000, "grace_ms": GRACE_S * 1000}
ANSWER_S = 2  # of requests that have nothing to do with the turns, on two busy processors
STDERR_KEPT = 1024 * 1024

# mode → status, error.code, the reply's text, what stderr holds
OUTCOMES = {
    "echo": ("succeeded", None, "echo", ""),
    "ignore-term": ("timed_out", "timeout", None, ""),
    "sleep": ("timed_out", "timeout", None, "still sleeping\n"),
    "close-stdout": ("timed_out", "timeout", None, ""),
    "stderr-flood": ("timed_out", "timeout", None, "xxxx"),
    "flood": ("failed", "output_limit", None, ""),
    "big-reply": ("failed", "output_limit", None, ""),
    "forkbomb": ("failed", "pid_limit", None, ""),
    "pid-limit": ("failed", "pid_limit", None, "fork: Resource temporarily unavailable\n"),
    "eat-memory": ("failed", "out_of_memory", None, ""),
    "child-oom": ("succeeded", None, "the child was killed", ""),
    "exit-now": ("failed", "exit_code", None, "leaving\n"),
    "crash": ("failed", "signal", None, "about to crash\n"),
    "fail": ("failed", "worker_failed", None, "this is why\n"),
    "silent": ("failed", "invalid_reply", None, ""),
    "garbage": ("failed", "invalid_reply", None, ""),
    "no-newline": ("succeeded", None, "no newline", ""),
    "deaf": ("succeeded", None, "i did not listen", ""),
    "reply-then-write": ("succeeded", None, "reply-then-write", ""),
}


def seconds(text):
    """Seconds since the epoch of a time as the API writes it."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Outcomes(Checks):
    def judge(self, mode, turn):
        status, code, text, stderr = OUTCOMES[mode]
        self.ended(turn, status, code)
        self.assertLess(seconds(turn["finished_at"]) - seconds(turn["started_at"]), END_S, turn["metrics"])
        if text is None:
            self.assertIsNone(turn["reply"])
        else:
            self.assertEqual(turn["reply"], {"text": text})
        if code:
            self.assertTrue(turn["error"]["detail"])
        self.assertIn(stderr, turn["logs"]["stderr"]["text"])
        self.assertLessEqual(len((turn["logs"]["stderr"]["text"]).encode()), STDERR_KEPT)
        if mode == "child-oom":
            self.assertGreaterEqual(turn["metrics"]["oom_kills"], 1)
        if mode == "exit-now":
            self.assertEqual(turn["metrics"]["exit_code"], 3)


class TestEachImage(Outcomes):
    """An image of its own for each: most act before they have read their turn."""

    def one(self, mode):
        with Server(image=f"cloister-test-{mode}:local", limits=LIMITS) as server:
            key = server.key()
            server.channel_on("web:lobby")
            before = time.monotonic()
            turn = server.turn("web:lobby", mode, key)
            took = time.monotonic() - before
            # The container is proven dead soon after, and the channel goes on.
            poll(lambda: not server.containers(), 10, f"{mode} is gone")
            return turn, took

    def test_each_ends_with_its_own_code(self):
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            running = {mode: threads.submit(self.one, mode) for mode in OUTCOMES}
        for mode, future in running.items():
            with self.subTest(mode):
                turn, took = future.result()
                if mode in ("deaf", "echo", "reply-then-write"):
                    self.assertLess(took, TIMEOUT_S, "a complete reply does not wait for the worker's end")
                self.assertLess(took, END_S)
                self.judge(mode, turn)


class TestEarly(Outcomes):
    def test_calls_while_the_start_is_under_way(self):
        """Several workers, so that some call before the engine has answered."""
        with Server(image="cloister-test-call-early:local", limits=LIMITS) as server:
            key = server.key()
            for channel in (channels := [f"web:early{number}" for number in range(6)]):
                server.channel_on(channel)
            with concurrent.futures.ThreadPoolExecutor(len(channels)) as threads:
                turns = list(threads.map(lambda channel: server.turn(channel, "x", key), channels))
            for turn in turns:
                self.ended(turn, "succeeded")
                calls = turn["metrics"]["model_calls"]
                self.assertGreater(calls, 0)
                spans = turn["trace"]["spans"]
                self.assertEqual([span["name"] for span in spans],
                                 ["accept", "queue", "start", *["model"] * calls, "run", "reply"])


class Watch:
    """Asks the server things all the while; `worst` is how long the slowest answer took."""

    def __init__(self, server, key, paths):
        self.server, self.key, self.paths = server, key, paths
        self.worst, self.count, self.failed = 0.0, 0, []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def run(self):
        while not self.stop.is_set():
            for path in self.paths:
                before = time.monotonic()
                try:
                    answer = self.server.call("GET", path, key=self.key, timeout=15)
                    if answer.status != 200:
                        self.failed.append(answer)
                except OSError as problem:
                    self.failed.append(problem)
                self.worst = max(self.worst, time.monotonic() - before)
                self.count += 1
            self.stop.wait(0.05)


class TestAllAtOnce(Outcomes):
    """Every mode in a channel of its own, on a pool of 4, beside a caller who behaves."""

    def test_nobody_else_is_hurt(self):
        volumes = set(Engine().volumes())
        with Server(image="cloister-test-by-text:local", limits=LIMITS, pool={"size": 4}) as server:
            bad, good = server.key("bad"), server.key("good")
            for mode in OUTCOMES:
                server.channel_on(f"web:{mode}")
            server.channel_on("web:good")
            first = server.turn("web:good", "echo", good)
            paths = ("/livez", "/readyz", "/v1/channels", "/v1/channels/web:flood", f"/v1/turns/{first['id']}")
            with Watch(server, good, paths) as watch, concurrent.futures.ThreadPoolExecutor(len(OUTCOMES)) as threads:
                running = {mode: threads.submit(server.turn, f"web:{mode}", mode, bad) for mode in OUTCOMES}
                waits = []
                while not all(future.done() for future in running.values()):
                    before = time.monotonic()
                    self.ended(server.turn("web:good", "echo all the same", good), "succeeded")
                    waits.append(time.monotonic() - before)
            for mode, future in running.items():
                with self.subTest(mode):
                    self.judge(mode, future.result())
            self.assertEqual(watch.failed, [])
            self.assertLess(watch.worst, ANSWER_S)
            self.assertGreater(watch.count, 20)
            # Keys take turns: at worst all threads are busy with turns that end by force.
            self.assertGreater(len(waits), 3)
            self.assertLess(max(waits), END_S)
            if not os.environ.get("CLOISTER_SANITIZED"):
                self.assertLess(server.memory_kib("VmHWM"), 64 * 1024)
            poll(lambda: not server.containers(), 10, "all are gone")
            self.assertLessEqual(set(server.engine.volumes()), volumes)
            self.assertEqual({path.name for path in (server.root / "workspaces").iterdir()},
                             {server.workspace(f"web:{name}").name for name in (*OUTCOMES, "good")})


class TestOne(ServerCase):
    """What needs a closer look, one channel at a time."""

    config = {"image": "cloister-test-by-text:local", "limits": LIMITS, "pool": {"size": 2}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key()
        cls.blind = cls.server.key("blind", scopes=["turns"])

    def test_goes_on_writing_after_its_reply(self):
        """It answers at the newline; the next turn of its channel starts only after its proven death."""
        self.server.channel_on("web:writer")
        self.server.turn("web:writer", "echo", self.key)
        installation = self.installation()
        with Events(self.server.engine, installation) as events:
            for rounds in (1, 2, 3):
                self.follow_one(events, rounds)

    def follow_one(self, events, rounds):
        folder = self.server.workspace("web:writer")
        first = self.submit("web:writer", "reply-then-write", self.key)
        second = self.submit("web:writer", "echo second", self.key)
        first = self.ended(self.wait(first, self.key), "succeeded")
        second = self.ended(self.wait(second, self.key), "succeeded")
        self.assertEqual(first["reply"]["text"], "reply-then-write")
        self.assertLess(seconds(first["finished_at"]) - seconds(first["started_at"]), TIMEOUT_S)
        begun = seconds(second["started_at"]) + 0.001  # it is cut to milliseconds
        # It did write, and stopped before the second began.
        self.assertTrue((folder / "after-reply-child").exists())
        for name in ("after-reply", "after-reply-child"):
            if (folder / name).exists():
                self.assertLess((folder / name).stat().st_mtime, begun, name)
                (folder / name).unlink()
        poll(lambda: [action for action, *_ in events.list()].count("destroy") == 2 * rounds, 10, "the engine has told of both")
        seen = [(action, container) for action, container, _ in events.list()]
        (old, new) = [container for action, container in seen if action == "create"][-2:]
        self.assertLess(seen.index(("destroy", old)), seen.index(("create", new)))
        died = {container: at for action, container, at in events.list() if action == "destroy"}
        self.assertLess(died[old], begun)

    def installation(self):
        """The label of this server's containers, from one that runs."""
        turn = self.submit("web:writer", "sleep", self.key)
        doc = poll(lambda: next(filter(None, map(self.server.engine.inspect, self.server.containers())), None), 20, "a container")
        self.wait(turn, self.key)
        return doc["Config"]["Labels"]["io.cloister.installation"]

    def test_stderr_needs_the_scope(self):
        self.server.channel_on("web:stderr")
        turn = self.server.turn("web:stderr", "exit-now", self.key)
        self.assertEqual(turn["logs"]["stderr"]["text"], "leaving\n")
        turn = self.server.turn("web:stderr", "exit-now", self.blind)
        self.ended(turn, "failed", "exit_code")
        self.assertNotIn("logs", turn)
        self.assertNotIn("logs", self.read(turn, self.blind))
        self.assertEqual(self.read(turn, self.key)["logs"]["stderr"]["text"], "leaving\n")

    def test_stderr_is_cut_between_characters_and_says_so(self):
        self.server.channel_on("web:stderr")
        turn = self.server.turn("web:stderr", "wide-stderr", self.key)
        self.ended(turn, "succeeded")
        kept = turn["logs"]["stderr"]["text"]
        self.assertFalse("\ufffd" in kept, kept[:80])
        self.assertLessEqual(len(kept.encode()), STDERR_KEPT)
        self.assertGreater(len(kept.encode()), STDERR_KEPT - 16)
        self.assertTrue(turn["logs"]["stderr"]["truncated"])
        self.assertGreater(turn["logs"]["stderr"]["bytes"], STDERR_KEPT)

    def test_term_is_heeded_within_the_grace(self):
        """One that ends at SIGTERM does not cost the grace."""
        self.server.channel_on("web:polite")
        turn = self.ended(self.server.turn("web:polite", "sleep", self.key), "timed_out", "timeout")
        took = seconds(turn["finished_at"]) - seconds(turn["started_at"])
        self.assertGreaterEqual(took, TIMEOUT_S)
        self.assertLess(took, TIMEOUT_S + GRACE_S)
        turn = self.ended(self.server.turn("web:polite", "ignore-term", self.key), "timed_out", "timeout")
        self.assertGreaterEqual(seconds(turn["finished_at"]) - seconds(turn["started_at"]), TIMEOUT_S + GRACE_S)

    def test_no_core_file_and_a_workspace_that_stays(self):
        self.server.channel_on("web:crash")
        self.ended(self.server.turn("web:crash", "crash", self.key), "failed", "signal")
        self.assertEqual(list(self.server.workspace("web:crash").iterdir()), [])
        self.assertTrue(self.server.workspace("web:crash").is_dir())

    def test_stopped_flood(self):
        """`stop` ends the worst of them at once."""
        self.server.channel_on("web:stop")
        for mode in ("stderr-flood", "forkbomb", "ignore-term"):
            turn = self.running(self.submit("web:stop", mode, self.key), self.key)
            before = time.monotonic()
            answer = self.ok(self.server.call("POST", "/v1/channels/web:stop/stop", key=self.key))
            self.assertIs(answer["stopped"], True)
            self.ended(self.wait(turn, self.key), "canceled", "canceled")
            self.assertLess(time.monotonic() - before, ANSWER_S, mode)
