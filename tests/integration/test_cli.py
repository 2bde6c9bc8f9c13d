"""The command line: every sub-command, its errors and exit codes, with and without a running server, for root, the
account and strangers. Exit codes: 0 done, 1 failed, 2 used wrongly."""
import fcntl
import json
import os
import re
import shutil
import stat
import subprocess
import threading

from lib.case import SPEAKER, Checks, ServerCase
from lib.cloister import ROOT, Server
from lib.http import poll

# Each command with words that are enough for it, and whether it takes --json.
COMMANDS = {
    "serve": ([], False), "check": ([], False), "key create": (["NAME"], False), "key list": ([], True),
    "key revoke": (["ID"], False), "channel on": (["web:a"], False), "channel off": (["web:a"], False),
    "channel status": (["web:a"], True), "channel list": ([], True), "channel reset": (["web:a"], False),
    "channel stop": (["web:a"], False), "backup": (["/nonexistent/copy"], False),
    "turn": (["web:a", "hi"], True), "version": ([], False),
}
STRANGER = 65534


class CliCase(Checks):
    server = None

    def run_cli(self, *arguments, server=None, code=0, **options):
        """Runs it and checks the exit code, and that no control character came out."""
        done = (server or self.server).cli(*arguments, check=False, **options)
        self.assertEqual(done.returncode, code, done)
        for stream in (done.stdout, done.stderr):
            self.assertNotRegex(stream, r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
        return done

    def fails(self, sentence, *arguments, **options):
        """Fails with this in its error, and prints nothing else."""
        done = self.run_cli(*arguments, code=1, **options)
        self.assertEqual(done.stdout, "")
        self.assertIn(sentence, done.stderr)
        self.assertTrue(done.stderr.startswith("cloister: "), done.stderr)
        return done

    def as_stranger(self, server, *arguments, env=None):
        command = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", str(server.binary), *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
                              cwd="/", env={**server.full_environment(), **(env or {})})


