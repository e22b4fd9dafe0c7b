package app

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/ratelimit/prom"
	"github.com/edgelimit/edgelimit/node/ratelimit/statsd"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// ratelimitEnv is the environment of envoyproxy/ratelimit.
type ratelimitEnv struct {
	lookup func(string) (string, bool)
	values map[string]string // of all its variables
	errs   []error
	notes  []note // for the log
	redis  string // the URL that configure set; empty: none
}

// note is why some variables have no effect.
type note struct {
	variables []string
	why       string
}

// readRatelimitEnv reads the variables. It reports those that cannot be obeyed with an error, and notes those that have
// no meaning here, and those in all (NAME=value) that look like variables of that server and are none that is known.
func readRatelimitEnv(lookup func(string) (string, bool), all []string) *ratelimitEnv {
	e := &ratelimitEnv{lookup: lookup, values: make(map[string]string)}
	obeyed := func(with string) bool {
		name, want, _ := strings.Cut(with, "=")
		got, _ := lookup(name)
		return with != "" && means(got, want)
	}
	for _, v := range ratelimitVariables {
		value, ok := lookup(v.name)
		if !ok {
			value = v.missing
		}
		e.values[v.name] = value
		if v.ignored != "" && value != "" && !means(value, v.missing) && !obeyed(v.with) {
			e.note(v.ignored, v.name)
		}
	}
	for _, pair := range all {
		if name, _, _ := strings.Cut(pair, "="); strange(name) {
			e.note("they look like variables of envoyproxy/ratelimit, and are none of those known here ("+
				strconv.Itoa(len(ratelimitVariables))+", as of July 2026): a slip, or of a later version", name)
		}
	}
	return e
}

// strange reports whether a name begins as variables of envoyproxy/ratelimit do, and is none that is known. Kubernetes
// sets variables like REDIS_PORT for services of a namespace.
func strange(name string) bool {
	first, rest, _ := strings.Cut(name, "_")
	ofService := strings.HasPrefix(rest, "SERVICE_") || rest == "PORT" || strings.HasPrefix(rest, "PORT_")
	return slices.Contains(familyNames, first) && rest != "" && !ofService &&
		!slices.ContainsFunc(ratelimitVariables, func(v variable) bool { return v.name == name })
}

// familyNames begin variables of envoyproxy/ratelimit, and seldom those of other programs.
var familyNames = []string{"LIMIT", "MEMCACHE", "PROMETHEUS", "REDIS", "STATSD", "TRACING", "USE", "XDS"}

// means reports whether two values of a variable are the same truth value, number, duration or text.
func means(a, b string) bool {
	if a == b {
		return true
	}
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		y, err := strconv.ParseFloat(b, 64)
		return err == nil && x == y
	}
	if x, err := strconv.ParseBool(a); err == nil {
		y, err := strconv.ParseBool(b)
		return err == nil && x == y
	}
	x, err1 := time.ParseDuration(a)
	y, err2 := time.ParseDuration(b)
	return err1 == nil && err2 == nil && x == y
}

// fail reports a variable that cannot be obeyed. Its value is not quoted: it may be a secret.
func (e *ratelimitEnv) fail(name, why string) {
	e.errs = append(e.errs, fmt.Errorf("--from-env ratelimit: %s: %s", name, why))
}

func (e *ratelimitEnv) note(why string, variables ...string) {
	for i := range e.notes {
		if e.notes[i].why == why {
			e.notes[i].variables = append(e.notes[i].variables, variables...)
			return
		}
	}
	e.notes = append(e.notes, note{variables, why})
}

// The values of variables. What is set to nothing, as compose files leave variables, has its default, except texts.

func (e *ratelimitEnv) text(name string) string { return e.values[name] }

func (e *ratelimitEnv) flag(name string) bool {
	return valueOf(e, name, "true or false", strconv.ParseBool)
}

func (e *ratelimitEnv) duration(name string) time.Duration {
	return valueOf(e, name, "a duration, as 10s", time.ParseDuration)
}

func (e *ratelimitEnv) number(name string) float64 {
	return valueOf(e, name, "a number", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
}

// valueOf returns the value of a variable as parse reads it.
func valueOf[T any](e *ratelimitEnv, name, want string, parse func(string) (T, error)) (value T) {
	text := e.values[name]
	if text == "" {
		i := slices.IndexFunc(ratelimitVariables, func(v variable) bool { return v.name == name })
		text = ratelimitVariables[i].missing
	}
	value, err := parse(text)
	if err != nil {
		e.fail(name, "want "+want)
	}
	return value
}

// pairs returns a map as in "a:b,c:d", where between stands for the colon.
func (e *ratelimitEnv) pairs(name, between string) map[string]string {
	return e.pairsIn(name, e.values[name], between)
}

// pairsIn is pairs of the text of a variable.
func (e *ratelimitEnv) pairsIn(name, text, between string) map[string]string {
	if text == "" {
		return nil
	}
	pairs := make(map[string]string)
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, between)
		if !ok {
			e.fail(name, "want name"+between+"value,name"+between+"value")
			return nil
		}
		pairs[key] = value
	}
	return pairs
}

