package main

import (
	"context"
	"errors"

	"github.com/memprof/memprof/analysis/verify"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report/units"
	"github.com/memprof/memprof/trace"
)

// verifiedReadings is the judgement on the readings of a run's devices.
type verifiedReadings struct {
	Events   int64
	Mismatch *verify.Mismatch
}

// verifyReadings judges the readings of a run; nil if it has none. Readings that cannot be
// opened are an error here, though reports do without: they are a part of the recording.
func verifyReadings(ctx context.Context, run *trace.Run) (*verifiedReadings, error) {
	if run.ReadingsErr != nil {
		return nil, exit.Input(run.ReadingsErr)
	}
	if run.Readings == nil {
		return nil, nil
	}
	events, err := verify.Readings(ctx, run.Readings)
	var mismatch *verify.Mismatch
	if err != nil && !errors.As(err, &mismatch) {
		return nil, exit.Input(err)
	}
	return &verifiedReadings{Events: events, Mismatch: mismatch}, nil
}

func (v *verifiedReadings) line() string {
	if v.Mismatch != nil {
		return "WRONG  " + v.Mismatch.Error()
	}
	return "ok     " + trace.ReadingsName + ": " + units.Counted(v.Events, "reading") + ", whole and unchanged"
}

type jsonReadings struct {
	OK       bool          `json:"ok"`
	Events   int64         `json:"events"`
	Mismatch *jsonMismatch `json:"mismatch,omitempty"`
}

func newJSONReadings(v *verifiedReadings) *jsonReadings {
	if v == nil {
		return nil
	}
	return &jsonReadings{OK: v.Mismatch == nil, Events: v.Events, Mismatch: newJSONMismatch(v.Mismatch)}
}

type jsonMismatch struct {
	Seq      int64  `json:"seq"` // -1: only the block is known
	Kind     string `json:"kind,omitempty"`
	Expected string `json:"expected,omitempty"`
	Found    string `json:"found,omitempty"`
	FirstSeq int64  `json:"first_seq"` // of the block; -1: all checksums are right
	LastSeq  int64  `json:"last_seq"`
	Message  string `json:"message"`
}

func newJSONMismatch(m *verify.Mismatch) *jsonMismatch {
	if m == nil {
		return nil
	}
	wrong := &jsonMismatch{Seq: m.Seq, Expected: m.Expected, Found: m.Found, FirstSeq: m.FirstSeq, LastSeq: m.LastSeq, Message: m.Error()}
	if m.Seq >= 0 {
		wrong.Kind = m.Kind.String()
	}
	return wrong
}
