"""A reader of text/event-stream that takes bytes as they come, so that one thread can serve a thousand of them, and is
strict about chunks, frames and numbers."""
import json
import re
import select
import selectors
import socket
import time


class Reader:
    """One stream: status, headers (names in lower case), events as [(id, type, data)], comments, and `over` once the
    server has ended it in order (or given an answer of another kind, in `body`)."""

    def __init__(self, port, path, key, last=None, method="GET", body=None, headers=None, host="127.0.0.1"):
        self.status, self.headers, self.body = None, {}, b""
        self.events, self.comments, self.fields = [], [], {}
        self.over = self.cut = False
        self.raw, self.text = b"", b""
        self.sock = socket.create_connection((host, port), timeout=10)
        fields = {"Host": host, "Accept": "text/event-stream", **(headers or {})}
        if key:
            fields["Authorization"] = f"Bearer {key}"
        if last is not None:
            fields["Last-Event-ID"] = str(last)
        payload = b"" if body is None else json.dumps(body).encode()
        if payload:
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(payload))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.sock.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + payload)
        self.sock.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def fileno(self):
        return self.sock.fileno()

    @property
    def last(self):
        return self.events[-1][0] if self.events else 0

    @property
    def types(self):
        return [kind for _, kind, _ in self.events]

    def receive(self):
        """Takes what is there; True when nothing more will come."""
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return self.over
        except ConnectionResetError:
            data = b""
        if not data:
            self.cut = not self.over
            return True
        self.raw += data
        self.parse()
        return self.over

    def wait(self, until, seconds=10):
        """Reads until `until` holds; fails when it does not in time or the stream ends before."""
        end = time.monotonic() + seconds
        while not until(self):
            left = end - time.monotonic()
            assert left > 0, f"not within {seconds} s: {self}"
            readable, _, _ = select.select([self.sock], [], [], left)
            if readable and self.receive():
                assert until(self), f"the stream ended: {self}"
        return self

    def rest(self, seconds=10):
        """All until the server closes."""
        return self.wait(lambda reader: reader.over or reader.cut, seconds)

    def __repr__(self):
        return f"{self.status} {self.types} {self.comments[-3:]} over={self.over} cut={self.cut} {self.body[:300]!r}"

    # Bytes → chunks → frames

    def parse(self):
        if self.status is None:
            head, found, rest = self.raw.partition(b"\r\n\r\n")
            if not found:
                return
            line, *fields = head.decode().split("\r\n")
            self.status, self.raw = int(line.split()[1]), rest
            self.headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
        if self.headers.get("transfer-encoding") != "chunked":
            self.body += self.raw
            self.raw = b""
            self.over = len(self.body) >= int(self.headers.get("content-length", 0))
            return
        while not self.over and (found := re.match(rb"([0-9A-Fa-f]+)\r\n", self.raw)):
            size, begin = int(found[1], 16), found.end()
            if len(self.raw) < begin + size + 2:
                return
            assert self.raw[begin + size:begin + size + 2] == b"\r\n", self.raw[:100]
            self.text += self.raw[begin:begin + size]
            self.raw = self.raw[begin + size + 2:]
            self.over = size == 0
            self.frames()

    def frames(self):
        while b"\n\n" in self.text:
            frame, _, self.text = self.text.partition(b"\n\n")
            self.frame(frame.decode().split("\n"))

    def frame(self, lines):
        if lines[0].startswith(":"):
            assert len(lines) == 1, lines
            self.comments.append(lines[0][1:].strip())
            return
        fields = dict(line.split(": ", 1) for line in lines)
        if "data" not in fields:
            self.fields |= fields
            return
        data = json.loads(fields["data"])
        assert (str(data["n"]), data["type"]) == (fields["id"], fields["event"]) and "at" in data, lines
        self.events.append((data["n"], data["type"], data))


def read_all(readers, until, seconds):
    """Serves many readers in this one thread until `until` holds for each of them."""
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            if not until(reader):
                selector.register(reader, selectors.EVENT_READ)
        while selector.get_map():
            left = end - time.monotonic()
            assert left > 0, f"{len(selector.get_map())} of {len(readers)} readers not within {seconds} s: " \
                f"{next(iter(selector.get_map().values())).fileobj}"
            for key, _ in selector.select(left):
                done = key.fileobj.receive()
                if done or until(key.fileobj):
                    assert until(key.fileobj), f"the stream ended: {key.fileobj}"
                    selector.unregister(key.fileobj)
