package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// mcpClient is a client of memprof mcp, which is a process of its own.
type mcpClient struct {
	*testing.T
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	asked   int
}

func newMCPClient(t *testing.T, folders ...string) *mcpClient {
	t.Helper()
	c := &mcpClient{T: t, process: exec.Command("memprof", append([]string{"mcp"}, folders...)...)}
	in, err := c.process.StdinPipe()
	assert.NoError(t, err)
	out, err := c.process.StdoutPipe()
	assert.NoError(t, err)
	assert.NoError(t, c.process.Start())
	c.in, c.out = in, bufio.NewReaderSize(out, 1<<20)
	t.Cleanup(func() { c.process.Process.Kill() })
	return c
}

// send sends lines as they are.
func (c *mcpClient) send(lines ...string) {
	c.Helper()
	_, err := io.WriteString(c.in, strings.Join(lines, "\n")+"\n")
	assert.NoError(c, err)
}

// next is the next line of the server.
func (c *mcpClient) next() string {
	c.Helper()
	line, err := c.out.ReadString('\n')
	assert.NoError(c, err)
	return strings.TrimSuffix(line, "\n")
}

// end closes the connection and returns the exit code, and what the server had not said yet.
func (c *mcpClient) end() (code int, rest string) {
	c.Helper()
	assert.NoError(c, c.in.Close())
	left, err := io.ReadAll(c.out)
	assert.NoError(c, err)
	return exitOf(c.process.Wait()), string(left)
}

// call calls a tool and returns its text.
func (c *mcpClient) call(tool string, arguments any) (text string, failed bool) {
	c.Helper()
	c.asked++
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.asked, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	assert.NoError(c, err)
	c.send(string(request))
	var response struct {
		ID     int
		Result *mcpContent
		Error  *mcpError
	}
	assert.NoError(c, json.Unmarshal([]byte(c.next()), &response))
	assert.Must(c, response.ID == c.asked && response.Error == nil && len(response.Result.Content) == 1, "%s %v: %+v", tool, arguments, response)
	text = response.Result.Content[0].Text
	assert.That(c, len(text) <= mcpAnswer, "%s %v: an answer of %d bytes", tool, arguments, len(text))
	return text, response.Result.IsError
}

// valueAt follows a path in a document: names of fields, numbers of items, or name=value of the item that has it.
func valueAt(t *testing.T, document string, path []string) any {
	t.Helper()
	var value any
	assert.NoError(t, json.Unmarshal([]byte(document), &value))
	for i, step := range path {
		switch of := value.(type) {
		case map[string]any:
			value = of[step]
		case []any:
			value = nil
			name, wanted, named := strings.Cut(step, "=")
			n, err := strconv.Atoi(step)
			for at, item := range of {
				object, _ := item.(map[string]any)
				if named && fmt.Sprint(object[name]) == wanted || !named && err == nil && at == n {
					value = item
				}
			}
		}
		assert.Must(t, value != nil, "nothing is at %v of %.300s", path[:i+1], document)
	}
	return value
}

// TestMCPQuestions asks twenty questions about samples: each answer is the known one, and what the command line prints with --json.
func TestMCPQuestions(t *testing.T) {
	notShort(t)
	var questions []struct {
		Question, Tool string
		Arguments      map[string]any
		Command, Path  []string
		Answer         any
	}
	assert.NoError(t, json.Unmarshal([]byte(read(t, "cmd/memprof/testdata/mcp/questions.json")), &questions))
	t.Chdir("../..")
	c := newMCPClient(t, "samples", "analysis/oomtext/testdata")
	right, tools := 0, map[string]bool{}
	documents := map[string]string{} // by command: some questions are about one document
	for _, q := range questions {
		text, failed := c.call(q.Tool, q.Arguments)
		assert.Must(t, !failed, "%s %s", q.Question, text)
		command := strings.Join(q.Command, " ")
		if documents[command] == "" {
			var stdout, stderr bytes.Buffer
			code := run(&stdout, &stderr, q.Command)
			assert.Must(t, code == exit.Fine || code == exit.Violated, "%v: %s", q.Command, &stderr)
			documents[command] = stdout.String()
		}
		answer, printed := valueAt(t, text, q.Path), valueAt(t, documents[command], q.Path)
		if reflect.DeepEqual(answer, q.Answer) && reflect.DeepEqual(printed, q.Answer) {
			right++
			tools[q.Tool] = true
			continue
		}
		t.Errorf("%s %v, and %v is printed, want %v", q.Question, answer, printed, q.Answer)
	}
	assert.That(t, right == 20 && len(tools) == 8, "%d answers of %d tools are right, want 20 of 8", right, len(tools))
	code, rest := c.end()
	assert.That(t, code == exit.Fine && rest == "", "exit code %d, %q", code, rest)
}

