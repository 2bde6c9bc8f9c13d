"""The model behind the broker: a foreign server, the operator's settings, credentials and every way to fail.
(mission.md section 6)"""
import json
import os
import pathlib
import tempfile
import threading
import time

from lib.case import SPEAKER, Checks, ServerCase
from lib.cloister import Server
from lib.http import poll
from lib.upstream import Aimock, Upstream, calls, hang_up_of, says

TOKEN = "tok-first-0123456789abcdef"
REFUSED = "The model's server did not give a usable answer; see the server log."


def secret_file(server_or_folder, text):
    """A file that the test account may read."""
    file = pathlib.Path(server_or_folder) / "credential"
    file.write_text(text + "\n")
    file.chmod(0o644)
    return file


class Foreign(Checks):
    """@copilotkit/aimock as the Chat Completions server."""

    FIXTURES = [
        # The first turn: a call of memory_set, then, once its answer is there, the reply.
        {"match": {"userMessage": "My number is 41.", "hasToolResult": False},
         "response": {"toolCalls": [{"name": "memory_set",
                                     "arguments": {"scope": "channel", "key": "number", "value": "forty-one"}}]}},
        {"match": {"userMessage": "My number is 41.", "toolResultContains": "Remembered."},
         "response": {"content": "I shall remember it."}},
        # The second turn: scripted by what the server sees of the first, in messages and in the system message.
        {"match": {"userMessage": "Which one?", "turnIndex": 1, "systemMessage": "forty-one"},
         "response": {"content": "41, as you said."}},
        {"match": {"userMessage": "Which one?", "turnIndex": 0}, "response": {"content": "You told me none."}},
    ]

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="clo-aimock-")
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        self.mock = Aimock(folder.name, self.FIXTURES, TOKEN)
        self.addCleanup(self.mock.close)
        self.folder = folder.name

    def test_a_memory_call_and_two_channels(self):
        model = {"url": self.mock.url, "allow_http": True, "name": "gpt-test", "max_tokens": 321,
                 "prompt": "Be brief.", "credential": {"file": str(secret_file(self.folder, TOKEN))}}
        with Server(model=model) as server:
            key = server.key()
            for channel in ("web:one", "web:two"):
                server.channel_on(channel)
            first = self.ended(server.turn("web:one", "My number is 41.", key), "succeeded")
            self.assertEqual(first["reply"], {"text": "I shall remember it."})
            self.assertEqual(first["metrics"]["model_calls"], 2)
            again = self.ended(server.turn("web:one", "Which one?", key), "succeeded")
            self.assertEqual(again["reply"], {"text": "41, as you said."})
            other = self.ended(server.turn("web:two", "Which one?", key), "succeeded")
            self.assertEqual(other["reply"], {"text": "You told me none."})
            self.look_at_journal()
            self.assertNotIn(TOKEN, server.log())

    def look_at_journal(self):
        """What the foreign server saw."""
        entries = self.mock.journal()
        self.assertEqual([entry["response"]["status"] for entry in entries], [200] * 4)
        for entry in entries:
            self.assertEqual((entry["body"]["model"], entry["body"]["max_tokens"]), ("gpt-test", 321))
            self.assertTrue(entry["body"]["messages"][0]["content"].startswith("Be brief."))
        first, answered, second, other = [entry["body"]["messages"] for entry in entries]
        self.assertEqual([m["role"] for m in first], ["system", "user"])
        self.assertEqual([m["role"] for m in answered], ["system", "user", "assistant", "tool"])
        self.assertEqual(answered[3]["tool_call_id"], answered[2]["tool_calls"][0]["id"])
        self.assertEqual([(m["role"], m["content"]) for m in second[1:]],
                         [("user", "My number is 41."), ("assistant", "I shall remember it."), ("user", "Which one?")])
        self.assertEqual([(m["role"], m["content"]) for m in other[1:]], [("user", "Which one?")])
        self.assertNotIn("forty-one", json.dumps(other))


