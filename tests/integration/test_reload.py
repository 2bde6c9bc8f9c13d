"""The image's tag is resolved again at SIGHUP, while turns go on. (mission.md section 2)"""
import os
import secrets
import signal

from lib.crash import IMAGE, Crash
from lib.engine import Engine
from lib.http import poll


class TestReload(Crash):
    def setUp(self):
        self.tag = f"cloister-test-reload:{os.getpid()}-{secrets.token_hex(4)}"
        Engine().tag(IMAGE, self.tag)
        self.addCleanup(Engine().untag, self.tag)
        self.config = {"image": self.tag}
        super().setUp()
        self.on("web:a", "web:b")

    def hang_up(self):
        self.server.process.send_signal(signal.SIGHUP)

    def stop(self, channel, turn):
        self.ok(self.server.call("POST", f"/v1/channels/{channel}/stop", key=self.key))
        self.ended(self.wait(turn), "canceled", "canceled")
        poll(lambda: not self.channel(channel)["busy"], 10, "it is gone")

    def image_of(self, channel):
        """The image that a turn of the channel runs in."""
        before = set(self.server.containers())
        turn = self.submit(channel, "ignore-term")
        (container,) = poll(lambda: set(self.server.containers()) - before, 20, "it has a container")
        image = self.server.engine.inspect(container)["Image"]
        self.running(turn)
        self.stop(channel, turn)
        return image

    def reloads(self):
        return self.server.log().count("reload: the image is resolved again")

    def test_next_turn_has_the_new_image(self):
        old = self.server.engine.image_id(self.tag)
        running = self.running(self.submit("web:a", "ignore-term"))
        self.server.engine.commit(IMAGE, self.tag)
        new = self.server.engine.image_id(self.tag)
        self.assertNotEqual(new, old)
        self.assertEqual(self.image_of("web:b"), old, "nobody asked yet")
        self.hang_up()
        poll(self.reloads, 10, "it says so")
        self.assertEqual(self.image_of("web:b"), new)
        self.assertEqual(self.read(running)["status"], "running")
        self.assertFalse([line for line in self.server.log_lines() if line["level"] == "error"])
        self.stop("web:a", running)
        self.server.close()

    def test_a_failure_makes_it_not_ready(self):
        self.ended(self.wait(self.submit("web:a", "echo before")), "succeeded")
        poll(lambda: not self.server.containers(), 10, "nothing uses the image")
        self.server.engine.untag(self.tag)
        self.assertTrue(self.server.ready(), "nobody asked yet")
        self.hang_up()
        poll(lambda: self.not_ready("image_missing"), 10, "it says so")
        waiting = self.submit("web:a", "echo after")
        Engine().tag(IMAGE, self.tag)
        self.ended(self.wait(waiting), "succeeded")
        self.server.close()
