"""Who is served next, when one key has more waiting than there is to do in an hour. (docs/house.md; queue/queue.h)"""
import json
import threading

from lib.case import SPEAKER, Checks
from lib.cloister import Server, release_only
from lib.crash import IMAGE
from lib.http import poll

CHANNELS, EACH, THREADS = 500, 20, 2
FEW, LATE = 24, 2  # channels; those that come when the others wait already


class TestFairness(Checks):
    def submit(self, server, key, channels, each):
        """That many turns in each channel, over kept connections; in order of arrival within a channel."""

        def work(part):
            with server.client(key) as client:
                for channel in part:
                    body = json.dumps({"channel": channel, "speaker": SPEAKER, "text": "echo"}).encode()
                    for _ in range(each):
                        answer = client.call("POST", "/v1/turns", body, {"Prefer": "respond-async"})
                        if answer.status != 202:
                            self.refused.append(answer)
                            return

        self.refused = []
        threads = [threading.Thread(target=work, args=[channels[number::8]]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.refused, [])

    def enable(self, server, key, channels):
        with server.client(key) as client:
            for channel in channels:
                self.assertIn(client.call("PUT", f"/v1/channels/{channel}", {"enabled": True}).status, (200, 201))

    def wait_for_an_engine(self, channels, each):
        """A server on which one key has that much waiting, and which begins with it now; and two keys."""
        server = Server(start=False, image=IMAGE, pool={"size": THREADS, "drain_ms": 5000},
                        queue={"per_channel": 1000, "per_key": 20000, "total": 30000})
        self.addCleanup(server.discard)
        engine = server.config["engine_socket"]
        server.write_config(engine_socket="/nonexistent/engine.sock")
        server.start(ready=False)
        greedy, modest = server.key("greedy"), server.key("modest", channels=["one:*"])
        late = [f"late:{number}" for number in range(LATE)]
        self.enable(server, greedy, channels + late + ["one:a"])
        self.submit(server, greedy, channels, each)
        server.stop()
        server.write_config(engine_socket=engine)
        server.start()
        poll(lambda: len(self.turns(server, greedy)) > THREADS, 30, "they run")
        return server, greedy, modest, late

    @release_only
    def test_another_key_beside_ten_thousand_turns(self):
        """Its first turn starts within one turn a thread."""
        server, greedy, modest, _ = self.wait_for_an_engine([f"many:{number}" for number in range(CHANNELS)], EACH)
        self.other_key(server, greedy, modest)
        server.close()

    @release_only
    def test_late_channels_of_the_same_key(self):
        """Each has its first turn before any channel has its second; with 500 the queue's own tests hold it."""
        server, greedy, _, late = self.wait_for_an_engine([f"many:{number}" for number in range(FEW)], EACH)
        self.late_channels(server, greedy, late)
        server.close()

    def other_key(self, server, greedy, modest):
        turn = self.ok(self.post(server, modest, "one:a"), 202)
        seen = poll(lambda: (t := server.call("GET", f"/v1/turns/{turn['id']}", key=modest).json)["started_at"] and t, 30, "it starts")
        between = [turn for turn in self.turns(server, greedy) if seen["created_at"] < turn["started_at"] < seen["started_at"]]
        # One place of the rotation, and one that a thread took as it was accepted.
        self.assertLessEqual(len(between), THREADS, [turn["channel"] for turn in between])

    def turns(self, server, key):
        found = []
        for status in ("running", "succeeded"):
            found += self.ok(server.call("GET", f"/v1/turns?limit=200&status={status}", key=key))["data"]
        return [turn for turn in found if not turn["channel"].startswith("one:")]

    def post(self, server, key, channel):
        body = {"channel": channel, "speaker": SPEAKER, "text": "echo"}
        return server.call("POST", "/v1/turns", body, key, {"Prefer": "respond-async"})

    def late_channels(self, server, key, late):
        posted = [self.ok(self.post(server, key, channel), 202) for channel in late]
        for turn in posted:
            poll(lambda turn=turn: server.call("GET", f"/v1/turns/{turn['id']}", key=key).json["started_at"], 60, "it starts")
        started = sorted((turn["started_at"], turn["channel"]) for turn in self.turns(server, key))
        channels = [channel for _, channel in started]
        last = max(channels.index(channel) for channel in late)
        self.assertEqual(len(set(channels[:last + 1])), last + 1, f"somebody had a second turn before: {channels}")
        self.assertGreater(last, LATE, "others were before them")