// TestMCPProtocol sends lines, and wants these answers and no others.
func TestMCPProtocol(t *testing.T) {
	t.Parallel()
	const first = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	tests := []struct{ name, line, want string }{ // want "" is no answer
		{"ping", `{"jsonrpc":"2.0","id":"a","method":"ping"}`, `"id":"a","result":{}}`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""},
		{"unknown notification", `{"jsonrpc":"2.0","method":"notifications/other"}`, ""},
		{"response", `{"jsonrpc":"2.0","id":7,"result":{}}`, ""},
		{"empty line", "  ", ""},
		{"no JSON", `{"jsonrpc":`, `"id":null,"error":{"code":-32700,`},
		{"no JSON in a batch", `[{]`, `"id":null,"error":{"code":-32700,`},
		{"no object", `3`, `"id":null,"error":{"code":-32600,`},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `"error":{"code":-32600,`},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, `"error":{"code":-32600,`},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `"error":{"code":-32600,`},
		{"no method", `{"jsonrpc":"2.0"}`, `"error":{"code":-32600,`},
		{"method of another type", `{"jsonrpc":"2.0","id":1,"method":5}`, `"error":{"code":-32600,`},
		{"unknown method", `{"jsonrpc":"2.0","id":2,"method":"resources/list"}`, `"id":2,"error":{"code":-32601,`},
		{"unknown tool", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"rm"}}`, `"id":3,"error":{"code":-32602,"message":"there is no tool \"rm\""}`},
		{"params of another type", `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":[1]}`, `"id":4,"error":{"code":-32602,`},
		{"no params", `{"jsonrpc":"2.0","id":4,"method":"tools/call"}`, `"id":4,"error":{"code":-32602,`},
		{"arguments of another type", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"peak","arguments":{"recording":5}}}`,
			`"id":5,"result":{"content":[{"type":"text","text":"recording: want a text: path of a recording"}],"isError":true}`},
		{"argument missing", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"live","arguments":{"recording":"run"}}}`,
			`"text":"live needs event: number of the event, from 0"}],"isError":true}`},
		{"argument unknown", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"peak","arguments":{"output":"/tmp/x"}}}`,
			`"text":"peak has no argument \"output\""}],"isError":true}`},
		{"event below 0", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"live","arguments":{"recording":"run","event":-1}}}`,
			`"text":"event: want a whole number from 0: number of the event, from 0"}],"isError":true}`},
		{"event too large", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"live","arguments":{"recording":"run","event":9007199254740993}}}`, `"isError":true}`},
		{"initialize without a version", `{"jsonrpc":"2.0","id":6,"method":"initialize"}`, `"error":{"code":-32602,`},
		{"batch", `[{"jsonrpc":"2.0","id":8,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":9,"method":"y"}]`,
			`[{"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"there is no method \"y\": memprof mcp has tools only"}}`},
		{"batch of notifications", `[{"jsonrpc":"2.0","method":"x"}]`, ""},
		{"empty batch", `[]`, `"id":null,"error":{"code":-32600,`},
		{"initialize in a batch", `[{"jsonrpc":"2.0","id":8,"method":"initialize"}]`, `"error":{"code":-32600,"message":"initialize cannot be in a batch"}`},
		{"deep", strings.Repeat(`[`, 100_000), `"id":null,"error":{"code":-32700,`},
		{"long line", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 3<<20) + `"}`, `"error":{"code":-32600,"message":"the message has 3145765 bytes: at most 1048576 are read"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newMCPClient(t, t.TempDir())
			c.send(first)
			got := c.next()
			assert.Must(t, strings.Contains(got, `"protocolVersion":"2025-03-26"`), "%s", got)
			c.send(test.line)
			code, rest := c.end()
			assert.That(t, code == exit.Fine, "exit code %d", code)
			if test.name == "batch" { // in any order: an error of the batch itself comes first
				test.want = strings.TrimPrefix(test.want, "[")
				assert.That(t, strings.HasPrefix(rest, "[") && strings.Contains(rest, `"id":8,"result":{}}`), "%s", rest)
			}
			lines := strings.Count(rest, "\n")
			assert.That(t, test.want == "" && lines == 0 || test.want != "" && lines == 1 && strings.Contains(rest, test.want), "answered %.400s, want %s", rest, test.want)
		})
	}
}

// TestMCPVersions: a version that is spoken is agreed on, else the newest; only 2025-03-26 has batches.
func TestMCPVersions(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2099-01-01": "2025-06-18"} {
		c := newMCPClient(t, t.TempDir())
		c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+asked+`"}}`, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`)
		got, batch := c.next(), c.next()
		assert.That(t, strings.Contains(got, `"protocolVersion":"`+want+`"`), "%s: %s", asked, got)
		assert.That(t, strings.Contains(batch, `"id":1,"result"`) == (want == "2025-03-26"), "%s: %s", asked, batch)
	}
}

