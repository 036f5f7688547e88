#!/usr/bin/env python3
"""Many clients at one server for minutes, then SIGTERM in the middle of it. Standard library only.

    benches/serve/load.py --checkpoint DIR [--clients 50] [--seconds 120] [-- more flags of `myxtts serve`]

Clients speak without a pause: half take whole files, half streams, and one in twenty leaves in the middle. Reported:
answers by status, everything that is neither 200 nor 429, time to the first sound, memory through the run, and what
became of the requests that were under way when the server was told to stop.
"""

import argparse
import asyncio
import json
import random
import signal
import statistics
import time
from collections import Counter

SENTENCES = [
    "The old fox sings near the quiet river.",
    "A small boat waits behind the stone bridge, and nobody knows why.",
    "Seven birds fly over the green hill before the rain begins.",
    "Who left the lamp on in the empty house?",
]


class Load:
    def __init__(self, address, until):
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.until = until
        self.answers, self.wrong = Counter(), Counter()
        self.first_ms, self.whole_ms, self.audio_bytes, self.left = [], [], 0, 0
        self.stopping = False

    async def client(self, number):
        pick = random.Random(number)
        while True:
            text = " ".join(pick.choices(SENTENCES, k=pick.randint(1, 4)))
            leaves = pick.random() < 0.05 and not self.stopping
            wish = {"input": text, "stream": pick.random() < 0.5, "seed": pick.randrange(2**32)}
            wish["response_format"] = pick.choice(["wav", "flac", "pcm"])
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port)
            except OSError as error:
                if not self.stopping:
                    self.wrong[f"connect: {error}"] += 1
                    await asyncio.sleep(0.1)
                    continue
                return
            try:
                status = await self.speak(reader, writer, wish, leaves)
                if status == 429:
                    await asyncio.sleep(1)  # as Retry-After says
                if status == 503 and self.stopping:
                    return
            except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
                self.wrong[f"cut: {type(error).__name__}"] += 1
            finally:
                writer.close()

    async def speak(self, reader, writer, wish, leaves):
        body, start = json.dumps(wish).encode(), time.monotonic()
        head = f"POST /v1/audio/speech HTTP/1.1\r\nhost: {self.host}\r\ncontent-type: application/json\r\n"
        writer.write(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ")[1])
        if status == 200:
            self.first_ms.append((time.monotonic() - start) * 1000)
        if leaves:
            self.left += 1
            return status
        if "content-length:" in head:
            size = len(await reader.readexactly(int(head.split("content-length:")[1].split()[0])))
        else:
            size = 0
            while chunk := int(await reader.readline(), 16):
                size += len(await reader.readexactly(chunk + 2)) - 2
        self.answers[status] += 1
        if status == 200:
            self.whole_ms.append((time.monotonic() - start) * 1000)
            self.audio_bytes += size
        elif status != 429 and not (status == 503 and self.stopping):
            self.wrong[f"status {status}"] += 1
        return status

    async def metrics(self):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        return {line.split(" ")[0]: float(line.split(" ")[1]) for line in text.splitlines() if line.startswith("myxtts_")}

    async def watch(self, start):
        seen = []
        while time.monotonic() < self.until:
            figures = await self.metrics()
            seen.append((time.monotonic() - start, figures["myxtts_resident_bytes"] / 2**20))
            await asyncio.sleep(5)
        return seen, figures


async def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--binary", default="target/release/myxtts")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    args, more = parser.parse_known_args()
    more = [flag for flag in more if flag != "--"]
    command = [args.binary, "serve", "--checkpoint", args.checkpoint, "--port", "0", *more]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    address = (await server.stdout.readline()).decode().strip().removeprefix("listening on http://")

    start = time.monotonic()
    load = Load(address, start + args.seconds)
    clients = [asyncio.create_task(load.client(number)) for number in range(args.clients)]
    memory, figures = await load.watch(start)
    before = sum(load.answers.values())
    load.stopping = True
    server.send_signal(signal.SIGTERM)
    stopped = time.monotonic()
    await asyncio.gather(*clients)
    code = await server.wait()

    p = lambda values, q: statistics.quantiles(values, n=100)[q - 1] if len(values) > 1 else float("nan")
    print(f"{args.clients} clients for {args.seconds:.0f} s: {' '.join(command[1:])}")
    print(f"answers: {dict(load.answers)}; {load.left} left in the middle; neither 200 nor 429: {dict(load.wrong) or 'none'}")
    print(f"speech: {figures['myxtts_audio_seconds_total']:.0f} s, {figures['myxtts_audio_seconds_total'] / args.seconds:.1f} times real time")
    passes = figures["myxtts_passes_total"]
    print(f"forward passes: {passes:.0f}, each {args.seconds / passes * 1000:.0f} ms and {figures['myxtts_audio_seconds_total'] / passes:.1f} s of speech")
    print(f"first byte: median {p(load.first_ms, 50):.0f} ms, 95 % {p(load.first_ms, 95):.0f} ms; all of it: median {p(load.whole_ms, 50):.0f} ms")
    print("resident MiB: " + " ".join(f"{mib:.0f}@{at:.0f}s" for at, mib in memory))
    print(f"SIGTERM: exit code {code} after {time.monotonic() - stopped:.1f} s; {sum(load.answers.values()) - before} answers came after it, all whole")
    raise SystemExit(1 if load.wrong or code else 0)


asyncio.run(main())
