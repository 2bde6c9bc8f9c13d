"""Requests that one reader could take for another's: each is refused, or handled as exactly one request. On the raw socket,
as the first request of a connection, as a later one, and sent together with the one before it. The kinds are those that
http-desync-guardian publishes (severe and ambiguous), and what RFC 9112 section 11.2 warns of. (http.md)"""
import contextlib
import json
import os
import socket
import sqlite3

from lib.case import SPEAKER, ServerCase
from lib.wire import Wire

CHANNEL = "web:desync"
IGNORED = {"author_is_bot": True, "integration": False, "is_direct": False, "mentions_bot": True, "replies_to_bot": False}
# Answered without a container; nine bytes of it would be a request line of their own.
BODY = json.dumps({"channel": CHANNEL, "speaker": SPEAKER, "text": "hello", "origin": IGNORED}).encode()
GOOD = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-Id: good\r\n\r\n"
# Stands behind each refused request; whoever answers it took the end of one request for the beginning of another.
HIDDEN = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-Id: hidden\r\n\r\n"
KEY = b"@KEY@"  # put in when the server runs
N = b"%d" % len(BODY)


def get(*lines, target=b"/livez", version=b"HTTP/1.1", method=b"GET", host=b"Host: x\r\n"):
    return method + b" " + target + b" " + version + b"\r\n" + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(*lines, body=BODY, version=b"HTTP/1.1", end=b"\r\n"):
    head = [b"Host: x", b"Authorization: Bearer " + KEY, b"Content-Type: application/json", *lines]
    return b"POST /v1/turns " + version + end + b"".join(line + end for line in head) + end + body


def chunked(body, *lines):
    return post(b"Transfer-Encoding: chunked", *lines, body=body)


def chunk(data, size=None, end=b"\r\n"):
    return (b"%x" % len(data) if size is None else size) + end + data + end


LAST = b"0\r\n\r\n"
CHUNKS = chunk(BODY[:20]) + chunk(BODY[20:]) + LAST
CL, TE, TE_CHUNKED = b"Content-Length: ", b"Transfer-Encoding: ", b"Transfer-Encoding: chunked"

