package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/view"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// FuzzView: what memprof report --open serves of a recording with changed events, or with a changed part, while it is read and afterwards.
func FuzzView(f *testing.F) {
	for _, part := range []bool{false, true} {
		f.Add([]byte{}, part, uint16(60))
		f.Add([]byte{40, 0, 0, 7, 0, 3, 13}, part, uint16(60))
		f.Add([]byte{2, 3, 0, 5, 0, 11}, part, uint16(0))
	}
	f.Fuzz(tryView)
}

func tryView(t *testing.T, data []byte, part bool, event uint16) {
	dir, process := t.TempDir(), tracetest.Mixed()
	if !part {
		process.Events = changeEvents(process.Events, len(process.Texts), data)
		process.Options.PartEvents = 50
	}
	tracetest.WriteRun(t, dir, process)
	if part {
		file := filepath.Join(dir, "rank0-0000.parquet")
		whole, err := os.ReadFile(file)
		assert.NoError(t, err)
		assert.NoError(t, os.WriteFile(file, changePart(whole, data), 0o600))
	}
	run, err := openViewed(dir)
	if err != nil {
		return
	}
	server, listener, address, err := view.Listen(view.Options{
		Run: run, Path: dir,
		// FuzzEvents and FuzzPart have the page itself, which takes most of the time.
		Write: func(io.Writer, page.Page) error { return nil },
		Page: func() (page.Page, error) {
			analyzed, err := recording.Analyze(dir, run, pageOptions(0))
			return page.Page{Results: analyzed.Results, Server: &page.Server{}}, err
		},
	}, 0)
	assert.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	v := visitor{t, &http.Client{Timeout: fuzzTime, Transport: &http.Transport{DisableKeepAlives: true}}, address}
	if err := v.look(int(event)); err != nil {
		select {
		case damaged := <-ended: // before it could serve anything
			if damaged == nil {
				t.Error(err)
			}
		case <-time.After(fuzzTime):
			t.Error(err)
		}
		stop()
		return
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// visitor asks a server what its page does.
type visitor struct {
	*testing.T
	client  *http.Client
	address string
}

// look asks for the page, an event and a time, before all was read and then. The error is a connection's.
func (v visitor) look(event int) error {
	all := func() error {
		for _, what := range []string{"", fmt.Sprintf("events?process=0&device=0&event=%d", event), fmt.Sprintf("events?process=0&device=0&time=%d", event*256_000)} {
			if _, err := v.get(what); err != nil {
				return err
			}
		}
		return nil
	}
	if err := all(); err != nil {
		return err
	}
	for end := time.Now().Add(fuzzTime); ; time.Sleep(time.Millisecond) {
		body, err := v.get("status")
		if err != nil {
			return err
		}
		var status struct {
			Complete bool
			Error    string
		}
		if err := json.Unmarshal(body, &status); err != nil {
			v.Fatalf("%v: %q", err, body)
		}
		if status.Complete || status.Error != "" {
			return all()
		}
		if time.Now().After(end) {
			return errors.New("it does not come to an end")
		}
	}
}

func (v visitor) get(what string) ([]byte, error) {
	r, err := v.client.Get(v.address + what)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	switch r.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusInternalServerError: // no such event, or a damaged one
		demandPlain(v, what, body)
	default:
		v.Errorf("%s: %s: %q", what, r.Status, body)
	}
	return body, nil
}
