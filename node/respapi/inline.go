package respapi

import (
	"bytes"
	"errors"
	"fmt"
)

var errQuotes = errors.New("unbalanced quotes in request")

// parseInline reads a line of words between spaces. It is as parse.
func parseInline(b []byte, words [][]byte) ([][]byte, int, error) {
	end := bytes.IndexByte(b[:min(len(b), maxInline)], '\n')
	if end < 0 {
		if len(b) >= maxInline {
			return words, 0, errors.New("too big inline request")
		}
		return words, 0, nil
	}
	first := len(words)
	for rest := b[:end]; ; {
		rest = bytes.TrimLeft(rest, " \t\r\x00")
		if len(rest) == 0 {
			return words, end + 1, nil
		}
		if len(words)-first == maxWords {
			return words, 0, fmt.Errorf("too many words in the request: more than %d", maxWords)
		}
		word, n, err := unquote(rest)
		if err != nil {
			return words, 0, err
		}
		words, rest = append(words, word), rest[n:]
	}
}

// unquote reads the word at the front of b, which it overwrites with what the quotes mean, and returns how many bytes it took. What is
// quoted ends the word.
func unquote(b []byte) (word []byte, n int, err error) {
	word = b[:0]
	for n < len(b) {
		switch c := b[n]; c {
		case ' ', '\t', '\r', 0:
			return word, n, nil
		case '"', '\'':
			if word, n, err = unquoteString(word, b, n); err != nil {
				return nil, 0, err
			}
			return word, n, nil
		default:
			word = append(word, c)
			n++
		}
	}
	return word, n, nil
}

// unquoteString appends to word what is quoted from at on, and returns where that ends: before a space or the end of the line.
func unquoteString(word, b []byte, at int) (_ []byte, end int, err error) {
	quote := b[at]
	for at++; at < len(b); at++ {
		switch c := b[at]; {
		case c == quote:
			if at++; at < len(b) && bytes.IndexByte([]byte(" \t\r\x00"), b[at]) < 0 {
				return nil, 0, errQuotes
			}
			return word, at, nil
		case c != '\\' || at+1 == len(b):
			word = append(word, c)
		case quote == '\'':
			if b[at+1] == '\'' {
				at++
			}
			word = append(word, b[at])
		default:
			at++
			if value, ok := hexByte(b[at:]); ok {
				word = append(word, value)
				at += len("41")
			} else {
				word = append(word, escaped(b[at]))
			}
		}
	}
	return nil, 0, errQuotes
}

// escaped is what a byte after a backslash stands for.
func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

// hexByte reads x41 at the front of b.
func hexByte(b []byte) (value byte, ok bool) {
	if len(b) < len("x41") || b[0] != 'x' {
		return 0, false
	}
	for _, c := range b[1:3] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		value = value<<4 | c
	}
	return value, true
}
