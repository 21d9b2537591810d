import http.server
import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("RULER_DATA")
    if not folder or not (Path(folder) / "tabular").is_dir():
        pytest.skip("RULER_DATA does not name a folder with tabular/*.csv.gz")
    return Path(folder)


@pytest.fixture
def image_bytes():
    """Make the bytes of a small image file: ``image_bytes(height, width, format)``."""
    image = pytest.importorskip("PIL.Image")

    def make(height=4, width=4, form="PNG", *, mode="RGB", seed=0, **options):
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        image.fromarray(pixels).convert(mode).save(buffer, form, **options)
        return buffer.getvalue()

    return make


@pytest.fixture
def serve():
    """A local web server: ``serve({"/path": content})`` gives its address."""
    servers = []

    def start(pages):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                content, headers = pages.get(self.path, (None, {}))
                self.send_response(404 if content is None else 200)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
