"""Turns that nobody waits for: names, lists, cancels, limits, attempts, and what is kept of each. (mission.md sections 1, 4, 8;
http.md)"""
import concurrent.futures
import datetime
import json
import pathlib
import re
import time

from lib.case import SPEAKER, ServerCase
from lib.cloister import Server
from lib.crash import IMAGE, Crash
from lib.http import poll
from lib.upstream import Upstream, says

LIMITS = {"timeout_ms": 20000, "grace_ms": 300, "memory_mb": 256, "cpus": 1, "pids": 32}


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def alive(container):
    """Host processes in the cgroup of a container, whatever their parent is."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if container in path.read_text():
                found.append(int(path.parent.name))
        except OSError:
            continue  # it ended meanwhile
    return found


class AsyncCase(ServerCase):
    config = {"image": IMAGE, "limits": LIMITS, "pool": {"size": 2}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key("own")
        for name in "abc":
            cls.server.channel_on(f"web:{name}")

    def post(self, text="echo", key=None, channel="web:a", name=None, prefer="respond-async", server=None, **more):
        body = {"channel": channel, "speaker": SPEAKER, "text": text, **more}
        headers = {"Prefer": prefer, **({"Idempotency-Key": name} if name else {})}
        return (server or self.server).call("POST", "/v1/turns", body, key or self.key, headers)

    def cancel(self, turn, key=None):
        return self.server.call("POST", f"/v1/turns/{turn['id']}/cancel", key=key or self.key)

    def container(self, turn):
        """The id of the one container that runs, once it does."""
        self.running(turn, self.key)
        return poll(lambda: next((c for c in self.server.containers() if alive(c)), None), 20, "its container runs")

    def free(self, channel):
        poll(lambda: not self.ok(self.server.call("GET", f"/v1/channels/{channel}", key=self.key))["busy"], 20, "it is free")


class TestIdempotency(AsyncCase):
    def replayed(self, answer):
        return answer.headers.get("idempotent-replayed") == "true"

    def test_fifty_clients_at_once(self):
        """One turn runs, all get its answer; another key never sees it."""
        other = self.server.key("other")
        with concurrent.futures.ThreadPoolExecutor(60) as threads:
            ours = [threads.submit(self.post, "count 300", name="one", prefer=None) for _ in range(50)]
            theirs = [threads.submit(self.post, "count 300", other, name="one", prefer=None) for _ in range(5)]
        ours, theirs = ([future.result() for future in futures] for futures in (ours, theirs))
        for answers in ours, theirs:
            turns = [self.ended(self.ok(answer), "succeeded") for answer in answers]
            self.assertEqual(turns, [turns[0]] * len(turns))
            self.assertEqual([self.replayed(answer) for answer in answers].count(False), 1)
        self.assertNotEqual(ours[0].json["id"], theirs[0].json["id"])
        self.free("web:a")
        runs = (self.server.workspace("web:a") / "runs").read_text().split()
        self.assertEqual(sorted(runs), sorted({ours[0].json["id"], theirs[0].json["id"]}))

    def test_replay_waits_as_its_own_prefer_says(self):
        first = self.ok(self.post("count 1500", channel="web:b", name="wait"), 202)
        began = time.monotonic()
        again = self.post("count 1500", channel="web:b", name='"wait"')
        self.assertEqual((self.ok(again, 202)["id"], self.replayed(again)), (first["id"], True))
        self.assertEqual(again.headers["preference-applied"], "respond-async")
        self.assertEqual(again.headers["location"], f"/v1/turns/{first['id']}")
        self.assertLess(time.monotonic() - began, 1)
        answer = self.post("count 1500", channel="web:b", name="wait", prefer="wait=1")
        self.assertEqual(answer.headers["preference-applied"], "wait")
        self.assertIn(answer.status, (200, 202))
        answer = self.post("count 1500", channel="web:b", name="wait", prefer=None)
        self.ended(self.ok(answer), "succeeded")
        self.assertTrue(self.replayed(answer))
        self.assertEqual(answer.json["id"], first["id"])
        answer = self.post("count 1500", channel="web:b", name="wait")
        self.ended(self.ok(answer, 200), "succeeded")

    def test_another_body_is_refused(self):
        first = self.ok(self.post("echo 1", name="body"), 202)
        self.problem(self.post("echo 2", name="body"), 422, "invalid")
        self.problem(self.post("echo 1", name="body", metadata={}), 422, "invalid")
        answer = self.server.call("POST", "/v1/turns", b'{"channel":', self.key, {"Idempotency-Key": "body"})
        self.problem(answer, 422, "invalid")
        self.ended(self.wait(first, self.key), "succeeded")

    def test_forms_of_names(self):
        for bad in ("", '""', "x" * 256, 'a"b', "caf\u00e9"):
            answer = self.post(name=bad) if bad else self.server.call(
                "POST", "/v1/turns", {"channel": "web:a", "speaker": SPEAKER, "text": "echo"}, self.key, {"Idempotency-Key": ""})
            self.problem(answer, 400, "bad_request")
        self.ok(self.post(name='"' + "x" * 255 + '"'), 202)

    def test_a_refusal_stores_nothing(self):
        """After 400, 401, 404, 409, 422, 429 and 503 the same name is free."""
        config = {"queue": {"per_channel": 1, "per_key": 50, "total": 2}, "pool": {"size": 1}}
        with Server(**{**self.config, **config}) as server:
            key = server.key(channels=["web:*"])
            for name in "abc":
                server.channel_on(f"web:{name}")

            def post(text="echo", channel="web:a", **more):
                return self.post(text, key, channel, server=server, **more)

            self.problem(server.call("POST", "/v1/turns", b"{", key, {"Idempotency-Key": "n"}), 400, "invalid_json")
            self.problem(self.post(key="clo_x", name="n", server=server), 401, "unauthorized")
            self.problem(post(channel="else:a", name="n"), 404, "not_found")
            self.problem(post(channel="web:off", name="n"), 409, "channel_disabled")
            self.problem(post(name="n", limits={"pids": 4096}), 422, "invalid")
            running = self.ok(post("sleep", name="run"), 202)
            self.wait(running, key, server, until=lambda turn: turn["status"] == "running")
            waiting = [self.ok(post(), 202)]
            self.problem(post(name="n"), 429, "queue_full")
            waiting.append(self.ok(post(channel="web:b"), 202))
            self.problem(post(channel="web:c", name="n"), 503, "overloaded")
            replayed = post("sleep", name="run")  # needs no place
            self.assertEqual(self.ok(replayed, 202)["id"], running["id"])
            self.ok(server.call("POST", f"/v1/turns/{running['id']}/cancel", key=key))
            for turn in waiting:
                self.ended(self.wait(turn, key, server), "succeeded")
            answer = post("echo at last", name="n", prefer=None)
            self.ended(self.ok(answer), "succeeded")
            self.assertFalse(self.replayed(answer))
            # A name outlives the server and the channel's being turned off.
            server.restart()
            self.ok(server.call("PUT", "/v1/channels/web:a", {"enabled": False}, key))
            answer = post("echo at last", name="n")
            self.assertEqual(self.ok(answer)["reply"], {"text": "echo at last"})
            self.assertTrue(self.replayed(answer))


class TestLists(AsyncCase):
    def ids(self, query="", key=None):
        answer = self.ok(self.server.call("GET", f"/v1/turns{query}", key=key or self.key))
        self.assertEqual(set(answer), {"data", "has_more", "next_cursor"})
        return [turn["id"] for turn in answer["data"]]

    def test_filters_cursors_and_what_a_key_sees(self):
        other = self.server.key("other", channels=["web:b"])
        blind = self.server.key("blind", scopes=["turns"])
        reader = self.server.key("reader", scopes=["turns:read"], channels=["web:a"])
        bob = {"id": "bob", "name": "Bob"}
        made = []
        for text, key, channel, speaker in (("echo 0", self.key, "web:a", SPEAKER), ("exit-now", self.key, "web:a", bob),
                                            ("echo 2", self.key, "web:b", bob), ("echo 3", other, "web:b", SPEAKER),
                                            ("fail", self.key, "web:c", bob), ("echo 5", blind, "web:a", bob)):
            made.append(self.ok(self.post(text, key, channel, prefer=None, speaker=speaker)))
            time.sleep(0.002)  # so that no two have the same time
        a0, a1, b2, b3, c4, a5 = (turn["id"] for turn in made)

        self.assertEqual(self.ids(), [a5, c4, b3, b2, a1, a0])
        self.assertEqual(self.ids("?channel=web:a"), [a5, a1, a0])
        self.assertEqual(self.ids("?channel=web%3Aa&status=failed"), [a1])
        self.assertEqual(self.ids("?status=failed"), [c4, a1])
        self.assertEqual(self.ids("?speaker=bob"), [a5, c4, b2, a1])
        self.assertEqual(self.ids("?speaker=bob&channel=web:b&status=succeeded"), [b2])
        self.assertEqual(self.ids("?channel=web:none"), [])
        since, until = made[2]["created_at"], made[4]["created_at"]
        self.assertEqual(self.ids(f"?since={since}&until={until}"), [b3, b2])
        self.assertEqual(self.ids(f"?since={until}&channel=web:c"), [c4])

        # What it may not see is not there: another's turns without turns:read, channels beyond the globs.
        self.assertEqual(self.ids(key=blind), [a5])
        self.assertEqual(self.ids(key=reader), [a5, a1, a0])
        self.assertEqual(self.ids("?channel=web:b", reader), [])
        self.assertEqual(self.ids(key=other), [b3, b2])
        for turn in self.ok(self.server.call("GET", "/v1/turns", key=blind))["data"]:
            self.assertNotIn("logs", turn)

        # Pages hold on to their place while new turns come.
        seen, query = [], "?limit=4"
        first = self.ok(self.server.call("GET", f"/v1/turns{query}", key=self.key))
        self.assertEqual(([turn["id"] for turn in first["data"]], first["has_more"]), ([a5, c4, b3, b2], True))
        self.ok(self.post("echo later", prefer=None))
        rest = self.ok(self.server.call("GET", f"/v1/turns?limit=4&cursor={first['next_cursor']}", key=self.key))
        self.assertEqual(([turn["id"] for turn in rest["data"]], rest["has_more"], rest["next_cursor"]), ([a1, a0], False, None))
        self.assertEqual(rest["data"][1], self.read({"id": a0}, self.key), "a list holds whole turns")
        while query:
            page = self.ok(self.server.call("GET", f"/v1/turns{query}", key=self.key))
            seen += [turn["id"] for turn in page["data"]]
            query = page["has_more"] and f"?limit=1&cursor={page['next_cursor']}"
        self.assertEqual(seen[1:] if len(seen) == 7 else seen, [a5, c4, b3, b2, a1, a0])

        for bad in ("?status=done", "?limit=0", "?limit=201", "?limit=x", "?cursor=zz", "?cursor=61", "?since=yesterday", "?until=1",
                    "?color=red"):
            answer = self.server.call("GET", f"/v1/turns{bad}", key=self.key)
            self.problem(answer, 400, "bad_request")
        self.problem(self.server.call("GET", "/v1/turns", key=self.server.key("c", scopes=["channels"])), 403, "forbidden")
        self.problem(self.server.call("GET", "/v1/turns"), 401, "unauthorized")


class TestCancel(AsyncCase):
    def test_running_answers_when_its_process_tree_is_dead(self):
        for mode in ("ignore-term", "forkbomb", "stderr-flood"):
            with self.subTest(mode):
                turn = self.ok(self.post(mode), 202)
                container = self.container(turn)
                answer = self.cancel(turn)
                left = alive(container)
                self.assertEqual(left, [])
                self.assertIsNone(self.server.engine.inspect(container))
                self.ended(self.ok(answer), "canceled", "canceled")
                self.assertTrue(answer.json["cancel_requested_at"])
                self.assertEqual(self.cancel(turn).json, answer.json, "again: the same")
                self.assertEqual(self.read(turn, self.key), answer.json)

    def test_queued_never_runs(self):
        running = self.ok(self.post("ignore-term"), 202)
        waiting = [self.ok(self.post(f"count {n}"), 202) for n in range(3)]
        self.running(running, self.key)
        answer = self.cancel(waiting[1])
        turn = self.ended(self.ok(answer), "canceled", "canceled")
        self.assertEqual((turn["started_at"], turn["attempts"], turn["reply"]), (None, 0, None))
        self.assertEqual(self.ok(self.server.call("GET", "/v1/channels/web:a", key=self.key))["queued"], 2)
        self.ok(self.cancel(running))
        for turn in (waiting[0], waiting[2]):
            self.ended(self.wait(turn, self.key), "succeeded")
        self.free("web:a")
        runs = (self.server.workspace("web:a") / "runs").read_text().split()
        self.assertEqual(runs, [waiting[0]["id"], waiting[2]["id"]])
        (self.server.workspace("web:a") / "runs").unlink()

    def test_during_the_burial(self):
        """It has answered and is being removed, though it ignores SIGTERM and writes on: cancel waits for its death."""
        for _ in range(3):
            turn = self.ok(self.post("reply-then-write", channel="web:b"), 202)
            container = self.container(turn)
            self.wait(turn, self.key)
            answer = self.cancel(turn)
            self.assertEqual(alive(container), [])
            self.ended(self.ok(answer), "succeeded")

    def test_of_others(self):
        reader = self.server.key("reader")
        blind = self.server.key("blind", scopes=["turns"])
        elsewhere = self.server.key("elsewhere", channels=["other:*"])
        only_reads = self.server.key("only reads", scopes=["turns:read"])
        turn = self.ok(self.post("ignore-term", channel="web:c"), 202)
        self.running(turn, self.key)
        self.problem(self.cancel(turn, reader), 403, "forbidden")
        self.problem(self.cancel(turn, only_reads), 403, "forbidden")
        self.problem(self.cancel(turn, blind), 404, "not_found")
        self.problem(self.cancel(turn, elsewhere), 404, "not_found")
        self.problem(self.server.call("POST", f"/v1/turns/{turn['id']}/cancel"), 401, "unauthorized")
        self.problem(self.cancel({"id": "turn_" + "0" * 32}), 404, "not_found")
        self.assertEqual(self.read(turn, self.key)["status"], "running")
        self.assertNotIn("cancel_requested_at", self.read(turn, self.key))
        self.ended(self.ok(self.cancel(turn)), "canceled", "canceled")

    def test_waiting_client_is_answered(self):
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(self.post, "ignore-term", channel="web:c", name="parked", prefer=None)
            turn = poll(lambda: self.ok(self.server.call("GET", "/v1/turns?status=running", key=self.key))["data"], 20, "it runs")[0]
            self.ok(self.cancel(turn))
            self.ended(self.ok(waiting.result(10)), "canceled", "canceled")

    def test_fifty_at_once(self):
        """Cancels of what waits and what runs, from many clients: each turn ends once, the channel goes on."""
        turns = [self.ok(self.post(f"count {n % 3 * 20}", channel=f"web:{'abc'[n % 3]}"), 202) for n in range(24)]
        with concurrent.futures.ThreadPoolExecutor(24) as threads:
            answers = list(threads.map(self.cancel, turns + turns))
        for answer in answers:
            self.assertIn(self.ok(answer)["status"], ("canceled", "succeeded"))
        for turn, one, two in zip(turns, answers, answers[len(turns):]):
            self.assertEqual({answer.json["status"] for answer in (one, two)}, {self.read(turn, self.key)["status"]})
        for name in "abc":
            self.ended(self.ok(self.post("echo", channel=f"web:{name}", prefer=None)), "succeeded")


class TestLimits(AsyncCase):
    def test_they_reach_the_container(self):
        turn = self.ok(self.post("sleep", limits={"memory_mb": 128, "cpus": 0.25, "pids": 9, "timeout_ms": 10000}), 202)
        host = self.server.engine.inspect(self.container(turn))["HostConfig"]
        self.assertEqual((host["Memory"], host["MemorySwap"]), (128 * 2**20,) * 2)
        self.assertEqual(host["PidsLimit"], 9)
        self.assertEqual(host["NanoCpus"] or host["CpuQuota"] * 10**9 // host["CpuPeriod"], 250000000)
        self.ok(self.cancel(turn))
        turn = self.ok(self.post("sleep"), 202)
        host = self.server.engine.inspect(self.container(turn))["HostConfig"]
        self.assertEqual((host["Memory"], host["PidsLimit"]), (256 * 2**20, 32), "of that turn only")
        self.ok(self.cancel(turn))

    def test_deadline(self):
        turn = self.ended(self.ok(self.post("sleep", prefer=None, limits={"timeout_ms": 1000})), "timed_out", "timeout")
        took = moment(turn["finished_at"]) - moment(turn["started_at"])
        self.assertGreaterEqual(took, 0.999)
        self.assertLess(took, 1 + LIMITS["grace_ms"] / 1000 + 5)

    def test_what_they_do(self):
        turn = self.ok(self.post("pid-limit", prefer=None, limits={"pids": 8}))
        self.ended(turn, "failed", "pid_limit")
        turn = self.ok(self.post("eat-memory", prefer=None, limits={"memory_mb": 64}))
        self.ended(turn, "failed", "out_of_memory")
        self.assertLess(turn["metrics"].get("memory_peak_bytes", 0), 65 * 2**20)

    def test_they_may_only_lower(self):
        over = {"timeout_ms": 20001, "memory_mb": 257, "cpus": 1.01, "pids": 33}
        faults = self.problem(self.post(limits=over), 422, "invalid")
        self.assertEqual(set(faults), {f"/limits/{name}" for name in over})
        for name, value in over.items():
            self.assertRegex(faults[f"/limits/{name}"], "only lower")
        under = {"timeout_ms": 999, "memory_mb": 63, "cpus": 0.005, "pids": 7}
        self.assertEqual(set(self.problem(self.post(limits=under), 422, "invalid")), {f"/limits/{name}" for name in under})
        for bad in ({}, {"timeout_ms": "1000"}, {"nofile": 16}, [], None, {"pids": 8.5}):
            self.problem(self.post(limits=bad), 422, "invalid")
        self.ended(self.ok(self.post(prefer=None, limits={name: LIMITS[name] for name in over})), "succeeded")

    def test_waiting_has_a_limit_of_its_own(self):
        with Server(**{**self.config, "queue": {"wait_ms": 1000}, "pool": {"size": 1}}) as server:
            key = server.key()
            server.channel_on("web:a")
            server.channel_on("web:b")
            running = self.submit("web:a", "ignore-term", key, server)
            self.running(running, key, server)
            waiting = [self.submit("web:a", "count 0", key, server), self.submit("web:b", "count 0", key, server)]
            with concurrent.futures.ThreadPoolExecutor(1) as threads:
                parked = threads.submit(self.post, "count 0", key, prefer=None, server=server)
                for turn in [self.wait(turn, key, server, 5) for turn in waiting] + [self.ok(parked.result(10))]:
                    self.ended(turn, "timed_out", "timeout")
                    self.assertEqual((turn["started_at"], turn["attempts"]), (None, 0))
                    self.assertRegex(turn["error"]["detail"], "queue.wait_ms")
                    self.assertLess(moment(turn["finished_at"]) - moment(turn["created_at"]), 1 + 2.5)
            self.assertEqual(self.read(running, key, server)["status"], "running")
            self.ok(server.call("POST", f"/v1/turns/{running['id']}/cancel", key=key))
            self.ended(server.turn("web:a", "echo", key), "succeeded")
            self.assertFalse((server.workspace("web:a") / "runs").exists(), "none of them ran")

    def test_waiting_does_not_go_on_while_the_service_is_down(self):
        """What waited, and what ran and may run again, have their whole time again."""
        with Server(**{**self.config, "queue": {"wait_ms": 5000}, "pool": {"size": 1}}) as server:
            key = server.key()
            server.channel_on("web:a")
            again = self.submit("web:a", "count 3000", key, server, max_attempts=2)
            self.running(again, key, server)
            waiting = self.submit("web:a", "count 0", key, server)
            server.kill()
            time.sleep(2.5)
            server.start()
            for turn in (again, waiting):
                self.ended(self.wait(turn, key, server), "succeeded")


class TestAttempts(Crash):
    config = {"limits": {"timeout_ms": 60000}}

    def post(self, text, **more):
        body = {"channel": "web:a", "speaker": SPEAKER, "text": text, **more}
        return self.ok(self.server.call("POST", "/v1/turns", body, self.key, {"Prefer": "respond-async"}), 202)

    def runs(self):
        path = self.server.workspace("web:a") / "runs"
        return path.read_text().split() if path.exists() else []

    def test_as_often_as_allowed(self):
        self.on("web:a")
        twice, after = self.post("count 60000", max_attempts=2), self.post("count 0", max_attempts=2)
        for number in (1, 2):
            poll(lambda number=number: len(self.runs()) == number, 20, "it has begun")
            self.assertEqual(self.read(twice)["attempts"], number)
            self.server.kill()
            self.server.start()
        turn = self.ended(self.wait(twice), "interrupted", "server_restarted")
        self.assertEqual(turn["attempts"], 2)
        turn = self.ended(self.wait(after), "succeeded")
        self.assertEqual(turn["attempts"], 1)
        self.assertEqual(self.runs(), [twice["id"], twice["id"], after["id"]], "in its old place")
        self.server.close()

    def test_not_after_a_cancel(self):
        """One whose cancel was accepted does not run again, though its server was killed before it could end it."""
        self.on("web:a")
        turn = self.running(self.post("count 60000", max_attempts=5))
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            threads.submit(self.server.call, "POST", f"/v1/turns/{turn['id']}/cancel", key=self.key)
            poll(lambda: "cancel_requested_at" in self.read(turn), 10, "it is noted")
            self.server.kill()
        self.server.start()
        self.ended(self.wait(turn), "canceled", "canceled")
        self.assertLessEqual(len(self.runs()), 1)
        self.server.close()

    def test_form(self):
        self.on("web:a")
        for bad in (0, 6, 1.5, "2", None):
            body = {"channel": "web:a", "speaker": SPEAKER, "text": "echo", "max_attempts": bad}
            self.assertEqual(set(self.problem(self.server.call("POST", "/v1/turns", body, self.key), 422, "invalid")), {"/max_attempts"})
        self.server.close()


class TestDetail(AsyncCase):
    """Logs and traces of a turn."""

    def output(self, turn, name):
        out = turn["logs"][name]
        self.assertEqual(set(out), {"text", "bytes", "truncated"})
        self.assertIs(type(out["truncated"]), bool)
        return out

    def test_outputs_of_every_ending(self):
        """What the worker had written, with its true totals, however it ended."""
        short = {"timeout_ms": 1500}
        table = {  # mode: (code, stdout, stderr) as a text or a least number of bytes
            "sleep": ("timeout", "half a reply", "still sleeping\n"),
            "exit-now": ("exit_code", "", "leaving\n"),
            "crash": ("signal", "", "about to crash\n"),
            "fail": ("worker_failed", '{"ok":false,"text":"I cannot"}', "this is why\n"),
            "garbage": ("invalid_reply", '\ufffd\ufffd{"ok":tru\x01\x1b[31m]]', ""),
            "flood": ("output_limit", 2 * 2**20 + 1, ""),
            "stderr-flood": ("timeout", "", 2**20 + 1),
            "wide-stderr": (None, None, 2**20 + 1),
            "pid-limit": ("pid_limit", 1, "fork: Resource temporarily unavailable\n"),
            "echo": (None, None, ""),
        }
        for mode, (code, stdout, stderr) in table.items():
            with self.subTest(mode):
                turn = self.ok(self.post(mode, prefer=None, limits=short))
                self.assertEqual(turn["error"] and turn["error"]["code"], code)
                for name, want in (("stdout", stdout), ("stderr", stderr)):
                    if want is None:
                        self.assertNotIn(name, turn["logs"])
                        continue
                    out = self.output(turn, name)
                    if isinstance(want, str):
                        self.assertEqual((out["text"], out["truncated"]), (want, False))
                        newline = name == "stdout" and code in ("worker_failed", "invalid_reply")
                        self.assertEqual(out["bytes"], len(want.encode("utf-8", "replace").replace(b"\xef\xbf\xbd", b"x")) + newline)
                    else:
                        self.assertGreaterEqual(out["bytes"], want)
                        self.assertIs(out["truncated"], want > 2**20)
                        self.assertNotIn("\ufffd", out["text"])

    def with_result(self, **result):
        """Another server with these settings, its key, and a turn that says 1,200,000 bytes on stderr."""
        server = Server(**{**self.config, "result": result})
        self.addCleanup(server.discard)
        key = server.key()
        server.channel_on("web:a")
        return server, key, self.ok(self.post("wide-stderr", key, prefer=None, server=server))

    def test_switched_off(self):
        """Metrics, logs and spans, each by its own switch; the turn goes as ever."""
        server, key, said = self.with_result(metrics=False, logs=False, spans=False)
        self.ended(said, "succeeded")
        failed = self.ended(self.ok(self.post("fail", key, prefer=None, server=server)), "failed", "worker_failed")
        for turn in (said, failed):
            self.assertEqual((turn["metrics"], turn["logs"], turn["trace"]["spans"]), (None, None, []))
            self.assertRegex(turn["trace"]["trace_id"], "^[0-9a-f]{32}$")
            events = server.call("GET", f"/v1/turns/{turn['id']}/events", key=key, headers={"Accept": "application/json"})
            kinds = [event["type"] for event in self.ok(events)["data"]]
            self.assertEqual((kinds[:2], kinds[-1]), (["queued", "started"], "ended"))
            self.assertNotIn("log", kinds)
        server.close()

    def test_one_switched_off(self):
        for name in ("metrics", "logs", "spans"):
            server, _, turn = self.with_result(**{name: False})
            kept = {"metrics": turn["metrics"], "logs": turn["logs"], "spans": turn["trace"]["spans"]}
            self.assertEqual([key for key, value in kept.items() if not value], [name])
            server.close()

    def test_kept_of_stderr(self):
        server, _, turn = self.with_result(logs_kb=4)
        out = self.output(turn, "stderr")
        self.assertEqual((out["bytes"], out["truncated"]), (1_200_000, True))
        size = len(out["text"].encode())
        self.assertTrue(4096 - 3 <= size <= 4096, size)
        self.assertTrue(("a\u00e9\u20ac\U0001d11e" * 500).endswith(out["text"]), "its end, cut between characters")
        server.close()

    def test_outputs_of_a_canceled_turn(self):
        turn = self.ok(self.post("sleep"), 202)
        self.container(turn)
        time.sleep(0.3)  # its words are under way, and nothing tells of them but the end
        turn = self.ended(self.ok(self.cancel(turn)), "canceled", "canceled")
        self.assertEqual(self.output(turn, "stdout"), {"text": "half a reply", "bytes": 12, "truncated": False})
        self.assertEqual(self.output(turn, "stderr"), {"text": "still sleeping\n", "bytes": 15, "truncated": False})

    def test_trace(self):
        """The caller's trace is continued, and sent on; the spans tell the turn's way."""
        upstream = Upstream(says("hello"))
        self.addCleanup(upstream.close)
        with Server(model={"url": upstream.url, "allow_http": True, "allow_script": None}) as server:
            key = server.key()
            server.channel_on("web:a")
            trace = "0af7651916cd43dd8448eb211c80319c"
            given = {trace: f"00-{trace}-b7ad6b7169203331-01", None: "00-" + "0" * 32 + "-b7ad6b7169203331-01", "": None}
            for want, header in given.items():
                body = {"channel": "web:a", "speaker": SPEAKER, "text": "hi"}
                turn = self.ended(self.ok(server.call("POST", "/v1/turns", body, key, {"traceparent": header})), "succeeded")
                self.assertRegex(turn["trace"]["trace_id"], "^[0-9a-f]{32}$")
                self.assertNotEqual(turn["trace"]["trace_id"], "0" * 32)
                if want:
                    self.assertEqual(turn["trace"]["trace_id"], want)
                sent = upstream.requests[-1].headers["traceparent"]
                self.assertTrue(re.fullmatch(rf"00-{turn['trace']['trace_id']}-[0-9a-f]{{16}}-0[01]", sent), sent)
                self.assertNotIn("b7ad6b7169203331", sent, "the span is ours")
                self.spans(turn)
            self.assertEqual(json.dumps(turn["trace"]).count("hi"), 0)

    def spans(self, turn):
        spans = {span["name"]: span for span in turn["trace"]["spans"]}
        self.assertEqual([span["name"] for span in turn["trace"]["spans"]], ["accept", "queue", "start", "model", "run", "reply"])
        for span in spans.values():
            self.assertEqual(set(span), {"name", "started_at", "duration_ms"})
            self.assertGreaterEqual(span["duration_ms"], 0)
        self.assertEqual(spans["queue"]["started_at"], turn["created_at"])
        self.assertEqual(spans["start"]["started_at"], turn["started_at"])
        self.assertLessEqual(moment(spans["accept"]["started_at"]), moment(turn["created_at"]))
        ends = {name: moment(span["started_at"]) + span["duration_ms"] / 1000 for name, span in spans.items()}
        self.assertLessEqual(moment(spans["model"]["started_at"]), ends["run"] + 0.01)
        self.assertGreaterEqual(moment(spans["model"]["started_at"]), moment(turn["started_at"]))
        self.assertLessEqual(ends["reply"], moment(turn["finished_at"]) + 0.05)
        self.assertLessEqual(spans["start"]["duration_ms"], spans["run"]["duration_ms"])
        self.assertEqual(turn["metrics"]["queue_ms"], spans["queue"]["duration_ms"])
        self.assertEqual((turn["metrics"]["model_calls"], turn["metrics"]["prompt_tokens"], turn["metrics"]["completion_tokens"]),
                         (1, 11, 7))
