"""Runs a program on given cores and says how long it took and how much memory it held at most."""
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

SAMPLE_S = 0.01


@dataclasses.dataclass
class Done:
    seconds: float
    peak_mib: float            # resident, pages of mapped files included
    peak_anonymous_mib: float  # sampled every 10 ms: what the system could not drop
    output: str


def run(command, cores):
    os.sync()  # what earlier runs wrote must not be flushed on this one's time
    command = [str(part) for part in command]
    with tempfile.TemporaryFile("w+") as output:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=output, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        watch = Watch(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        watch.stop()
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if child.returncode != 0:
        sys.exit(f"error: exit code {child.returncode}: {' '.join(command)}\n{text[-2000:]}")
    return Done(seconds, usage.ru_maxrss / 1024, watch.peak_kib / 1024, text)


def run_json(command, cores):
    return json.loads(run(command, cores).output)


class Watch(threading.Thread):
    def __init__(self, pid):
        super().__init__(daemon=True)
        self.status, self.peak_kib, self.over = f"/proc/{pid}/status", 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(SAMPLE_S):
            try:
                lines = open(self.status).read().splitlines()
            except OSError:
                return
            kib = next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)
            self.peak_kib = max(self.peak_kib, kib)

    def stop(self):
        self.over.set()
        self.join()
