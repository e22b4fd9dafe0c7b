package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
)

// Reference is what a rule of a domain that is compatible with envoyproxy/ratelimit has there and nowhere else.
type Reference struct {
	// RequestsPerUnit and Unit are those of the file: SECOND to YEAR; UNKNOWN of an unlimited rule, and of one with a
	// window that is no unit. An unlimited rule may have a number.
	RequestsPerUnit uint32
	Unit            string
	// ShadowMode and QuotaMode are the flags of the descriptor, which may have both.
	ShadowMode, QuotaMode bool
	// Parent: other descriptors are beneath it.
	Parent bool
	// File and Line are where the rule stands.
	File string
	Line int
}

// ReferenceKey is the rule's key in that server's statistics and in its /rlconfig, as in
// "edge.path_/login.remote_address".
func (r *Rule) ReferenceKey() string {
	var b strings.Builder
	b.WriteString(r.Domain)
	for _, e := range r.Entries {
		b.WriteString("." + JoinedKey(e))
	}
	return b.String()
}

// SetWarnings sets what a reader of rule files took although it is probably not meant.
func (s *Set) SetWarnings(warnings []error) { s.warnings = warnings }

// Warnings returns what the reader of the set's files took although it is probably not meant: *rulefile.Error values
// with their places, in the order of the files. The slice is shared.
func (s *Set) Warnings() []error { return s.warnings }

// Shortened returns a full name of more than counters.MaxRuleName bytes cut to that, the rest replaced by a hash. What
// stands between them is in no name that is not shortened.
func Shortened(fullName string) string {
	hash := sha256.Sum256([]byte(fullName))
	tail := "...%~" + hex.EncodeToString(hash[:16])
	return strings.ToValidUTF8(fullName[:counters.MaxRuleName-len(tail)], "") + tail
}
