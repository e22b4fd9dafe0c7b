package rules

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dchest/siphash"
	"pgregory.net/rapid"

	"github.com/edgelimit/edgelimit/counters"
)

var testSecret = Secret{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// All nodes of a cluster, of whatever version, must agree on these: a change loses every count of every cluster.
func TestKeyGolden(t *testing.T) {
	tests := []struct {
		secret  Secret
		entries []Entry
		want    counters.Key
	}{
		{testSecret, []Entry{{"remote_address", "192.0.2.1"}}, 0x3beef9eccc9068c9},
		{testSecret, []Entry{{"path", "/login"}, {"remote_address", "2001:db8::1"}}, 0x3aee094d9a959c71},
		{testSecret, []Entry{{"api_key", strings.Repeat("k", 1000)}}, 0xd6cf5345feb03b5b},
		{Secret{}, []Entry{{"remote_address", "192.0.2.1"}}, 0x68720e10dfeab08e},
	}
	for _, tt := range tests {
		req := Request{Domain: "edge", Descriptors: [][]Entry{tt.entries}}
		got, err := sample(t).Match(&req, tt.secret, nil)
		if err != nil || got[0].Rule == nil || got[0].Key != tt.want {
			t.Errorf("%.60q has the key %#x of %v, want %#x (%v)", tt.entries, uint64(got[0].Key), got[0].Rule,
				uint64(tt.want), err)
		}
	}
}

// As golden as those: the keys of identities under limits that no rule has.
func TestKeyOfGolden(t *testing.T) {
	for identity, want := range map[string]counters.Key{"": 0x726fdb47dd0e0e31, "user123": 0x3de0e0809e9ba287} {
		if got := KeyOf(testSecret, []byte(identity)); got != want {
			t.Errorf("%q has the key %#x, want %#x", identity, uint64(got), uint64(want))
		}
	}
	if KeyOf(Secret{}, []byte("user123")) == KeyOf(testSecret, []byte("user123")) {
		t.Error("another secret makes no other key")
	}
}

// slowKey computes a key naively, one string after the other.
func slowKey(secret Secret, values ...string) counters.Key {
	h := siphash.New(secret[:])
	for _, s := range values {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	return counters.Key(h.Sum64())
}

func TestKeyOfAnyLength(t *testing.T) {
	s := mustParse(t, "domain: d\ndescriptors: [{key: a, descriptors: [{key: b, rate_limit: {unlimited: true}}]}]")
	for n := range 2 * stackKey {
		a, b := strings.Repeat("a", n), strings.Repeat("b", n/3)
		req := Request{Domain: "d", Descriptors: [][]Entry{{{"a", a}, {"b", b}}}}
		got, err := s.Match(&req, testSecret, nil)
		if want := slowKey(testSecret, a, b); err != nil || got[0].Key != want {
			t.Fatalf("values of %d and %d bytes have the key %#x, want %#x (%v)", len(a), len(b), got[0].Key, want, err)
		}
	}
}

func TestKeysDiffer(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - key: a
    rate_limit: {unlimited: true}
    descriptors: [{key: b, rate_limit: {unlimited: true}}]
  - key: b
    rate_limit: {unlimited: true}
`)
	seen := make(map[counters.Key]string)
	for _, secret := range []Secret{{}, {15: 1}, testSecret} {
		for _, entries := range [][]Entry{
			{{"a", "x"}}, {{"a", ""}}, {{"a", "x"}, {"b", ""}}, {{"a", ""}, {"b", "x"}}, {{"a", "a"}, {"b", "bc"}},
			{{"a", "ab"}, {"b", "c"}}, {{"a", "\x01a"}, {"b", ""}}, {{"a", "a\x02bc"}}, {{"a", "\x00"}}, {{"a", "X"}},
		} {
			req := Request{Domain: "d", Descriptors: [][]Entry{entries}}
			got, err := s.Match(&req, secret, nil)
			if err != nil || got[0].Rule == nil {
				t.Fatalf("%q meets nothing: %v", entries, err)
			}
			id := fmt.Sprintf("%q under %d", entries, secret[:])
			if other, dup := seen[got[0].Key]; dup {
				t.Errorf("%s has the same key as %s", id, other)
			}
			seen[got[0].Key] = id
		}
	}
}

func TestKeyInputIsUnambiguous(t *testing.T) {
	list := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("\x00\x01\x02a")), 0, 3, -1), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		input := func(values []string) (b []byte) {
			for _, v := range values {
				b = appendSized(b, v)
			}
			return b
		}
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		if slices.Equal(a, b) != slices.Equal(input(a), input(b)) {
			t.Fatalf("%q and %q hash the same bytes", a, b)
		}
	})
}

func TestSecretIsNotPrinted(t *testing.T) {
	for _, verb := range []string{"%v", "%s", "%+v"} {
		if got := fmt.Sprintf(verb, testSecret); got != "(secret)" {
			t.Errorf("%s prints %q", verb, got)
		}
	}
}
