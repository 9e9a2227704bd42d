package tune

import (
	"fmt"
	"strings"

	"github.com/memprof/memprof/bfc"
)

// Policy is one combination of the allocator's options.
type Policy struct {
	Growth bfc.Growth
	Step   uint64 // bytes, with growth bfc.Step
	Split  bfc.Split
	Trim   bfc.Trim
}

// String is the policy in words that `memprof record` takes: "growth=needed split=always
// trim=iteration".
func (p Policy) String() string {
	growth, split, trim := p.Texts()
	return fmt.Sprintf("growth=%s split=%s trim=%s", growth, split, trim)
}

// Texts are the values of the options as bfc parses them.
func (p Policy) Texts() (growth, split, trim string) {
	options := bfc.Options{Growth: p.Growth, Step: p.Step}
	return options.GrowthText(), p.Split.String(), p.Trim.String()
}

// Policies are all combinations of texts that bfc.ParseGrowth, bfc.ParseSplit and
// bfc.ParseTrim take, the growths outermost. Errors say which text is wrong, or cannot be replayed.
func Policies(growths, splits, trims []string) ([]Policy, error) {
	var all []Policy
	for _, growth := range growths {
		kind, step, err := bfc.ParseGrowth(growth)
		if err != nil {
			return nil, err
		}
		if kind == bfc.None {
			return nil, fmt.Errorf("growth %q takes the whole limit, whatever the job does: there is nothing to tune", growth)
		}
		for _, split := range splits {
			rule, err := bfc.ParseSplit(split)
			if err != nil {
				return nil, err
			}
			for _, trim := range trims {
				when, err := bfc.ParseTrim(trim)
				if err != nil {
					return nil, err
				}
				if when.When == bfc.TrimPressure {
					return nil, fmt.Errorf("trim %q depends on what other processes need, which a recording does not tell", trim)
				}
				all = append(all, Policy{kind, step, rule, when})
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no combination of growth %q, split %q and trim %q", strings.Join(growths, ","), strings.Join(splits, ","), strings.Join(trims, ","))
	}
	return all, nil
}
