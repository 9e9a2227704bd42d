package report

// PlainText makes a string that may come from the profiled job, or from a file's name, safe to print
// on one line of a terminal: what steers a terminal or breaks the line becomes a Go escape.
func PlainText(s string) string { return clean(s) }

// MarkdownText is PlainText for a line or a table cell of GitHub-flavoured Markdown: nothing in it
// has a meaning there, nor in HTML.
func MarkdownText(s string) string { return escapeMarkdown(clean(s)) }
