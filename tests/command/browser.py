"""The page that report makes, in a real browser: it shows, and asks nobody for anything.

Skipped where there is no Chromium.
"""
import http.server
import shutil
import subprocess
import sys
import threading

import harness

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

# What must be noticed: a picture of another file, and a script that complains.
PROBE = b"""<!DOCTYPE html><title>probe</title><link rel="icon" href="data:,">
<img src="/picture.png"><p id="p"></p>
<script>document.getElementById("p").textContent = "it " + "ran"; console.error("oh")</script>"""


class Browser(harness.Case):
    command = harness.SCENIC

    def look(self, page):
        """What it makes of a page: its document, what it complains of, and what it asked for."""
        asked = []

        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # the name is the library's
                asked.append(self.path)
                self.send_response(200 if self.path == "/page" else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                if self.path == "/page":
                    self.wfile.write(page)

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                done = subprocess.run(
                    [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                     "--disable-dev-shm-usage", "--disable-background-networking",
                     "--disable-component-update", "--no-proxy-server",
                     "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                     f"--user-data-dir={self.folder / 'browser'}", "--enable-logging=stderr",
                     "--dump-dom", f"http://127.0.0.1:{server.server_port}/page"],
                    stdin=subprocess.DEVNULL, capture_output=True, timeout=harness.LIMIT_S,
                    env={**self.env, "LD_LIBRARY_PATH": ""})
            finally:
                server.shutdown()
                thread.join()
        complaints = [line for line in done.stderr.decode(errors="replace").splitlines()
                      if "CONSOLE" in line]
        return done.stdout.decode(), complaints, asked

    def page(self, which):
        return self.run_command("report", "--html", "-",
                                env={**self.scenic(which), "TZ": "UTC"}).stdout

    def test_the_check_itself_notices_requests_and_complaints(self):
        document, complaints, asked = self.look(PROBE)
        self.assertIn("it ran", document)
        self.assertTrue(complaints)
        self.assertEqual(sorted(asked), ["/page", "/picture.png"])

    def test_pages_show_without_a_complaint_or_a_request(self):
        for which in ("serving", "odd", "dense", "wrong"):
            document, complaints, asked = self.look(self.page(which))
            self.assertEqual((complaints, asked), ([], ["/page"]), which)
            for wanted in ("jitcache report", "Timeline", "Storms", "Kernels",
                           "Time of a launch", "</html>"):
                self.assertIn(wanted, document, which)

    def test_the_browser_finds_the_elements_that_were_meant(self):
        """Nothing was moved out of its place, as a browser does with what is nested wrongly."""
        page = self.page("odd").decode()
        document, _, _ = self.look(page.encode())
        for tag in ("section", "svg", "g", "tr", "td", "article", "code", "script", "img"):
            self.assertEqual(document.count(f"<{tag}"), page.count(f"<{tag}"), tag)

    def test_the_policy_stops_what_would_slip_through(self):
        page = self.page("calm").replace(b"</main>", PROBE + b"</main>")
        document, complaints, asked = self.look(page)
        self.assertNotIn("it ran", document)
        self.assertEqual(asked, ["/page"])
        self.assertTrue(any("Content Security Policy" in line for line in complaints), complaints)


if __name__ == "__main__":
    if not BROWSER:
        print("no Chromium here")
        sys.exit(77)
    harness.main()
