"""Files that are damaged, or made to do harm: one line each, nothing written, little memory."""

import gzip
import io
import json
import resource
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import aisle
from aisle.data.readers import read_verified
from aisle.data.sources import SOURCES, DataFile
from aisle.errors import InputError
from aisle.evaluation.folders import claim, load_arrays
from aisle.files import parsed
from aisle.report.reading import read_run
from aisle.runs import folder, tensors
from aisle.runs.weights import read_metadata

FIRST_EDITION = Path(__file__).parent / "fixtures" / "first_edition"
# What reading may add to the memory of this process, at most.
MOST_BYTES = 200_000_000
DEEP = "[" * 200_000 + "]" * 200_000


def assert_one_line(read, path, *words):
    """Check that reading is refused in one line with some words."""
    with pytest.raises(InputError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 2000
    assert all(word in message for word in words), message


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.fixture
def little_memory():
    before = peak_memory()
    yield
    assert peak_memory() - before < MOST_BYTES


def header_of(shape, descr="<f4"):
    """Return the header of an .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def archive_of(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def bomb(path, megabytes):
    """Write an archive of zeros that is a thousandth of what it holds."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        size = megabytes * 2**20
        with archive.open("train.npy", "w", force_zip64=True) as member:
            member.write(header_of((size // 4, 1)))
            for _ in range(size // 2**24):
                member.write(bytes(2**24))
    return path


@pytest.mark.usefixtures("little_memory")
class TestArchives:
    def test_a_header_that_promises_more_than_follows(self, tmp_path):
        for shape in ((10**12, 4), (10**6, 10**6), (3, 4)):
            path = archive_of(tmp_path / "x.npz", {"train.npy": header_of(shape) + bytes(16)})
            assert_one_line(aisle.data.load, path, "bytes of values but 16 follow")

    def test_a_bomb_is_not_unpacked(self, tmp_path, monkeypatch):
        monkeypatch.setattr("aisle.data.readers._memory", lambda: 2**26)
        path = bomb(tmp_path / "x.npz", megabytes=512)
        assert path.stat().st_size < 2**24
        assert_one_line(aisle.data.load, path, "does not fit in memory")
        assert load_arrays(path) is None

    def test_members_that_would_climb_out(self, tmp_path):
        home = tmp_path / "home"
        home.mkdir()
        content = header_of((2, 2)) + bytes(16)
        names = {"../train.npy": content, "/tmp/aisle-was-here.npy": content}
        path = archive_of(home / "x.npz", names)
        assert_one_line(aisle.data.load, path)
        assert [p.name for p in tmp_path.rglob("*")] == ["home", "x.npz"]
        assert not Path("/tmp/aisle-was-here.npy").exists()

    def test_objects_are_not_unpickled(self, tmp_path):
        path = tmp_path / "x.npz"
        np.savez(path, train=np.array([[print], [print]], dtype=object))
        assert_one_line(aisle.data.load, path)

    def test_a_nested_header(self, tmp_path):
        text = ("(" * 3000 + ")" * 3000).encode()
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
        for name in ("x.npy", "x.npz"):
            path = tmp_path / name
            is_archive = name.endswith("z")
            (archive_of(path, {"a.npy": content}) if is_archive else path.write_bytes(content))
            assert_one_line(aisle.data.load, path)

    def test_a_gzip_file_is_unzipped_as_far_as_it_may_go(self, tmp_path):
        source = SOURCES["mnist"]
        path = tmp_path / "train-images-idx3-ubyte.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            for _ in range(8):
                file.write(bytes(2**24))
        read = lambda path: read_verified(path, DataFile(path.name), source)  # noqa: E731
        assert len(read(path)) == 60_000 * 784 + 17


@pytest.mark.usefixtures("little_memory")
class TestWeights:
    def write(self, path, header, content=b""):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + content)
        return path

    @pytest.mark.parametrize(
        "header",
        [
            DEEP.encode(),
            b'{"a": NaN}',
            b"[]",
            b"{}" + b" " * 10 + b"}",
            {"a": 3},
            {"a": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 4 * 10**15]}},
            {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
            {"a": {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]}},
            {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}},
            {"a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}},
        ],
    )
    def test_headers(self, tmp_path, header):
        path = self.write(tmp_path / "w.safetensors", header, bytes(4))
        assert_one_line(read_metadata, path, "holds no weights")

    def test_a_file_without_end(self, tmp_path):
        path = tmp_path / "w.safetensors"
        with path.open("wb") as file:
            file.write(struct.pack("<Q", 2) + b"{}")
            file.truncate(2**40)  # with nothing in it, it takes no place
        assert_one_line(read_metadata, path, "another length")

    @pytest.mark.parametrize("metadata", ["deep", '{"format": NaN}', '{"format": 1e999}'])
    def test_metadata(self, tmp_path, metadata):
        about = {"__metadata__": {"aisle": DEEP if metadata == "deep" else metadata}}
        assert_one_line(read_metadata, self.write(tmp_path / "w.safetensors", about))

    @pytest.mark.parametrize(
        "change",
        [
            {"shape": [10**9]},
            {"shape": [10**18, 10**18]},
            {"shape": "many"},
            {"shape": [-4]},
            {"model": {"num_hidden": 10**6, "num_latents": 10**6}},
            {"model": {"num_hidden": -3}},
            {"model": {"num_hidden": None}},
            {"model": {"likelihood": ["bernoulli"]}},
            {"model": {"model": 7}},
            {"form": {"likelihood": "gaussian"}},
            {"form": 3},
        ],
    )
    def test_networks_that_do_not_fit_their_file(self, tmp_path, change):
        stored, about = tensors.read(FIRST_EDITION / "averaged.safetensors")
        model = {**about["model"], **change.get("model", {})}
        path = tmp_path / "w.safetensors"
        tensors.write(path, stored, {**about, **change, "model": model})
        assert_one_line(aisle.load, path)


@pytest.fixture
def run_folder(tmp_path):
    shutil.copytree(FIRST_EDITION / "averaged", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("content", [DEEP, "NaN", '{"format": 1, "train": NaN}', "[]", "\0", "{"])
def test_settings_of_a_run(run_folder, content):
    (run_folder / "config.json").write_text(content)
    assert_one_line(aisle.open_run, run_folder)
    (run_folder / "settings.json").write_text(content)
    with pytest.raises(InputError):
        claim(run_folder, {"seed": 1})


@pytest.mark.parametrize(
    "change",
    [
        {"data": 3},
        {"data": {"shape": "abc"}},
        {"data": {"shape": [10**18]}},
        {"train": []},
        {"train": {"model": {"num_hidden": 10**12}}},
        {"train": {"model": {"num_latents": -1}}},
        {"format": [1]},
        {"provenance": None, "format": 99},
    ],
)
def test_settings_that_contradict_themselves(run_folder, change):
    file = run_folder / "config.json"
    config = json.loads(file.read_text())
    for name, value in change.items():
        is_part = isinstance(value, dict) and isinstance(config.get(name), dict)
        config[name] = merged(config[name], value) if is_part else value
    file.write_text(json.dumps(config))
    assert_one_line(aisle.open_run, run_folder)


def merged(old, new):
    both = {**old, **new}
    return {
        k: merged(old[k], v) if isinstance(v, dict) and k in old else v for k, v in both.items()
    }


@pytest.mark.parametrize("line", [DEEP, "NaN", "[1]", "\x00"])
def test_metrics_of_a_run(run_folder, line):
    (run_folder / "metrics.jsonl").write_text(f'{{"update": 1}}\n{line}\n')
    with pytest.raises(InputError, match="line 2 is not a JSON object") as caught:
        folder.read_metrics(run_folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [DEEP, '{"settings": NaN}', '{"settings": 3}', "[]"])
def test_results_of_an_evaluation(run_folder, content):
    place = run_folder / "evaluations" / "one"
    place.mkdir(parents=True, exist_ok=True)
    np.savez(place / "examples.npz", index=np.arange(2), log_p=np.zeros(2))
    (place / "result.json").write_text(content)
    with pytest.raises(InputError, match="is not an evaluation of this version"):
        read_run(run_folder)


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,\x00\n",
        b"a,b\n" + b'"' + b"x" * 200_000 + b'",1\n2,3\n',
        b"\xff\xfe\x00",
        b"a,b\n1\n",
        b"a,a\n1,2\n3,4\n",
        b"",
        b"a,b\n",
        b'a,b\n"1,2\n3,4',
    ],
)
def test_tables(tmp_path, content):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    assert_one_line(aisle.data.load, path)


def test_json_is_strict():
    assert parsed('{"a": [1, null]}') == {"a": [1, None]}
    for content in ("NaN", "-Infinity", DEEP, ""):
        with pytest.raises(ValueError):
            parsed(content)
