"""A strictly typed foreign client, its types made from openapi.yaml alone: npm openapi-typescript and openapi-fetch."""
import os
import pathlib
import shutil
import subprocess
import tempfile

from lib.case import ServerCase
from lib.cloister import ROOT, release_only

CLIENT = ROOT / "tests/client"


class Client(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="clo-client-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for file in CLIENT.iterdir():
            shutil.copy2(file, cls.folder)
        (cls.folder / "node_modules").symlink_to(pathlib.Path(tool("tsc")).parent.parent)
        cls.node(tool("openapi-typescript"), str(ROOT / "openapi.yaml"), "-o", "api.d.ts")
        cls.node(tool("tsc"), "-p", ".")

    @classmethod
    def node(cls, script, *arguments, **environment):
        done = subprocess.run([tool("node"), os.path.realpath(script), *arguments], cwd=cls.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=110, check=False, text=True,
                              env={**os.environ, **environment})
        assert done.returncode == 0, f"{script} {' '.join(arguments)}\n{done.stdout}"
        return done.stdout

    @release_only
    def test_typed_client(self):
        said = self.node(self.folder / "out/main.js", CLOISTER_URL=f"http://127.0.0.1:{self.server.port}",
                         CLOISTER_KEY=self.server.key("typed", channels=["client:*"]))
        self.assertEqual([line[:3] for line in said.splitlines()], ["ok "] * 7, said)


def tool(name):
    path = shutil.which(name)
    assert path, f"{name} is not in PATH; tests/run installs it"
    return path
