package plain

import "strings"

// markdownEscapes escapes the characters that mean something in a Markdown table or in HTML inside
// it. "@" is one of them because it would notify the person whose name follows.
var markdownEscapes = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "|", `\|`, "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;",
)

// Markdown makes text safe for a line or a table cell of GitHub-flavoured Markdown: no character in it
// means anything to Markdown or HTML, and [Text] has cleaned it.
func Markdown(text string) string { return markdownEscapes.Replace(Text(text)) }
