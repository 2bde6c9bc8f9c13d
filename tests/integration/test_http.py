"""The HTTP front: problem documents for everything, raw paths, request ids, and clients that do not speak HTTP as agreed.
(http.md)"""
import json
import re
import socket
import time
import urllib.parse

from lib.case import SPEAKER, ServerCase
from lib.http import poll, raw
from lib.routes import openapi, openapi_routes, route_table

CHANNEL = "web:http"
HEAD_MS, HEAD_BYTES, TARGET_BYTES = 10_000, 16 * 1024, 4096


class HttpCase(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key()
        cls.server.channel_on(CHANNEL)

    def get(self, path, method="GET", body=None, key=None, **headers):
        return self.server.call(method, path, body, key or self.key,
                                {name.replace("_", "-"): value for name, value in headers.items()})

    def send(self, data, seconds=10, half_close=True, closes=True):
        """All that comes back on a connection of its own, as [(status, head, body)]; the server must have closed it, unless
        the request is one whose rest it may wait for (closes=False)."""
        data = data if isinstance(data, bytes) else data.encode()
        began = time.monotonic()
        got = raw(self.server.port, data, seconds if closes else 2, half_close)
        if closes:
            self.assertLess(time.monotonic() - began, seconds, f"the connection stays open after {data[:200]!r}: {got!r}")
        answers = []
        while got:
            head, _, rest = got.partition(b"\r\n\r\n")
            self.assertRegex(head, rb"^HTTP/1\.1 \d{3} ")
            status = int(head[9:12])
            length = re.search(rb"(?im)^content-length: (\d+)\r?$", head)
            length = int(length.group(1)) if length else 0
            if status >= 200:
                answers.append((status, head.decode(), rest[:length]))
            got = rest[length if status >= 200 else 0:]
        return answers

    def request(self, line="GET /v1/channels HTTP/1.1", headers=(), body=""):
        return "\r\n".join([line, "Host: x", f"Authorization: Bearer {self.key}", *headers, "", body])


class Problems(HttpCase):
    def test_not_found(self):
        for path in ("/", "/v1", "/v2/turns", "/v1/turn", "/v1/turns/", "/v1/channels/", "/v1/channels/a/b/c", "/favicon.ico",
                     f"/v1/channels/{CHANNEL}/", f"/v1/channels/{CHANNEL}/pause", "/metrics", "/admin"):
            self.problem(self.get(path), 404, "not_found")
            self.problem(self.server.call("GET", path), 404, "not_found")

    def test_method_not_allowed(self):
        known = {}
        for method, path in route_table()[0]:
            known.setdefault(path, set()).add(method)
        for path, methods in known.items():
            allow = methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())
            real = path.replace("{key}", CHANNEL).replace("{id}", "turn_" + "0" * 32)
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "get"):
                if method in allow:
                    continue
                with self.subTest(method=method, path=path):
                    answer = self.get(real, method)
                    self.assertEqual(answer.status, 405, answer)
                    self.assertEqual(set(re.split(r",\s*", answer.headers["allow"])), allow)
                    if method != "HEAD":
                        self.problem(answer, 405, "method_not_allowed")

    def test_options(self):
        known = {}
        for method, path in route_table()[0]:
            known.setdefault(path, set()).add(method)
        for path, methods in known.items():
            real = path.replace("{key}", CHANNEL).replace("{id}", "x")
            answer = self.server.call("OPTIONS", real)
            self.assertEqual((answer.status, answer.body), (204, b""))
            self.assertEqual(set(re.split(r",\s*", answer.headers["allow"])),
                             methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set()))
        self.problem(self.server.call("OPTIONS", "/nowhere"), 404, "not_found")
        self.assertEqual(self.server.call("OPTIONS", "*").status, 204)

    def test_head(self):
        for path in ("/livez", "/readyz", "/openapi.yaml", "/v1/channels", f"/v1/channels/{CHANNEL}", "/nowhere", "/v1/channels?x=1"):
            get, head = self.get(path), self.get(path, "HEAD")
            self.assertEqual((head.status, head.body), (get.status, b""), path)
            for name in ("content-type", "content-length", "etag", "cache-control"):
                self.assertEqual(head.headers.get(name), get.headers.get(name), (path, name))

    def test_bodies(self):
        path = f"/v1/channels/{CHANNEL}"
        self.problem(self.get(path, "PUT", b" " * 16385), 413, "body_too_large")
        self.ok(self.get(path, "PUT", b'{"enabled": true}' + b" " * (16384 - 17)))
        self.problem(self.get(path, "PUT", {"enabled": True}, Content_Type="text/plain"), 415, "unsupported_media_type")
        self.problem(self.get(path, "PUT", {"enabled": True}, Content_Encoding="br"), 415, "unsupported_media_type")
        self.problem(self.get(path, "PUT"), 400, "invalid_json")
        for method, where in (("GET", path), ("GET", "/livez"), ("DELETE", path), ("POST", f"{path}/reset")):
            self.problem(self.get(where, method, b"{}"), 413, "body_too_large")
        self.assertTrue(self.ok(self.get(path))["enabled"])

    def test_refused_before_the_body(self):
        """A client that asks first is told without sending it."""
        head = ["Content-Type: application/json", "Content-Length: 20", "Expect: 100-continue"]
        ((status, _, _),) = self.send(self.request("POST /v1/nowhere HTTP/1.1", head), half_close=False)
        self.assertEqual(status, 404)
        text = self.request("POST /v1/turns HTTP/1.1", head).replace(self.key, "clo_x")
        ((status, _, _),) = self.send(text, half_close=False)
        self.assertEqual(status, 401)

    def test_heads(self):
        answer = self.get("/livez", X_Long="y" * (HEAD_BYTES + 1))
        self.problem(answer, 431, "head_too_large")
        with self.subTest("many lines"):
            lines = [f"X-{i}: {'y' * 50}" for i in range(1000)]
            ((status, head, body),) = self.send(self.request("GET /livez HTTP/1.1", lines))
            self.assertEqual((status, json.loads(body)["code"]), (431, "head_too_large"))
            self.assertIn("application/problem+json", head)
        self.assertEqual(self.get("/livez", X_Long="y" * (HEAD_BYTES - 1000)).status, 200)

    def test_targets(self):
        self.problem(self.get("/livez?" + "x" * TARGET_BYTES), 414, "uri_too_long")
        self.problem(self.get("/" + "x" * (TARGET_BYTES - 1)), 404, "not_found")

    def test_a_head_of_ten_megabytes(self):
        """Is refused by its first part; the client may not even be able to send the rest."""
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as sock:
            got = b""
            try:
                for _ in range(160):
                    sock.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " if not got else b"")
                    sock.sendall(b"y" * 65536)
            except OSError:
                pass
            try:
                got = sock.recv(4096)
            except OSError:
                pass
        self.assertTrue(not got or got.startswith(b"HTTP/1.1 431 "), got)
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual(self.get("/livez").status, 200)

    def test_the_connection_goes_on_after_an_error(self):
        with self.server.client(self.key) as client:
            for path, status in (("/nowhere", 404), ("/livez", 200), ("/v1/channels?x=1", 400), ("/livez", 200)):
                self.assertEqual(client.call("GET", path).status, status)
            self.problem(client.call("POST", "/v1/turns", b" " * 400_000), 413, "body_too_large")
            self.assertEqual(client.call("GET", "/livez").status, 200)

    def test_headers_of_every_answer(self):
        for path in ("/livez", "/nowhere", "/v1/channels", "/v1/channels?x=1", "/openapi.yaml"):
            headers = self.get(path).headers
            self.assertEqual(headers["x-content-type-options"], "nosniff")
            self.assertIn("x-request-id", headers)
        self.assertEqual(self.get("/v1/channels").headers["cache-control"], "no-store")


