package main

import (
	"debug/buildinfo"
	"encoding/json"
	"runtime/debug"
	"strings"
	"time"
)

// component is a module, in CycloneDX.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	Hash    string `json:"description,omitempty"` // go.sum's, which is no hash that CycloneDX knows
}

// bill lists the modules that a binary is made of, as `go version -m` reads them from it.
func (r *release) bill(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	bill := struct {
		Format     string         `json:"bomFormat"`
		Spec       string         `json:"specVersion"`
		Version    int            `json:"version"`
		Metadata   map[string]any `json:"metadata"`
		Components []component    `json:"components"`
	}{"CycloneDX", "1.5", 1, map[string]any{
		"timestamp": r.at.Format(time.RFC3339),
		"component": component{"application", "memprof", r.version, "pkg:golang/" + info.Main.Path + "@" + r.version, ""},
	}, []component{{"library", "std", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"), ""}}}
	for _, m := range info.Deps {
		bill.Components = append(bill.Components, moduleOf(m))
	}
	text, err := json.MarshalIndent(bill, "", "  ")
	return append(text, '\n'), err
}

// moduleOf describes a module, or what stands for it. If that is a folder of the repository, the module is named: what
// the folder has is part of it.
func moduleOf(m *debug.Module) component {
	if m.Replace != nil && !strings.HasPrefix(m.Replace.Path, ".") {
		m = m.Replace
	}
	return component{"library", m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version, m.Sum}
}
