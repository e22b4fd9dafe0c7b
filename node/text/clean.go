package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean returns s as one line that steers neither a terminal nor a reader's eye: a ? stands for each rune that is not
// printable, such as a control character, a mark that turns the direction of writing, and a byte that is no UTF-8.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// CleanUpTo is Clean of at most size bytes of s. An ellipsis marks what it cuts.
func CleanUpTo(s string, size int) string {
	if len(s) > size {
		cut := size
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return Clean(s)
}
