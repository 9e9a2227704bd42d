package renames

// Metrics has the metrics. Where Old is New, the name stayed and its meaning changed: values that an
// earlier version accepted do not count, and gates are read with the meaning of today.
var Metrics = Table{
	{"external.peak", "other_libraries.peak", ""},
	{"books.unexplained", "accounting.unexplained", ""},
	{"books.unexplained.bytes", "accounting.unexplained.bytes", ""},
	{"books.other_libraries", "accounting.other_libraries", ""},
	{"books.context", "accounting.driver_overhead", ""},
	{"sleep.outside.bytes", "pause.untagged.bytes", ""},
	{"sleep.stray.bytes", "pause.untagged.alike.bytes", ""},
	{"sleep.free.bytes", "pause.untagged.free.bytes", ""},
	{"sleep.unneeded.bytes", "pause.unneeded.bytes", ""},
	{"sleep.recorded.peak", "pause.recorded.peak", ""},
	{"sleep.staged.peak", "pause.on_use.peak", ""},
	{"sleep.excess", "pause.excess", ""},
	{"sleep.failed.count", "pause.failed.count", ""},

	{"efficiency.requested", "idle.requested", "was named for the part in use and had the value of the part that is not"},
	{"efficiency.provided", "idle.provided", "was named for the part in use and had the value of the part that is not"},
	{"waste.external", "waste.external", "counted all free memory handed out before, also the largest free chunk, which is waste.reusable now"},
	{"waste.external.bytes", "waste.external.bytes", "counted all free memory handed out before, also the largest free chunk, which is waste.reusable.bytes now"},
	{"waste.reserve", "waste.reserve", "counted all arenas; that of arenas other than the one with the most reserved is in waste.stranded now"},
	{"waste.reserve.bytes", "waste.reserve.bytes", "counted all arenas; that of arenas other than the one with the most reserved is in waste.stranded.bytes now"},
	{"growth.fragmentation", "growth.fragmentation", "compared a request with the free memory of its arena, and now with that of the device"},
	{"kv.external", "kv.external", "counted free slots that a sequence could use, too, which are kv.idle now"},
}