class ModelCase(ServerCase):
    """A server before an upstream whose answers each test sets."""

    model = {}

    @classmethod
    def setUpClass(cls):
        cls.upstream = Upstream()
        cls.addClassCleanup(cls.upstream.close)
        cls.config = {**cls.config, "model": {"url": cls.upstream.url, "allow_http": True, "allow_script": None, **cls.model}}
        super().setUpClass()
        cls.key = cls.server.key()
        cls.server.channel_on("web:model")

    def setUp(self):
        self.upstream.requests.clear()

    def ask(self, answer, text="hello", channel="web:model"):
        self.upstream.answer = answer
        return self.server.turn(channel, text, self.key)


class Request(ModelCase):
    model = {"name": "the/model:1", "max_tokens": 77, "prompt": "Prompt of the house.", "time_zone": "Europe/Berlin"}

    def test_what_goes_up(self):
        self.ended(self.ask(says("fine")), "succeeded")
        (request,) = self.upstream.requests
        self.assertEqual(set(request.json), {"model", "max_tokens", "messages", "tools"})
        self.assertEqual((request.json["model"], request.json["max_tokens"]), ("the/model:1", 77))
        self.assertEqual(request.path, "/v1/chat/completions")
        (system,) = request.of_role("system")
        self.assertTrue(system.startswith("Prompt of the house."))
        self.assertIn("Europe/Berlin", system)
        self.assertEqual(sorted(t["function"]["name"] for t in request.json["tools"]),
                         ["memory_get", "memory_remove", "memory_set"])
        # No header of the caller or the guest, and no credential where none is configured.
        self.assertEqual({name.lower() for name in request.headers},
                         {"host", "content-type", "content-length", "accept", "traceparent"})

    def test_the_trace_goes_up(self):
        """A valid traceparent is continued, an invalid one replaced. (W3C Trace Context)"""
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        body = {"channel": "web:model", "speaker": SPEAKER, "text": "hello"}
        self.upstream.answer = says("fine")
        for given, continued in ((f"00-{trace}-00f067aa0ba902b7-01", True), (f"00-{trace}-{'0' * 16}-01", False), (None, False)):
            self.ok(self.server.call("POST", "/v1/turns", body, self.key, {"traceparent": given}))
            sent = self.upstream.requests[-1].headers["traceparent"]
            self.assertRegex(sent, r"^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$")
            self.assertEqual(sent[3:35] == trace, continued, given)
            self.assertNotIn("00f067aa0ba902b7", sent)

    def test_usage_is_counted(self):
        answers = iter([calls(("memory_get", {"scope": "channel"})), says("done")])
        turn = self.ended(self.ask(lambda _: next(answers)), "succeeded")
        metrics = turn["metrics"]
        self.assertEqual((metrics["model_calls"], metrics["prompt_tokens"], metrics["completion_tokens"]), (2, 22, 14))
        self.assertEqual(metrics["tool_calls"], 0, "memory is the worker's own")

    def test_reply_is_cut(self):
        """At 100,000 characters, between characters, and says so."""
        text = self.ended(self.ask(says("\U0001F980" * 100000)), "succeeded")["reply"]["text"]
        self.assertEqual(text, "\U0001F980" * 100000)
        text = self.ended(self.ask(says("\U0001F980" * 100001)), "succeeded")["reply"]["text"]
        self.assertEqual((len(text), text[-6:]), (100000, " [cut]"))
        self.assertEqual(set(text[:-6]), {"\U0001F980"})

    def test_only_the_first_choice_comes_down(self):
        answer = says("first", secret_field="x")
        answer["choices"].append({"index": 1, "message": {"role": "assistant", "content": "second"}})
        answer["system_fingerprint"] = "fp"
        turn = self.ended(self.ask((200, {"X-Upstream": "header"}, answer)), "succeeded")
        self.assertEqual(turn["reply"], {"text": "first"})

    def test_history_is_of_the_channel(self):
        for channel in ("web:h1", "web:h2"):
            self.server.channel_on(channel)
        for i in range(12):
            self.ask(says(f"answer {i}"), f"question {i}", "web:h1")
        self.ask(says("fine"), "last", "web:h1")
        self.assertEqual(self.upstream.requests[-1].of_role("user"), [f"question {i}" for i in range(2, 12)] + ["last"])
        self.assertEqual(self.upstream.requests[-1].of_role("assistant"), [f"answer {i}" for i in range(2, 12)])
        self.ask(says("fine"), "alone", "web:h2")
        self.assertEqual(self.upstream.requests[-1].of_role("user"), ["alone"])

    def test_memory_is_of_the_speaker_or_the_channel(self):
        for channel in ("web:m1", "web:m2"):
            self.server.channel_on(channel)

        def system_after(channel, speaker):
            self.upstream.answer = says("fine")
            self.server.turn(channel, "look", self.key, speaker=speaker)
            return self.upstream.requests[-1].of_role("system")[0]

        answers = iter([calls(("memory_set", {"scope": "speaker", "key": "s", "value": "of-ada"}),
                              ("memory_set", {"scope": "channel", "key": "c", "value": "of-all"})), says("kept")])
        self.upstream.answer = lambda _: next(answers)
        self.ended(self.server.turn("web:m1", "keep", self.key, speaker=("u1", "Ada")), "succeeded")
        self.assertEqual(self.upstream.requests[-1].of_role("tool"), ["Remembered.", "Remembered."])
        ada, bob, elsewhere = (system_after("web:m1", ("u1", "Ada")), system_after("web:m1", ("u2", "Bob")),
                               system_after("web:m2", ("u1", "Ada")))
        self.assertEqual([value in ada for value in ("of-ada", "of-all")], [True, True])
        self.assertEqual([value in bob for value in ("of-ada", "of-all")], [False, True])
        self.assertEqual([value in elsewhere for value in ("of-ada", "of-all")], [False, False])

    def test_tool_names_that_are_not_declared(self):
        """Become a local call that answers with a refusal; the model goes on."""
        answers = iter([calls(("bash", {"command": "id"}), ("Not A Name!", {}), ("memory_get", "no json")), says("ah")])
        turn = self.ended(self.ask(lambda _: next(answers)), "succeeded")
        self.assertEqual(turn["reply"], {"text": "ah"})
        request = self.upstream.requests[-1]
        group = request.messages[-4:]
        self.assertEqual([m["role"] for m in group], ["assistant", "tool", "tool", "tool"])
        names = [call["function"]["name"] for call in group[0]["tool_calls"]]
        self.assertEqual(names, ["invalid_tool", "invalid_tool", "memory_get"])
        for answer in group[1:]:
            self.assertTrue(answer["content"].startswith("Refused"), answer)


    def test_calls_without_a_name(self):
        """Are refused to the model like any other name that is not valid."""
        whole = {"id": "c", "type": "function"}
        odd = [{**whole, "function": {"arguments": "{}", **name}} for name in ({}, {"name": None}, {"name": 1}, {"name": ""})]
        answers = iter([says(None, tool_calls=odd), says("ah")])
        turn = self.ended(self.ask(lambda _: next(answers)), "succeeded")
        self.assertEqual(turn["reply"], {"text": "ah"})
        group = self.upstream.requests[-1].messages[-5:]
        self.assertEqual([call["function"] for call in group[0]["tool_calls"]],
                         [{"name": "invalid_tool", "arguments": '{"name":""}'}] * 4)
        for answer in group[1:]:
            self.assertTrue(answer["content"].startswith("Refused"), answer)


