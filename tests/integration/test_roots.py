"""Roots and state (mission.md section 3), as the service says it: which rule failed, at the start and in `check`; saved state
that is damaged; images and workspaces that are not what they must be; and disks that fill up."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import time

from lib.case import Checks, ServerCase
from lib.cloister import ACCOUNT, Server
from lib.http import poll

CHANNEL = "web:lobby"
ROOM_MB = 1024 + 16  # a disk that is 16 MiB above the floor


class Refusals(Checks):
    """A server that is not started, whose folders each test spoils in one way."""

    def setUp(self):
        self.server = Server(start=False)
        self.addCleanup(self.server.discard)
        self.run_root, self.workspaces = self.server.root / "run", self.server.root / "workspaces"
        self.state = self.server.root / "state"

    def serve(self, command=None, config=None):
        """`serve`, which must refuse to start: what it says on standard error. It says nothing else and leaves at once."""
        server = self.server
        arguments = [server.binary, "serve", "--config", config or server.config_file]
        done = subprocess.run((command or server.as_account)(*map(str, arguments)), stdin=subprocess.DEVNULL, timeout=20,
                              env=server.full_environment(), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(done.stdout, "")
        self.assertNotIn("listening", done.stderr)
        return done.stderr

    def fault(self, pointer, sentence):
        """Both commands name the rule, with the line and the pointer of the key."""
        lines = self.server.config_file.read_text().splitlines()
        at = next((n for n, line in enumerate(lines, 1) if line.strip().startswith(f'"{pointer.split("/")[-1]}"')), None)
        for said in (self.serve(), self.check()):
            found = re.search(rf"^{re.escape(str(self.server.config_file))}: {re.escape(pointer)}: line (\d+): (.*)$", said, re.M)
            self.assertTrue(found, said)
            self.assertIn(sentence, found.group(2))
            self.assertEqual(int(found.group(1)), at, said)

    def check(self):
        done = self.server.cli("check", account=False, check=False)
        self.assertEqual(done.returncode, 1, done)
        return done.stderr


class TestRoots(Refusals):
    def test_the_good_case(self):
        done = self.server.cli("check", account=False)
        self.assertIn("all is well", done.stdout)
        with self.server.start():
            pass

    def test_root_is_refused(self):
        said = self.serve(lambda *command: list(command))
        self.assertEqual(said, "cloister: the service does not run as root: start it as an account of its own\n")

    def test_gid_0_is_refused(self):
        os.chown(self.server.config_file, self.server.account.pw_uid, 0)
        said = self.serve(lambda *command: ["setpriv", f"--reuid={ACCOUNT}", "--regid=0", "--clear-groups", *command])
        self.assertIn("does not run as root", said)

    def test_relative(self):
        for key in ("run_root", "workspace_root", "state_file"):
            with self.subTest(key):
                self.server.write_config(**{key: "somewhere/else"})
                self.assertRegex(self.serve(), rf"/{key}: line \d+: must match \^/|/{key}: line \d+: .*")
                self.server.write_config(**{key: str(self.server.root / "run")})

    def test_slash(self):
        for key in ("run_root", "workspace_root"):
            with self.subTest(key):
                before = self.server.config[key]
                self.server.write_config(**{key: "/"})
                self.fault(f"/{key}", "must not be /")
                self.server.write_config(**{key: before})
        self.server.write_config(state_file="/cloister.db")
        self.fault("/state_file", "must name a file inside a folder of its own")

    def test_absent_and_no_folder(self):
        self.run_root.rmdir()
        self.fault("/run_root", "No such file or directory")
        self.run_root.write_text("")
        self.fault("/run_root", "is not a folder")

    def test_owner(self):
        for path, key in ((self.run_root, "run_root"), (self.workspaces, "workspace_root"), (self.state, "state_file")):
            with self.subTest(key):
                os.chown(path, 12345, 12345)
                said = self.serve()
                wanted = f"is owned by uid 12345, not by the service's uid {self.server.account.pw_uid}"
                self.assertRegex(said, rf"/{key}: line \d+: .*{wanted}\n")
                os.chown(path, self.server.account.pw_uid, self.server.account.pw_gid)

    def test_mode(self):
        for path, key in ((self.run_root, "run_root"), (self.workspaces, "workspace_root"), (self.state, "state_file")):
            for mode in (0o755, 0o710, 0o701, 0o1700, 0o600):
                with self.subTest(key, mode=oct(mode)):
                    path.chmod(mode)
                    self.fault(f"/{key}", f"has mode {mode:04o}, not 0700" if key != "state_file" or mode != 0o600 else "")
            path.chmod(0o700)

    def test_nested(self):
        for outer, inner in (("run_root", "workspace_root"), ("workspace_root", "run_root")):
            with self.subTest(inner):
                before = self.server.config[inner]
                below = self.make(pathlib.Path(self.server.config[outer]) / "below")
                self.server.write_config(**{inner: str(below)})
                self.fault("/workspace_root", "run_root and workspace_root must not lie inside one another")
                self.server.write_config(**{inner: before})
        self.server.write_config(workspace_root=str(self.run_root))
        self.fault("/workspace_root", "must not lie inside one another")

    def make(self, path):
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, self.server.account.pw_uid, self.server.account.pw_gid)
        return path

    def test_nested_by_real_path(self):
        below = self.make(self.run_root / "below")
        link = self.server.root / "elsewhere"
        link.symlink_to(below)
        self.server.write_config(workspace_root=str(link))
        self.fault("/workspace_root", "must not lie inside one another")

    def test_state_inside_a_root(self):
        for key, root in (("run_root", self.run_root), ("workspace_root", self.workspaces)):
            with self.subTest(key):
                folder = self.make(root / "state")
                self.server.write_config(state_file=str(folder / "cloister.db"))
                self.fault("/state_file", f"the state must lie outside {key}")
                folder.rmdir()

    def test_roots_inside_the_state_folder(self):
        for key in ("run_root", "workspace_root"):
            with self.subTest(key):
                before = self.server.config[key]
                self.server.write_config(**{key: str(self.make(self.state / "inside"))})
                self.fault(f"/{key}", "must lie outside the state's folder")
                self.server.write_config(**{key: before})

    def test_state_file_is_a_symlink_a_folder_or_anothers(self):
        file = self.state / "cloister.db"
        target = self.server.root / "reports" / "target"
        target.write_bytes(b"")
        os.chown(target, self.server.account.pw_uid, self.server.account.pw_gid)
        file.symlink_to(target)
        self.fault("/state_file", "is not a regular file")
        self.assertEqual(target.read_bytes(), b"")
        target.unlink()
        file.unlink()
        file.mkdir()
        self.fault("/state_file", "is not a regular file")
        file.rmdir()
        file.write_bytes(b"")
        self.fault("/state_file", "is owned by uid 0")
        file.unlink()

    def test_socket_path(self):
        """run_root plus "/<32 hex digits>/broker.sock" is at most 100 characters."""
        longest = 100 - len("/0123456789abcdef0123456789abcdef/broker.sock")
        base = str(self.server.root) + "/"
        self.server.write_config(run_root=str(self.make(pathlib.Path(base + "r" * (longest + 1 - len(base))))))
        self.fault("/run_root", f"has more than {longest} characters")
        self.server.write_config(run_root=str(self.make(pathlib.Path(base + "r" * (longest - len(base))))))
        with self.server.start():
            key = self.server.key()
            self.server.channel_on(CHANNEL)
            self.ended(self.server.turn(CHANNEL, "hello", key), "succeeded")

    def test_admin_socket_path(self):
        folder = self.make(pathlib.Path(f"{self.server.root}/{'s' * 90}"))
        self.server.write_config(state_file=str(folder / "c.db"))
        self.fault("/state_file", "the admin socket beside it has a path of more than 100 characters")

    def test_comma_and_line_break(self):
        for name, sentence in (("a,b", "holds a comma or a line break"), ("a\nb", "")):
            with self.subTest(name):
                self.server.write_config(workspace_root=str(self.make(self.server.root / name)))
                self.assertRegex(self.serve(), rf"/workspace_root: line \d+: .*{sentence}")

    def test_everything_at_once(self):
        """`check` tries all it can, and says all of it."""
        self.run_root.chmod(0o755)
        os.chown(self.workspaces, 12345, 12345)
        (self.state / "cloister.db").mkdir()
        self.server.write_config(engine_socket="/nowhere/engine.sock",
                                 model={"url": "https://127.0.0.1/v1", "allow_script": None, "credential": {"file": "/nowhere/key"}})
        said = self.check()
        for wanted in (r"/run_root: line \d+: .*has mode 0755, not 0700", r"/workspace_root: line \d+: .*is owned by uid 12345",
                       r"/state_file: line \d+: .*is not a regular file", r"/nowhere/key", r"engine /nowhere/engine\.sock: ",
                       r": 5 errors$"):
            self.assertRegex(said, re.compile(wanted, re.M))

    def test_every_fault_of_the_file_at_once(self):
        self.server.write_config(limits={"memory_mb": 63, "pids": 7, "cpus": 0, "timeout_ms": 999}, image="-bad image",
                                 unknown=1, listen="0.0.0.0:8080")
        for said in (self.serve(), self.check()):
            for pointer in ("/limits/memory_mb", "/limits/pids", "/limits/cpus", "/limits/timeout_ms", "/image", "/unknown"):
                self.assertRegex(said, re.compile(rf": {pointer}: line \d+: ", re.M))

    def test_symlinked_root_is_its_real_folder(self):
        """A symlink may lead to a root; what is mounted is the real folder, whatever becomes of the link."""
        link = self.server.root / "link"
        link.symlink_to(self.workspaces)
        self.server.write_config(workspace_root=str(link))
        with self.server.start():
            key = self.server.key()
            self.server.channel_on(CHANNEL)
            link.unlink()
            link.symlink_to("/etc")
            body = {"channel": CHANNEL, "speaker": {"id": "u", "name": "U"}, "text": "/sleep 3000"}
            self.ok(self.server.call("POST", "/v1/turns", body, key, {"Prefer": "respond-async"}), 202)
            doc = poll(lambda: next(filter(None, map(self.server.engine.inspect, self.server.containers())), None), 20, "it runs")
            sources = {mount["Destination"]: mount["Source"] for mount in doc["Mounts"]}
            self.assertEqual(sources["/workspace"], str(self.server.workspace(CHANNEL)))
            self.server.call("POST", f"/v1/channels/{CHANNEL}/stop", key=key)


class TestState(Refusals):
    def begin(self):
        """A state with something in it, its log folded in."""
        self.server.start()
        self.key = self.server.key()
        self.server.channel_on(CHANNEL)
        for _ in range(20):
            body = {"channel": CHANNEL, "speaker": {"id": "u", "name": "U"}, "text": "x" * 2000,
                    "origin": {"author_is_bot": True, "integration": False, "is_direct": False, "mentions_bot": False,
                               "replies_to_bot": False}}
            self.ok(self.server.call("POST", "/v1/turns", body, self.key))
        self.assertEqual(self.server.stop(), 0)
        self.file = self.state / "cloister.db"
        self.good = self.file.read_bytes()

    def refuses(self, sentence):
        before = self.file.read_bytes()
        said = self.serve()
        self.assertRegex(said, sentence)
        self.assertIn(str(self.file), said)
        self.assertEqual(self.file.read_bytes(), before, "a state that is refused stays as it is")

    def test_damaged_state_fails_closed(self):
        self.begin()
        with self.subTest("garbage"):
            self.file.write_bytes(b"garbage" * 1000)
            self.refuses("not a database")
        with self.subTest("cut in half"):
            self.file.write_bytes(self.good[:len(self.good) // 2 // 4096 * 4096])
            self.refuses("malformed|damaged")
        with self.subTest("a page in the middle"):
            self.file.write_bytes(self.good[:4096 * 6] + b"\xa5" * 4096 + self.good[4096 * 7:])
            self.refuses("malformed|damaged|disk image")
        with self.subTest("newer"):
            self.file.write_bytes(self.good)
            self.change("PRAGMA user_version = 999")
            self.refuses("the state is of version 999, this build knows up to ")
        with self.subTest("another program's"):
            self.file.write_bytes(self.good)
            self.change("PRAGMA application_id = 1")
            self.refuses("not a state database of cloister")
        self.file.write_bytes(self.good)
        with self.server.start():
            self.assertEqual(self.server.call("GET", f"/v1/channels/{CHANNEL}", key=self.key).status, 200)

    def change(self, sql):
        with contextlib.closing(sqlite3.connect(self.file)) as database:
            database.execute("PRAGMA journal_mode = DELETE")
            database.execute(sql)
            database.commit()

    def test_foreign_database(self):
        self.file = self.state / "cloister.db"
        with contextlib.closing(sqlite3.connect(self.file)) as database:
            database.execute("CREATE TABLE notes (text)")
            database.commit()
        os.chown(self.file, self.server.account.pw_uid, self.server.account.pw_gid)
        self.refuses("not a state database of cloister")

    def test_one_server_per_state(self):
        self.server.start()
        said = self.serve()
        self.assertEqual(said, f"cloister: another process uses the state {self.state}/cloister.db\n")
        # Another configuration, the same state.
        other = self.server.root / "other.yaml"
        folders = {key: str(self.other(name)) for key, name in (("run_root", "run2"), ("workspace_root", "workspaces2"))}
        other.write_text(json.dumps({**self.server.config, **folders}))
        other.chmod(0o644)
        self.assertIn("another process uses the state", self.serve(config=other))
        self.assertEqual(self.server.call("GET", "/readyz").status, 200)
        self.server.close()

    def other(self, name):
        path = self.server.root / name
        path.mkdir(mode=0o700)
        os.chown(path, self.server.account.pw_uid, self.server.account.pw_gid)
        return path

    def test_private_files(self):
        self.begin()
        for path in self.state.iterdir():
            self.assertEqual((path.stat().st_mode & 0o077, path.stat().st_uid), (0, self.server.account.pw_uid), path)

    def test_admin_socket(self):
        self.server.start()
        socket = self.state / "admin.sock"
        self.assertEqual(socket.stat().st_mode & 0o7777, 0o600)
        self.server.key()
        self.server.close()
        self.assertFalse(socket.exists())


class TestImages(Checks):
    def setUp(self):
        self.tag = f"cloister-test-late:{os.getpid()}"

    def test_missing_image(self):
        """The server is up and says so; a turn waits and runs when the image appears."""
        with Server(start=False, image=self.tag) as server:
            server.start(ready=False)
            self.assertEqual(server.call("GET", "/livez").status, 200)
            answer = poll(lambda: (a := server.call("GET", "/readyz")) and "image_missing" in a.json.get("detail", "") and a, 10,
                          "it says so")
            self.problem(answer, 503, "not_ready")
            key = server.key()
            server.channel_on(CHANNEL)
            body = {"channel": CHANNEL, "speaker": {"id": "u", "name": "U"}, "text": "hello"}
            turn = self.ok(server.call("POST", "/v1/turns", body, key, {"Prefer": "respond-async"}), 202)
            self.assertEqual(turn["status"], "queued")
            self.assertRegex(self.check(server), rf"image {self.tag} is not on the engine")
            server.engine.tag("cloister-worker:test", self.tag)
            self.addCleanup(server.engine.untag, self.tag)
            poll(server.ready, 10, "it is ready by itself")
            turn = poll(lambda: (t := server.call("GET", f"/v1/turns/{turn['id']}", key=key).json)["finished_at"] and t, 20, "the end")
            self.ended(turn, "succeeded")

    def check(self, server):
        done = server.cli("check", account=False, check=False)
        self.assertEqual(done.returncode, 1, done)
        return done.stderr

    def test_unusable_images(self):
        for image, sentence in (("cloister-test-volumes:local", "declares volumes, which would be a third mount"),
                                ("cloister-test-nothing:local", "has neither an entrypoint nor a command")):
            with self.subTest(image), Server(start=False, image=image) as server:
                before = set(server.engine.volumes())
                server.start(ready=False)
                answer = poll(lambda: (a := server.call("GET", "/readyz")) and "image_missing" in a.json.get("detail", "") and a, 10,
                              "it says so")
                self.problem(answer, 503, "not_ready")
                self.assertRegex(self.check(server), sentence)
                self.assertLessEqual(set(server.engine.volumes()), before)
                self.assertEqual(server.containers(), [])


class TestWorkspaces(ServerCase):
    config = {"image": "cloister-test-by-text:local"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key()

    def spoiled(self, channel, spoil):
        self.server.channel_on(channel)
        self.ended(self.server.turn(channel, "echo", self.key), "succeeded")
        folder = self.server.workspace(channel)
        poll(lambda: not self.server.containers(), 10, "the container is gone")
        folder.rmdir()
        spoil(folder)
        turn = self.server.turn(channel, "reply-then-write", self.key)
        self.ended(turn, "failed", "workspace_violation")
        # Repaired, the channel goes on.
        shutil.rmtree(folder) if folder.is_dir() and not folder.is_symlink() else folder.unlink()
        self.ended(self.server.turn(channel, "echo", self.key), "succeeded")

    def test_symlink(self):
        target = self.server.root / "reports" / "elsewhere"
        target.mkdir(mode=0o700)
        os.chown(target, self.server.account.pw_uid, self.server.account.pw_gid)
        self.spoiled("web:symlink", lambda folder: folder.symlink_to(target))
        self.assertEqual(list(target.iterdir()), [])
        target.rmdir()

    def test_dangling_symlink(self):
        self.spoiled("web:dangling", lambda folder: folder.symlink_to(self.server.root / "nowhere"))

    def test_file(self):
        self.spoiled("web:file", lambda folder: folder.write_text(""))

    def test_another_owner(self):
        self.spoiled("web:owner", lambda folder: folder.mkdir(mode=0o700))

    def test_mode_is_given_back(self):
        """A guest can take the mode away from its own folder: that is repaired."""
        self.server.channel_on("web:mode")
        self.ended(self.server.turn("web:mode", "echo", self.key), "succeeded")
        self.server.workspace("web:mode").chmod(0)
        self.ended(self.server.turn("web:mode", "echo", self.key), "succeeded")


class TestDisk(Checks):
    """Each of the three places on a small disk of its own."""

    def setUp(self):
        self.server = Server(start=False, image="cloister-test-by-text:local", limits={"timeout_ms": 20000}, pool={"size": 2})
        self.addCleanup(self.server.discard)

    def mount(self, name):
        """A small disk in place of one of its folders."""
        path, account = self.server.root / name, self.server.account
        options = f"size={ROOM_MB}m,mode=0700,uid={account.pw_uid},gid={account.pw_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "cloister-test", str(path)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(path)], check=True)
        return path

    def begin(self):
        self.server.start()
        self.key = self.server.key()
        self.server.channel_on(CHANNEL)
        self.server.channel_on("web:quiet")

    def submit(self, channel, text):
        body = {"channel": channel, "speaker": {"id": "u", "name": "U"}, "text": text}
        return self.server.call("POST", "/v1/turns", body, self.key, {"Prefer": "respond-async"})

    def read(self, turn):
        return self.ok(self.server.call("GET", f"/v1/turns/{turn['id']}", key=self.key))

    def wait(self, turn, seconds=30):
        return poll(lambda: (t := self.read(turn))["finished_at"] and t, seconds, "the turn ends")

    def full(self):
        answer = self.server.call("GET", "/readyz")
        return answer.status == 503 and answer.json["detail"].startswith("disk_full: ")

    @staticmethod
    def fill(path, size):
        with open(path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def test_a_turn_that_grows(self):
        """It ends with disk_full, one that does not grow goes on; new turns are refused; room brings all back."""
        root = self.mount("workspaces")
        self.begin()
        quiet = self.ok(self.submit("web:quiet", "sleep"), 202)
        poll(lambda: self.read(quiet)["status"] == "running", 10, "it runs")
        growing = self.ok(self.submit(CHANNEL, "grow"), 202)
        waiting = self.ok(self.submit(CHANNEL, "echo me"), 202)
        self.ended(self.wait(growing, 10), "failed", "disk_full")
        self.assertTrue(self.full())
        self.problem(self.server.call("GET", "/readyz"), 503, "not_ready")
        self.assertEqual(self.read(quiet)["status"], "running")
        self.problem(self.submit("web:quiet", "echo"), 503, "disk_full")
        self.assertEqual(self.read(waiting)["status"], "queued")
        self.server.call("POST", "/v1/channels/web:quiet/stop", key=self.key)
        self.ended(self.wait(quiet), "canceled", "canceled")
        for path in root.rglob("grown"):
            path.unlink()
        self.ended(self.wait(waiting), "succeeded")
        poll(self.server.ready, 5, "it is ready again")
        self.ok(self.submit("web:quiet", "echo"), 202)
        poll(lambda: not self.server.call("GET", "/v1/channels/web:quiet", key=self.key).json["busy"], 20, "the last turn ends")
        self.server.close()

    def test_run_root(self):
        root = self.mount("run")
        self.begin()
        self.fill(root / "filler", 32 * 2**20)
        poll(self.full, 5, "it says so")
        self.problem(self.submit(CHANNEL, "echo"), 503, "disk_full")
        (root / "filler").unlink()
        poll(self.server.ready, 5, "it is ready again")
        self.ok(self.submit(CHANNEL, "echo"), 202)
        poll(lambda: not self.server.call("GET", f"/v1/channels/{CHANNEL}", key=self.key).json["busy"], 20, "the turn ends")
        self.server.close()

    def test_the_state_is_full_to_the_brim(self):
        """Endings are written all the same, into the space that was kept for them."""
        root = self.mount("state")
        self.begin()
        running = self.ok(self.submit(CHANNEL, "sleep"), 202)
        poll(lambda: self.read(running)["status"] == "running", 10, "it runs")
        self.assertGreaterEqual((root / "cloister.db.reserve").stat().st_size, 4 * 2**20)
        free = os.statvfs(root)
        self.fill(root / "filler", free.f_bavail * free.f_frsize - 2**20)
        with open(root / "filler", "ab", buffering=0) as filler:  # the database grows beside it: to the last block
            with self.assertRaises(OSError):
                for _ in range(2**20 // 4096 + 1):
                    filler.write(bytes(4096))
        self.assertEqual(os.statvfs(root).f_bavail, 0)
        poll(self.full, 5, "it says so")
        self.problem(self.submit("web:quiet", "echo"), 503, "disk_full")
        before = time.monotonic()
        self.server.call("POST", f"/v1/channels/{CHANNEL}/stop", key=self.key)
        self.ended(self.wait(running, 10), "canceled", "canceled")
        self.assertLess(time.monotonic() - before, 5)
        (root / "filler").unlink()
        poll(self.server.ready, 5, "it is ready again")
        turn = self.ok(self.submit(CHANNEL, "echo"), 202)
        self.ended(self.wait(turn), "succeeded")
        self.assertTrue((root / "cloister.db.reserve").exists(), "the space is kept again")
        self.server.close()
