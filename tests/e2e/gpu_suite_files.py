"""The script of the GPU suite: its files, and its table. argv: kvroof, scripts/gpu-suite, the folder of the build."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

_, script, build = sys.argv[1:]

# A program of the suite that breaks: limits at its second row, steps before it has written anything, and the device is
# gone when it comes to the recorder.
BREAKS = """#!{python}
import json, os, pathlib, sys
part, *words = [word for word in sys.argv[1:] if word != "--small"]
words = dict(zip(words[::2], words[1::2]))
if part == "steps":
    os.kill(os.getpid(), 9)
if part == "recorder":
    print("SKIPPED: no CUDA device")
    sys.exit(77)
if part == "limits":
    row = {{"what": "top_k", "parameters": {{"heads": 2}}}}
    found = {{"device": {{"name": "made"}}, "rows": [row], "cut": [], "failures": 0, "complete": False}}
    if "--resume" not in words:
        found["doing"] = {{"what": "compaction", "parameters": {{"heads": 3}}}}
        pathlib.Path(words["--out"]).write_text(json.dumps(found))
        os.kill(os.getpid(), 11)
    assert words["--resume"] == "SIGSEGV", words
    found["rows"].append({{"what": "compaction", "parameters": {{"heads": 3}}, "passed": False}})
    found.update(complete=True, failures=1)
    pathlib.Path(words["--out"]).write_text(json.dumps(found))
    sys.exit(1)
"""
with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder)
    words = [sys.executable, script, "--emulated", "--build", build, "--out", folder, "--only", "environment,limits"]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 0, ran
    assert [p.name for p in out.iterdir()] == ["limits.json"], list(out.iterdir())
    found = json.loads((out / "limits.json").read_text())
    assert found["complete"] and found["rows"] and found["time"] and "nvidia_smi" in found, found
    top_k = [r for r in found["rows"] if r["what"] == "top_k"]
    # Of 2 heads and 64 tokens a score and a position each are read, and a bit is written.
    assert (top_k or found["cut"]) and all(r["bytes"] == 2 * (64 * 8 + 8) for r in top_k), top_k
    table = ran.stdout.split("\n\n")[-1].splitlines()
    assert table[0].split() == ["device", "emulator"], table
    assert table[1].startswith("limits"), table
    wrong = subprocess.run(words[:-1] + ["limit"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "there is no part limit; there are environment, kernels" in wrong.stderr, wrong

# The suite goes on behind a row that ended its process: the row has failed, those before it are not made again.
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "limits.json"
    program = [pathlib.Path(build) / "bin/gpu_suite_emulated", "limits", "--small", "--out", file]
    assert subprocess.run(program, capture_output=True).returncode == 0
    whole = json.loads(file.read_text())
    at = next(i for i, r in enumerate(whole["rows"]) if r["what"] == "linear")
    doing = {key: whole["rows"][at][key] for key in ("what", "parameters")}
    ended = {**doing, "passed": False, "problem": "the process ended here: SIGBUS"}
    refused = {**doing, "passed": False, "problem": "an illegal address"}  # the device was lost in it, and it says so
    for said, row in ([], ended), ([refused], refused):
        rows = whole["rows"][:at] + said
        file.write_text(json.dumps({**whole, "complete": False, "rows": rows, "failures": len(said), "doing": doing}))
        ran = subprocess.run([*program, "--resume", "SIGBUS"], capture_output=True, text=True)
        assert ran.returncode == 1, ran
        again = json.loads(file.read_text())
        assert again["complete"] and again["failures"] == 1 and "doing" not in again, again
        assert again["rows"][:at + 1] == [*whole["rows"][:at], row], again["rows"][at]

    def names(rows):
        return [(r["what"], r["parameters"]) for r in rows if r["what"] != "cublaslt"]
    assert names(again["rows"]) == names(whole["rows"])
    shares = [r["share"] for r in again["rows"][at + 1:] if "bytes_per_s" in r]
    assert shares and all(shares), shares

with tempfile.TemporaryDirectory() as folder:
    made = pathlib.Path(folder) / "build/bin/gpu_suite_emulated"
    made.parent.mkdir(parents=True)
    made.write_text(BREAKS.format(python=sys.executable))
    made.chmod(0o755)
    words = [sys.executable, script, "--emulated", "--build", made.parent.parent, "--out", pathlib.Path(folder) / "out",
             "--only", "environment,limits,steps,recorder"]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 1, ran
    assert "limits: SIGSEGV; going on behind that row" in ran.stdout, ran
    table = [line.split(None, 1) for line in ran.stdout.split("\n\n")[-1].splitlines()]
    assert table == [["device", "made"], ["limits", "0 of 1 checks hold"], ["steps", "NOTHING, SIGKILL"],
                     ["recorder", "NOTHING, exit 77"]], table

# A part that hangs is ended when nothing has changed for a while.
loader = importlib.machinery.SourceFileLoader("gpu_suite", script)
suite = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_suite", loader))
sys.dont_write_bytecode = True
loader.exec_module(suite)
losses = {"what": "trace_losses", "parameters": {"steps": 3}, "kernels": 5, "without_time": 0, "by_another_clock": 2,
          "notes": {"records": "7", "dropped": "0", "kernels_unexplained": "4"}}
refused = {"what": "recorder_step", "parameters": {"mode": "pm"}, "skipped": "no permission"}
assert suite.recorder_rows(pathlib.Path("none"), [losses, refused]) == [
    ("  trace_losses", "5 kernels, 0 without times, 2 by another clock; kernels_unexplained: 4"),
    ("  recorder_step pm", "not watched: no permission")]
start = time.monotonic()
hangs = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
assert suite.wait_for(hangs, pathlib.Path("none"), 50, 1) == "ended: nothing for 1 s"
assert hangs.returncode == -9 and time.monotonic() - start < 20
hangs = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
suite.ASKED_EACH, suite.nvidia_smi, asks, looks = 0.5, lambda fields: {"clocks.sm": "1 MHz"}, suite.nvidia_smi, []
assert suite.wait_for(hangs, pathlib.Path("none"), 1, 50, looks) == "ended: too long"
assert looks == [{"clocks.sm": "1 MHz"}], looks
suite.nvidia_smi = asks

# What a command started goes with it, and nobody waits for the end of its output.
start = time.monotonic()
assert suite.run_within(["sh", "-c", "echo said; sleep 60 & sleep 60"], 1) == (None, "said\n")
assert suite.run_within(["sh", "-c", "echo said; sleep 60 & exit 3"], 50) == (3, "said\n")
assert time.monotonic() - start < 20
assert suite.output_of(["sh", "-c", "echo of no repository >&2; echo said"]) == "said"

# A run that somebody ends says what it has: the part that it was at is not complete, and the table still comes.
with tempfile.TemporaryDirectory() as folder:
    made = pathlib.Path(folder) / "build/bin/gpu_suite_emulated"
    made.parent.mkdir(parents=True)
    made.write_text(f"""#!{sys.executable}