// TestMCPTools: each tool is listed with a schema of its arguments, and says that it only reads.
func TestMCPTools(t *testing.T) {
	c := newMCPClient(t, t.TempDir())
	c.send(`{"jsonrpc":"2.0","id":0,"method":"tools/list"}`)
	var list struct{ Result struct{ Tools []mcpTool } }
	line := c.next()
	assert.NoError(t, json.Unmarshal([]byte(line), &list))
	var names []string
	for _, tool := range list.Result.Tools {
		names = append(names, tool.Name)
		assert.That(t, tool.Annotations["readOnlyHint"] && tool.InputSchema.Type == "object" && len(tool.InputSchema.Properties) > 0, "%+v", tool)
		for _, name := range tool.InputSchema.Required {
			assert.That(t, tool.InputSchema.Properties[name].Description != "", "%s: nothing says what %s is", tool.Name, name)
		}
	}
	assert.That(t, strings.Join(names, " ") == "findings peak live leaks lines diff fit explain", "%v", names)
	assert.That(t, len(line) < 6000, "the list has %d bytes, which every conversation pays", len(line))
}

// TestMCPFolders: nothing outside the folders is read, whatever its name or the links that lead there.
func TestMCPFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "inside"), filepath.Join(dir, "outside")
	sample, err := filepath.Abs("../../samples/alexnet")
	assert.NoError(t, err)
	for _, to := range []string{filepath.Join(inside, "run"), outside, filepath.Join(inside, "linked")} {
		assert.NoError(t, os.CopyFS(to, os.DirFS(sample)))
	}
	const part = "pid9011-0000.parquet"
	log := read(t, "analysis/oomtext/testdata/texts/torch25-capacity.txt")
	writeFile(t, filepath.Join(outside, "train.log"), log)
	writeFile(t, filepath.Join(inside, "train.log"), log)
	for link, to := range map[string]string{"away": outside, "log": filepath.Join(outside, "train.log"), "same": "run", "up": "../outside", "linked/" + part: filepath.Join(outside, part)} {
		os.Remove(filepath.Join(inside, link))
		assert.NoError(t, os.Symlink(to, filepath.Join(inside, link)))
	}
	assert.NoError(t, syscall.Mkfifo(filepath.Join(inside, "pipe"), 0o600))
	c := newMCPClient(t, inside)
	for _, name := range []string{"run", filepath.Join(inside, "run"), "same", "../inside/run", "./run/../run"} {
		text, failed := c.call("peak", map[string]any{"recording": name})
		assert.That(t, failed == (name == "../inside/run") && (failed || strings.Contains(text, `"requested":1069789047`)), "%s: %.300s", name, text)
	}
	refused := []string{outside, "../outside", "run/../../outside", "away", "up", "away/" + part, "linked", "linked/" + part, "/etc", "/", ".", "", "..", "run\x00",
		"pipe", "nothing", strings.Repeat("a/", 5000), "/proc/self/cwd"}
	for _, name := range refused {
		for _, call := range []struct {
			tool string
			args map[string]any
		}{
			{"peak", map[string]any{"recording": name}}, {"live", map[string]any{"recording": name, "event": 10}}, {"fit", map[string]any{"recording": name}},
			{"diff", map[string]any{"base": "run", "new": name}}, {"diff", map[string]any{"base": name, "new": "run"}},
		} {
			if call.tool == "diff" && name == "." {
				continue // the folder itself has runs
			}
			text, failed := c.call(call.tool, call.args)
			assert.That(t, failed && !strings.Contains(text, "1069789047"), "%s %.100q: %.300s", call.tool, name, text)
		}
	}
	for name, want := range map[string]bool{"train.log": false, "log": true, "../outside/train.log": true, filepath.Join(outside, "train.log"): true, "away/train.log": true, "pipe": true, "run": true} {
		text, failed := c.call("explain", map[string]any{"file": name})
		assert.That(t, failed == want && (failed || strings.Contains(text, `"verdict":"capacity"`)), "explain %s: %.300s", name, text)
	}
	text, failed := c.call("explain", map[string]any{"text": log})
	assert.That(t, !failed && strings.Contains(text, `"verdict":"capacity"`), "%s", text)
	code, rest := c.end()
	assert.That(t, code == exit.Fine && rest == "", "exit code %d, %q", code, rest)
}

