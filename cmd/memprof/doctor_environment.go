package main

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/hooks"
)

// examineEnvironment looks at variables that change what is recorded, or that a recorded
// job does not heed.
func examineEnvironment(environment []string) []finding {
	values := valuesOf(environment)
	findings := examineSettings(environment, "bfc")
	findings = append(findings, checkFrameworks(environment))
	return append(append(findings, checkPython(values)...), checkCUDA(values)...)
}

// checkFrameworks says which variables record sets, and why: a job may run otherwise for them.
func checkFrameworks(environment []string) finding {
	f := finding{Check: "framework settings", Health: healthOK, Detail: "record sets none: all are set here"}
	var set []string
	for _, s := range hooks.FrameworkSettings(environment, hooks.Options{}) {
		set = append(set, fmt.Sprintf("%s=%s (%s: %s)", s.Name, s.Value, s.Library, s.Why))
	}
	if len(set) > 0 {
		f.Detail = "record sets " + strings.Join(set, "; ")
	}
	return f
}

// examineSettings is about those that take effect without the recording. torch's own
// allocator, when it is only watched, heeds all of its.
func examineSettings(environment []string, allocator string) []finding {
	values := valuesOf(environment)
	findings := []finding{checkPreload(values["LD_PRELOAD"])}
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
func checkPreload(value string) finding {
	f := finding{Check: "LD_PRELOAD", Health: healthOK, Detail: "not set"}
	if value == "" {
		return f
	}
	f.Detail = value
	for _, path := range strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' }) {
		if filepath.Base(path) == "libmemprof.so" {
			f.Health, f.Remedy = healthWarn, "this shell is itself being recorded; the inner recording takes over"
			continue
		}
		if call := interposedCall(path); call != "" {
			f.Health = healthWarn
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
func checkTorchConf(values map[string]string) finding {
	f := finding{Check: "torch settings", Health: healthOK, Detail: "no allocator settings"}
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
		f.Health = healthWarn
		f.Remedy = strings.Join(ignored, ", ") + ": for torch's own allocator; without effect where memprof's serves (record --allocator native keeps them)"
	}
	if values["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "" {
		return f
	}
	f.Health = healthWarn
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
func checkPython(values map[string]string) []finding {
	f := finding{Check: "python", Health: healthOK, Detail: "nothing in the environment keeps sitecustomize from running"}
	if home := values["PYTHONHOME"]; home != "" {
		f.Health = healthWarn
		f.Detail = "PYTHONHOME=" + home
		f.Remedy = "every Python of the job takes its library from there, the one that builds the torch shim too: unset it unless it is theirs"
		return []finding{f}
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
	return []finding{f}
}

// checkCUDA has a line only for what is set.
func checkCUDA(values map[string]string) []finding {
	var findings []finding
	if value := values["CUDA_LAUNCH_BLOCKING"]; value != "" && value != "0" {
		findings = append(findings, finding{Check: "CUDA settings", Health: healthWarn, Detail: "CUDA_LAUNCH_BLOCKING=" + value,
			Remedy: "memory is recorded all the same; times are not those of the job without it"})
	}
	if value, set := values["CUDA_VISIBLE_DEVICES"]; set {
		f := finding{Check: "visible GPUs", Health: healthOK, Detail: "CUDA_VISIBLE_DEVICES=" + value}
		if value == "" || value == "-1" || value == "NoDevFiles" {
			f.Health, f.Remedy = healthWarn, "it hides every GPU: record uses the simulated device"
		}
		findings = append(findings, f)
	}
	return findings
}
