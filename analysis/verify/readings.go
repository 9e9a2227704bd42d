package verify

import (
	"context"
	"fmt"

	"github.com/memprof/memprof/trace/dataset"
)

// Readings verifies the readings of a run's devices: that they are whole and unchanged by
// their numbers and checksums. There is nothing to replay. It returns how many events they
// are; the error is that of [Process].
func Readings(ctx context.Context, p *dataset.Process) (events int64, err error) {
	if len(p.Parts) == 0 || p.Parts[0].Number != 0 || p.Parts[0].FirstSeq != 0 {
		return 0, fmt.Errorf("%s: %w", p.Name, ErrNotFromStart)
	}
	j := newJudge(p)
	j.replay = nil
	if err := j.all(ctx); err != nil {
		return 0, err
	}
	return j.next, nil
}
