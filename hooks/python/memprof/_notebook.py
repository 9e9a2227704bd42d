"""Recordings in a notebook."""

import html
import json
import os
import shutil
import subprocess


class Recording:
    """A recording, which a notebook shows as its first screen.

        import memprof
        memprof.Recording("run")

    It asks the command line tool: `memprof` of the PATH, or that of $MEMPROF.
    """

    def __init__(self, path):
        self.path = os.fspath(path)
        self._report = None

    def __repr__(self):
        return "memprof.Recording(%r)" % self.path

    def report(self):
        """What `memprof report --json` prints, read once."""
        if self._report is None:
            self._report = json.loads(_run("report", "--json", self.path))
        return self._report

    def page(self, to):
        """Writes the page of the recording, which shows memory at any instant, and returns its name."""
        to = os.fspath(to)
        _run("report", "--html", "-o", to, self.path)
        return to

    def _repr_html_(self):
        """The peak of each device, and what was found, worst first."""
        try:
            report = self.report()
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            return "<pre>%s</pre>" % html.escape("%r: %s" % (self, getattr(error, "stderr", None) or error))
        # Of many processes the tool prints the spread over them.
        if "processes" not in report:
            return "<pre>%s</pre>" % html.escape(_run("report", self.path))
        shown = [_device(p, d) for p in report["processes"] for d in p["devices"]]
        more = len(shown) - _MOST
        return "<div>%s%s</div>" % ("".join(shown[:_MOST]), "<p>%d more devices</p>" % more if more > 0 else "")


_MOST = 8  # devices that are shown


def _run(*args):
    tool = os.environ.get("MEMPROF") or shutil.which("memprof")
    if not tool:
        raise FileNotFoundError("no memprof on the PATH: set $MEMPROF to it")
    return subprocess.run([tool, *args], check=True, capture_output=True, text=True).stdout


def _device(process, device):
    peak = device["peak"]
    job = process.get("job") or {}
    rows = [("reserved", peak["reserved"], "physical memory mapped at the peak"), ("requested", peak["requested"], "by live allocations at the peak")]
    cells = "".join("<tr><td>%s</td><td align=right>%s</td><td>%s</td><td></td></tr>" % (name, _size(value), html.escape(about)) for name, value, about in rows)
    summary = device["summary"]
    for c in summary["categories"]:
        cells += "<tr><td>%s</td><td align=right>%s</td><td>%s</td><td></td></tr>" % tuple(html.escape(t) for t in (c["category"], _size(c["bytes"]), c["module"] or c["line"] or ""))
    for f in summary["findings"]:
        cells += "<tr><td></td><td></td><td>%s</td><td align=right>%s</td></tr>" % tuple(html.escape(t) for t in (f["text"], _size(f["saves_least_card"])))
    title = "%s, GPU %d %s" % (process["process"], device["device"], device.get("gpu") or "")
    return "<table><caption><b>%s</b><br>%s</caption><tr><th></th><th>bytes</th><th>most of it in</th><th>least card, less</th></tr>%s</table>" % (
        html.escape(title), html.escape(" ".join(job.get("command") or [])), cells)


def _size(value):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return "%.4g %s" % (value, unit)
        value /= 1024
