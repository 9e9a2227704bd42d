package plain

import "strings"

// markdownEscapes takes their meaning from the characters that have one in a Markdown table or in
// HTML inside it. "@" is in it so that no context can mention a person.
var markdownEscapes = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "|", `\|`, "[", `\[`, "]", `\]`, "#", `\#`, "~", `\~`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;",
)

func Markdown(text string) string { return markdownEscapes.Replace(Text(text)) }
