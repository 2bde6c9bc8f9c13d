"""The engine under the server is killed, hangs, or what looks after one of its containers does. (mission.md section 2)"""
import contextlib
import os
import signal
import subprocess
import time

from lib.crash import IMAGE, Crash
from lib.http import poll
from lib.own_engine import OwnEngine


class TestEngine(Crash):
    """An engine of its own for all tests of the class."""

    config = {"limits": {"timeout_ms": 4000, "grace_ms": 500}}

    @classmethod
    def setUpClass(cls):
        cls.engine = OwnEngine(IMAGE)
        cls.addClassCleanup(cls.engine.discard)

    def setUp(self):
        self.config = {**self.config, "engine_socket": self.engine.socket}
        super().setUp()
        self.on("web:a", "web:b")

    def running(self, turn):
        """Its start is over: the server has hold of the worker's process, and asks the engine nothing more."""
        turn = super().running(turn)
        poll(self.holds_a_process, 10, "the start is over")
        return turn

    def holds_a_process(self):
        folder = f"/proc/{self.server.process.pid}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                if "pidfd" in os.readlink(f"{folder}/{name}"):
                    return True
        return False

    def test_killed_and_started_again(self):
        running = self.submit("web:a", "ignore-term")
        waiting = self.submit("web:a", "echo after")
        self.running(running)
        (pid,) = self.pids()
        self.engine.kill()
        self.ended(self.wait(running, 10), "failed", "engine_unavailable")
        poll(lambda: self.not_ready("engine_unavailable"), 5, "it says so")
        self.problem(self.server.call("GET", "/readyz"), 503, "not_ready")
        self.assertEqual(self.server.call("GET", "/livez").status, 200)
        other = self.submit("web:b", "echo other")
        self.assertEqual((self.read(waiting)["status"], self.read(other)["status"]), ("queued", "queued"))
        poll(lambda: self.channel("web:a")["blocked"], 15, "its death cannot be proven")
        self.assertFalse(self.channel("web:b")["blocked"])
        self.engine.start()
        self.ended(self.wait(other), "succeeded")
        self.ended(self.wait(waiting), "succeeded")
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        poll(self.server.ready, 10, "it is ready by itself")
        self.assertFalse(self.channel("web:a")["blocked"])
        poll(lambda: not self.server.containers(), 20, "all are gone")
        self.server.close()

    def test_hangs(self):
        """A stopped engine: the turn ends in time, its channel waits for the proof of its death, and goes on."""
        running = self.running(self.submit("web:a", "ignore-term"))
        waiting = self.submit("web:a", "echo after")
        self.addCleanup(self.resume)
        self.engine.signal(signal.SIGSTOP)
        began = time.monotonic()
        self.ended(self.wait(running, 4 + 0.5 + 5), "timed_out", "timeout")
        poll(lambda: self.not_ready("engine_unavailable"), 10, "it says so")
        poll(lambda: self.channel("web:a")["blocked"], 15, "its death cannot be proven")
        self.problem(self.server.call("DELETE", "/v1/channels/web:a", key=self.key), 409, "conflict")
        other = self.submit("web:b", "echo other")
        self.assertEqual(self.read(waiting)["status"], "queued")
        self.assertGreater(time.monotonic() - began, 3)
        self.engine.signal(signal.SIGCONT)
        for turn in (waiting, other):
            self.ended(self.wait(turn), "succeeded")
        self.assertFalse(self.channel("web:a")["blocked"])
        poll(self.server.ready, 10, "it is ready by itself")
        self.server.close()

    def test_hangs_before_it_makes_a_container(self):
        """Neither its deadline nor a stop waits for an engine that takes its time. (mission.md section 1)"""
        self.addCleanup(self.resume)
        self.engine.signal(signal.SIGSTOP)
        began = time.monotonic()
        late = self.submit("web:a", "echo late", limits={"timeout_ms": 1000})
        stopped = self.submit("web:b", "echo stopped")
        self.wait(stopped, status=("running",))
        self.ok(self.server.call("POST", "/v1/channels/web:b/stop", key=self.key))
        self.ended(self.wait(stopped, 3), "canceled", "canceled")
        self.ended(self.wait(late, 3), "timed_out", "timeout")
        self.assertLess(time.monotonic() - began, 1 + 0.5 + 3)
        for channel in ("web:a", "web:b"):
            poll(lambda channel=channel: self.channel(channel)["blocked"], 15, "something may have been made")
        self.engine.signal(signal.SIGCONT)
        for channel in ("web:a", "web:b"):
            self.ended(self.wait(self.submit(channel, "echo after")), "succeeded")
        self.server.close()

    def resume(self):
        if self.engine.processes:
            self.engine.signal(signal.SIGCONT)

    def test_one_container_hangs(self):
        """What looks after one container hangs: that channel alone is blocked, the others go on."""
        running = self.running(self.submit("web:a", "ignore-term"))
        waiting = self.submit("web:a", "echo after")
        (pid,) = self.pids()
        shim = self.engine.shim_of(pid)
        self.assertIn(shim, list(self.engine.shims()))
        os.kill(shim, signal.SIGSTOP)
        try:
            answer = self.ok(self.server.call("POST", "/v1/channels/web:a/stop", key=self.key))
            self.assertTrue(answer["stopped"])
            self.ended(self.wait(running, 10), "canceled", "canceled")
            poll(lambda: self.channel("web:a")["blocked"], 15, "its death cannot be proven")
            for n in range(3):
                self.ended(self.wait(self.submit("web:b", f"echo {n}"), 10), "succeeded")
            self.assertEqual(self.server.call("GET", "/readyz").status, 200)
            self.assertEqual(self.read(waiting)["status"], "queued")
            self.problem(self.server.call("DELETE", "/v1/channels/web:a", key=self.key), 409, "conflict")
        finally:
            os.kill(shim, signal.SIGCONT)
        self.ended(self.wait(waiting), "succeeded")
        self.assertFalse(self.channel("web:a")["blocked"])
        self.server.close()

    def test_one_container_outlives_the_server(self):
        """It cannot be removed when the server starts again: that channel alone is blocked, until it is gone."""
        running, other = (self.submit(channel, "ignore-term") for channel in ("web:a", "web:b"))
        poll(lambda: len(self.pids()) == 2, 20, "both run")
        waiting = self.submit("web:a", "echo after")
        docs = map(self.engine.inspect, self.server.containers())
        folder = str(self.server.workspace("web:a"))
        (pid,) = [doc["State"]["Pid"] for doc in docs if folder in [mount["Source"] for mount in doc["Mounts"]]]
        shim = self.engine.shim_of(pid)
        self.server.kill()
        os.kill(shim, signal.SIGSTOP)
        try:
            began = time.monotonic()
            self.server.start()
            self.assertLess(time.monotonic() - began, 5, "it is ready")
            for turn in (running, other):
                self.ended(self.read(turn), "interrupted", "server_restarted")
            for n in range(3):
                self.ended(self.wait(self.submit("web:b", f"echo {n}"), 15), "succeeded")
            channel = self.channel("web:a")
            self.assertTrue(channel["blocked"] and channel["busy"], channel)
            self.assertEqual(self.server.call("GET", "/readyz").status, 200)
            self.assertEqual(self.read(waiting)["status"], "queued")
            self.problem(self.server.call("DELETE", "/v1/channels/web:a", key=self.key), 409, "conflict")
        finally:
            os.kill(shim, signal.SIGCONT)
        self.ended(self.wait(waiting), "succeeded")
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertFalse(self.channel("web:a")["blocked"])
        self.server.close()

    def test_server_stopped_while_the_engine_hangs(self):
        """It does not wait for the engine; what is left is found by its label at the next start."""
        self.server.write_config(pool={"drain_ms": 300})
        self.server.restart()
        running = self.running(self.submit("web:a", "ignore-term"))
        waiting = self.submit("web:a", "echo after")
        self.addCleanup(self.resume)
        self.engine.signal(signal.SIGSTOP)
        self.assertEqual(self.server.stop(25), 0)
        self.engine.signal(signal.SIGCONT)
        self.server.start()
        self.ended(self.read(running), "interrupted", "server_restarted")
        self.ended(self.wait(waiting), "succeeded")
        self.server.close()

    def test_disk_is_watched_while_a_container_hangs(self):
        """The proof of one container's death does not keep the watch from the disk."""
        self.server.close()
        account, path = self.server.account, self.server.root / "workspaces"
        options = f"size=1040m,mode=0700,uid={account.pw_uid},gid={account.pw_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "cloister-test", str(path)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(path)], check=True)
        self.server.start()
        self.running(self.submit("web:a", "ignore-term"))
        (pid,) = self.pids()
        shim = self.engine.shim_of(pid)
        os.kill(shim, signal.SIGSTOP)
        try:
            self.ok(self.server.call("POST", "/v1/channels/web:a/stop", key=self.key))
            poll(lambda: self.channel("web:a")["blocked"], 15, "its death cannot be proven")
            with open(path / "filler", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 32 * 2**20)
            poll(lambda: self.not_ready("disk_full"), 8, "it says so")
            (path / "filler").unlink()
            poll(self.server.ready, 8, "it is ready again")
        finally:
            os.kill(shim, signal.SIGCONT)
        poll(lambda: not self.channel("web:a")["busy"], 20, "its death is proven")
        self.server.close()

    def test_started_before_the_engine(self):
        """The server starts without an engine, takes turns, and runs them when it is there."""
        self.assertEqual(self.server.stop(), 0)
        self.engine.kill()
        try:
            self.server.start(ready=False)
            poll(lambda: self.not_ready("engine_unavailable"), 5, "it says so")
            turn = self.submit("web:a", "echo early")
            done = self.server.cli("check", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"engine {self.engine.socket}: ")
        finally:
            self.engine.start()
        self.ended(self.wait(turn), "succeeded")
        self.server.close()
