package top

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// endpoint serves the last look as OpenMetrics, which Prometheus and its like collect.
type endpoint struct {
	listener net.Listener
	server   *http.Server

	mu   sync.Mutex
	text []byte
}

func listen(address string) (*endpoint, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	e := &endpoint{listener: listener, text: []byte("# EOF\n")}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /metrics", e.serve)
	routes.Handle("GET /{$}", http.RedirectHandler("/metrics", http.StatusFound))
	e.server = &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	go e.server.Serve(listener)
	return e, nil
}

func (e *endpoint) url() string { return fmt.Sprintf("http://%s/metrics", e.listener.Addr()) }

func (e *endpoint) close() { e.server.Close() }

// set replaces what is served. A nil endpoint serves nothing.
func (e *endpoint) set(look *View) {
	if e == nil {
		return
	}
	text := openMetrics(look)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text = text
}

// serve answers in OpenMetrics who asks for it, and others in the older text format, which browsers show and every collector reads.
func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	text := e.text
	e.mu.Unlock()
	if strings.Contains(r.Header.Get("Accept"), "application/openmetrics-text") {
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
	} else {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		text = plainText(text)
	}
	w.Header().Set("Vary", "Accept")
	w.Write(text)
}

// plainText is a text of OpenMetrics in Prometheus's text format 0.0.4: a counter is described under the name of its samples,
// and neither units nor an end are written.
func plainText(text []byte) []byte {
	var out bytes.Buffer
	counters := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if words[0] != "#" {
			out.WriteString(line)
			continue
		}
		if len(words) < 4 || words[1] == "UNIT" {
			continue
		}
		name := words[2]
		if words[1] == "TYPE" && words[3] == "counter" {
			counters[name] = true
		}
		if counters[name] {
			name += "_total"
		}
		fmt.Fprintf(&out, "# %s %s %s\n", words[1], name, words[3])
	}
	return out.Bytes()
}

// family is a metric of OpenMetrics, with a value for each device, or each part of one.
type family struct {
	name, kind, unit, help string
	values                 func(p *Process, m *Memory, put func(value float64, labels ...string))
}

// one is a number of a device.
func one(of func(*Memory) int64) func(*Process, *Memory, func(float64, ...string)) {
	return func(_ *Process, m *Memory, put func(float64, ...string)) { put(float64(of(m))) }
}

var families = []family{
	{"memprof_requested_bytes", "gauge", "bytes", "requested by live allocations (T)", one(func(m *Memory) int64 { return m.Requested })},
	{"memprof_provided_bytes", "gauge", "bytes", "chunks of live allocations (C)", func(_ *Process, m *Memory, put func(float64, ...string)) {
		if m.Provided != nil {
			put(float64(*m.Provided))
		}
	}},
	{"memprof_reserved_bytes", "gauge", "bytes", "mapped by arenas (R)", one(func(m *Memory) int64 { return m.Reserved })},
	{"memprof_reserved_peak_bytes", "gauge", "bytes", "greatest R so far", one(func(m *Memory) int64 { return m.MaxReserved })},
	{"memprof_paused_bytes", "gauge", "bytes", "of paused tags", one(func(m *Memory) int64 { return m.Paused })},
	{"memprof_free_bytes", "gauge", "bytes", "free or pending, by term", func(_ *Process, m *Memory, put func(float64, ...string)) {
		put(float64(m.Pending), "term", "pending")
		put(float64(m.Stranded), "term", "stranded")
		put(float64(m.Reserve), "term", "reserve")
		put(float64(m.Reusable), "term", "reusable")
		put(float64(m.External), "term", "external")
	}},
	{"memprof_category_bytes", "gauge", "bytes", "requested by live allocations, by category", func(_ *Process, m *Memory, put func(float64, ...string)) {
		for _, s := range m.Categories {
			put(float64(s.Requested), "category", s.Name)
		}
	}},
	{"memprof_live_allocations", "gauge", "", "live allocations", one(func(m *Memory) int64 { return m.Live })},
	{"memprof_failed_requests", "counter", "", "requests that failed for good", func(_ *Process, m *Memory, put func(float64, ...string)) {
		if m.OOMs != nil {
			put(float64(*m.OOMs))
		}
	}},
	{"memprof_iteration", "gauge", "", "number of the current iteration, from 0", func(p *Process, _ *Memory, put func(float64, ...string)) {
		if p.Iteration != nil {
			put(float64(*p.Iteration))
		}
	}},
}

// openMetrics is a look in the text format of OpenMetrics 1.0.
func openMetrics(look *View) []byte {
	var out bytes.Buffer
	head := func(name, kind, unit, help string) {
		fmt.Fprintf(&out, "# TYPE %s %s\n", name, kind)
		if unit != "" {
			fmt.Fprintf(&out, "# UNIT %s %s\n", name, unit)
		}
		fmt.Fprintf(&out, "# HELP %s %s\n", name, help)
	}
	for _, f := range families {
		head(f.name, f.kind, f.unit, f.help)
		name := f.name
		if f.kind == "counter" {
			name += "_total"
		}
		for i := range look.Processes {
			p := &look.Processes[i]
			for j := range p.Devices {
				f.values(p, &p.Devices[j], func(value float64, labels ...string) {
					sample(&out, name, value, append([]string{"process", p.Process, "device", fmt.Sprint(p.Devices[j].Device)}, labels...)...)
				})
			}
		}
	}
	head("memprof_events", "counter", "", "events recorded")
	for i := range look.Processes {
		sample(&out, "memprof_events_total", float64(look.Processes[i].Events), "process", look.Processes[i].Process)
	}
	head("memprof_card_used_bytes", "gauge", "bytes", "used on a card by all programs, as NVML reports it")
	for _, c := range look.Cards {
		if c.Used != nil {
			sample(&out, "memprof_card_used_bytes", float64(*c.Used), "card", fmt.Sprint(c.Index), "name", c.Name)
		}
	}
	for _, f := range engineFamilies {
		head(f.name, "gauge", "", f.help)
		for i := range look.Engines {
			for j := range look.Engines[i].Replicas {
				r := &look.Engines[i].Replicas[j]
				if value := f.value(r); value != nil {
					sample(&out, f.name, *value, "engine", r.Engine, "host", look.Engines[i].host(), "model", r.Model, "rank", r.Rank)
				}
			}
		}
	}
	out.WriteString("# EOF\n")
	return out.Bytes()
}

// engineFamilies are what serving engines say, with a value for each replica.
var engineFamilies = []struct {
	name, help string
	value      func(*Replica) *float64
}{
	{"memprof_engine_kv_usage", "share of the KV cache that is taken, as the engine says", func(r *Replica) *float64 { return r.KVUsage }},
	{
		"memprof_engine_prefix_hit_rate", "share of prompts' tokens that the prefix cache had, as the engine says",
		func(r *Replica) *float64 { return r.HitRate },
	},
}

// sample writes a value with its labels, given as names and values in turn.
func sample(out *bytes.Buffer, name string, value float64, labels ...string) {
	var texts []string
	escape := strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`)
	for i := 0; i < len(labels); i += 2 {
		texts = append(texts, fmt.Sprintf(`%s="%s"`, labels[i], escape.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))))
	}
	fmt.Fprintf(out, "%s{%s} %s\n", name, strings.Join(texts, ","), strings.TrimSuffix(fmt.Sprintf("%f", value), ".000000"))
}
