"""Imported by the package's .pth file at the start of each Python process that has MEMPROF_WATCH in its environment."""

try:
    from memprof import _recording

    _recording.from_environment()
except Exception:  # never break the job
    pass
