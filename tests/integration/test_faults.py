"""Every allocation and every write of the server may fail: the turn under way ends typed or its client is told, nothing
that was told is lost, nothing is left behind, and the next turn works. (mission.md sections 2 and 3)

A fault hits the Nth call of its kind after the moment it is armed, whichever thread makes it. CI looks at some N of a
turn's calls; with LONG=1 in the environment a run looks at one of every STRIDE, and goes on after a failure.
"""
import collections
import contextlib
import errno
import http.client
import json
import os
import random
import sqlite3
import subprocess
import time

from lib.case import SPEAKER, Checks
from lib.cloister import Server, release_only
from lib.faults import ALLOC, FILE, SHORT, SOCKET, FaultyServer
from lib.http import poll
from lib.upstream import Upstream, calls, says

CHANNEL = "web:faults"
TOKEN = "tok-faults-0123456789abcdef"
ENDINGS = {"engine_unavailable", "engine_error", "disk_full", "worker_failed", "invalid_reply", "exit_code", "model_refused"}
PROBLEMS = {"no_memory", "database", "system", "internal", "engine_unavailable", "not_ready"}
LONG = os.environ.get("LONG") == "1"
STRIDE = int(os.environ.get("STRIDE", "5"))  # of a long run: one of so many numbers; of ten times as many for faults in a row
WARM_UP = 6  # turns until caches and pools have their size
LEFT_OVER = 150  # allocations of caches and pools that are there or not
SWEPT = 75  # seconds until the sweep has removed what was made after its turn had ended, as an unanswered create may
CONNECTION = 40  # allocations of one more connection that is kept, to the engine or the model
READER = 700  # allocations of one more connection to the state


def remember_first(request):
    """Each turn asks the model twice, with a memory call in between."""
    if request.messages[-1]["role"] == "tool":
        return says("it is done")
    return calls(("memory_set", {"scope": "channel", "key": "k", "value": request.messages[-1]["content"][:100]}))


