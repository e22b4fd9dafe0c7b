package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"

	"github.com/edgelimit/edgelimit/node/rules"
)

// redisCLI runs the redis-cli of a Redis' own image.
func (c *Cluster) redisCLI(ctx context.Context, ctr *container, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.docker(ctx, append([]string{"exec", ctr.ID, "redis-cli"}, args...)...)
}

// expectRedis runs a command of Redis that has a certain answer.
func (c *Cluster) expectRedis(ctx context.Context, ctr *container, command, answer string) error {
	out, err := c.redisCLI(ctx, ctr, command)
	if err == nil && out != answer {
		err = fmt.Errorf("it answers %q to %s", out, command)
	}
	return err
}

func (c *Cluster) pingRedis(ctx context.Context, ctr *container) error {
	switch {
	case !ctr.running():
		return fmt.Errorf("it is not running (%s)", ctr.State.Status)
	case c.isPaused(ctx, ctr): // redis-cli would hang
		return errPaused
	}
	return c.expectRedis(ctx, ctr, "PING", "PONG")
}

// FlushRedis makes the Redis of a region lose everything.
func (c *Cluster) FlushRedis(ctx context.Context, region string) error {
	ctr, err := c.findRunning(ctx, RedisName(region))
	if err != nil {
		return err
	}
	return c.expectRedis(ctx, &ctr, "FLUSHALL", "OK")
}

// fieldsOfKeys is a script that returns the fields of the hashes whose names match, an empty line after each.
const fieldsOfKeys = `local all = {}
for _, name in ipairs(redis.call("KEYS", ARGV[1])) do
	for _, text in ipairs(redis.call("HGETALL", name)) do all[#all + 1] = text end
	all[#all + 1] = ""
end
return all`

// RedisCounts returns how much the Redis of a region holds of a rule and an identity, by origin, all sub-windows
// together. See package regions for how slots lie in Redis.
func (c *Cluster) RedisCounts(ctx context.Context, region string, rule *rules.Rule, identity string) (
	map[string]uint64, error,
) {
	key, err := c.key(ctx, rule, identity)
	if err != nil {
		return nil, err
	}
	ctr, err := c.findRunning(ctx, RedisName(region))
	if err != nil {
		return nil, err
	}
	// One command, as each takes a container's time to start a process.
	out, err := c.redisCLI(ctx, &ctr, "--raw", "EVAL", fieldsOfKeys, "0", "el1:{*}:"+key+":*:"+rule.FullName)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]uint64)
	for hash := range strings.SplitSeq(out, "\n\n") {
		if err := addFields(counts, strings.Fields(hash)); err != nil {
			return nil, fmt.Errorf("%s: %w", RedisName(region), err)
		}
	}
	return counts, nil
}

// key returns the nodes' key for the rule's identity, in hexadecimal.
func (c *Cluster) key(ctx context.Context, rule *rules.Rule, identity string) (string, error) {
	keys, err := c.keys(ctx)
	if err != nil {
		return "", err
	}
	set, err := rulefile.Load(c.Rules())
	if err != nil {
		return "", err
	}
	matches, err := set.Match(&rules.Request{Rule: rule.FullName, Identity: identity}, keys.Identity, nil)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%016x", uint64(matches[0].Key)), nil
}

// addFields adds the fields of a hash, names and counts in turn, to the counts by origin. What an origin wrote itself
// (.) and what others restored for it (~) are the same slot, of which the larger counts.
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
