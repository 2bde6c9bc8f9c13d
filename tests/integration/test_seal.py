"""The seal (mission.md section 2): as the engine shows a container while its turn runs, as the kernel shows its process, and
as it looks from inside; and the operator's credential, which is nowhere but on its way to the model."""
import base64
import http.server
import json
import os
import pathlib
import re
import secrets
import threading
import urllib.parse

from lib.case import Checks, ServerCase
from lib.cloister import Server
from lib.http import poll

CHANNEL = "web:lobby"
TESTED_IMAGE = "cloister-test-sealed:local"
MASKED = {"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"}
READ_ONLY = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
# What could widen the seal; empty in whatever form the engine gives it.
ABSENT_HOST = ("Binds", "VolumesFrom", "CapAdd", "Devices", "DeviceRequests", "DeviceCgroupRules", "GroupAdd", "Sysctls",
               "PortBindings", "Links", "ExtraHosts", "Dns", "DnsOptions", "DnsSearch", "UsernsMode", "CgroupParent", "PidMode",
               "UTSMode", "Privileged", "PublishAllPorts", "AutoRemove", "OomKillDisable", "Init", "StorageOpt")


class TestInspect(ServerCase):
    """One turn sleeps; its container is looked at meanwhile."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        engine = cls.server.engine
        cls.server.stop()
        # A tag of our own, which moves to another image once the service has resolved it.
        engine.tag("cloister-worker:test", TESTED_IMAGE)
        cls.addClassCleanup(engine.untag, TESTED_IMAGE)
        cls.image_id = engine.image_id(TESTED_IMAGE)
        cls.image_env = engine.get(f"/images/{cls.image_id}/json")["Config"]["Env"] or []
        cls.server.write_config(image=TESTED_IMAGE)
        cls.server.start()
        engine.tag("cloister-test-echo:local", TESTED_IMAGE)
        assert engine.image_id(TESTED_IMAGE) != cls.image_id
        cls.key = cls.server.key()
        cls.server.channel_on(CHANNEL)
        body = {"channel": CHANNEL, "speaker": {"id": "u1", "name": "Ada"}, "text": "/sleep 60000"}
        answer = cls.server.call("POST", "/v1/turns", body, cls.key, {"Prefer": "respond-async"})
        assert answer.status == 202, answer
        cls.turn = answer.json
        cls.doc = poll(cls.running_container, 20, "the container runs")
        cls.host = cls.doc["HostConfig"]
        cls.conf = cls.doc["Config"]

    @classmethod
    def running_container(cls):
        for container in cls.server.containers():
            doc = cls.server.engine.inspect(container)
            if doc and doc["State"]["Running"]:
                return doc
        return None

    @classmethod
    def tearDownClass(cls):
        answer = cls.server.call("POST", f"/v1/channels/{CHANNEL}/stop", key=cls.key)
        assert answer.json["stopped"] is True, answer
        super().tearDownClass()

    def test_one_container_by_id_under_its_own_name(self):
        self.assertEqual(len(self.server.containers()), 1)
        name = self.doc["Name"]
        self.assertRegex(name, r"^/cloister-[0-9a-f]{32}$")
        self.assertEqual(self.doc["Image"], self.image_id)
        self.assertEqual(self.conf["Image"], self.image_id)
        labels = self.conf["Labels"]
        self.assertEqual(labels["io.cloister.slot"], name.removeprefix("/cloister-"))
        for label in ("io.cloister.installation", "io.cloister.boot"):
            self.assertRegex(labels[label], r"^[0-9a-f]{32}$")

    def test_process(self):
        account = self.server.account
        self.assertEqual(self.conf["User"], f"{account.pw_uid}:{account.pw_gid}")
        self.assertNotIn(0, (account.pw_uid, account.pw_gid))
        self.assertIs(self.conf["OpenStdin"], True)
        self.assertIs(self.conf["StdinOnce"], True)
        self.assertIs(self.conf["AttachStdin"], True)
        self.assertIs(self.conf["Tty"], False)
        self.assertEqual(self.conf["Hostname"], "cloister")
        self.assertEqual(self.conf["Domainname"], "")
        self.assertEqual(self.conf["Healthcheck"], {"Test": ["NONE"]})
        self.assertNotIn("Health", self.doc["State"])
        self.assertEqual(self.doc["ExecIDs"], None)

    def test_environment_is_the_images_and_home(self):
        self.assertEqual(sorted(self.conf["Env"]), sorted([*self.image_env, "HOME=/tmp/home"]))

    def test_no_network(self):
        self.assertEqual(self.host["NetworkMode"], "none")
        self.assertIs(self.conf["NetworkDisabled"], True)
        self.assertFalse(self.conf.get("ExposedPorts"))
        self.assertFalse(self.doc["NetworkSettings"]["Ports"])
        self.assertEqual(self.doc["NetworkSettings"]["IPAddress"], "")

    def test_privileges(self):
        self.assertEqual(self.host["CapDrop"], ["ALL"])
        self.assertIs(self.host["ReadonlyRootfs"], True)
        self.assertEqual(self.host["IpcMode"], "none")
        self.assertEqual(self.host["CgroupnsMode"], "private")
        self.assertLessEqual(MASKED, set(self.host["MaskedPaths"]))
        self.assertLessEqual(READ_ONLY, set(self.host["ReadonlyPaths"]))
        for field in ABSENT_HOST:
            self.assertFalse(self.host.get(field), field)
        options = self.host["SecurityOpt"]
        self.assertEqual(len(options), 2, options)
        self.assertEqual(options[0], "no-new-privileges")
        profile = json.loads(options[1].removeprefix("seccomp="))
        self.assertEqual(profile["defaultAction"], "SCMP_ACT_ERRNO")
        self.assertEqual(len(profile["architectures"]), 1)
        self.assertLessEqual({rule["action"] for rule in profile["syscalls"]}, {"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"})

    def test_limits(self):
        self.assertEqual(self.host["Memory"], 512 * 2**20)
        self.assertEqual(self.host["MemorySwap"], self.host["Memory"])
        self.assertEqual(self.host["NanoCpus"], 10**9)
        self.assertEqual(self.host["PidsLimit"], 64)
        limits = {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in self.host["Ulimits"]}
        self.assertEqual(limits["nofile"], (256, 256))
        self.assertEqual(limits["core"], (0, 0))

    def test_log_and_restart(self):
        self.assertEqual(self.host["LogConfig"]["Type"], "none")
        self.assertEqual(self.host["RestartPolicy"]["Name"], "no")

    def test_exactly_two_mounts_and_tmp(self):
        slot = self.conf["Labels"]["io.cloister.slot"]
        mounts = {mount["Destination"]: mount for mount in self.doc["Mounts"]}
        self.assertEqual(len(self.doc["Mounts"]), 2)
        self.assertEqual(set(mounts), {"/broker", "/workspace"})
        for mount in mounts.values():
            self.assertEqual((mount["Type"], mount["Propagation"]), ("bind", "rprivate"))
        self.assertEqual(mounts["/broker"]["Source"], str(self.server.root / "run" / slot))
        self.assertIs(mounts["/broker"]["RW"], False)
        self.assertEqual(mounts["/workspace"]["Source"], str(self.server.workspace(CHANNEL)))
        self.assertIs(mounts["/workspace"]["RW"], True)
        self.assertEqual(self.host["Tmpfs"], {"/tmp": "rw,noexec,nosuid,nodev,size=64m,mode=1777"})
        self.assertFalse(self.conf["Volumes"])

    def test_kernel_agrees(self):
        process = pathlib.Path("/proc") / str(self.doc["State"]["Pid"])
        status = dict(re.findall(r"^(\w+):\t(.*)$", (process / "status").read_text(), re.M))
        account = self.server.account
        self.assertEqual(status["Uid"].split(), [str(account.pw_uid)] * 4)
        self.assertEqual(status["Gid"].split(), [str(account.pw_gid)] * 4)
        self.assertLessEqual(set(status["Groups"].split()), {str(account.pw_gid)})
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        limits = dict(re.findall(r"^(Max [a-z ]+?)  +(\S+ +\S+)", (process / "limits").read_text(), re.M))
        self.assertEqual(limits["Max open files"].split(), ["256", "256"])
        self.assertEqual(limits["Max core file size"].split(), ["0", "0"])
        for name in ("cgroup", "ipc", "mnt", "net", "pid", "uts"):
            self.assertNotEqual(os.readlink(process / "ns" / name), os.readlink(f"/proc/self/ns/{name}"), name)

    def test_folders_are_private(self):
        slot = self.server.root / "run" / self.conf["Labels"]["io.cloister.slot"]
        account = self.server.account
        for path, mode in ((slot, 0o700), (slot / "broker.sock", 0o600), (self.server.workspace(CHANNEL), 0o700)):
            self.assertEqual((path.stat().st_mode & 0o7777, path.stat().st_uid), (mode, account.pw_uid), path)

    def test_server_itself_is_sealed(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        self.assertIn("NoNewPrivs:\t1\n", status)
        # An undumpable process belongs to root in /proc, whatever its account is.
        self.assertEqual(os.stat(f"/proc/{self.server.process.pid}/mem").st_uid, 0)


class TestInside(ServerCase):
    """A worker that tells what it sees."""

    config = {"image": "cloister-test-by-text:local"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.server.key()
        cls.server.channel_on(CHANNEL)
        cls.seen = cls.data("inspect-self")

    @classmethod
    def data(cls, mode):
        turn = cls.server.turn(CHANNEL, mode, cls.key)
        assert turn["status"] == "succeeded", turn
        return turn["reply"]["data"]

    def test_only_lo_and_no_route(self):
        self.assertEqual(self.seen["interfaces"], ["lo"])
        self.assertEqual(self.seen["routes"], [])
        # The kernel's own: nothing but lo's refuse-all and local entries.
        self.assertEqual({route.split()[-1] for route in self.seen["routes6"]} - {"lo"}, set())

    def test_what_can_be_written(self):
        write = self.seen["write"]
        self.assertEqual({path for path, outcome in write.items() if outcome == "writable"}, {"/workspace", "/tmp"})
        for path in ("/", "/broker", "/etc"):
            self.assertEqual(write[path], "Read-only file system", path)

    def test_mounts_as_the_kernel_has_them(self):
        mounts = {line.split()[1]: line.split()[3].split(",") for line in self.seen["mounts"]}
        self.assertIn("ro", mounts["/"])
        self.assertIn("ro", mounts["/broker"])
        self.assertIn("rw", mounts["/workspace"])
        for option in ("rw", "noexec", "nosuid", "nodev", "size=65536k"):
            self.assertIn(option, mounts["/tmp"])
        for path in ("/sys", "/proc/sys", "/proc/bus"):
            self.assertIn("ro", mounts.get(path, ["ro"]), path)

    def test_no_privilege(self):
        status = self.seen["status"]
        account = self.server.account
        self.assertEqual(status["Uid"].split(), [str(account.pw_uid)] * 4)
        self.assertEqual(status["Gid"].split(), [str(account.pw_gid)] * 4)
        self.assertLessEqual(set(status["Groups"].split()), {str(account.pw_gid)})
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    def test_no_shared_memory_no_core_few_files(self):
        self.assertEqual(self.seen["shm"], "absent")
        self.assertEqual(self.seen["core"], [0, 0])
        self.assertEqual(self.seen["nofile"], [256, 256])

    def test_constant_host_name_and_no_host_environment(self):
        self.assertEqual(self.seen["host"], "cloister")
        names = {entry.split("=")[0] for entry in self.seen["env"]}
        self.assertEqual(names, {"HOME", "PATH", "HOSTNAME"})
        self.assertIn("HOME=/tmp/home", self.seen["env"])
        self.assertIn("HOSTNAME=cloister", self.seen["env"])

    def test_private_cgroup_namespace(self):
        self.assertTrue(self.seen["cgroup"])
        for line in self.seen["cgroup"]:
            self.assertEqual(line.split(":", 2)[2], "/", line)

    def test_the_server_environment_stays_outside(self):
        with Server(environment={"CLOISTER_TEST_LEAK": "leaked-into-the-guest"}, image="cloister-test-dump:local") as server:
            key = server.key()
            server.channel_on(CHANNEL)
            turn = server.turn(CHANNEL, "dump", key)
            self.assertEqual(turn["status"], "succeeded", turn)
            self.assertNotIn("leaked-into-the-guest", json.dumps(turn))
            # It clears its own after the start, so that nothing is read from there later either.
            environ = pathlib.Path(f"/proc/{server.process.pid}/environ").read_bytes()
            self.assertNotIn(b"leaked-into-the-guest", environ)


EPERM, ENOSYS, KILLED = "errno 1", "errno 38", "signal 31"
# By name in mission.md section 2, and what could change what the seal is made of. Numbers of x86_64.
REFUSED = {
    "inotify_init": 253, "inotify_add_watch": 254, "inotify_rm_watch": 255, "inotify_init1": 294, "fanotify_init": 300,
    "fanotify_mark": 301, "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242, "mq_timedreceive": 243, "mq_notify": 244,
    "mq_getsetattr": 245, "add_key": 248, "request_key": 249, "keyctl": 250, "userfaultfd": 323, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "bpf": 321, "ptrace": 101, "perf_event_open": 298, "mount": 165,
    "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "mount_setattr": 442, "init_module": 175, "delete_module": 176, "finit_module": 313, "kexec_load": 246,
    "kexec_file_load": 320, "reboot": 169, "swapon": 167, "swapoff": 168, "iopl": 172, "ioperm": 173, "modify_ldt": 154,
    "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "sethostname": 170, "setdomainname": 171, "acct": 163,
    "syslog": 103, "quotactl": 179, "name_to_handle_at": 303, "open_by_handle_at": 304, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438, "shmget": 29, "semget": 64, "msgget": 68, "memfd_secret": 447,
    "lookup_dcookie": 212, "vhangup": 153,
}
# What ordinary programs need: answered by the kernel itself, and so with something else than EPERM.
ALLOWED = {
    "read": 0, "write": 1, "open": 2, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11,
    "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "pipe": 22, "madvise": 28, "dup": 32, "nanosleep": 35, "getpid": 39,
    "sendfile": 40, "connect": 42, "accept": 43, "sendto": 44, "recvfrom": 45, "fork": 57, "execve": 59, "exit": 60,
    "wait4": 61, "kill": 62, "fcntl": 72, "fsync": 74, "ftruncate": 77, "getdents": 78, "getcwd": 79, "rename": 82,
    "mkdir": 83, "unlink": 87, "chmod": 90, "umask": 95, "getuid": 102, "sigaltstack": 131, "statfs": 137, "gettid": 186,
    "epoll_create": 213, "getdents64": 217, "clock_gettime": 228, "exit_group": 231, "openat": 257,
    "newfstatat": 262, "timerfd_create": 283, "eventfd2": 290, "epoll_create1": 291, "pipe2": 293, "prlimit64": 302,
    "getrandom": 318, "memfd_create": 319, "execveat": 322, "statx": 332, "rseq": 334, "close_range": 436, "openat2": 437,
    "faccessat2": 439,
}
ARGUMENTS = {
    "socket unix": "ok", "socket inet": EPERM, "socket inet6": EPERM, "socket netlink": EPERM, "socket packet": EPERM,
    "socket vsock": EPERM, "socket alg": EPERM, "clone plain": "ok", "clone newuser": EPERM, "clone newnet": EPERM,
    "clone newns": EPERM, "clone newcgroup": EPERM, "unshare user": EPERM, "clone3": ENOSYS, "prctl name": "ok",
    "prctl seccomp": EPERM, "prctl mm": EPERM, "prctl ptracer": EPERM, "ioctl isatty": "errno 25", "ioctl sti": EPERM,
    "ioctl sti alias": EPERM, "ioctl linux": EPERM, "i386 getpid": KILLED, "x32 getpid": KILLED, "x32 unshare": KILLED,
}


class TestSystemCalls(ServerCase):
    """A worker that calls every number from 0 to 600."""

    config = {"image": "cloister-test-seccomp-probe:local"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        key = cls.server.key()
        cls.server.channel_on(CHANNEL)
        turn = cls.server.turn(CHANNEL, "probe", key)
        assert turn["status"] == "succeeded", turn
        cls.calls = {int(number): said for number, said in turn["reply"]["data"]["calls"].items()}
        cls.arguments = turn["reply"]["data"]["arguments"]

    def test_every_number_was_called(self):
        self.assertEqual(sorted(self.calls), list(range(601)))
        self.assertNotIn("no process", self.calls.values())

    def test_refused_by_name(self):
        self.assertEqual({name: self.calls[number] for name, number in REFUSED.items()}, dict.fromkeys(REFUSED, EPERM))

    def test_allowed_by_name(self):
        for name, number in ALLOWED.items():
            self.assertNotIn(self.calls[number], (EPERM, ENOSYS, KILLED), name)

    def test_what_does_not_exist_is_refused(self):
        """Numbers that no kernel of today has: were one let through, tomorrow's kernel would give it a meaning."""
        for number in range(500, 601):
            self.assertIn(self.calls[number], (EPERM, ENOSYS), number)

    def test_arguments(self):
        self.assertEqual({name: self.arguments[name] for name in ARGUMENTS}, ARGUMENTS)