class Given(ModelCase):
    """A conversation and tools of the caller at their bounds."""

    def give(self, messages, **more):
        return self.server.call("POST", "/v1/turns", {"channel": "web:model", "speaker": SPEAKER, "messages": messages, **more}, self.key)

    def test_a_memory_call_beside_the_most_messages(self):
        for number in (125, 126, 127, 128):
            given = [{"role": "user" if i else "system", "content": f"message {i}."} for i in range(number)]
            answers = iter([calls(("memory_set", {"scope": "channel", "key": "k", "value": "v"})), says("kept")])
            self.upstream.answer = lambda _: next(answers)
            turn = self.ended(self.ok(self.give(given)), "succeeded")
            self.assertEqual((turn["reply"], turn["metrics"]["model_calls"]), ({"text": "kept"}, 2), number)
            request = self.upstream.requests[-1]
            self.assertLessEqual(len(request.messages), 128)
            self.assertEqual(request.of_role("tool"), ["Remembered."])
            said = "\n".join(message["content"] for message in request.messages)
            self.assertEqual([m["content"] for m in given if m["content"] not in said], [])

    def test_one_message_too_many(self):
        given = [{"role": "user", "content": "x"}] * 128
        answer = self.give(given)
        self.assertEqual((answer.status, answer.json["errors"][0]["pointer"]), (422, "/messages"), answer)

    def test_tools_at_their_bound(self):
        """What is accepted can be offered. (31,511 bytes as openapi.yaml says)"""
        def tools(more):
            tool = {"type": "function", "function": {"name": "pick", "description": "d" * 16, "parameters": {"title": ""}}}
            room = 31511 - len(json.dumps([tool], separators=(",", ":"))) + more
            tool["function"].update(description="d" * 3000, parameters={"title": "x" * room})
            return [tool]

        given = [{"role": "user", "content": "pick one"}]
        self.upstream.answer = calls(("pick", {"n": 1}))
        turn = self.ended(self.ok(self.give(given, tools=tools(0))), "succeeded")
        self.assertEqual(turn["reply"]["tool_calls"][0]["function"], {"name": "pick", "arguments": '{"n": 1}'})
        answer = self.give(given, tools=tools(1))
        self.assertEqual((answer.status, answer.json["errors"][0]["pointer"]), (422, "/tools"), answer)


