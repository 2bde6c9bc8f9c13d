"""API keys: scopes, globs, secrets and revocation, over every route there is. (mission.md section 4)"""
import base64
import hashlib
import http.client
import stat
import subprocess
import sys
import threading
import time
import urllib.parse

from lib.case import SPEAKER, ServerCase
from lib.http import Client, poll
from lib.routes import openapi, openapi_routes, route_table

OWN, FOREIGN = "mine:lobby", "theirs:lobby"
SCOPES = ("turns", "turns:read", "channels", "files", "admin")
# Passes all checks of the body, but starts no container.
IGNORED = {"author_is_bot": True, "integration": False, "is_direct": False, "mentions_bot": False, "replies_to_bot": False}


def turn_body(channel, **more):
    return {"channel": channel, "speaker": SPEAKER, "text": "hello", "origin": IGNORED, **more}


# What each route needs (admin suffices for all), how it is called for a channel, and the status where it is allowed.
# A route without a row here fails the walk.
OPEN, TURNS, READS, CHANNELS, ADMIN = None, {"turns"}, {"turns", "turns:read"}, {"channels"}, set()
WALK = {
    ("POST", "/v1/turns"): (TURNS, 200),
    ("GET", "/v1/turns"): (READS, 200),
    ("POST", "/v1/turns/{id}/cancel"): (TURNS, 200),
    ("GET", "/v1/turns/{id}"): (READS, 200),
    ("GET", "/v1/turns/{id}/events"): (READS, 200),
    ("GET", "/v1/channels"): (CHANNELS, 200),
    ("GET", "/v1/channels/{key}"): (CHANNELS, 200),
    ("PUT", "/v1/channels/{key}"): (CHANNELS, 200),
    ("DELETE", "/v1/channels/{key}"): (CHANNELS, 204),
    ("POST", "/v1/channels/{key}/reset"): (CHANNELS, 200),
    ("POST", "/v1/channels/{key}/stop"): (CHANNELS, 200),
    ("GET", "/livez"): (OPEN, 200),
    ("GET", "/readyz"): (OPEN, 200),
    ("GET", "/openapi.yaml"): (OPEN, 200),
}
ADMIN_WALK = {("POST", "/v1/keys"): 201, ("GET", "/v1/keys"): 200, ("DELETE", "/v1/keys/{id}"): 204}


