package tune

import (
	"errors"
	"fmt"

	"github.com/memprof/memprof/bfc"
)

// Choices are the values to combine, by the name of their dimension. A dimension without values
// has that of Base.
type Choices struct {
	Base   bfc.Policy
	Values map[string][]string
	Units  *bfc.Units
}

// Policies are all combinations, the first of bfc.Dimensions outermost. An error names the
// dimension and the value that cannot be replayed.
func (c *Choices) Policies() ([]bfc.Policy, error) {
	all := []bfc.Policy{c.Base}
	for _, d := range bfc.Dimensions {
		texts, given := c.Values[d.Name]
		if given && len(texts) == 0 {
			return nil, fmt.Errorf("--%s: want at least one value", d.Name)
		}
		if !given {
			texts = []string{d.Text(&c.Base, c.Units)}
		}
		var combined []bfc.Policy
		for _, p := range all {
			for _, text := range texts {
				if err := d.Set(&p, text, c.Units); err != nil {
					return nil, fmt.Errorf("--%s: %w", d.Name, err)
				}
				if why := d.Choices[d.Value(&p).Choice].NoTune; why != "" {
					return nil, errors.New(d.Name + " " + text + " " + why)
				}
				combined = append(combined, p)
			}
		}
		all = combined
	}
	return all, nil
}
