package respapi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of requests, enough for every command that the server knows. Redis allows far more.
const (
	maxArgs    = 1024
	maxArg     = 16 << 10 // bytes
	maxRequest = 64 << 10 // bytes in all, so that a buffer of that size always holds one
	maxInline  = 16 << 10 // bytes of a line
	maxHeader  = 24       // bytes of a line with a number
)

// parse reads one command from the front of b. It returns the command's arguments, appended to args, and how many bytes
// it took: 0 if more of them are needed. A command without arguments is to be skipped. The arguments lie in b, where
// quoted ones are unquoted. After an error the rest of the stream is lost; errors are in Redis' own words.
//
//	*2\r\n $4\r\nECHO\r\n $2\r\nhi\r\n      an array of strings, each with its length (without the spaces)
//	ECHO "hi"\r\n                           or an inline command, for people
func parse(b []byte, args [][]byte) ([][]byte, int, error) {
	if len(b) == 0 {
		return args, 0, nil
	}
	if b[0] != '*' {
		return parseInline(b, args)
	}
	count, at, err := parseHeader(b, "multibulk", maxArgs)
	if err != nil || at == 0 {
		return args, 0, err
	}
	for range count {
		arg, end, err := parseBulk(b, at)
		if err != nil || end == 0 {
			return args, 0, err
		}
		args, at = append(args, arg), end
	}
	return args, at, nil
}

// parseBulk reads the bulk string at a place and returns where it ends: 0 if more bytes are needed.
func parseBulk(b []byte, at int) (arg []byte, end int, err error) {
	if at == len(b) {
		return nil, 0, nil
	}
	if c := b[at]; c != '$' {
		if c < ' ' || c > '~' {
			c = '?'
		}
		return nil, 0, fmt.Errorf("expected '$', got '%c'", c)
	}
	size, n, err := parseHeader(b[at:], "bulk", maxArg)
	if err != nil || n == 0 {
		return nil, 0, err
	}
	if size < 0 {
		return nil, 0, errors.New("invalid bulk length")
	}
	at += n
	switch end = at + size + len("\r\n"); {
	case end > maxRequest:
		return nil, 0, fmt.Errorf("too big request: more than %d bytes", maxRequest)
	case end > len(b):
		return nil, 0, nil
	case b[end-2] != '\r' || b[end-1] != '\n':
		return nil, 0, errors.New("expected a line to end after the bulk string")
	}
	return b[at : end-2 : end-2], end, nil
}

// parseHeader reads a line with a number after its first byte, and returns its length: 0 if more bytes are needed.
func parseHeader(b []byte, what string, highest int) (number, n int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxHeader)], '\n')
	if end < 0 {
		if len(b) >= maxHeader {
			return 0, 0, fmt.Errorf("too big %s count string", what)
		}
		return 0, 0, nil
	}
	v, ok := int64(0), b[end-1] == '\r'
	if ok {
		v, ok = parseInt(b[1 : end-1])
	}
	if !ok || v > int64(highest) {
		return 0, 0, fmt.Errorf("invalid %s length", what)
	}
	return int(max(v, -1)), end + 1, nil
}

// parseInt reads a decimal number as Redis does: without plus, leading zeros and spaces.
func parseInt(b []byte) (v int64, ok bool) {
	digits, negative := bytes.CutPrefix(b, []byte("-"))
	if len(digits) == 0 || len(digits) > len("9223372036854775807") || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var sum uint64 // 19 digits always fit
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		sum = sum*10 + uint64(c-'0')
	}
	if negative {
		return -int64(sum), sum <= 1<<63
	}
	return int64(sum), sum < 1<<63
}

// inlineSpace separates the arguments of an inline command.
const inlineSpace = " \t\r\x00"

var errQuotes = errors.New("unbalanced quotes in request")

// parseInline reads a line of arguments between spaces. It is as parse.
func parseInline(b []byte, args [][]byte) ([][]byte, int, error) {
	end := bytes.IndexByte(b[:min(len(b), maxInline)], '\n')
	if end < 0 {
		if len(b) >= maxInline {
			return args, 0, errors.New("too big inline request")
		}
		return args, 0, nil
	}
	first := len(args)
	for rest := bytes.TrimLeft(b[:end], inlineSpace); len(rest) > 0; rest = bytes.TrimLeft(rest, inlineSpace) {
		if len(args)-first == maxArgs {
			return args, 0, fmt.Errorf("too many words in the request: more than %d", maxArgs)
		}
		arg, n, err := unquote(rest)
		if err != nil {
			return args, 0, err
		}
		args, rest = append(args, arg), rest[n:]
	}
	return args, end + 1, nil
}

func isSpace(c byte) bool { return strings.IndexByte(inlineSpace, c) >= 0 }

// unquote reads the argument at the front of b, overwrites it with its meaning, and returns how many bytes it took. A
// closing quote ends the argument.
func unquote(b []byte) (arg []byte, n int, err error) {
	arg = b[:0]
	quote := byte(0) // the open one
	for ; n < len(b); n++ {
		c := b[n]
		switch {
		case quote == 0 && isSpace(c):
			return arg, n, nil
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote != 0 && c == quote:
			if n++; n < len(b) && !isSpace(b[n]) {
				return nil, 0, errQuotes
			}
			return arg, n, nil
		case quote == '\'' && bytes.HasPrefix(b[n:], []byte(`\'`)):
			arg = append(arg, '\'')
			n++
		case quote == '"' && c == '\\' && n+1 < len(b):
			value, size := unescape(b[n+1:])
			arg = append(arg, value)
			n += size
		default:
			arg = append(arg, c)
		}
	}
	if quote != 0 {
		return nil, 0, errQuotes
	}
	return arg, n, nil
}

// unescape returns the byte that the escape at the front of b means, after its backslash, and the length of it.
func unescape(b []byte) (value byte, n int) {
	if b[0] == 'x' && len(b) >= len("x41") {
		if v, err := strconv.ParseUint(string(b[1:3]), 16, 8); err == nil {
			return byte(v), len("x41")
		}
	}
	if i := strings.IndexByte("nrtba", b[0]); i >= 0 {
		return "\n\r\t\b\a"[i], 1
	}
	return b[0], 1
}
