//go:build !js

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// This file is the protocol of memprof mcp: the Model Context Protocol's JSON-RPC 2.0, one message a line, as far as a server of
// tools needs it. It is our own: github.com/modelcontextprotocol/go-sdk adds 1.8 MB and seven modules, for HTTP, OAuth and schemas by reflection.

// mcpVersions are the protocol versions that are spoken, newest first.
var mcpVersions = []string{"2025-06-18", "2025-03-26", "2024-11-05"}

const (
	mcpLine    = 1 << 20 // bytes that a message may have
	mcpWaiting = 32      // calls of tools that may wait for the one that runs
)

// Codes of JSON-RPC errors.
const (
	mcpParse, mcpInvalid, mcpNoMethod, mcpBadParams, mcpBusy = -32700, -32600, -32601, -32602, -32000
)

// mcpServer answers one client. Tools run one at a time, in the order of their calls; everything else is answered at once.
type mcpServer struct {
	tools        []mcpTool
	instructions func() string

	queue   chan mcpJob
	mu      sync.Mutex // of what follows
	out     *json.Encoder
	failed  error                         // of the first write that failed
	pending map[string]context.CancelFunc // by id, of requests in the queue
	batches bool                          // the version agreed on has them
}

// mcpMessage is a request, a notification (without ID), or a response.
type mcpMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`

	ctx context.Context
}

type mcpResponse struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *mcpError       `json:"error,omitempty"`
}

type mcpError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *mcpError) Error() string { return e.Message }

func mcpErrorf(code int, format string, args ...any) error {
	return &mcpError{code, fmt.Sprintf(format, args...)}
}

// mcpJob are the requests of a line, which are answered together if they came as a batch.
type mcpJob struct {
	requests []*mcpMessage
	answers  []mcpResponse // to what was wrong in the batch
	batch    bool
}

// serve answers the messages of in until it ends, and then those that still wait.
func (s *mcpServer) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s.out, s.pending, s.queue = json.NewEncoder(out), map[string]context.CancelFunc{}, make(chan mcpJob, mcpWaiting)
	s.out.SetEscapeHTML(false)
	var done sync.WaitGroup
	done.Go(func() {
		for job := range s.queue {
			s.work(job)
		}
	})
	err := s.read(ctx, bufio.NewReaderSize(in, 64<<10))
	close(s.queue)
	done.Wait()
	return errors.Join(err, s.broken())
}

// broken is the error of the first answer that could not be written.
func (s *mcpServer) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *mcpServer) read(ctx context.Context, in *bufio.Reader) error {
	for {
		line, err := mcpReadLine(in)
		var wrong *mcpError
		switch {
		case errors.As(err, &wrong):
			s.write(mcpResponse{Error: wrong})
			continue
		case err != nil && err != io.EOF:
			return err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.take(ctx, line)
		}
		if err == io.EOF || s.broken() != nil {
			return nil
		}
	}
}

// mcpReadLine returns the next line. One that is too long is read to its end and not kept.
func mcpReadLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for size := 0; ; {
		piece, err := in.ReadSlice('\n')
		if size += len(piece); size <= mcpLine {
			line = append(line, piece...)
		}
		switch {
		case err == bufio.ErrBufferFull:
		case size > mcpLine && (err == nil || err == io.EOF):
			return nil, mcpErrorf(mcpInvalid, "the message has %d bytes: at most %d are read", size, mcpLine)
		default:
			return line, err
		}
	}
}

// take answers a line, or puts what calls tools into the queue.
func (s *mcpServer) take(ctx context.Context, line []byte) {
	job, raw := mcpJob{}, []json.RawMessage{line}
	if line[0] == '[' {
		raw, job.batch = nil, true
		err := json.Unmarshal(line, &raw)
		switch {
		case err != nil:
			s.write(mcpResponse{Error: &mcpError{mcpParse, "the line is not JSON: " + err.Error()}})
			return
		case len(raw) == 0 || !s.batches:
			s.write(mcpResponse{Error: &mcpError{mcpInvalid, "a batch, which this version of the protocol does not have, or an empty one"}})
			return
		}
	}
	for _, text := range raw {
		request, err := s.parse(text)
		if err == nil && request == nil {
			continue
		}
		if err == nil && job.batch && *request.Method == "initialize" {
			err = mcpErrorf(mcpInvalid, "initialize cannot be in a batch")
		} else if err == nil {
			err = s.await(ctx, request)
		}
		if err != nil {
			job.answers = append(job.answers, response(request, nil, err))
			continue
		}
		job.requests = append(job.requests, request)
	}
	if len(job.requests)+len(job.answers) == 0 {
		return
	}
	if !job.batch && (len(job.answers) > 0 || *job.requests[0].Method != "tools/call") {
		s.work(job)
		return
	}
	select {
	case s.queue <- job:
	default:
		for _, request := range job.requests {
			s.forget(request)
			s.write(response(request, nil, mcpErrorf(mcpBusy, "%d calls wait already: try again", mcpWaiting)))
		}
	}
}

// parse returns the request in a text, or none if it has a notification or a response, which it heeds.
func (s *mcpServer) parse(text []byte) (*mcpMessage, error) {
	var m mcpMessage
	if err := json.Unmarshal(text, &m); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, mcpErrorf(mcpParse, "the line is not JSON: %v", err)
		}
		return nil, mcpErrorf(mcpInvalid, "no JSON-RPC request: %v", err)
	}
	isID := len(m.ID) > 0 && (m.ID[0] == '"' || m.ID[0] == '-' || '0' <= m.ID[0] && m.ID[0] <= '9')
	switch {
	case m.Version != "2.0" || len(m.ID) > 0 && !isID:
		return nil, mcpErrorf(mcpInvalid, `no JSON-RPC request: want "jsonrpc": "2.0", and as "id" a string or a number`)
	case m.Method == nil && isID: // a response, though nothing was asked
		return nil, nil
	case m.Method == nil:
		return nil, mcpErrorf(mcpInvalid, `no JSON-RPC request: it has no "method"`)
	case !isID:
		s.heed(&m)
		return nil, nil
	}
	return &m, nil
}

// heed acts on a notification. Only that of a cancelled request changes anything.
func (s *mcpServer) heed(m *mcpMessage) {
	var of struct {
		ID json.RawMessage `json:"requestId"`
	}
	if *m.Method != "notifications/cancelled" || json.Unmarshal(m.Params, &of) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.pending[string(of.ID)]; cancel != nil {
		cancel()
	}
}

// await gives a request a context that its cancellation ends.
func (s *mcpServer) await(ctx context.Context, request *mcpMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[string(request.ID)] != nil {
		return mcpErrorf(mcpInvalid, "the id %s is that of a request under way", request.ID)
	}
	request.ctx, s.pending[string(request.ID)] = context.WithCancel(ctx)
	return nil
}

func (s *mcpServer) forget(request *mcpMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[string(request.ID)]()
	delete(s.pending, string(request.ID))
}

// work answers the requests of a job. One that was cancelled gets no answer.
func (s *mcpServer) work(job mcpJob) {
	answers := job.answers
	for _, request := range job.requests {
		result, err := s.answer(request)
		cancelled := request.ctx.Err() != nil
		s.forget(request)
		if !cancelled {
			answers = append(answers, response(request, result, err))
		}
	}
	if job.batch && len(answers) > 0 {
		s.write(answers)
	} else if len(answers) > 0 {
		s.write(answers[0])
	}
}

func (s *mcpServer) write(answer any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.Encode(answer); err != nil && s.failed == nil {
		s.failed = err
	}
}

// MarshalJSON writes a response; one to a message without a readable id has null.
func (r mcpResponse) MarshalJSON() ([]byte, error) {
	type plain mcpResponse
	if r.Version = "2.0"; r.ID == nil {
		r.ID = json.RawMessage("null")
	}
	return json.Marshal(plain(r))
}

// response is that to a request, or to a message that is none.
func response(request *mcpMessage, result any, err error) mcpResponse {
	r := mcpResponse{Result: result}
	if request != nil {
		r.ID = request.ID
	}
	if err != nil && !errors.As(err, &r.Error) {
		r.Error = &mcpError{mcpInvalid, err.Error()}
	}
	return r
}

// answer is the result of a request.
func (s *mcpServer) answer(request *mcpMessage) (any, error) {
	switch *request.Method {
	case "ping":
		return struct{}{}, nil
	case "initialize":
		return s.initialize(request.Params)
	case "tools/list":
		return map[string]any{"tools": s.tools}, nil
	case "tools/call":
		return s.call(request)
	}
	return nil, mcpErrorf(mcpNoMethod, "there is no method %.100q: memprof mcp has tools only", *request.Method)
}

// initialize agrees on a version: the client's if it is spoken here, else the newest.
func (s *mcpServer) initialize(params json.RawMessage) (any, error) {
	var client struct {
		Version string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(params, &client); err != nil || client.Version == "" {
		return nil, mcpErrorf(mcpBadParams, `initialize needs "protocolVersion"`)
	}
	agreed := mcpVersions[0]
	if slices.Contains(mcpVersions, client.Version) {
		agreed = client.Version
	}
	s.batches = agreed == "2025-03-26"
	return map[string]any{
		"protocolVersion": agreed,
		"capabilities":    map[string]any{"tools": struct{}{}},
		"serverInfo":      map[string]any{"name": "memprof", "version": version},
		"instructions":    s.instructions(),
	}, nil
}

// mcpContent is the result of a tool.
type mcpContent struct {
	Content []mcpText `json:"content"`
	IsError bool      `json:"isError"`
}

type mcpText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// call calls a tool. Only a request for a tool that there is not is an error of the protocol: the others are for the model to read.
func (s *mcpServer) call(request *mcpMessage) (any, error) {
	var params struct {
		Name      string                     `json:"name"`
		Arguments map[string]json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(request.Params, &params); err != nil {
		return nil, mcpErrorf(mcpBadParams, "tools/call: %v", err)
	}
	at := slices.IndexFunc(s.tools, func(t mcpTool) bool { return t.Name == params.Name })
	if at < 0 {
		return nil, mcpErrorf(mcpBadParams, "there is no tool %.100q", params.Name)
	}
	if request.ctx.Err() != nil {
		return nil, request.ctx.Err()
	}
	text, err := s.tools[at].run(request.ctx, params.Arguments)
	if err != nil {
		text = mcpCut(err.Error(), mcpAnswer)
	}
	return mcpContent{[]mcpText{{"text", text}}, err != nil}, nil
}
