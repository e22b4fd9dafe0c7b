package actions

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
)

// OnMissing is the reserved key of a descriptor: {api_key: header X-Api-Key, on_missing: deny}. Its entry adds no key
// to the descriptor. Its source is what happens where a source of the descriptor is missing in a request: Skip (the
// default), Count or Deny.
const OnMissing = "on_missing"

// Descriptor is a list of entries, at most one of which has the key OnMissing.
type Descriptor []Entry

// Entry is a key, and where its value comes from:
//
//	client           the client's address
//	client_cert      the name in the verified certificate that the sender of the request showed: its first URI (as a
//	                 SPIFFE ID), else its first DNS name, else its common name. At /v1/auth that is the proxy's, as
//	                 the proxy ends the client's TLS; headers that describe the client's certificate are not read
//	method, host     of the request; the method in capital letters, the host in small ones, without its port
//	path             its path, decoded and cleaned of /./, /../ and doubled or trailing slashes
//	header NAME      a header
//	cookie NAME      a cookie
//	query NAME       a parameter of the query
//	jwt CLAIM        a text or number of the bearer's token, which nobody has verified here
//	template PATH    the segment of the path at {name}, as in /tenants/{tenant}/*
//	text VALUE       that, always
//
// A source that was sent with several different values, or in a form that servers read differently, has several values:
// see Config.OnAmbiguous and NORMALIZATION.md.
type Entry struct{ Key, Source string }

// UnmarshalYAML reads the entries of a map in their order.
func (d *Descriptor) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a descriptor is a map of keys and sources, as in {remote_address: client}", n.Line)
	}
	for i := 0; i < len(n.Content); i += 2 {
		var e Entry
		if err := errors.Join(n.Content[i].Decode(&e.Key), n.Content[i+1].Decode(&e.Source)); err != nil {
			return err
		}
		*d = append(*d, e)
	}
	return nil
}

// descriptor is a Descriptor that is ready for use.
type descriptor struct {
	entries   []entry
	onMissing string
}

type entry struct {
	key string
	source
}

// compile parses the sources of the descriptor with the number n, and calls wrong for each thing that is wrong.
func (d Descriptor) compile(n int, wrong func(format string, args ...any)) descriptor {
	compiled := descriptor{onMissing: Skip}
	policies := 0
	for _, e := range d {
		if e.Key == OnMissing {
			compiled.onMissing = e.Source
			if policies++; policies > 1 || !slices.Contains([]string{Skip, Count, Deny}, e.Source) {
				wrong("descriptor %d, %s: %q, want one of %s, %s, %s, once", n, OnMissing, e.Source, Skip, Count, Deny)
			}
			continue
		}
		s, err := parseSource(e.Source)
		if err != nil {
			wrong("descriptor %d, %s: %w", n, e.Key, err)
		}
		if e.Key == "" {
			wrong("descriptor %d: a key is empty", n)
		}
		compiled.entries = append(compiled.entries, entry{e.Key, s})
	}
	if len(compiled.entries) == 0 || len(compiled.entries) > rules.MaxEntries {
		wrong("descriptor %d: it has %d entries, want 1 to %d", n, len(compiled.entries), rules.MaxEntries)
	}
	return compiled
}

// Entries returns the entries of the descriptor that have a source, in their order.
func (d Descriptor) Entries() []Entry {
	return slices.DeleteFunc(slices.Clone(d), func(e Entry) bool { return e.Key == OnMissing })
}

// Shape is what the descriptor looks like to rules in every request.
func (d Descriptor) Shape() []rules.Shape {
	var shape []rules.Shape
	for _, e := range d.Entries() {
		kind, argument, _ := strings.Cut(e.Source, " ")
		s := rules.Shape{Key: e.Key}
		if kind == "text" {
			s.Value, s.Fixed = strings.TrimSpace(argument), true
		}
		shape = append(shape, s)
	}
	return shape
}

// String names the keys, with the values of texts: "(plan=free, remote_address)".
func (d Descriptor) String() string {
	var parts []string
	for _, s := range d.Shape() {
		if s.Fixed {
			s.Key += "=" + s.Value
		}
		parts = append(parts, s.Key)
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// ReadsClient reports whether the client's address is in the descriptor.
func (d Descriptor) ReadsClient() bool {
	return d.reads(func(k kind) bool { return k == fromClient })
}

// ReadsClientCert reports whether the name in the sender's certificate is in the descriptor.
func (d Descriptor) ReadsClientCert() bool {
	return d.reads(func(k kind) bool { return k == fromClientCert })
}

// ReadsOriginal reports whether something is in the descriptor that /v1/auth knows by the word of trusted proxies
// alone: what the original request asks for. Other headers of it are taken from whoever sends them.
func (d Descriptor) ReadsOriginal() bool {
	return d.reads(func(k kind) bool { return kinds[k].original })
}

func (d Descriptor) reads(is func(kind) bool) bool {
	return slices.ContainsFunc(d.Entries(), func(e Entry) bool {
		s, err := parseSource(e.Source)
		return err == nil && is(s.kind)
	})
}
