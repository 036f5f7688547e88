"""Runs a graph of `myxtts export` in onnxruntime on one core. Standard input: {"model", "cases": [{"ids", "sid"}], "out"}.
Leaves N.wave and N.mel (f32, little-endian) in `out`, and prints {"version", "seconds": [of each case]}."""
import json, os, sys, time
import numpy as np, onnxruntime

job = json.load(sys.stdin)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
names = {value.name for value in session.get_inputs()}
seconds = []
for number, case in enumerate(job["cases"]):
    ids = np.array([case["ids"]], np.int64)
    feed = {"input": ids, "input_lengths": np.array([ids.shape[1]], np.int64), "scales": np.array([0, 1, 0], np.float32)}
    if "sid" in names:
        feed["sid"] = np.array([case["sid"]], np.int64)
    start = time.perf_counter()
    wave, durations, mel = session.run(["output", "durations", "mel"], feed)
    seconds.append(time.perf_counter() - start)
    for name, values in (("wave", wave), ("mel", mel), ("durations", durations)):
        np.ascontiguousarray(values, "<f4").tofile(os.path.join(job["out"], f"{number}.{name}"))
print(json.dumps({"version": onnxruntime.__version__, "seconds": seconds}))
