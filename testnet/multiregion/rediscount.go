package multiregion

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
)

// RedisCounts asks the Redis of a region how much it holds of a rule and an identity, by origin, all sub-windows together. It reads what
// the nodes wrote there: see package regions for how slots lie in Redis.
func (t *Testnet) RedisCounts(ctx context.Context, region string, rule *rules.Rule, identity string) (map[string]uint64, error) {
	key, err := t.key(rule, identity)
	if err != nil {
		return nil, err
	}
	c, err := t.running(ctx, RedisName(region))
	if err != nil {
		return nil, err
	}
	names, err := t.redis(ctx, c, "--raw", "KEYS", "el1:{*}:"+key+":*:"+rule.FullName)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]uint64)
	for name := range strings.FieldsSeq(names) {
		fields, err := t.redis(ctx, c, "--raw", "HGETALL", name)
		if err != nil {
			return nil, err
		}
		if err := addFields(counts, strings.Fields(fields)); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", RedisName(region), name, err)
		}
	}
	return counts, nil
}

// key is how the nodes call the rule's identity, in hexadecimal.
func (t *Testnet) key(rule *rules.Rule, identity string) (string, error) {
	keys, err := node.ReadKeyFile(filepath.Join(t.compose.Dir, filepath.FromSlash(keyFile)))
	if err != nil {
		return "", err
	}
	set, err := rules.Load(t.RulesFile())
	if err != nil {
		return "", err
	}
	matches, err := set.Match(&rules.Request{Rule: rule.FullName, Identity: identity}, keys.Identity, nil)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%016x", uint64(matches[0].Key)), nil
}

// RulesFile is the file of the nodes' rules.
func (t *Testnet) RulesFile() string {
	if name := os.Getenv("EDGELIMIT_TESTNET_RULES"); filepath.IsAbs(name) {
		return name
	} else if name != "" {
		return filepath.Join(t.compose.Dir, name)
	}
	return filepath.Join(t.compose.Dir, "testnet", "compose", "rules.yaml")
}

// addFields adds the fields of a hash, names and counts in turn, to the counts by origin. What an origin told itself (.) and what others
// restored for it (~) are the same slot, of which the larger counts.
func addFields(counts map[string]uint64, fields []string) error {
	if len(fields)%2 != 0 {
		return fmt.Errorf("%d names and counts", len(fields))
	}
	slots := make(map[string]uint64)
	for i := 0; i < len(fields); i += 2 {
		n, err := strconv.ParseUint(fields[i+1], 10, 64)
		if err != nil {
			return fmt.Errorf("field %s: %w", fields[i], err)
		}
		slot := strings.Replace(fields[i], "~", ".", 1)
		slots[slot] = max(slots[slot], n)
	}
	for slot, n := range slots {
		origin, _, _ := strings.Cut(slot, ".")
		counts[origin] += n
	}
	return nil
}

// Said returns what a container of the testnet has said so far, its last lines only if there are many.
func (t *Testnet) Said(ctx context.Context, name string) (string, error) {
	c, err := t.find(ctx, name)
	if err != nil {
		return "", err
	}
	return t.engine.Logs(ctx, c.ID, 10_000)
}
