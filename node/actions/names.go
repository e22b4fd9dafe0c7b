package actions

import (
	"strings"
	"unicode/utf8"
)

// SameName reports whether some server takes the name of a header, cookie or parameter for the wanted one. Case does
// not count, and any sign that is neither a letter nor a digit is as good as any other: CGI, WSGI and Rack read
// X_Api_Key as X-Api-Key, PHP and lighttpd X.Api+Key as well, and PHP the parameter a.b as a_b. Blanks and brackets
// around a parameter's name mean nothing, and what follows a bracket or a NUL is no part of it: Rack, Express and PHP
// read [token], token], token[], token[0] and [token]x as token. Names are to be decoded before. It allocates nothing
// and is safe for concurrent use.
func SameName(name, wanted string) bool {
	name = strings.TrimLeft(trim(name), "[]=?")
	if len(name) < len(wanted) {
		return false
	}
	for i := range len(wanted) {
		if a, b := fold(name[i]), fold(wanted[i]); a != b {
			return false
		}
	}
	rest := name[len(wanted):]
	if strings.HasPrefix(rest, "\x00") {
		return true
	}
	rest = trim(rest)
	return rest == "" || rest[0] == '[' || rest[0] == ']' || rest[0] == 0
}

// fold returns the small letter or digit c is, - for other ASCII, and any other byte as it is.
func fold(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c >= utf8.RuneSelf:
		return c
	}
	return '-'
}

// isBlank reports whether some server removes a sign around names and values: one of those that Python, JavaScript,
// Java, Ruby or PHP trim, and control characters up to the blank, which URL parsers trim.
func isBlank(r rune) bool {
	switch {
	case r < 0x7f:
		return r <= ' '
	case r == 0x85, r == 0xa0, r == 0x1680, r == 0x180e, 0x2000 <= r && r <= 0x200b, r == 0x2028, r == 0x2029,
		r == 0x202f, r == 0x205f, r == 0x2060, r == 0x3000, r == 0xfeff:
		return true
	}
	return false
}

// trim removes the blanks around a text in UTF-8, in which a byte that is no UTF-8 is a sign of Latin-1.
func trim(s string) string {
	for s != "" && (s[0] <= ' ' || s[0] >= 0x7f) {
		r, n := utf8.DecodeRuneInString(s)
		if !isBlank(latin1(r, n, s[0])) {
			break
		}
		s = s[n:]
	}
	for s != "" && (s[len(s)-1] <= ' ' || s[len(s)-1] >= 0x7f) {
		r, n := utf8.DecodeLastRuneInString(s)
		if !isBlank(latin1(r, n, s[len(s)-1])) {
			break
		}
		s = s[:len(s)-n]
	}
	return s
}

// latin1 returns the rune that was decoded from n bytes, or the byte as a sign of Latin-1 if that is no UTF-8.
func latin1(r rune, n int, c byte) rune {
	if r == utf8.RuneError && n == 1 {
		return rune(c)
	}
	return r
}

// trimLatin1 is trim for who reads bytes as Latin-1: the last byte of a letter may be a blank then.
func trimLatin1(s string) string {
	for s != "" && isBlank(rune(s[0])) {
		s = s[1:]
	}
	for s != "" && isBlank(rune(s[len(s)-1])) {
		s = s[:len(s)-1]
	}
	return s
}
