package accesslog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxLine is the length in bytes, without its end, beyond which a line is refused. Servers accept request lines of an eighth of it.
const MaxLine = 64 << 10

// What may be wrong with a line. The error that wraps ErrFormat says where.
var (
	ErrTooLong = fmt.Errorf("the line is longer than %d bytes", MaxLine)
	ErrFormat  = errors.New("not in common or combined log format")
)

func malformed(what string) error { return fmt.Errorf("%s: %w", what, ErrFormat) }

// Parse reads one line, without its end. The error is ErrTooLong or wraps ErrFormat.
//
// It accepts what servers are known to write: escapes of httpd (\", \\, \n, \xhh) and nginx (\xHH), a user name with spaces or one
// that is "", further fields behind the agent, and an agent that was cut off at the end of the line.
func Parse(line string) (Entry, error) {
	var e Entry
	if len(line) > MaxLine {
		return e, ErrTooLong
	}
	rest, err := e.parseClient(line)
	if err != nil {
		return Entry{}, err
	}
	request, rest, ok := cutQuoted(rest)
	if !ok {
		return Entry{}, malformed("the request's closing quote is missing")
	}
	e.parseRequest(request)
	if rest, err = e.parseResponse(rest); err != nil {
		return Entry{}, err
	}
	if err = e.parseHeaders(rest); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// parseClient reads addr, ident, user and time, and returns what begins with the request's opening quote.
func (e *Entry) parseClient(line string) (rest string, err error) {
	addr, rest, ok := strings.Cut(line, " ")
	if !ok || addr == "" || strings.Contains(addr, `"`) {
		return "", malformed("the address is missing")
	}
	_, rest, ok = strings.Cut(rest, " ") // the ident, which nobody has sent for decades
	if !ok {
		return "", malformed("the user is missing")
	}
	rest, emptyUser := strings.CutPrefix(rest, `"" [`)
	if emptyUser {
		rest = "- [" + rest
	}
	// A user name may hold spaces and brackets, and with them what looks like a time. It cannot hold a bare quote, so that the time
	// is what stands right before the first one.
	quote := indexQuote(rest)
	at := quote - len(stamp+`] `)
	if at < len("- [") || rest[at-2:at] != " [" || rest[at+len(stamp):quote] != "] " {
		return "", malformed("the time in brackets before the request is missing")
	}
	if e.Time, ok = parseStamp(rest[at : at+len(stamp)]); !ok {
		return "", malformed("the time is not like " + stamp)
	}
	e.Addr, e.User = field(addr), field(rest[:at-2])
	return rest[quote:], nil
}

// parseRequest reads the request line. A target may hold spaces: clients send them, and servers log what they refuse.
func (e *Entry) parseRequest(request string) {
	method, rest, ok := strings.Cut(request, " ")
	if ok && isToken(method) {
		if i := strings.LastIndex(rest, " HTTP/"); i > 0 && isVersion(rest[i+len(" HTTP/"):]) {
			e.Method, e.Path, e.Proto = method, unescape(rest[:i]), rest[i+1:]
			return
		}
		if method == "GET" && strings.HasPrefix(rest, "/") && !strings.Contains(rest, " ") {
			e.Method, e.Path = method, unescape(rest)
			return
		}
	}
	e.Path = field(request)
}

// parseResponse reads status and bytes, and returns what follows them.
func (e *Entry) parseResponse(rest string) (string, error) {
	rest, ok := strings.CutPrefix(rest, " ")
	if !ok {
		return "", malformed("the status does not follow the request")
	}
	status, rest, ok := strings.Cut(rest, " ")
	if !ok {
		return "", malformed("the number of bytes is missing")
	}
	if status != "-" {
		n, err := strconv.ParseUint(status, 10, 16)
		if err != nil || len(status) != 3 {
			return "", malformed("the status is not three digits")
		}
		e.Status = int(n)
	}
	size := rest
	if i := strings.IndexByte(rest, ' '); i >= 0 {
		size = rest[:i]
	}
	if size != "-" {
		n, err := strconv.ParseUint(size, 10, 63)
		if err != nil {
			return "", malformed("the bytes are not a number")
		}
		e.Bytes = int64(n)
	}
	return rest[len(size):], nil
}

// parseHeaders reads what the combined format adds, if it is there.
func (e *Entry) parseHeaders(rest string) error {
	if rest == "" {
		return nil
	}
	rest, ok := strings.CutPrefix(rest, " ")
	if !ok {
		return malformed("something follows the bytes")
	}
	referer, rest, ok := cutQuoted(rest)
	if !ok {
		return malformed("the referer is not in quotes")
	}
	e.Referer = field(referer)
	if rest, ok = strings.CutPrefix(rest, ` "`); !ok {
		return malformed("the agent is missing")
	}
	// Loggers cut lines off; an agent without its closing quote is good enough to know who came when.
	agent, after := rest, ""
	if end := indexQuote(rest); end >= 0 {
		agent, after = rest[:end], rest[end+1:]
	}
	if after != "" && after[0] != ' ' {
		return malformed("something follows the agent")
	}
	e.Agent = field(agent)
	return nil
}

// cutQuoted splits s after the quoted string that it begins with, whose quotes it takes off.
func cutQuoted(s string) (quoted, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", "", false
	}
	end := indexQuote(s[1:])
	if end < 0 {
		return "", "", false
	}
	return s[1 : 1+end], s[2+end:], true
}

// indexQuote is where the first quote without a backslash before it stands, or -1.
func indexQuote(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// field resolves escapes, and the dash that stands for nothing.
func field(s string) string {
	if s == "-" {
		return ""
	}
	return unescape(s)
}

// unescape resolves the escapes of httpd and nginx; a backslash before anything else stays what it is.
func unescape(s string) string {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for ; i >= 0; i = strings.IndexByte(s, '\\') {
		b.WriteString(s[:i])
		c, length := unescapeOne(s[i:])
		b.WriteByte(c)
		s = s[i+length:]
	}
	b.WriteString(s)
	return b.String()
}

// unescapeOne returns the byte that s, which begins with a backslash, begins with, and the length of what stands for it.
func unescapeOne(s string) (c byte, length int) {
	if len(s) >= 2 {
		if i := strings.IndexByte(`"\bnrtv`, s[1]); i >= 0 {
			return "\"\\\b\n\r\t\v"[i], 2
		}
		if s[1] == 'x' && len(s) >= 4 {
			if n, err := strconv.ParseUint(s[2:4], 16, 8); err == nil {
				return byte(n), 4
			}
		}
	}
	return '\\', 1
}

// isToken reports whether s may be a method: a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter, digit := 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isVersion reports whether s is a version of HTTP: digits, with a point among them or not.
func isVersion(s string) bool {
	return s != "" && strings.Trim(s, "0123456789.") == ""
}