import json, pathlib, sys, time
if sys.argv[1] == "limits":
    row = {{"what": "norm", "parameters": {{}}, "passed": True}}
    found = {{"device": {{"name": "made"}}, "rows": [row], "cut": [], "failures": 0, "complete": False}}
    pathlib.Path(sys.argv[sys.argv.index("--out") + 1]).write_text(json.dumps(found))
    print("at work", flush=True)
    time.sleep(60)
""")
    made.chmod(0o755)
    ran = subprocess.Popen([sys.executable, script, "--emulated", "--build", made.parent.parent, "--out",
                            pathlib.Path(folder) / "out", "--only", "environment,limits,steps"], stdout=subprocess.PIPE,
                           text=True)
    while ran.stdout.readline() != "at work\n":
        pass
    ran.terminate()
    text, _ = ran.communicate(timeout=20)
    assert ran.returncode == 1 and "ended by SIGTERM" in text, (ran, text)
    table = [line.split(None, 1) for line in text.split("\n\n")[-1].splitlines()]
    assert table == [["device", "made"], ["limits", "1 of 1 checks hold, NOT COMPLETE (cut off)"]], table

# A version of nvidia-smi that does not know a field says so on its output.
with tempfile.TemporaryDirectory() as folder:
    made = pathlib.Path(folder) / "nvidia-smi"
    made.write_text("""#!/bin/sh
case "$1" in *old*) echo 'Field "old" is not a valid field to query.'; exit 2 ;; esac
case "$*" in *--id=3) echo "fourth, 1980 MHz"; exit ;; esac
echo "made, 1980 MHz"
""")
    made.chmod(0o755)
    suite.output_of, asked = (lambda command, seconds=20: subprocess.run(
        [made, *command[1:]], capture_output=True, text=True).stdout.strip()), ["name", "old", "clocks.sm"]
    for seen, name in [("", "made"), ("3,0", "fourth")]:
        suite.os.environ["CUDA_VISIBLE_DEVICES"] = seen
        assert suite.nvidia_smi(asked) == {"name": name, "clocks.sm": "1980 MHz"}, suite.nvidia_smi(asked)

# The memory checker is told to leave calls alone that fail, as other checkers cannot be; what it finds is an error.
with tempfile.TemporaryDirectory() as folder:
    made = pathlib.Path(folder) / "compute-sanitizer"
    made.write_text("""#!/bin/sh
case "$*" in
  "--tool memcheck --report-api-errors no --error-exitcode 9 "*) echo '== ERROR SUMMARY: 2 errors'; exit 9 ;;
  "--tool racecheck --error-exitcode 9 "*) echo 'kernels: 12 rows, 0 failed, 3 cut'
    echo '== RACECHECK SUMMARY: 0 hazards'; exit 0 ;;
esac
exit 3
""")
    made.chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    assert suite.sanitize("memcheck", "made", folder, 30) == ("== ERROR SUMMARY: 2 errors", False)
    assert suite.sanitize("racecheck", "made", folder, 30) == ("no error in 12 rows", True)
