"""Real-time factors in onnxruntime on one core, in turns: python rtf.py NAME=FILE.onnx …   The first is what the others are held
against. Every voice speaks as many phonemes for as long: SECONDS, by its length scale, since untrained ones know no durations."""
import json, os, statistics, sys, time

import numpy as np
import onnxruntime

PHONEMES, SECONDS, RATE = 70, 5.0, 22050
ROUNDS = int(os.environ.get("ROUNDS", 5))


class Voice:
    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        symbols = [7] * PHONEMES
        if os.path.exists(path + ".json"):
            known = json.load(open(path + ".json"))["phoneme_id_map"]
            symbols = [known[letter][0] for letter in ("sˈɛvən fˈɑːks sˈɪŋ nˌɪɹ ðə ɹˈɪvɚ ænd tˈɛl " * 3)[:PHONEMES]]
        ids = np.zeros(2 * PHONEMES + 2, np.int64)
        ids[0], ids[2::2] = 1, symbols
        self.feed = {"input": ids[None], "input_lengths": np.array([len(ids)]), "scales": np.array([0.667, 1, 0], np.float32)}
        if "sid" in {value.name for value in self.session.get_inputs()}:
            self.feed["sid"] = np.array([0])
        # Twice, because every token has a frame at least.
        for _ in range(2):
            self.feed["scales"][1] *= SECONDS / self.speak()[1]
        self.factors = []

    def speak(self):
        start = time.perf_counter()
        wave = self.session.run(["output"], self.feed)[0]
        return time.perf_counter() - start, wave.size / RATE


voices = {}
for argument in sys.argv[1:]:
    name, path = argument.split("=", 1)
    voices[name] = (path, Voice(path))
for _ in range(ROUNDS):
    for _, voice in voices.values():
        taken, spoken = voice.speak()
        voice.factors.append(taken / spoken)
first = None
print(f"onnxruntime {onnxruntime.__version__}, one core, {PHONEMES} phonemes in {SECONDS:.0f} s, median of {ROUNDS}")
print("| voice | file, MB | real-time factor | against the first |\n|---|---|---|---|")
for name, (path, voice) in voices.items():
    factor = statistics.median(voice.factors)
    first = first or factor
    print(f"| {name} | {os.path.getsize(path) / 1e6:.1f} | {factor:.3f} | {factor / first:.2f} |")
