package rulefile

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// replacing returns the rules of a domain, of which each replaces those with the given numbers; beyond the last is the
// name of none.
func replacing(replaces [][]int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i, others := range replaces {
		fmt.Fprintf(&b, "  - {key: k%d, rate_limit: {name: r%d, unit: hour, requests_per_unit: 1", i, i)
		if len(others) > 0 {
			b.WriteString(", replaces: [")
			for _, other := range others {
				fmt.Fprintf(&b, "{name: r%d},", other)
			}
			b.WriteString("]")
		}
		b.WriteString("}}\n")
	}
	return b.String()
}

// Of any rules that replace each other at random those that are accepted leave a limit to every request that meets one,
// and those that are refused do not, or name no rule. envoyproxy/ratelimit takes them all, except a rule that replaces
// itself: with its files each is a warning.
func TestWhatIsReplacedLeavesALimit(t *testing.T) {
	accepted, circles, unknown := 0, 0, 0
	for seed := range uint64(3000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		replaces := make([][]int, 1+draw.IntN(6))
		itself, none := false, false
		for i := range replaces {
			for range draw.IntN(3) {
				other := draw.IntN(len(replaces))
				if draw.IntN(20) == 0 {
					other, none = len(replaces), true
				}
				itself = itself || other == i
				replaces[i] = append(replaces[i], other)
			}
		}
		text := replacing(replaces)
		reference, err := compatible.Parse("f.yaml", []byte(text))
		if (err != nil) != itself {
			t.Fatalf("as envoyproxy/ratelimit: %v\n%s", err, text)
		}
		if itself {
			continue
		}
		open := leavesNone(t, reference, len(replaces))
		_, err = Parse("f.yaml", []byte(text))
		if (err != nil) != (open || none) {
			t.Fatalf("a request without a limit: %v, an unknown name: %v, and yet %v\n%s", open, none, err, text)
		}
		if (err != nil) != (len(reference.Warnings()) > 0) {
			t.Fatalf("refused: %v; as envoyproxy/ratelimit: %v", err, reference.Warnings())
		}
		switch {
		case open:
			circles++
		case none:
			unknown++
		default:
			accepted++
		}
	}
	if accepted < 100 || circles < 100 || unknown < 100 {
		t.Errorf("%d were accepted, %d had circles and %d unknown names", accepted, circles, unknown)
	}
}

// leavesNone reports whether some request meets rules of a set of so many, and none is left.
func leavesNone(t *testing.T, s *rules.Set, count int) bool {
	t.Helper()
	for met := 1; met < 1<<count; met++ {
		req := rules.Request{Domain: "d"}
		for i := range count {
			if met>>i&1 == 1 {
				req.Descriptors = append(req.Descriptors, []rules.Entry{{Key: fmt.Sprintf("k%d", i), Value: "v"}})
			}
		}
		layers, err := s.Match(&req, rules.Secret{1}, nil)
		testkit.Must(t, err)
		left := 0
		for i := range layers {
			if layers[i].Rule != nil {
				left++
			}
		}
		if left == 0 {
			return true
		}
	}
	return false
}

// Circles of any length are found, and described in a line.
func TestLongCircle(t *testing.T) {
	const length = 15_000
	replaces := make([][]int, length)
	for i := range replaces {
		replaces[i] = []int{(i + 1) % length}
	}
	_, err := Parse("f.yaml", []byte(replacing(replaces)))
	if err == nil || !strings.Contains(err.Error(), "rules replace each other: r0 > r1 > ") || len(err.Error()) > 400 {
		t.Errorf("%.400v", err)
	}
}
