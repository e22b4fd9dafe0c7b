package actions

import "strings"

// unnamed is a hop of which nobody said who it is.
const unnamed = "unknown"

// lastForwarded splits the last element off a Forwarded header (RFC 7239) and returns whom it was for; unnamed if it does not say so, or
// not in an understandable way; nothing if the element is empty. It reads from the right: what a client sent stands to the left of what
// proxies appended, and must not change what that means, for example by a quote that it does not close.
func lastForwarded(line string) (whom, rest string) {
	i := lastOutside(line, ',')
	element := strings.Trim(line[i+1:], " \t")
	rest = line[:max(i, 0)]
	if element == "" {
		return "", rest
	}
	for element != "" {
		i := lastOutside(element, ';')
		name, value, _ := strings.Cut(strings.Trim(element[i+1:], " \t"), "=")
		element = element[:max(i, 0)]
		if !strings.EqualFold(name, "for") {
			continue
		}
		if whom != "" { // it says so twice
			return unnamed, rest
		}
		if whom = unquote(value); whom == "" {
			whom = unnamed
		}
	}
	if whom == "" {
		whom = unnamed
	}
	return whom, rest
}

// lastOutside returns where the last c stands that is not within quotes, as seen from the end; -1 if there is none.
func lastOutside(s string, c byte) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"' && !(quoted && escaped(s, i)):
			quoted = !quoted
		case s[i] == c && !quoted:
			return i
		}
	}
	return -1
}

// escaped reports whether an odd number of backslashes stands before a place.
func escaped(s string, at int) bool {
	n := 0
	for at-n > 0 && s[at-n-1] == '\\' {
		n++
	}
	return n%2 == 1
}

// unquote returns the text of a value, with or without quotes; nothing if its quotes do not fit.
func unquote(value string) string {
	inner, quoted := strings.CutPrefix(value, `"`)
	if !quoted {
		if strings.Contains(value, `"`) {
			return ""
		}
		return value
	}
	inner, closed := strings.CutSuffix(inner, `"`)
	if !closed || strings.ContainsAny(inner, `"\`) { // no address needs what a backslash can say
		return ""
	}
	return inner
}