class Paths(HttpCase):
    """The path is routed as it was sent; a percent-encoded slash is no slash."""

    def test_encoded_channel_keys(self):
        for channel in ("web:a/b", "web:%", "web:a%2Fb", "web:é ü", "web:..", "web:?#&=+;", "web:\U0001F980", "web:/"):
            quoted = urllib.parse.quote(channel, safe="")
            self.assertEqual(self.get(f"/v1/channels/{quoted}", "PUT", {"enabled": True}).json["key"], channel)
            self.assertEqual(self.get(f"/v1/channels/{quoted}/reset", "POST").json["key"], channel)
        self.assertEqual(self.get(f"/v1/channels/{CHANNEL.replace('h', '%68')}").json["key"], CHANNEL)
        self.assertEqual(self.get("/v1/channels/web:a+b", "PUT", {"enabled": True}).json["key"], "web:a+b")

    def test_a_slash_is_a_slash(self):
        for path in ("/v1/channels/web:a/b", "//v1/channels", "/v1//channels", "/v1/channels//reset", "/v1%2Fchannels",
                     "/v1/./channels", "/v1/../v1/channels", "/v1/channels/..", "/%761/channels", "/v1/channel%73", "/V1/channels",
                     "/v1/channels%00", "/v1/channels;x=1", "/v1/channels/web:a%2Freset", "/livez/", "/livez%20", "/livez."):
            answer = self.get(path)
            self.assertIn(answer.status, (400, 404, 422), path)
            self.problem(answer, answer.status, {400: "bad_request", 404: "not_found", 422: "invalid"}[answer.status])

    def test_what_no_path_holds(self):
        for path in ("/v1/channels/web:%00", "/v1/channels/web:a%00b", "/v1/channels/%", "/v1/channels/web:%4", "/v1/channels/web:%zz",
                     "/v1/channels/web:%ff", "/v1/channels/web:%c3%28", "/v1/channels/web:%ed%a0%80", "/v1/turns/%00"):
            self.problem(self.get(path), 400, "bad_request")
        for target in ("/v1/channels#x", "/v1/\"x", "/v1/<x", "/v1/\\x", "/v1/{key}", "/é", "v1/channels", "livez", "*", "?x"):
            answers = self.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            self.assertEqual([status for status, _, _ in answers], [400], target)
            self.assertEqual(json.loads(answers[0][2])["code"], "bad_request")

    def test_queries(self):
        for path in ("/livez?x", "/readyz?x=1", "/v1/channels?limit=1&x=1", f"/v1/channels/{CHANNEL}?a", "/openapi.yaml?raw=1",
                     "/v1/channels?limit=1&limit=1", "/v1/channels?limi%74=1&limit=1", "/v1/channels?%00=1", "/v1/channels?%ff"):
            self.problem(self.get(path), 400, "bad_request")
        self.assertEqual(self.get("/livez?").status, 200)
        self.assertEqual(self.get("/v1/channels?limi%74=%31").status, 200)

    def test_absolute_form(self):
        answers = self.send("GET http://any.example/livez HTTP/1.1\r\nHost: any.example\r\n\r\n")
        self.assertEqual([status for status, _, _ in answers], [200])


