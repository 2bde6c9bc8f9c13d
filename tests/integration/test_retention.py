"""What stays of the state: copies of it, its integrity, and how long finished turns and events are kept. (mission.md section 3;
http.md)"""
import contextlib
import os
import shutil
import sqlite3
import stat

from lib.case import SPEAKER, Checks
from lib.cloister import Server
from lib.crash import IMAGE
from lib.http import poll
from lib.load import Load

DAY_MS = 86400000
PRUNED_S = 15  # the first look comes some seconds after the start


class Case(Checks):
    def setUp(self):
        self.server = Server(start=False, image=IMAGE, pool={"size": 2})
        self.addCleanup(self.server.discard)

    def begin(self, **config):
        self.server.write_config(**config)
        self.server.start()
        self.key = self.server.key()
        self.server.channel_on("web:a")

    def post(self, text="echo", name=None, prefer=None):
        body = {"channel": "web:a", "speaker": SPEAKER, "text": text}
        headers = {"Prefer": prefer, **({"Idempotency-Key": name} if name else {})}
        return self.ok(self.server.call("POST", "/v1/turns", body, self.key, headers), 202 if prefer else 200)

    def sql(self, *statements):
        """From outside, while the server is stopped."""
        assert self.server.process is None
        with contextlib.closing(sqlite3.connect(self.server.config["state_file"])) as state:
            for statement in statements:
                state.execute(statement)
            state.commit()
        for path in (self.server.root / "state").iterdir():
            os.chown(path, self.server.account.pw_uid, self.server.account.pw_gid)

    def ids(self):
        answer = self.ok(self.server.call("GET", "/v1/turns", key=self.key))
        return [turn["id"] for turn in answer["data"]][::-1]

    def events(self, turn):
        return self.server.call("GET", f"/v1/turns/{turn['id']}/events", key=self.key, headers={"Accept": "application/json"})


