"""The script of the GPU suite: its files, and its table. argv: kvroof, scripts/gpu-suite, the folder of the build."""
import json
import pathlib
import subprocess
import sys
import tempfile

_, script, build = sys.argv[1:]
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
