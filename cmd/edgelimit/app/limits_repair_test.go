package app

import (
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/regions/regionstest"
)

// Garbage in the place of the overrides is replaced with --above, and only with it: by what the latest version that can
// be read had, and the change. Nothing but what is damaged is lost.
func TestLimitsOverGarbage(t *testing.T) {
	const at = "elrules1:{rules}:limits:"
	for name, test := range map[string]struct {
		damage []any
		keeps  bool // the override of before
		above  string
		want   string // the version
	}{
		"another writer": {[]any{"SET", at + "current", "x"}, true, "1", "version 2"},
		"no version of ours": {[]any{"SET", at + "current", strings.Repeat("9", 20) + " " + strings.Repeat("a", 64)},
			true, "1", "version 2"},
		"another hash":        {[]any{"SET", at + "current", "7 " + strings.Repeat("a", 64)}, true, "1", "version 8"},
		"damaged description": {[]any{"HSET", at + "versions", "1", "{"}, false, "1", "version 2"},
		"damaged text":        {[]any{"HSET", at + "texts", "1", `{"limits":[{}]}`}, false, "1", "version 2"},
		"lost text":           {[]any{"HDEL", at + "texts", "1"}, false, "1", "version 2"},
		"large text":          {[]any{"HSET", at + "texts", "1", strings.Repeat("x", 33<<20)}, false, "1", "version 2"},
	} {
		for _, unset := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				redis := regionstest.StartRedis(t)
				url := "--redis=redis://" + redis.Addr()
				edgelimit(t, "rules", "push", hourly(t, 5), url).says(t, 0, "version 1")
				edgelimit(t, "limits", "set", "per_ip", "192.0.2.1", "9/hour", url, "--key-file=none").says(t, 0,
					"9 in 1 h")
				redis.Do(test.damage...)
				change := []string{"limits", "set", "per_ip", "192.0.2.2", "8/hour", url, "--key-file=none"}
				if unset {
					change = []string{"limits", "unset", "per_ip", "192.0.2.3", url, "--key-file=none"}
				}
				edgelimit(t, change...).says(t, 2, "nothing was published", "--above N replaces it")
				edgelimit(t, append(change, "--above", test.above)...).says(t, 0)
				list := edgelimit(t, "limits", "list", url)
				list.says(t, 0)
				if got := strings.Contains(list.out, "9 in 1 h"); got != test.keeps {
					t.Errorf("the override of before: %v in %s", got, list.out)
				}
				if got := strings.Contains(list.out, "8 in 1 h"); got == unset {
					t.Errorf("the new override: %v in %s", got, list.out)
				}
				if got := "version " + strings.Fields(redis.Do("GET", at+"current"))[0]; got != test.want {
					t.Errorf("%s is in force, want %s", got, test.want)
				}
				edgelimit(t, "limits", "set", "per_ip", "192.0.2.4", "7/hour", url, "--key-file=none").says(t, 0)
			})
		}
	}
}

// Keys of another type are named, and what to do: a value in the place of the version is replaced, others are not.
func TestLimitsOverKeysOfAnotherType(t *testing.T) {
	redis := regionstest.StartRedis(t)
	url := "--redis=redis://" + redis.Addr()
	edgelimit(t, "rules", "push", hourly(t, 5), url).says(t, 0, "version 1")
	set := []string{"limits", "set", "per_ip", "192.0.2.1", "9/hour", url, "--key-file=none", "--above", "3"}
	redis.Do("SET", "elrules1:{rules}:limits:texts", "x")
	edgelimit(t, set...).says(t, 2, "another program has written", "elrules1:{rules}:", "delete")
	redis.Do("DEL", "elrules1:{rules}:limits:texts")
	redis.Do("DEL", "elrules1:{rules}:limits:current")
	redis.Do("LPUSH", "elrules1:{rules}:limits:current", "x")
	edgelimit(t, set...).says(t, 0, "9 in 1 h")
	edgelimit(t, "limits", "list", url, "--json").says(t, 0, `"version": 4`)
}
