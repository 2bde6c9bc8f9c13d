"""Small HTTP client for tests: JSON in, an Answer out; raw sockets for what http.client would not send."""
import http.client
import json
import socket
import time


def poll(condition, seconds, what):
    """What condition() gives once it is true; fails after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


class Answer:
    """status, headers (names in lower case), body (bytes), json (None when it is no JSON)."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body
        self.json = None
        if body and "json" in self.headers.get("content-type", ""):  # none after HEAD
            self.json = json.loads(body)

    @property
    def code(self):
        """The code of a problem document."""
        return self.json.get("code") if isinstance(self.json, dict) else None

    def __repr__(self):
        return f"{self.status} {self.headers.get('content-type')}: {self.body[:2000]!r}"


class Client:
    """One kept connection to a server, on TCP or (unix=) on a Unix socket."""

    def __init__(self, host, port, key=None, timeout=90, unix=None):
        self.key = key
        self.connection = http.client.HTTPConnection(host, port or 80, timeout=timeout)
        if unix:
            self.connection.sock = socket.socket(socket.AF_UNIX)
            self.connection.sock.settimeout(timeout)
            self.connection.sock.connect(unix)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def call(self, method, path, body=None, headers=None):
        """body: bytes as they are, None for no body, anything else as JSON."""
        send = {}
        if self.key:
            send["Authorization"] = f"Bearer {self.key}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            send["Content-Type"] = "application/json"
        send.update(headers or {})
        self.connection.request(method, path, body=body, headers={k: v for k, v in send.items() if v is not None})
        response = self.connection.getresponse()
        return Answer(response.status, response.getheaders(), response.read())


def raw(port, data, seconds=10, half_close=False):
    """Sends bytes as they are, and gives all that comes back until the server closes or the time is over."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as sock:
        sock.sendall(data)
        if half_close:
            sock.shutdown(socket.SHUT_WR)
        parts, end = [], time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                part = sock.recv(65536)
            except (TimeoutError, ConnectionResetError):
                break
            if not part:
                break
            parts.append(part)
        return b"".join(parts)
