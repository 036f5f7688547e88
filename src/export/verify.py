"""Runs a graph of `myxtts export` in onnxruntime on one core. Standard input: {"model", "reference", "out", "cases"}, each
case with "ids", "sid" and "recording", a file of samples (f32) where it takes the voice of one. Leaves N.wave and N.mel (f32,
little-endian) in `out`, and prints {"version", "seconds": [of each case]}."""
import json, os, sys, time
import numpy as np, onnxruntime

job = json.load(sys.stdin)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1


def load(path):
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


session = load(job["model"])
names = {value.name for value in session.get_inputs()}
seconds = []
for number, case in enumerate(job["cases"]):
    ids = np.array([case["ids"]], np.int64)
    feed = {"input": ids, "input_lengths": np.array([ids.shape[1]], np.int64), "scales": np.array([0, 1, 0], np.float32)}
    if "sid" in names:
        feed["sid"] = np.array([case["sid"]], np.int64)
    if case["recording"]:
        feed["voice"] = load(job["reference"]).run(["voice"], {"samples": np.fromfile(case["recording"], "<f4")})[0]
    start = time.perf_counter()
    wave, mel = session.run(["output", "mel"], feed)
    seconds.append(time.perf_counter() - start)
    for name, values in (("wave", wave), ("mel", mel)):
        np.ascontiguousarray(values, "<f4").tofile(os.path.join(job["out"], f"{number}.{name}"))
print(json.dumps({"version": onnxruntime.__version__, "seconds": seconds}))
