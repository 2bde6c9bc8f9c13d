"""Stands between a server and its engine, on a Unix socket of its own: passes everything on until told otherwise."""
import contextlib
import os
import re
import socket
import threading


class EngineProxy:
    """`path` is what the server gets as its engine_socket. cut() loses the engine, mend() brings it back; refuse_creates makes
    the engine answer 500 to every container that is asked for; warn_creates puts a warning into every answer to one."""

    def __init__(self, engine, path, group):
        self.engine, self.path, self.group = engine, str(path), group
        self.refuse_creates = self.warn_creates = False
        self.warned = 0  # creates that were answered with a warning
        self.lock = threading.Lock()
        self.open, self.listener = set(), None
        self.mend()

    def mend(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        os.chown(self.path, 0, self.group)
        os.chmod(self.path, 0o660)
        self.listener.listen(64)
        threading.Thread(target=self.accept, args=[self.listener], daemon=True).start()

    def cut(self):
        """As if the engine had died: its socket is there, nobody answers, and what was open ends."""
        with self.lock:
            self.close(self.listener)
            for sock in self.open:
                self.close(sock)
            self.open = set()
        os.unlink(self.path)

    @staticmethod
    def close(sock):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(self.engine.socket)
            except OSError:
                return
            with self.lock:
                if listener is not self.listener or listener.fileno() < 0:
                    self.close(client)
                    self.close(upstream)
                    return
                self.open |= {client, upstream}
            for ends in (client, upstream, True), (upstream, client, False):
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    def warn(self, data):
        """The answer to a create, with a warning in place of none."""
        head, _, body = data.partition(b"\r\n\r\n")
        body, found = re.subn(rb'"Warnings":(\[\]|null)', b'"Warnings":["a limit was discarded"]', body)
        if not found:
            return data
        self.warned += 1
        head = re.sub(rb"(?i)(content-length: )\d+", lambda match: match[1] + str(len(body)).encode(), head)
        return head + b"\r\n\r\n" + body

    def pump(self, source, target, asks):
        """One direction; a half-close is passed on, since stdin's end is one."""
        try:
            while data := source.recv(65536):
                if asks and self.refuse_creates and data.startswith(b"POST ") and b"/containers/create?" in data[:200]:
                    source.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
                                   b"Content-Length: 24\r\n\r\n" b'{"message":"the secret"}')
                    continue
                target.sendall(self.warn(data) if self.warn_creates and data.startswith(b"HTTP/1.1 201 ") else data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            self.close(source)
            self.close(target)