# Refused with 400.
REFUSED = {
    # Lengths
    "two lengths": post(CL + b"1000", CL + b"100"),
    "the same length twice": post(CL + N, CL + N),
    "two lengths, one of them right": post(CL + N, CL + b"0"),
    "a list of equal lengths": post(CL + N + b"," + N),
    "a list of lengths with a blank": post(CL + N + b", " + N),
    "lengths with a blank between": post(CL + N + b" " + N),
    "a length with a fraction": post(CL + N + b".0"),
    "a length beyond 64 bits": post(CL + b"18446744073709551616"),
    "a length that wraps to a right one": post(CL + b"%d" % (2**64 + len(BODY))),
    "a length of a thousand digits": post(CL + b"0" * 1000 + N),
    "a length with a sign": post(CL + b"+" + N),
    "a negative length": post(CL + b"-1"),
    "a blank behind a length": post(CL + N + b" "),
    "a length in hex": post(CL + b"0x" + b"%x" % len(BODY)),
    "an empty length": post(CL),
    "a length and a control byte": post(CL + N + b"\x11"),
    "a length behind a form feed": post(b"Content-Length:\x0c" + N),
    "a length in letters": post(CL + b"ten"),
    "a length in wide digits": post(CL + "１２".encode()),
    # Codings
    "length and chunked": post(CL + N, TE_CHUNKED, body=CHUNKS),
    "chunked and length": post(TE_CHUNKED, CL + N, body=CHUNKS),
    "chunked and length 0": post(TE_CHUNKED, CL + b"0", body=CHUNKS),
    "length and identity": post(CL + N, TE + b"identity"),
    "length and gzip": post(TE + b"gzip", CL + N),
    "an unknown coding": post(TE + b"xchunked", body=CHUNKS),
    "a coding and a control byte": post(TE + b"chunked\x11", body=CHUNKS),
    "a coding behind a vertical tab": post(b"Transfer-Encoding:\x0bchunked", body=CHUNKS),
    "chunked twice": post(TE_CHUNKED, TE_CHUNKED, body=CHUNKS),
    "chunked twice in a list": post(TE + b"chunked,chunked", body=CHUNKS),
    "chunked, then identity": post(TE + b"chunked, identity", body=CHUNKS),
    "identity, then chunked": post(TE + b"identity", TE_CHUNKED, body=CHUNKS),
    "gzip, chunked": post(TE + b"gzip, chunked", body=CHUNKS),
    "identity": post(TE + b"identity"),
    "an empty coding": post(b"Transfer-Encoding:"),
    "a coding with a parameter": post(TE + b"chunked;q=1", body=CHUNKS),
    "a quoted coding": post(TE + b'"chunked"', body=CHUNKS),
    "a coding with a comma": post(TE + b"chunked,", body=CHUNKS),
    "chunked in HTTP/1.0": post(TE_CHUNKED, body=CHUNKS, version=b"HTTP/1.0"),
    # Names that some reader would repair
    "a blank behind the name of a length": post(b"Content-Length : 100", CL + N),
    "a tab behind the name of a length": post(b"Content-Length\t: 100", CL + N),
    "a blank behind the name of a coding": post(b"Transfer-Encoding : chunked", CL + N),
    "a tab behind the name of a coding": post(b"Transfer-Encoding\t: chunked", CL + N),
    "two codings, one with a blank": post(b"Transfer-Encoding : chunked", TE_CHUNKED, body=CHUNKS),
    "a blank in a name": post(b"Transfer- Encoding: chunked", CL + N),
    "a word behind a name": post(b"Transfer-Encoding x: chunked", CL + N),
    "a control byte before a name": post(b"\x01Transfer-Encoding: chunked", CL + N),
    "control bytes before a length": post(b"\x01\x01Content-Length: 1"),
    "a back space in a name": post(b"Transfer-Encoding\b: chunked", CL + N),
    "a long s in a name": post("Tran\u017ffer-Encoding: chunked".encode(), CL + N),
    "a dotless i in a name": post("Transfer-Encod\u0131ng: chunked".encode(), CL + N),
    "a wide dash in a name": post("Transfer\u2015Encoding: chunked".encode(), CL + N),
    "a wide blank before a name": post("\u2003Transfer-Encoding: chunked".encode(), CL + N),
    "a high byte behind a name": post(b"Transfer-Encoding\x88: chunked", CL + N),
    "a high byte before a length": post(b"\xa0Content-Length: 100"),
    "no name": post(b": chunked", CL + N),
    "a name of blanks": post(b"   \t: chunked", CL + N),
    "a colon before a name": post(b":Transfer-Encoding: chunked", CL + N),
    "no colon": post(b"Transfer-Encoding chunked", CL + N),
    # Lines that go on, end early, or hide another
    "a folded line": post(b"X-A: one\r\n two", CL + N),
    "a line folded by a tab": post(b"X-A: one\r\n\ttwo", CL + N),
    "a folded length": post(b"Content-Length:\r\n " + N),
    "a fold that hides a coding": post(b"X-A: one\r\n Transfer-Encoding: chunked", CL + N),
    "a fold at the first header": get(host=b" Host: x\r\n"),
    "a fold with a bare LF": post(b"X-A: one\n two", CL + N),
    "a fold of nothing": post(b"X-A: one\r\n ", CL + N),
    "a bare LF hides a coding": post(b"X-A: one\nTransfer-Encoding: chunked", CL + N),
    "a bare CR hides a coding": post(b"X-A: one\rTransfer-Encoding: chunked", CL + N),
    "a bare CR before the end": post(b"X-A: one\r", CL + N),
    "CR CR LF": post(b"X-A: one\r\r", CL + N),
    "a bare CR in a name": post(b"X-A\r: one", CL + N),
    "a bare LF in a name": post(b"X-A\n: one", CL + N),
    "bare LF everywhere": post(CL + N, end=b"\n"),
    "a bare LF behind the request line": b"GET /livez HTTP/1.1\nHost: x\r\n\r\n",
    "a bare LF behind a header": b"GET /livez HTTP/1.1\r\nHost: x\n\r\n",
    "a bare LF as the empty line": b"GET /livez HTTP/1.1\r\nHost: x\r\n\n",
    "a bare CR as the empty line": b"GET /livez HTTP/1.1\r\nHost: x\r\n\rX: y\r\n\r\n",
    "bare CR everywhere": b"GET /livez HTTP/1.1\rHost: x\r\r" + b"\r\n\r\n",
    # Control bytes
    "NUL in a name": post(b"X-\x00A: one", CL + N),
    "NUL in a value": post(b"X-A: o\x00ne", CL + N),
    "NUL at the start of a line": post(b"\x00X-A: one", CL + N),
    "NUL at the start of a value": post(b"X-A: \x00one", CL + N),
    "NUL at the end of a value": post(b"X-A: one\x00", CL + N),
    "NUL before the end of a coding": post(TE + b"chunked\x00", body=CHUNKS),
    "an escape byte in a value": post(b"X-A: \x1b[31m", CL + N),
    "DEL in a value": post(b"X-A: \x7f", CL + N),
    "NUL in the method": get(method=b"GE\x00T"),
    "NUL in the target": get(target=b"/livez\x00/x"),
    "CR in the target": get(target=b"/livez\rx"),
    "a tab in the request line": get(method=b"GET\t"),
    "a control byte in the method": get(method=b"bad_method\x01"),
    "no token as the method": get(method=b"GE(T"),
    "a blank before the method": get(method=b" GET"),
    # Versions
    "HTTP/0.9": b"GET /livez\r\n\r\n",
    "HTTP/0.9 with headers": b"GET /livez\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
    "HTTP/0.9, said": get(version=b"HTTP/0.9"),
    "an empty version": get(version=b""),
    "HTTP/1.2": get(version=b"HTTP/1.2"),
    "HTTP/2": get(version=b"HTTP/2"),
    "HTTP/2.0": get(version=b"HTTP/2.0"),
    "HTTP/1.10": get(version=b"HTTP/1.10"),
    "HTTP/01.1": get(version=b"HTTP/01.1"),
    "HTTP/ 1.1": get(version=b"HTTP/ 1.1"),
    "http/1.1": get(version=b"http/1.1"),
    "ICAP": get(version=b"ICAP/1.0"),
    "a blank behind the version": get(version=b"HTTP/1.1 "),
    "a word behind the version": get(version=b"HTTP/1.1 x"),
    "two blanks before the version": get(target=b"/livez "),
    "two blanks before the target": get(target=b" /livez"),
    # Other protocols
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "the PROXY protocol": b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + GOOD,
    "a status line": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "SMTP": b"EHLO x\r\n\r\n",
    # Hosts
    "no host": get(host=b""),
    "two hosts": get(b"Host: y"),
    "the same host twice": get(b"Host: x"),
    "two hosts, one in capitals": get(b"HOST: y"),
    "a host with a blank behind its name": get(host=b"Host : x\r\n"),
    # Headers that may come once
    "two keys": get(b"Authorization: Bearer a", b"Authorization: Bearer b"),
    "two types": post(b"Content-Type: text/plain", CL + N),
    "two expectations": post(b"Expect: 100-continue", b"Expect: 100-continue", CL + N),
    # Targets
    "a target of no slash": get(target=b"livez"),
    "a host and port as the target": get(target=b"x:80"),
    "CONNECT": get(method=b"CONNECT", target=b"x:80"),
    "a star for GET": get(target=b"*"),
    "a foreign scheme": get(target=b"ftp://x/livez"),
    "a blank in the target": get(target=b"/livez x"),
    "a fragment": get(target=b"/livez#x"),
    "a backslash": get(target=b"/\\livez"),
    "a high byte in the target": get(target=b"/livez\xff"),
    "an escape in the target": get(target=b"/livez\x1b"),
    "an unknown parameter": get(target=b"/livez?x=1"),
}
# Handled as exactly one request: (status, request). What lies behind it is not answered when it came together with it, and
# is a request of its own when it came after the answer.
ONE = {
    "a good one": (200, get()),
    "blank lines before it": (200, b"\r\n\r\n" + get()),
    "a right length": (200, post(CL + N)),
    "a length behind blanks": (200, post(b"Content-Length: \t " + N)),
    "a length with zeros before it": (200, post(CL + b"00" + N)),
    "a coding that is only similar": (200, post(b"Transfer_Encoding: chunked", CL + N)),
    "a length that is only similar": (200, post(b"Content_Length: 5", CL + N)),
    "a name with many dashes": (200, post(b"Transfer---Encoding: chunked", CL + N)),
    "a coding of responses": (200, post(b"TE: chunked", CL + N)),
    "no length, no body": (400, post(body=b"")),
    "a length of 0": (400, post(CL + b"0", body=b"")),
    "a length of 0 for GET": (200, get(CL + b"0")),
    "the target in its absolute form": (200, get(target=b"http://x/livez")),
    "an absolute form of another host": (200, get(target=b"http://y/livez")),
    "an empty host": (200, get(host=b"Host:\r\n")),
    "a method of its own": (405, get(method=b"GETX")),
    "a method in small letters": (405, get(method=b"get")),
    "TRACE": (405, get(method=b"TRACE")),
    "a star": (204, get(method=b"OPTIONS", target=b"*")),
    "a foreign protocol to change to": (200, get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                                                 b"HTTP2-Settings: AAMAAABkAAQAAP__")),
    "a web socket": (200, get(b"Connection: Upgrade", b"Upgrade: websocket")),
    "a slash as %2F": (404, get(target=b"/v1%2Fchannels")),
    "a slash as %2F before a name": (404, get(target=b"/%2Flivez")),
    "a letter as %6C": (404, get(target=b"/%6Civez")),
    "a dot as %2E": (404, get(target=b"/%2E/livez")),
    "a parent": (404, get(target=b"/v1/../livez")),
    "a parent as %2E%2E": (404, get(target=b"/v1/%2e%2e/livez")),
    "two slashes": (404, get(target=b"//livez")),
    "a slash behind it": (404, get(target=b"/livez/")),
    "%00 behind a name": (404, get(target=b"/livez%00")),
    "%00 and a tail": (404, get(target=b"/livez%00.txt")),
    "%0D%0A in a name": (404, get(target=b"/livez%0D%0AX-A:%20b")),
    "%00 in a parameter": (400, get(b"Authorization: Bearer " + KEY, target=b"/v1/channels/web:a%00b")),
    "half an escape": (400, get(b"Authorization: Bearer " + KEY, target=b"/v1/channels/web:a%2")),
    "no escape": (400, get(b"Authorization: Bearer " + KEY, target=b"/v1/channels/web:a%zz")),
    "UTF-8 of too many bytes": (400, get(b"Authorization: Bearer " + KEY, target=b"/v1/channels/web:a%c0%af")),
    "a body where none is taken": (413, get(CL + b"%d" % len(HIDDEN)) + HIDDEN),
    "a chunked body where none is taken": (413, get(TE_CHUNKED) + chunk(HIDDEN) + LAST),
    "a type that is none": (415, post(b"Content-Encoding: gzip", CL + N)),
    "HTTP/1.0": (200, get(version=b"HTTP/1.0", host=b"")),
    "HTTP/1.0 that would stay": (200, get(b"Connection: keep-alive", version=b"HTTP/1.0")),
}
# Bodies in chunks: (status, request, turns that are stored). The connection ends with each of them, since what is chunked
# for one reader need not be for another.
CHUNKED = {
    "two chunks": (200, chunked(CHUNKS), 1),
    "a coding in capitals": (200, post(TE + b"CHUNKED", body=CHUNKS), 1),
    "chunks of one byte": (200, chunked(b"".join(chunk(bytes([c])) for c in BODY) + LAST), 1),
    "sizes with zeros before them": (200, chunked(chunk(BODY, b"0" * 200 + b"%x" % len(BODY)) + LAST), 1),
    "sizes in capitals": (200, chunked(chunk(BODY, b"%X" % len(BODY)) + LAST), 1),
    "an extension": (200, chunked(chunk(BODY, b"%x;a=b" % len(BODY)) + LAST), 1),
    "an extension at the end": (200, chunked(chunk(BODY) + b"0;a=\"b\"\r\n\r\n"), 1),
    "a trailer": (200, chunked(chunk(BODY) + b"0\r\nX-A: b\r\n\r\n"), 1),
    "a trailer that would be a length": (200, chunked(chunk(BODY) + b"0\r\nContent-Length: 5\r\n\r\n"), 1),
    "a request in a chunk": (400, chunked(chunk(HIDDEN) + LAST), 0),
    "no chunk but the last": (400, chunked(LAST), 0),
    "no size": (400, chunked(b"\r\n" + BODY), 0),
    "a size in letters": (400, chunked(chunk(BODY, b"ten")), 0),
    "a size with 0x": (400, chunked(chunk(BODY, b"0x%x" % len(BODY))), 0),
    "a size with a sign": (400, chunked(chunk(BODY, b"+%x" % len(BODY))), 0),
    "a negative size": (400, chunked(chunk(BODY, b"-1")), 0),
    "a size behind a blank": (400, chunked(chunk(BODY, b" %x" % len(BODY))), 0),
    "a blank behind a size": (400, chunked(chunk(BODY, b"%x " % len(BODY))), 0),
    "two sizes": (400, chunked(chunk(BODY, b"%x %x" % (len(BODY), len(BODY)))), 0),
    "a size of 65 bits": (413, chunked(chunk(BODY, b"1%016x" % len(BODY))), 0),
    "a size beyond all": (413, chunked(chunk(BODY, b"f" * 200)), 0),
    "a size of 64 bits": (413, chunked(chunk(BODY, b"f" * 16) + b"x" * (1 << 20)), 0),
    "more than its size": (400, chunked(chunk(BODY, b"%x" % (len(BODY) - 2)) + LAST), 0),
    "no line end behind a chunk": (400, chunked(b"%x\r\n" % len(BODY) + BODY + LAST), 0),
    "rubbish behind a chunk": (400, chunked(chunk(BODY) + b"rubbish\r\n"), 0),
    "a line of nothing": (400, chunked(chunk(BODY) + b"\r\n" + LAST), 0),
    "a size without an end": (400, chunked(b"5;" + b"x" * 100_000), 0),
    "a trailer without an end": (431, chunked(chunk(BODY) + b"0\r\nX-A: " + b"x" * 100_000), 0),
    "a trailer that is none": (400, chunked(chunk(BODY) + b"0\r\nrubbish\r\n\r\n"), 0),
}


