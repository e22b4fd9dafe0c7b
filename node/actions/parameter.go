package actions

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// readHeader adds the values of the headers that servers take for the one of this canonical name. Go, Java and nginx
// hand the first of several lines on, PHP the last, Node and Python all in one.
func (v *view) readHeader(name string, out *values) {
	for _, line := range v.header[name] {
		out.sentTrimmed(line)
	}
	for other, lines := range v.header {
		if len(other) == len(name) && other != name && SameName(other, name) {
			for _, line := range lines {
				out.sentTrimmed(line)
			}
		}
	}
}

// sentTrimmed is sent for a value without the blanks around it, and without those that only Latin-1 has.
func (s *values) sentTrimmed(value string) {
	value = trim(value)
	s.sent(value)
	s.sent(trimLatin1(value))
}

// readQuery adds the values of the query's parameters of a name. The query begins at ? for all, at ; for Fastify, and
// servers behind those that decode see these signs decoded.
func (t *target) readQuery(name string, out *values) {
	scanQuery(t.query, name, out)
	for _, path := range [...]string{t.raw, t.path} {
		if i := indexAny(path, "?;"); i < len(path) {
			scanQuery(path[i+1:], name, out)
			out.ambiguous = out.ambiguous || out.n > 0
		}
	}
}

// scanQuery adds the values of a query's parameters of a name. All servers separate parameters by &, some by ; as well
// (older Rack and Python, Perl), and some end the query at # (nginx, Node): each reading counts. One malformed
// parameter means nothing for the others.
func scanQuery(query, name string, out *values) {
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
		if !strings.ContainsAny(pair, ";#?") {
			continue
		}
		for piece := range strings.FieldsFuncSeq(pair, func(r rune) bool { return r == ';' || r == '#' || r == '?' }) {
			readParameter(piece, name, out)
		}
	}
}

// readParameter adds the value of a parameter if it has the name. Express ends the name at the first ]= if there is
// one: token[=]=t1 is t1.
func readParameter(pair, wanted string, out *values) {
	first := indexAny(pair, "=")
	out.sentParameter(pair, first, wanted)
	for i := first + 1; i < len(pair); i++ {
		if pair[i] == '=' && (pair[i-1] == ']' || i > 2 && strings.EqualFold(pair[i-3:i], "%5d")) {
			out.sentParameter(pair, i, wanted)
			return
		}
	}
}

// sentParameter adds the value of a parameter whose name ends at a place, if that is the wanted one.
func (s *values) sentParameter(pair string, end int, wanted string) {
	if end < len(wanted) || !named(pair[:end], wanted) {
		return
	}
	value, bad := decodeForm(pair[min(end+1, len(pair)):])
	s.sentTrimmed(value)
	s.ambiguous = s.ambiguous || bad
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
	pair = strings.TrimLeft(trim(pair), "=")
	name, value, ok := strings.Cut(pair, "=")
	if !ok || !named(name, wanted) {
		return
	}
	value = trim(value)
	out.sentQuoted(value)
	if latin1 := trimLatin1(value); latin1 != value {
		out.sentQuoted(latin1)
	}
}

// sentQuoted adds the value of a cookie, with or without quotes.
func (s *values) sentQuoted(value string) {
	inner, quoted := strings.CutPrefix(value, `"`)
	closed, ok := strings.CutSuffix(inner, `"`)
	switch {
	case !quoted:
		s.sentCookie(value)
	case ok:
		s.sentCookie(unescape(closed))
	default: // some servers drop the open quote alone, Node's cookie package the last character as well
		s.sentCookie(unescape(inner))
		s.sentCookie(unescape(inner[:max(len(inner)-1, 0)]))
	}
}

// sentCookie adds a cookie's value in a canonical form: decoded (PHP, Node, ASP.NET), with a blank written as + (PHP
// reads either as a blank). Express reads what follows j: as JSON.
func (s *values) sentCookie(value string) {
	value, bad := decode(value)
	if text, ok := strings.CutPrefix(value, "j:"); ok && json.Valid([]byte(text)) {
		s.ambiguous = true
		if number, err := strconv.ParseFloat(trim(text), 64); err == nil { // 7.0 is 7
			s.add(strconv.FormatFloat(number, 'f', -1, 64))
		} else {
			s.addScalars(json.RawMessage(trim(text)))
		}
	}
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

// named reports whether some server takes a parameter or cookie of this name, still encoded, for the wanted one.
func named(name, wanted string) bool {
	name, _ = decodeForm(name)
	return SameName(name, wanted)
}
