package ci

import (
	"bytes"
	"fmt"

	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/analysis/plain"
)

// mostMarkdown is the most bytes of a summary. GitHub drops one above 1 MiB silently; this leaves room for the
// line that counts what is left out.
const mostMarkdown = 1<<20 - 4096

// Markdown is a summary for a pull request, below GitHub's limit.
func Markdown(results *gate.Results) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "## memprof check: %s\n\n", plain.Markdown(Headline(results)))
	out.WriteString("| Verdict | Gate | Found | Margin | Spread | Where |\n| :--- | :--- | ---: | ---: | ---: | :--- |\n")
	order := worstFirst(results.Verdicts)
	for i, v := range order {
		line := markdownRow(v)
		if out.Len()+len(line) > mostMarkdown {
			fmt.Fprintf(&out, "\n%s left out, none worse than the last above\n", plain.Counted(int64(len(order)-i), "verdict"))
			break
		}
		out.WriteString(line)
	}
	for i := range results.Skips {
		line := fmt.Sprintf("| skipped | %s | | | | %s |\n", plain.Markdown(results.Skips[i].Gate.Text), plain.Markdown(results.Skips[i].Path+": "+results.Skips[i].Why))
		if out.Len()+len(line) <= mostMarkdown {
			out.WriteString(line)
		}
	}
	out.WriteByte('\n')
	return out.Bytes()
}

func markdownRow(v *gate.Verdict) string {
	word := word(v)
	if !v.Holds {
		word = "**" + word + "**"
	}
	if !v.Trustworthy() {
		word += ", not trustworthy"
	}
	cells := cells(v, "")
	name := title(v)
	if v.Gate.Relative != nil {
		name += " = " + format(v.Gate, v.Gate.Limit)
	}
	spread := ""
	if v.Runs > 1 {
		spread = cells[4]
	}
	where := cells[5]
	if note := grown(v); note != "" {
		where += "; " + note
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", word, plain.Markdown(name), plain.Markdown(cells[2]), cells[3], spread, plain.Markdown(where))
}
