package actions

import (
	"strings"
	"unicode/utf8"
)

// readQuery adds the values of a query's parameters of a name. All servers separate parameters by &, some by ; as well
// (older Rack and Python, Perl), and some end the query at # (nginx, Node): each reading counts. One malformed
// parameter means nothing for the others.
func readQuery(query, name string, out *values) {
	if out.tooLong(query) {
		return
	}
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if len(pair) < len(name) {
			continue
		}
		readParameter(pair, name, out)
		if !strings.ContainsAny(pair, ";#") {
			continue
		}
		for piece := range strings.FieldsFuncSeq(pair, func(r rune) bool { return r == ';' || r == '#' }) {
			readParameter(piece, name, out)
		}
	}
}

// readParameter adds the value of a parameter if it has the name.
func readParameter(pair, wanted string, out *values) {
	name, value, _ := strings.Cut(pair, "=")
	if len(name) < len(wanted) || !named(name, wanted) {
		return
	}
	value, bad := decodeForm(value)
	out.sent(value)
	out.ambiguous = out.ambiguous || bad
}

// readCookie adds the values of the cookies of a name. It accepts what any common server accepts: net/http gives up
// on a header with too many cookies and drops malformed ones.
func (v *view) readCookie(name string, out *values) {
	if out.tooLong(v.header["Cookie"]...) {
		return
	}
	for _, line := range v.header["Cookie"] {
		for part := range strings.SplitSeq(line, ";") {
			if len(part) <= len(name) {
				continue
			}
			readCookiePair(part, name, out)
			if strings.IndexByte(part, ',') < 0 {
				continue
			}
			for piece := range strings.SplitSeq(part, ",") { // RFC 2109, older Java and Rack
				readCookiePair(piece, name, out)
			}
		}
	}
}

// readCookiePair adds the value of a cookie if it has the name.
func readCookiePair(pair, wanted string, out *values) {
	pair = strings.TrimLeft(pair, " \t=")
	name, value, ok := strings.Cut(pair, "=")
	if !ok || !named(name, wanted) {
		return
	}
	value, quoted := strings.CutPrefix(trim(value), `"`)
	closed, ok := strings.CutSuffix(value, `"`)
	switch {
	case !quoted:
		out.sentCookie(value)
	case ok:
		out.sentCookie(unescape(closed))
	default: // some servers drop the open quote alone, Node's cookie package the last character as well
		out.sentCookie(unescape(value))
		out.sentCookie(unescape(value[:max(len(value)-1, 0)]))
	}
}

// sentCookie adds a cookie's value in a canonical form: decoded (PHP, Node, ASP.NET), with a blank written as + (PHP
// reads either as a blank).
func (s *values) sentCookie(value string) {
	value, bad := decode(value)
	if strings.IndexByte(value, ' ') >= 0 {
		value = strings.ReplaceAll(value, " ", "+")
	}
	s.sent(value)
	s.ambiguous = s.ambiguous || bad
}

// unescape resolves \ooo, an octal number, and \c, as Python does in quoted cookies.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\' || i+1 == len(s):
			b = append(b, s[i])
		case i+3 < len(s) && s[i+1] <= '3' && isOctal(s[i+1]) && isOctal(s[i+2]) && isOctal(s[i+3]):
			b = append(b, (s[i+1]-'0')<<6|(s[i+2]-'0')<<3|(s[i+3]-'0'))
			i += 3
		default:
			i++
			b = append(b, s[i])
		}
	}
	return string(b)
}

func isOctal(c byte) bool { return '0' <= c && c <= '7' }

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
