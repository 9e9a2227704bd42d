package oomtext

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// engineForms are refusals of vLLM and SGLang, which divide the device by a fraction that is set before they know what they need.
var engineForms = []form{
	anchored(withFigures, `Freememoryondevice([a-z]*)[^()]{0,16}\(([\d.]+)/([\d.]+)GiB\)onstartupislessthandesiredGPUmemoryutilization\(([\d.]+),([\d.]+)GiB\)`, func(m *match) *Finding {
		f := &Finding{
			Framework: VLLM, Kind: StartupFree,
			Free: parseSize(m.groups[1] + "GiB"), Total: parseSize(m.groups[2] + "GiB"), Requested: parseSize(m.groups[4] + "GiB"),
		}
		if device := m.groups[0]; device != "cuda" { // newer releases say the device: "xpu:0"
			f.Vendor = strings.ToUpper(device)
		}
		f.Settings.Utilization = fraction(m.groups[3])
		return f
	}),
	anchored(withFigures, `Noavailablememoryforthecacheblocks`, bareError(VLLM, "", KVBlocks)),
	anchored(withFigures, `islargerthanthemaximumnumberoftokensthatcanbestoredinKVcache\((\d+)\)`, func(m *match) *Finding {
		f := &Finding{Framework: VLLM, Kind: KVLength}
		f.Settings.Length = or(wholeBytes(m.groups[0]), 0)
		return f
	}),
	anchored(withFigures, `Toserveatleastonerequestwiththemodel.{0,6}smaxseqlen\(\d+\),\(?`+size+`KVcacheisneeded,whichislargerthantheavailableKV[Cc]achememory\(`+size+`\)(?:.{0,60}?estimatedmaximummodellengthis(\d+))?`, func(m *match) *Finding {
		f := &Finding{Framework: VLLM, Kind: KVLength, Requested: m.size(0), Available: m.size(1)}
		f.Settings.Length = or(wholeBytes(m.groups[2]), 0)
		return f
	}),
	anchored(wrapping, `outofmemoryoccurredwhenwarmingup`, bareError(VLLM, "", WarmUp)),
	anchored(withFigures, `Notenoughmemory\.Pleasetrytoincrease--mem-fraction-static(?:\.Currentvalue:[\w.]*mem_fraction_static=([\d.]+))?`, func(m *match) *Finding {
		f := &Finding{Framework: SGLang, Kind: StaticPool}
		f.Settings.Static = fraction(m.groups[0])
		return f
	}),
	anchored(wrapping, `Capturecudagraphfailed:`, capture),
	anchored(wrapping, `CaptureCUDAgraphfailed:`, capture),
	anchored(withFigures, `Prefilloutofmemory\.Trytoloweryourbatchsize`, bareError(SGLang, "", TokenPool)),
	anchored(withFigures, `Decodeoutofmemory\.Trytoloweryourbatchsize`, bareError(SGLang, "", TokenPool)),
}

// capture is SGLang's: what failed follows.
func capture(m *match) *Finding {
	if !bytes.Contains(m.after[:min(len(m.after), 120)], []byte("outofmemory")) {
		return nil
	}
	f := &Finding{Framework: SGLang, Kind: GraphCapture}
	if request := torchForms[0].anchor().FindSubmatchIndex(m.after); request != nil && request[2] >= 0 {
		of := torchRequest(&match{groups: []string{string(m.after[request[2]:request[3]])}, before: m.after[:request[0]], after: m.after[request[0]:]})
		if of != nil {
			f.Vendor, f.Device, f.OtherProcesses = of.Vendor, of.Device, of.OtherProcesses
			f.takeFigures(of)
		}
	}
	return f
}

// fraction returns a number above 0 and at most 1, 0 for others.
func fraction(text string) float64 {
	value, err := strconv.ParseFloat(string(bytes.TrimRight([]byte(text), ".")), 64)
	if err != nil || math.IsNaN(value) || value <= 0 || value > 1 {
		return 0
	}
	return value
}