class KeyCase(ServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.all = cls.server.key("all")
        cls.socket = cls.server.root / "state/admin.sock"

    def admin(self, method, path, body=None):
        with Client("localhost", None, unix=str(self.socket)) as client:
            return client.call(method, path, body)

    def key_id(self, token):
        return token.split("_")[1]


class Walk(KeyCase):
    """Every route × every scope × own and foreign channel × every kind of caller that is none."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for channel in (OWN, FOREIGN):
            cls.server.channel_on(channel)
        cls.keys = {scope: cls.server.key(scope, scopes=[scope], channels=["mine:*"]) for scope in SCOPES}
        cls.theirs = cls.server.key("theirs", channels=["theirs:*"])

    def request(self, route, channel, key, turn=None):
        method, path = route
        body = turn_body(channel) if route == ("POST", "/v1/turns") else {"enabled": True} if method == "PUT" else None
        path = path.replace("{key}", urllib.parse.quote(channel, safe="")).replace("{id}", turn or "turn_" + "0" * 32)
        return self.server.call(method, path, body, key)

    def make_turn(self, channel, key):
        return self.ok(self.server.call("POST", "/v1/turns", turn_body(channel), key))["id"]

    def turns_for(self, scope, channel):
        """Turns of a channel and whether a key of this scope for mine:* may read them, with the reason."""
        other = self.make_turn(channel, self.all)
        yield other, scope in ("turns:read", "admin") and channel == OWN, "another key's"
        if scope == "turns" and channel == OWN:
            yield self.make_turn(OWN, self.keys["turns"]), True, "its own"

    def test_every_route_is_walked(self):
        shared, admin = route_table()
        self.assertEqual(set(WALK), set(shared), "a new route needs a row in WALK")
        self.assertEqual(set(ADMIN_WALK), set(admin), "a new route needs a row in ADMIN_WALK")
        self.assertEqual(openapi_routes(openapi()), set(WALK) | set(ADMIN_WALK))
        for route, (needs, _) in WALK.items():
            self.assertEqual(shared[route] == "OPEN", needs is OPEN, route)

    def test_without_a_key(self):
        revoked = self.server.key("revoked")
        self.server.cli("key", "revoke", self.key_id(revoked))
        for route, (needs, status) in WALK.items():
            for key in (None, "nonsense", revoked):
                with self.subTest(route=route, key=key):
                    answer = self.request(route, OWN, key)
                    if needs is OPEN:
                        self.ok(answer, status)
                        continue
                    self.problem(answer, 401, "unauthorized")
                    self.assertEqual(answer.headers["www-authenticate"], 'Bearer realm="cloister"')

    def test_scopes_and_channels(self):
        for route, (needs, status) in WALK.items():
            for scope in SCOPES:
                for channel in (OWN, FOREIGN):
                    with self.subTest(route=route, scope=scope, channel=channel):
                        if "{id}" in route[1]:
                            self.walk_turns(route, needs, scope, channel)
                        else:
                            self.walk_one(route, needs, scope, channel, status)

    def walk_one(self, route, needs, scope, channel, status):
        self.server.call("PUT", f"/v1/channels/{channel}", {"enabled": True}, self.all)  # the last one may have deleted it
        answer = self.request(route, channel, self.keys[scope])
        if needs is OPEN:
            self.ok(answer, status)
        elif scope not in needs | {"admin"}:
            self.problem(answer, 403, "forbidden")
        elif route == ("GET", "/v1/channels"):
            self.assertEqual([c["key"] for c in self.ok(answer)["data"]], [OWN])
        elif route == ("GET", "/v1/turns"):
            self.assertLessEqual({turn["channel"] for turn in self.ok(answer)["data"]}, {OWN})
        elif channel == FOREIGN:
            self.problem(answer, 404, "not_found")
        else:
            self.assertEqual(answer.status, status, answer)
        if channel == FOREIGN:  # whatever was answered, nothing happened
            state = self.ok(self.server.call("GET", f"/v1/channels/{FOREIGN}", key=self.theirs))
            self.assertEqual((state["enabled"], state["reset_pending"], state["queued"]), (True, False, 0))

    def walk_turns(self, route, needs, scope, channel):
        for turn, allowed, whose in self.turns_for(scope, channel):
            answer = self.request(route, channel, self.keys[scope], turn)
            if scope not in needs | {"admin"}:
                self.problem(answer, 403, "forbidden")
            elif allowed and route[1].endswith("/events"):
                self.assertEqual([event["status"] for event in self.ok(answer)["data"]], ["ignored"], whose)
            elif allowed:
                self.assertEqual(self.ok(answer)["id"], turn, whose)
            else:
                self.problem(answer, 404, "not_found")

    def test_what_is_not_there_looks_like_what_is_foreign(self):
        """404 says the same in both cases, byte for byte but for the request's id."""
        for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/reset"), ("POST", "/stop")):
            foreign = self.server.call(method, f"/v1/channels/{FOREIGN}{suffix}", key=self.keys["channels"])
            missing = self.server.call(method, f"/v1/channels/mine:missing{suffix}", key=self.keys["channels"])
            self.assertEqual((foreign.status, foreign.body), (missing.status, missing.body))
        foreign = self.server.call("GET", f"/v1/turns/{self.make_turn(FOREIGN, self.all)}", key=self.keys["admin"])
        missing = self.server.call("GET", "/v1/turns/turn_" + "0" * 32, key=self.keys["admin"])
        self.assertEqual((foreign.status, foreign.body), (missing.status, missing.body))

    def test_head_needs_the_same(self):
        for (method, path), (needs, _) in WALK.items():
            if method != "GET":
                continue
            turn = self.make_turn(OWN, self.all)
            for scope in SCOPES:
                answers = [self.request((verb, path), OWN, self.keys[scope], turn) for verb in ("GET", "HEAD")]
                self.assertEqual(answers[0].status, answers[1].status, (path, scope))
                self.assertEqual(answers[1].body, b"")
            expected = 200 if needs is OPEN else 401
            self.assertEqual(self.request(("HEAD", path), OWN, None, turn).status, expected, path)

    def test_keys_are_no_resource_over_tcp(self):
        for (method, path) in ADMIN_WALK:
            for key in (None, self.keys["admin"]):
                answer = self.server.call(method, path.replace("{id}", self.key_id(self.all)), None, key)
                self.problem(answer, 404, "not_found")

    def test_globs(self):
        globs = ["all:*", "web:a*z", "exact:one", "*:public"]
        key = self.server.key("globs", scopes=["channels"], channels=globs)
        seen = ["all:x", "all:x:y", "web:az", "web:a-z", "web:a-zz", "exact:one", "any:public", "x:y:public"]
        unseen = ["alls:x", "web:a", "web:a-zy", "web:z", "exact:one2", "exact:on", "other:x", "any:publicity"]
        for channel in seen + unseen:
            self.ok(self.server.call("PUT", f"/v1/channels/{channel}", {"enabled": True}, self.all), 201)
        listed = [c["key"] for c in self.ok(self.server.call("GET", "/v1/channels?limit=200", key=key))["data"]]
        self.assertEqual(listed, sorted(seen))
        for channel in unseen:
            self.problem(self.server.call("GET", f"/v1/channels/{channel}", key=key), 404, "not_found")


class Tokens(KeyCase):
    def status(self, headers, path="/v1/channels"):
        return self.server.call("GET", path, headers=headers).status

    def test_only_in_the_header(self):
        """Never in a query, a cookie or another scheme."""
        key = self.all
        for name in ("key", "api_key", "apikey", "access_token", "token", "authorization", "Authorization"):
            answer = self.server.call("GET", f"/v1/channels?{name}={key}")
            self.assertIn(answer.status, (400, 401), name)
            self.assertNotIn(key.encode(), answer.body)
            self.problem(self.server.call("GET", f"/v1/channels?{name}={key}", key=key), 400, "bad_request")
        basic = "Basic " + base64.b64encode(f"{key}:".encode()).decode()
        for headers in ({"Cookie": f"key={key}"}, {"X-Api-Key": key}, {"Authorization": basic}, {"Authorization": key},
                        {"Authorization": f"Token {key}"}, {"Proxy-Authorization": f"Bearer {key}"}):
            self.assertEqual(self.status(headers), 401, headers)

    def test_malformed_authorization(self):
        key, other = self.all, self.server.key("other")
        start, secret = key[:-64], key[-64:]
        flipped = secret[:-1] + ("0" if secret[-1] != "0" else "1")
        for wrong in ("", "Bearer", "Bearer ", f"Bearer{key}", f"Bearer {key}x", f"Bearer {key[:-1]}", f"Bearer {key.upper()}",
                      f"Bearer {start}{flipped}", f"Bearer {start}{secret.upper()}", f"Bearer {start}{other[-64:]}",
                      f"Bearer {other[:-64]}{secret}", f"Bearer {start}", f"Bearer clo__{secret}", f'Bearer "{key}"',
                      f"Bearer {key}, Bearer {key}", f"Bearer {key} {key}", f"Bearer clo_{'0' * 16}_{'0' * 64}",
                      f"Bearer xlo{key[3:]}", f"Bearer {key.replace('_', '-')}", "Bearer " + "a" * 8000, f"Bearer\t{key}"):
            self.assertEqual(self.status({"Authorization": wrong}), 401, wrong)
        for right in (f"Bearer {key}", f"bearer {key}", f"BEARER   {key}"):
            self.assertEqual(self.status({"Authorization": right}), 200, right)

    def test_two_authorizations_are_refused(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        self.addCleanup(connection.close)
        connection.putrequest("GET", "/v1/channels")
        for _ in range(2):
            connection.putheader("Authorization", f"Bearer {self.all}")
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 400)

    def test_form(self):
        keys = {self.server.key("form") for _ in range(4)}
        self.assertEqual(len(keys), 4)
        for key in keys:
            self.assertRegex(key, r"^clo_[0-9a-f]{16}_[0-9a-f]{64}$")

    def test_stored_as_a_hash_only(self):
        """In no file of the service, log or listing is the key or its secret half; the hash is in the database."""
        key = self.server.key("stored")
        self.assertEqual(self.status({"Authorization": f"Bearer {key}"}), 200)
        secret = key[-64:]
        stored = b""
        for file in self.server.root.rglob("*"):
            if file.is_file() and file != self.server.binary:
                data = file.read_bytes()
                for form in (key.encode(), secret.encode(), bytes.fromhex(secret)):
                    self.assertNotIn(form, data, file)
                if file.parent.name == "state":
                    stored += data
        self.assertIn(hashlib.sha256(key.encode()).digest(), stored)
        self.assertNotIn(secret, self.server.cli("key", "list", "--json").stdout)
        self.assertNotIn(secret, self.admin("GET", "/v1/keys").body.decode())


class Revocation(KeyCase):
    def test_from_the_next_request_on(self):
        key = self.server.key("brief")
        with self.server.client(key) as client:  # one kept connection
            self.assertEqual(client.call("GET", "/v1/channels").status, 200)
            self.server.cli("key", "revoke", self.key_id(key))
            self.problem(client.call("GET", "/v1/channels"), 401, "unauthorized")
        self.server.cli("key", "revoke", self.key_id(key))  # again is fine
        self.server.restart()
        self.problem(self.server.call("GET", "/v1/channels", key=key), 401, "unauthorized")

    def test_ends_waits_within_a_second(self):
        """The turn itself goes on."""
        key = self.server.key("waits")
        for channel in ("web:runs", "web:other"):
            self.server.channel_on(channel)
        answers, threads = [], []

        def client(channel, text):
            body = {"channel": channel, "speaker": SPEAKER, "text": text}
            answers.append((self.server.call("POST", "/v1/turns", body, key), time.monotonic()))

        for text in ("/sleep 4000\nrunning", "queued"):
            threads.append(threading.Thread(target=client, args=["web:runs", text]))
            threads[-1].start()
            poll(lambda: self.busy("web:runs"), 20, "the first runs")
        poll(lambda: self.busy("web:runs")["queued"] == 1, 20, "the second waits")
        began = time.monotonic()
        self.server.cli("key", "revoke", self.key_id(key))
        for thread in threads:
            thread.join(10)
        for answer, at in answers:
            self.problem(answer, 401, "unauthorized")
            self.assertLess(at - began, 1)
        self.assertEqual(len(answers), 2)
        # Others are not disturbed, and what was accepted runs.
        self.server.turn("web:other", "fine", self.all)
        poll(lambda: (s := self.state("web:runs"))["queued"] == 0 and not s["busy"], 30, "both turns are over")
        history = (self.server.workspace("web:runs") / ".cloister/history.json").read_text()
        self.assertIn("running", history)
        self.assertIn("queued", history)

    def state(self, channel):
        return self.ok(self.server.call("GET", f"/v1/channels/{channel}", key=self.all))

    def busy(self, channel):
        state = self.state(channel)
        return state if state["busy"] else None


# Connects to a Unix socket as another account and asks; prints the status, or the error's name.
STRANGER = """
import http.client, os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[3]))
connection = http.client.HTTPConnection("localhost", timeout=10)
connection.sock = socket.socket(socket.AF_UNIX)
try:
    connection.sock.connect(sys.argv[1])
    connection.request("GET", sys.argv[4])
    print(connection.getresponse().status)
except OSError as error:
    print(type(error).__name__)
"""


class AdminSocket(KeyCase):
    def as_uid(self, uid, gid, path="/v1/keys"):
        command = [sys.executable, "-c", STRANGER, str(self.socket), str(gid), str(uid), path]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20, cwd="/").stdout.strip()

    def test_mode_and_owner(self):
        status = self.socket.stat()
        self.assertTrue(stat.S_ISSOCK(status.st_mode))
        self.assertEqual(stat.S_IMODE(status.st_mode), 0o600)
        self.assertEqual(status.st_uid, self.server.account.pw_uid)

    def test_who_may(self):
        """Root and the account; anybody else is told by the kernel, and by the service if the modes were wrong."""
        account, nobody = self.server.account, 65534
        self.assertEqual(self.as_uid(0, 0), "200")
        self.assertEqual(self.as_uid(account.pw_uid, account.pw_gid), "200")
        self.assertEqual(self.as_uid(nobody, nobody), "PermissionError")
        self.assertEqual(self.as_uid(nobody, account.pw_gid), "PermissionError")
        self.socket.chmod(0o666)
        self.socket.parent.chmod(0o711)
        self.addCleanup(self.socket.parent.chmod, 0o700)
        self.addCleanup(self.socket.chmod, 0o600)
        for path in ("/v1/keys", "/v1/channels"):
            self.assertEqual(self.as_uid(nobody, account.pw_gid, path), "403")
        self.assertEqual(self.as_uid(account.pw_uid, account.pw_gid), "200")

    def test_keys(self):
        made = self.admin("POST", "/v1/keys", {"name": "né w", "scopes": ["turns", "channels"], "channels": ["web:*", "a:b"]})
        key = self.ok(made, 201)
        self.assertEqual(set(key), {"id", "object", "name", "scopes", "channels", "created_at", "revoked_at", "key"})
        self.assertEqual((key["object"], key["name"], key["scopes"], key["channels"], key["revoked_at"]),
                         ("api_key", "né w", ["turns", "channels"], ["web:*", "a:b"], None))
        self.ok(self.server.call("GET", "/v1/channels", key=key["key"]))
        listed = {item["id"]: item for item in self.ok(self.admin("GET", "/v1/keys"))["data"]}
        self.assertEqual(listed[key["id"]], {name: value for name, value in key.items() if name != "key"})
        self.assertEqual(self.admin("DELETE", f"/v1/keys/{key['id']}").status, 204)
        listed = {item["id"]: item for item in self.ok(self.admin("GET", "/v1/keys"))["data"]}
        self.assertIsNotNone(listed[key["id"]]["revoked_at"])
        for missing in ("0" * 16, "x", "0" * 500):
            self.problem(self.admin("DELETE", f"/v1/keys/{missing}"), 404, "not_found")

    def test_key_bodies(self):
        good = {"name": "n", "scopes": ["turns"], "channels": ["*"]}
        for change, pointer in (({"name": ""}, "/name"), ({"name": "x" * 65}, "/name"), ({"name": "a\nb"}, "/name"),
                                ({"scopes": []}, "/scopes"), ({"scopes": ["root"]}, "/scopes/0"),
                                ({"scopes": ["turns", "turns"]}, "/scopes"), ({"channels": []}, "/channels"),
                                ({"channels": [""]}, "/channels/0"), ({"channels": ["x" * 201]}, "/channels/0"),
                                ({"channels": [f"c:{i}" for i in range(65)]}, "/channels"), ({"expires": 1}, "/expires")):
            faults = self.problem(self.admin("POST", "/v1/keys", {**good, **change}), 422, "invalid")
            self.assertEqual(list(faults), [pointer])
        self.problem(self.admin("POST", "/v1/keys", {**good, "channels": ["é" * 101]}), 422, "invalid")  # bytes, not characters

    def test_the_administrator_sees_all(self):
        self.server.channel_on("any:thing")
        turn = self.ok(self.server.call("POST", "/v1/turns", turn_body("any:thing"), self.all))
        self.assertEqual(self.ok(self.admin("GET", f"/v1/turns/{turn['id']}"))["id"], turn["id"])
        self.assertIn("any:thing", [c["key"] for c in self.ok(self.admin("GET", "/v1/channels?limit=200"))["data"]])
        own = self.ok(self.admin("POST", "/v1/turns", {"channel": "any:thing", "speaker": SPEAKER, "text": "local"}))
        self.assertEqual(own["reply"], {"text": "local"})
