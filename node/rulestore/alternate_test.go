package rulestore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Bad versions that take turns are fetched once each, not at each look; who writes ever new ones is forgotten in turn.
func TestAlternatingBadVersions(t *testing.T) {
	t.Parallel()
	redis := regionstest.StartRedis(t)
	s := open(t, "redis://"+redis.Addr())
	publish(t, s, Rules, rulesOf(t, 1, 10))
	const size = 1 << 18
	var heads []string
	for i := range 3 {
		text := fmt.Sprintf(`{"files":[{"name":"r.yaml","text":"%d domain: [ %s"}]}`, i, strings.Repeat("x", size))
		bad, err := NewDocument([]byte(text), "mallory", "", time.Now())
		testkit.Must(t, err)
		bad.Version.Version = uint64(2 + i)
		publish(t, s, Rules, bad)
		heads = append(heads, redis.Do("GET", Rules.key(inForce)))
	}
	f, look := synced(t, s, "")
	before := stat(t, redis, "stats", `total_net_output_bytes:(\d+)`)
	for range 5 {
		for _, h := range heads {
			redis.Do("SET", Rules.key(inForce), h)
			look()
			if !f.hasProblem("by mallory")() {
				t.Fatalf("the problems are %q", f.Status().Problems)
			}
		}
	}
	if sent := stat(t, redis, "stats", `total_net_output_bytes:(\d+)`) - before; sent > 4*size {
		t.Errorf("15 looks at 3 texts of %d bytes fetched %d bytes", size, sent)
	}
	for i := range 10 * maxRefused {
		f.refuseHead(Rules, head{uint64(i + 1), sum(nil)}, "bad", time.Time{})
	}
	if n := len(f.Source.refused[Rules]); n != maxRefused {
		t.Errorf("%d refusals are remembered", n)
	}
}
