package respapi

import (
	"bytes"
	"errors"
	"fmt"
)

// What a request may be: enough for every command of a client that means well. Redis allows far more.
const (
	maxWords   = 1024
	maxWord    = 16 << 10 // bytes
	maxRequest = 64 << 10 // bytes in all, so that a buffer of that size always holds one
	maxInline  = 16 << 10 // bytes of a line
	maxHeader  = 24       // bytes of a line with a number
)

// parse reads one command off the front of b. It returns the command's words, appended to words, and how many bytes it took: 0 if more
// of them are needed. A command without words is to be skipped. The words lie in b, which quoted ones are unquoted in. After an error
// nothing of what follows can be understood; it is told in Redis' own words.
//
//	*2\r\n $4\r\nECHO\r\n $2\r\nhi\r\n      an array of strings, each with its length (without the spaces)
//	ECHO "hi"\r\n                           or a line, for people
func parse(b []byte, words [][]byte) ([][]byte, int, error) {
	if len(b) == 0 {
		return words, 0, nil
	}
	if b[0] != '*' {
		return parseInline(b, words)
	}
	count, at, err := parseHeader(b, "multibulk", maxWords)
	if err != nil || at == 0 {
		return words, 0, err
	}
	for range count {
		word, end, err := parseWord(b, at)
		if err != nil || end == 0 {
			return words, 0, err
		}
		words, at = append(words, word), end
	}
	return words, at, nil
}

// parseWord reads the string at a place and returns where it ends: 0 if more bytes are needed.
func parseWord(b []byte, at int) (word []byte, end int, err error) {
	if at == len(b) {
		return nil, 0, nil
	}
	if b[at] != '$' {
		return nil, 0, fmt.Errorf("expected '$', got '%c'", printable(b[at]))
	}
	size, n, err := parseHeader(b[at:], "bulk", maxWord)
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
func parseHeader(b []byte, what string, most int) (number, n int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxHeader)], '\n')
	if end < 0 {
		if len(b) >= maxHeader {
			return 0, 0, fmt.Errorf("too big %s count string", what)
		}
		return 0, 0, nil
	}
	v, ok := int64(0), b[end-1] == '\r'
	if ok {
		v, ok = integer(b[1 : end-1])
	}
	if !ok || v > int64(most) {
		return 0, 0, fmt.Errorf("invalid %s length", what)
	}
	return int(max(v, -1)), end + 1, nil
}

// integer reads a decimal number as Redis does: without plus, leading zeros and spaces.
func integer(b []byte) (v int64, ok bool) {
	digits, negative := b, len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
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

func printable(c byte) byte {
	if c < ' ' || c > '~' {
		return '?'
	}
	return c
}
