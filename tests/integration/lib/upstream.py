"""Model servers on loopback: one whose answers a test writes, and the foreign @copilotkit/aimock."""
import http.server
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import threading

from lib.http import Client, poll
from lib.process import end


def says(text, **more):
    """A chat completion that says so."""
    message = {"role": "assistant", "content": text, **more}
    return {"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}


def calls(*names_and_arguments):
    """A chat completion that calls tools: ("name", {arguments}) each."""
    return says(None, tool_calls=[
        {"id": f"call_{i}", "type": "function",
         "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}}
        for i, (name, given) in enumerate(names_and_arguments)])


class Request:
    def __init__(self, handler, body):
        self.path, self.headers, self.handler = handler.path, handler.headers, handler
        self.bytes, self.json = body, json.loads(body)
        self.messages = self.json["messages"]

    def of_role(self, role):
        return [message["content"] for message in self.messages if message["role"] == role]


class Upstream:
    """A server of chat completions. `answer` is a chat completion, bytes, (status, headers, bytes), or a function of the
    Request that gives one of these, or None to close without an answer. `requests` holds what came."""

    def __init__(self, answer=None):
        self.answer = answer if answer is not None else says("hello")
        self.requests = []
        upstream = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                upstream.handle(self)

            def log_message(self, *_):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # the service may hang up at any time

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/chat/completions"
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.05], daemon=True)
        self.thread.start()

    def handle(self, handler):
        request = Request(handler, handler.rfile.read(int(handler.headers["Content-Length"])))
        self.requests.append(request)
        answer = self.answer(request) if callable(self.answer) else self.answer
        if answer is None:
            handler.close_connection = True
            return
        if not isinstance(answer, tuple):
            answer = (200, {}, answer)
        status, headers, body = answer
        body = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(body), **headers}.items():
            handler.send_header(name, str(value))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


def hang_up_of(handler, seconds):
    """Waits until the client of this handler hangs up; False when it did not in so many seconds."""
    readable, _, _ = select.select([handler.connection], [], [], seconds)
    return bool(readable) and handler.connection.recv(1, socket.MSG_PEEK) == b""


class Aimock:
    """The foreign server, with fixtures as its documentation describes them and one API key that it accepts."""

    def __init__(self, folder, fixtures, key):
        node, aimock = shutil.which("node"), shutil.which("llmock")  # its command without a configuration file
        assert node and aimock, "node and llmock are not in PATH; tests/run installs them"
        file = pathlib.Path(folder) / "fixtures.json"
        file.write_text(json.dumps({"fixtures": fixtures}))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.log = pathlib.Path(folder) / "aimock.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [node, os.path.realpath(aimock), "--port", str(port), "--fixtures", str(file), "--strict"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                env={"PATH": "/usr/bin:/bin", "AIMOCK_API_KEYS": key, "AIMOCK_STRICT_TURN_INDEX": "1"})
        self.port, self.key = port, key
        self.url = f"http://127.0.0.1:{port}/v1/chat/completions"
        try:
            poll(self.answers, 30, "aimock answers")
        except BaseException:
            self.close()
            raise

    def answers(self):
        assert self.process.poll() is None, self.log.read_text(errors="replace")
        try:
            return self.call("/health").status == 200
        except OSError:
            return False

    def call(self, path):
        with Client("127.0.0.1", self.port, self.key, timeout=10) as client:
            return client.call("GET", path)

    def journal(self):
        """What it was asked, oldest first."""
        answer = self.call("/__aimock/journal")
        assert answer.status == 200, answer
        return answer.json

    def close(self):
        end(self.process)
