package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	kvrequests "github.com/memprof/memprof/analysis/kvcache/requests"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/kvserve"
	"github.com/memprof/memprof/report/kv"
)

const kvExits = "0 simulated; 2 wrong usage, or invalid requests; 3 memprof failed"

type kvOptions struct {
	Load kvserve.Load

	Model         string
	BytesPerToken sizeFlag
	MaxLength     int // 0: the model's
	Memory        sizeFlag
	Card          sizeFlag
	Rest          sizeFlag
	Ranks         int
	Stages        int
	Layers        string
	KVDtype       string

	Policies  []string
	Sampling  string
	Preempt   string
	Watermark float64
	Timing    kvserve.Timing
	Steps     int64
	Warmup    int64

	formatFlags
}

const kvLong = `Serves requests from a simulated KV cache, without a GPU, and prints for each
policy what its slots, of one token each, were used for. At every step these add
up to all slots:

  token     hold the keys and values of running requests
  reserve   will hold those of running requests before they end
  internal  in a reservation or block, and never filled
  external  lost: rounding of the allocator, and fragmented, free slots that
            would do for the first waiting request, in pieces too small for it
  blocked   free, but in all too few for the first waiting request
  idle      free, and no request waits for them
  cached    of prompts that have ended, kept until the block is needed (paged)

Policies:

  max:L     reserve L tokens for every sequence; max alone takes --max-length
  pow2      reserve the prompt and the output rounded up to a power of two
  oracle    reserve exactly what will be needed
  paged:B   take blocks of B tokens as they are needed
  hybrid:B  a block table for each group of layers that keep the same tokens, in
            pages of one size, as vLLM has for models of several kinds of layers
  uniform:B one table for all layers, which keep every token

The first three place reservations with a buddy allocator, which rounds them up
to powers of two.

In a step every running request gets a token, once its prompt is computed. How
long a step takes follows from what it computes and copies (--timing). Requests
are admitted in order: if the first waiting one does not fit, all wait. If a
running request needs memory and there is none, the request that was admitted
last is preempted and loses its memory, and nothing new is admitted before it is
back. A request that does not fit into the empty cache is rejected.

Requests are CSV with named columns (prompt and output lengths; Azure's names
are known) or JSONL (Mooncake's). Requests without arrival times wait in a queue
that is never empty.

Without requests, kv prints sizes: what layers of each kind keep, the pages that
they share in vLLM, and what sequences of several lengths take of them.`

const kvExamples = `  memprof kv --model path/to/config.json --memory 40GiB --kv-dtype fp8
  memprof kv --requests trace.csv --model opt-13b --memory 12GiB
  memprof kv --synthetic sharegpt --rate 2 --duration 1h --sampling parallel:4 \
    --model llama-3-8b --memory 40GiB --policy paged:16
  memprof kv --requests trace.jsonl --tensor-parallel 4 --model llama-3-70b \
    --card 80GiB --rest 6GiB --policy paged:16,oracle
  # what each kind of layer wastes
  memprof kv --synthetic sharegpt --rate inf --steps 5000 --model gemma-3-27b \
    --memory 40GiB --policy uniform:16,hybrid:16
  # the vLLM paper's figure 12: latency over the rate
  memprof kv --requests samples/jobs/sharegpt_first_turns.csv --draw \
    --rate 0.5,1,1.5,2,2.5 --duration 1h --model opt-13b --memory 12GiB \
    --timing a100-40gb-opt-13b
  # the vLLM paper's figure 2, from ShareGPT's lengths
  memprof kv --requests samples/jobs/sharegpt_first_turns.csv --draw \
    --steps 200000 --warmup 2000 --model opt-13b --memory 12GiB \
    --policy max,pow2,oracle,paged:16`

