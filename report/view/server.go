package view

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/trace/dataset"
)

// Options of a Server.
type Options struct {
	Run  *dataset.Run
	Path string // as the user named the recording
	// Page analyzes the recording: what the page shows when all was read.
	Page func() (page.Page, error)
	// Write writes a page with the sections of a report.
	Write func(w io.Writer, p page.Page) error
}

// Server answers the page of one recording. Its address and token are made by Listen.
type Server struct {
	opt       Options
	token     string
	host      string             // of the address, with its port
	processes []*dataset.Process // for answers: their Readers advance nothing
	of        int64              // events of all processes
	busy      chan struct{}      // a place for each answer that is made

	mutex     sync.Mutex
	html      []byte    // of the page
	read      int64     // events, by the passes for the page
	complete  bool      // all was read
	failure   error     // of reading it all
	answering int       // answers that are being made
	quiet     sync.Cond // answering is 0 again
}

const (
	answersAtOnce = 2 // of a core or two
	answerTime    = 30 * time.Second
)

// Listen takes a port of the machine's own address, 0 for any, and returns where the page is.
func Listen(opt Options, port int) (*Server, net.Listener, string, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return nil, nil, "", err
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, nil, "", errors.Join(err, listener.Close())
	}
	s := &Server{opt: opt, token: hex.EncodeToString(random[:]), host: listener.Addr().String(), busy: make(chan struct{}, answersAtOnce)}
	s.quiet.L = &s.mutex
	return s, listener, "http://" + s.host + "/" + s.token + "/", nil
}

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	if err := s.look(); err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reading sync.WaitGroup
	reading.Go(func() { s.readAll(ctx) })
	defer reading.Wait()
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // what is under way has nobody to read it
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// look makes the page that is there at once.
func (s *Server) look() error {
	p := page.Page{Path: s.opt.Path, Server: &page.Server{Most: MostEvents}}
	for _, process := range s.opt.Run.Processes {
		answers := *process
		answers.Advance = nil
		result, err := firstLook(&answers)
		if err != nil {
			return err
		}
		s.processes = append(s.processes, &answers)
		advance := process.Advance
		process.Advance = func(events int) {
			s.turn(events)
			if advance != nil {
				advance(events)
			}
		}
		s.of += process.Events
		p.Results = append(p.Results, result)
	}
	p.Server.Of = s.of
	return s.show(p)
}

// turn is the next turn of reading all, after so many events: answers come before it, because somebody waits for them.
func (s *Server) turn(events int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.read = min(s.read+int64(events), s.of)
	for s.answering > 0 {
		s.quiet.Wait()
	}
}

// hurry has the reading of all wait until done is called.
func (s *Server) hurry() (done func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.answering++
	return func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if s.answering--; s.answering == 0 {
			s.quiet.Broadcast()
		}
	}
}

// show renders a page.
func (s *Server) show(p page.Page) error {
	var out bytes.Buffer
	if err := s.opt.Write(&out, p); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.html = out.Bytes()
	return nil
}

// readAll reads the whole recording for the page.
func (s *Server) readAll(ctx context.Context) {
	p, err := s.opt.Page()
	if err == nil && ctx.Err() == nil {
		if p.Server != nil {
			*p.Server = page.Server{Complete: true, Events: s.of, Of: s.of, Most: MostEvents}
		}
		err = s.show(p)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.failure = err; err == nil {
		s.read, s.complete = s.of, true
	}
}

// ServeHTTP answers a request that names the token and the address.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, value := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
		"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
	} {
		header.Set(name, value)
	}
	if r.Host != s.host && r.Host != strings.Replace(s.host, "127.0.0.1", "localhost", 1) {
		http.Error(w, "unknown host", http.StatusForbidden) // a name that somebody pointed here
		return
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "asked by another site", http.StatusForbidden)
		return
	}
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 3 || parts[0] != "" || subtle.ConstantTimeCompare([]byte(parts[1]), []byte(s.token)) != 1 {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet {
		header.Set("Allow", http.MethodGet)
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
		return
	}
	switch parts[2] {
	case "":
		s.mutex.Lock()
		html := s.html
		s.mutex.Unlock()
		header.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(html) // who asked may be gone
	case "status":
		s.status(w)
	case "events":
		s.answer(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) status(w http.ResponseWriter) {
	var out struct {
		Complete bool   `json:"complete"`
		Events   int64  `json:"events"`
		Of       int64  `json:"of"`
		Error    string `json:"error"`
	}
	s.mutex.Lock()
	out.Complete, out.Events, out.Of = s.complete, s.read, s.of
	if s.failure != nil {
		out.Error = plain.Text(s.failure.Error())
	}
	s.mutex.Unlock()
	text, err := plain.JSON(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	q, err := s.question(r.URL.RawQuery)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	done := s.hurry()
	pack, err := s.events(q)
	done()
	var missing missingError
	switch {
	case errors.As(err, &missing):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, plain.Text(err.Error()), http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(pack)
	}
}

// question reads the parameters of a request, each of which it has at most once.
func (s *Server) question(query string) (question, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return question{}, errors.New("the parameters cannot be read")
	}
	q := question{event: -1, from: -1}
	given := map[string]bool{}
	for name, all := range values {
		n, err := strconv.ParseInt(all[0], 10, 64)
		if len(all) != 1 || err != nil || n < 0 {
			return q, fmt.Errorf("%s: want one whole number, 0 or more", plain.Shorten(name, 20))
		}
		given[name] = true
		switch name {
		case "process":
			if n >= int64(len(s.processes)) {
				return q, fmt.Errorf("process: want 0 to %d", len(s.processes)-1)
			}
			q.process = int(n)
		case "device":
			if n > math.MaxInt32 {
				return q, errors.New("device: want a device of the process")
			}
			q.device = int32(n)
		case "event":
			q.event = n
		case "from":
			q.from = n
		case "time":
			q.time, q.byTime = n, true
		default:
			return q, fmt.Errorf("no parameter %s", plain.Shorten(name, 20))
		}
	}
	if !given["process"] || !given["device"] || given["event"] == given["time"] || given["from"] && !given["event"] {
		return q, errors.New("want process, device, and event or time")
	}
	return q, nil
}
