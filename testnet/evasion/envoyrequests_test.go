package evasion

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// descriptor is one of a RateLimitRequest. Unknown is appended to it as it is.
type descriptor struct {
	entries [][2]string
	hits    *uint64
	limit   []byte // a RateLimitOverride
	unknown []byte
}

// envoyRequest is a RateLimitRequest that a sender writes, whatever is in its strings.
type envoyRequest struct {
	name        string
	domain      string
	descriptors []descriptor
	hits        *uint64
	unknown     []byte
	spares      []string         // layers that the sender itself leaves out, or asks to be counted otherwise
	atLeast     map[string]int64 // how much layers are charged
}

func plainEnvoyRequest() envoyRequest {
	a := envoyRequest{name: "plain", domain: "edge"}
	for _, l := range Layers() {
		a.descriptors = append(a.descriptors, descriptor{entries: [][2]string{{l.Key, l.Plain}}})
	}
	return a
}

func (a envoyRequest) with(name string, change func(*envoyRequest)) envoyRequest {
	a.name, a.descriptors = name, slices.Clone(a.descriptors)
	for i := range a.descriptors {
		a.descriptors[i].entries = slices.Clone(a.descriptors[i].entries)
	}
	change(&a)
	return a
}

// apart gives the request values of its own, so that what it uses up is not missing to others.
func (a envoyRequest) apart(name string, change func(*envoyRequest)) envoyRequest {
	return a.with(name, func(a *envoyRequest) {
		for _, d := range a.descriptors {
			d.entries[0][1] = "apart, " + name
		}
		change(a)
	})
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// wire is the request as protobuf writes it, without a look at the strings, as Envoy's library does.
func (a envoyRequest) wire() []byte {
	b := appendBytes(nil, 1, []byte(a.domain))
	for _, d := range a.descriptors {
		var inner []byte
		for _, e := range d.entries {
			inner = appendBytes(inner, 1, appendBytes(appendBytes(nil, 1, []byte(e[0])), 2, []byte(e[1])))
		}
		if d.limit != nil {
			inner = appendBytes(inner, 2, d.limit)
		}
		if d.hits != nil {
			inner = appendBytes(inner, 3, appendNumber(nil, 1, *d.hits))
		}
		b = appendBytes(b, 2, append(inner, d.unknown...))
	}
	if a.hits != nil {
		b = appendNumber(b, 3, *a.hits)
	}
	return append(b, a.unknown...)
}

// values are what a client can put into a value of a descriptor: Envoy copies it from the request.
func values(plain string) map[string]string {
	long := func(n int) string { return strings.Repeat("x", n) }
	return map[string]string{
		"empty": "", "a blank": " ", "a tab": "\t", "capital letters": strings.ToUpper(plain),
		"blank after":  plain + " ",
		"blank before": " " + plain, "tab after": plain + "\t", "line end after": plain + "\r\n", "NUL": "\x00",
		"NUL after": plain + "\x00", "NUL before": "\x00" + plain, "DEL": "\x7f",
		"control characters": "\x01\x02\x1b[2J",
		"a byte order mark":  "\ufeff" + plain, "the replacement character": "\ufffd",
		"a combining mark":   plain + "\u0301",
		"from right to left": "\u202e" + plain, "wide letters": "ｋ１", "an emoji": "😀", "a star": "*",
		"a star after": plain + "*", "a slash": "/", "slashes": "//" + plain + "//", "an equals sign": "=",
		"a percent": "%",
		"an escape": "%6b1", "a name of a rule": "edge/api_key", "an entry": "api_key=" + plain, "a quote": `"`,
		"a backslash": `\`, "a list": plain + ", k2", "JSON": `{"a":1}`, "null": "null", "a number": "0",
		"minus one": "-1",
		"twice":     plain + plain, "a mapped address": "::ffff:192.0.2.1", "an address": "2001:db8::1",
		"no address":             "999.1.1.1",
		"an address with a zone": "fe80::1%eth0", "an address with a port": "192.0.2.1:80", "255 bytes": long(255),
		"256 bytes": long(256), "4,096 bytes": long(4096), "16,384 bytes": long(16_384), "60 KiB": long(60 << 10),
	}
}

// otherBytes are values that are no UTF-8, which HTTP allows in a header.
func otherBytes(plain string) map[string]string {
	return map[string]string{
		"obs-text": "\xff", "obs-text after": plain + "\xff\xfe", "cut UTF-8": plain + "\xe2\x82",
		"overlong UTF-8": "\xc0\x80", "a surrogate": "\xed\xa0\x80", "beyond Unicode": "\xf4\x90\x80\x80",
		"Latin-1": "caf\xe9",
	}
}

// valued are the requests in which a client chose one value, or all.
func valued(values func(plain string) map[string]string) (all []envoyRequest) {
	for i, l := range Layers() {
		for name, value := range values(l.Plain) {
			all = append(all, plainEnvoyRequest().with(l.Key+": "+name, func(a *envoyRequest) {
				a.descriptors[i].entries[0][1] = value
			}))
		}
	}
	for name, value := range values("k1") {
		if len(value) <= 4096 {
			all = append(all, plainEnvoyRequest().with("all values: "+name, func(a *envoyRequest) {
				for _, d := range a.descriptors {
					d.entries[0][1] = value
				}
			}))
		}
	}
	return all
}

func pointer(n uint64) *uint64 { return &n }

// envoyRequests are what a sender's configuration, or another version of it, makes of the request. It may concern one
// layer; all others are to be met as before.
func envoyRequests() (all []envoyRequest) {
	add := func(name string, change func(*envoyRequest)) {
		all = append(all, plainEnvoyRequest().apart(name, change))
	}
	add("each twice", func(a *envoyRequest) { a.descriptors = append(a.descriptors, a.descriptors...) })
	add("each twice in a row", func(a *envoyRequest) {
		a.descriptors = slices.Concat(slices.Repeat(a.descriptors[:1], 2), a.descriptors[1:])
	})
	add("backwards", func(a *envoyRequest) { slices.Reverse(a.descriptors) })
	for _, n := range []int{2, 24} {
		add(fmt.Sprintf("one %d times", n), func(a *envoyRequest) {
			a.descriptors = append(slices.Repeat(a.descriptors[:1], n-1), a.descriptors...)
		})
	}
	for _, n := range []uint64{0, 1, 2, 1000} {
		add(fmt.Sprintf("%d hits", n), func(a *envoyRequest) { a.hits = &n; a.atLeast = every(int64(max(n, 1))) })
		add(fmt.Sprintf("%d hits of one", n), func(a *envoyRequest) {
			a.descriptors[0].hits = &n
			a.atLeast = map[string]int64{"remote_address": int64(n)}
			if n == 0 {
				a.spares = []string{"remote_address"} // 0 peeks there
			}
		})
	}
	add("2^32-1 hits", func(a *envoyRequest) { a.hits = pointer(math.MaxUint32) })
	add("2^32-1 hits of one", func(a *envoyRequest) { a.descriptors[0].hits = pointer(math.MaxUint32) })
	add("2^64-1 hits of one", func(a *envoyRequest) { a.descriptors[0].hits = pointer(math.MaxUint64) })
	for i, l := range Layers() {
		add("a limit for "+l.Key, func(a *envoyRequest) {
			a.descriptors[i].limit, a.spares = appendNumber(appendNumber(nil, 1, 1000), 2, 3), []string{l.Key}
		})
		add("another entry after "+l.Key, func(a *envoyRequest) {
			a.descriptors[i].entries = append(a.descriptors[i].entries, [2]string{"more", ""})
			a.spares = []string{l.Key}
		})
		add("the entry twice in "+l.Key, func(a *envoyRequest) {
			a.descriptors[i].entries = append(a.descriptors[i].entries, a.descriptors[i].entries[0])
			a.spares = []string{l.Key}
		})
		add("capital letters in the key "+l.Key, func(a *envoyRequest) {
			a.descriptors[i].entries[0][0], a.spares = strings.ToUpper(l.Key), []string{l.Key}
		})
		add("a blank after the key "+l.Key, func(a *envoyRequest) {
			a.descriptors[i].entries[0][0], a.spares = l.Key+" ", []string{l.Key}
		})
		add("no entries of "+l.Key, func(a *envoyRequest) { a.descriptors[i].entries, a.spares = nil, []string{l.Key} })
		add("an unknown field in "+l.Key, func(a *envoyRequest) {
			a.descriptors[i].unknown = appendNumber(nil, 999,
				1)
		})
	}
	add("an unknown descriptor before", func(a *envoyRequest) {
		a.descriptors = append([]descriptor{{entries: [][2]string{{"unknown", "x"}}}}, a.descriptors...)
	})
	add("unknown fields", func(a *envoyRequest) {
		a.unknown = appendBytes(appendNumber(nil, 999, 1), 1000,
			[]byte("\xff"))
	})
	add("the domain twice", func(a *envoyRequest) { a.unknown = appendBytes(nil, 1, []byte("edge")) })
	add("hits twice", func(a *envoyRequest) { a.hits, a.unknown = pointer(5), appendNumber(nil, 3, 0) })
	return all
}

func every(n int64) map[string]int64 {
	all := map[string]int64{}
	for _, l := range Layers() {
		all[l.Key] = n
	}
	return all
}
