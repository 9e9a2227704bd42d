package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/kvcache"
	kvrequests "github.com/memprof/memprof/analysis/kvcache/requests"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/kvload"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report/kv"
	"github.com/memprof/memprof/report/spell"
)

const kvExits = "0 simulated; 2 wrong usage, or requests that make no sense; 3 memprof failed"

type kvOptions struct {
	Load kvload.Load

	Model         string
	BytesPerToken sizeFlag
	MaxLength     int // 0: the model's
	Memory        sizeFlag
	Card          sizeFlag
	Rest          sizeFlag
	Ranks         int

	Policies  []string
	Sampling  string
	Preempt   string
	Swap      sizeFlag
	Watermark float64
	NullBlock bool
	StepTime  time.Duration
	Steps     int64
	Warmup    int64
	At        int64

	formatFlags
	Output string
}

func newKVCommand() *cobra.Command {
	opts := kvOptions{Ranks: 1, Policies: []string{"max", "pow2", "oracle", "paged:16"}}
	cmd := &cobra.Command{
		Use:   "kv (--requests FILE | --synthetic NAME) --model NAME",
		Short: "Simulate where memory of keys and values goes, by policy",
		Long: `Serves requests from a simulated memory of keys and values, without any GPU, and
shows for each policy what its slots, of one token each, were used for. At every
step they add up:

  token     holds the keys and values of a running request
  reserve   will hold those of a running request before it ends
  internal  is of a reservation or a block, and never filled
  external  is of neither: rounding of the allocator; stranded, free but in no
            piece that serves the request that waits first; and idle
  cached    of prompts that have gone, kept until the block is needed (paged)
  null      the block of --null-block (paged)

Policies:

  max:L     reserve L tokens for every sequence; max alone, as --max-length has
  pow2      reserve the prompt and the output rounded up to a power of two
  oracle    reserve exactly what will be needed
  paged:B   take blocks of B tokens as they are needed
  vmm:PAGE  map pages behind contiguous addresses as they are needed

The first three place their reservations with a buddy allocator, or as in
max/firstfit or max:2048/bestfit.

In a step every running request gets a token. Requests are admitted in their
order: behind one that finds no room all wait. Where a running one finds none,
the latest gives up all it has, and nothing new is admitted before it is back.
What fits into no empty memory is rejected.

Requests are CSV with named columns (prompt and output lengths; Azure's names
are known) or JSONL (Mooncake's). Those without times meet a queue that is never
empty.`,
		Annotations: exitCodes(kvExits),
		Example: `  memprof kv --requests trace.csv --model opt-13b --memory 12GiB -o plots
  memprof kv --synthetic sharegpt --rate 2 --duration 1h --sampling parallel:4 \
    --model llama-3-8b --memory 40GiB --policy paged:16
  memprof kv --requests trace.jsonl --tensor-parallel 4 --model llama-3-70b \
    --card 80GiB --rest 6GiB --policy paged:16,vmm:2MiB
  # the vLLM paper's figure 2, from ShareGPT's lengths
  memprof kv --requests samples/jobs/sharegpt_first_turns.csv --draw \
    --steps 200000 --warmup 2000 --model opt-13b --memory 12GiB \
    --policy max,pow2,oracle,paged:16`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd)
		},
	}
	opts.addFlags(cmd.Flags())
	return completedKV(cmd)
}

func (o *kvOptions) addFlags(flags *pflag.FlagSet) {
	o.Load.AddFlags(flags)
	flags.StringVar(&o.Model, "model", "", "shape of the model, by `name`; an unknown one lists them")
	flags.Var(&o.BytesPerToken, "bytes-per-token", "instead of --model: keys and values of a token on each GPU")
	flags.IntVar(&o.MaxLength, "max-length", 0, "longest sequence in `tokens` (default: the model's)")
	flags.Var(&o.Memory, "memory", "for keys and values on each GPU")
	flags.Var(&o.Card, "card", "memory of each GPU: its division is shown, and what weights and rest leave is --memory's default")
	flags.Var(&o.Rest, "rest", "with --card: what neither weights nor keys and values take, at least")
	flags.IntVar(&o.Ranks, "tensor-parallel", o.Ranks, "divide the heads over `N` GPUs")
	flags.StringSliceVar(&o.Policies, "policy", o.Policies, "what to simulate, a `list` with commas")
	flags.StringVar(&o.Sampling, "sampling", "greedy", "sequences of a prompt, and `how` they go on: greedy, parallel:N or beam:N")
	flags.StringVar(&o.Preempt, "preempt", "recompute", "`what` becomes of the preempted: recompute drops them, swap copies them to the host (not under contiguous policies)")
	flags.Var(&o.Swap, "swap-memory", "of the host, for --preempt swap (default: as much as the GPU has)")
	flags.Float64Var(&o.Watermark, "watermark", 0.01, "`share` of blocks or pages that admission leaves free (paged, vmm)")
	flags.BoolVar(&o.NullBlock, "null-block", false, "set aside a block that is never handed out, as vLLM does")
	flags.DurationVar(&o.StepTime, "step-time", 25*time.Millisecond, "how long a step of all that run takes, in which each gets a token")
	flags.Int64Var(&o.Steps, "steps", 0, "end after `N` steps (default: when all requests are through)")
	flags.Int64Var(&o.Warmup, "warmup", 0, "leave the first `N` steps out of means")
	flags.Int64Var(&o.At, "at", 0, "show block tables and blocks after step `N` (paged); with -o, draw them")
	o.formatFlags.add(flags)
	flags.StringVarP(&o.Output, "output", "o", "", "draw plots into this `directory`")
}

