package report

import (
	"bytes"
	"io"
	"strings"

	"github.com/memprof/memprof/analysis"
)

// Markdown writes the report as GitHub-flavoured Markdown, for a pull request or a CI summary: the
// sections and numbers of Text, tables as Markdown tables. It fails only where w does.
func Markdown(w io.Writer, results []*analysis.Result) error {
	var out bytes.Buffer
	if s, several := ranksSection(results); several {
		markdownSection(&out, s, "## ")
	}
	for _, r := range results {
		markdownProcess(&out, r)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func markdownProcess(out *bytes.Buffer, r *analysis.Result) {
	if len(r.Devices) == 0 {
		out.WriteString("## " + escapeMarkdown(shorten(r.Process, 60)) + "\n\n" + processLine(r) + "\n\nno memory of any device was used\n\n")
		return
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		out.WriteString("## " + escapeMarkdown(deviceTitle(r, d)) + "\n\n" + deviceLine(r, d) + "\n\n")
		if note := endNote(r); note != "" {
			out.WriteString("**" + note + "**\n\n")
		}
		for _, s := range deviceSections(d) {
			markdownSection(out, s, "### ")
		}
	}
}

func markdownSection(out *bytes.Buffer, s section, level string) {
	out.WriteString(level + escapeMarkdown(s.title) + "\n\n")
	for _, c := range s.before {
		out.WriteString(markdownCell(c) + "\n\n")
	}
	if len(s.columns) > 0 {
		markdownTable(out, s)
	}
	for _, c := range s.after {
		out.WriteString(markdownCell(c) + "\n\n")
	}
}

func markdownTable(out *bytes.Buffer, s section) {
	for _, c := range s.columns {
		out.WriteString("| " + escapeMarkdown(c.name) + " ")
	}
	out.WriteString("|\n")
	for _, c := range s.columns {
		if c.number {
			out.WriteString("| ---: ")
		} else {
			out.WriteString("| :--- ")
		}
	}
	out.WriteString("|\n")
	rows := s.rows
	if s.total != nil {
		rows = append(rows[:len(rows):len(rows)], s.total)
	}
	for _, r := range rows {
		for _, c := range r {
			out.WriteString("| " + markdownCell(c) + " ")
		}
		out.WriteString("|\n")
	}
	out.WriteByte('\n')
}

// markdownCell keeps the emphasis that tells something without colour.
func markdownCell(c cell) string {
	text := escapeMarkdown(c.text)
	if text != "" && (c.tone == strong || c.tone == failed) {
		return "**" + text + "**"
	}
	return text
}

// markdownEscapes takes their meaning from the characters that have one in a Markdown table or in
// HTML inside it. "@" is in it so that no context can mention a person.
var markdownEscapes = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "|", `\|`, "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;",
)

func escapeMarkdown(text string) string { return markdownEscapes.Replace(clean(text)) }
