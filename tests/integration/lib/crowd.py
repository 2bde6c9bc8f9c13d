"""Many clients that wait at once."""
import json
import selectors
import socket
import time

from lib.case import SPEAKER


class Waiting:
    """Clients that each sent one POST /v1/turns and wait, without a thread."""

    def __init__(self, port, key):
        self.port, self.key = port, key
        self.socks = []

    def send(self, channel, text, *headers):
        body = json.dumps({"channel": channel, "speaker": SPEAKER, "text": text}).encode()
        more = "".join(f"{header}\r\n" for header in headers)
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        sock.sendall((f"POST /v1/turns HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {self.key}\r\n"
                      f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n").encode() + body)
        self.socks.append(sock)
        return sock

    def answers(self, seconds):
        """[(status, document)] of all in order of their sending; None for one that was not answered in time."""
        return [data and self.final(data) for data in self.ends(seconds)]

    def ends(self, seconds):
        """All that each of them received until the server closed; None for one that it did not close in time."""
        end, parts, result = time.monotonic() + seconds, {}, {}
        with selectors.DefaultSelector() as selector:
            for sock in self.socks:
                parts[sock] = b""
                selector.register(sock, selectors.EVENT_READ)
            while selector.get_map() and (left := end - time.monotonic()) > 0:
                for event, _ in selector.select(left):
                    data = event.fileobj.recv(1 << 16)
                    parts[event.fileobj] += data
                    if not data:
                        selector.unregister(event.fileobj)
                        result[event.fileobj] = parts[event.fileobj]
        return [result.get(sock) for sock in self.socks]

    @staticmethod
    def final(data):
        """Status and document of the answer; interim ones may stand before it."""
        head, _, body = data.rpartition(b"\r\n\r\n")
        assert body, f"the server closed after {data!r}"
        return int(head.rpartition(b"HTTP/1.1 ")[2][:3]), json.loads(body)

    def close(self):
        for sock in self.socks:
            sock.close()
        self.socks.clear()