// run prints nothing before every policy is through.
func (o *kvOptions) run(cmd *cobra.Command) error {
	if err := o.formatFlags.settle(); err != nil {
		return err
	}
	k, model, err := o.memory()
	if err != nil {
		return err
	}
	base, err := o.simulation(k)
	if err != nil {
		return err
	}
	policies, err := o.policies(model, base.MaxLength)
	if err != nil {
		return err
	}
	paged := func(p kvcache.Policy) bool { return p.Kind == kvcache.Paged }
	if o.At > 0 && !slices.ContainsFunc(policies, paged) {
		return exit.Usagef("--at shows blocks, and no policy has any: want paged:B")
	}
	if o.Output != "" {
		if err := os.MkdirAll(o.Output, 0o755); err != nil {
			return exit.Usagef("-o %s cannot be created: %w", o.Output, err)
		}
	}
	if err := o.Load.Prepare(cmd.InOrStdin(), base.MaxLength, o.Steps); err != nil {
		return err
	}
	k.Load, k.Sampling = o.Load.Line(), o.Sampling
	if o.Load.Infinite {
		base.StepTime = 0
	}
	for _, p := range policies {
		base.Policy = p
		base.SwapBlocks = o.swapBlocks(p, k.BytesPerToken)
		result, err := o.simulate(cmd.Context(), base)
		if err != nil {
			return err
		}
		k.Results = append(k.Results, result)
		if o.At > 0 && paged(p) && result.Map == nil {
			screen.Complain(cmd.ErrOrStderr(), fmt.Sprintf("%s ended before step %d, so its blocks are not shown", p, o.At))
		}
	}
	if err := o.print(cmd.OutOrStdout(), k); err != nil {
		return err
	}
	return o.draw(cmd.ErrOrStderr(), k)
}

// memory is what of the flags is about the model and its card; the model is nil if unknown.
func (o *kvOptions) memory() (*kv.Simulation, *kvcache.Model, error) {
	k := &kv.Simulation{Ranks: o.Ranks, Memory: int64(o.Memory), BytesPerToken: int64(o.BytesPerToken)}
	if (o.Model == "") == (o.BytesPerToken == 0) {
		return nil, nil, exit.Usagef("kv needs either --model or --bytes-per-token (see `memprof kv --help`)")
	}
	if o.Ranks < 1 {
		return nil, nil, exit.Usagef("--tensor-parallel %d: want at least 1", o.Ranks)
	}
	var model *kvcache.Model
	if o.Model != "" {
		m, err := kvcache.ModelNamed(o.Model)
		if err == nil {
			err = m.Ranks(o.Ranks)
		}
		if err != nil {
			return nil, nil, exit.Usagef("--model: %w%s", err, spell.DidYouMean(o.Model, kvcache.ModelNames()...))
		}
		model, k.Model, k.BytesPerToken = &m, m.Name, m.BytesPerToken(o.Ranks)
	}
	switch {
	case o.Card > 0 && model == nil:
		return nil, nil, exit.Usagef("--card needs --model, whose weights it holds")
	case o.Rest > 0 && o.Card == 0:
		return nil, nil, exit.Usagef("--rest needs --card, of which it is a part")
	case o.Card > 0:
		card, err := model.Split(int64(o.Card), o.Ranks, k.Memory, int64(o.Rest))
		if err != nil {
			return nil, nil, exit.Usagef("--card: %w", err)
		}
		k.Card, k.Memory = &card, card.KV
	case o.Memory == 0:
		return nil, nil, exit.Usagef("kv needs memory for keys and values: --memory or --card, of more than 0 bytes")
	}
	if k.Memory < k.BytesPerToken {
		return nil, nil, exit.Usagef("--memory %d: not enough for one token of %d bytes", k.Memory, k.BytesPerToken)
	}
	return k, model, nil
}

