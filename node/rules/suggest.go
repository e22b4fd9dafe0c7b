package rules

import (
	"fmt"
	"strings"
)

const (
	// suggestFrom is the number of rules that an unknown name is compared with, which bounds the cost of unknown names.
	suggestFrom = 64
	// suggestBytes is the maximum length of the list of names in an error.
	suggestBytes = 120
)

// unknownRule returns the error for a name that no rule has, in the domain unless that is empty. It shows the nearest
// name and some others; of rules without a given name it shows nothing, as their places hold values of the file.
func (s *Set) unknownRule(name, domain string) error {
	where := ""
	if domain != "" {
		where = fmt.Sprintf(" in domain %.100q", domain)
	}
	var names []string
	others := len(s.rules) > suggestFrom
	for _, r := range s.rules[:min(len(s.rules), suggestFrom)] {
		switch {
		case !r.in(domain):
		case r.Given == "":
			others = true
		default:
			names = append(names, r.HeaderName)
		}
	}
	shown, size := 0, 0
	for shown < len(names) && (shown == 0 || size+len(names[shown]) <= suggestBytes) {
		size += len(names[shown])
		shown++
	}
	list := "there are " + strings.Join(names[:shown], ", ")
	switch {
	case len(names) == 0 && !others:
		list = "there are none"
	case len(names) == 0:
		list = "there are none with a name"
	case others || shown < len(names):
		list += ", and others"
	}
	if guess := Nearest(name, names); guess != "" {
		list = fmt.Sprintf("did you mean %q? T%s", guess, list[1:])
	}
	return fmt.Errorf("%w %.100q%s (%s)", ErrUnknownRule, name, where, list)
}

// Nearest returns the known word that word probably misspells, "" for none: one slip in every four letters, but at
// least one. Words of more than 64 bytes misspell none.
func Nearest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	word = strings.ToLower(word)
	best, slips := "", len(word)/4+2
	for _, k := range known {
		if d := distance(word, k); d < slips {
			best, slips = k, d
		}
	}
	return best
}

// distance counts the slips between two words: letters left out, added, mistaken, or swapped (Damerau-Levenshtein).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			mistaken := last[j-1]
			if a[i-1] != b[j-1] {
				mistaken++
			}
			row[j] = min(mistaken, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
