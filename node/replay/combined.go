package replay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Entry is one request of a log in the common or combined format of Apache httpd and nginx:
//
//	addr ident user [02/Jan/2006:15:04:05 -0700] "GET /path HTTP/1.1" status bytes "referer" "agent"
//
// The common format ends after bytes. A field that is "-" or missing is empty or zero. The strings share the memory of
// their line; clone what outlives it. They may hold any byte: clients write what stands between quotes.
type Entry struct {
	Addr    string    // the client: an IP address, or its name where the server looks names up
	User    string    // as authenticated, or as claimed
	Time    time.Time // to the second, in UTC
	Method  string    // empty if the request line is not HTTP; Path then holds all of it
	Path    string    // the request target, with its query
	Proto   string    // such as HTTP/1.1; empty for a simple request of HTTP/0.9
	Status  int       // three digits
	Bytes   int64     // of the response's body
	Referer string    // combined format only
	Agent   string    // combined format only
}

// maxLine is the longest line in bytes that is read, without its end. Servers accept request lines of an eighth of it.
const maxLine = 64 << 10

var (
	errTooLong = fmt.Errorf("the line is longer than %d bytes", maxLine)
	errFormat  = errors.New("not in common or combined log format")
)

func malformed(reason string) error { return fmt.Errorf("%s: %w", reason, errFormat) }

// stamp is the layout of a time in an entry; each of its parts has a fixed width.
const stamp = "02/Jan/2006:15:04:05 -0700"

// parseEntry parses one line, without its end. The error is errTooLong or wraps errFormat.
//
// It accepts what servers are known to write: escapes of httpd (\", \\, \n, \xhh) and nginx (\xHH), a user name with
// spaces or one that is "", further fields after the agent, and an agent that the end of the line cuts off.
func parseEntry(line string) (e Entry, err error) {
	if len(line) > maxLine {
		return Entry{}, errTooLong
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
	if rest, err = e.parseResponse(rest); err == nil {
		err = e.parseHeaders(rest)
	}
	if err != nil {
		return Entry{}, err
	}
	return e, nil
}

// parseClient parses addr, ident, user and time, and returns the rest from the request's opening quote on.
func (e *Entry) parseClient(line string) (rest string, err error) {
	addr, rest, ok := strings.Cut(line, " ")
	if !ok || addr == "" || strings.Contains(addr, `"`) {
		return "", malformed("the address is missing")
	}
	_, rest, ok = strings.Cut(rest, " ") // the ident, which no client sends any more
	if !ok {
		return "", malformed("the user is missing")
	}
	if after, emptyUser := strings.CutPrefix(rest, `"" [`); emptyUser {
		rest = "- [" + after
	}
	// A user name may hold spaces, brackets and even a time, but no bare quote: the time stands before the first one.
	quote := indexQuote(rest)
	at := quote - len(stamp+`] `)
	if at < len("- [") || rest[at-2:at] != " [" || rest[at+len(stamp):quote] != "] " {
		return "", malformed("the time in brackets before the request is missing")
	}
	t, err := time.Parse(stamp, rest[at:at+len(stamp)])
	if err != nil {
		return "", malformed("the time is not like " + stamp)
	}
	e.Addr, e.User, e.Time = field(addr), field(rest[:at-2]), t.UTC()
	return rest[quote:], nil
}

// parseRequest parses the request line. Clients send targets with spaces, and servers log them.
func (e *Entry) parseRequest(request string) {
	method, rest, ok := strings.Cut(request, " ")
	if ok && httpguts.ValidHeaderFieldName(method) { // a token, as methods are
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

func isVersion(s string) bool { return s != "" && strings.Trim(s, "0123456789.") == "" }

// parseResponse parses status and bytes, and returns the rest.
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
	size, _, _ := strings.Cut(rest, " ")
	if size != "-" {
		n, err := strconv.ParseUint(size, 10, 63)
		if err != nil {
			return "", malformed("the bytes are not a number")
		}
		e.Bytes = int64(n)
	}
	return rest[len(size):], nil
}

// parseHeaders parses what the combined format adds, if it is there.
func (e *Entry) parseHeaders(rest string) error {
	if rest == "" {
		return nil
	}
	referer, rest, ok := cutQuoted(rest[1:]) // a space ends the bytes
	if !ok {
		return malformed("the referer is not in quotes")
	}
	if rest, ok = strings.CutPrefix(rest, ` "`); !ok {
		return malformed("the agent is missing")
	}
	agent, after := rest, "" // without its closing quote where the logger cut the line off
	if end := indexQuote(rest); end >= 0 {
		agent, after = rest[:end], rest[end+1:]
	}
	if after != "" && after[0] != ' ' {
		return malformed("something follows the agent")
	}
	e.Referer, e.Agent = field(referer), field(agent)
	return nil
}

// cutQuoted splits s after the quoted string at its beginning, and removes the quotes.
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

// indexQuote returns the index of the first quote that no backslash escapes, or -1.
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

// field returns a field's value: "-" is empty, escapes are resolved.
func field(s string) string {
	if s == "-" {
		return ""
	}
	return unescape(s)
}

// unescape resolves the escapes of httpd and nginx. It keeps a backslash before anything else.
func unescape(s string) string {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	var b strings.Builder
	for ; i >= 0; i = strings.IndexByte(s, '\\') {
		b.WriteString(s[:i])
		c, length := unescapeOne(s[i:])
		b.WriteByte(c)
		s = s[i+length:]
	}
	b.WriteString(s)
	return b.String()
}

// unescapeOne returns the byte that the escape at the beginning of s stands for, and the escape's length.
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
