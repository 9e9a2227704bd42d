package fit

import (
	"context"
	"fmt"
	"sync"

	"github.com/memprof/memprof/bfc"
)

// Held is what it takes to hold a process's memory under one allocator.
type Held struct {
	Replayed
	Bands Bands
	Need  Need // its least card is bisected, as if each card larger than one that serves did so too
	// Step is the predicted time of a steady iteration divided by the recorded one; 0 where that is not known.
	Step float64
}

// Choices are the allocators that the user of a process can choose, without numbers: PyTorch's own as it was configured and with
// expandable segments, and memprof's presets. The recorded allocator takes the place of its like.
func Choices(j *Job) []Held {
	var rows []Held
	add := func(a Allocator) {
		rows = append(rows, Held{Replayed: Replayed{Allocator: a, Recorded: a == j.Recorded}})
	}
	if j.Torch != nil {
		configured := native
		if j.Recorded.Allocator == "torch" && j.Recorded.Setting != expandable && j.knows(j.Recorded.Setting) {
			configured = j.Recorded.Setting
		}
		add(Allocator{Allocator: "torch", Setting: configured})
		add(Allocator{Allocator: "torch", Setting: expandable})
	}
	for _, preset := range bfc.Presets() {
		policy := preset.Policy()
		if j.Recorded.Allocator == "memprof" && j.Recorded.Policy.Preset == preset {
			policy = j.Recorded.Policy
		}
		add(Allocator{Allocator: "memprof", Policy: policy})
	}
	return rows
}

// Hold replays a process under its Choices. edges are its [History.Edges].
func Hold(ctx context.Context, j *Job, edges []*Job) ([]Held, error) {
	rows := Choices(j)
	var settings []string
	var policies []bfc.Policy
	o := Options{Quick: true}
	for i := range rows {
		if a := rows[i].Allocator; a.Allocator == "torch" {
			settings = append(settings, a.Setting)
		} else {
			policies = append(policies, a.Policy)
		}
		o.Allocators = append(o.Allocators, rows[i].Allocator)
	}
	s, err := Look(j)
	if err != nil {
		return nil, err
	}
	var torch []Replayed
	var ours Comparison
	var needs []Need
	failed := make([]error, 3)
	var replays sync.WaitGroup
	if len(settings) > 0 {
		replays.Go(func() { torch, failed[0] = replaySettings(j, s, settings, 0) })
	}
	replays.Go(func() { failed[1] = ours.replay(ctx, j, s, policies, true) })
	replays.Go(func() { needs, failed[2] = Least(ctx, j, s, o) })
	replays.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", j.Name, err)
		}
	}
	ours.Rows = append(torch, ours.Rows...)
	for i, row := range ours.Rows {
		row.Recorded = rows[i].Recorded
		rows[i] = Held{Replayed: row, Bands: bandsOf(&needs[i]), Need: needs[i]}
		if slow := ours.Slowdown(i); slow >= 0 {
			rows[i].Step = 1 + slow
		}
	}
	for _, edge := range edges {
		s, err := Look(edge)
		if err != nil {
			return nil, err
		}
		if needs, err = Least(ctx, edge, s, o); err != nil {
			return nil, err
		}
		for i := range rows {
			rows[i].Bands.widen(&needs[i])
		}
	}
	return rows, nil
}

// knows says whether a text is a setting that the model of PyTorch's allocator follows.
func (j *Job) knows(text string) bool {
	if j.Torch == nil {
		return false
	}
	_, err := parseSetting(text, *j.Torch)
	return err == nil
}
