"""Fetching that is interrupted, or that two processes do at the same time."""

import hashlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from aisle.data import fetch
from aisle.data.sources import SOURCES, DataFile, Form, Source


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# The default handler is set because a shell may start background jobs with SIGINT ignored.
CLIENT = """
import signal, sys
from aisle.data.sources import SOURCES, DataFile, Form, Source
from aisle.data import fetch
data_dir, mirror, checksum = sys.argv[1:]
file = DataFile("bulky.bin", checksum)
form = Form("npz", (file,), mirrors=("http://127.0.0.1:9",))
SOURCES["mnist"] = Source("mnist", "", 1, 0, 1, (1,), "", (form,))
signal.signal(signal.SIGINT, signal.default_int_handler)
fetch("mnist", data_dir, mirrors=[mirror])
"""


@pytest.fixture
def start_client(server, tmp_path, monkeypatch):
    """A function that starts to fetch a file of many blocks in another process."""
    content = np.random.default_rng(0).bytes(1 << 20)
    checksum = f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"
    server.files["bulky.bin"] = content
    file = DataFile("bulky.bin", checksum)
    form = Form("npz", (file,), mirrors=("http://127.0.0.1:9",))
    source = Source("mnist", "", 1, 0, 1, (1,), "", (form,))
    monkeypatch.setitem(SOURCES, "mnist", source)

    def start(manner):
        arguments = [str(tmp_path), server.at(manner)[0], checksum]
        return subprocess.Popen([sys.executable, "-c", CLIENT, *arguments], stderr=subprocess.PIPE)

    return start


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    "stop", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_an_interrupted_fetch_leaves_no_data_file_and_the_next_one_cleans_up(
    server, start_client, tmp_path, stop
):
    folder = tmp_path / "mnist"
    with start_client("slow") as client:
        wait_for(lambda: folder.exists() and any(path.stat().st_size for path in folder.iterdir()))
        client.send_signal(stop)
        _, errors = client.communicate(timeout=20)
    assert client.returncode == -stop
    assert (b"KeyboardInterrupt" in errors) == (stop == signal.SIGINT)
    if stop == signal.SIGINT:
        assert names(folder) == []
    else:
        (left,) = names(folder)
        assert left.startswith(".bulky.bin.")
        assert left.endswith(".partial")
    fetch("mnist", tmp_path, mirrors=server.at("good"))
    assert names(folder) == ["bulky.bin"]


@pytest.mark.slow
def test_two_at_a_time_fetch_once(server, start_client, tmp_path):
    pytest.importorskip("fcntl")
    with start_client("slow") as client:
        wait_for(lambda: server.requests)
        other = threading.Thread(
            target=fetch, args=("mnist", tmp_path), kwargs={"mirrors": server.at("good")}
        )
        other.start()
        time.sleep(0.2)
        server.released.set()
        other.join()
        _, errors = client.communicate(timeout=20)
    assert (client.returncode, errors) == (0, b"")
    assert [manner for manner, _ in server.requests] == ["slow"]
