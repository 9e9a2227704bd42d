package requests

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/kvcache"
)

// logNormal is a distribution of lengths by its mean in tokens and the deviation of the logarithm.
type logNormal struct{ mean, sigma float64 }

// fits are log-normal prompts and outputs with the published means. The deviations of Azure's
// follow from the published means and medians, √(2 ln(mean/median)); those of sharegpt are of the
// logarithms of 11,129 published lengths; alpaca's, of which only means are published, are taken
// to be of short instructions with answers as varied as sharegpt's. wmt16 is sentences and their translations, of
// which no lengths are published with the vLLM paper: some 22 words, which both languages make 30 and 40 tokens of.
var fits = map[string]struct{ prompt, output logNormal }{
	"sharegpt":   {logNormal{161.31, 1.40}, logNormal{337.99, 1.10}},
	"alpaca":     {logNormal{19.31, 0.50}, logNormal{58.45, 1.10}},
	"azure-conv": {logNormal{1154.7, 0.498}, logNormal{211.1, 0.992}},
	"azure-code": {logNormal{2047.8, 0.815}, logNormal{27.9, 1.236}},
	"wmt16":      {logNormal{30, 0.55}, logNormal{40, 0.55}},
}

// Names are those of synthetic requests.
func Names() []string {
	return slices.Sorted(maps.Keys(fits))
}

// Pace is when made requests arrive: as a Poisson process, Rate a second, up to Duration ns; a
// rate of 0 is all at once, without end.
type Pace struct {
	Rate     float64
	Duration int64 // 0: no end
	Seed     uint64
}

// streams are independent sources of chance from one seed: arrivals do not depend on lengths.
func (p Pace) streams() (arrivals, lengths *rand.Rand) {
	return rand.New(rand.NewPCG(p.Seed, 1)), rand.New(rand.NewPCG(p.Seed, 2))
}

// made yields requests as long as the pace goes on.
type made struct {
	pace    Pace
	chance  *rand.Rand
	clock   float64 // ns
	lengths func() kvcache.Request
}

func (m *made) Next() (kvcache.Request, error) {
	if m.pace.Rate > 0 {
		m.clock += m.chance.ExpFloat64() / m.pace.Rate * 1e9
		// float64(math.MaxInt64) is beyond the greatest arrival there can be.
		if m.clock >= math.MaxInt64 || m.pace.Duration > 0 && m.clock >= float64(m.pace.Duration) {
			return kvcache.Request{}, io.EOF
		}
	}
	r := m.lengths()
	r.Arrival = int64(m.clock)
	return r, nil
}

// Synthetic makes requests of log-normal lengths by name. Equal arguments make equal requests.
func Synthetic(name string, pace Pace) (kvcache.Source, error) {
	fit, ok := fits[name]
	if !ok {
		return nil, fmt.Errorf("unknown synthetic requests %q: want %s", name, strings.Join(Names(), ", "))
	}
	arrivals, chance := pace.streams()
	return &made{pace: pace, chance: arrivals, lengths: func() kvcache.Request {
		prompt := fit.prompt.draw(chance)
		return kvcache.Request{Prompt: prompt, Output: fit.output.draw(chance)}
	}}, nil
}

func (l logNormal) draw(chance *rand.Rand) int {
	mu := math.Log(l.mean) - l.sigma*l.sigma/2
	tokens := math.Round(math.Exp(mu + l.sigma*chance.NormFloat64()))
	return int(min(max(tokens, 1), maxTokens))
}

// Draw makes requests of lengths and contents drawn from all, with replacement.
func Draw(all []kvcache.Request, pace Pace) (kvcache.Source, error) {
	if len(all) == 0 {
		return nil, errors.New("there is no request to draw from")
	}
	arrivals, chance := pace.streams()
	return &made{pace: pace, chance: arrivals, lengths: func() kvcache.Request {
		return all[chance.IntN(len(all))]
	}}, nil
}

// sourceFunc is a source of requests that is a function.
type sourceFunc func() (kvcache.Request, error)

func (f sourceFunc) Next() (kvcache.Request, error) { return f() }

// Paced gives the requests of src, in their order, arrivals of a Poisson process.
func Paced(src kvcache.Source, pace Pace) kvcache.Source {
	arrivals, _ := pace.streams()
	paced := made{pace: pace, chance: arrivals}
	return sourceFunc(func() (kvcache.Request, error) {
		r, err := src.Next()
		if err != nil {
			return r, err
		}
		paced.lengths = func() kvcache.Request { return r }
		return paced.Next()
	})
}

// Bounded leaves out the requests of src whose prompt has more tokens than longest, unless that is 0.
func Bounded(src kvcache.Source, longest int) kvcache.Source {
	return sourceFunc(func() (kvcache.Request, error) {
		for {
			r, err := src.Next()
			if err != nil || longest == 0 || r.Prompt <= longest {
				return r, err
			}
		}
	})
}

// ErrTooLong is of a prompt beyond the model's limit.
var ErrTooLong = errors.New("longer than the model's limit")

// Limited makes a prompt beyond a model's limit an ErrTooLong of its line in the file.
func Limited(src kvcache.Source, file string, limit int) kvcache.Source {
	return sourceFunc(func() (kvcache.Request, error) {
		r, err := src.Next()
		if err == nil && r.Prompt > limit {
			return r, &Error{file, r.Line, fmt.Errorf("prompt of %d tokens is %w of %d", r.Prompt, ErrTooLong, limit)}
		}
		return r, err
	})
}
