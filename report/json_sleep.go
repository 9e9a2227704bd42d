package report

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/resumeplan"
)

// jsonSleep is there only where memory has tags.
type jsonSleep struct {
	// Stages are "phases" of the job, or "transitions": stretches between these.
	StagesAre string          `json:"stages_are"`
	Tags      []jsonTag       `json:"tags"`
	Stages    []jsonStage     `json:"stages"`
	Card      *int64          `json:"card"`
	Beside    int64           `json:"beside"`
	Plans     []jsonPlan      `json:"plans"`
	Outside   jsonOutside     `json:"outside"`
	Strays    []jsonStray     `json:"strays"`
	Resident  []jsonResidency `json:"resident"`
}

type jsonTag struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Copied bool   `json:"copied"`
	KV     bool   `json:"kv"`
}

type jsonStage struct {
	Name       string         `json:"name"`
	Visits     int64          `json:"visits"`
	DurationNS int64          `json:"duration_ns"`
	Peak       int64          `json:"peak"`
	Outside    int64          `json:"outside"`
	Free       int64          `json:"outside_free"`
	Told       bool           `json:"told"`
	Tags       []jsonStageTag `json:"tags"` // those that were awake, or are needed
	Unneeded   int64          `json:"unneeded"`
}

type jsonStageTag struct {
	Tag    string `json:"tag"`
	Bytes  *int64 `json:"bytes"` // null where it slept
	Needed bool   `json:"needed"`
}

type jsonPlan struct {
	Name       string     `json:"name"`
	Peak       int64      `json:"peak"`
	Stage      *string    `json:"stage"` // null for a switch
	Copied     int64      `json:"copied"`
	Order      []jsonStep `json:"order"`
	Fits       *bool      `json:"fits"`
	LargestKV  *int64     `json:"largest_kv"`
	KVFraction *float64   `json:"kv_fraction"`
}

// jsonStep has one of its fields.
type jsonStep struct {
	Pause  []string `json:"pause,omitempty"`
	Resume []string `json:"resume,omitempty"`
	Stage  string   `json:"stage,omitempty"`
}

type jsonOutside struct {
	Seq    *int64             `json:"seq"`
	TimeNS *int64             `json:"time_ns"`
	Bytes  int64              `json:"bytes"`
	Blocks int64              `json:"blocks"`
	Groups []jsonOutsideGroup `json:"groups"`
	Rest   int64              `json:"rest"`
}

type jsonOutsideGroup struct {
	Bytes    int64    `json:"bytes"`
	Blocks   int64    `json:"blocks"`
	Category string   `json:"category,omitempty"`
	Phase    string   `json:"phase"`
	Owner    string   `json:"owner,omitempty"`
	Frames   []string `json:"frames,omitempty"`
	Mixed    bool     `json:"mixed"`
}

type jsonStray struct {
	Category string   `json:"category"`
	Tag      string   `json:"tag"`
	Inside   int64    `json:"inside"`
	Bytes    int64    `json:"bytes"`
	Blocks   int64    `json:"blocks"`
	Owners   []string `json:"owners,omitempty"`
}

// jsonResidency is what was mapped at the greatest moment of a stretch: by tag, in the order of
// tags, and outside of them.
type jsonResidency struct {
	StartNS int64   `json:"start_ns"`
	EndNS   int64   `json:"end_ns"`
	Outside int64   `json:"outside"`
	Tags    []int64 `json:"tags"`
}

func newJSONSleep(d *analysis.DeviceResult) *jsonSleep {
	s := d.Sleep
	if s == nil {
		return nil
	}
	j := &jsonSleep{
		StagesAre: "transitions", Tags: []jsonTag{}, Stages: []jsonStage{}, Beside: besideOf(d), Plans: []jsonPlan{},
		Outside: newJSONOutside(&s.Outside), Strays: []jsonStray{}, Resident: []jsonResidency{},
	}
	if s.Phases {
		j.StagesAre = "phases"
	}
	if s.Card > 0 {
		j.Card = &s.Card
	}
	for _, t := range s.Cycle.Tags {
		j.Tags = append(j.Tags, jsonTag{t.Name, t.Bytes, t.Copied, t.KV})
	}
	for i := range s.Stages {
		j.Stages = append(j.Stages, newJSONStage(s, i))
	}
	for _, v := range wakeVariants(s) {
		if len(s.Stages) > 0 {
			j.Plans = append(j.Plans, newJSONPlan(d, v))
		}
	}
	for _, stray := range s.Strays {
		j.Strays = append(j.Strays, jsonStray{stray.Category, stray.Tag, stray.Inside, stray.Bytes, stray.Blocks, stray.Owners})
	}
	for _, r := range s.Series {
		tags := make([]int64, len(s.Cycle.Tags))
		copy(tags, r.At.Tags)
		j.Resident = append(j.Resident, jsonResidency{r.Start, r.End, r.At.Base, tags})
	}
	return j
}

func newJSONStage(s *analysis.Sleep, at int) jsonStage {
	stage, use := &s.Cycle.Stages[at], &s.Stages[at]
	j := jsonStage{
		Name: stage.Name, Visits: use.Visits, DurationNS: use.Duration, Peak: use.Peak, Outside: stage.Base, Free: use.Free, Told: use.Told,
		Tags: []jsonStageTag{}, Unneeded: s.Cycle.Unneeded(at),
	}
	for t, size := range stage.Sizes {
		if size != resumeplan.Paused || stage.Needs[t] {
			j.Tags = append(j.Tags, jsonStageTag{s.Cycle.Tags[t].Name, known(size), stage.Needs[t]})
		}
	}
	return j
}

func newJSONPlan(d *analysis.DeviceResult, v wakeVariant) jsonPlan {
	c := &d.Sleep.Cycle
	j := jsonPlan{Name: v.key, Peak: v.plan.Peak, Copied: v.plan.Copied, Order: []jsonStep{}}
	if v.plan.PeakStage >= 0 {
		j.Stage = &c.Stages[v.plan.PeakStage].Name
	}
	for _, step := range v.plan.Steps {
		switch {
		case step.Pause != nil:
			j.Order = append(j.Order, jsonStep{Pause: plainNames(c, step.Pause)})
		case step.Resume != nil:
			j.Order = append(j.Order, jsonStep{Resume: plainNames(c, step.Resume)})
		default:
			j.Order = append(j.Order, jsonStep{Stage: c.Stages[step.Stage].Name})
		}
	}
	fit := fitOf(d, v.plan)
	if fit.known {
		j.Fits = &fit.fits
	}
	if fit.largestKV >= 0 {
		j.LargestKV, j.KVFraction = &fit.largestKV, &fit.fraction
	}
	return j
}

func plainNames(c *resumeplan.Cycle, tags []int) []string {
	names := make([]string, len(tags))
	for i, t := range tags {
		names[i] = c.Tags[t].Name
	}
	return names
}

func newJSONOutside(o *analysis.Outside) jsonOutside {
	j := jsonOutside{Bytes: o.Bytes, Blocks: o.Blocks, Groups: []jsonOutsideGroup{}, Rest: o.Rest}
	if o.Bytes > 0 {
		j.Seq, j.TimeNS = &o.Seq, &o.Time
	}
	for _, g := range o.Groups {
		j.Groups = append(j.Groups, jsonOutsideGroup{g.Bytes, g.Blocks, g.Category, g.Phase, g.Owner, g.Frames, g.Mixed})
	}
	return j
}
