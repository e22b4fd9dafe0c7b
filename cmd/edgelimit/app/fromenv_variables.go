package app

// variable is a variable of envoyproxy/ratelimit's environment, as of July 2026. Of versions after that, and of changes
// that are proposed for it, there are some that people set already.
type variable struct {
	name string
	// missing is its value where it is not set.
	missing string
	// ignored says why another value has no meaning here; the node starts without it.
	ignored string
	// with is NAME=value of another variable, with which it is obeyed; empty: none.
	with string
}

// Reasons that several variables share.
const (
	maxAge     = "a connection is asked to end after 30 minutes, and has 10 seconds for the requests on it"
	pooled     = "no request waits for Redis: counts are written to it about once a second, in batches"
	noMemcache = "nothing is kept in memcached: counts are in memory, and in Redis if there is one"
	onePool    = "one Redis is enough: the counts of windows below 10 seconds are never written to it"
	noTracing  = "traces go over OTLP/HTTP to OTEL_EXPORTER_OTLP_ENDPOINT wherever that is set: see --otlp-endpoint"
	noTimers   = "a decision takes about a microsecond: there is no such statistic"
	noProm     = "it is for " + withPrometheus
	noXDS      = "it is for " + withXDS
	calendar   = "a month has 30 days and a year 365"
	nearestOne = "the headers are those of the limit that is nearest to being used up"
	backoff    = "the wait between two attempts doubles each time, and half of it is random"
	notNeeded  = "a node starts and is healthy without its Redis"
)

// The settings that others are for.
const (
	withXDS        = "CONFIG_TYPE=" + configXDS
	withPrometheus = "USE_PROMETHEUS=true"
)

