"""What the tests of the data layer share: refusals, a small data set, a mirror to fetch from."""

import gzip
import hashlib
import http.server
import struct
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from aisle.data.sources import SOURCES, DataFile, Form, Source
from aisle.errors import InputError


def md5(content):
    return f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"


def idx_bytes(images, magic=2051):
    return struct.pack(">4I", magic, *images.shape) + images.tobytes()


@pytest.fixture
def refused():
    """A block that must raise an InputError of one line which has all of the given words."""

    @contextmanager
    def expect(*words):
        with pytest.raises(InputError) as caught:
            yield
        message = str(caught.value)
        assert "\n" not in message
        for word in words:
            assert str(word) in message

    return expect


class TinyMnist:
    """Six and three pictures of 2x3 in the idx format, and the data set that expects them."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.train = rng.integers(0, 256, (6, 2, 3), np.uint8)
        self.test = rng.integers(0, 256, (3, 2, 3), np.uint8)
        self.raw = {"train.idx": idx_bytes(self.train), "test.idx": idx_bytes(self.test)}
        self.zipped = {f"{name}.gz": gzip.compress(raw) for name, raw in self.raw.items()}
        self.source = self.with_checksums(True)

    def with_checksums(self, checked):
        zipped, raw = [], []
        for name, content in self.raw.items():
            inner = md5(content) if checked else None
            outer = md5(self.zipped[f"{name}.gz"]) if checked else None
            zipped.append(DataFile(f"{name}.gz", outer, inner))
            raw.append(DataFile(name, inner))
        mirrors = ("http://127.0.0.1:9",)
        forms = (Form("idx", tuple(zipped), mirrors=mirrors), Form("idx", tuple(raw)))
        return Source("mnist", "tiny", 6, 2, 3, (2, 3), "none", forms)

    def write(self, data_dir, files=None):
        folder = data_dir / "mnist"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (self.zipped if files is None else files).items():
            (folder / name).write_bytes(content)
        return folder


@pytest.fixture
def tiny(monkeypatch):
    """The data set above in the place of the real MNIST."""
    mnist = TinyMnist()
    monkeypatch.setitem(SOURCES, "mnist", mnist.source)
    return mnist


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the files of a Server, in the manner that the first folder of the path asks for."""

    def do_GET(self):
        manner, name = self.path.strip("/").split("/")
        self.server.requests.append((manner, name))
        content = self.server.files.get(name)
        if manner == "absent" or content is None:
            self.send_error(404)
            return
        if manner == "wrong":
            content = content[:-1] + bytes([content[-1] ^ 1])
        self.send_response(200)
        if manner != "sizeless":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2
        self.wfile.write(content[:half])
        self.wfile.flush()
        if manner == "slow":
            self.server.released.wait(30)
        if manner != "cut":
            self.wfile.write(content[half:])

    def log_message(self, *_args):
        pass


class Server(http.server.ThreadingHTTPServer):
    """A mirror; the folders of `at` are addresses on it."""

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(files)
        self.requests = []
        self.released = threading.Event()

    def handle_error(self, *_args):  # a client that is killed is part of the tests
        pass

    def at(self, *manners):
        return [f"http://127.0.0.1:{self.server_port}/{manner}/" for manner in manners]


@pytest.fixture
def server(tiny, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server(tiny.zipped) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()
