package pause

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

const tenth = 100_000_000 // of a GB

// The worked case of the article on verl and SGLang: Qwen2.5-7B on an H200 of 141 GB. Training
// peaks at 48 GB; a rollout has weights of 15.4, keys and values of 60 to 90, graphs of 1 to 3
// and buffers of 3 to 7 GB.
func article() *Cycle {
	needs := func(tags ...int) []bool {
		out := make([]bool, 6)
		for _, t := range tags {
			out[t] = true
		}
		return out
	}
	const a = Paused
	return &Cycle{
		Tags: []Tag{
			{Name: "trainer_weights", Bytes: 154 * tenth, Copied: true},
			{Name: "training", Bytes: 326 * tenth, Copied: true},
			{Name: "rollout_weights", Bytes: 154 * tenth},
			{Name: "kv_cache", Bytes: 850 * tenth, KV: true},
			{Name: "graphs", Bytes: 20 * tenth, Copied: true},
			{Name: "buffers", Bytes: 50 * tenth},
		},
		Stages: []Stage{
			{Name: "train", Needs: needs(0, 1), Sizes: []int64{154 * tenth, 326 * tenth, a, a, a, a}},
			{Name: "sync", Needs: needs(0, 2), Sizes: []int64{154 * tenth, a, 154 * tenth, a, a, a}},
			{Name: "rollout", Needs: needs(2, 3, 4, 5), Sizes: []int64{a, a, 154 * tenth, 850 * tenth, 20 * tenth, 50 * tenth}},
		},
	}
}

func TestArticle(t *testing.T) {
	type outcome struct {
		Peak   int64 // tenths of a GB, as all
		Stage  string
		KV     int64
		Fits   bool
		Copied int64
	}
	c := article()
	for _, test := range []struct {
		name string
		plan Plan
		want outcome
	}{
		{"never paused", c.NeverPaused(), outcome{Peak: 1554, Stage: "train", KV: 706, Fits: true}},
		{"together", c.Together(), outcome{Peak: 1228, Stage: "sync", KV: 1032, Fits: true, Copied: 1000}},
		// Graphs stay resident: there is room for them beside the trainer.
		{"on use", c.OnUse(), outcome{Peak: 1074, Stage: "rollout", KV: 1186, Fits: true, Copied: 960}},
	} {
		kv, fits := test.plan.LargestKV(1410 * tenth)
		got := outcome{test.plan.Peak / tenth, c.Stages[test.plan.PeakStage].Name, kv / tenth, fits, test.plan.Copied / tenth}
		assert.Diff(t, test.want, got, "%s", test.name)
	}
}

// The order of the article, as the plan has it where the rollout leaves no room for more.
func TestOrder(t *testing.T) {
	c := article()
	c.Stages[0].Base, c.Stages[1].Base = 594*tenth, 766*tenth // train and sync as full as the rollout
	want := []Step{
		{Pause: []int{2, 3, 4, 5}}, {Resume: []int{0, 1}}, {Stage: 0},
		{Pause: []int{1}}, {Resume: []int{2}}, {Stage: 1},
		{Pause: []int{0}}, {Resume: []int{3, 4, 5}}, {Stage: 2},
	}
	plan := c.OnUse()
	assert.Diff(t, want, plan.Steps, "steps")
	assert.That(t, plan.Peak == 1074*tenth, "the peak is %d", plan.Peak)
}

// Two smaller tags that stay resident save more copying than the greatest one.
func TestKeptResident(t *testing.T) {
	c := &Cycle{
		Tags: []Tag{{Bytes: 7, Copied: true}, {Bytes: 5, Copied: true}, {Bytes: 5, Copied: true}, {Bytes: 7}},
		Stages: []Stage{
			{Sizes: []int64{7, 5, 5, Paused}, Needs: []bool{true, true, true, false}},
			{Sizes: []int64{Paused, Paused, Paused, 7}, Needs: []bool{false, false, false, true}},
		},
	}
	plan := c.OnUse()
	diff := cmp.Diff([][]bool{{true, true, true, false}, {false, true, true, true}}, plan.Resident)
	assert.That(t, diff == "" && plan.Copied == 14 && plan.Peak == 17, "copied %d, peak %d, resident (-want +got):\n%s", plan.Copied, plan.Peak, diff)
}

