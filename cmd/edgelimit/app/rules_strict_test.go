package app

import "testing"

// A file with strict rules is valid by itself; whether a node knows the Redis that decides, its configuration says.
func TestRulesValidateKnowsStores(t *testing.T) {
	file := ruleFile(t, `
domain: edge
descriptors:
  - {key: account, rate_limit: {unit: hour, requests_per_unit: 10, consistency: strict, home_region: us-east}}
`)
	edgelimit(t, "rules", "validate", file).says(t, 0, "valid: 1 rule", "does not know the Redis that decides")
	without := nodeFile(t, file, "region: eu-west\nredis: {url: redis://127.0.0.1:6379}\n")
	edgelimit(t, "rules", "validate", "--config", without).says(t, 1, "needs the Redis of region \"us-east\"",
		"set strict.redis in its configuration, as in {us-east: {url: redis://host:6379}}")
	with := nodeFile(t, file, "region: eu-west\nstrict: {redis: {us-east: {url: redis://127.0.0.1:6379}}}\n")
	edgelimit(t, "rules", "validate", "--config", with).says(t, 0, "valid: 1 rule")
	home := nodeFile(t, file, "region: us-east\nredis: {url: redis://127.0.0.1:6379}\n")
	edgelimit(t, "rules", "validate", "--config", home).says(t, 0, "valid: 1 rule")
}

func TestStrictRedisFlag(t *testing.T) {
	edgelimit(t, "serve", "--strict-redis", "redis://127.0.0.1:6379").says(t, 2, "--strict-redis wants REGION=URL")
	edgelimit(t, "serve", "--strict-redis", "us=redis://10.0.0.1:6379").says(t, 2,
		"strict.redis.us.url: a Redis beyond loopback needs a key file")
	t.Setenv("EDGELIMIT_STRICT_REDIS", "us=redis://127.0.0.1:6379 eu=redis://10.0.0.1:6379")
	edgelimit(t, "serve").says(t, 2, "strict.redis.eu.url: a Redis beyond loopback needs a key file")
}
