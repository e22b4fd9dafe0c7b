package rules

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
)

func TestEffectiveCost(t *testing.T) {
	tests := []struct {
		req  Request
		want uint64
	}{
		{
			Request{}, 1,
		}, {Request{Cost: 1}, 1}, {Request{Cost: 7}, 7}, {Request{Peek: true}, 0}, {Request{Peek: true, Cost: 7}, 0},
	}
	for _, tt := range tests {
		if got := tt.req.EffectiveCost(); got != tt.want {
			t.Errorf("cost %d with peek %v charges %d, want %d", tt.req.Cost, tt.req.Peek, got, tt.want)
		}
	}
}

func TestInvalidRequests(t *testing.T) {
	one := [][]Entry{{{"remote_address", "192.0.2.1"}}}
	tests := []struct {
		name string
		req  Request
		want string
	}{
		{"nothing", Request{}, "give a domain and descriptors, or a rule and an identity"},
		{"both", Request{Domain: "edge", Descriptors: one, Rule: "per_ip", Identity: "192.0.2.1"}, "not both"},
		{"rule and descriptors", Request{Descriptors: one, Rule: "per_ip"}, "not both"},
		{"identity alone", Request{Identity: "192.0.2.1"}, "an identity needs the rule"},
		{"identity with descriptors", Request{Domain: "edge", Descriptors: one, Identity: "192.0.2.1"},
			"an identity needs the rule"},
		{"no domain", Request{Descriptors: one}, "the domain is empty"},
		{"no descriptors", Request{Domain: "edge"}, "there are no descriptors"},
		{"too many descriptors", Request{Domain: "edge", Descriptors: slices.Repeat(one, 33)},
			"33 descriptors, at most 32"},
		{"no entries", Request{Domain: "edge", Descriptors: [][]Entry{one[0], {}}}, "descriptor 2 has no entries"},
		{"too many entries", Request{Domain: "edge", Descriptors: [][]Entry{slices.Repeat(one[0], 33)}},
			"descriptor 1 has 33 entries, at most 32"},
		{"empty key", Request{Domain: "edge", Descriptors: [][]Entry{one[0], {one[0][0], {"", "x"}}}},
			"entry 2 of descriptor 2 has an empty key"},
		{"cost", Request{Domain: "edge", Descriptors: one, Cost: counters.MaxLimit + 1},
			"cost 1099511627777 is above 1099511627776"},
		{"cost with a rule", Request{Rule: "per_ip", Identity: "192.0.2.1", Cost: 1 << 63}, "is above"},
		{"cost of a peek", Request{Rule: "per_ip", Identity: "192.0.2.1", Cost: 1 << 63, Peek: true}, "is above"},
		{"asks", Request{Domain: "edge", Descriptors: one, Asks: make([]Ask, 2)}, "2 asks for 1 descriptors"},
		{"asks of a rule", Request{Rule: "per_ip", Identity: "192.0.2.1", Asks: make([]Ask, 1)},
			"1 asks for 0 descriptors"},
		{"cost of an ask", Request{Domain: "edge", Descriptors: one, Asks: []Ask{{Cost: counters.MaxLimit + 1}}},
			"cost 1099511627777 of descriptor 1 is above"},
		{
			"identity missing",
			Request{Rule: "per_ip"},
			"rule per_ip counts by remote_address: give one as the identity",
		},
		{
			"identity not wanted",
			Request{Rule: "partner", Identity: "x"},
			"rule partner has one count for everybody: leave the identity empty",
		},
	}
	before := []Match{{Key: 1}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sample(t).Match(&tt.req, Secret{}, before)
			if !errors.Is(err, ErrInvalidRequest) || errors.Is(err, ErrUnknownRule) ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
			if !slices.Equal(got, before) {
				t.Errorf("dst is changed to %v", got)
			}
		})
	}
}

func TestLargestRequestIsValid(t *testing.T) {
	entries := slices.Repeat([]Entry{{"k", ""}}, MaxEntries)
	req := Request{
		Domain:      "edge",
		Descriptors: slices.Repeat([][]Entry{entries}, MaxDescriptors),
		Cost:        counters.MaxLimit,
	}
	got, err := sample(t).Match(&req, Secret{}, nil)
	if err != nil || len(got) != MaxDescriptors {
		t.Errorf("%d matches: %v", len(got), err)
	}
}
