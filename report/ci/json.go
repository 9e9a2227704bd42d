package ci

import "github.com/memprof/memprof/analysis/gate"

// Document is what `memprof check --json` prints.
func Document(results *gate.Results) any {
	type gateJSON struct {
		Gate   string        `json:"gate"`
		Metric string        `json:"metric"`
		Select string        `json:"selector"`
		Unit   string        `json:"unit"`
		Op     string        `json:"op"`
		Limit  any           `json:"limit"`
		Found  any           `json:"found"`
		Margin any           `json:"margin"`
		OK     bool          `json:"ok"`
		Runs   int           `json:"runs"`
		Where  gate.Location `json:"where"`

		Severity    string `json:"severity"`
		Aggregate   string `json:"aggregate"`
		Spread      any    `json:"spread"`
		Trustworthy bool   `json:"trustworthy"`
		Always      bool   `json:"always"` // it was not given: it is judged in every check

		Grown []gate.Part `json:"grown"` // since the baseline, of a relative gate that does not hold: the three parts that grew most
	}
	type skipJSON struct {
		Gate   string `json:"gate"`
		Metric string `json:"metric"`
		Path   string `json:"path"`
		Why    string `json:"why"`
	}
	out := struct {
		OK      bool       `json:"ok"`
		Gates   []gateJSON `json:"gates"`
		Skipped []skipJSON `json:"skipped"`
	}{OK: true, Gates: []gateJSON{}, Skipped: []skipJSON{}}
	for _, v := range results.Verdicts {
		g := v.Gate
		out.OK = out.OK && !v.Violated()
		out.Gates = append(out.Gates, gateJSON{
			g.Text, g.Metric.Name, g.Selector.String(), g.Metric.Unit.String(), g.Op,
			number(g, g.Limit), number(g, v.Found.Value), number(g, g.Margin(v.Found.Value)), v.Holds, v.Runs, v.Found.Where,
			g.Severity, v.Aggregate, number(g, v.Spread), v.Trustworthy(), v.Written.Always, append([]gate.Part{}, v.Grown...),
		})
	}
	for _, s := range results.Skips {
		out.Skipped = append(out.Skipped, skipJSON{s.Gate.Text, s.Gate.Metric.Name, s.Path, s.Why})
	}
	return out
}