// setting is how a text names a setting. Its word is constant and stands in every match: searching that first is many times faster.
type setting struct {
	word    string
	pattern pattern
}

// in returns the first match in a text, nil without one.
func (s setting) in(text []byte) [][]byte {
	if !bytes.Contains(text, []byte(s.word)) {
		return nil
	}
	return s.pattern().FindSubmatch(text)
}

func named(word, text string) setting { return setting{word, compiled(text)} }

var (
	setExpandable  = compiled(`expandable_segments["']?[:=]["']?True`)
	setVariable    = named("PYTORCH_", `PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF`)
	setUtilization = named("utilization", `gpu[-_]memory[-_]utilization["']?(?:\)?[:=]?|\()(0?\.\d+|1\.0+)`)
	setStatic      = named("static", `mem[-_]fraction[-_]static["']?[:=]?(0?\.\d+)`)
	setPaddle      = named("FLAGS_fraction", `FLAGS_fraction_of_gpu_memory_to_use(?:is|=)(0?\.\d+)`)
	profiledTotal  = named("total_gpu_memory", `total_gpu_memory(?:=|\()([\d.]+GiB)`)
	windowsPath    = named(`:\`, `[^A-Za-z][C-G]:\\`)
)

// search gathers what the text from seen to end says of the job. What stands shortly before an advice decides whether it is one.
func (s *Settings) search(text []byte, seen, end int) {
	part := text[seen:min(end+lookBehind, len(text))]
	for _, m := range setExpandable().FindAllIndex(part, -1) {
		at := seen + m[0]
		if before := text[max(at-40, 0):at]; !bytes.Contains(before, []byte("trysetting")) && !bytes.Contains(before, []byte("Trysetting")) {
			s.Expandable = true
		}
	}
	if bytes.Contains(part, []byte("expandable_segmentsnotsupported")) || windowsPath.in(part) != nil {
		s.NotHere = true
	}
	if name := setVariable.in(part); name != nil && s.Variable == "" {
		s.Variable = string(name[0])
	}
	first := func(of setting, to *float64) {
		if m := of.in(part); m != nil && *to == 0 {
			*to = fraction(string(m[1]))
		}
	}
	first(setUtilization, &s.Utilization)
	first(setStatic, &s.Static)
	first(setPaddle, &s.Fraction)
	if m := profiledTotal.in(part); m != nil && s.total == nil {
		s.total = parseSize(string(m[1]))
	}
	s.words(part)
}

// words notes which programs the text is of.
func (s *Settings) words(part []byte) {
	has := func(words ...string) bool {
		for _, w := range words {
			if bytes.Contains(part, []byte(w)) {
				return true
			}
		}
		return false
	}
	if s.Engine == "" && has("/vllm/", "VllmWorker", "EngineCore_DP", "vllm.entrypoints", "vllm.v1", "VLLM_") {
		s.Engine = VLLM
	}
	if s.Engine == "" && has("/sglang/", "sglang.launch_server", "sgl-workspace") {
		s.Engine = SGLang
	}
	s.Training = s.Training || has("_engine_run_backward", "loss.backward", "run_backward(", "optimizer.step")
	s.jax = s.jax || has("jaxlib", "XlaRuntimeError", "JaxRuntimeError", "external/org_tensorflow", "external/xla", "/jax/")
	s.tensorflow = s.tensorflow || has("tensorflow.python", "tensorflow/core", "ResourceExhaustedError", "/tensorflow/python")
}

// compiler is whose program XLA, or a BFC allocator, ran for.
func (s *Settings) compiler(otherwise Framework) Framework {
	switch {
	case s.jax:
		return JAX
	case s.tensorflow:
		return TensorFlow
	}
	return otherwise
}

// with adds what the error itself says.
func (s Settings) with(own Settings) Settings {
	if own.Utilization > 0 {
		s.Utilization = own.Utilization
	}
	if own.Static > 0 {
		s.Static = own.Static
	}
	s.Length, s.SplitSize = own.Length, own.SplitSize
	return s
}
