package actions

import (
	"strings"
	"unicode/utf8"
)

// decode resolves %XX and %uXXXX (ASP.NET) once. It keeps malformed escapes and sets bad: some servers drop such a
// value, others keep it.
func decode(s string) (decoded string, bad bool) {
	first := strings.IndexByte(s, '%')
	if first < 0 {
		return s, false
	}
	b := append(make([]byte, 0, len(s)), s[:first]...)
	for i := first; i < len(s); {
		switch {
		case s[i] != '%':
			b = append(b, s[i])
			i++
		case i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]):
			b = append(b, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 3
		case i+5 < len(s) && s[i+1]|0x20 == 'u' && isHex(s[i+2]) && isHex(s[i+3]) && isHex(s[i+4]) && isHex(s[i+5]):
			r := rune(unhex(s[i+2]))<<12 | rune(unhex(s[i+3]))<<8 | rune(unhex(s[i+4]))<<4 | rune(unhex(s[i+5]))
			b = utf8.AppendRune(b, r)
			i += 6
		default:
			bad = true
			b = append(b, '%')
			i++
		}
	}
	return string(b), bad
}

// decodeForm is decode with + for a blank, as in forms.
func decodeForm(s string) (decoded string, bad bool) {
	if strings.IndexByte(s, '+') >= 0 {
		s = strings.ReplaceAll(s, "+", " ")
	}
	return decode(s)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// trim removes the blanks that protocols allow around values.
func trim(s string) string { return strings.Trim(s, " \t") }

// named reports whether some server takes a parameter or cookie of this name, still encoded, for the wanted one. Case
// counts for most and not for ASP.NET. PHP ignores blanks before a name, reads a dot or a blank in it as _, and ends it
// at a NUL. PHP, Rails and Express read name[] and name[0] as elements of name.
func named(name, wanted string) bool {
	name, _ = decodeForm(name)
	name = strings.TrimLeft(name, " \t")
	if len(name) < len(wanted) {
		return false
	}
	for i := range len(wanted) {
		c, w := name[i], wanted[i]
		if c != w && lower(c) != lower(w) && !(w == '_' && (c == '.' || c == ' ' || c == '[')) {
			return false
		}
	}
	rest := strings.TrimRight(name[len(wanted):], " \t")
	return rest == "" || rest[0] == '[' || rest[0] == 0
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c | 0x20
	}
	return c
}
