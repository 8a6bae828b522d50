"""A Hub on this machine: the few endpoints that `huggingface_hub` calls to create, upload, and download a model.

Written from the client's side (huggingface_hub 2.4 without hf-xet): what it sends, and what it reads of each answer.
Everything lies in memory. A request that is not known here is answered by 404 and kept in `HubServer.unknown`.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

USER, TOKEN = "tester", "hf_local_test_token"


@dataclass
class Repository:
    private: bool
    branches: dict[str, str] = field(default_factory=dict)
    """Branch -> commit."""
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Commit -> path -> content."""

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        oid = hashlib.sha1(f"{branch}{len(self.commits)}".encode()).hexdigest()
        self.branches[branch], self.commits[oid] = oid, files
        return oid

    def find(self, revision: str) -> str | None:
        """Return the commit of a branch or of its own name."""
        return self.branches.get(revision, revision if revision in self.commits else None)


class HubServer(ThreadingHTTPServer):
    """The server and what it holds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.large_files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.unknown: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self, repo_id: str, branch: str = "main") -> dict[str, bytes]:
        """Return what a repository holds."""
        repository = self.repositories[repo_id]
        return repository.commits[repository.branches[branch]]


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """Serve on a free port of 127.0.0.1 as long as the block runs."""
    with HubServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    ROUTES = (
        ("POST", r"/api/repos/create", "create_repository"),
        ("POST", r"/api/validate-yaml", "validate_card"),
        ("POST", rf"/api/models/{REPO}/branch/(?P<branch>[^/]+)", "create_branch"),
        ("POST", rf"/api/models/{REPO}/preupload/(?P<revision>[^/]+)", "preupload"),
        ("POST", rf"/{REPO}\.git/info/lfs/objects/batch", "large_file_batch"),
        ("PUT", r"/large-files/(?P<oid>[0-9a-f]{64})", "store_large_file"),
        ("POST", r"/large-files/verify", "verify_large_file"),
        ("POST", rf"/api/models/{REPO}/commit/(?P<revision>[^/]+)", "commit"),
        ("GET", rf"/api/models/{REPO}(/revision/(?P<revision>[^/]+))?", "model_info"),
        ("GET", rf"/api/models/{REPO}/tree/(?P<revision>[^/]+)(/(?P<path>.+))?", "tree"),
        ("HEAD|GET", rf"/{REPO}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
        ("GET", r"/large-files/(?P<oid>[0-9a-f]{64})", "load_large_file"),
    )

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        path = urlsplit(self.path).path
        line = f"{self.command} {path}"
        self.server.requests.append(line)
        for methods, pattern, name in self.ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in methods.split("|"):
                values = {key: unquote(value) if value else None for key, value in match.groupdict().items()}
                handler: Callable[..., None] = getattr(self, name)
                if self._may_pass(values.get("repo"), writes=self.command in ("POST",) and name != "validate_card"):
                    handler(**values)
                return
        self.server.unknown.append(line)
        self._error(404, "EntryNotFound", f"no such endpoint: {line}")

    do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815 (the standard library looks for these names)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""

    # Who may do what

    def _may_pass(self, repo: str | None, writes: bool) -> bool:
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if writes and not known:
            self._error(401, None, "Invalid username or password.")
            return False
        if repo is not None:
            repository = self.server.repositories.get(repo)
            if repository is None or (repository.private and not known):
                # As on the Hub, a private repository looks like none.
                self._error(404 if known else 401, "RepoNotFound", "Repository not found")
                return False
        return True

    # Upload

    def create_repository(self) -> None:
        wanted = json.loads(self.body)
        owner = wanted["organization"] or USER
        if owner != USER:
            return self._error(403, None, f"You don't have the rights to create a model under the namespace {owner!r}")
        repo_id = f"{owner}/{wanted['name']}"
        url = {"url": f"{self.server.endpoint}/{repo_id}", "name": repo_id, "id": "1"}
        if repo_id in self.server.repositories:
            return self._json({**url, "error": "You already created this model repo"}, status=409)
        repository = Repository(private=wanted.get("visibility") == "private")
        repository.commit("main", {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"})
        self.server.repositories[repo_id] = repository
        return self._json(url)

    def validate_card(self) -> None:
        assert json.loads(self.body)["content"].startswith("---\n")
        self._json({"errors": [], "warnings": []})

    def create_branch(self, repo: str, branch: str) -> None:
        repository = self.server.repositories[repo]
        if branch in repository.branches:
            return self._error(409, None, "Reference already exists")
        repository.branches[branch] = repository.branches["main"]
        return self._json({})

    def preupload(self, repo: str, revision: str) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(self.body)["files"]
        ]
        self._json({"files": files})

    def large_file_batch(self, repo: str) -> None:
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            actions = {
                "upload": {"href": f"{self.server.endpoint}/large-files/{wanted['oid']}"},
                "verify": {"href": f"{self.server.endpoint}/large-files/verify"},
            }
            known = wanted["oid"] in self.server.large_files
            objects.append({**wanted, **({} if known else {"actions": actions})})
        self._json({"transfer": "basic", "objects": objects})

    def store_large_file(self, oid: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != oid:
            return self._error(400, None, "the content has another sha256")
        self.server.large_files[oid] = self.body
        return self._json({})

    def verify_large_file(self) -> None:
        claim = json.loads(self.body)
        content = self.server.large_files.get(claim["oid"], b"")
        if len(content) != claim["size"]:
            return self._error(404, None, "no such object")
        return self._json({})

    def commit(self, repo: str, revision: str) -> None:
        repository = self.server.repositories[repo]
        if revision not in repository.branches:
            return self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = dict(repository.commits[repository.branches[revision]])
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.large_files[value["oid"]]
            else:
                assert entry["key"] == "header" and value["summary"], entry
        oid = repository.commit(revision, files)
        return self._json({"commitUrl": f"{self.server.endpoint}/{repo}/commit/{oid}", "commitOid": oid})

    # Download

    def _commit_of(self, repo: str, revision: str | None) -> str | None:
        commit = self.server.repositories[repo].find(revision or "main")
        if commit is None:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def model_info(self, repo: str, revision: str | None) -> None:
        commit = self._commit_of(repo, revision)
        if commit is not None:
            repository = self.server.repositories[repo]
            siblings = [{"rfilename": path} for path in sorted(repository.commits[commit])]
            info = {"_id": "1", "id": repo, "modelId": repo, "sha": commit, "private": repository.private, "tags": []}
            self._json({**info, "siblings": siblings, "downloads": 0, "likes": 0})

    def tree(self, repo: str, revision: str, path: str | None) -> None:
        commit = self._commit_of(repo, revision)
        if commit is None:
            return
        entries = [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in sorted(self.server.repositories[repo].commits[commit].items())
            if path is None or name.startswith(path + "/")
        ]
        if path is not None and not entries:
            self._error(404, "EntryNotFound", f"{path} does not exist on {revision!r}", commit)
        else:
            self._json(entries)

    def resolve(self, repo: str, revision: str, path: str) -> None:
        commit = self._commit_of(repo, revision)
        if commit is None:
            return None
        content = self.server.repositories[repo].commits[commit].get(path)
        if content is None:
            return self._error(404, "EntryNotFound", "Entry not found", commit)
        if path.endswith(".safetensors"):
            oid = hashlib.sha256(content).hexdigest()
            return self._send(
                302,
                b"",
                {
                    # Another host, as the Hub's large files lie on one: the client then asks it without the token.
                    "Location": f"{self.server.endpoint.replace('127.0.0.1', 'localhost')}/large-files/{oid}",
                    "X-Repo-Commit": commit,
                    "X-Linked-Etag": f'"{oid}"',
                    "X-Linked-Size": str(len(content)),
                },
            )
        etag = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        return self._send(200, content, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'})

    def load_large_file(self, oid: str) -> None:
        self._send(200, self.server.large_files[oid], {"ETag": f'"{oid}"'})

    # Answers

    def _error(self, status: int, code: str | None, message: str, commit: str | None = None) -> None:
        headers = {"X-Error-Message": message}
        if code is not None:
            headers["X-Error-Code"] = code
        if commit is not None:
            headers["X-Repo-Commit"] = commit
        self._send(status, json.dumps({"error": message}).encode(), headers)

    def _json(self, tree: Any, status: int = 200) -> None:
        self._send(status, json.dumps(tree).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
