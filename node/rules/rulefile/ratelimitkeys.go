package rulefile

import "slices"

// kind is the type that envoyproxy/ratelimit reads a value as.
type kind uint8

const (
	textKind kind = iota + 1
	flagKind
	numberKind
	listKind
	limitKind
	anyKind // a map of anything
)

// level is a place of a rule file in the form of envoyproxy/ratelimit.
type level struct {
	what  string
	kinds map[string]kind
	known keys              // those of this package's format, which are more
	below map[string]*level // the maps under the keys, or in the lists under them
}

var (
	replacesLevel = &level{what: "an entry of replaces", known: replacesKeys, kinds: map[string]kind{"name": textKind}}
	limitLevel    = &level{
		what: "a rate_limit", known: rateLimitKeys,
		kinds: map[string]kind{
			"requests_per_unit": numberKind, "unit": textKind, "unlimited": flagKind, "name": textKind,
			"replaces": listKind,
		},
		below: map[string]*level{"replaces": replacesLevel},
	}
	descriptorLevel = &level{
		what: "a descriptor", known: descriptorKeys,
		kinds: map[string]kind{
			"key": textKind, "value": textKind, "rate_limit": limitKind, "descriptors": listKind,
			"shadow_mode": flagKind, "quota_mode": flagKind, "detailed_metric": flagKind, "value_to_metric": flagKind,
			"share_threshold": flagKind, "metadata": anyKind,
		},
		below: map[string]*level{"rate_limit": limitLevel},
	}
	documentLevel = &level{
		what: "a document", known: documentKeys,
		kinds: map[string]kind{"domain": textKind, "descriptors": listKind},
		below: map[string]*level{"descriptors": descriptorLevel},
	}
	// nowhere is the place of maps under keys that have no effect where they stand.
	nowhere = &level{what: "a map that has no effect"}
)

func init() { descriptorLevel.below["descriptors"] = descriptorLevel }

// ratelimitKeys are the keys that envoyproxy/ratelimit takes, at any place.
var ratelimitKeys = func() (all []string) {
	for _, at := range []*level{documentLevel, descriptorLevel, limitLevel} {
		for key := range at.kinds {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}()

// under returns the level of the maps under a key.
func (l *level) under(key string) *level {
	if below := l.below[key]; below != nil {
		return below
	}
	return nowhere
}

// isOurs reports whether a key is this package's, and not one of envoyproxy/ratelimit.
func (l *level) isOurs(key string) bool {
	return l.kinds[key] == 0 && l.known.has(key) && key != "metadata"
}
