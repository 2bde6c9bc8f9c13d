"""Clients that submit turns to a service which may go away at any moment, and the account of what became of the turns.

Every turn has an Idempotency-Key of its own: one whose answer was lost is sent again under it, so that each name stands for one
turn at the end. The image is cloister-test-by-text, whose `count MS` notes each run in the channel's workspace."""
import contextlib
import http.client
import random
import sqlite3
import threading

from lib.case import SPEAKER
from lib.http import poll

OPEN = ("queued", "running")
PREFERENCES = ("respond-async", "respond-async", "wait=1")


class Sent:
    """One turn as its client knows it."""

    def __init__(self, name, channel, text, max_attempts):
        self.name, self.max_attempts, self.id, self.seen = name, max_attempts, None, None
        self.body = {"channel": channel, "speaker": SPEAKER, "text": text}
        if max_attempts > 1:
            self.body["max_attempts"] = max_attempts


class Load:
    """`channels` clients, each in a channel of its own; every third allows a turn to run again."""

    def __init__(self, server, key, channels, seed):
        self.server, self.key, self.chance = server, key, random.Random(seed)
        self.channels = [f"load:{number}" for number in range(channels)]
        self.sent, self.unanswered, self.faults = [], [[] for _ in self.channels], []
        self.lock = threading.Lock()
        self.threads = []
        for channel in self.channels:
            server.channel_on(channel)

    def begin(self, most, slow_ms=(0, 0, 300)):
        """Every client sends again what was not answered, then so many new turns; in the background."""
        for number, channel in enumerate(self.channels):
            todo, self.unanswered[number] = self.unanswered[number], []
            for _ in range(most):
                new = Sent(f"n{len(self.sent)}", channel, f"count {self.chance.choice(slow_ms)}", 1 if number % 3 else 3)
                self.sent.append(new)
                todo.append(new)
            wishes = [self.chance.choice(PREFERENCES) for _ in todo]
            self.threads.append(threading.Thread(target=self.client, args=(number, todo, wishes)))
        for thread in self.threads:
            thread.start()

    def client(self, number, todo, wishes):
        """Stops at the first turn that gets no answer: the order of a channel is that of acceptance."""
        while todo:
            try:
                answer = self.server.call("POST", "/v1/turns", todo[0].body, self.key,
                                          {"Idempotency-Key": todo[0].name, "Prefer": wishes.pop(0)}, timeout=60)
            except (OSError, http.client.HTTPException):
                break
            if answer.status in (429, 503):
                break
            self.note(todo.pop(0), answer)
        self.unanswered[number] = todo

    def note(self, sent, answer):
        with self.lock:
            if answer.status not in (200, 202) or sent.id not in (None, answer.json["id"]):
                self.faults.append((sent.name, sent.id, answer))
                return
            sent.id = answer.json["id"]
            if answer.json["status"] not in OPEN:
                sent.seen = answer.json

    def join(self):
        for thread in self.threads:
            thread.join(90)
            assert not thread.is_alive(), "a client hangs"
        self.threads = []

    # The account

    def turns(self):
        """All turns of the service in order of acceptance, by its list."""
        found, cursor = [], ""
        while True:
            answer = self.server.call("GET", f"/v1/turns?limit=100{cursor}", key=self.key)
            assert answer.status == 200, answer
            found += answer.json["data"]
            if not answer.json["has_more"]:
                return found[::-1]
            cursor = f"&cursor={answer.json['next_cursor']}"

    def open(self):
        """How many have not ended."""
        return self.rows("SELECT count(*) FROM turns WHERE status IN ('queued', 'running')")[0][0]

    def settle(self, seconds=60):
        """Everything is answered, and has ended; so long may nothing end at all."""
        while any(self.unanswered):
            self.begin(0)
            self.join()
        while left := self.open():
            try:
                poll(lambda left=left: self.open() < left, seconds, f"one of {left} ends")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.state()}") from None
        poll(lambda: not self.server.containers(), 20, "no container is left")
        poll(lambda: not self.rows("SELECT slot FROM slots"), 10, "no slot is left")

    def state(self):
        """What can be seen of a service in which nothing ends."""
        stuck = self.rows("SELECT channel, id, status, attempts FROM turns WHERE status IN ('queued', 'running') ORDER BY seq LIMIT 20")
        channels = self.server.call("GET", "/v1/channels", key=self.key).json["data"]
        return "\n".join(map(str, (*stuck, *channels, self.rows("SELECT * FROM slots"), self.server.containers(),
                                   self.server.call("GET", "/readyz"), self.server.log()[-6000:])))

    def rows(self, sql):
        with contextlib.closing(sqlite3.connect(f"file:{self.server.config['state_file']}?mode=ro", uri=True)) as state:
            return state.execute(sql).fetchall()

    def runs(self, channel):
        """The turns that ran in a channel, in order, by what their workers noted."""
        with contextlib.suppress(FileNotFoundError):
            return (self.server.workspace(channel) / "runs").read_text().split()
        return []

    def check(self, case, endings):
        """No turn lost, run twice, stuck or told otherwise than before. `endings`: codes that are allowed beside success."""
        case.assertEqual(self.faults, [])
        turns = self.turns()
        by_id = {turn["id"]: turn for turn in turns}
        case.assertEqual(sorted(by_id), sorted(sent.id for sent in self.sent), "each name stands for one turn")
        order = {turn["id"]: number for number, turn in enumerate(turns)}
        codes = {turn["error"]["code"] for turn in turns if turn["error"]}
        case.assertLessEqual(codes, set(endings), [turn for turn in turns if turn["error"] and turn["error"]["code"] not in endings])
        for sent in self.sent:
            turn = by_id[sent.id]
            runs = self.runs(turn["channel"]).count(sent.id)
            code = turn["error"] and turn["error"]["code"]
            case.assertNotIn(turn["status"], OPEN)
            case.assertLessEqual(runs, turn["attempts"], turn)
            case.assertLessEqual(turn["attempts"], sent.max_attempts, turn)
            if code is None:
                case.assertGreaterEqual(runs, 1, turn)
                case.assertEqual(turn["reply"], {"text": sent.body["text"]})
            if sent.seen is not None:
                case.assertEqual({**turn, "logs": None}, {**sent.seen, "logs": None}, "what was told stays so")
        for channel in self.channels:
            places = [order[turn] for turn in self.runs(channel)]
            case.assertEqual(places, sorted(places), f"{channel} in order of acceptance")
        ends = self.rows("SELECT t.id, sum(e.type = 'ended'), max(e.n) = max(CASE e.type WHEN 'ended' THEN e.n END) "
                         "FROM turns t JOIN events e ON e.turn = t.seq GROUP BY t.seq")
        case.assertEqual([row for row in ends if row[1:] != (1, 1)], [], "one end, and nothing after it")
        return turns
