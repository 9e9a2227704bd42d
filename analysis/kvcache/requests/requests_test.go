package requests

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestCSV(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		timed bool
		want  []kvcache.Request
	}{
		"Azure": {
			"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109",
			true,
			[]kvcache.Request{{Prompt: 374, Output: 44, Line: 2}, {Arrival: 4_314_579_000, Prompt: 396, Output: 109, Line: 3}},
		},
		"lengths with other columns": {
			"num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,918,992,0.08\n",
			false,
			[]kvcache.Request{{Prompt: 74, Output: 918, Line: 2}},
		},
		"seconds, prompts, any order": {
			"\ufeffOutput, prompts, time, Prompt\n5,3,1.5,7\n\n6,1,1.5,8\n",
			true,
			[]kvcache.Request{{Prompt: 7, Output: 5, Prompts: 3, Line: 2}, {Prompt: 8, Output: 6, Prompts: 1, Line: 4}},
		},
		"names alone": {"prompt,output\n", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			src, err := NewCSV(strings.NewReader(c.text), "r.csv")
			assert.NoError(t, err)
			got, err := ReadAll(src)
			assert.NoError(t, err)
			assert.Diff(t, c.want, got)
			assert.That(t, src.Timed() == c.timed, "timed is %v", src.Timed())
		})
	}
}

func TestCSVErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                          "r.csv:1: the file is empty",
		"prompt\n1\n":                               "r.csv:1: no column of the lengths of outputs",
		"output,n\n1,2\n":                           "r.csv:1: no column of the lengths of prompts",
		"prompt,output,input_length":                "r.csv:1: columns 1 and 3 mean the same",
		"prompt,output\n1,2\n3\n":                   "r.csv:3: wrong number of fields",
		"prompt,output\n1,-2\n":                     "r.csv:2: output of -2 tokens",
		"prompt,output\n0,2\n":                      "r.csv:2: prompt of 0 tokens",
		"prompt,output\n,2\n":                       "r.csv:2: the length of the prompt is missing",
		"prompt,output\n1,2\n1.5,2":                 "r.csv:3: length of the prompt \"1.5\"",
		"prompt,output\n1,2000000000":               "r.csv:2: output of 2000000000 tokens: want at most",
		"prompt,output,time\n1,2,\n":                "r.csv:2: the time is missing",
		"prompt,output,time\n1,2,noon\n":            "r.csv:2: time \"noon\"",
		"prompt,output,time\n1,2,-1\n":              "r.csv:2: time -1",
		"prompt,output,time\n1,2,NaN\n":             "r.csv:2: time NaN",
		"prompt,output,time\n1,2,3\n1,2,2.5\n":      "r.csv:3: arrives 0.500000 s before",
		"prompt,output,time\n1,2,1\n1,2,5\n1,2,3\n": "r.csv:4: arrives 2.000000 s before",
		"prompt,output,prompts\n1,2,0\n":            "r.csv:2: prompts \"0\"",
		"prompt,output\n1,2\n\"a,2\n":               "r.csv:3: ",
	} {
		src, err := NewCSV(strings.NewReader(text), "r.csv")
		if err == nil {
			_, err = ReadAll(src)
		}
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), want), "%q: %v, want %q", text, err, want)
	}
}

func TestJSONL(t *testing.T) {
	const text = `{"timestamp": 27482, "input_length": 1030, "output_length": 52, "hash_ids": [46, 47, 48]}

{"timestamp": 30535.5, "prompt": 512, "output": 26, "hash_ids": [46, 47], "prompts": 2}
{"timestamp": 30535.5, "prompt": 33, "output": 1, "hash_ids": [7, 8, 9], "hash_tokens": 16}
{"timestamp": 30536, "prompt": 33, "output": 1, "other": "passed over"}`
	src := NewJSONL(strings.NewReader(text), "m.jsonl")
	got, err := ReadAll(src)
	assert.NoError(t, err)
	want := []kvcache.Request{
		{Prompt: 1030, Output: 52, Hashes: []uint64{46, 47, 48}, HashTokens: 512, Line: 1},
		{Arrival: 3_053_500_000, Prompt: 512, Output: 26, Prompts: 2, Hashes: []uint64{46}, HashTokens: 512, Line: 3},
		{Arrival: 3_053_500_000, Prompt: 33, Output: 1, Hashes: []uint64{7, 8, 9}, HashTokens: 16, Line: 4},
		{Arrival: 3_054_000_000, Prompt: 33, Output: 1, Line: 5},
	}
	assert.Diff(t, want, got)
	assert.That(t, src.Timed(), "has times, and does not say so")
}

func TestJSONLErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"prompt": 1`:                 "m.jsonl:1: unexpected end",
		`[]`:                           "m.jsonl:1: the line is an array, want an object",
		`{"prompt": "a", "output": 1}`: "m.jsonl:1: prompt is a string, want a whole number",
		`{"prompt": 1.5, "output": 1}`: "m.jsonl:1: prompt is a number 1.5, want a whole number",
		`{"prompt": 1, "output": 1, "timestamp": {}}`: "m.jsonl:1: timestamp is an object, want a number",
		`{"prompt": 1, "output": 1, "hash_ids": 4}`:   "m.jsonl:1: hash_ids is a number, want an array",
		`{"prompt": 1}`: "m.jsonl:1: neither output nor output_length",
		`{"prompt": 1, "input_length": 2, "output": 3}`:                            "m.jsonl:1: both prompt and input_length",
		"\n" + `{"prompt": 1, "output": 0}`:                                        "m.jsonl:2: output of 0 tokens",
		`{"prompt": 1, "output": 1, "hash_tokens": 0}`:                             "m.jsonl:1: hash_tokens is 0",
		`{"prompt": 1, "output": 1, "hash_ids": [-1]}`:                             "m.jsonl:1: hash_ids is a number -1, want a whole number from 0",
		`{"prompt": 1, "output": 1, "prompts": 0}`:                                 "m.jsonl:1: prompts is 0",
		`{"prompt": 1, "output": 1, "timestamp": -1}`:                              "m.jsonl:1: time -1",
		"{\"prompt\":1,\"output\":1}\n{\"prompt\":1,\"output\":1,\"timestamp\":1}": "m.jsonl:2: some requests have a timestamp",
	} {
		_, err := ReadAll(NewJSONL(strings.NewReader(text), "m.jsonl"))
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), want), "%q: %v, want %q", text, err, want)
	}
	long := NewJSONL(io.MultiReader(strings.NewReader("{}"), strings.NewReader(strings.Repeat(" ", maxLine))), "m.jsonl")
	_, err := long.Next()
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), "m.jsonl:1: line is longer"), "a line of %d bytes: %v", maxLine+2, err)
}

// TestAzure reads the first requests of a published file, with and without the carriage returns that
// it is published with.
func TestAzure(t *testing.T) {
	const path = "../../../samples/jobs/azure_conv_2023.csv"
	text, err := os.ReadFile(path)
	assert.NoError(t, err)
	for _, text := range []string{string(text), strings.ReplaceAll(string(text), "\n", "\r\n")} {
		src, err := NewCSV(strings.NewReader(text), path)
		assert.NoError(t, err)
		all, err := ReadAll(src)
		assert.NoError(t, err)
		last := all[len(all)-1]
		assert.That(t, len(all) == 300 && last.Arrival == 84_029_102_000 && last.Prompt == 212 && last.Output == 183,
			"%d requests, the last %+v; want 300, the last after 84.029102 s", len(all), last)
	}
}