# Of those refused: their head is sound, and their end beyond doubt, so that the connection goes on.
SOUND = {"a target of no slash", "a host and port as the target", "CONNECT", "a star for GET", "a foreign scheme", "a fragment",
         "a backslash", "a high byte in the target", "an unknown parameter"}
# Larger than any head may be, or of more parts; nothing of them is kept.
MEGABYTES = 10 << 20
HUGE = {
    "one header": (431, b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * MEGABYTES + b"\r\n\r\n"),
    "many headers": (431, b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"X-A: a\r\n" * (MEGABYTES // 8) + b"\r\n"),
    "a header's name": (431, b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"a" * MEGABYTES + b": b\r\n\r\n"),
    "the target": (431, b"GET /" + b"a" * MEGABYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    "the method": (431, b"A" * MEGABYTES + b" / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "blank lines": (431, b"\r\n" * (MEGABYTES // 2) + get()),
    "NUL": (431, b"\0" * MEGABYTES),
    "a head just too large": (431, get(b"X-A: " + b"a" * 16384)),
    "a target just too long": (414, get(target=b"/" + b"a" * 4096)),
    # Small, but of many parts, and each of them takes memory of its own.
    "one header too many": (431, get(*[b"a:b"] * 100)),
    "headers of four bytes": (431, get(*[b"a:"] * 3000)),
    "one parameter too many": (400, get(target=b"/livez?" + b"&".join([b"a"] * 17))),
    "parameters of one byte": (400, get(target=b"/livez?" + b"a&" * 2000)),
    "parameters of nothing": (400, get(target=b"/livez?" + b"&" * 4000)),
    "one cookie too many": (431, get(b"Cookie: " + b"; ".join([b"a=b"] * 33))),
    "cookies of nothing": (431, get(b"Cookie: " + b";" * 15000)),
    "a cookie just too long": (431, get(b"Cookie:" + b"a" * 4097)),
}
# As many parts as may be.
MANY = {
    "headers": (200, get(*[b"a:b"] * 99)),
    "parameters": (400, get(target=b"/livez?" + b"&".join([b"a"] * 16))),
    "cookies": (200, get(b"Cookie: " + b"; ".join([b"a=b"] * 32))),
    "a long cookie": (200, get(b"Cookie:" + b"a" * 4096)),
}
# The client's half of the connection ends in the middle.
CUT_HEADS = {
    "the request line": get()[:10],
    "the headers": get()[:-2],
    "a header": b"GET /livez HTTP/1.1\r\nHo",
}
CUT_BODIES = {
    "before the body": post(CL + N, body=b""),
    "the body": post(CL + N, body=BODY[:-1]),
    "a chunk's size": chunked(b"%x" % len(BODY)),
    "a chunk": chunked(chunk(BODY)[:-5]),
    "before the last chunk": chunked(chunk(BODY)),
    "the last chunk": chunked(chunk(BODY) + b"0\r\n"),
    "a trailer": chunked(chunk(BODY) + b"0\r\nX-A: b"),
}


class Desync(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key("desync")
        cls.server.channel_on(CHANNEL)

    def turns(self):
        with sqlite3.connect(f"file:{self.server.root}/state/cloister.db?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM turns").fetchone()[0]

    @contextlib.contextmanager
    def wire(self, name, stored=0):
        """A connection for one case, which stores so many turns."""
        before = self.turns()
        with self.subTest(name), Wire(self.server.port) as wire:
            yield wire
            self.assertEqual(self.turns() - before, stored, "turns stored")

    def send(self, wire, data):
        wire.send(data.replace(KEY, self.key.encode()))

    def greet(self, wire):
        """A good request and its answer, after which the connection goes on."""
        wire.send(GOOD)
        self.is_good(wire.reply())

    def is_good(self, reply):
        self.assertEqual((reply.status, reply.headers.get("x-request-id")), (200, "good"), reply)
        self.assertNotIn("connection", reply.headers)

    def is_refusal(self, reply, status):
        """One of our own problem documents, after which the connection ends."""
        self.assertEqual(reply.status, status, reply)
        self.assertEqual(reply.headers["content-type"], "application/problem+json")
        self.assertEqual(reply.json["status"], status)
        self.assertRegex(reply.headers["x-request-id"], "^req_")
        self.assertEqual(reply.headers["connection"], "close")

    def only(self, wire):
        """The answer that is the only one, the end of the stream behind it."""
        replies = wire.replies()
        self.assertEqual(len(replies), 1, replies)
        return replies[0]


class Refused(Desync):
    """What is no request, or could be read as more than one: 400, and nothing behind it is read."""

    def test_first(self):
        for name, data in REFUSED.items():
            with self.wire(name) as wire:
                self.send(wire, data + HIDDEN)
                self.is_refusal(self.only(wire), 400)

    def test_later(self):
        for name, data in REFUSED.items():
            with self.wire(name) as wire:
                self.greet(wire)
                self.greet(wire)
                self.send(wire, data + HIDDEN)
                self.is_refusal(self.only(wire), 400)

    def test_together(self):
        """Sent together with a good one: that is answered, and nothing else is read."""
        for name, data in REFUSED.items():
            with self.wire(name) as wire:
                self.send(wire, GOOD + data + HIDDEN)
                reply = self.only(wire)
                self.assertEqual((reply.status, reply.headers["x-request-id"]), (200, "good"), reply)
                self.assertEqual(reply.headers["connection"], "close")

    def test_behind_a_body(self):
        """Behind a body, its end given by its length or by chunks."""
        for name, data in REFUSED.items():
            for body in (post(CL + N), chunked(CHUNKS)):
                with self.wire(name, stored=1) as wire:
                    self.send(wire, body + data + HIDDEN)
                    self.assertEqual(self.only(wire).status, 200)

    def test_byte_by_byte(self):
        for name, data in REFUSED.items():
            if len(data) < 500:
                with self.wire(name) as wire:
                    for byte in data.replace(KEY, self.key.encode()):
                        wire.send(bytes([byte]))
                    if name in SOUND:
                        self.assertEqual(wire.reply().status, 400)
                        self.greet(wire)
                    else:
                        self.is_refusal(self.only(wire), 400)

    def test_huge_heads(self):
        for name, (status, data) in HUGE.items():
            for first in (True, False):
                with self.wire(name) as wire:
                    if not first:
                        self.greet(wire)
                    wire.send(data)
                    self.is_refusal(wire.reply(), status)
                    self.assertIsNone(wire.reply())
        self.assertLess(self.server.memory_kib("VmHWM"), 64 * 1024 if not os.environ.get("CLOISTER_SANITIZED") else 1 << 20)

    def test_other_protocols(self):
        hello = bytes.fromhex("16030100a5010000a10303") + bytes(range(154))
        for name, data in {"TLS": hello, "SSH": b"SSH-2.0-x\r\n", "SOCKS": b"\x05\x01\x00", "rubbish": bytes(range(256))}.items():
            for first in (True, False):
                with self.wire(name) as wire:
                    if not first:
                        self.greet(wire)
                    wire.send(data).half_close()
                    self.is_refusal(self.only(wire), 400)

    def test_heads_that_break_off(self):
        for name, data in CUT_HEADS.items():
            for first in (True, False):
                with self.wire(name) as wire:
                    if not first:
                        self.greet(wire)
                    wire.send(data).half_close()
                    self.is_refusal(self.only(wire), 400)

    def test_bodies_that_break_off(self):
        """The connection is gone before they end: none is run."""
        for first in (True, False):
            for name, data in CUT_BODIES.items():
                with self.wire(name) as wire:
                    if not first:
                        self.greet(wire)
                    self.send(wire, data)
                    wire.sock.close()
        with self.wire("a whole one", stored=1) as wire:
            self.send(wire, post(CL + N))
            self.assertEqual(wire.reply().status, 200)


class One(Desync):
    """What is sound is one request and no more."""

    def test_alone(self):
        """A request behind it, once it is answered, is answered for itself."""
        for name, (status, data) in ONE.items():
            stored = int(status == 200 and b"POST" in data)
            for first in (True, False):
                with self.wire(name, stored) as wire:
                    if not first:
                        self.greet(wire)
                    self.send(wire, data)
                    reply = wire.reply()
                    self.assertEqual(reply.status, status, reply)
                    if reply.headers.get("connection") == "close":
                        self.assertIsNone(wire.reply())
                    else:
                        self.greet(wire)
                        self.greet(wire)

    def test_together(self):
        """What came together with it is not looked at."""
        for name, (status, data) in ONE.items():
            stored = int(status == 200 and b"POST" in data)
            with self.wire(name, stored) as wire:
                self.send(wire, data + HIDDEN)
                reply = self.only(wire)
                self.assertEqual((reply.status, reply.headers["connection"]), (status, "close"), reply)

    def test_byte_by_byte(self):
        for name, (status, data) in ONE.items():
            with self.wire(name, int(status == 200 and b"POST" in data)) as wire:
                for byte in data.replace(KEY, self.key.encode()):
                    wire.send(bytes([byte]))
                self.assertEqual(wire.reply().status, status)

    def test_chunked(self):
        for name, (status, data, stored) in CHUNKED.items():
            for first in (True, False):
                with self.wire(name, stored) as wire:
                    if not first:
                        self.greet(wire)
                    self.send(wire, data + HIDDEN)
                    reply = self.only(wire)
                    self.assertEqual((reply.status, reply.headers["connection"]), (status, "close"), reply)
                    if status != 200:
                        self.assertEqual(reply.headers["content-type"], "application/problem+json", reply)

    def test_pipelines(self):
        """The first of them is answered; the client asks again for the others. (RFC 9112 section 9.3.2)"""
        with self.wire("three") as wire:
            wire.send(GOOD * 3)
            reply = self.only(wire)
            self.assertEqual((reply.status, reply.headers["connection"]), (200, "close"))
        with self.wire("while the first one runs", stored=1) as wire:
            body = json.dumps({"channel": CHANNEL, "speaker": SPEAKER, "text": "/sleep 300\nslept"}).encode()
            self.send(wire, post(CL + b"%d" % len(body), body=body))
            wire.send(HIDDEN)
            reply = wire.reply()
            self.assertEqual((reply.status, reply.json["status"]), (200, "succeeded"), reply)
            following = wire.reply()  # it lay in the socket, or with the library
            self.assertTrue(following is None or following.headers["x-request-id"] == "hidden", following)

    def test_many_parts(self):
        for name, (status, data) in MANY.items():
            with self.wire(name) as wire:
                self.greet(wire)
                wire.send(data)
                self.assertEqual(wire.reply().status, status)
                self.greet(wire)

    def test_a_long_connection(self):
        with self.wire("reads and turns", stored=20) as wire:
            for _ in range(20):
                self.send(wire, post(CL + N))
                self.assertEqual(wire.reply().json["status"], "ignored")
                self.greet(wire)

    def test_urgent_data(self):
        """A byte beside the stream belongs to no request; the connection ends with it, or with the one behind it."""
        with self.wire("urgent") as wire:
            self.greet(wire)
            wire.sock.send(b"!", socket.MSG_OOB)
            wire.send(GOOD)
            self.assertLessEqual([reply.headers["connection"] for reply in wire.replies()], ["close"])