func TestUnneeded(t *testing.T) {
	c := article()
	c.Stages[1].Sizes[3] = 850 * tenth // resident for the sync already
	for stage, want := range []int64{0, 850 * tenth, 0} {
		assert.Equal(t, c.Unneeded(stage), want, "%s holds", c.Stages[stage].Name)
	}
}

func TestLargestKV(t *testing.T) {
	for name, test := range map[string]struct {
		plan Plan
		want int64
		ok   bool
	}{
		"none":          {Plan{Rest: -1, Away: 10}, 0, false},
		"rest too much": {Plan{Rest: 100}, 0, false},
		"away too much": {Plan{Rest: 10, Away: 101}, 0, false},
		"alone":         {Plan{Rest: 0}, 100, true},
		"exactly":       {Plan{Rest: 10, Away: 100}, 90, true},
	} {
		got, ok := test.plan.LargestKV(100)
		assert.That(t, got == test.want && ok == test.ok, "%s: %d, %v, want %d, %v", name, got, ok, test.want, test.ok)
	}
}

func cycles() *rapid.Generator[*Cycle] {
	return rapid.Custom(func(t *rapid.T) *Cycle {
		c := &Cycle{}
		for range rapid.IntRange(1, 5).Draw(t, "tags") {
			c.Tags = append(c.Tags, Tag{Bytes: rapid.Int64Range(1, 50).Draw(t, "bytes"), Copied: rapid.Bool().Draw(t, "copied"), KV: rapid.Bool().Draw(t, "kv")})
		}
		for range rapid.IntRange(1, 5).Draw(t, "stages") {
			s := Stage{Base: rapid.Int64Range(0, 50).Draw(t, "base")}
			for i := range c.Tags {
				s.Needs = append(s.Needs, rapid.Bool().Draw(t, "needs"))
				size := rapid.Int64Range(Paused, c.Tags[i].Bytes).Draw(t, "size")
				s.Sizes = append(s.Sizes, size)
			}
			c.Stages = append(c.Stages, s)
		}
		return c
	})
}

// Every plan has resident what is needed; none has a lower peak than on use, nor, of the same
// peak, copies less; the steps lead from one stage's tags to the next one's.
func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cycles().Draw(t, "cycle")
		onUse := c.OnUse()
		for name, p := range map[string]Plan{"never paused": c.NeverPaused(), "together": c.Together(), "on use": onUse} {
			for s := range c.Stages {
				for tag, needed := range c.Stages[s].Needs {
					assert.Must(t, !needed || p.Resident[s][tag], "%s: tag %d is paused in stage %d, which needs it", name, tag, s)
				}
			}
			assert.Must(t, p.Peak >= onUse.Peak, "%s has a peak of %d, onUse %d", name, p.Peak, onUse.Peak)
			follow(t, c, p)
		}
		if len(c.gaps()) <= maxGaps {
			demandLeast(t, c, onUse)
		}
	})
}

func follow(t *rapid.T, c *Cycle, p Plan) {
	resident := append([]bool(nil), p.Resident[len(c.Stages)-1]...)
	for _, step := range p.Steps {
		switch {
		case step.Pause != nil:
			for _, tag := range step.Pause {
				resident[tag] = false
			}
		case step.Resume != nil:
			for _, tag := range step.Resume {
				resident[tag] = true
			}
		default:
			diff := cmp.Diff(p.Resident[step.Stage], resident)
			assert.Must(t, diff == "", "after the steps to stage %d (-plan +steps):\n%s", step.Stage, diff)
		}
	}
}

// demandLeast tries every plan that has the peak of the on-use one and resumes only what is needed
// somewhere.
func demandLeast(t *rapid.T, c *Cycle, onUse Plan) {
	gaps := c.gaps()
	for choice := range 1 << len(gaps) {
		resident := c.needed()
		for i, g := range gaps {
			for _, s := range g.stages {
				resident[s][g.tag] = resident[s][g.tag] || choice>>i&1 == 1
			}
		}
		p := c.plan(resident)
		assert.Must(t, p.Peak > onUse.Peak || p.Copied >= onUse.Copied, "on use copies %d, and %v only %d", onUse.Copied, resident, p.Copied)
	}
}