class Ids(HttpCase):
    def test_request_id(self):
        for given in ("a", "A-z_0.9", "x" * 128):
            for path in ("/livez", "/nowhere", "/v1/channels"):
                self.assertEqual(self.get(path, X_Request_Id=given).headers["x-request-id"], given)
        made = set()
        for given in (None, "", "x" * 129, "a b", "é", "a/b", "<x>", "a,b"):
            value = self.get("/livez", **({} if given is None else {"X_Request_Id": given})).headers["x-request-id"]
            self.assertRegex(value, r"^req_[0-9a-f]{32}$")
            made.add(value)
        self.assertEqual(len(made), 8)

    def test_two_request_ids_are_refused(self):
        answers = self.send(self.request(headers=["X-Request-Id: a", "X-Request-Id: b"]))
        self.assertEqual([status for status, _, _ in answers], [400])

    def line(self, answer):
        """The one line that the log has for an answer."""
        found = poll(lambda: [line for line in self.server.log_lines() if line.get("id") == answer], 5, f"{answer} is logged")
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_ids_are_logged(self):
        """With what the request was, and nothing of what it said."""
        longest = "L" * 128
        for path, status, line in ((f"/v1/channels/{CHANNEL}", 200, r"GET /v1/channels/\{key\} 200, \d+ ms"),
                                   ("/v1/channels/web:none", 404, r"GET /v1/channels/\{key\} 404, \d+ ms"),
                                   ("/nowhere-at-all", 404, r"GET \(no route\) 404, \d+ ms"),
                                   ("/v1/channels?unheard=of", 400, r"GET /v1/channels 400, \d+ ms")):
            answer = self.get(path)
            self.assertEqual(answer.status, status)
            self.assertRegex(self.line(answer.headers["x-request-id"])["msg"], f"^{line}$")
        self.assertEqual(self.get("/livez", X_Request_Id=longest).status, 200)
        self.assertRegex(self.line(longest)["msg"], r"^GET /livez 200, \d+ ms$")
        for data, status in ((self.request(headers=["Host: y"]), 400), (self.request("GET /livez HTTP/9"), 400),
                             (self.request(headers=["a:b"] * 100), 431)):
            ((got, head, _),) = self.send(data)
            self.assertEqual(got, status)
            self.assertIn(str(status), self.line(re.search(r"(?im)^x-request-id: (\S+)", head).group(1))["msg"])
        log = self.server.log()
        for secret in (self.key, CHANNEL, "nowhere-at-all", "unheard"):
            self.assertNotIn(secret, log)

    def test_probes_are_not_logged(self):
        ids = [self.get(path).headers["x-request-id"] for path in ("/livez", "/readyz")]
        self.line(self.get("/openapi.yaml").headers["x-request-id"])  # those before it would be there too
        for probe in ids:
            self.assertNotIn(probe, self.server.log())

    def test_traceparent(self):
        """What is invalid is dropped, never refused."""
        for given in ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-00", "x", "",
                      "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"):
            self.assertEqual(self.get("/livez", traceparent=given).status, 200)
            answers = self.send(self.request(headers=[f"traceparent: {given}"] * 2))
            self.assertEqual([status for status, _, _ in answers], [200])


