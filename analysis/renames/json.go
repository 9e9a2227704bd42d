package renames

import "slices"

// JSON has the keys of what verbs print with --json, as paths of schema/<document>.txt in cmd/memprof, by
// document. A row is about all that is below its path, too. A value that is a name of memprof's own stands
// behind its path and a "=".
var JSON = map[string]Table{
	"report": slices.Concat(Table{
		{device + "books", device + "accounting", ""},
		{device + "books.baseline", device + "accounting.used_before_job", ""},
		{device + "books.peak.context_and_modules", device + "accounting.peak.driver_overhead", ""},
		{device + "books.peak.tensors", device + "accounting.peak.requested", ""},
		{device + "books.peak.external", device + "accounting.peak.external", externalMeant},
		{device + "books.peak.reserve", device + "accounting.peak.reserve", reserveMeant},
		{device + "books.end.context_and_modules", device + "accounting.end.driver_overhead", ""},
		{device + "books.end.tensors", device + "accounting.end.requested", ""},
		{device + "books.end.external", device + "accounting.end.external", externalMeant},
		{device + "books.end.reserve", device + "accounting.end.reserve", reserveMeant},
		{device + "external", device + "other_libraries", ""},
		{device + "leak.holders", device + "leak.allocations", ""},
		{device + "sleep", device + "pause", ""},
		{device + "sleep.beside", device + "pause.other_libraries", ""},
		{device + "sleep.outside", device + "pause.untagged", ""},
		{device + "sleep.strays", device + "pause.same_category", ""},
		{device + "sleep.resident[].outside", device + "pause.resident[].untagged", ""},
		{device + "sleep.stages[].outside", device + "pause.stages[].untagged", ""},
		{device + "sleep.stages[].outside_free", device + "pause.stages[].untagged_free", ""},
		{device + "sleep.stages[].told", device + "pause.stages[].uses_given", ""},
		{device + "sleep.plans[].name=at_once", device + "pause.plans[].name=together", ""},
		{device + "sleep.plans[].name=staged", device + "pause.plans[].name=on_use", ""},
		{device + "sleep.strays[].owners", device + "pause.same_category[].origins", ""},
		{device + "sleep.outside.groups[].owner", device + "pause.untagged.groups[].origin", ""},
		{device + "pause.same_category[].owners", device + "pause.same_category[].origins", ""},
		{device + "pause.untagged.groups[].owner", device + "pause.untagged.groups[].origin", ""},
		{device + "keys_and_values", device + "kv_caches", ""},
		{device + "keys_and_values[].policies[].mean.external_idle", device + "kv_caches[].policies[].mean.idle", ""},
		{device + "keys_and_values[].policies[].mean.external_stranded", device + "kv_caches[].policies[].mean.external_fragmented", ""},
		{device + "keys_and_values[].policies[].mean.external", device + "kv_caches[].policies[].mean.external", kvExternalMeant},
		{device + "watched", device + "native", ""},
		{device + "peak.unsplit", device + "peak.not_requested", ""},
		{device + "final.unsplit", device + "final.not_requested", ""},
		{device + "growths[].stranded", device + "growths[].stranded", "was free memory of the arena in chunks too small for the request, which is too_small now"},
		{device + "waste.external", device + "waste.external", externalMeant},
		{device + "waste.reserve", device + "waste.reserve", reserveMeant},
		{"ranks.rows[].waste.external", "ranks.rows[].waste.external", externalMeant},
		{"ranks.rows[].waste.reserve", "ranks.rows[].waste.reserve", reserveMeant},
	},
		freeMemory(device+"peak."), freeMemory(device+"final."), freeMemory(device+"ooms[].at.")),
	"report-at": slices.Concat(freeMemory("moments[].devices[].at."), freeMemory("moments[].devices[].arenas[].at.")),
	"top": slices.Concat(Table{
		{"processes[].devices[].asleep", "processes[].devices[].is_paused", ""},
		{"processes[].arenas[].asleep", "processes[].arenas[].is_paused", ""},
	},
		freeMemory("processes[].devices[]."), freeMemory("processes[].arenas[].")),
	"tune": {
		{"policies[].beside_per_iteration_ns", "policies[].background_per_iteration_ns", ""},
		{"policies[].given_back_per_iteration", "policies[].unmaps_per_iteration", ""},
		{"policies[].step_ns", "policies[].iteration_ns", ""},
	},
	"kv": {
		{"policies[].mean.external_idle", "policies[].mean.idle", ""},
		{"policies[].mean.external_stranded", "policies[].mean.external_fragmented", ""},
		{"policies[].mean.external", "policies[].mean.external", kvExternalMeant},
	},
}

const (
	device          = "processes[].devices[]."
	externalMeant   = "counted all free memory handed out before, also the largest free chunk, which is reusable now"
	kvExternalMeant = "counted free slots that a sequence could use, too, which are idle now"
	reserveMeant    = "counted all arenas; that of arenas other than the one with the most reserved is in stranded now"
)

// freeMemory has the terms of free memory whose meaning changed, of an object.
func freeMemory(at string) Table {
	return Table{{at + "external", at + "external", externalMeant}, {at + "reserve", at + "reserve", reserveMeant}}
}
