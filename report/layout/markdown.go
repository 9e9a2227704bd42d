package layout

import (
	"bytes"
	"io"

	"github.com/memprof/memprof/analysis/plain"
)

// WriteMarkdown writes sections as GitHub-flavoured Markdown, those below a heading one level deeper
// than it. It fails only if w does.
func WriteMarkdown(w io.Writer, sections ...Section) error {
	var out bytes.Buffer
	level := "## "
	for _, s := range sections {
		if s.Heading {
			markdownSection(&out, s, "## ")
			level = "### "
			continue
		}
		markdownSection(&out, s, level)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func markdownSection(out *bytes.Buffer, s Section, level string) {
	if s.Title != "" {
		out.WriteString(level + plain.Markdown(s.Title) + "\n\n")
	}
	for _, c := range s.Before {
		out.WriteString(markdownCell(c) + "\n\n")
	}
	if len(s.Columns) > 0 {
		markdownTable(out, s)
	}
	for _, c := range s.After {
		if s.Heading {
			c.Tone = Strong // what warns of all that follows
		}
		out.WriteString(markdownCell(c) + "\n\n")
	}
}

func markdownTable(out *bytes.Buffer, s Section) {
	for _, c := range s.Columns {
		out.WriteString("| " + plain.Markdown(c.Name) + " ")
	}
	out.WriteString("|\n")
	for _, c := range s.Columns {
		if c.Number {
			out.WriteString("| ---: ")
		} else {
			out.WriteString("| :--- ")
		}
	}
	out.WriteString("|\n")
	rows := s.Rows
	if s.Total != nil {
		rows = append(rows[:len(rows):len(rows)], s.Total)
	}
	for _, r := range rows {
		for _, c := range r {
			out.WriteString("| " + markdownCell(c) + " ")
		}
		out.WriteString("|\n")
	}
	out.WriteByte('\n')
}

// markdownCell shows strong and failed cells in bold.
func markdownCell(c Cell) string {
	text := plain.Markdown(c.Text)
	if text != "" && (c.Tone == Strong || c.Tone == Failed) {
		return "**" + text + "**"
	}
	return text
}
