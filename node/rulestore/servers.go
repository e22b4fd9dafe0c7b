package rulestore

import (
	"context"
	"errors"
	"fmt"
)

// Servers are the stores of several regions that hold the same documents. The first decides which of two publishers
// wins, the others follow it. There is at least one.
type Servers []*Store

// Close closes all of them.
func (s Servers) Close() error {
	var errs []error
	for _, store := range s {
		errs = append(errs, store.Close())
	}
	return errors.Join(errs...)
}

// Edit is the publication of a document in place of the one in force.
type Edit struct {
	Before  Document // what is in force, or the latest version that can be read; the zero value: there is none
	Damaged error    // why what is in force cannot be read; nil: it can

	servers Servers
	kind    Kind
	floor   uint64 // the new version is above that
}

// maxLead is how many versions a server may be ahead of what an Edit begins with: one that claims more is damaged or
// hostile, and would use up all versions.
const maxLead = 1 << 20

// tooFar is the error of a server that is further ahead.
func (s *Store) tooFar(k Kind, version uint64) error {
	return fmt.Errorf("%s: it claims version %d of the %s, over %d ahead of what is published: find out who wrote "+
		"that, delete its key %s and publish again", s, version, k, maxLead, k.key(inForce))
}

// Edit begins to replace a document, by a version above one. What is in force and damaged is replaced only if that is
// above 0: nobody knows then which version nodes have, but who asks for it.
func (s Servers) Edit(ctx context.Context, k Kind, above uint64) (*Edit, error) {
	before, err := s[0].Current(ctx, k)
	if err == nil && k == Limits && before.Version.Version > 0 {
		if _, err = DecodeLimits(before.Text); err != nil {
			err = fmt.Errorf("%s: %s: %w (%w)", s[0], k, err, ErrGarbage)
		}
	}
	e := &Edit{Before: before, servers: s, kind: k, floor: max(above, before.Version.Version)}
	switch {
	case err == nil:
		return e, nil
	case !errors.Is(err, ErrGarbage) && !errors.Is(err, ErrNoVersion):
		return nil, err
	case above == 0:
		return nil, fmt.Errorf("%w; --above N replaces it, with the version of the nodes (rules_version) as N", err)
	}
	if all, err := s[0].heads(ctx); err == nil {
		if all[k].version > e.floor+maxLead {
			return nil, s[0].tooFar(k, all[k].version)
		}
		e.floor = max(e.floor, all[k].version)
	}
	e.Damaged, e.Before = err, s[0].latestReadable(ctx, k)
	return e, nil
}

// latestReadable returns the latest version of the history that can be read; the zero Document if there is none.
func (s *Store) latestReadable(ctx context.Context, k Kind) Document {
	all, _ := s.History(ctx, k) // those that it could read
	for _, v := range all {
		d, err := s.Fetch(ctx, k, v.Version)
		if err == nil && k == Limits {
			_, err = DecodeLimits(d.Text)
		}
		if err == nil {
			return d
		}
	}
	return Document{}
}

// InForce reports whether the text of a document is in force in the first server, under a version that is later than
// those of other texts in the others. A server that does not answer, or is too far ahead, is left to Spread, which
// reports it.
func (e *Edit) InForce(ctx context.Context, d Document) bool {
	at, alone, most := e.Before.Version.Version, true, e.floor+maxLead
	for _, store := range e.servers[1:] {
		if other, err := store.Current(ctx, e.kind); err == nil && other.SHA256 != d.SHA256 &&
			other.Version.Version <= most {
			e.floor = max(e.floor, other.Version.Version)
			alone = alone && other.Version.Version < at
		}
	}
	return e.Damaged == nil && alone && e.Before.SHA256 == d.SHA256 && e.floor == at
}

// Number gives a document the version under which it is to be published: above all that InForce has seen.
func (e *Edit) Number(d *Document) { d.Version.Version = max(e.floor, e.Before.Version.Version) + 1 }

// Publish puts a document in force in the first server, with the version that Number gave it. It is a *ConflictError if
// another one came first.
func (e *Edit) Publish(ctx context.Context, d Document) error {
	if e.Damaged != nil {
		return e.servers[0].Follow(ctx, e.kind, d)
	}
	return e.servers[0].Publish(ctx, e.kind, d, e.Before)
}

// Reached is what became of a document in one server.
type Reached struct {
	Redis string `json:"redis"`
	Error string `json:"error,omitempty"`
}

// Spread has the other servers follow the first, and returns what became of the document in each.
func (s Servers) Spread(ctx context.Context, k Kind, d Document) []Reached {
	all := []Reached{{Redis: s[0].String()}}
	for _, store := range s[1:] {
		r := Reached{Redis: store.String()}
		if err := store.followText(ctx, k, d); err != nil {
			r.Error = err.Error()
		}
		all = append(all, r)
	}
	return all
}

// followText is Follow, but a later version is no failure if its text is the same.
func (s *Store) followText(ctx context.Context, k Kind, d Document) error {
	err := s.Follow(ctx, k, d)
	conflict, is := errors.AsType[*ConflictError](err)
	if !is {
		return err
	}
	now, readErr := s.Current(ctx, k)
	if readErr == nil && now.SHA256 == d.SHA256 {
		return nil
	}
	if conflict.InForce > d.Version.Version+maxLead {
		return s.tooFar(k, conflict.InForce)
	}
	return errors.Join(fmt.Errorf("it has other %s than version %d: %w", k, d.Version.Version, err), readErr)
}