class Usage(CliCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(start=False)
        cls.addClassCleanup(cls.server.discard)

    def raw(self, *arguments):
        return subprocess.run([str(self.server.binary), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=20, check=False, cwd="/", env=self.server.full_environment())

    def test_help_lists_all(self):
        table = re.findall(r'^    \{"([a-z ]+)", "', (ROOT / "server/cli/table.c").read_text(), re.M)
        self.assertEqual(sorted(table), sorted(COMMANDS), "a new command needs a row in COMMANDS")
        for word in ("help", "--help", "-h"):
            done = self.raw(word)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for name in COMMANDS:
                self.assertRegex(done.stdout, rf"(?m)^  {name}\b.* \S+")
            for option in ("--config", "--scope", "--channel", "--json"):
                self.assertIn(option, done.stdout)

    def test_nothing_and_nonsense(self):
        done = self.raw()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage:", done.stderr)
        for words in (["nonsense"], ["key"], ["channel"], ["key", "nonsense"], ["channel", "on web:a"], [""], ["\x1b[31m"],
                      ["--config"], ["--wrong", "check"]):
            done = self.raw(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertNotIn("\x1b", done.stderr)

    def test_wrong_words_and_options(self):
        for name, (words, takes_json) in COMMANDS.items():
            wrong = [[*words, "more"], [*words, "--wrong"]]
            wrong += [words[:-1]] if words else []
            wrong += [] if takes_json else [[*words, "--json"]]
            wrong += [[*words, "--config", "/x"]] if name in ("turn", "version") else [[*words, "--config"]]
            wrong += [] if name == "key create" else [[*words, "--scope", "turns"], [*words, "--channel", "*"]]
            for given in wrong:
                done = self.raw(*name.split(), *given)
                self.assertEqual((done.returncode, done.stdout), (2, ""), (name, given))
                self.assertIn(f"usage: cloister {name}", done.stderr)

    def test_version(self):
        self.assertRegex(self.raw("version").stdout, r"^cloister \d+\.\d+\.\d+ \(build [0-9a-f]+\)\n$")

    def test_configuration_that_is_not_there(self):
        for name, (words, _) in COMMANDS.items():
            if name in ("turn", "version"):
                continue
            words = [*words, "--scope", "turns", "--channel", "*"] if name == "key create" else words
            for arguments in ([*name.split(), *words, "--config", "/nonexistent.yaml"],
                              ["--config", "/nonexistent.yaml", *name.split(), *words],
                              ["--config=/nonexistent.yaml", *name.split(), *words]):
                done = self.raw(*arguments)
                self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
                self.assertIn("/nonexistent.yaml", done.stderr)

    def test_serve_is_not_for_root(self):
        self.fails("does not run as root", "serve", account=False)


class State(CliCase):
    """The commands that read and change state. Offline and Online run the same tests."""

    def setUp(self):
        self.server = Server(start=self.online)
        self.addCleanup(self.server.discard)

    def both(self):
        """As the account, and as root, who becomes the account first."""
        for account in (True, False):
            with self.subTest(account=account):
                yield account

    def check_keys(self):
        for account in self.both():
            done = self.run_cli("key", "create", "ops é", "--scope", "turns", "--scope", "turns:read", "--channel", "web:*",
                                "--channel", "a:b", account=account)
            token = done.stdout.strip()
            self.assertRegex(token, r"^clo_[0-9a-f]{16}_[0-9a-f]{64}$")
            self.assertNotIn(token, done.stderr)
            key = token.split("_")[1]
            line = next(line for line in self.run_cli("key", "list", account=account).stdout.splitlines() if key in line)
            self.assertRegex(line, rf"^{key}\tops é\tin force\tturns,turns:read\tweb:\*,a:b\t\d{{4}}-\S+Z$")
            self.run_cli("key", "revoke", key, account=account)
            self.run_cli("key", "revoke", key, account=account)
            listed = json.loads(self.run_cli("key", "list", "--json", account=account).stdout)
            (found,) = [item for item in listed if item["id"] == key]
            self.assertEqual((found["name"], found["scopes"], found["channels"]),
                             ("ops é", ["turns", "turns:read"], ["web:*", "a:b"]))
            self.assertGreater(found["revoked_ms"], 0)
        self.fails("no such key", "key", "revoke", "0" * 16)
        self.fails("no such key", "key", "revoke", "../\x1b[31m" + "x" * 3000)
        self.fails("scope", "key", "create", "x", "--channel", "*")
        self.fails("channel pattern", "key", "create", "x", "--scope", "turns")
        self.fails(r"bad\x1b is no scope", "key", "create", "x", "--scope", "bad\x1b", "--channel", "*")
        self.fails("name", "key", "create", "a\x1bb", "--scope", "turns", "--channel", "*")
        self.fails("name", "key", "create", "x" * 65, "--scope", "turns", "--channel", "*")
        self.fails("pattern", "key", "create", "x", "--scope", "turns", "--channel", "\x1b")
        self.assertEqual(len(self.run_cli("key", "list").stdout.splitlines()), 2)

    def check_channels(self):
        for account in self.both():
            name = f"web:{'account' if account else 'root'} é/%2F"
            for command, enabled in (("on", True), ("on", True), ("off", False), ("on", True)):
                self.assertEqual(self.run_cli("channel", command, name, account=account).stdout, "")
                status = json.loads(self.run_cli("channel", "status", name, "--json", account=account).stdout)
                self.assertEqual((status["key"], status["enabled"], status["reset_pending"]), (name, enabled, False))
            self.run_cli("channel", "reset", name, account=account)
            line = self.run_cli("channel", "status", name, account=account).stdout
            self.assertRegex(line, rf"^enabled .*reset pending  {name}\n$")
        self.run_cli("channel", "off", "api:other")
        self.assertRegex(self.run_cli("channel", "list").stdout, r"(?s)^disabled .*api:other\nenabled .*\nenabled .*\n$")
        listed = json.loads(self.run_cli("channel", "list", "--json").stdout)
        self.assertEqual([(c["key"], c["enabled"]) for c in listed],
                         [("api:other", False), ("web:account é/%2F", True), ("web:root é/%2F", True)])
        for command in ("status", "reset"):
            self.fails("no such channel", "channel", command, "web:none")
        for command in ("on", "off", "reset", "stop"):
            for wrong in ("none", "Web:x", "web:", "web:" + "x" * 197, "web:\x1b[31m", "web:\udcff"):
                self.fails("channel key", "channel", command, wrong)
        self.assertEqual(len(json.loads(self.run_cli("channel", "list", "--json").stdout)), 3)

    def check_many_channels(self):
        """More than a page of the service's list."""
        names = [f"many:{i:03}" for i in range(230)]
        config = {"initial_channels": names}
        with Server(start=False, **config) as server:
            server.start()
            if not self.online:
                server.stop()
            listed = json.loads(self.run_cli("channel", "list", "--json", server=server).stdout)
            self.assertEqual([c["key"] for c in listed], names)

    def check_strangers(self):
        """A stranger cannot read the configuration; and where it could, it could still do nothing."""
        config = self.server.config_file
        for mode in (0o640, 0o644):
            config.chmod(mode)
            for name, (words, _) in COMMANDS.items():
                if name in ("turn", "version"):
                    continue
                more = ["--scope", "turns", "--channel", "*"] if name == "key create" else []
                done = self.as_stranger(self.server, *name.split(), *words, *more, "--config", str(config))
                self.assertEqual((done.returncode, done.stdout), (1, ""), (oct(mode), name, done))
                self.assertTrue(done.stderr)
        self.assertEqual(self.run_cli("key", "list").stdout, "")
        self.assertEqual(self.run_cli("channel", "list").stdout, "")

    def check_owners(self):
        """Whatever root did, the state's files are the account's and nobody else's to read."""
        self.run_cli("key", "create", "x", "--scope", "turns", "--channel", "*", account=False)
        self.run_cli("channel", "on", "web:a", account=False)
        self.run_cli("channel", "list", account=False)
        self.run_cli("check", account=False)
        for file in (self.server.root / "state").iterdir():
            status = file.lstat()
            self.assertEqual((status.st_uid, stat.S_IMODE(status.st_mode) & 0o077), (self.server.account.pw_uid, 0), file)


class Offline(State):
    online = False

    def test_keys(self):
        self.check_keys()

    def test_channels(self):
        self.check_channels()
        self.fails("no server runs", "channel", "stop", "web:root é/%2F")

    def test_many_channels(self):
        self.check_many_channels()

    def test_strangers(self):
        self.run_cli("channel", "on", "web:a")  # so that there is a state
        self.run_cli("channel", "off", "web:a")
        config = self.server.config_file
        config.chmod(0o644)
        for words in (["key", "list"], ["key", "create", "x", "--scope", "turns", "--channel", "*"], ["channel", "on", "web:a"],
                      ["channel", "list"], ["check"], ["serve"]):
            done = self.as_stranger(self.server, *words, "--config", str(config))
            self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertEqual(self.run_cli("key", "list").stdout, "")

    def test_owners(self):
        self.check_owners()

    def test_under_the_lock(self):
        """While another process holds the state, nothing is changed; reading goes on."""
        self.run_cli("channel", "on", "web:a")
        with (self.server.root / "state/cloister.db.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for words in (["channel", "off", "web:a"], ["channel", "reset", "web:a"], ["key", "revoke", "x"],
                          ["key", "create", "x", "--scope", "turns", "--channel", "*"]):
                self.fails("another process uses the state", *words)
            self.assertRegex(self.run_cli("channel", "status", "web:a").stdout, "^enabled")
        self.run_cli("channel", "off", "web:a")

    def test_what_was_done_offline_is_there_online(self):
        key = self.run_cli("key", "create", "x", "--scope", "turns", "--channel", "*").stdout.strip()
        self.run_cli("channel", "on", "web:a")
        self.server.start()
        self.ended(self.server.turn("web:a", "hi", key), "succeeded")
        self.server.close()


class Online(State):
    online = True

    def test_keys(self):
        self.check_keys()

    def test_channels(self):
        self.check_channels()
        for name, value in (("busy", False), ("queued", 0), ("blocked", False)):
            self.assertEqual(json.loads(self.run_cli("channel", "list", "--json").stdout)[0][name], value)
        self.fails("no such channel", "channel", "stop", "web:none")
        self.run_cli("channel", "stop", "api:other")

    def test_many_channels(self):
        self.check_many_channels()

    def test_strangers(self):
        self.check_strangers()

    def test_owners(self):
        self.check_owners()

    def test_stop(self):
        self.run_cli("channel", "on", "web:a")
        key, turns = self.server.key(), []
        thread = threading.Thread(target=lambda: turns.append(self.server.turn("web:a", "/sleep 50000\nx", key)))
        thread.start()
        poll(lambda: "busy" in self.run_cli("channel", "status", "web:a").stdout and self.server.containers(), 20, "it runs")
        self.run_cli("channel", "stop", "web:a", account=False)
        thread.join(20)
        self.ended(turns[0], "canceled", "canceled")
        self.server.close()

    def test_a_second_server_is_refused(self):
        self.fails("another process uses the state", "serve")
        self.assertEqual(self.server.call("GET", "/livez").status, 200)
        self.run_cli("channel", "on", "web:still-reachable")

    def test_version_is_that_of_the_server(self):
        build = re.search(r"build ([0-9a-f]+)", self.run_cli("version").stdout).group(1)
        self.assertEqual(self.server.call("GET", "/livez").json["build"], build)


class Check(CliCase):
    def setUp(self):
        self.server = Server(start=False)
        self.addCleanup(self.server.discard)

    def write(self, text):
        self.server.config_file.write_text(text)

    def faults(self, **options):
        """Its lines about the file's places: {pointer: sentence}."""
        done = self.run_cli("check", code=1, **options)
        self.assertEqual(done.stdout, "")
        prefix = f"{self.server.config_file}: "
        found = {}
        for line in done.stderr.splitlines():
            if line.startswith(prefix + "/"):
                pointer, _, sentence = line.removeprefix(prefix).partition(": ")
                found[pointer] = sentence
        return found, done.stderr

    def test_good(self):
        for account in (True, False):
            done = self.run_cli("check", account=account)
            self.assertIn("all is well", done.stdout)
            self.assertIn("embedded:script", done.stderr)
        self.assertEqual(list((self.server.root / "run").iterdir()), [])
        self.assertEqual(self.server.containers(), [])
        self.server.write_config(model={"url": "embedded:echo", "allow_script": None})
        self.assertIn("embedded:echo", self.run_cli("check").stderr)
        for size, memory, told in ((1, 64, False), (256, 1048576, True)):
            self.server.write_config(pool={"size": size}, limits={"memory_mb": memory})
            self.assertEqual("fs.epoll.max_user_watches" in self.run_cli("check").stderr, told, size)
        self.server.write_config(pool={"size": 1}, limits={"memory_mb": 64})
        self.server.start()
        self.run_cli("check")
        self.server.close()

    def of_this_server(self):
        """The environment that puts this server's places over a configuration of other ones."""
        root = self.server.root
        return {"CLOISTER_STATE_FILE": str(root / "state/cloister.db"), "CLOISTER_RUN_ROOT": str(root / "run"),
                "CLOISTER_WORKSPACE_ROOT": str(root / "workspaces"), "CLOISTER_ENGINE_SOCKET": self.server.engine.socket,
                "CLOISTER_IMAGE": "cloister-worker:test"}

    def test_reference_configuration(self):
        shutil.copy(ROOT / "deploy/cloister.yaml", self.server.config_file)
        self.assertIn("all is well", self.run_cli("check", env=self.of_this_server()).stdout)

    def test_every_error_with_line_and_pointer(self):
        self.write("listen: 5\n"
                   "image: '-x'\n"
                   "limits:\n"
                   "  memory_mb: 63\n"
                   "  cpus: 0.005\n"
                   "  pids: 7\n"
                   "  timeout_ms: 600001\n"
                   "  wild: 1\n"
                   "model:\n"
                   "  url: ftp://x\n"
                   "  max_tokens: 32769\n"
                   "  max_calls: 0\n"
                   "  prompt: 3\n"
                   "queue: []\n"
                   "pool: {size: 0}\n"
                   "initial_channels: [web:a, Web, web:a]\n"
                   "nope: 1\n")
        found, text = self.faults()
        lines = {"/listen": 1, "/image": 2, "/limits/memory_mb": 4, "/limits/cpus": 5, "/limits/pids": 6, "/limits/timeout_ms": 7,
                 "/limits/wild": 8, "/model/url": 10, "/model/max_tokens": 11, "/model/max_calls": 12, "/model/prompt": 13,
                 "/queue": 14, "/pool/size": 15, "/initial_channels/1": 16, "/initial_channels": 16, "/nope": 17}
        self.assertEqual(set(found), set(lines), text)
        for pointer, line in lines.items():
            self.assertTrue(found[pointer].startswith(f"line {line}: "), (pointer, found[pointer]))

    def test_everything_beyond_the_file_at_once(self):
        """Roots, credential, model and engine are all looked at, whatever the first one says."""
        root = self.server.root
        (root / "run").chmod(0o755)
        os.chown(root / "workspaces", 0, 0)
        self.server.write_config(engine_socket="/nonexistent.sock", model={"url": "https://user:pw@x/", "allow_script": None})
        for account in (True, False):
            found, text = self.faults(account=account)
            self.assertEqual(set(found), {"/run_root", "/workspace_root"}, text)
            for sentence in found.values():
                self.assertRegex(sentence, r"^line \d+: ")
            self.assertIn("userinfo", text)
            self.assertIn("/nonexistent.sock", text)
            self.assertRegex(text, r": 4 errors\n$")

    def test_image_that_is_not_there(self):
        self.server.write_config(image="cloister-none:none")
        _, text = self.faults()
        self.assertIn("image", text)
        self.assertIn("cloister-none:none", text)

    def test_rules_between_keys(self):
        for change, sentence in (({"listen": "0.0.0.0:0"}, "listen_behind_tls"),
                                 ({"model": {"allow_script": False}}, "allow_script"),
                                 ({"model": {"url": "http://127.0.0.1:1/"}}, "allow_http"),
                                 ({"model": {"credential": {"env": "A", "file": "/x"}}}, "credential"),
                                 ({"listen": "0.0.0.0:0", "listen_behind_tls": True}, "loopback")):
            with self.subTest(**change):
                server = Server(start=False)
                self.addCleanup(server.discard)
                server.write_config(**change)
                done = self.run_cli("check", server=server, code=1)
                self.assertIn(sentence, done.stderr)
                self.assertIn(sentence, self.run_cli("serve", server=server, code=1).stderr)

    def test_not_yaml(self):
        for text, sentence in (("a: [1,\nb: 2\n", "line 3"), ("a: 1\na: 2\n", "line 2"), ("listen: &x 1\nimage: *x\n", "line 1"),
                               ("- a\n", "mapping"), ("a: !!python/none 1\n", "line 1"), ("a: 1\n---\nb: 2\n", "line"),
                               ("x\x1b: 1\n", "line 1"), ("\t- a: 1\n", "line 1"), ("a: " + "[" * 200, "line"),
                               ("image: x\n" * 200_000, "more than 1048576 bytes")):
            self.write(text)
            done = self.run_cli("check", code=1)
            self.assertIn(str(self.server.config_file), done.stderr)
            self.assertIn(sentence, done.stderr, text[:40])
            self.assertLess(len(done.stderr), 2000)

    def test_environment_overrides(self):
        self.run_cli("check", env={"CLOISTER_LIMITS_MEMORY_MB": "128", "CLOISTER_IMAGE": "cloister-worker:test"})
        for name, value in (("CLOISTER_LIMITS_MEMORY_MB", "63"), ("CLOISTER_LIMITS_MEMORY_MB", "x"), ("CLOISTER_LISTEN", "here"),
                            ("CLOISTER_MODEL_ALLOW_SCRIPT", "perhaps"), ("CLOISTER_LIMITS_CPUS", "0")):
            done = self.run_cli("check", env={name: value}, code=1)
            self.assertIn(name, done.stderr)
        self.write("listen: 127.0.0.1:0\n")
        self.assertIn("all is well", self.run_cli("check", env=self.of_this_server()).stdout)


class Turn(CliCase, ServerCase):
    """`turn`: a client of the service."""

    @classmethod
    def setUpClass(cls):
        ServerCase.setUpClass.__func__(cls)
        cls.key = cls.server.key()
        cls.server.channel_on("web:cli")
        cls.env = {"CLOISTER_URL": f"http://127.0.0.1:{cls.server.port}", "CLOISTER_KEY": cls.key}
        cls.demo = cls.server.root / "demo.env"

    def tearDown(self):
        self.demo.unlink(missing_ok=True)

    def test_live_state_and_reply(self):
        done = self.run_cli("turn", "web:cli", "/sleep 800\nhello\tthere", env=self.env)
        self.assertEqual(done.stdout, "/sleep 800\nhello\tthere\n")
        lines = done.stderr.splitlines()
        turn = lines[0].split(":")[0]
        self.assertRegex(turn, r"^turn_[0-9a-f]{32}$")
        states = [line.removeprefix(f"{turn}: ") for line in lines]
        self.assertIn(states, (["queued", "running", "succeeded"], ["running", "succeeded"]))
        self.assertEqual(self.ok(self.server.call("GET", f"/v1/turns/{turn}", key=self.key))["status"], "succeeded")

    def test_json(self):
        done = self.run_cli("turn", "web:cli", "é \x1b[31m", "--json", env=self.env)
        turn = json.loads(done.stdout)
        self.assertEqual((turn["status"], turn["reply"]), ("succeeded", {"text": "é \x1b[31m"}))

    def test_control_characters_are_escaped(self):
        done = self.run_cli("turn", "web:cli", "a\x1b[31mb\rc\x07\x7f\u0085 é\n\td", env=self.env)
        self.assertRegex(done.stdout, r"^a\\x1b\[31mb\\x0dc\\x07\\x7f\\\S+ é\n\td\n$")

    def test_the_speaker_is_the_caller(self):
        turn = json.loads(self.run_cli("turn", "web:cli", "x", "--json", env=self.env).stdout)
        self.assertEqual(turn["speaker"], {"id": "cloister-test", "name": "cloister-test"})
        turn = json.loads(self.run_cli("turn", "web:cli", "x", "--json", env=self.env, account=False).stdout)
        self.assertEqual(turn["speaker"], {"id": "root", "name": "root"})
        done = self.as_stranger(self.server, "turn", "web:cli", "x", env=self.env)
        self.assertEqual((done.returncode, done.stdout), (0, "x\n"), done)

    def test_a_turn_that_fails(self):
        self.server.channel_on("web:stopped")
        result = []
        thread = threading.Thread(target=lambda: result.append(
            self.run_cli("turn", "web:stopped", "/sleep 50000\nx", env=self.env, code=1)))
        thread.start()
        poll(lambda: self.ok(self.server.call("GET", "/v1/channels/web:stopped", key=self.key))["busy"]
             and self.server.containers(), 20, "it runs")
        self.server.cli("channel", "stop", "web:stopped")
        thread.join(20)
        self.assertEqual(result[0].stdout, "")
        self.assertRegex(result[0].stderr, r"(?s)canceled\ncloister: canceled: .+\n$")

    def test_refusals(self):
        self.fails("turn the channel on first", "turn", "web:off", "x", env=self.env)
        self.fails("/channel", "turn", "nonsense\x1b", "x", env=self.env)
        self.fails("/text", "turn", "web:cli", "", env=self.env)
        self.fails("UTF-8", "turn", "web:cli", "\udcff", env=self.env)
        self.fails("key that is in force", "turn", "web:cli", "x", env={**self.env, "CLOISTER_KEY": "clo_x"})
        self.fails("set CLOISTER_URL and CLOISTER_KEY", "turn", "web:cli", "x")
        self.fails("set CLOISTER_URL and CLOISTER_KEY", "turn", "web:cli", "x", env={"CLOISTER_URL": self.env["CLOISTER_URL"]})
        self.fails("http://", "turn", "web:cli", "x", env={**self.env, "CLOISTER_URL": "ftp://127.0.0.1"})
        self.fails("", "turn", "web:cli", "x", env={**self.env, "CLOISTER_URL": "http://127.0.0.1:1"})
        self.fails("", "turn", "web:cli", "x", env={**self.env, "CLOISTER_URL": "http://\x1b[31m"})

    def write_demo(self, owner, mode=0o600):
        self.demo.write_text("".join(f"{name}={value}\n" for name, value in self.env.items()))
        os.chown(self.demo, owner, owner)
        self.demo.chmod(mode)

    def test_demo_env(self):
        """Beside the binary itself, of the caller, and nobody else's to read."""
        account = self.server.account.pw_uid
        self.write_demo(account)
        self.assertEqual(self.run_cli("turn", "web:cli", "from demo").stdout, "from demo\n")
        with self.subTest("the environment goes first"):
            self.fails("key that is in force", "turn", "web:cli", "x", env={"CLOISTER_KEY": "clo_x"})
            self.demo.write_text(f"CLOISTER_URL=http://127.0.0.1:1\nCLOISTER_KEY={self.key}\n")
            self.run_cli("turn", "web:cli", "x", env={"CLOISTER_URL": self.env["CLOISTER_URL"]})
        with self.subTest("a symlink to the binary does not take its own"):
            self.write_demo(account)
            link = self.server.root / "reports/cloister"
            link.symlink_to(self.server.binary)
            self.addCleanup(link.unlink)
            done = subprocess.run(self.server.as_account(link, "turn", "web:cli", "by link"), capture_output=True, text=True,
                                  timeout=60, check=False, cwd="/", env=self.server.full_environment())
            self.assertEqual((done.returncode, done.stdout), (0, "by link\n"), done)
        for mode in (0o640, 0o604, 0o660, 0o644):
            with self.subTest(mode=oct(mode)):
                self.write_demo(account, mode)
                self.fails("demo.env must be a file of the caller with mode 0600", "turn", "web:cli", "x")
        for owner in (0, STRANGER):
            with self.subTest(owner=owner):
                self.write_demo(owner)
                self.fails("demo.env must be a file of the caller with mode 0600", "turn", "web:cli", "x")
        with self.subTest("root does not take the account's either"):
            self.write_demo(account)
            self.fails("demo.env must be a file of the caller", "turn", "web:cli", "x", account=False)
        with self.subTest("a symlink"):
            elsewhere = self.server.root / "reports/elsewhere.env"
            self.write_demo(account)
            self.demo.rename(elsewhere)
            self.addCleanup(elsewhere.unlink)
            self.demo.symlink_to(elsewhere)
            self.fails("demo.env must be a file of the caller", "turn", "web:cli", "x")
        with self.subTest("not needed when the environment says all"):
            self.run_cli("turn", "web:cli", "x", env=self.env)

    def test_demo_env_of_the_working_folder_is_not_read(self):
        folder = self.server.root / "elsewhere"
        folder.mkdir(mode=0o755)
        self.addCleanup(shutil.rmtree, folder)
        file = folder / "demo.env"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.env.items()))
        os.chown(file, self.server.account.pw_uid, self.server.account.pw_gid)
        file.chmod(0o600)
        done = subprocess.run(self.server.as_account(self.server.binary, "turn", "web:cli", "x"), capture_output=True, text=True,
                              timeout=60, check=False, cwd=folder, env=self.server.full_environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn("set CLOISTER_URL", done.stderr)

    def test_posts_as_the_api_would(self):
        """What the command line sends is what any client may send."""
        body = {"channel": "web:cli", "speaker": SPEAKER, "text": "same"}
        by_api = self.ok(self.server.call("POST", "/v1/turns", body, self.key))
        by_cli = json.loads(self.run_cli("turn", "web:cli", "same", "--json", env=self.env).stdout)
        self.assertEqual(set(by_api), set(by_cli))
        self.assertEqual(by_api["reply"], by_cli["reply"])
