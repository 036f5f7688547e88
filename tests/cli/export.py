"""What other programs make of an exported voice. Standard input: {"model", "texts": [{"text", "sid", "wave"}]}, `wave` a file of
`myxtts synth --temperature 0`, or none. For each text prints {"samples", "sentences", "sherpa", "synth", "half"}: what Piper spoke, and how
far (dB) the spectra of sherpa-onnx and of `myxtts synth` are from those of that: waves of other libraries drift apart. "half": than which
half of sherpa-onnx's frames are nearer; a pitch's last digit adds up, and in half a minute the mean goes from -70 to -45 dB."""
import json, os, sys, wave
import numpy as np, onnx, sherpa_onnx
from piper import PiperVoice, SynthesisConfig

job = json.load(sys.stdin)
onnx.checker.check_model(onnx.load(job["model"]), full_check=True)
piper = PiperVoice.load(job["model"])
vits = sherpa_onnx.OfflineTtsVitsModelConfig(
    model=job["model"], tokens=os.path.join(os.path.dirname(job["model"]), "tokens.txt"), noise_scale=0.0)
config = sherpa_onnx.OfflineTtsConfig(model=sherpa_onnx.OfflineTtsModelConfig(vits=vits, num_threads=1))
assert config.validate()
sherpa = sherpa_onnx.OfflineTts(config)


def spectra(wave):
    return np.abs(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(wave, 1024)[::256] * np.hanning(1024)))


def apart(a, b, of=np.mean):
    """Decibels."""
    if len(a) != len(b):
        return f"{len(a)} and {len(b)} samples"
    a, b = spectra(a), spectra(b)
    return float(10 * np.log10(max(of(np.mean((a - b) ** 2, axis=1)), 1e-20) / np.mean(b**2)))


for asked in job["texts"]:
    how = SynthesisConfig(speaker_id=asked["sid"], noise_scale=0.0, normalize_audio=False)
    chunks = list(piper.synthesize(asked["text"], how, include_alignments=True))
    spoken = np.concatenate([chunk.audio_float_array for chunk in chunks])
    for chunk in chunks:
        assert sum(part.num_samples for part in chunk.phoneme_alignments) == len(chunk.audio_float_array)
    request = sherpa_onnx.GenerationConfig()
    request.sid, request.speed, request.silence_scale = asked["sid"], 1.0, 1.0
    request.phoneme_codepoints = [[ord(letter) for letter in chunk.phonemes] for chunk in chunks]
    answer = {"samples": len(spoken), "sentences": len(chunks)}
    other = np.array(sherpa.generate(asked["text"], request).samples, np.float32)
    answer["sherpa"], answer["half"] = apart(other, spoken), apart(other, spoken, np.median)
    if asked["wave"]:
        with wave.open(asked["wave"]) as file:
            own = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
        answer["synth"] = apart(own, spoken)
    print(json.dumps(answer))