class TestBackup(Case):
    def copy(self, name):
        path = self.server.root / name
        done = self.server.cli("backup", path, account=False)
        self.assertEqual(done.stdout.strip(), str(path))
        mode = path.stat()
        self.assertEqual((stat.S_IMODE(mode.st_mode), mode.st_uid), (0o600, 0))
        return path

    def test_while_running_and_restored_into_a_second_server(self):
        self.begin()
        load = Load(self.server, self.key, 4, 1)
        load.begin(2)
        load.join()
        slow = self.post("count 60000", prefer="respond-async")
        waiting = self.post("count 0", prefer="respond-async")
        poll(lambda: self.server.call("GET", f"/v1/turns/{slow['id']}", key=self.key).json["status"] == "running", 30, "it runs")
        copies = []
        load.begin(3)
        for number in range(5):  # in the middle of writes
            copies.append(self.copy(f"copy-{number}"))
        load.join()
        before = {turn["id"]: turn for turn in load.turns() if turn["finished_at"]}
        last = self.copy("copy-last")
        self.server.kill()
        for path in [*copies, last]:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as state:
                self.assertEqual(state.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
                # Whole transactions only: a turn and its first event, a start and its slot, an end and its event.
                for lame in ("SELECT id FROM turns t WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.turn = t.seq)",
                             "SELECT id FROM turns t WHERE status = 'running' AND NOT EXISTS "
                             "(SELECT 1 FROM slots s WHERE s.turn_id = t.id)",
                             "SELECT id FROM turns t WHERE finished_ms > 0 AND NOT EXISTS "
                             "(SELECT 1 FROM events e WHERE e.turn = t.seq AND e.type = 'ended')"):
                    self.assertEqual(state.execute(lame).fetchall(), [])
        self.restore(last, before, slow, waiting)

    def restore(self, path, before, slow, waiting):
        """A second server with the copy: keys, channels and finished turns are there; what ran is interrupted, what waited runs."""
        with Server(start=False, image=IMAGE) as second:
            shutil.copy(path, second.config["state_file"])
            os.chown(second.config["state_file"], second.account.pw_uid, second.account.pw_gid)
            os.chmod(second.config["state_file"], 0o600)
            second.start()
            for turn in before.values():
                self.assertEqual(self.ok(second.call("GET", f"/v1/turns/{turn['id']}", key=self.key)), turn)
            read = lambda turn: self.ok(second.call("GET", f"/v1/turns/{turn['id']}", key=self.key))
            self.ended(read(slow), "interrupted", "server_restarted")
            poll(lambda: read(waiting)["finished_at"], 60, "what waited runs")
            self.ended(read(waiting), "succeeded")
            self.assertTrue(self.ok(second.call("GET", "/v1/channels/web:a", key=self.key))["enabled"])
            self.ended(second.turn("web:a", "echo", self.key), "succeeded")
            poll(lambda: not second.call("GET", "/v1/turns?status=queued", key=self.key).json["data"]
                 and not second.call("GET", "/v1/turns?status=running", key=self.key).json["data"], 60, "all have ended")

    def test_where_it_can_not_be_written(self):
        self.begin()
        path = self.copy("copy")
        done = self.server.cli("backup", path, account=False, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is there already", done.stderr)
        for bad in (self.server.root / "none/copy", "/proc/copy"):
            done = self.server.cli("backup", bad, account=False, check=False)
            self.assertEqual(done.returncode, 1, done)
            self.assertFalse(os.path.exists(bad))
        inside = self.server.root / "state/own-copy"
        self.server.cli("backup", inside)  # as the account
        left = [path.name for path in (self.server.root / "state").iterdir() if ".backup-" in path.name]
        self.assertEqual(left, [], "nothing stays beside the state")
        self.server.stop()
        self.assertGreater(self.copy("stopped").stat().st_size, 0)


class TestIntegrity(Case):
    def check(self, *more):
        return self.server.cli("check", "--state", *more, account=False, check=False)

    def test_sound(self):
        self.begin()
        self.post()
        done = self.check()
        self.assertEqual((done.returncode, done.stderr.replace(self.note(), "")), (0, ""))
        self.server.stop()
        self.assertEqual(self.check().returncode, 0)

    def note(self):
        lines = self.server.cli("check", account=False).stderr.splitlines()
        return "".join(line + "\n" for line in lines if line.startswith("note: "))

    def test_damaged(self):
        """Told by check, and the server does not start on it."""
        self.begin()
        for _ in range(3):
            self.post("echo " + "x" * 3000)
        self.server.stop()
        good = (self.server.root / "state/cloister.db").read_bytes()
        self.assertEqual(self.check().returncode, 0)
        size = int.from_bytes(good[16:18], "big")
        damages = {
            "a page of zeroes": good[:size * 3] + bytes(size) + good[size * 4:],
            "a cut file": good[:len(good) // size // 2 * size],
            "no database": b"x" * len(good),
        }
        for name, data in damages.items():
            with self.subTest(name):
                (self.server.root / "state/cloister.db").write_bytes(data)
                done = self.check()
                self.assertEqual(done.returncode, 1, done)
                self.assertRegex(done.stderr, "state ")
                with self.assertRaisesRegex(AssertionError, "ended with 1"):
                    self.server.start()
                self.server.process = None
        (self.server.root / "state/cloister.db").write_bytes(good)
        self.assertEqual(self.check().returncode, 0)
        self.server.start()
        self.server.close()

    def test_rows_that_belong_to_nothing(self):
        self.begin()
        self.post()
        self.server.stop()
        self.sql("PRAGMA foreign_keys = OFF", "DELETE FROM turns")
        done = self.check()
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, "the state is damaged")


class TestRetention(Case):
    def aged(self, turns, days):
        return (f"UPDATE turns SET created_ms = created_ms - {days * DAY_MS}, finished_ms = finished_ms - {days * DAY_MS} "
                f"WHERE id IN ({', '.join(repr(turn['id']) for turn in turns)})")

    def test_by_age(self):
        """Turns after retention.turns_days, histories after retention.events_days, names with their turn."""
        self.begin(retention={"turns_days": 30, "events_days": 7})
        old, history, young = ([self.post(f"echo {name}{n}", name=f"{name}{n}") for n in range(2)] for name in ("old", "history", "young"))
        waiting = self.post("count 60000", prefer="respond-async")
        poll(lambda: self.server.call("GET", f"/v1/turns/{waiting['id']}", key=self.key).json["status"] == "running", 20, "it runs")
        self.assertEqual(self.ok(self.events(history[0]))["data"][-1]["type"], "ended")
        self.server.kill()
        self.sql(self.aged(old, 31), self.aged(history, 8), self.aged([waiting], 0),
                 f"UPDATE idempotency SET created_ms = created_ms - {2 * DAY_MS} WHERE name <> 'old1'")
        self.server.start()
        poll(lambda: old[0]["id"] not in self.ids(), PRUNED_S, "the old one goes")
        poll(lambda: self.events(history[1]).status == 410, PRUNED_S, "its history goes")
        self.assertEqual(self.ids(), [turn["id"] for turn in (old[1], *history, *young, waiting)],
                         "one whose name is younger than a day stays")
        self.problem(self.server.call("GET", f"/v1/turns/{old[0]['id']}", key=self.key), 404, "not_found")
        for turn in history:
            self.problem(self.events(turn), 410, "gone")
            stream = self.server.call("GET", f"/v1/turns/{turn['id']}/events", key=self.key, headers={"Accept": "text/event-stream"})
            self.problem(stream, 410, "gone")
            kept = self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key))
            self.assertEqual((kept["reply"], kept["logs"]), (turn["reply"], turn["logs"]), "the turn itself stays")
        for turn in young:
            self.assertEqual(self.ok(self.events(turn))["data"][-1]["type"], "ended")
        # The name of a turn that is gone is free again; that of one which stays is not.
        self.assertNotEqual(self.post("echo old0", name="old0")["id"], old[0]["id"])
        self.assertEqual(self.post("echo old1", name="old1")["id"], old[1]["id"])
        self.assertEqual(self.post("echo history0", name="history0")["id"], history[0]["id"])
        self.server.close()

    def test_by_count(self):
        """Beyond retention.turns_max the oldest finished ones go; what waits or runs is never touched."""
        self.begin()
        turns = [self.post(f"echo {n}") for n in range(6)]
        running = self.post("count 4000", prefer="respond-async")
        waiting = [self.post("echo later", prefer="respond-async") for _ in range(3)]
        self.server.kill()
        # So many that those which end meanwhile are among the newest that stay.
        self.server.write_config(retention={"turns_max": 5})
        self.sql("UPDATE turns SET max_attempts = 2 WHERE status IN ('queued', 'running')")
        self.server.start()
        poll(lambda: turns[0]["id"] not in self.ids(), PRUNED_S, "the oldest goes")
        old = [turn["id"] for turn in turns]
        left = [turn for turn in self.ids() if turn in old]
        self.assertEqual(left, old[len(old) - len(left):], "the newest stay")
        for turn in (running, *waiting):
            self.ended(poll(lambda turn=turn: (t := self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key)))["finished_at"]
                            and t, 30, "it ends"), "succeeded")
        self.server.close()

    def test_configuration(self):
        for key, bad in (("turns_days", 0), ("turns_days", 36501), ("events_days", 0), ("turns_max", -1), ("else", 1)):
            self.server.write_config(retention={key: bad})
            done = self.server.cli("check", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"/retention/{key}" if key != "else" else "/retention", done.stderr)
            self.server.write_config(retention=None)