class Upstream:
    """A chat completions server that may give the bearer token back, in the way that `reflect` says."""

    WAYS = {
        "raw": lambda token: token,
        "in a sentence": lambda token: f"Your header was: Bearer {token}.",
        "base64": lambda token: base64.b64encode(token.encode()).decode(),
        "base64 inside": lambda token: base64.b64encode(f"xy{token}z".encode()).decode(),
        "base64url": lambda token: base64.urlsafe_b64encode(token.encode()).decode().rstrip("="),
        "hex": lambda token: token.encode().hex(),
        "upper hex": lambda token: token.encode().hex().upper(),
        "url-encoded": lambda token: "".join(f"%{byte:02X}" for byte in token.encode()),
        "partly url-encoded": lambda token: urllib.parse.quote(token, safe=""),
        "json in json": lambda token: json.dumps({"key": "".join(f"\\u{ord(char):04x}" for char in token)}),
    }

    def __init__(self):
        self.tokens, self.bodies = [], []
        self.reflect = self.status = self.message = None
        self.hold = threading.Event()
        self.hold.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/chat/completions"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request):
        self.bodies.append(request.rfile.read(int(request.headers["content-length"])))
        token = (request.headers["authorization"] or "").removeprefix("Bearer ")
        self.tokens.append(token)
        self.hold.wait(30)
        message = {"role": "assistant", "content": "The key is my secret."}
        document = {"choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
        if self.reflect == "key":
            document[token] = 1
        elif self.reflect == "tool call":
            call = {"id": "c1", "type": "function", "function": {"name": "memory_set", "arguments": json.dumps({"k": token})}}
            message["tool_calls"] = [call]
        elif self.reflect in self.WAYS:
            message["content"] = self.WAYS[self.reflect](token)
        body = json.dumps(document).encode()
        if self.status == 302:
            request.send_response(302)
            request.send_header("Location", f"{self.url}?token={token}")
        else:
            request.send_response(self.status or 200, f"OK {token}")
        request.send_header("X-Your-Authorization", f"Bearer {token}")
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def close(self):
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()


class TestCredential(Checks):
    """The credential goes to the model's server, and is found nowhere else."""

    def setUp(self):
        self.secret = "sk/live+" + secrets.token_urlsafe(24)
        self.forms = [self.secret.encode(), urllib.parse.quote(self.secret, safe="").encode(), self.secret.encode().hex().encode()]
        for shift in range(3):
            text = base64.b64encode(b"\0" * shift + self.secret.encode() + b"\0\0")
            self.forms.append(text[4 if shift else 0:len(self.secret) * 4 // 3 - 1])
        self.upstream = Upstream()
        self.addCleanup(self.upstream.close)

    def make_server(self, **config):
        server = Server(start=False, **config)
        self.addCleanup(server.discard)
        path = server.root / "credential"
        path.write_text(self.secret + "\n")
        path.chmod(0o600)
        os.chown(path, server.account.pw_uid, server.account.pw_gid)
        server.write_config(model={"url": self.upstream.url, "allow_http": True, "allow_script": None,
                                   "credential": {"file": str(path)}})
        server.start()
        self.key = server.key()
        server.channel_on(CHANNEL)
        return server

    def absent(self, data, where):
        data = data if isinstance(data, bytes) else json.dumps(data).encode() if not isinstance(data, str) else data.encode()
        for form in self.forms:
            if form in data:
                at = data.index(form)
                self.fail(f"{where} holds the credential: {data[max(0, at - 80):at + 20]!r}")

    def absent_from_files(self, server):
        """State (write-ahead log and all), workspaces, broker folders, log; the operator's own file is the exception."""
        seen = 0
        for path in server.root.rglob("*"):
            if path.is_file() and path.name not in ("credential", "cloister"):
                self.absent(path.read_bytes(), path)
                seen += 1
        self.assertGreater(seen, 4)

    def test_search_finds_what_is_there(self):
        """The search itself: each form in which the credential could lie around is found."""
        for way in Upstream.WAYS:
            if way == "json in json":
                continue
            text = Upstream.WAYS[way](self.secret)
            text = text.lower() if "hex" in way else text.replace("-", "+").replace("_", "/") if way == "base64url" else text
            if way == "url-encoded":
                text = urllib.parse.quote(urllib.parse.unquote(text), safe="")
            with self.subTest(way), self.assertRaises(AssertionError):
                self.absent(f"--{text}--", way)

    def test_container_and_state(self):
        server = self.make_server()
        self.upstream.hold.clear()
        body = {"channel": CHANNEL, "speaker": {"id": "u1", "name": "Ada"}, "text": "what is the key?"}
        turn = self.ok(server.call("POST", "/v1/turns", body, self.key, {"Prefer": "respond-async"}), 202)
        poll(lambda: self.upstream.tokens, 20, "the model is asked")
        self.assertEqual(self.upstream.tokens, [self.secret])
        (container,) = server.containers()
        doc = server.engine.inspect(container)
        self.absent(doc, "inspect")
        self.absent(server.engine.export(container), "the container's file system")
        process = pathlib.Path(f"/proc/{doc['State']['Pid']}")
        for name in ("environ", "cmdline", "mountinfo"):
            self.absent((process / name).read_bytes(), name)
        for path in (process / "root").rglob("*"):
            if path.is_file() and "/proc/" not in str(path)[len(str(process)):] and "/sys/" not in str(path)[len(str(process)):]:
                self.absent(path.read_bytes(), path)
        for name in ("environ", "cmdline"):
            self.absent(pathlib.Path(f"/proc/{server.process.pid}/{name}").read_bytes(), f"the server's {name}")
        self.upstream.hold.set()
        turn = poll(lambda: (t := server.call("GET", f"/v1/turns/{turn['id']}", key=self.key)).json["finished_at"] and t, 20,
                    "the turn ends")
        self.absent(turn.body, "the turn")
        self.assertEqual((turn.json["status"], turn.json["reply"]["text"]), ("succeeded", "The key is my secret."))
        for body in self.upstream.bodies:
            self.absent(body, "the request to the model")
        self.absent_from_files(server)
        server.close()
        self.absent_from_files(server)

    def test_worker_traffic(self):
        """A worker that gives away all it reads: turn, environment, files, and the broker's answers byte for byte."""
        server = self.make_server(image="cloister-test-dump:local")
        self.upstream.message = "hello"
        turn = server.turn(CHANNEL, "dump", self.key)
        self.ended(turn, "succeeded")
        data = turn["reply"]["data"]
        self.assertEqual(self.upstream.tokens, [self.secret] * 2)
        plain, dummy, shown = data["answers"]
        self.assertTrue(plain.startswith("HTTP/1.1 200 ") and "The key is my secret." in plain, plain)
        self.assertTrue(dummy.startswith("HTTP/1.1 200 "), dummy)
        self.assertTrue(shown.startswith("HTTP/1.1 403 "), shown)
        for answer in data["answers"]:
            self.assertNotIn("x-your-authorization", answer.lower())
        self.assertIn("/proc/self/status", data["files"])
        self.absent(turn, "what the worker read")
        # A reflected credential: the worker reads a general error.
        self.upstream.reflect = "raw"
        turn = server.turn(CHANNEL, "dump", self.key)
        self.assertEqual(self.upstream.tokens, [self.secret] * 4)
        self.assertRegex(turn["reply"]["data"]["answers"][0], r"^HTTP/1.1 502 ")
        self.absent(turn, "what the worker read")
        for said in turn["reply"]["data"]["answers"]:
            self.assertNotIn("127.0.0.1", said)
        self.absent_from_files(server)
        server.close()

    def test_reflection_ends_the_turn(self):
        server = self.make_server()
        for way in (*Upstream.WAYS, "key", "tool call"):
            with self.subTest(way):
                self.upstream.reflect = way
                self.ended(server.turn(CHANNEL, "what is the key?", self.key), "failed", "model_refused")
        self.upstream.reflect = None
        for status in (302, 401, 500):
            with self.subTest(status):
                self.upstream.status = status
                turn = self.ended(server.turn(CHANNEL, "what is the key?", self.key), "failed", "model_refused")
                self.absent(turn, "the turn")
        self.upstream.status = None
        self.ended(server.turn(CHANNEL, "what is the key?", self.key), "succeeded")
        self.assertEqual(set(self.upstream.tokens), {self.secret})
        self.absent(server.call("GET", "/v1/channels", key=self.key).body, "the channels")
        self.absent_from_files(server)
        server.close()

    def test_rotation_and_removal(self):
        """Read at each call, so that it can be rotated; while it is unusable the turn fails and nothing is sent."""
        server = self.make_server()
        path = server.root / "credential"
        self.ended(server.turn(CHANNEL, "one", self.key), "succeeded")
        second = "sk-second-" + secrets.token_hex(16)
        path.write_text(second)
        self.ended(server.turn(CHANNEL, "two", self.key), "succeeded")
        path.write_text("short")
        self.ended(server.turn(CHANNEL, "three", self.key), "failed", "model_refused")
        path.unlink()
        self.ended(server.turn(CHANNEL, "four", self.key), "failed", "model_refused")
        self.assertEqual(self.upstream.tokens, [self.secret, second])
        self.assertNotIn(second, server.log())
        server.close()

    def test_from_the_environment(self):
        server = Server(start=False, environment={"MODEL_KEY": self.secret})
        self.addCleanup(server.discard)
        server.write_config(model={"url": self.upstream.url, "allow_http": True, "allow_script": None,
                                   "credential": {"env": "MODEL_KEY"}})
        server.start()
        self.key = server.key()
        server.channel_on(CHANNEL)
        self.ended(server.turn(CHANNEL, "one", self.key), "succeeded")
        self.assertEqual(self.upstream.tokens, [self.secret])
        self.absent(pathlib.Path(f"/proc/{server.process.pid}/environ").read_bytes(), "the server's environment")
        self.absent_from_files(server)
        server.close()
