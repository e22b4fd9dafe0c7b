package reference

// setting is an environment that both programs run in, beside what they need to run.
type setting struct {
	name  string
	env   []string
	files map[string]string // beside rules.yaml
}

// settings are those that all scripts run in. Random sessions take turns.
var settings = []setting{
	{name: "defaults"},
	{name: "headers", env: []string{"LIMIT_RESPONSE_HEADERS_ENABLED=true"}},
	{name: "headers with names", env: []string{
		"LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_LIMIT_HEADER=X-RateLimit-Limit",
		"LIMIT_REMAINING_HEADER=X-RateLimit-Remaining", "LIMIT_RESET_HEADER=x-ratelimit-reset",
	}},
	{name: "shadow", env: []string{"SHADOW_MODE=true"}},
	{name: "quota", env: []string{"QUOTA_MODE=true"}},
	{name: "metadata", env: []string{"RESPONSE_DYNAMIC_METADATA=true"}},
	{name: "near limit ratio", env: []string{"NEAR_LIMIT_RATIO=0.5"}},
	{name: "merged domains", env: []string{"MERGE_DOMAIN_CONFIG=true"}, files: map[string]string{
		"more.yaml": "domain: edge\ndescriptors:\n  - {key: merged, rate_limit: {unit: hour, requests_per_unit: 2}}\n",
	}},
	{name: "stopped increments", env: []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"}},
	{name: "local cache", env: []string{"LOCAL_CACHE_SIZE_IN_BYTES=1048576"}},
	{name: "stopped increments and local cache", env: []string{
		"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", "LOCAL_CACHE_SIZE_IN_BYTES=1048576",
	}},
	{name: "key prefix", env: []string{"CACHE_KEY_PREFIX=prod_", "EXPIRATION_JITTER_MAX_SECONDS=0"}},
	{name: "shadow, headers and metadata", env: []string{
		"SHADOW_MODE=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true",
	}},
	{name: "quota, headers and metadata", env: []string{
		"QUOTA_MODE=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true",
	}},
}