// configure sets what the variables set, with their defaults, and the compatibility. It returns all that is wrong.
func (e *ratelimitEnv) configure(cfg *node.Config) error {
	cfg.Compatibility = rulefile.Ratelimit
	cfg.Auth = false // that server has no /v1/auth
	// A port that the server did not take may be another's beside it in a pod.
	if cfg.Admin == node.DefaultAdmin {
		cfg.Admin = ""
	}
	cfg.HTTP = net.JoinHostPort(e.text("HOST"), e.text("PORT"))
	cfg.Health = net.JoinHostPort(e.text("DEBUG_HOST"), e.text("DEBUG_PORT"))
	cfg.GRPC = net.JoinHostPort(e.text("GRPC_HOST"), e.text("GRPC_PORT"))
	if path := e.text("GRPC_UDS"); path != "" {
		cfg.GRPC = "unix:" + path
	}
	e.configureTLS(cfg)
	switch e.text("CONFIG_TYPE") {
	case "", "FILE":
		cfg.Rules = []string{e.ruleDirectory()}
	case configXDS:
		cfg.Rules = nil
		e.configureXDS(&cfg.RulesXDS)
	default:
		e.fail("CONFIG_TYPE", "want FILE or "+configXDS)
	}
	cfg.MergeDomains, cfg.Shadow = e.flag("MERGE_DOMAIN_CONFIG"), e.flag("SHADOW_MODE")
	cfg.IgnoreDotFiles = e.flag("RUNTIME_IGNOREDOTFILES")
	cfg.StartWithoutRules = e.flag("FORCE_START_WITHOUT_INITIAL_CONFIG")
	r := &cfg.Ratelimit
	r.StopIncrements = e.flag("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
	r.QuotaMode, r.DynamicMetadata = e.flag("QUOTA_MODE"), e.flag("RESPONSE_DYNAMIC_METADATA")
	r.Headers = e.flag("LIMIT_RESPONSE_HEADERS_ENABLED")
	r.LimitHeader, r.RemainingHeader = e.text("LIMIT_LIMIT_HEADER"), e.text("LIMIT_REMAINING_HEADER")
	r.ResetHeader, r.NearLimitRatio = e.text("LIMIT_RESET_HEADER"), e.number("NEAR_LIMIT_RATIO")
	e.configureStatistics(&r.Statsd, &r.Prometheus)
	e.configureRedis(&cfg.Redis)
	return errors.Join(e.errs...)
}

func (e *ratelimitEnv) ruleDirectory() string {
	return filepath.Join(e.text("RUNTIME_ROOT"), e.text("RUNTIME_SUBDIRECTORY"), e.text("RUNTIME_APPDIRECTORY"))
}

// explain adds to an error of the start which variables name the rule files, if these are missing. e may be nil.
func (e *ratelimitEnv) explain(err error, cfg *node.Config) error {
	if e == nil || !errors.Is(err, fs.ErrNotExist) || !slices.Equal(cfg.Rules, []string{e.ruleDirectory()}) {
		return err
	}
	if _, missing := os.Stat(cfg.Rules[0]); missing == nil {
		return err
	}
	return fmt.Errorf("%w; set RUNTIME_ROOT, RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY to where the rule files are",
		err)
}

// configureTLS sets the TLS of gRPC. Without GRPC_SERVER_USE_TLS the other variables have no effect, and without an
// authority none of a client's names is looked at.
func (e *ratelimitEnv) configureTLS(cfg *node.Config) {
	t := node.ListenerTLS{CertFile: e.text("GRPC_SERVER_TLS_CERT"), KeyFile: e.text("GRPC_SERVER_TLS_KEY"),
		ClientCAFile: e.text("GRPC_CLIENT_TLS_CACERT")}
	name := e.text("GRPC_CLIENT_TLS_SAN")
	if !e.flag("GRPC_SERVER_USE_TLS") {
		for _, variable := range []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT",
			"GRPC_CLIENT_TLS_SAN"} {
			if e.text(variable) != "" {
				e.note("gRPC is served without TLS, as GRPC_SERVER_USE_TLS is not true", variable)
			}
		}
		return
	}
	if t.CertFile == "" || t.KeyFile == "" {
		e.fail("GRPC_SERVER_USE_TLS", "set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY as well")
		return
	}
	switch {
	case name != "" && t.ClientCAFile == "":
		e.note("clients are not asked for a certificate without GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN")
	case name != "":
		t.ClientNames = []string{name}
	}
	cfg.TLS = maps.Clone(cfg.TLS)
	cfg.TLS["grpc"] = t
}

