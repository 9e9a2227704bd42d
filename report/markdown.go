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
	return writeMarkdown(w, reportSections(results)...)
}

// writeMarkdown writes sections as GitHub-flavoured Markdown, those below a heading one level deeper
// than it. It fails only where w does.
func writeMarkdown(w io.Writer, sections ...section) error {
	var out bytes.Buffer
	level := "## "
	for _, s := range sections {
		if s.heading {
			markdownSection(&out, s, "## ")
			level = "### "
			continue
		}
		markdownSection(&out, s, level)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func markdownSection(out *bytes.Buffer, s section, level string) {
	if s.title != "" {
		out.WriteString(level + escapeMarkdown(s.title) + "\n\n")
	}
	for _, c := range s.before {
		out.WriteString(markdownCell(c) + "\n\n")
	}
	if len(s.columns) > 0 {
		markdownTable(out, s)
	}
	for _, c := range s.after {
		if s.heading {
			c.tone = strong // what warns of all that follows
		}
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