func newKVCommand() *cobra.Command {
	opts := kvOptions{Ranks: 1, Stages: 1, KVDtype: "model", Policies: []string{"max", "pow2", "oracle", "paged:16"}}
	cmd := &cobra.Command{
		Use:         "kv [--requests FILE | --synthetic NAME] --model NAME",
		Short:       "Simulate KV-cache policies on a stream of requests",
		Long:        kvLong,
		Annotations: exitCodes(kvExits),
		Example:     kvExamples,
		Args:        exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.AddCommand(newCalibrateCommand())
	return completedKV(cmd)
}

func (o *kvOptions) addFlags(flags *pflag.FlagSet) {
	o.Load.AddFlags(flags)
	flags.StringVar(&o.Model, "model", "", "`name` of the model (an unknown one lists them), its Hugging Face folder, or a config.json")
	flags.Var(&o.BytesPerToken, "bytes-per-token", "bytes of keys and values per token on each GPU, instead of --model")
	flags.IntVar(&o.MaxLength, "max-length", 0, "most `tokens` in a sequence (default: the model's)")
	flags.Var(&o.Memory, "memory", "memory of the KV cache on each GPU")
	flags.Var(&o.Card, "card", "memory of each GPU: the report shows its division, and --memory is by default what weights and --rest leave")
	flags.Var(&o.Rest, "rest", "with --card: memory for neither weights nor KV cache")
	flags.IntVar(&o.Ranks, "tensor-parallel", o.Ranks, "divide the attention heads over `N` GPUs")
	flags.IntVar(&o.Stages, "pipeline-parallel", o.Stages, "divide the layers over `N` GPUs, each --tensor-parallel wide")
	flags.StringVar(&o.KVDtype, "kv-dtype", o.KVDtype, "`type` of the cache's elements: model, fp8, bf16 or fp32")
	flags.StringVar(&o.Layers, "layers", "", "`kinds` of the model's layers, as full:10,sliding/1024:52; also chunked/LENGTH:N, cross/TOKENS:N and state/SIZE[/STATES]:N (default: the model's)")
	flags.StringSliceVar(&o.Policies, "policy", o.Policies, "policies to simulate, a `list` with commas")
	flags.StringVar(&o.Sampling, "sampling", "greedy", "`sampling` of each prompt: greedy, parallel:N or beam:N (N sequences)")
	flags.StringVar(&o.Preempt, "preempt", "recompute", "what `happens` to preempted requests: recompute drops their cache, swap copies it to the host, which has as much for it as the GPU (paged only)")
	flags.Float64Var(&o.Watermark, "watermark", 0.01, "`share` of blocks that stay free when requests are admitted (paged)")
	o.Timing.AddFlags(flags)
	flags.Int64Var(&o.Steps, "steps", 0, "end after `N` steps (default: when all requests are done)")
	flags.Int64Var(&o.Warmup, "warmup", 0, "leave the first `N` steps out of the means")
	o.formatFlags.add(flags)
}

// run simulates every policy before it prints anything.
func (o *kvOptions) run(cmd *cobra.Command) error {
	if err := o.formatFlags.validate(); err != nil {
		return err
	}
	model, kinds, err := o.model()
	if err != nil {
		return err
	}
	if model != nil && o.Load.Unset() && o.Steps == 0 {
		return o.sizes(cmd.OutOrStdout(), model, kinds)
	}
	k, err := o.memory(model, kinds)
	if err != nil {
		return err
	}
	base, err := o.simulation(k, model)
	if err != nil {
		return err
	}
	policies, err := o.policies(model, kinds, base.MaxLength)
	if err != nil {
		return err
	}
	if err := o.Load.Prepare(cmd.InOrStdin(), base.MaxLength, o.Steps); err != nil {
		return err
	}
	k.Load, base.Saturated = o.Load.Line(), o.Load.Infinite
	k.Sampling = o.Sampling
	if model != nil && model.Parameters == 0 { // steps of constant time
		model = nil
	}
	if k.Timing, err = o.Timing.Of(model, o.Ranks); err != nil {
		return err
	}
	o.Timing.Set(&base, k.Timing, o.Stages)
	served := kvserve.Runs{Load: &o.Load, Rates: o.Load.Rates, Options: base, Policies: policies}
	if err := served.Simulate(cmd.Context(), k); err != nil {
		return err
	}
	return printAs(cmd.OutOrStdout(), o.Format, k, kv.Sections, kv.JSON)
}

// model reads the flags about the model: its layers by what they keep on one GPU of the greatest stage, without a
// model none.
func (o *kvOptions) model() (*models.Model, []models.LayerKind, error) {
	if (o.Model == "") == (o.BytesPerToken == 0) {
		return nil, nil, exit.Usagef("kv needs either --model or --bytes-per-token (see `memprof kv --help`)")
	}
	switch {
	case o.Ranks < 1:
		return nil, nil, exit.Usagef("--tensor-parallel %d: want at least 1", o.Ranks)
	case o.Stages < 1:
		return nil, nil, exit.Usagef("--pipeline-parallel %d: want at least 1", o.Stages)
	case o.Model == "" && (o.Layers != "" || o.Stages > 1):
		return nil, nil, exit.Usagef("--layers and --pipeline-parallel need --model, for the size of a layer")
	}
	if err := oneOf("kv-dtype", o.KVDtype, "model", "fp8", "bf16", "fp32"); err != nil {
		return nil, nil, err
	}
	if o.Model == "" {
		return nil, nil, nil
	}
	m, err := models.Named(o.Model)
	if _, missing := os.Stat(o.Model); err != nil && missing == nil {
		if m, err = models.Open(o.Model); err != nil {
			return nil, nil, exit.Input(fmt.Errorf("--model: %w", err))
		}
	}
	if err == nil {
		err = m.Ranks(o.Ranks)
	}
	if err != nil {
		return nil, nil, exit.Usagef("--model: %w%s", err, plain.DidYouMean(o.Model, models.Names()...))
	}
	if bytes := map[string]int{"fp8": 1, "bf16": 2, "fp32": 4}[o.KVDtype]; bytes > 0 {
		m.KVBytes = bytes
	}
	var given []models.LayerKind
	if o.Layers != "" {
		if given, err = models.ParseLayers(o.Layers); err != nil {
			return nil, nil, exit.Usagef("--layers: %w", err)
		}
	}
	kinds := m.Kinds(given, o.Ranks)
	for i := range kinds {
		if o.Stages > m.Layers || o.Stages > kinds[i].Layers && len(kinds) > 1 {
			return nil, nil, exit.Usagef("--pipeline-parallel %d: %d %v layers cannot be divided among so many", o.Stages, kinds[i].Layers, kinds[i])
		}
		kinds[i].Layers = (kinds[i].Layers + o.Stages - 1) / o.Stages
	}
	return &m, kinds, nil
}

// memory reads the flags about the memory of each GPU. The model is nil if only --bytes-per-token is known.
func (o *kvOptions) memory(model *models.Model, kinds []models.LayerKind) (*kv.Simulation, error) {
	k := &kv.Simulation{Ranks: o.Ranks, Stages: o.Stages, Memory: int64(o.Memory), BytesPerToken: int64(o.BytesPerToken)}
	if model != nil {
		k.Model, k.BytesPerToken = model.Name, models.SlotBytes(kinds)
	}
	if k.BytesPerToken == 0 {
		return nil, exit.Usagef("--layers %s: no layer keeps tokens", o.Layers)
	}
	switch {
	case o.Card > 0 && model == nil:
		return nil, exit.Usagef("--card needs --model, for the size of the weights")
	case o.Card > 0 && model.WeightBytes(1) == 0:
		return nil, exit.Usagef("--card needs the size of the weights: no *.safetensors are beside %s; give --memory", o.Model)
	case o.Rest > 0 && o.Card == 0:
		return nil, exit.Usagef("--rest needs --card: it is a part of that memory")
	case o.Card > 0:
		card, err := model.Split(int64(o.Card), o.Ranks*o.Stages, k.Memory, int64(o.Rest))
		if err != nil {
			return nil, exit.Usagef("--card: %w", err)
		}
		k.Card, k.Memory = &card, card.KV
	case o.Memory == 0:
		return nil, exit.Usagef("kv needs memory for the KV cache: --memory or --card, more than 0 bytes")
	}
	if k.Memory < k.BytesPerToken {
		return nil, exit.Usagef("--memory %d: less than one token of %d bytes", k.Memory, k.BytesPerToken)
	}
	return k, nil
}

// sizes prints what layers and sequences take, with no requests to serve.
func (o *kvOptions) sizes(stdout io.Writer, model *models.Model, kinds []models.LayerKind) error {
	s := &kv.Sizes{Model: model.Name, Ranks: o.Ranks, Stages: o.Stages}
	if o.Memory > 0 || o.Card > 0 || o.Rest > 0 {
		k, err := o.memory(model, kinds)
		if err != nil {
			return err
		}
		s.Memory, s.Card = &k.Memory, k.Card
	}
	if weights := model.WeightBytes(o.Ranks * o.Stages); weights > 0 {
		s.Weights = &weights
	}
	longest := int64(cmp.Or(o.MaxLength, model.MaxLength, 32768))
	if longest < 1 || longest > models.MostTokens {
		return exit.Usagef("--max-length %d: want from 1 to %d", longest, models.MostTokens)
	}
	block := int64(16)
	for _, text := range o.Policies {
		p, err := kvcache.ParsePolicy(text)
		if err == nil && p.Block > 0 {
			block = int64(p.Block)
			break
		}
	}
	if block > models.MostBlock {
		return exit.Usagef("--policy: blocks of %d tokens: want at most %d", block, models.MostBlock)
	}
	lengths := slices.DeleteFunc([]int64{1, 16, 128, 1024, 8192, 32768}, func(n int64) bool { return n >= longest })
	s.Compute(kinds, block, append(lengths, longest))
	return printAs(stdout, o.Format, s, kv.SizesSections, kv.SizesJSON)
}

// simulation returns the options that all policies share.
func (o *kvOptions) simulation(k *kv.Simulation, model *models.Model) (kvcache.Options, error) {
	base := kvcache.Options{
		Capacity: k.Memory / k.BytesPerToken, MaxLength: o.MaxLength, Watermark: o.Watermark,
		Steps: o.Steps, Warmup: o.Warmup, Seed: o.Load.Seed,
	}
	if model != nil && o.MaxLength == 0 {
		base.MaxLength = model.MaxLength
	}
	check := kvserve.CheckCount
	if err := cmp.Or(check("max-length", int64(o.MaxLength)), check("steps", o.Steps), check("warmup", o.Warmup)); err != nil {
		return base, err
	}
	if !(o.Watermark >= 0 && o.Watermark < 1) {
		return base, exit.Usagef("--watermark %v: want a share from 0, less than 1", o.Watermark)
	}
	if err := oneOf("preempt", o.Preempt, "recompute", "swap"); err != nil {
		return base, err
	}
	if o.Preempt == "swap" {
		base.Preempt = kvcache.Swap
	}
	var err error
	base.Sampling, err = parseSampling(o.Sampling)
	if base.Sampling.Kind == kvcache.Beam {
		base.Sampling.Keep = kvcache.BeamKeep
	}
	return base, err
}

func parseSampling(text string) (kvcache.Sampling, error) {
	kind, number, numbered := strings.Cut(text, ":")
	s := kvcache.Sampling{Width: 1}
	switch {
	case kind == "greedy" && !numbered:
		return s, nil
	case kind == "parallel":
		s.Kind = kvcache.Parallel
	case kind == "beam":
		s.Kind = kvcache.Beam
	default:
		return s, exit.Usagef("--sampling %q: want greedy, parallel:N or beam:N%s", text, plain.DidYouMean(kind, "greedy", "parallel", "beam"))
	}
	const most = 1024
	width, err := strconv.Atoi(number)
	if err != nil || width < 1 || width > most {
		return s, exit.Usagef("--sampling %q: want from 1 to %d sequences", text, most)
	}
	s.Width = width
	return s, nil
}

// policies parses --policy. limit is the length that max reserves if it names none; 0 if unknown.
func (o *kvOptions) policies(model *models.Model, kinds []models.LayerKind, limit int) ([]kvcache.Policy, error) {
	if len(o.Policies) == 0 {
		return nil, exit.Usagef("--policy names no policy: give one or more, like paged:16")
	}
	var policies []kvcache.Policy
	for _, text := range o.Policies {
		if text == "max" {
			if limit == 0 {
				return nil, exit.Usagef("--policy max reserves the longest sequence, which is not known: give --max-length, or max:LENGTH")
			}
			text = fmt.Sprintf("max:%d", limit)
		}
		p, err := kvcache.ParsePolicy(text)
		if err != nil {
			kind, _, _ := strings.Cut(text, ":")
			return nil, exit.Usagef("--policy: %w%s", err, plain.DidYouMean(kind, "max", "pow2", "oracle", "paged", "hybrid", "uniform"))
		}
		if p.Kind == kvcache.Hybrid || p.Kind == kvcache.Uniform {
			if model == nil {
				return nil, exit.Usagef("--policy %s needs --model, for its layers", text)
			}
			p.Layers, p.Slot = kinds, models.SlotBytes(kinds)
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// completedKV adds what the flags of kv can be.
func completedKV(cmd *cobra.Command) *cobra.Command {
	completeFlags(cmd, map[string]cobra.CompletionFunc{
		"model":     words(models.Names()...),
		"policy":    lists("max", "pow2", "oracle", "paged:16\tor another number of tokens", "hybrid:16", "uniform:16"),
		"kv-dtype":  words("model", "fp8", "bf16", "fp32"),
		"sampling":  words("greedy", "parallel:4\tor another number", "beam:4\tor another number"),
		"preempt":   words("recompute", "swap"),
		"timing":    words(serving.TimingNames()...),
		"synthetic": words(kvrequests.Names()...),
		"requests":  files("csv", "jsonl"),
	})
	return cmd
}