class Faults(Checks):
    maxDiff = None

    def setUp(self):
        self.upstream = Upstream(remember_first)
        self.addCleanup(self.upstream.close)
        self.seen = collections.Counter()
        self.failures = []
        self.server = self.state = None
        self.addCleanup(self.end)
        self.begin()

    def begin(self):
        """A server, used long enough that its caches and pools have their size."""
        self.server = FaultyServer(start=False, pool={"size": 2}, limits={"timeout_ms": 20000})
        credential = self.server.root / "credential"
        credential.write_text(TOKEN)
        credential.chmod(0o644)
        self.server.write_config(model={"url": self.upstream.url, "allow_http": True, "allow_script": None,
                                        "credential": {"file": str(credential)}})
        self.server.start()
        self.control = self.server.control
        self.key = self.server.key()
        self.server.channel_on(CHANNEL)
        self.lost_slots = 0
        self.floor = []
        self.told = {}  # turns as clients were told of them
        state = f"file:{self.server.config['state_file']}?mode=ro"
        self.state = sqlite3.connect(state, uri=True, isolation_level=None, timeout=10)
        for _ in range(WARM_UP):
            self.good()
        self.before = self.live()

    def end(self):
        if self.state:
            self.state.close()
        if self.server:
            self.server.discard()
        self.state = self.server = None

    # One turn

    def post(self):
        """What a client is told: its turn, a problem, or nothing at all."""
        body = {"channel": CHANNEL, "speaker": SPEAKER, "text": "remember this", "metadata": {"order": "17"}}
        try:
            answer = self.server.call("POST", "/v1/turns", body, self.key, timeout=45)
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException):
            return "closed"
        if answer.status == 200:
            turn = answer.json
            self.told[turn["id"]] = turn
            code = turn["error"] and turn["error"]["code"]
            self.assertIn((turn["status"], code), [("succeeded", None)] + [("failed", code) for code in ENDINGS])
            return code or "succeeded"
        self.assertGreaterEqual(answer.status, 500, answer)
        self.assertEqual(answer.headers.get("content-type"), "application/problem+json", answer)
        self.assertIn(answer.code, PROBLEMS, answer)
        return f"{answer.status} {answer.code}"

    def good(self):
        """A turn without a fault."""
        poll(self.server.ready, 20, "it is ready again")
        self.assertEqual(self.post(), "succeeded")
        self.settle()

    def count(self, what):
        return self.state.execute(f"SELECT count(*) FROM {what}").fetchone()[0]

    def settle(self):
        """Until every turn has ended, and its slot is forgotten, which is the last that is done for a turn. Where that
        failed the row stays until the next start, and means nothing."""
        poll(lambda: not self.count("turns WHERE status IN ('queued', 'running')"), 25, "all turns have ended")
        end = time.monotonic() + 3
        while self.count("slots") > self.lost_slots:
            if time.monotonic() > end:
                self.lost_slots = self.count("slots")
            time.sleep(0.01)

    def left(self):
        return [path.name for path in (self.server.root / "run").iterdir()] + self.server.containers()

    def fault(self, arm, *how):
        """One turn with a fault in it: how many calls failed."""
        arm(*how)
        try:
            ending = self.post()
            self.settle()
        finally:
            hits = self.control.disarm()
        self.seen[ending if hits else "no fault"] += 1
        poll(lambda: not self.left(), SWEPT, "no container and no folder is left")
        self.good()
        self.check_told()
        return hits

    def check_told(self):
        """What was told is what the database holds."""
        for turn in self.told.values():
            row = self.state.execute("SELECT status, error_code, reply FROM turns WHERE id = ?", [turn["id"]]).fetchone()
            reply = json.loads(row[2]) if row and row[2] else None
            self.assertEqual(row and (row[0], row[1], reply),
                             (turn["status"], turn["error"] and turn["error"]["code"], turn["reply"]), turn["id"])

    # Many of them

    def baseline(self, kind):
        """Calls of this kind that one turn takes, with those of the threads that tick meanwhile."""
        counts = []
        for _ in range(3):
            before = self.control.calls(kind)
            self.good()
            counts.append(self.control.calls(kind) - before)
        return max(counts)

    def live(self, seconds=1.5):
        """Allocations and descriptors of the server at rest, and its connections to the state: the least of some looks,
        since its threads tick."""
        looks = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            looks.append((self.control.get("live"), *self.server.descriptors()))
            time.sleep(0.02)
        return tuple(min(column) for column in zip(*looks))

    def run_all(self, kind, faults, samples):
        """faults: (errno, calls in a row). Each at every number of a turn's calls, or at some of them."""
        count = self.baseline(kind)
        chance = random.Random(count)
        total = 0
        for error, length in faults:
            numbers = range(1, count + 1)
            if not LONG:
                numbers = sorted(chance.sample(numbers, min(samples, count)))
            elif (stride := STRIDE if length == 1 else STRIDE * 10) > 1:
                numbers = numbers[chance.randrange(stride)::stride]
            total += len(numbers)
            for nth in numbers:
                name = errno.errorcode.get(error, "short")
                self.one(f"kind {kind}, call {nth}, {name} x {length}", self.control.arm, kind, nth, error, length)
        print(f"kind {kind}: {count} calls a turn, {total} faults: {dict(self.seen)}", flush=True)

    def run_places(self, kind, error, name):
        """A fault at each place that makes such calls, until a few turns in a row come by no new one."""
        total = quiet = 0
        while quiet < 5:
            hits = self.one(f"kind {kind}, place {total}, {name}", lambda: self.control.arm_new_place(kind, error))
            total += hits != 0
            quiet = quiet + 1 if hits == 0 else 0
            if hits == 0 or total % 100 == 0:
                print(f"kind {kind}: {total} places, {dict(self.seen)}", flush=True)

    def finish(self):
        self.check_leaks()
        self.check_after_restart()
        self.assertEqual(self.failures, [])

    def one(self, what, arm, *how):
        """One fault: how many calls failed. A failure ends the test; a long run notes it and goes on with another server."""
        hits = None
        try:
            hits = self.fault(arm, *how)
            self.assertIsNone(self.server.process.poll(), "the server has ended")
            if LONG:
                self.floor.append((self.live(0.1), what, self.control.trace()))
        except Exception as failure:
            what = f"{what}: {failure}"
            where = self.server.where(self.control.trace()) if self.server.process.poll() is None else []
            print(what, *where, self.server.log()[-1500:], sep="\n    ", flush=True)
            if not LONG:
                raise
            self.failures.append(what)
            places = self.control.places()
            self.end()
            self.begin()
            self.control.set_places(places)
        return hits

    def check_leaks(self):
        for _ in range(WARM_UP):
            self.good()
        after = self.live()
        print(f"at rest: {self.before} before, {after} after", flush=True)
        self.show_steps()
        readers, descriptors = after[2] - self.before[2], max(0, after[1] - self.before[1])
        self.assertLess(after[0] - self.before[0] - READER * readers - CONNECTION * descriptors, LEFT_OVER, "allocations")
        self.assertLessEqual(after[1] - self.before[1], 3, "descriptors")

    def show_steps(self):
        """After which faults of a long run the server never came down again to what it had allocated before."""
        least = None
        for (allocations, descriptors, readers), what, trace in reversed(self.floor):
            if least is not None and allocations < least:
                print(f"    {least - allocations} more after {step}: {named}", flush=True)
            least = allocations if least is None else min(least, allocations)
            step, named = (what, descriptors, readers), " < ".join(self.server.where(trace)[:12])

    def check_after_restart(self):
        """The disk holds what was told; a new start finds nothing to recover."""
        self.server.kill()
        self.server.start()
        self.check_told()
        self.good()
        for turn in self.told.values():
            again = self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key))
            self.assertEqual((again["status"], again["reply"]), (turn["status"], turn["reply"]))
        self.server.close()

    # The faults

    @release_only
    def test_allocations(self):
        if LONG:
            self.run_places(ALLOC, errno.ENOMEM, "ENOMEM")
        self.run_all(ALLOC, [(errno.ENOMEM, 1), (errno.ENOMEM, 4), (errno.ENOMEM, 50)], 6)
        self.finish()

    @release_only
    def test_files(self):
        self.run_all(FILE, [(errno.ENOSPC, 1), (errno.EIO, 1), (errno.ENOSPC, 12), (errno.EIO, 5), (SHORT, 1)], 3)
        self.finish()

    @release_only
    def test_sockets(self):
        """Not short ones: who waits for the edge of a full buffer would wait for ever, since it is not full."""
        self.run_all(SOCKET, [(errno.EPIPE, 1), (errno.ECONNRESET, 3)], 4)
        self.finish()

    @release_only
    def test_accepted_turns_are_never_lost(self):
        """The disk fails while turns are accepted and run, then the server is killed: what was told holds."""
        chance = random.Random(11)
        for error in (errno.ENOSPC, errno.EIO):
            self.control.arm(FILE, chance.randrange(1, 40), error, 1000)
            accepted = [turn for turn in (self.submit(f"turn {n}") for n in range(8)) if turn]
            self.assertTrue(self.control.get("hits") or accepted)
            poll(lambda: self.control.get("hits"), 20, "the disk fails")
            self.server.kill()
            self.control.disarm()
            self.server.start()
            refused = self.post()
            for turn in accepted:
                end = poll(lambda turn=turn: self.ended_turn(turn), 30, f"{turn['id']} has ended")
                self.assertIn((end["status"], end["error"] and end["error"]["code"]),
                              (("succeeded", None), ("interrupted", "server_restarted")))
            self.assertEqual(refused, "succeeded")
            self.check_told()
        self.server.close()

    def submit(self, text):
        """A turn that was accepted, or None."""
        body = {"channel": CHANNEL, "speaker": SPEAKER, "text": text}
        try:
            answer = self.server.call("POST", "/v1/turns", body, self.key, {"Prefer": "respond-async"}, timeout=45)
        except (ConnectionError, http.client.HTTPException):
            return None
        if answer.status == 202:
            return answer.json
        self.assertEqual((answer.status, answer.code), (503, "database"), answer)
        return None

    def ended_turn(self, turn):
        turn = self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key))
        return turn if turn["finished_at"] else None