// simulation is what all policies have in common.
func (o *kvOptions) simulation(k *kv.Simulation) (kvcache.Options, error) {
	base := kvcache.Options{
		Capacity: k.Memory / k.BytesPerToken, MaxLength: o.MaxLength, Watermark: o.Watermark, NullBlock: o.NullBlock,
		StepTime: int64(o.StepTime), Steps: o.Steps, Warmup: o.Warmup, Seed: o.Load.Seed, At: o.At,
	}
	if base.At == 0 {
		base.At = -1
	}
	if m, err := kvcache.ModelNamed(k.Model); err == nil && o.MaxLength == 0 {
		base.MaxLength = m.MaxLength
	}
	switch {
	case o.MaxLength < 0 || o.Steps < 0 || o.Warmup < 0 || o.At < 0:
		return base, exit.Usagef("--max-length, --steps, --warmup and --at are not negative")
	case o.Swap > 0 && o.Preempt != "swap":
		return base, exit.Usagef("--swap-memory needs --preempt swap, whose blocks it holds")
	case o.StepTime <= 0:
		return base, exit.Usagef("--step-time %v: want more than 0", o.StepTime)
	case !(o.Watermark >= 0 && o.Watermark < 1):
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
		return s, exit.Usagef("--sampling %q: want greedy, parallel:N or beam:N%s", text, spell.DidYouMean(kind, "greedy", "parallel", "beam"))
	}
	const most = 1024
	width, err := strconv.Atoi(number)
	if err != nil || width < 1 || width > most {
		return s, exit.Usagef("--sampling %q: want from 1 to %d sequences", text, most)
	}
	s.Width = width
	return s, nil
}

// policies are those of the flag; limit is what max reserves that says no length.
func (o *kvOptions) policies(model *kvcache.Model, limit int) ([]kvcache.Policy, error) {
	if len(o.Policies) == 0 {
		return nil, exit.Usagef("--policy names no policy")
	}
	var policies []kvcache.Policy
	for _, text := range o.Policies {
		if allocator, ok := strings.CutPrefix(text, "max"); ok && (allocator == "" || allocator[0] == '/') {
			if limit == 0 {
				return nil, exit.Usagef("--policy %s reserves as much as a sequence can have, and nothing says how much: want --max-length, or max:LENGTH%s", text, allocator)
			}
			text = fmt.Sprintf("max:%d%s", limit, allocator)
		}
		p, err := kvcache.ParsePolicy(text)
		if err != nil {
			kind, _, _ := strings.Cut(text, ":")
			return nil, exit.Usagef("--policy: %w%s", err, spell.DidYouMean(kind, "max", "pow2", "oracle", "paged", "vmm"))
		}
		if p.Kind == kvcache.VMM {
			if model == nil {
				return nil, exit.Usagef("--policy %s needs --model, whose layers have pages of their own", text)
			}
			p.TokenSize, p.Tensors = model.TensorTokenBytes(o.Ranks), model.Tensors()
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// swapBlocks is what --swap-memory holds in the policy's unit: blocks, or rows of pages.
func (o *kvOptions) swapBlocks(p kvcache.Policy, bytesPerToken int64) int64 {
	unit := int64(p.Block) * bytesPerToken
	if p.Kind == kvcache.VMM {
		unit = p.Page * int64(p.Tensors)
	}
	if o.Swap == 0 || unit == 0 {
		return 0
	}
	return max(1, int64(o.Swap)/unit)
}

func (o *kvOptions) simulate(ctx context.Context, options kvcache.Options) (*kvcache.Result, error) {
	src, done, err := o.Load.Open()
	if err != nil {
		return nil, err
	}
	defer done()
	result, err := kvcache.Simulate(ctx, src, options)
	var fault *kvcache.StepError
	switch {
	case err == nil:
		return result, nil
	case errors.As(err, &fault), ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", options.Policy, err)
	}
	return nil, o.Load.Fault(err)
}

func (o *kvOptions) print(stdout io.Writer, k *kv.Simulation) error {
	switch o.Format {
	case "json":
		return kv.JSON(stdout, k)
	case "markdown":
		return kv.Markdown(stdout, k)
	}
	return kv.Text(stdout, k, screen.Options(stdout))
}

func (o *kvOptions) draw(stderr io.Writer, k *kv.Simulation) error {
	if o.Output == "" {
		return nil
	}
	files, err := kv.WritePlots(o.Output, k)
	for _, file := range files {
		screen.Complain(stderr, "wrote "+file)
	}
	return err
}

// completedKV adds what the flags of kv can be.
func completedKV(cmd *cobra.Command) *cobra.Command {
	completeFlags(cmd, map[string]cobra.CompletionFunc{
		"model":     words(kvcache.ModelNames()...),
		"policy":    lists("max", "pow2", "oracle", "paged:16\tor another number of tokens", "vmm:2MiB\tor another page"),
		"sampling":  words("greedy", "parallel:4\tor another number", "beam:4\tor another number"),
		"preempt":   words("recompute", "swap"),
		"synthetic": words(kvrequests.Names()...),
		"requests":  files("csv", "jsonl"),
		"output":    completeDirectories,
		"format":    words("text", "markdown", "json"),
	})
	return cmd
}
