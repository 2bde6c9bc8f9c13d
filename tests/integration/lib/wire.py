"""One connection as bytes: what a client sends is its own affair, and the answers are read strictly. (RFC 9112)"""
import contextlib
import json
import re
import select
import socket
import time

FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")


class Reply:
    """status, headers (names in lower case), body (bytes), json (None when it is no JSON)."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.json = json.loads(body) if body and "json" in headers.get("content-type", "") else None

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:300]!r}"


class Wire:
    """A connection to a server on loopback."""

    def __init__(self, port, seconds=10):
        self.seconds = seconds
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.closed = False  # the server closed its half

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        """All of it, or as much as the server takes before it hangs up; what it answers meanwhile is kept."""
        view, end = memoryview(data), time.monotonic() + self.seconds
        self.sock.setblocking(False)
        while view and not self.closed:
            left = end - time.monotonic()
            assert left > 0, f"{len(view)} of {len(data)} bytes were not taken"
            readable, writable, _ = select.select([self.sock], [self.sock], [], left)
            if readable:
                self.receive()
            if writable:
                try:
                    view = view[self.sock.send(view[:1 << 16]):]
                except (BrokenPipeError, ConnectionResetError):
                    break
        return self

    def half_close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        return self

    def receive(self):
        """What is there now; a reset is an end too."""
        try:
            data = self.sock.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        except BlockingIOError:
            return
        self.buffer += data
        self.closed = not data

    def fill(self, done, end):
        """Receives until done(buffer); False when the server closed before."""
        while not done(self.buffer):
            if self.closed:
                return False
            left = end - time.monotonic()
            assert left > 0, f"not within {self.seconds} s; there are {self.buffer[:500]!r}"
            self.sock.settimeout(left)
            with contextlib.suppress(TimeoutError):
                self.receive()
        return True

    def reply(self, head_only=False):
        """The next answer, interim ones left out; None when the server closes instead."""
        end = time.monotonic() + self.seconds
        while True:
            if not self.fill(lambda data: b"\r\n\r\n" in data, end):
                assert not self.buffer, f"the server closed in the middle of an answer: {self.buffer[:500]!r}"
                return None
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            line, *fields = head.split(b"\r\n")
            found = re.fullmatch(rb"HTTP/1\.1 ([1-5]\d\d) [^\x00-\x1f\x7f]+", line)
            assert found, f"no status line: {line[:200]!r}"
            if not found.group(1).startswith(b"1"):
                break
        headers = {}
        for field in fields:
            match = FIELD.fullmatch(field)
            assert match, f"no header: {field[:200]!r}"
            name = match.group(1).decode().lower()
            assert name not in headers or name == "set-cookie", f"{name} comes twice"
            headers[name] = match.group(2).decode()
        assert "transfer-encoding" not in headers
        status = int(found.group(1))
        length = 0 if head_only or status in (204, 304) else int(headers["content-length"])
        assert self.fill(lambda data: len(data) >= length, end), f"the body ends early: {self.buffer[:500]!r}"
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Reply(status, headers, body)

    def replies(self):
        """All answers up to the server's end of the stream, which must come."""
        found = []
        while (reply := self.reply()) is not None:
            found.append(reply)
        return found