// configXDS is the CONFIG_TYPE of rules from a management server.
const configXDS = "GRPC_XDS_SOTW"

// configureXDS sets the management server.
func (e *ratelimitEnv) configureXDS(x *node.XDS) {
	const prefix = "CONFIG_GRPC_XDS_"
	x.Server, x.NodeID = e.text(prefix+"SERVER_URL"), e.text(prefix+"NODE_ID")
	x.Metadata = e.pairs(prefix+"NODE_METADATA", "=")
	x.Headers = e.pairs(prefix+"CLIENT_ADDITIONAL_HEADERS", ":")
	if x.TLS = e.flag(prefix + "SERVER_USE_TLS"); x.TLS {
		x.CertFile, x.KeyFile = e.text(prefix+"CLIENT_TLS_CERT"), e.text(prefix+"CLIENT_TLS_KEY")
		x.CAFile, x.ServerName = e.text(prefix+"SERVER_TLS_CACERT"), e.text(prefix+"SERVER_TLS_SAN")
	}
	x.MinBackoff = e.duration("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL")
	x.MaxBackoff = e.duration("XDS_CLIENT_BACKOFF_MAX_INTERVAL")
	if e.text("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES") != "" {
		if size := e.number("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"); size != 0 {
			x.MaxMessage = node.Size(size)
		}
	}
}

// configureStatistics sets where statistics go. Without a word of the environment that is statsd on this machine.
func (e *ratelimitEnv) configureStatistics(s *statsd.Config, p *prom.Config) {
	s.Datadog = e.flag("USE_DOG_STATSD")
	plain, prometheus := e.flag("USE_STATSD"), e.flag("USE_PROMETHEUS")
	s.Network, s.Tags = e.text("STATSD_PROTOCOL"), e.pairs("EXTRA_TAGS", ":")
	s.Interval = e.duration("STATS_FLUSH_INTERVAL")
	if e.text("USE_DOG_STATSD_MOGRIFIERS") != "" && !s.Datadog {
		e.note("they rename what USE_DOG_STATSD sends", "USE_DOG_STATSD_MOGRIFIERS")
	}
	switch {
	case e.flag("DISABLE_STATS"):
		return
	case plain && s.Datadog, plain && prometheus, s.Datadog && prometheus:
		e.fail("USE_STATSD", "set only one of USE_STATSD (the default), USE_DOG_STATSD and USE_PROMETHEUS to true")
	case prometheus:
		p.Address, p.MapperFile = cmp.Or(e.text("PROMETHEUS_ADDR"), ":9090"), e.text("PROMETHEUS_MAPPER_YAML")
		p.Path = cmp.Or(e.text("PROMETHEUS_PATH"), "/metrics")
	case s.Datadog:
		s.Network, s.Mogrifiers = "udp", e.mogrifiers()
		fallthrough
	case plain:
		s.Address = net.JoinHostPort(e.text("STATSD_HOST"), e.text("STATSD_PORT"))
	}
}

// mogrifiers returns those that USE_DOG_STATSD_MOGRIFIERS names, each of which has variables of its own.
func (e *ratelimitEnv) mogrifiers() (all []statsd.Mogrifier) {
	const list = "USE_DOG_STATSD_MOGRIFIERS"
	if e.text(list) == "" {
		return nil
	}
	for name := range strings.SplitSeq(e.text(list), ",") {
		prefix := "DOG_STATSD_MOGRIFIER_" + strings.ToUpper(name)
		var m statsd.Mogrifier
		m.Pattern, _ = e.lookup(prefix + "_PATTERN")
		m.Name, _ = e.lookup(prefix + "_NAME")
		tags, _ := e.lookup(prefix + "_TAGS")
		m.Tags = e.pairsIn(prefix+"_TAGS", tags, ":")
		if m.Pattern == "" || m.Name == "" {
			e.fail(list, "set "+prefix+"_PATTERN and "+prefix+"_NAME")
		}
		all = append(all, m)
	}
	return all
}

// logLevel returns the level that LOG_LEVEL names.
func (e *ratelimitEnv) logLevel() (slog.Level, error) {
	level := strings.ToLower(cmp.Or(e.text("LOG_LEVEL"), "warn"))
	switch level {
	case "trace", "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn", "warning":
		return slog.LevelWarn, nil
	case "error", "fatal", "panic":
		return slog.LevelError, nil
	}
	return 0, errors.New("--from-env ratelimit: LOG_LEVEL: want debug, info, warn or error")
}

// logJSON reports whether LOG_FORMAT asks for JSON.
func (e *ratelimitEnv) logJSON() bool { return strings.EqualFold(e.text("LOG_FORMAT"), "json") }

// log logs the notes.
func (e *ratelimitEnv) log(logger *slog.Logger) {
	for _, n := range e.notes {
		logger.Warn("variables of envoyproxy/ratelimit without effect", "variables", strings.Join(n.variables, " "),
			"why", n.why)
	}
}
