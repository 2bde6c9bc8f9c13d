"""deploy/up and deploy/down as an operator runs them, on an installation of the test's own: other folders, another port.

The tests of Life go on from one another, in the order of their names.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from lib.http import Client

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run(*command, env=None, cwd=None, timeout=500):
    return subprocess.run([str(part) for part in command], env=env, cwd=cwd, timeout=timeout, check=False, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Life(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "DOCKER_HOST" not in os.environ:
            raise RuntimeError("set DOCKER_HOST, or deploy/up starts an engine on the standard socket; tests/run does")
        cls.dir = pathlib.Path(tempfile.mkdtemp(prefix="clo-up-", dir="/tmp"))
        cls.dir.chmod(0o755)
        cls.port = free_port()
        cls.env = dict(os.environ, UP_BUILD=str(cls.dir / "build"), UP_PREFIX=str(cls.dir / "usr"),
                       UP_ETC=str(cls.dir / "etc"), UP_STATE=str(cls.dir / "lib"), UP_RUN=str(cls.dir / "run"),
                       UP_LOG=str(cls.dir / "log"), UP_LISTEN=f"127.0.0.1:{cls.port}",
                       UP_IMAGE="cloister-worker:deploy-test")

    @classmethod
    def tearDownClass(cls):
        run(ROOT / "deploy/down", env=cls.env)
        run("docker", "rmi", "cloister-worker:deploy-test")
        shutil.rmtree(cls.dir)

    def up(self, good=True):
        done = run(ROOT / "deploy/up", env=self.env)
        self.assertEqual(done.returncode == 0, good, done.stdout)
        return done.stdout

    def pid(self):
        return int(re.search(r"^pid=(\d+)$", (self.dir / "run/server.pid").read_text(), re.M).group(1))

    def demo_key(self):
        return re.search(r"^CLOISTER_KEY=(clo_\S+)$", (self.dir / "build/demo.env").read_text(), re.M).group(1)

    def status(self, key):
        with Client("127.0.0.1", self.port, key) as client:
            return client.call("GET", "/v1/channels").status

    def replace_in_config(self, old, new):
        path = self.dir / "etc/cloister.yaml"
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new))

    def test_01_first_turn_and_printed_commands(self):
        output = self.up()
        self.assertIn("The reply, from a sealed container: Hello from deploy/up", output)
        self.assertNotIn(self.demo_key(), output)
        commands = [line for line in output.splitlines() if line.startswith("curl ")]
        self.assertEqual(len(commands), 3, output)
        for command in commands:
            answer = run("sh", "-c", command)
            self.assertEqual(answer.returncode, 0, answer.stdout)
            self.assertRegex(answer.stdout, r"succeeded|demo:hello", command)
            self.assertNotIn("problem", answer.stdout)

    def test_02_commands_of_the_readme(self):
        """The blocks of README.md that use what deploy/up left in build/ work as they are printed there."""
        blocks = [block for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
                  if "build/demo" in block or "build/cloister" in block]
        self.assertGreaterEqual(len(blocks), 2)
        for block in blocks:
            script = block.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
            done = run("bash", "-euc", script, cwd=self.dir)
            self.assertEqual(done.returncode, 0, f"{block}\n{done.stdout}")
            self.assertNotIn('"type":"/problems/', done.stdout, block)

    def test_03_modes_and_owners(self):
        expected = {"etc/cloister.yaml": (0o640, "root:cloister"), "lib/state": (0o700, "cloister:cloister"),
                    "lib/run": (0o700, "cloister:cloister"), "lib/workspaces": (0o700, "cloister:cloister"),
                    "build/demo.env": (0o600, "root:root"), "build/demo.curl": (0o600, "root:root"),
                    "log/cloister.log": (0o640, "root:cloister")}
        for name, (mode, owner) in expected.items():
            path = self.dir / name
            with self.subTest(name):
                self.assertEqual(path.stat().st_mode & 0o7777, mode)
                self.assertEqual(f"{path.owner()}:{path.group()}", owner)
        owner = pathlib.Path(f"/proc/{self.pid()}").owner()
        self.assertIn(owner, ("cloister", "root"))  # an undumpable process belongs to root there
        uids = re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{self.pid()}/status").read_text(), re.M).group(1)
        self.assertNotEqual(uids, "0")

    def test_04_again_changes_nothing(self):
        pid, key = self.pid(), self.demo_key()
        self.up()
        self.assertEqual((self.pid(), self.demo_key()), (pid, key))

    def test_05_dead_server_is_noticed(self):
        pid, key = self.pid(), self.demo_key()
        os.kill(pid, signal.SIGKILL)
        self.up()
        self.assertNotEqual(self.pid(), pid)
        self.assertEqual(self.demo_key(), key)

    def test_06_changed_configuration_restarts(self):
        pid = self.pid()
        self.replace_in_config("model:\n", "pool: {size: 2}\nmodel:\n")
        self.up()
        self.assertNotEqual(self.pid(), pid)

    def test_07_lost_key_is_replaced_and_revoked(self):
        old = self.demo_key()
        self.assertEqual(self.status(old), 200)
        (self.dir / "build/demo.env").unlink()
        self.up()
        self.assertEqual(self.status(self.demo_key()), 200)
        self.assertEqual(self.status(old), 401)

    def test_08_refused_key_is_replaced(self):
        key = self.demo_key()
        for name in ("demo.env", "demo.curl"):
            path = self.dir / "build" / name
            path.write_text(path.read_text().replace(key, key[:-4] + "beef"))
        self.up()
        self.assertEqual(self.status(self.demo_key()), 200)

    def test_09_two_at_once(self):
        first = subprocess.Popen([str(ROOT / "deploy/up")], env=self.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.up()
        output, _ = first.communicate(timeout=500)
        self.assertEqual(first.returncode, 0, output.decode())

    def test_10_wrong_configuration_is_told(self):
        self.replace_in_config("pool: {size: 2}", "pool: {size: 0}")
        output = self.up(good=False)
        self.assertRegex(output, r'step "check configuration.*" failed')
        self.assertIn("/pool/size", output)
        self.replace_in_config("pool: {size: 0}", "pool: {size: 2}")
        self.up()

    def test_11_down_stops_the_server(self):
        done = run(ROOT / "deploy/down", env=self.env)
        self.assertEqual(done.returncode, 0, done.stdout)
        with self.assertRaises(ConnectionRefusedError):
            self.status(None)
        again = run(ROOT / "deploy/down", env=self.env)
        self.assertEqual(again.returncode, 0, again.stdout)

    def test_12_used_port_is_told(self):
        with socket.create_server(("127.0.0.1", self.port)):
            output = self.up(good=False)
        self.assertRegex(output, rf"port of 127\.0\.0\.1:{self.port} is in use by .*python3")

    def test_13_stale_pid_is_no_server(self):
        with subprocess.Popen(["sleep", "600"]) as other:
            for name in ("server.pid", "engine.pid"):
                (self.dir / "run" / name).write_text(f"pid={other.pid}\nstart=1\n")
            self.up()
            self.assertNotEqual(self.pid(), other.pid)
            done = run(ROOT / "deploy/down", env=self.env)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIsNone(other.poll(), "a process of somebody else was stopped")
            other.kill()


class EngineLibrary(unittest.TestCase):
    def test_start_kill_start_stop(self):
        """An engine of the test's own comes up again after a kill, and stopping it leaves no process."""
        script = """
            set -euo pipefail
            ROOT=$1 LOGS=$2/log
            . "$ROOT/deploy/lib/common.sh"
            . "$ROOT/deploy/lib/engine.sh"
            start() { engine_start "$1/record" "$1/sock" "$1/log.txt" "$1/data" "$1/exec" "$1/pid"; }
            start "$2"
            first=$(record_get "$2/record" pid)
            kill -9 "$first"
            wait_for 10 eval '! start_time '"$first"
            start "$2"
            second=$(record_get "$2/record" pid)
            [[ $first != "$second" ]]
            engine_answers "$2/sock"
            engine_stop "$2/record"
            ! start_time "$second"
            ! engine_answers "$2/sock"
        """
        folder = tempfile.mkdtemp(prefix="clo-eng-", dir="/tmp")
        try:
            done = run("bash", "-c", script, "-", ROOT, folder, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout)
        finally:
            # A killed engine leaves its data folder mounted on itself.
            run("umount", f"{folder}/data")
            shutil.rmtree(folder)
