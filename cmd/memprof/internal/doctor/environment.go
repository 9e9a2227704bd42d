package doctor

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/hooks"
)

// environmentOf looks at variables that change what is recorded, or that a recorded
// job does not heed.
func environmentOf(environment []string) []Finding {
	values := valuesOf(environment)
	findings := Settings(environment, "bfc")
	findings = append(findings, checkFrameworks(environment))
	return append(append(findings, checkPython(values)...), checkCUDA(values)...)
}

// checkFrameworks says which variables record sets, and why: a job may run otherwise for them.
func checkFrameworks(environment []string) Finding {
	f := Finding{Check: "framework settings", Health: OK, Detail: "record sets none: all are set here"}
	var set []string
	for _, s := range hooks.FrameworkSettings(environment, hooks.Options{}) {
		set = append(set, fmt.Sprintf("%s=%s (%s: %s)", s.Name, s.Value, s.Library, s.Why))
	}
	if len(set) > 0 {
		f.Detail = "record sets " + strings.Join(set, "; ")
	}
	return f
}

// Settings is about those that take effect without the recording. torch's own
// allocator, when it is only watched, heeds all of its.
func Settings(environment []string, allocator string) []Finding {
	values := valuesOf(environment)
	findings := []Finding{checkPreload(values["LD_PRELOAD"])}
	if allocator == "native" {
		return findings
	}
	return append(findings, checkTorchConf(values))
}

func valuesOf(environment []string) map[string]string {
	values := map[string]string{}
	for _, entry := range environment {
		if name, value, ok := strings.Cut(entry, "="); ok {
			values[name] = value
		}
	}
	return values
}

// checkPreload looks into each preloaded library: what interposes CUDA itself stands
// between the hook and the driver.
func checkPreload(value string) Finding {
	f := Finding{Check: "LD_PRELOAD", Health: OK, Detail: "not set"}
	if value == "" {
		return f
	}
	f.Detail = value
	for _, path := range strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' }) {
		if filepath.Base(path) == "libmemprof.so" {
			f.Health, f.Remedy = Warn, "this shell is itself being recorded; the inner recording takes over"
			continue
		}
		if call := interposedCall(path); call != "" {
			f.Health = Warn
			f.Remedy = fmt.Sprintf("%s defines %s too: of two that stand before CUDA one may not see the other's calls; record without it", filepath.Base(path), call)
		}
	}
	return f
}

// interposedCall is a CUDA allocation call that a library defines; empty for jemalloc,
// tcmalloc, sanitizers and whatever cannot be read.
func interposedCall(path string) string {
	library, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer library.Close()
	symbols, err := library.DynamicSymbols()
	if err != nil {
		return ""
	}
	for _, symbol := range symbols {
		if symbol.Section != elf.SHN_UNDEF && slices.Contains([]string{"cudaMalloc", "cuMemAlloc_v2", "cuMemCreate", "cuGetProcAddress_v2"}, symbol.Name) {
			return symbol.Name
		}
	}
	return ""
}

// hostSetting says whether one of torch's allocator settings is about pinned memory of the
// host, which stays torch's.
func hostSetting(key string) bool { return strings.HasPrefix(key, "pinned_") }

// checkTorchConf: torch's settings are for the allocator that memprof's takes the place of.
func checkTorchConf(values map[string]string) Finding {
	f := Finding{Check: "torch settings", Health: OK, Detail: "no allocator settings"}
	var ignored []string
	for _, name := range []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} {
		if values[name] == "" {
			continue
		}
		f.Detail = name + "=" + values[name]
		for _, setting := range splitSettings(values[name]) {
			if key, _, _ := strings.Cut(setting, ":"); key != "" && !hostSetting(key) && !slices.Contains(ignored, key) {
				ignored = append(ignored, key)
			}
		}
	}
	if len(ignored) > 0 {
		f.Health = Warn
		f.Remedy = strings.Join(ignored, ", ") + ": for torch's own allocator; without effect where memprof's serves (record --allocator native keeps them)"
	}
	if values["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "" {
		return f
	}
	f.Health = Warn
	if len(ignored) == 0 {
		f.Detail = "PYTORCH_NO_CUDA_MEMORY_CACHING is set"
	}
	if f.Remedy != "" {
		f.Remedy += "; "
	}
	f.Remedy += "PYTORCH_NO_CUDA_MEMORY_CACHING has no effect on memory that memprof serves: it is cached"
	return f
}

// splitSettings splits at commas that are in no brackets: roundup_power2_divisions:[256:1,512:2].
func splitSettings(text string) []string {
	var settings []string
	depth, from := 0, 0
	for i, r := range text {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth == 0:
			settings = append(settings, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(settings, strings.TrimSpace(text[from:]))
}

// checkPython: record loads the shim by PYTHONPATH, through the site module.
func checkPython(values map[string]string) []Finding {
	f := Finding{Check: "python", Health: OK, Detail: "nothing in the environment keeps sitecustomize from running"}
	if home := values["PYTHONHOME"]; home != "" {
		f.Health = Warn
		f.Detail = "PYTHONHOME=" + home
		f.Remedy = "every Python of the job takes its library from there, the one that builds the torch shim too: unset it unless it is theirs"
		return []Finding{f}
	}
	var harmless []string
	for _, name := range []string{"PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"} {
		if values[name] != "" {
			harmless = append(harmless, name)
		}
	}
	if len(harmless) > 0 {
		f.Detail = strings.Join(harmless, ", ") + ": no hindrance (-I, -E and -S on a command line are: memprof doctor -- COMMAND)"
	}
	return []Finding{f}
}

// checkCUDA has a line only for what is set.
func checkCUDA(values map[string]string) []Finding {
	var findings []Finding
	if value := values["CUDA_LAUNCH_BLOCKING"]; value != "" && value != "0" {
		findings = append(findings, Finding{Check: "CUDA settings", Health: Warn, Detail: "CUDA_LAUNCH_BLOCKING=" + value,
			Remedy: "memory is recorded all the same; times are not those of the job without it"})
	}
	if value, set := values["CUDA_VISIBLE_DEVICES"]; set {
		f := Finding{Check: "visible GPUs", Health: OK, Detail: "CUDA_VISIBLE_DEVICES=" + value}
		if value == "" || value == "-1" || value == "NoDevFiles" {
			f.Health, f.Remedy = Warn, "it hides every GPU: record uses the simulated device"
		}
		findings = append(findings, f)
	}
	return findings
}
