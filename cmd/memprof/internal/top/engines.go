package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/memprof/memprof/analysis/plain"
)

// Engine is a serving engine that is asked for its metrics.
type Engine struct {
	URL      string    `json:"url"`
	Problem  string    `json:"problem,omitempty"` // why it says nothing now
	Replicas []Replica `json:"replicas"`
}

const (
	MostEngines      = 16              // that are asked
	engineAnswersIn  = 3 * time.Second // all of an answer
	mostOfAnswer     = 16 << 20        // bytes
	mostOfHeader     = 64 << 10
	mostOfRedirects  = 3
	noMetricsAnswers = "no metrics of vLLM or SGLang are there (SGLang has them with --enable-metrics)"
)

// EngineURL reads the address of an engine's metrics: http://HOST:PORT, with a path where it is not /metrics.
func EngineURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q: want the address of an engine's metrics, like http://127.0.0.1:8000/metrics", text)
	case u.Path == "" || u.Path == "/":
		u.Path = "/metrics"
	}
	u.Fragment = ""
	return u, nil
}

// engineWatch asks engines for their metrics, each on a goroutine of its own: one may take long to answer, or be gone.
type engineWatch struct {
	client *http.Client
	mu     sync.Mutex
	said   []Engine
}

// newEngineWatch asks at each interval until ctx is done, and waits for the first answers.
func newEngineWatch(ctx context.Context, urls []*url.URL, interval time.Duration) *engineWatch {
	w := &engineWatch{said: []Engine{}, client: &http.Client{
		Timeout:   engineAnswersIn,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: mostOfHeader, IdleConnTimeout: time.Minute},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > mostOfRedirects || next.URL.Host != via[0].URL.Host { // it is not asked for another host's metrics
				return http.ErrUseLastResponse
			}
			return nil
		},
	}}
	var first sync.WaitGroup
	for i, u := range urls {
		w.said = append(w.said, Engine{URL: u.Redacted(), Problem: "not asked yet", Replicas: []Replica{}})
		first.Add(1)
		go func() {
			w.ask(ctx, i, u)
			first.Done()
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(interval):
					w.ask(ctx, i, u)
				}
			}
		}()
	}
	first.Wait() // at most as long as a question takes
	return w
}

// ask replaces what the engine said. One that does not answer says nothing.
func (w *engineWatch) ask(ctx context.Context, i int, u *url.URL) {
	now := Engine{URL: u.Redacted(), Replicas: []Replica{}}
	text, err := w.fetch(ctx, u)
	if err == nil {
		now.Replicas = readExposition(text)
		if len(now.Replicas) == 0 {
			err = errors.New(noMetricsAnswers)
		}
	}
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		now.Problem = err.Error()
	}
	for k := range now.Replicas {
		now.Replicas[k].since(w.said[i].Replicas)
	}
	w.said[i] = now
}

// fetch is an answer's text.
func (w *engineWatch) fetch(ctx context.Context, u *url.URL) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "text/plain; version=0.0.4")
	answer, err := w.client.Do(request)
	if err != nil {
		return "", withoutURL(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		why := ""
		if answer.StatusCode == http.StatusNotFound {
			why = ": " + noMetricsAnswers
		}
		return "", fmt.Errorf("it answers %d %s%s", answer.StatusCode, http.StatusText(answer.StatusCode), why)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostOfAnswer+1))
	switch {
	case err != nil:
		return "", withoutURL(err)
	case len(text) > mostOfAnswer:
		return "", fmt.Errorf("its answer is longer than %d MiB", mostOfAnswer>>20)
	}
	return string(text), nil
}

// withoutURL says why there is no answer. The address is said where the reason is.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		if u.Timeout() {
			return fmt.Errorf("no answer within %v", engineAnswersIn)
		}
		return u.Err
	}
	if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
		return fmt.Errorf("no whole answer within %v", engineAnswersIn)
	}
	return err
}

// now is what the engines said last.
func (w *engineWatch) now() []Engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Engine{}, w.said...)
}

// lines are what the engine says, a line for each replica.
func (e *Engine) lines() (lines []string) {
	if e.Problem != "" {
		return []string{fmt.Sprintf("engine %s: %s", e.host(), e.Problem)}
	}
	for i := range e.Replicas {
		if i == shownReplicas {
			return append(lines, fmt.Sprintf("engine %s: %d more in --json", e.host(), len(e.Replicas)-i))
		}
		lines = append(lines, e.Replicas[i].line(e.host()))
	}
	return lines
}

// shownReplicas is up to how many replicas of an engine have a line.
const shownReplicas = 8

func (r *Replica) line(host string) string {
	line := r.Engine + " " + host
	if r.Model != "" {
		line += " " + plain.Shorten(r.Model, 32)
	}
	if r.Rank != "" && r.Rank != "0" {
		line += " rank " + plain.Shorten(r.Rank, 8)
	}
	var parts []string
	part := func(of *float64, form string) {
		if of != nil {
			parts = append(parts, fmt.Sprintf(form, plain.FormatPercent(*of)))
		}
	}
	part(r.KVUsage, "KV cache %s")
	if r.Tokens != nil {
		parts = append(parts, "of "+plain.Counted(*r.Tokens, "token"))
	}
	part(r.HitRate, "prefix hits %s")
	part(r.Recent, "%s lately")
	for _, n := range []struct {
		of   *int64
		what string
	}{{r.Running, "running"}, {r.Waiting, "waiting"}} {
		if n.of != nil {
			parts = append(parts, plain.FormatCount(*n.of)+" "+n.what)
		}
	}
	return line + ": " + strings.Join(parts, ", ")
}

// host is where an engine is asked.
func (e *Engine) host() string {
	rest := e.URL[strings.Index(e.URL, "://")+3:]
	rest, _, _ = strings.Cut(rest, "/")
	return rest[strings.LastIndex(rest, "@")+1:]
}
