package recording

import (
	"strconv"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/bfc"
)

// PolicyOf returns the policy under which memprof's allocator served a device; not ok where another allocator did, and
// where no arena says it. Of handles it says those of preset compact, which each back a page.
func PolicyOf(r *analysis.Result, device int32) (p bfc.Policy, ok bool) {
	var fields map[string]string // of the main arena
	for i := range r.Arenas {
		a := &r.Arenas[i]
		if a.Device != device {
			continue
		}
		if a.Options["allocator"] != "" {
			return p, false
		}
		if a.Options["growth"] != "" && (fields == nil || a.Options["main"] == "1") {
			fields = a.Options
		}
	}
	if fields == nil {
		return p, false
	}
	o, err := bfc.ParseFields(func(name string) (string, bool) {
		text, ok := fields[name]
		return text, ok
	})
	p = bfc.Policy{Preset: o.Preset(), Trim: o.Trim, Headroom: o.Headroom}
	if page, bad := strconv.ParseUint(fields["granularity"], 10, 64); bad == nil && p.Preset == bfc.Compact && page != bfc.UsualPage {
		p.Handle = page
	}
	return p, err == nil
}
