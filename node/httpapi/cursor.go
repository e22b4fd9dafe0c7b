package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// cursor walks through JSON that json.Valid has accepted: it checks shapes, never grammar, and so may step over commas and
// colons without looking. Each of its methods consumes one value.
//
// It exists because encoding/json's own decoding into structs takes a field in any letter case and twice, and makes tens of
// bytes in memory of every bracket it is sent.
type cursor struct {
	text string
	at   int
}

// next returns the first byte of the next value or bracket.
func (c *cursor) next() byte {
	for {
		switch b := c.text[c.at]; b {
		case ' ', '\t', '\r', '\n', ',', ':':
			c.at++
		default:
			return b
		}
	}
}

func (c *cursor) take(b byte) bool {
	if c.next() != b {
		return false
	}
	c.at++
	return true
}

// object calls member for each member of an object, whose name is one of fields, to consume its value.
func (c *cursor) object(what string, fields []string, member func(name string) error) error {
	if !c.take('{') {
		return c.mismatch(what, "an object")
	}
	seen := 0
	for !c.take('}') {
		at, name := c.at, ""
		if err := c.stringInto("a name", &name); err != nil {
			return err
		}
		i := slices.Index(fields, name)
		if i < 0 {
			return refuse(http.StatusBadRequest, "%s has no field %.64q (at byte %d): it may have %s", what, name, at, strings.Join(fields, ", "))
		}
		if seen&(1<<i) != 0 {
			return refuse(http.StatusBadRequest, "%s has the field %s twice (at byte %d): give it once", what, name, at)
		}
		seen |= 1 << i
		if err := member(name); err != nil {
			return err
		}
	}
	return nil
}

// array calls item for each item of an array, to consume it.
func (c *cursor) array(what string, item func() error) error {
	if !c.take('[') {
		return c.mismatch(what, "an array")
	}
	for !c.take(']') {
		if err := item(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cursor) stringInto(what string, dst *string) error {
	if c.next() != '"' {
		return c.mismatch(what, "a string")
	}
	quoted := c.quoted()
	if strings.IndexByte(quoted, '\\') < 0 {
		*dst = quoted[1 : len(quoted)-1]
		return nil
	}
	var unquoted string // not dst itself, which would then be on the heap for everybody
	err := json.Unmarshal([]byte(quoted), &unquoted)
	*dst = unquoted
	return err
}

func (c *cursor) wholeInto(what string, dst *uint64) error {
	if b := c.next(); b != '-' && (b < '0' || b > '9') {
		return c.mismatch(what, "a number")
	}
	at := c.at
	number := c.raw()
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return refuse(http.StatusBadRequest, "%s is %.32s (at byte %d): give a whole number, not negative, in plain digits", what, number, at)
	}
	*dst = n
	return nil
}

func (c *cursor) boolInto(what string, dst *bool) error {
	switch c.next() {
	case 't', 'f':
		*dst = c.raw() == "true"
		return nil
	}
	return c.mismatch(what, "true or false")
}

// raw returns the next value as it stands.
func (c *cursor) raw() string {
	c.next()
	start := c.at
	for depth := 0; ; {
		switch c.text[c.at] {
		case '"':
			c.quoted()
		case '{', '[':
			depth++
			c.at++
		case '}', ']':
			depth--
			c.at++
		default:
			c.at++
		}
		if depth == 0 && c.ended(start) {
			return c.text[start:c.at]
		}
	}
}

// ended tells whether the value that began at start is over, outside of all its brackets.
func (c *cursor) ended(start int) bool {
	switch c.text[start] {
	case '"', '{', '[':
		return true
	}
	return c.at == len(c.text) || strings.IndexByte(" \t\r\n,:]}", c.text[c.at]) >= 0
}

// quoted returns the string at the cursor with its quotes and escapes.
func (c *cursor) quoted() string {
	start := c.at
	for c.at++; c.text[c.at] != '"'; c.at++ {
		if c.text[c.at] == '\\' {
			c.at++
		}
	}
	c.at++
	return c.text[start:c.at]
}

func (c *cursor) mismatch(what, want string) error {
	got := "a number"
	switch c.next() {
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	case '"':
		got = "a string"
	case 't':
		got = "true"
	case 'f':
		got = "false"
	case 'n':
		got = "null"
	}
	return refuse(http.StatusBadRequest, "%s is %s (at byte %d): give %s", what, got, c.at, want)
}
