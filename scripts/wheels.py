"""Fetches wheels by name into a folder and unpacks them, without installing anything into this Python.

pip resolves names to files and hashes (`--dry-run --report`); the bytes come over plain HTTPS with Range requests,
so a download that broke off goes on where it stopped. A wheel is unpacked only after its SHA-256 matches.
"""
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from hashlib import sha256
from pathlib import Path

TRIES = 8
CHUNK = 1 << 20


def resolve(requirements, with_dependencies):
    """[(file name, URL, sha256)] for Python 3.12 on Linux, whatever Python runs this: only the C++ half is used."""
    arch = platform.machine()
    tags = [f"manylinux_2_{minor}_{arch}" for minor in range(5, 35)] + [f"manylinux2014_{arch}", f"linux_{arch}"]
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
                   "--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp",
                   "--target", scratch, "--report", str(report)]
        command += [] if with_dependencies else ["--no-deps"]
        command += [part for tag in tags for part in ("--platform", tag)]
        if subprocess.run(command + requirements).returncode != 0:
            sys.exit("error: pip could not find the packages above\n"
                     "hint: is the package index reachable (`pip download six`), and is pip 22.2 or newer?")
        installs = json.loads(report.read_text())["install"]
    files = []
    for item in installs:
        url = item["download_info"]["url"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        files.append((url.rsplit("/", 1)[1], url, digest, item["metadata"]))
    return files


def cuda_libraries(metadata):
    """The NVIDIA packages that the torch wheel itself names; Triton and pure Python packages are of no use here."""
    wanted = []
    for line in metadata["requires_dist"]:
        requirement = line.split(";")[0].strip()
        if re.match(r"(nvidia-|cuda-toolkit)", requirement):
            wanted.append(requirement)
    return wanted


def digest_of(path):
    digest = sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def show(name, done, total, start_bytes, start):
    rate = (done - start_bytes) / max(time.monotonic() - start, 1e-3) / 1e6
    end = "\r" if sys.stderr.isatty() else "\n"
    sys.stderr.write(f"  {name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB, {rate:.0f} MB/s {end}")
    sys.stderr.flush()


def append(url, part, name):
    """One request, from where the partial file ends. Returns when the server has sent everything."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        if have and answer.status != 206:  # the server ignored Range and starts over
            have = 0
        total = have + int(answer.headers.get("Content-Length", 0))
        start, start_bytes, shown = time.monotonic(), have, 0.0
        with open(part, "ab" if have else "wb") as file:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                pause = 0.5 if sys.stderr.isatty() else 15
                if time.monotonic() - shown > pause:
                    shown = time.monotonic()
                    show(name, have, total, start_bytes, start)
    if total and have < total:
        raise ConnectionError(f"the connection closed after {have} of {total} bytes")


def fetch(name, url, digest, folder):
    """The path of a whole, checked wheel."""
    done, part = folder / name, folder / (name + ".part")
    if done.exists():
        return done
    for attempt in range(1, TRIES + 1):
        try:
            append(url, part, name)
            if digest_of(part) != digest:
                part.unlink()
                raise ConnectionError("its SHA-256 does not match; starting this file over")
            part.rename(done)
            return done
        except urllib.error.HTTPError as error:
            if error.code != 416:  # 416: nothing is left to ask for, so the partial file itself is wrong
                sys.exit(f"error: {name}: {error}")
            part.unlink()
        except OSError as error:
            if isinstance(error, PermissionError) or error.errno == 28:
                sys.exit(f"error: {part}: {error.strerror}\nhint: free some space, or set XDG_CACHE_HOME to another disk")
            print(f"  {name}: {error}; trying again ({attempt} of {TRIES})", file=sys.stderr)
            time.sleep(min(2 ** attempt, 20))
    sys.exit(f"error: {name}: the download failed {TRIES} times; run the same command again to go on from here")


def unpack(wheel, site):
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(("torch/lib/", "torch/include/", "nvidia/"))]
        archive.extractall(site, names)


def main():
    site, folder, want_cuda = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "1"
    folder.mkdir(parents=True, exist_ok=True)
    site.mkdir(parents=True, exist_ok=True)
    files = resolve(sys.argv[4:], with_dependencies=False)
    if want_cuda:
        files += resolve(cuda_libraries(files[0][3]), with_dependencies=True)
    seen = set()
    for name, url, digest, _ in files:
        stamp = site / f".{name}.unpacked"
        if name in seen or stamp.exists():
            continue
        seen.add(name)
        print(f"  {name}", file=sys.stderr)
        wheel = fetch(name, url, digest, folder)
        unpack(wheel, site)
        stamp.touch()
        os.remove(wheel)


main()
