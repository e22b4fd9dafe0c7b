package rulestore

import (
	"bytes"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// FuzzDecodeCopy holds that no copy makes a panic, and that what is accepted is whole and within its bounds.
func FuzzDecodeCopy(f *testing.F) {
	d, err := NewDocument([]byte(`{"files":[{"name":"a","text":"domain: a"}]}`), "alice", "why", time.Unix(1.8e9, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encodeCopy(d))
	f.Add([]byte(copyHeader + sum(nil) + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, append([]byte(copyHeader+sum(b)+"\n"), b...)} { // no checksum is in the way
			d, err := decodeCopy(b)
			if err != nil {
				continue
			}
			if err := d.validate(); err != nil {
				t.Errorf("accepted, but %v", err)
			}
			if again, err := decodeCopy(encodeCopy(d)); err != nil || again.Version != d.Version ||
				!bytes.Equal(again.Text, d.Text) {
				t.Errorf("%+v is read back as %+v, %v", d.Version, again.Version, err)
			}
		}
	})
}

// FuzzDecodeTexts holds the same of the texts and of what is in force, and that rules take any override as a whole or
// refuse it.
func FuzzDecodeTexts(f *testing.F) {
	f.Add([]byte(`{"files":[{"name":"../a","text":"domain: a"},{"name":"b","text":""}]}`))
	f.Add([]byte(`{"limits":[{"rule":"test/client","key":"0123456789abcdef","identity":"000000000000002a","max":5,` +
		`"window":"1h","until":"2027-01-01T00:00:00Z","set":"2026-01-01T00:00:00Z","author":"a","note":"n"}]}`))
	f.Add([]byte("7 " + sum(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHead(string(b)); err == nil && h.String() != string(b) {
			t.Errorf("%q is read as %q", b, h)
		}
		if files, err := DecodeFiles(b); err == nil {
			if _, err := EncodeFiles(files); err != nil {
				t.Errorf("accepted, but %v", err)
			}
		}
		limits, all, err := decodeLimits(b)
		if err != nil {
			return
		}
		if _, err := EncodeLimits(limits); err != nil {
			t.Errorf("accepted, but %v", err)
		}
		set, err := rulefile.Options{}.ParseFiles(rulefile.File{Name: "r", Data: []byte("domain: test\ndescriptors: " +
			"[{key: client, rate_limit: {unit: hour, requests_per_unit: 1}}]")})
		testkit.Must(t, err)
		n := 0
		for _, list := range all {
			n += len(list)
			if refused := set.Override(list); len(refused) > len(list) {
				t.Errorf("%d of %d are refused", len(refused), len(list))
			}
		}
		if n != len(limits) {
			t.Errorf("%d of %d overrides", n, len(limits))
		}
	})
}
