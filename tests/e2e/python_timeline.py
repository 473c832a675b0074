"""Reads exported timelines and tables with decoders of its own: Perfetto's protobuf, Chrome's JSON, CSV.

usage: python_timeline.py KVROOF MODEL-FOLDER
"""

import csv
import json
import pathlib
import sqlite3
import struct
import subprocess
import sys
import tempfile


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: exit {done.returncode}: {done.stderr}"


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """The fields of a protobuf message: {number: [values]}; bytes stay bytes."""
    found, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = data[at:at + 8], at + 8
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            assert len(value) == length, "a field reaches beyond its message"
        else:
            raise AssertionError(f"wire type {kind}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def read_perfetto(path):
    """{process name: {track name: [(start, end, name, arguments)] or [(time, value)]}}"""
    trace = fields(path.read_bytes())
    assert set(trace) == {1}, "a trace is packets alone"
    processes, tracks, events = {}, {}, []
    for number, packet in enumerate(map(fields, trace[1])):
        assert packet[10] == [1]
        assert (packet.get(13) == [1]) == (number == 0), "the first packet clears the state"
        if 60 in packet:
            descriptor = fields(packet[60][0])
            uuid = descriptor[1][0]
            if 3 in descriptor:
                process = fields(descriptor[3][0])
                processes[uuid] = (process[1][0], process[6][0].decode())
            else:
                assert descriptor[5][0] in processes, "a track follows its process"
                tracks[uuid] = (descriptor[5][0], descriptor[2][0].decode(), 8 in descriptor)
        else:
            event = fields(packet[11][0])
            events.append((packet[8][0], number, event))
    assert len({pid for pid, _ in processes.values()}) == len(processes)
    result = {name: {} for _, name in processes.values()}
    open_slices = {}
    for time, _, event in sorted(events, key=lambda e: e[:2]):
        parent, name, counter = tracks[event[11][0]]
        rows = result[processes[parent][1]].setdefault(name, [])
        stack = open_slices.setdefault(event[11][0], [])
        kind = event[9][0]
        if kind == 1:
            arguments = {fields(a)[10][0].decode(): fields(a)[3][0] for a in event.get(4, [])}
            stack.append((time, event[23][0].decode(), arguments))
        elif kind == 2:
            start, title, arguments = stack.pop()
            rows.append((start, time, title, arguments))
        else:
            assert kind == 4 and counter
            rows.append((time, struct.unpack("<d", event[44][0])[0]))
    assert not any(open_slices.values()), "every slice that begins ends"
    for of in result.values():
        for rows in of.values():
            rows.sort(key=lambda row: row[:2])
    return result


def read_chrome(path):
    processes, threads, result = {}, {}, {}
    for event in json.loads(path.read_text())["traceEvents"]:
        pid = event["pid"]
        if event["name"] == "process_name":
            processes[pid] = event["args"]["name"]
            result[processes[pid]] = {}
        elif event["name"] == "thread_name":
            threads[pid, event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            start = round(event["ts"] * 1000)
            row = (start, start + round(event["dur"] * 1000), event["name"], event["args"])
            result[processes[pid]].setdefault(threads[pid, event["tid"]], []).append(row)
        else:
            name = event["name"].rsplit(" (", 1)[0]
            result[processes[pid]].setdefault(name, []).append((round(event["ts"] * 1000), event["args"]["value"]))
    for of in result.values():
        for rows in of.values():
            rows.sort(key=lambda row: row[:2])
    return result


def make_export(path):
    """What nsys exports of two streams, one of which has kernels that overlap."""
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        INSERT INTO StringIds VALUES (1, 'void ns::gemm<float>(float*)'), (2, 'void f<"q", 2>(int)'),
            (3, 'cudaLaunchKernel_v7000');
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
            demangledName INT);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5000, 9000, 0, 7, 1, 1), (6000, 10000, 0, 7, 2, 2),
            (9000, 9500, 0, 7, 3, 1), (5500, 5600, 0, 8, 4, 1), (0, 0, 0, 8, 5, 1);
        CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT);
        INSERT INTO NVTX_EVENTS VALUES (4000, 20000, 59, 'outer', 77), (4000, 8000, 59, 'inner', 77);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 200, 77, 9, 3), (4500, 5200, 77, 1, 3),
            (5900, 5950, 77, 2, 3);
    """)
    db.commit()
    db.close()


def check_profile(kvroof, folder):
    make_export(folder / "report.sqlite")
    run(kvroof, "import", "nsys", folder / "report.sqlite", "-o", folder / "run.kvt")
    run(kvroof, "export", "perfetto", folder / "run.kvt", "-o", folder / "run.pftrace")
    run(kvroof, "export", "chrome", folder / "run.kvt", "-o", folder / "run.json")
    run(kvroof, "export", "csv", folder / "run.kvt", "-o", folder / "tables")
    timeline = read_perfetto(folder / "run.pftrace")
    assert timeline == read_chrome(folder / "run.json")
    (tracks,) = timeline.values()
    names = {name: [row[:3] for row in rows] for name, rows in tracks.items()}
    # Times count from the first range, so that what began before the first kernel has its true length.
    assert names == {
        "GPU 0 stream 7": [(1000, 5000, "gemm"), (5000, 5500, "gemm")],
        "GPU 0 stream 7 (2)": [(2000, 6000, "f")],
        "GPU 0 stream 8": [(1500, 1600, "gemm")],
        "CUDA calls of thread 77": [(500, 1200, "cudaLaunchKernel_v7000"), (1900, 1950, "cudaLaunchKernel_v7000")],
        "ranges of thread 77": [(0, 4000, "inner"), (0, 16000, "outer")],
    }, names
    assert tracks["CUDA calls of thread 77"][1][3] == {"correlation": 2}
    assert tracks["GPU 0 stream 8"][0][3] == {"correlation": 4}
    with open(folder / "tables" / "CUPTI_ACTIVITY_KIND_KERNEL.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["demangledName"] for row in rows[:2]] == ["void ns::gemm<float>(float*)", 'void f<"q", 2>(int)']
    assert [(row["start"], row["end"]) for row in rows[:2]] == [("5000", "9000"), ("6000", "10000")]


def check_run(kvroof, model, folder, backend):
    policy = "h2o:budget=24"
    trace = folder / f"{backend}.kvt"
    (folder / "prompt.txt").write_text("The cache holds keys and values of every token that came before. " * 8)
    run(kvroof, "record", "--model", model, "--prompt-file", folder / "prompt.txt", "--max-tokens", 12, "--policy",
        policy, "--backend", backend, "-o", trace)
    words = ["--policy", policy, "--device", "h200", "-o"]
    run(kvroof, "export", "perfetto", trace, *words, folder / f"{backend}.pftrace")
    run(kvroof, "export", "chrome", trace, *words, folder / f"{backend}.json")
    timeline = read_perfetto(folder / f"{backend}.pftrace")
    assert timeline == read_chrome(folder / f"{backend}.json")
    recorded, simulated = timeline.values()
    db = sqlite3.connect(trace / "kernels.sqlite")
    steps = db.execute("SELECT start_ns, end_ns, phase, kv_read_bytes + kv_write_bytes + compaction_bytes "
                       "FROM kvroof_step ORDER BY step").fetchall()
    zero = steps[0][0]
    assert [row[:3] for row in recorded["engine steps"]] == [(s - zero, e - zero, p) for s, e, p, _ in steps]
    assert [row[1] for row in recorded["KV moved in a step"]] == [moved for *_, moved in steps] + [0]
    # The engine really evicted what the replay says: the prompt and the decode steps hold and move the same bytes.
    count = len(steps)
    assert len(simulated["engine steps"]) == count
    for name in ("KV resident", "KV moved in a step"):
        ours, theirs = ([row[1] for row in rows[name]] for rows in (recorded, simulated))
        assert ours[:count] == theirs[:count], (name, ours, theirs)
    ends = [row[1] for row in simulated["engine steps"]]
    assert ends == sorted(ends) and ends[0] > 0


def check_resident(kvroof, model, folder):
    """What the recorded cache holds, in a token's bytes by hand: also of a run without attention, and in 8 bits."""
    shape = json.loads((model / "config.json").read_text())
    heads = 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"]  # rows of a token, of k and of v
    words = ["record", "--model", model, "--prompt-file", folder / "prompt.txt", "--max-tokens", 6, "--ignore-eos",
             "--backend", "reference"]
    run(kvroof, *words, "--policy", "h2o:budget=24", "--kv", "f16", "--no-capture", "-o", folder / "steps.kvt")
    run(kvroof, *words, "--kv", "int8", "-o", folder / "int8.kvt")
    (sequence,) = json.loads((folder / "int8.kvt" / "manifest.json").read_text())["sequences"]
    expected = {
        "steps": [24 * heads * 2 * shape["head_dim"]] * 6,
        "int8": [(sequence["prompt"] + i) * heads * (shape["head_dim"] + 4) for i in range(6)],
    }
    for name, resident in expected.items():
        # A simulated run takes the type of the recorded cache.
        words = ["--policy", "full", "--device", "h200"] if name == "int8" else []
        run(kvroof, "export", "perfetto", folder / f"{name}.kvt", *words, "-o", folder / f"{name}.pftrace")
        timeline = read_perfetto(folder / f"{name}.pftrace")
        assert len(timeline) == (2 if words else 1)
        for tracks in timeline.values():
            assert [value for _, value in tracks["KV resident"]] == resident, (name, tracks["KV resident"])
        moved = [[value for _, value in tracks["KV moved in a step"]] for tracks in timeline.values()]
        assert all(other == moved[0] for other in moved), (name, moved)


def check_older(kvroof, source, folder):
    """A recording of a version that did not say what the cache held has no such counter, and a note says so."""
    words = ["export", "perfetto", source / "tests" / "golden" / "trace-v1", "-o", folder / "older.pftrace"]
    done = subprocess.run([kvroof, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr.startswith("note: the trace does not say what the cache held"), done
    (recorded,) = read_perfetto(folder / "older.pftrace").values()
    assert "KV resident" not in recorded and "KV moved in a step" in recorded


def main():
    kvroof, model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as name:
        check_profile(kvroof, pathlib.Path(name))
        for backend in ("reference", "fast"):  # which meet the rows of a prompt in blocks of other sizes
            check_run(kvroof, model, pathlib.Path(name), backend)
        check_resident(kvroof, pathlib.Path(model), pathlib.Path(name))
        check_older(kvroof, pathlib.Path(__file__).parents[2], pathlib.Path(name))


main()