// TestMCPAnswersAll: tools answer about every sample, in as many bytes as they may. Without MEMPROF_TEST_ALL, which make campaign sets,
// it takes the smaller ones.
func TestMCPAnswersAll(t *testing.T) {
	notShort(t)
	t.Parallel()
	folders, err := filepath.Glob("../../samples/*/run.json")
	assert.NoError(t, err)
	more, err := filepath.Glob("../../samples/*/*/run.json")
	assert.NoError(t, err)
	root, err := filepath.Abs("../../samples")
	assert.NoError(t, err)
	c := newMCPClient(t, root)
	for _, name := range append(folders, more...) {
		if os.Getenv("MEMPROF_TEST_ALL") == "" && bytesBelow(t, filepath.Dir(name)) > 200<<10 {
			continue
		}
		recording, err := filepath.Abs(filepath.Dir(name))
		assert.NoError(t, err)
		text, failed := c.call("peak", map[string]any{"recording": recording})
		assert.That(t, !failed && strings.HasPrefix(text, "{"), "%s: %.300s", recording, text)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Process.Pid))
	assert.NoError(t, err)
	most := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	assert.Must(t, most != nil, "%s", status)
	kib, err := strconv.Atoi(string(most[1]))
	assert.NoError(t, err)
	assert.That(t, kib < 300<<10, "memprof mcp took %d KiB", kib)
}

