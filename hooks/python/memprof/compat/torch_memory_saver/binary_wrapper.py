"""The C functions of that library by their names; the hook exports them (hooks/capture/api_saver.c)."""

from memprof import _calls


class BinaryWrapper:
    """`cdll` has the functions of the process: those of the hook, and of the libraries loaded with it."""

    def __init__(self, path_binary=None):
        self.cdll = _calls.saver(path_binary)

    def set_config(self, *, tag, interesting_region, enable_cpu_backup, cpu_backup_backend=None, enable_disk_backup=False):
        """Sets the calling thread's settings."""
        self.cdll.tms_set_current_tag(tag.encode("utf-8"))
        self.cdll.tms_set_interesting_region(interesting_region)
        self.cdll.tms_set_enable_cpu_backup(enable_cpu_backup)
        if cpu_backup_backend is not None:
            self.cdll.tms_set_cpu_backup_backend(cpu_backup_backend.encode("utf-8"))
        self.cdll.tms_set_enable_disk_backup(enable_disk_backup)

    def config(self):
        """The settings, as set_config takes them."""
        return {
            "tag": self.cdll.tms_get_current_tag().decode("utf-8"),
            "interesting_region": self.cdll.tms_get_interesting_region(),
            "enable_cpu_backup": self.cdll.tms_get_enable_cpu_backup(),
            "cpu_backup_backend": self.cdll.tms_get_cpu_backup_backend().decode("utf-8"),
            "enable_disk_backup": self.cdll.tms_get_enable_disk_backup(),
        }
