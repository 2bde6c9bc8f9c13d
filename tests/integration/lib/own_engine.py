"""An engine of a test's own, which it may kill, stop and start again without hurting anybody.

dockerd and its containerd are two processes with all their folders in one place below /tmp. No container has a network, so no
bridge is needed."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import urllib.parse

from lib.engine import Engine
from lib.http import poll

ATTEMPTS = 3  # after a kill the first start can fail
START_S = 30

CONTAINERD = """
version = 2
root = "{root}/containerd"
state = "{root}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{root}/containerd.sock"
"""


class OwnEngine(Engine):
    def __init__(self, *images):
        """Starts, with copies of these images of the common engine."""
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="engine-", dir="/tmp"))
        self.root.chmod(0o711)
        super().__init__(str(self.root / "docker.sock"))
        self.processes = {}
        (self.root / "containerd.toml").write_text(CONTAINERD.format(root=self.root))
        try:
            self.start()
            self.copy(images)
        except BaseException:
            self.discard()
            raise

    def copy(self, images):
        names = "&".join(f"names={urllib.parse.quote(image, safe='')}" for image in images)
        archive = Engine().call("GET", f"/images/get?{names}")
        assert archive.status == 200, archive
        loaded = self.call("POST", "/images/load?quiet=1", archive.body)
        assert loaded.status == 200, loaded
        for image in images:
            assert self.image_id(image), loaded

    def run(self, name, *command):
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                                    start_new_session=True)

    def start(self):
        """Both processes; until the engine answers."""
        for attempt in range(ATTEMPTS):
            for name in ("docker.sock", "dockerd.pid", "containerd.sock", "containerd.sock.ttrpc"):
                (self.root / name).unlink(missing_ok=True)
            self.run("containerd", "containerd", "--config", str(self.root / "containerd.toml"))
            self.run("dockerd", "dockerd", "--host", f"unix://{self.socket}", "--data-root", str(self.root / "data"),
                     "--exec-root", str(self.root / "exec"), "--pidfile", str(self.root / "dockerd.pid"), "--containerd",
                     str(self.root / "containerd.sock"), "--group", "docker", "--bridge=none", "--iptables=false",
                     "--shutdown-timeout=1")
            try:
                poll(self.answers, START_S, "the engine answers")
                return
            except AssertionError:
                self.kill()
                if attempt == ATTEMPTS - 1:
                    raise AssertionError((self.root / "dockerd.log").read_text()[-4000:]) from None

    def answers(self):
        if self.processes["dockerd"].poll() is not None:
            raise AssertionError("dockerd ended")
        try:
            return self.call("GET", "/_ping").status == 200
        except OSError:
            return False

    def signal(self, number):
        """To dockerd alone."""
        self.processes["dockerd"].send_signal(number)

    def restart(self):
        """As an operator does it: dockerd stops its containers and ends, then starts again."""
        self.signal(signal.SIGTERM)
        self.processes["dockerd"].wait(timeout=30)
        self.kill()
        self.start()

    def kill(self):
        """SIGKILL to both, as after a crash of the engine; containers live on."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(timeout=10)
        self.processes = {}

    def shim_of(self, pid):
        """The process that looks after a container, from the pid of the container's first process."""
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        return int(stat.rsplit(")", 1)[1].split()[1])

    def shims(self):
        """Those of this engine, by the address that is on their command line."""
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"shim" in words[0] and str(self.root / "containerd.sock").encode() in words:
                yield int(path.parent.name)

    def discard(self):
        if "dockerd" in self.processes:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.processes["dockerd"].wait(timeout=20)
            except subprocess.TimeoutExpired:
                pass
        self.kill()
        for pid in self.shims():
            os.kill(pid, signal.SIGKILL)
        below = f"{self.root}/"
        mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted((mount for mount in mounts if mount.startswith(below)), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.root, ignore_errors=True)