class WorkspaceFull(Checks):
    """The worker's own writes: its workspace is a disk of a few pages."""

    @release_only
    def test_worker(self):
        with contextlib.closing(Upstream(remember_first)) as upstream, Server(model={"url": upstream.url, "allow_http": True,
                                                                 "allow_script": None}) as server:
            key = server.key()
            server.channel_on(CHANNEL)
            self.assertEqual(server.turn(CHANNEL, "first", key)["status"], "succeeded")
            folder = server.workspace(CHANNEL) / ".cloister"
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            self.assertEqual(set(before), {"history.json", "memory.json"})
            owner = folder.stat()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=64k,mode=0700,uid={owner.st_uid},gid={owner.st_gid}",
                            "tmpfs", folder], check=True)
            self.addCleanup(subprocess.run, ["umount", "-l", folder], check=False, stderr=subprocess.DEVNULL)
            self.fill(folder, before, owner)
            upstream.requests.clear()
            turn = server.turn(CHANNEL, "x" * 6000, key)
            left = {path.name: path.read_bytes() for path in folder.iterdir()}
            self.ended(turn, "succeeded")
            self.assertIn("the history was not stored", turn["logs"]["stderr"]["text"])
            self.assertEqual({name: left[name] for name in before}, before, "whole, and as they were")
            self.assertFalse([name for name in left if name.endswith(".tmp")], "nothing half written is left")
            self.assertEqual(upstream.requests[1].of_role("tool"), ["The memory could not be stored."])
            (folder / "ballast").unlink()
            self.ended(server.turn(CHANNEL, "again", key), "succeeded")
            self.assertIn("again", (folder / "memory.json").read_text())
            self.assertIn("again", (folder / "history.json").read_text())
            subprocess.run(["umount", "-l", folder], check=True)

    @staticmethod
    def fill(folder, files, owner):
        for name, data in files.items():
            (folder / name).write_bytes(data)
            os.chown(folder / name, owner.st_uid, owner.st_gid)
            (folder / name).chmod(0o600)
        with (folder / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(b"x" * 4096)
