"""The container engine, as tests look at it: what runs, what it looks like, what is left."""
import http.client
import json
import os
import socket
import threading
import urllib.parse

from lib.http import Client


class Engine:
    """Engine API over the socket of DOCKER_HOST, or the standard one."""

    def __init__(self, socket_path=None):
        self.socket = socket_path
        if socket_path:
            return
        host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        assert host.startswith("unix:///"), f"DOCKER_HOST is {host}"
        self.socket = host.removeprefix("unix://")

    def call(self, method, path, body=None):
        with Client("engine", None, timeout=60, unix=self.socket) as client:
            return client.call(method, f"/v1.41{path}", body)

    def get(self, path):
        answer = self.call("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def containers(self, label=None):
        """All containers, running or not, as the list call gives them."""
        filters = json.dumps({"label": [label]} if label else {})
        return self.get(f"/containers/json?all=1&filters={urllib.parse.quote(filters)}")

    def containers_mounting(self, folder):
        """Ids of the containers with a mount from below a folder of the host."""
        return [item["Id"] for item in self.containers()
                if any(mount.get("Source", "").startswith(folder + "/") for mount in item["Mounts"])]

    def inspect(self, container):
        """The inspect document, or None when the container is gone."""
        answer = self.call("GET", f"/containers/{container}/json")
        if answer.status == 404:
            return None
        assert answer.status == 200, answer
        return answer.json

    def remove(self, container):
        return self.call("DELETE", f"/containers/{container}?force=1&v=1").status

    def volumes(self):
        return [volume["Name"] for volume in self.get("/volumes")["Volumes"] or []]

    def image_id(self, tag):
        """The id that a tag stands for at the moment, or None."""
        answer = self.call("GET", f"/images/{urllib.parse.quote(tag, safe='')}/json")
        return answer.json["Id"] if answer.status == 200 else None

    def tag(self, image, tag):
        """Gives an image another name."""
        repository, _, name = tag.partition(":")
        answer = self.call("POST", f"/images/{urllib.parse.quote(image, safe='')}/tag?repo={repository}&tag={name}")
        assert answer.status == 201, answer

    def commit(self, image, tag):
        """Makes an image like another, with an id that no other name stands for."""
        made = self.call("POST", "/containers/create", {"Image": image, "Labels": {"io.cloister.test": tag}})
        assert made.status == 201, made
        try:
            repository, _, name = tag.partition(":")
            answer = self.call("POST", f"/commit?container={made.json['Id']}&repo={repository}&tag={name}", {})
            assert answer.status == 201, answer
        finally:
            self.remove(made.json["Id"])

    def untag(self, tag):
        return self.call("DELETE", f"/images/{urllib.parse.quote(tag, safe='')}?noprune=1").status

    def export(self, container):
        """The container's file system as a tar archive."""
        answer = self.call("GET", f"/containers/{container}/export")
        assert answer.status == 200, answer
        return answer.body


class Events:
    """What happens to the containers of one installation, in order, from the moment it is made until close().

    list() gives (action, container's id, seconds since the epoch); kill and the like are left out."""

    KEPT = ("create", "start", "die", "oom", "destroy")

    def __init__(self, engine, installation):
        self.seen = []
        filters = json.dumps({"type": ["container"], "label": [f"io.cloister.installation={installation}"]})
        self.connection = http.client.HTTPConnection("engine")
        self.connection.sock = socket.socket(socket.AF_UNIX)
        self.connection.sock.connect(engine.socket)
        self.connection.request("GET", f"/v1.41/events?filters={urllib.parse.quote(filters)}")
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.status
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def read(self):
        try:
            for line in self.response:
                event = json.loads(line)
                if event["Action"] in self.KEPT:
                    self.seen.append((event["Action"], event["Actor"]["ID"], event["timeNano"] / 1e9))
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # closed, or the engine went away

    def list(self):
        return list(self.seen)

    def close(self):
        try:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass
        self.thread.join(timeout=10)
        self.connection.close()