// TestMCPCancelled: of many calls at once those that were cancelled are not answered, those that find no room are refused, and each
// other is answered once.
func TestMCPCancelled(t *testing.T) {
	notShort(t)
	t.Parallel()
	sample, err := filepath.Abs("../../samples")
	assert.NoError(t, err)
	c := newMCPClient(t, sample)
	const calls = 500
	go func() {
		for id := range calls {
			fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"peak","arguments":{"recording":"alexnet"}}}`+"\n", id)
			if id%3 == 0 {
				fmt.Fprintf(c.in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", id)
			}
			if id == 1 {
				fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", calls)
			}
		}
		c.in.Close()
	}()
	left, err := io.ReadAll(c.out)
	assert.NoError(t, err)
	results, busy, seen := 0, 0, map[int]bool{}
	for line := range strings.Lines(string(left)) {
		var response struct {
			ID     int
			Result *mcpContent
			Error  *mcpError
		}
		assert.NoError(t, json.Unmarshal([]byte(line), &response))
		assert.That(t, !seen[response.ID], "%d is answered twice", response.ID)
		seen[response.ID] = true
		switch {
		case response.ID == calls:
		case response.Error == nil:
			results++
			assert.That(t, response.ID%3 != 0, "%d was cancelled and is answered", response.ID)
		default:
			busy++
			assert.That(t, response.Error.Code == mcpBusy, "%+v", response.Error)
		}
	}
	assert.That(t, seen[calls], "ping is not answered")
	assert.That(t, results >= 2 && results <= calls*2/3 && results+busy >= calls*2/3, "%d results, %d refused", results, busy)
	assert.That(t, exitOf(c.process.Wait()) == exit.Fine, "%v", c.process.ProcessState)
}

// TestMCPLatest: what is asked about the same recording is of one analysis, until a file of it changes. An error is not kept.
func TestMCPLatest(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "events")
	mustWrite(t, file, "a")
	made, fails := 0, false
	l := &mcpLatest{
		find: func(args mcpArguments) (string, error) { return args["recording"], nil },
		make: func(_ context.Context, stdout, stderr io.Writer, _ string, _ mcpArguments) error {
			made++
			if fails {
				return io.ErrUnexpectedEOF
			}
			fmt.Fprintf(stdout, "document %d", made)
			fmt.Fprintf(stderr, "said %d", made)
			return nil
		},
	}
	print := func(args mcpArguments) string {
		var stdout, stderr bytes.Buffer
		if err := l.print(context.Background(), &stdout, &stderr, args); err != nil {
			return err.Error()
		}
		return stdout.String() + ", " + stderr.String()
	}
	run := mcpArguments{"recording": dir}
	assert.Equal(t, print(run), "document 1, said 1")
	assert.Equal(t, print(run), "document 1, said 1")
	assert.Equal(t, print(mcpArguments{"recording": dir, "process": "rank1"}), "document 2, said 2")
	assert.Equal(t, print(mcpArguments{"recording": dir, "event": "7"}), "document 3, said 3")
	assert.Equal(t, print(run), "document 4, said 4")
	mustWrite(t, file, "ab")
	assert.Equal(t, print(run), "document 5, said 5")
	fails = true
	assert.Equal(t, print(run), "document 5, said 5")
	mustWrite(t, file, "abc")
	assert.Equal(t, print(run), io.ErrUnexpectedEOF.Error())
	fails = false
	assert.Equal(t, print(run), "document 7, said 7")
	assert.That(t, strings.Contains(print(mcpArguments{"recording": filepath.Join(dir, "none")}), "no such file"), "a recording that is gone")
}

// TestMCPShortens: an answer keeps as many items of lists as it has room for, counts the others, and cuts texts.
func TestMCPShortens(t *testing.T) {
	var document bytes.Buffer
	document.WriteString(`{"moments":[`)
	for p := range 50 {
		fmt.Fprintf(&document, `%s{"process":"rank%d","seq":12345678901234567,"phase":%q,"devices":[{"device":0,"at":{"requested":1,"iteration":null},"largest_free":null,"arenas":[1]}]}`,
			strings.Repeat(",", min(p, 1)), p, strings.Repeat("ü", 5000))
	}
	document.WriteString(`]}`)
	text, err := mcpCompact(document.Bytes(), keptLive, "careful")
	assert.NoError(t, err)
	assert.That(t, len(text) <= mcpAnswer && strings.Contains(text, `"seq":12345678901234567`) && strings.Contains(text, `"warnings":"careful"`), "%s", text)
	shown := strings.Count(text, `"process":`)
	assert.That(t, shown == 8 && strings.Contains(text, `"left_out":{"moments":42}`) && strings.Contains(text, `…`), "%d shown: %s", shown, text)
	assert.That(t, !strings.Contains(text, "null") && !strings.Contains(text, "arenas"), "%s", text)
	_, err = mcpCompact([]byte(`"text"`), keptLive, "")
	assert.That(t, err != nil, "a document that is no object is answered")
}