class Service(HttpCase):
    def test_health(self):
        live = self.server.call("GET", "/livez")
        self.assertEqual((live.status, set(live.json), live.json["status"]), (200, {"status", "build"}, "ok"))
        self.assertRegex(live.json["build"], r"^[0-9a-f]+$")
        ready = self.server.call("GET", "/readyz")
        self.assertEqual((ready.status, ready.json), (200, {"status": "ready"}))

    def test_openapi(self):
        answer = self.server.call("GET", "/openapi.yaml")
        self.assertEqual((answer.status, answer.headers["content-type"]), (200, "application/yaml"))
        self.assertEqual(answer.body.decode(), openapi())
        shared, admin = route_table()
        self.assertEqual(openapi_routes(answer.body.decode()), set(shared) | set(admin))


class Smuggling(HttpCase):
    """Each is refused, or is one request, with one answer; what stands behind it is never taken for a second one."""

    INNER = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    JSON = "Content-Type: application/json"

    def refused(self, data, statuses=(400,), problem=True, closes=True):
        answers = self.send(data, closes=closes)
        # Some are cut off without a word; none is taken for two.
        self.assertLessEqual(len(answers), 1, f"{data!r}: {answers}")
        for status, head, body in answers:
            self.assertIn(status, statuses, f"{data!r}: {head}")
            self.assertIn("connection: close", head.lower())
            if problem:
                self.assertIn("application/problem+json", head)
                self.assertEqual(json.loads(body)["status"], status)
        return answers

    def post(self, *headers, body="", key=True):
        lines = ["POST /v1/turns HTTP/1.1", "Host: x", self.JSON, *headers]
        if key:
            lines.append(f"Authorization: Bearer {self.key}")
        return "\r\n".join([*lines, "", body])

    def test_lengths(self):
        chunked = "0\r\n\r\n" + self.INNER
        for headers in (["Content-Length: 5", "Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked", "Content-Length: 5"],
                        ["Content-Length: 0", "Content-Length: 44"], ["Content-Length: 44", "Content-Length: 44"],
                        ["Content-Length: 5, 5"], ["Content-Length: 5,44"], ["Content-Length: +5"], ["Content-Length: -5"],
                        ["Content-Length: 0x5"], ["Content-Length: 5 5"], ["Content-Length: 5.0"], ["Content-Length: 5e1"],
                        ["Content-Length: "], ["Content-Length: 99999999999999999999999"], ["Content-Length: 18446744073709551616"],
                        ["content-LENGTH: 5", "CONTENT-length: 6"], ["Content-Length : 5"], ["Content-Length: 5\x00"],
                        ["Content-Length:\x0b5"]):
            with self.subTest(headers=headers):
                self.assertEqual(len(self.refused(self.post(*headers, body=chunked))), 1)

    def test_encodings(self):
        chunked = "0\r\n\r\n" + self.INNER
        for value in ("xchunked", "chunkedx", "chunked, chunked", "chunked, identity", "identity, chunked", "gzip, chunked", "identity",
                      "chunked;q=1", '"chunked"', "\x0bchunked", "chunked\x00", "chun ked", "", "cow", "chunked,"):
            with self.subTest(value=value):
                self.assertEqual(len(self.refused(self.post(f"Transfer-Encoding: {value}", body=chunked))), 1)
        for headers in (["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked", "Transfer-Encoding: x"],
                        ["Transfer-Encoding : chunked"], [" Transfer-Encoding: chunked"], ["X: y\r\n Transfer-Encoding: chunked"],
                        ["Transfer-Encoding:\r\n chunked"], ["Transfer_Encoding: chunked", "Content-Length: 5", "Transfer-Encoding: chunked"]):
            with self.subTest(headers=headers):
                self.assertEqual(len(self.refused(self.post(*headers, body=chunked))), 1)
        old = self.post("Transfer-Encoding: chunked", body=chunked).replace("HTTP/1.1", "HTTP/1.0", 1)
        self.assertEqual(len(self.refused(old)), 1)

    def test_hosts(self):
        for hosts in (["Host: x", "Host: y"], ["Host: x", "host: x"], []):
            self.assertEqual(len(self.refused("\r\n".join(["GET /livez HTTP/1.1", *hosts, "", ""]))), 1, hosts)
        # HTTP/1.0 knows no Host.
        self.assertEqual([status for status, _, _ in self.send("GET /livez HTTP/1.0\r\n\r\n")], [200])

    def test_lines(self):
        for data in ("GET /livez HTTP/1.1\nHost: x\n\n", "GET /livez HTTP/1.1\r\nHost: x\n\r\n", "GET /livez HTTP/1.1\nHost: x\r\n\r\n",
                     "GET /livez HTTP/1.1\r\nHost: x\r\nA: b\nC: d\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n",
                     "GET /livez HTTP/1.1\rHost: x\r\r", "GET /livez HTTP/1.1\r\nHost: x\r\n\n" + self.INNER,
                     "GET /livez HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n",
                     "GET /livez HTTP/1.1\r\n Host: x\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
                     "GET /livez HTTP/1.1\r\nHost: x\r\n: empty\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
                     "GET /livez HTTP/1.1\r\nHost: x\r\nA\tB: b\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nA(b): c\r\n\r\n",
                     "GET /livez HTTP/1.1\r\nHost: x\r\nA\x00: b\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
                     "GET /livez HTTP/1.1\r\nHost: x\r\nA: b\x01\r\n\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nA: \x7f\r\n\r\n",
                     "GET /livez HTTP/1.1\r\nHost: x\r\nA: \x1b[31m\r\n\r\n"):
            with self.subTest(data=data):
                self.refused(data)

    def test_request_lines(self):
        for line in ("GET  /livez HTTP/1.1", "GET /livez  HTTP/1.1", " GET /livez HTTP/1.1", "GET\t/livez HTTP/1.1", "GET /livez",
                     "GET /livez HTTP/1.1 ", "GET /livez HTTP/2.0", "GET /livez HTTP/1.2", "GET /livez HTTP/0.9", "GET /livez http/1.1",
                     "GET /livez HTTP/1.1x", "GET /li vez HTTP/1.1", "GET /livez\x00 HTTP/1.1", "GET /liv\x01ez HTTP/1.1", "GET",
                     "G\x00T /livez HTTP/1.1", "G(T /livez HTTP/1.1", "\x16\x03\x01\x02\x00\x01", "PRI * HTTP/2.0", "GET /livez HTTP/11"):
            with self.subTest(line=line):
                self.refused(f"{line}\r\nHost: x\r\n\r\n", (400, 404, 405, 505))

    def test_chunks(self):
        """A body in chunks is one body, or nothing."""
        body = json.dumps({"channel": "web:off", "speaker": SPEAKER, "text": "x"})
        half = len(body) // 2
        good = f"{half:x}\r\n{body[:half]}\r\n{len(body) - half:X}\r\n{body[half:]}\r\n0\r\n\r\n"
        ((status, _, answer),) = self.send(self.post("Transfer-Encoding: chunked", body=good))
        self.assertEqual((status, json.loads(answer)["code"]), (409, "channel_disabled"))
        size = f"{len(body):x}"
        for chunks in (f"+{size}\r\n{body}\r\n0\r\n\r\n", f"0x{size}\r\n{body}\r\n0\r\n\r\n", f"-{size}\r\n{body}\r\n0\r\n\r\n",
                       f"{size}\r\n{body}0\r\n\r\n", f"fffffffffffffffff\r\n{body}\r\n0\r\n\r\n", f"\r\n{body}\r\n0\r\n\r\n",
                       f"{size}\r\n{body}x\r\n0\r\n\r\n", f"g\r\n{body}\r\n0\r\n\r\n", f"7fffffffffffffff\r\n{body}\r\n0\r\n\r\n",
                       f"{size}\r\n{body}", f"{size}\r\n{body}\r\n", f"{size}\r\n{body}\r\n0\r\n"):
            with self.subTest(chunks=chunks):
                # The library itself answers what is wrong within a body.
                self.refused(self.post("Transfer-Encoding: chunked", body=chunks + self.INNER), (400, 409, 413), problem=False,
                             closes=False)
        for chunks in (f"{size};ext=1\r\n{body}\r\n0\r\n\r\n", f"000{size}\r\n{body}\r\n000\r\n\r\n",
                       f"{size}\r\n{body}\r\n0\r\nTrailer: x\r\nContent-Length: 5\r\n\r\n"):
            with self.subTest(chunks=chunks):
                answers = self.send(self.post("Transfer-Encoding: chunked", body=chunks))
                self.assertEqual(len(answers), 1, answers)
                self.assertIn(answers[0][0], (400, 409))

    def test_a_body_is_never_a_request(self):
        """A refused request's body is not looked at as a next one."""
        for line, headers in (("POST /nowhere HTTP/1.1", []), ("POST /livez HTTP/1.1", []), ("GET /livez HTTP/1.1", []),
                              ("POST /v1/turns HTTP/1.1", ["Content-Type: text/plain"]), ("PATCH /v1/turns HTTP/1.1", [])):
            data = self.request(line, [*headers, f"Content-Length: {len(self.INNER)}"], self.INNER)
            answers = self.send(data)
            self.assertEqual(len(answers), 1, answers)
            self.assertGreaterEqual(answers[0][0], 400)

    def test_pipelined_requests_are_two(self):
        """Or the connection ends after the first, which a client must expect. (RFC 9112 section 9.3.2)"""
        data = self.request("GET /livez HTTP/1.1") + self.request("GET /nowhere HTTP/1.1", ["Connection: close"])
        self.assertIn([status for status, _, _ in self.send(data, half_close=False)], ([200, 404], [200]))

    def test_too_short(self):
        for data in (b"", b"\r\n", b"G", b"GET /livez HTTP/1.1\r\n", b"GET /livez HTTP/1.1\r\nHost: x\r\n"):
            self.refused(data)
        self.refused(self.post("Content-Length: 100", body="{"), closes=False)


class Slow(HttpCase):
    def test_a_slow_head_is_cut_off(self):
        """A line now and then does not hold a connection; many of them do not hold the service."""
        socks = []
        for i in range(100):
            sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
            self.addCleanup(sock.close)
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
            socks.append(sock)
        first, began = socks[0], time.monotonic()
        first.settimeout(0.5)
        ended, got = None, b""
        while ended is None and time.monotonic() - began < 2 * HEAD_MS / 1000:
            asked = time.monotonic()
            self.assertEqual(self.get("/livez").status, 200)
            self.assertLess(time.monotonic() - asked, 1)
            try:
                first.sendall(b"X: y\r\n")
                part = first.recv(4096)
                got += part
                ended = None if part else time.monotonic()
            except TimeoutError:
                pass
            except OSError:
                ended = time.monotonic()
        self.assertIsNotNone(ended, "the slow client is still connected")
        self.assertTrue(HEAD_MS / 1000 - 1 < ended - began < HEAD_MS / 1000 + 3, ended - began)
        self.assertNotIn(b" 200 ", got)
        for sock in socks[1:]:
            sock.settimeout(3)
            try:
                while sock.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        poll(lambda: self.get("/livez").status == 200, 1, "the service answers")
