package doctor

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/hooks"
)

// environmentOf examines variables that change what is recorded, or that have no effect on a recorded job.
func environmentOf(environment []string) []Finding {
	values := valuesOf(environment)
	findings := Settings(environment, "bfc")
	// Other processes get memory of memprof's allocator in all ways but one.
	ipc := Finding{Check: "CUDA IPC", Health: OK, Detail: "torch shares tensors with other processes; cuIpcGetMemHandle is refused, so start vLLM and SGLang with --disable-custom-all-reduce, or record --allocator native"}
	findings = append(findings, checkFrameworks(environment), ipc)
	return append(append(findings, checkPython(values)...), checkCUDA(values)...)
}

// checkFrameworks says which variables record sets for a job, and why.
func checkFrameworks(environment []string) Finding {
	f := Finding{Check: "framework settings", Health: OK, Detail: "record sets none: all are already set"}
	var set []string
	for _, s := range hooks.FrameworkSettings(environment, hooks.Options{}) {
		set = append(set, fmt.Sprintf("%s=%s (%s: %s)", s.Name, s.Value, s.Library, s.Why))
	}
	if len(set) > 0 {
		f.Detail = "record sets " + strings.Join(set, "; ")
	}
	return f
}

// Settings examines variables that have another effect, or none, in a recorded job. With --allocator native
// PyTorch's settings keep their effect.
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

// checkPreload looks into each preloaded library for functions of CUDA, which would come between the hook and the
// driver.
func checkPreload(value string) Finding {
	f := Finding{Check: "LD_PRELOAD", Health: OK, Detail: "not set"}
	if value == "" {
		return f
	}
	f.Detail = value
	for _, path := range strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' }) {
		if filepath.Base(path) == "libmemprof.so" {
			f.Health, f.Remedy = Warn, "this shell is itself being recorded; the inner recording replaces that one for the job"
			continue
		}
		if call := interposedCall(path); call != "" {
			f.Health = Warn
			f.Remedy = fmt.Sprintf("%s defines %s too, so the hook may not see all calls; record without it", filepath.Base(path), call)
		}
	}
	return f
}

// interposedCall returns a CUDA allocation call that a library defines; "" for jemalloc, tcmalloc, sanitizers and
// files that cannot be read.
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

// checkTorchConf finds settings of PyTorch's allocator, which memprof's replaces.
func checkTorchConf(values map[string]string) Finding {
	f := Finding{Check: "torch settings", Health: OK, Detail: "no allocator settings"}
	var ignored []string // not those of pinned host memory, which PyTorch still allocates
	for _, name := range []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} {
		if values[name] == "" {
			continue
		}
		f.Detail = name + "=" + values[name]
		for _, setting := range splitSettings(values[name]) {
			if key, _, _ := strings.Cut(setting, ":"); key != "" && !strings.HasPrefix(key, "pinned_") && !slices.Contains(ignored, key) {
				ignored = append(ignored, key)
			}
		}
	}
	if len(ignored) > 0 {
		f.Health = Warn
		f.Remedy = strings.Join(ignored, ", ") + ": no effect on memprof's allocator (record --allocator native uses PyTorch's, with these settings)"
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
	f.Remedy += "PYTORCH_NO_CUDA_MEMORY_CACHING has no effect on memprof's allocator: it caches"
	return f
}

// splitSettings splits at commas outside of brackets: roundup_power2_divisions:[256:1,512:2].
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

// checkPython finds variables that keep Python from loading the torch shim, which is on PYTHONPATH.
func checkPython(values map[string]string) []Finding {
	f := Finding{Check: "python", Health: OK, Detail: "no variable keeps the torch shim from loading"}
	if home := values["PYTHONHOME"]; home != "" {
		f.Health = Warn
		f.Detail = "PYTHONHOME=" + home
		f.Remedy = "every Python of the job loads its library from there, also the one that builds the torch shim: unset it unless it is theirs"
		return []Finding{f}
	}
	var harmless []string
	for _, name := range []string{"PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"} {
		if values[name] != "" {
			harmless = append(harmless, name)
		}
	}
	if len(harmless) > 0 {
		f.Detail = strings.Join(harmless, ", ") + ": harmless (options -I, -E and -S are not: memprof doctor -- COMMAND)"
	}
	return []Finding{f}
}

// checkCUDA returns findings about the variables that are set.
func checkCUDA(values map[string]string) []Finding {
	var findings []Finding
	if value := values["CUDA_LAUNCH_BLOCKING"]; value != "" && value != "0" {
		findings = append(findings, Finding{Check: "CUDA settings", Health: Warn, Detail: "CUDA_LAUNCH_BLOCKING=" + value,
			Remedy: "memory is recorded; times are longer than without it"})
	}
	if value, set := values["CUDA_VISIBLE_DEVICES"]; set {
		f := Finding{Check: "visible GPUs", Health: OK, Detail: "CUDA_VISIBLE_DEVICES=" + value}
		if value == "" || value == "-1" || value == "NoDevFiles" {
			f.Health, f.Remedy = Warn, "every GPU is hidden: record uses the simulated device"
		}
		findings = append(findings, f)
	}
	return findings
}
