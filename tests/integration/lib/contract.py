"""Every documented request goes through npm @stoplight/prism-cli, which holds each answer against openapi.yaml.

With CLOISTER_PROXY=1 the clients of lib/cloister.py are Checked ones. One Prism serves all servers of a test process, since it
is slow to start: behind it a relay passes each request on to the server that it was meant for. What is no documented request
(another path or method, a body that is no JSON) goes to the server directly.
"""
import atexit
import http.client
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading

from lib.http import Client, poll
from lib.process import end
from lib.routes import openapi, openapi_routes

PORT = "X-Test-Port"
ERRORS = "https://stoplight.io/prism/errors#"


class Relay(http.server.BaseHTTPRequestHandler):
    """From Prism to the server whose port the request names."""

    protocol_version = "HTTP/1.1"

    def relay(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        connection = http.client.HTTPConnection("127.0.0.1", int(headers.pop(PORT.lower())), timeout=100)
        try:
            connection.request(self.command, self.path, body=body or None, headers=headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = relay

    def log_message(self, *_):
        pass


class Prism:
    def __init__(self):
        node, prism = shutil.which("node"), shutil.which("prism")
        assert node and prism, "node and prism are not in PATH; tests/run installs them"
        self.relay = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)
        self.relay.daemon_threads = True
        threading.Thread(target=self.relay.serve_forever, args=[0.05], daemon=True).start()
        self.routes = [(method, re.compile(re.sub(r"\{[^}]*\}", "[^/]+", re.escape(path).replace(r"\{", "{").replace(r"\}", "}"))))
                       for method, path in openapi_routes(openapi())]
        self.folder = tempfile.TemporaryDirectory(prefix="clo-prism-")
        # Prism would refuse requests without a key by itself; what the service says to them is to be seen.
        document = re.sub(r"^security:\n(?:  .*\n)+", "", openapi(), flags=re.M)
        file, self.log = os.path.join(self.folder.name, "openapi.yaml"), os.path.join(self.folder.name, "log")
        with open(file, "w", encoding="utf-8") as output:
            output.write(document)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [node, os.path.realpath(prism), "proxy", file, f"http://127.0.0.1:{self.relay.server_port}", "--errors",
                 "--validate-request=false", "--host", "127.0.0.1", "--port", str(self.port)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder.name, env={"PATH": os.environ["PATH"]})
        atexit.register(self.close)
        poll(self.listens, 60, "prism listens")

    def listens(self):
        if self.process.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                raise AssertionError(f"prism ended with {self.process.returncode}:\n{log.read()[-4000:]}")
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def knows(self, method, path):
        return any(method == known and pattern.fullmatch(path.partition("?")[0]) for known, pattern in self.routes)

    def close(self):
        end(self.process)
        self.relay.shutdown()
        self.folder.cleanup()


def plain(body, headers):
    """Would Prism pass it on as it is? It reads bodies as JSON and writes them anew."""
    if any(name.lower().startswith("content-") for name in headers or {}):
        return False
    if not isinstance(body, bytes):
        return body is None or isinstance(body, dict)
    try:
        document = json.loads(body, parse_constant=int)  # which refuses NaN's like
        return isinstance(document, dict) and json.dumps(document, ensure_ascii=False).encode() == body
    except (ValueError, RecursionError):
        return False


class Checked(Client):
    """A client whose answers are held against openapi.yaml."""

    prism = None
    checked = 0

    def __init__(self, port, key, timeout):
        super().__init__("127.0.0.1", port, key, timeout)
        Checked.prism = Checked.prism or Prism()
        self.port = port
        self.proxied = Client("127.0.0.1", self.prism.port, key, timeout)

    def __exit__(self, *_):
        super().__exit__()
        self.proxied.__exit__()

    def call(self, method, path, body=None, headers=None):
        if not self.prism.knows(method, path) or not plain(body, headers):
            return super().call(method, path, body, headers)
        answer = self.proxied.call(method, path, body, {**(headers or {}), PORT: str(self.port)})
        told = answer.json.get("type", "") if isinstance(answer.json, dict) else ""
        assert not told.startswith(ERRORS), f"{method} {path} does not keep openapi.yaml: {answer.body.decode()}"
        Checked.checked += 1
        return answer