// ratelimitVariables are all variables of envoyproxy/ratelimit. Those that are not ignored are obeyed.
var ratelimitVariables = []variable{
	{name: "HOST", missing: "0.0.0.0"},
	{name: "PORT", missing: "8080"},
	{name: "DEBUG_HOST", missing: "0.0.0.0"},
	{name: "DEBUG_PORT", missing: "6070"},
	{name: "GRPC_UDS"},
	{name: "GRPC_HOST", missing: "0.0.0.0"},
	{name: "GRPC_PORT", missing: "8081"},
	{name: "GRPC_MAX_CONNECTION_AGE", missing: "24h", ignored: maxAge},
	{name: "GRPC_MAX_CONNECTION_AGE_GRACE", missing: "1h", ignored: maxAge},
	{name: "GRPC_SERVER_USE_TLS", missing: "false"},
	{name: "GRPC_SERVER_TLS_CERT"},
	{name: "GRPC_SERVER_TLS_KEY"},
	{name: "GRPC_CLIENT_TLS_CACERT"},
	{name: "GRPC_CLIENT_TLS_SAN"},
	{name: "LOG_LEVEL", missing: "WARN"},
	{name: "LOG_FORMAT", missing: "text"},

	{name: "CONFIG_TYPE", missing: "FILE"},
	{name: "FORCE_START_WITHOUT_INITIAL_CONFIG", missing: "false"},
	{name: "CONFIG_GRPC_XDS_NODE_ID", missing: "default", ignored: noXDS, with: withXDS},
	{name: "CONFIG_GRPC_XDS_NODE_METADATA", ignored: noXDS, with: withXDS},
	{name: "CONFIG_GRPC_XDS_SERVER_URL", missing: "localhost:18000", ignored: noXDS, with: withXDS},
	{name: "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", missing: "3s", ignored: backoff},
	{name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ignored: noXDS, with: withXDS},
	{name: "CONFIG_GRPC_XDS_SERVER_USE_TLS", missing: "false", ignored: noXDS, with: withXDS},
	{name: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", ignored: noXDS, with: withXDS},
	{name: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", ignored: noXDS, with: withXDS},
	{name: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", ignored: noXDS, with: withXDS},
	{name: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", ignored: noXDS, with: withXDS},
	{name: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", missing: "10s", ignored: noXDS, with: withXDS},
	{name: "XDS_CLIENT_BACKOFF_MAX_INTERVAL", missing: "60s", ignored: noXDS, with: withXDS},
	{name: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", missing: "0.5", ignored: backoff},
	{name: "XDS_CLIENT_BACKOFF_JITTER", missing: "true", ignored: backoff},
	{name: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", ignored: noXDS, with: withXDS},

	{name: "USE_STATSD", missing: "true"},
	{name: "USE_DOG_STATSD", missing: "false"},
	{name: "USE_DOG_STATSD_MOGRIFIERS"}, // names of others: DOG_STATSD_MOGRIFIER_name_PATTERN, _NAME and _TAGS
	{name: "STATSD_HOST", missing: "localhost"},
	{name: "STATSD_PORT", missing: "8125"},
	{name: "STATSD_PROTOCOL", missing: "tcp"}, // of the library that it sends statistics with
	{name: "EXTRA_TAGS"},
	{name: "STATS_FLUSH_INTERVAL", missing: "10s"},
	{name: "DISABLE_STATS", missing: "false"},
	{name: "USE_PROMETHEUS", missing: "false"},
	{name: "PROMETHEUS_ADDR", missing: ":9090", ignored: noProm, with: withPrometheus},
	{name: "PROMETHEUS_PATH", missing: "/metrics", ignored: noProm, with: withPrometheus},
	{name: "PROMETHEUS_MAPPER_YAML", ignored: noProm, with: withPrometheus},
	{name: "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", missing: "false", ignored: noTimers},

	{name: "RUNTIME_ROOT", missing: "/srv/runtime_data/current"},
	{name: "RUNTIME_SUBDIRECTORY"},
	{name: "RUNTIME_APPDIRECTORY", missing: "config"},
	{name: "RUNTIME_IGNOREDOTFILES", missing: "false"},
	{name: "RUNTIME_WATCH_ROOT", missing: "true",
		ignored: "a link that is turned and a file that is written are both seen"},

	{name: "EXPIRATION_JITTER_MAX_SECONDS", missing: "300", ignored: "expired counts are no load for Redis"},
	{name: "LOCAL_CACHE_SIZE_IN_BYTES", missing: "0", ignored: "all counts are in memory: --memory is their budget"},
	{name: "NEAR_LIMIT_RATIO", missing: "0.8"},
	{name: "CACHE_KEY_PREFIX"},
	{name: "BACKEND_TYPE", missing: "redis"},
	{name: "USE_CALENDAR_MONTH_RATE_LIMIT", missing: "false", ignored: calendar},
	{name: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", missing: "false"},

	{name: "LIMIT_RESPONSE_HEADERS_ENABLED", missing: "false"},
	{name: "LIMIT_LIMIT_HEADER", missing: "RateLimit-Limit"},
	{name: "LIMIT_REMAINING_HEADER", missing: "RateLimit-Remaining"},
	{name: "LIMIT_RESET_HEADER", missing: "RateLimit-Reset"},
	{name: "LIMIT_ALL_DESCRIPTORS_HEADERS_ENABLED", missing: "false", ignored: nearestOne},
	{name: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", missing: "false",
		ignored: "a node is healthy once it has valid rules, and does not start without"},

	{name: "REDIS_SOCKET_TYPE", missing: "unix"},
	{name: "REDIS_TYPE", missing: "SINGLE"},
	{name: "REDIS_URL", missing: "/var/run/nutcracker/ratelimit.sock"},
	{name: "REDIS_POOL_SIZE", missing: "10", ignored: pooled},
	{name: "REDIS_AUTH"},
	{name: "REDIS_TLS", missing: "false"},
	{name: "REDIS_TLS_CLIENT_CERT"},
	{name: "REDIS_TLS_CLIENT_KEY"},
	{name: "REDIS_TLS_CACERT"},
	{name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", missing: "false", ignored: "the name in Redis' certificate is " +
		"verified: redis.server_name in --config says which one to expect"},
	{name: "REDIS_PIPELINE_WINDOW", missing: "0", ignored: pooled},
	{name: "REDIS_PIPELINE_LIMIT", missing: "0", ignored: pooled},
	{name: "REDIS_CLUSTER_PIPELINE_PARALLELISM", missing: "1", ignored: pooled},
	{name: "REDIS_PERSECOND", missing: "false", ignored: onePool},
	{name: "REDIS_PERSECOND_SOCKET_TYPE", missing: "unix", ignored: onePool},
	{name: "REDIS_PERSECOND_TYPE", missing: "SINGLE", ignored: onePool},
	{name: "REDIS_PERSECOND_URL", missing: "/var/run/nutcracker/ratelimitpersecond.sock", ignored: onePool},
	{name: "REDIS_PERSECOND_POOL_SIZE", missing: "10", ignored: onePool},
	{name: "REDIS_PERSECOND_AUTH", ignored: onePool},
	{name: "REDIS_PERSECOND_TLS", missing: "false", ignored: onePool},
	{name: "REDIS_SENTINEL_AUTH", ignored: "the Sentinels are asked without a password"},
	{name: "REDIS_PERSECOND_SENTINEL_AUTH", ignored: onePool},
	{name: "REDIS_PERSECOND_PIPELINE_WINDOW", missing: "0", ignored: onePool},
	{name: "REDIS_PERSECOND_PIPELINE_LIMIT", missing: "0", ignored: onePool},
	{name: "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", missing: "1", ignored: onePool},
	{name: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", missing: "false", ignored: notNeeded},
	{name: "REDIS_TIMEOUT", missing: "10s", ignored: pooled},
	{name: "REDIS_PERSECOND_TIMEOUT", missing: "10s", ignored: onePool},
	{name: "REDIS_POOL_ON_EMPTY_BEHAVIOR", missing: "WAIT", ignored: pooled},
	{name: "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", missing: "WAIT", ignored: onePool},
	{name: "REDIS_STARTUP_INITIAL_INTERVAL", missing: "1s", ignored: notNeeded},
	{name: "REDIS_STARTUP_MAX_INTERVAL", missing: "30s", ignored: notNeeded},
	{name: "REDIS_STARTUP_MAX_ELAPSED_TIME", missing: "0", ignored: notNeeded},

	{name: "MEMCACHE_HOST_PORT", ignored: noMemcache},
	{name: "MEMCACHE_MAX_IDLE_CONNS", missing: "2", ignored: noMemcache},
	{name: "MEMCACHE_SRV", ignored: noMemcache},
	{name: "MEMCACHE_SRV_REFRESH", missing: "0", ignored: noMemcache},
	{name: "MEMCACHE_TLS", missing: "false", ignored: noMemcache},
	{name: "MEMCACHE_TLS_CLIENT_CERT", ignored: noMemcache},
	{name: "MEMCACHE_TLS_CLIENT_KEY", ignored: noMemcache},
	{name: "MEMCACHE_TLS_CACERT", ignored: noMemcache},
	{name: "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", missing: "false", ignored: noMemcache},

	{name: "SHADOW_MODE", missing: "false"},
	{name: "QUOTA_MODE", missing: "false"},
	{name: "RESPONSE_DYNAMIC_METADATA", missing: "false"},
	{name: "MERGE_DOMAIN_CONFIG", missing: "false"},

	{name: "TRACING_ENABLED", missing: "false", ignored: noTracing},
	{name: "TRACING_SERVICE_NAME", missing: "RateLimit", ignored: noTracing},
	{name: "TRACING_SERVICE_NAMESPACE", ignored: noTracing},
	{name: "TRACING_SERVICE_INSTANCE_ID", ignored: noTracing},
	{name: "TRACING_EXPORTER_PROTOCOL", missing: "http", ignored: noTracing},
	{name: "TRACING_SAMPLING_RATE", missing: "1", ignored: noTracing},
}
