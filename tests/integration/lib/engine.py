"""The container engine, as tests look at it: what runs, what it looks like, what is left."""
import json
import os
import urllib.parse

from lib.http import Client


class Engine:
    """Engine API over the socket of DOCKER_HOST, or the standard one."""

    def __init__(self):
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
