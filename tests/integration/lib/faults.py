"""A server whose allocations and writes can be made to fail: tests/faults preloaded, and the page that steers it."""
import contextlib
import mmap
import os
import pathlib
import re
import struct
import subprocess

from lib.cloister import ROOT, Server, binary

# tests/faults/control.h: fields of 8 bytes each.
ALLOC, FILE, SOCKET = KINDS = (1, 2, 3)
FIELDS = ["kind", "by_place", "countdown", "length", "error", "hits", "calls_none", "calls_alloc", "calls_file", "calls_socket",
          "live", "trace_length"]
TRACE_MAX = 32
PLACES_MAX = 65536
SHORT = 0  # as an error: the first half is written, and nothing said


def library():
    """The preloaded library, from the build of the tests."""
    builds = [os.environ.get("CLOISTER_TEST_BUILD"), binary().parent, ROOT / "build-test"]
    paths = [pathlib.Path(build) / "tests/faults/faults.so" for build in builds if build]
    for path in paths:
        if path.is_file():
            return path
    raise RuntimeError(f"{paths[0]} is not there: build with -DCLOISTER_TESTS=ON")


class Control:
    """The page, as the test sees it."""

    def __init__(self, path, owner):
        with open(path, "w+b") as file:
            size = 8 * (len(FIELDS) + TRACE_MAX + PLACES_MAX)
            file.truncate(size)
            self.page = mmap.mmap(file.fileno(), size)
        os.chown(path, owner.pw_uid, owner.pw_gid)

    def get(self, field):
        return struct.unpack_from("=q", self.page, 8 * FIELDS.index(field))[0]

    def set(self, **fields):
        for field, value in fields.items():
            struct.pack_into("=q", self.page, 8 * FIELDS.index(field), value)

    def calls(self, kind):
        return self.get(FIELDS[6 + kind])

    def arm(self, kind, nth, error, length=1):
        """The nth call from now on fails, and the length - 1 calls after it."""
        self.set(kind=0)
        self.set(by_place=0, countdown=nth, length=length, error=error, hits=0, trace_length=0)
        self.set(kind=kind)

    def arm_new_place(self, kind, error):
        """The next call fails that comes from a place, its callers some levels up, of which none has failed yet."""
        self.set(kind=0)
        self.set(by_place=1, error=error, hits=0, trace_length=0)
        self.set(kind=kind)

    def places(self):
        """The places that have failed, to be carried over to another server."""
        offset = 8 * (len(FIELDS) + TRACE_MAX)
        return self.page[offset:offset + 8 * PLACES_MAX]

    def set_places(self, places):
        offset = 8 * (len(FIELDS) + TRACE_MAX)
        self.page[offset:offset + 8 * PLACES_MAX] = places

    def disarm(self):
        """How many calls failed."""
        self.set(kind=0)
        return self.get("hits")

    def trace(self):
        """Return addresses of the first call that failed."""
        length = max(0, min(self.get("trace_length"), TRACE_MAX))
        return list(struct.unpack_from(f"={length}Q", self.page, 8 * len(FIELDS)))


class FaultyServer(Server):
    """A Server with the library in it; the command line runs without."""

    def __init__(self, start=True, **more):
        super().__init__(start=False, **more)
        self.library = self.root / "faults.so"
        self.library.write_bytes(library().read_bytes())
        self.library.chmod(0o755)
        self.control = Control(self.root / "faults.control", self.account)
        if start:
            try:
                self.start()
            except BaseException:
                self.discard()
                raise

    def start(self, ready=True):
        self.environment = {"LD_PRELOAD": str(self.library), "FAULTS_CONTROL": str(self.root / "faults.control")}
        try:
            return super().start(ready)
        finally:
            self.environment = {}

    def as_account(self, *command):
        """Without random addresses, so that a place is the same in each server."""
        return ["setarch", "--addr-no-randomize", *super().as_account(*command)]

    def descriptors(self):
        """How many are open, those of the state apart, and how many connections to the state there are."""
        folder, links = f"/proc/{self.process.pid}/fd", []
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(f"{folder}/{name}"))
        state = self.config["state_file"]
        return sum(not link.startswith(state) for link in links), links.count(state)

    def where(self, addresses):
        """The functions that these addresses lie in, innermost first, without those of the library itself."""
        maps = []
        for line in pathlib.Path(f"/proc/{self.process.pid}/maps").read_text().splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \S+\s+(/.*)", line)
            if found:
                maps.append([int(found[1], 16), int(found[2], 16), int(found[3], 16), found[4]])
        lines = []
        for address in addresses:
            for begin, end, offset, path in maps:
                if begin <= address < end and path != str(self.library):
                    lines.append(self.name_of(path, address - 1 - begin + offset, address - begin + offset))
        return lines

    @staticmethod
    def name_of(path, offset, plain):
        """The offset in the file is the address in it too, for code of the linkers that make our binaries."""
        done = subprocess.run(["addr2line", "-fspe", path, hex(offset)], check=False, stdout=subprocess.PIPE, text=True)
        name = done.stdout.strip()
        return name if name and not name.startswith("??") else f"{os.path.basename(path)}+{plain:#x}"