class Refusals(ModelCase):
    """What an upstream can do wrong ends the turn as model_refused, told in general words."""

    config = {"limits": {"timeout_ms": 20000}}

    def refused(self, answer, most_calls=1):
        turn = self.ended(self.ask(answer), "failed", "model_refused")
        self.assertEqual(turn["error"]["detail"], REFUSED)
        self.assertIsNone(turn["reply"])
        self.assertIn(len(self.upstream.requests), range(1, most_calls + 1))
        said = json.dumps(self.read(turn, self.key))
        for secret in ("127.0.0.1", str(self.upstream.server.server_port), "tell-nobody"):
            self.assertNotIn(secret, said)
        self.upstream.requests.clear()

    def test_statuses(self):
        for status in (400, 401, 404, 429, 500, 503, 201, 204):
            with self.subTest(status=status):
                self.refused((status, {}, b"" if status == 204 else b'{"error": {"message": "tell-nobody"}}'))

    def test_redirects_are_not_followed(self):
        for status in (301, 302, 303, 307, 308):
            self.refused((status, {"Location": self.upstream.url}, b""))

    def test_garbage(self):
        deep = b'{"choices": ' + b"[" * 100 + b"]" * 100 + b"}"
        for body in (b"", b"tell-nobody", b"<html>tell-nobody</html>", b'{"choices": [', b"null", b"[]", b"{}", b'{"choices": []}',
                     b'{"choices": [null]}', b'{"choices": [{}]}', b'{"choices": [{"message": null}]}',
                     b'{"choices": [{"message": "tell-nobody"}]}', b'{"choices": [{"message": {"content": 5}}]}', deep,
                     b'{"choices": [{"message": {"content": "a"}}], "choices": []}', b"\xff\xfe", says("x" * 1000).__repr__().encode(),
                     b'{"choices": [{"message": {"content": "\\u0000"}}]}'):
            with self.subTest(body=body[:60]):
                self.refused(body)

    def test_malformed_tool_calls(self):
        whole = {"id": "c", "type": "function", "function": {"name": "memory_get", "arguments": "{}"}}
        for wrong in ("memory_get", {}, [None], ["x"], [{}], [{**whole, "type": "browser"}], [{**whole, "function": None}],
                      [{**whole, "function": {"name": "memory_get"}}],
                      [{**whole, "function": {"name": "memory_get", "arguments": {"scope": "channel"}}}]):
            with self.subTest(calls=wrong):
                self.refused(says(None, tool_calls=wrong))

    def test_too_much(self):
        self.refused(says("x" * (1 << 20)))
        self.refused((200, {"Content-Length": str(1 << 40)}, b"{"))
        self.refused((200, {f"X-{i}": "y" * 1000 for i in range(80)}, says("x")))

    def test_no_answer(self):
        # On a kept connection this looks like one that had gone before the request came, which is then sent anew.
        self.refused(lambda _: None, most_calls=2)
        self.refused(lambda request: (request.handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"), None)[1])
        self.refused(lambda request: (request.handler.wfile.write(b"tell-nobody\r\n\r\n"), None)[1])

    def test_calls_without_end(self):
        """Each answer is usable; it is the worker that gives up, after 12 model calls."""
        turn = self.ended(self.ask(calls(("memory_get", {"scope": "channel"}))), "failed", "worker_failed")
        self.assertEqual(len(self.upstream.requests), 12)
        self.assertIn("12 model calls", turn["logs"]["stderr"]["text"])

    def test_nobody_listens(self):
        upstream = Upstream()
        upstream.close()
        with Server(model={"url": upstream.url, "allow_http": True}) as server:
            key = server.key()
            server.channel_on("web:model")
            self.ended(server.turn("web:model", "hello", key), "failed", "model_refused")

    def test_the_channel_goes_on_and_keeps_no_failed_turn(self):
        self.server.channel_on("web:goes-on")
        self.ask(says("one"), "first", "web:goes-on")
        self.ended(self.ask((500, {}, b""), "failed", "web:goes-on"), "failed", "model_refused")
        self.ended(self.ask(says("two"), "second", "web:goes-on"), "succeeded")
        self.assertEqual(self.upstream.requests[-1].of_role("user"), ["first", "second"])

    def test_log_says_more(self):
        before = len(self.server.log())
        turn = self.ask((500, {}, b"tell-nobody"))
        lines = [json.loads(line) for line in self.server.log()[before:].splitlines()]
        self.assertTrue([line for line in lines if turn["id"] in line.values() and "500" in json.dumps(line)], lines)


class Limits(ModelCase):
    """Deadline, abort and budget."""

    config = {"limits": {"timeout_ms": 1500, "grace_ms": 500}, "pool": {"size": 2}}
    model = {"max_calls": 2}

    def test_budget(self):
        turn = self.ended(self.ask(calls(("memory_get", {"scope": "channel"}))), "failed", "budget_spent")
        self.assertEqual(len(self.upstream.requests), 2)
        self.assertEqual(turn["metrics"]["model_calls"], 2)
        # It is of one turn only.
        answers = iter([calls(("memory_get", {"scope": "channel"})), says("enough")])
        self.ended(self.ask(lambda _: next(answers)), "succeeded")

    def hanging(self):
        """An answer that never comes, and a list that gets whether the service hung up, with the time."""
        hung_up, came = [], threading.Event()

        def hang(request):
            came.set()
            hung_up.append((hang_up_of(request.handler, 20), time.monotonic()))

        return hang, hung_up, came

    def test_an_upstream_slower_than_the_deadline(self):
        hang, hung_up, _ = self.hanging()
        began = time.monotonic()
        turn = self.ask(hang)
        took = time.monotonic() - began
        self.ended(turn, "timed_out", "timeout")
        self.assertTrue(1.4 <= took < 1.5 + 0.5 + 2.5, took)
        poll(lambda: hung_up, 5, "the call is given up")
        self.assertTrue(hung_up[0][0])

    def test_stop_aborts_the_call(self):
        hang, hung_up, came = self.hanging()
        self.upstream.answer = hang
        turn = self.submit("web:model", "hello", self.key)
        self.assertTrue(came.wait(10))
        stopped = time.monotonic()
        self.ok(self.server.call("POST", "/v1/channels/web:model/stop", key=self.key))
        self.ended(self.wait(turn, self.key), "canceled", "canceled")
        poll(lambda: hung_up, 5, "the call is given up")
        self.assertTrue(hung_up[0][0])
        self.assertLess(hung_up[0][1] - stopped, 1)


class Credentials(Checks):
    """Read at each call, sent as a bearer token, and found in no answer."""

    def setUp(self):
        self.upstream = Upstream()
        self.addCleanup(self.upstream.close)

    def serve(self, credential, **more):
        server = Server(start=False, **more, model={"url": self.upstream.url, "allow_http": True, "credential": credential})
        self.addCleanup(server.discard)
        return server

    def start(self, server):
        server.start()
        key = server.key()
        server.channel_on("web:c")
        return lambda text="hello": server.turn("web:c", text, key)

    def sent(self):
        return self.upstream.requests[-1].headers["Authorization"]

    def test_file(self):
        server = self.serve({})
        file = secret_file(server.root, TOKEN)
        server.write_config(model={"credential": {"file": str(file)}})
        turn = self.start(server)
        self.ended(turn(), "succeeded")
        self.assertEqual(self.sent(), f"Bearer {TOKEN}")
        with self.subTest("rotated between turns"):
            secret_file(server.root, "tok-second-0123456789abcdef")
            self.ended(turn(), "succeeded")
            self.assertEqual(self.sent(), "Bearer tok-second-0123456789abcdef")
        with self.subTest("unusable for a while"):
            for text in ("short", "x" * 9000, "two words 0123456789"):
                secret_file(server.root, text)
                self.ended(turn(), "failed", "model_refused")
                self.assertNotIn(text, server.log())
            file.unlink()
            self.ended(turn(), "failed", "model_refused")
            self.assertEqual(len(self.upstream.requests), 2)
            secret_file(server.root, TOKEN)
            self.ended(turn(), "succeeded")
        server.close()

    def test_environment(self):
        server = self.serve({"env": "MODEL_TOKEN"}, environment={"MODEL_TOKEN": TOKEN})
        turn = self.start(server)
        self.ended(turn(), "succeeded")
        self.assertEqual(self.sent(), f"Bearer {TOKEN}")
        # The environment is cleared after the start.
        environment = pathlib.Path(f"/proc/{server.process.pid}/environ").read_bytes()
        self.assertNotIn(TOKEN.encode(), environment)
        server.close()

    def test_command(self):
        server = self.serve({})
        file = secret_file(server.root, TOKEN)
        server.write_config(model={"credential": {"command": ["/bin/cat", str(file)]}})
        turn = self.start(server)
        self.ended(turn(), "succeeded")
        self.assertEqual(self.sent(), f"Bearer {TOKEN}")
        secret_file(server.root, "tok-second-0123456789abcdef")
        self.ended(turn(), "succeeded")
        self.assertEqual(self.sent(), "Bearer tok-second-0123456789abcdef")
        file.unlink()  # the command fails
        self.ended(turn(), "failed", "model_refused")
        server.close()

    def test_refused_at_start(self):
        for credential, environment in (({"env": "MODEL_TOKEN"}, {"MODEL_TOKEN": "fifteen-letters"}),
                                        ({"env": "MODEL_TOKEN"}, {}), ({"file": "/nonexistent/token"}, {}),
                                        ({"command": ["/bin/false"]}, {}), ({"command": ["cat", "/dev/null"]}, {}),
                                        ({"command": ["/bin/echo", "fifteen-letters"]}, {})):
            with self.subTest(credential=credential, environment=environment):
                server = self.serve(credential, environment=environment)
                with self.assertRaisesRegex(AssertionError, "the server ended with 1"):
                    server.start()
                server.process = None
                self.assertIn("credential", server.log())
                self.assertNotIn("fifteen-letters", server.log().replace('"/bin/echo"', ""))

    def test_reflected(self):
        """An answer that holds the credential, in any dress, is refused."""
        server = self.serve({"env": "MODEL_TOKEN"}, environment={"MODEL_TOKEN": TOKEN})
        turn = self.start(server)
        key_of_answer = says("x")
        key_of_answer["choices"][0]["message"][TOKEN] = 1
        for answer in (says(f"you sent Bearer {TOKEN}"), says(TOKEN.encode().hex()), says(TOKEN.replace("-", "%2D")),
                       key_of_answer, calls(("memory_set", {"scope": "channel", "key": "k", "value": TOKEN}))):
            self.upstream.answer = answer
            self.ended(turn(), "failed", "model_refused")
        self.upstream.answer = says(TOKEN[:-1])
        self.ended(turn(), "succeeded")
        server.close()
