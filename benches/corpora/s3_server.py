"""A small S3 server of Python's standard library: `s3_server.py FOLDER PORT [PROCESSES]`.

It serves the buckets that are folders of FOLDER: listings, ranges, HEAD, PUT (in parts too), DELETE. Nothing is signed. Objects go
from the file to the socket by `sendfile`, and a process for each core accepts connections: `moto`, which tests are run against,
holds objects in Python's memory behind one lock, and would be what a fast training run measures.
"""

import hashlib, os, re, socket, sys, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ROOT, PORT = os.path.realpath(sys.argv[1]), int(sys.argv[2])
PROCESSES = int(sys.argv[3]) if len(sys.argv) > 3 else os.cpu_count()
PAGE = 1000


def etag(stat):
    return f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        self.answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def target(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        path = os.path.realpath(os.path.join(ROOT, unquote(url.path).lstrip("/")))
        return (path if path == ROOT or path.startswith(ROOT + os.sep) else ROOT), query

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        plain, at = b"", 0
        while size := int(data[at:(end := data.index(b"\r\n", at))].split(b";")[0], 16):
            plain, at = plain + data[end + 2:end + 2 + size], end + 4 + size
        return plain

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, query = self.target()
        if "list-type" in query:
            return self.list(path, query)
        try:
            file = open(path, "rb")
        except OSError:
            return self.fail(404, "NoSuchKey")
        with file:
            stat = os.fstat(file.fileno())
            if self.headers.get("If-Match", etag(stat)) != etag(stat):
                return self.fail(412, "PreconditionFailed")
            start, end, status = 0, stat.st_size, 200
            if found := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                start, end, status = int(found[1]), min(int(found[2] or end) + 1, end), 206
            self.send_response(status)
            self.send_header("ETag", etag(stat))
            self.send_header("Last-Modified", self.date_time_string(stat.st_mtime))
            self.send_header("Content-Length", str(end - start))
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{stat.st_size}")
            self.end_headers()
            self.wfile.flush()
            while self.command == "GET" and start < end:
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, end - start)

    def list(self, bucket, query):
        prefix, after = query.get("prefix", ""), query.get("continuation-token", query.get("start-after", ""))
        keys = sorted(os.path.relpath(os.path.join(folder, name), bucket)
                      for folder, _, names in os.walk(bucket) for name in names if not name.endswith(".tmp"))
        keys = [key for key in keys if key.startswith(prefix) and key > after]
        page, rest = keys[:PAGE], keys[PAGE:]
        rows = "".join(f"<Contents><Key>{escape(key)}</Key><Size>{stat.st_size}</Size><ETag>{escape(etag(stat))}</ETag>"
                       f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                       for key in page for stat in [os.stat(os.path.join(bucket, key))])
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        self.answer(200, f"<ListBucketResult><IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{token}{rows}"
                         f"</ListBucketResult>".encode())

    def do_PUT(self):
        path, query = self.target()
        data = self.body()
        if "partNumber" in query:
            path = f"{path}.{query['uploadId']}.{int(query['partNumber']):06}.tmp"
        elif self.headers.get("If-None-Match") == "*" and os.path.exists(path):
            return self.fail(412, "PreconditionFailed")
        self.write(path, data)
        self.answer(200, headers=[("ETag", f'"{hashlib.md5(data).hexdigest()}"')])

    def write(self, path, data):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)

    def do_POST(self):
        path, query = self.target()
        body = self.body()
        if "uploads" in query:
            upload = uuid.uuid4().hex
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
                                    f"</InitiateMultipartUploadResult>".encode())
        if "delete" in query:
            keys = [unquote(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            for key in keys:
                if os.path.exists(os.path.join(path, key)):
                    os.remove(os.path.join(path, key))
            rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            return self.answer(200, f"<DeleteResult>{rows}</DeleteResult>".encode())
        stem = f"{os.path.basename(path)}.{query['uploadId']}."
        parts = sorted(name for name in os.listdir(os.path.dirname(path)) if name.startswith(stem))
        parts = [os.path.join(os.path.dirname(path), name) for name in parts]
        self.write(path, b"".join(open(part, "rb").read() for part in parts))
        for part in parts:
            os.remove(part)
        self.answer(200, f"<CompleteMultipartUploadResult><ETag>{escape(etag(os.stat(path)))}</ETag>"
                         f"</CompleteMultipartUploadResult>".encode())

    def do_DELETE(self):
        path, _ = self.target()
        if os.path.isfile(path):
            os.remove(path)
        self.answer(204)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of 5, a connection too many waits a second for the next attempt

    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


for _ in range(PROCESSES - 1):
    if os.fork() == 0:
        break
Server(("127.0.0.1", PORT), Handler).serve_forever()
