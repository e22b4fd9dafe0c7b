package rulestore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"
)

// maxLimits is how many overrides a Store holds at most.
const maxLimits = 100_000

// maxNote is the length of an override's note in bytes.
const maxNote = 200

// Limit is an override as it travels: without the identity, in place of which it has the hash under which nodes count.
type Limit struct {
	Rule     string     `json:"rule"`     // full name
	Key      string     `json:"key"`      // keyed hash of the identity, 16 hexadecimal digits
	Identity string     `json:"identity"` // fingerprint of the secret that keys it, 16 hexadecimal digits
	Max      uint64     `json:"max"`
	Window   string     `json:"window"`          // as Go writes durations
	Until    *time.Time `json:"until,omitempty"` // nil: for good
	Set      time.Time  `json:"set"`
	Author   string     `json:"author"`
	Note     string     `json:"note,omitempty"`
}

// Hex returns a key or a fingerprint as a Limit has it.
func Hex(n uint64) string { return fmt.Sprintf("%016x", n) }

// Override returns the override for package rules, and the fingerprint of its secret.
func (l *Limit) Override() (o rules.Override, identity uint64, err error) {
	key, keyErr := parseHex(l.Key)
	identity, identityErr := parseHex(l.Identity)
	window, windowErr := time.ParseDuration(l.Window)
	o = rules.Override{Rule: l.Rule, Key: counters.Key(key), Max: l.Max, Window: window}
	if l.Until != nil {
		o.Until = *l.Until
	}
	err = errors.Join(keyErr, identityErr, windowErr, checkLine("rule", l.Rule, counters.MaxRuleName),
		checkLine("author", l.Author, maxAuthor), checkLine("note", l.Note, maxNote))
	switch {
	case err != nil:
		return o, 0, err
	case l.Max > counters.MaxLimit:
		return o, 0, fmt.Errorf("the limit %d is above %d", l.Max, uint64(counters.MaxLimit))
	case window <= 0 || window > counters.MaxWindow:
		return o, 0, fmt.Errorf("the window %v is not positive, or longer than %v",
			text.Duration(window), text.Duration(counters.MaxWindow))
	case l.Until != nil && (l.Until.Year() < 2000 || l.Until.Year() > 2200):
		return o, 0, errors.New("its end is out of range")
	}
	return o, identity, nil
}

func parseHex(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 {
		return 0, fmt.Errorf("%.32q, want 16 hexadecimal digits", s)
	}
	return n, nil
}

// limitList is the text of a document of overrides.
type limitList struct {
	Limits []Limit `json:"limits"`
}

// EncodeLimits returns the text of a document of overrides, sorted by rule and key.
func EncodeLimits(limits []Limit) ([]byte, error) {
	limits = slices.Clone(limits)
	slices.SortFunc(limits, func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	if _, err := checkLimits(limits); err != nil {
		return nil, err
	}
	b := encode(limitList{append([]Limit{}, limits...)})
	if most := kindBounds[Limits].text; len(b) > most {
		return nil, fmt.Errorf("the overrides have %d bytes together, at most %d are allowed", len(b), most)
	}
	return b, nil
}

// DecodeLimits returns the overrides of a document. One that is out of range refuses all.
func DecodeLimits(text []byte) ([]Limit, error) {
	limits, _, err := decodeLimits(text)
	return limits, err
}

// decodeLimits is DecodeLimits that also returns the overrides for package rules, by the fingerprints of their secrets.
func decodeLimits(text []byte) ([]Limit, map[uint64][]rules.Override, error) {
	var list limitList
	if err := decodeStrictly(text, &list); err != nil {
		return nil, nil, fmt.Errorf("the list of overrides cannot be read: %w", err)
	}
	all, err := checkLimits(list.Limits)
	return list.Limits, all, err
}

func checkLimits(limits []Limit) (map[uint64][]rules.Override, error) {
	if len(limits) > maxLimits {
		return nil, fmt.Errorf("%d overrides, at most %d are allowed: remove some with edgelimit limits unset",
			len(limits), maxLimits)
	}
	all := make(map[uint64][]rules.Override)
	for i := range limits {
		o, identity, err := limits[i].Override()
		if err != nil {
			return nil, fmt.Errorf("override %d, of rule %.100q: %w", i+1, limits[i].Rule, err)
		}
		all[identity] = append(all[identity], o)
	}
	return all, nil
}
