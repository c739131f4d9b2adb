package diag

import (
	"regexp"
	"strings"
)

// Redacted stands where something was taken out.
const Redacted = "(redacted)"

const secretWord = `(?:passw(?:or)?d|passphrase|secret|token|credential|private[_-]?key|access[_-]?key|api[_-]?key|net[_-]?key|authorization|cookie|user[_-]?data)`

// rules are what looks like a secret. The groups before and after what is taken out stay.
var rules = []struct {
	form *regexp.Regexp
	with string
}{
	// Private keys, whole or cut.
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`), Redacted},
	// What HTTP's Authorization has.
	{regexp.MustCompile(`(?i)\b(bearer|basic)([ \t]+)[A-Za-z0-9._~+/=-]{8,}`), "${1}${2}" + Redacted},
	// The wrapper's key, ID:TOKEN@SOCKET, wherever it stands.
	{regexp.MustCompile(`(\b[A-Za-z0-9][A-Za-z0-9_.-]{0,127}:)[A-Za-z0-9_-]{16,256}(@/)`), "${1}" + Redacted + "${2}"},
	// The value of an element's attribute, where another attribute names it.
	{regexp.MustCompile(`(?i)(name=["'][^"'<>]*` + secretWord + `[^"'<>]*["']\s+value=)(?:"[^"]*"?|'[^']*'?)`), "${1}'" + Redacted + "'"},
	// "password": "x", PASSWORD=x, password: x. What is a map or a list has names of its own. JSON in JSON has quotes with backslashes.
	{regexp.MustCompile(`(?i)([A-Za-z0-9_./-]*` + secretWord + `[A-Za-z0-9_.-]*\\*["']?[ \t]*[:=][ \t]*)(?:\\+"[^"\\]*(?:\\+")?|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|[^\s,;&"'<>{}\[\]\\]+)`), "${1}\"" + Redacted + "\""},
	// --password x
	{regexp.MustCompile(`(?i)(--?[a-z0-9-]*` + secretWord + `[a-z0-9-]*[ \t]+)([^\s-]\S*)`), "${1}" + Redacted},
	// https://user:password@host
	{regexp.MustCompile(`(://[^\s/:@"'<>]*:)[^\s/@"'<>]+(@)`), "${1}" + Redacted + "${2}"},
	// Tokens of service accounts and the like.
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), Redacted},
}

var (
	keyBegins = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	keyEnds   = regexp.MustCompile(`-----END [A-Z0-9 ]*PRIVATE KEY-----`)
)

// Redact takes out what looks like a secret: by the name that it has, or by its own form. It takes out too much rather than too little. A secret that looks
// like nothing is not found: sources must not give any.
func Redact(text string) string {
	if end := keyEnds.FindStringIndex(text); end != nil { // the text begins in the middle of a key
		if begin := keyBegins.FindStringIndex(text); begin == nil || begin[0] > end[0] {
			text = Redacted + text[end[1]:]
		}
	}
	for _, r := range rules {
		text = r.form.ReplaceAllString(text, r.with)
	}
	return strings.ReplaceAll(text, Redacted+Redacted, Redacted)
}
