package app

import (
	"net/url"
	"strings"

	"github.com/edgelimit/edgelimit/node"
)

// configureRedis sets the Redis of the REDIS_* variables, if there is one. A Redis that cannot be used is left alone:
// counts are in memory, and none is needed.
func (e *ratelimitEnv) configureRedis(r *node.Redis) {
	if backend := e.text("BACKEND_TYPE"); backend != "" && backend != "redis" {
		e.note(noMemcache, "BACKEND_TYPE")
		return
	}
	if servers, _ := e.lookup("REDIS_URL"); servers == "" {
		return // the default is a proxy on the same machine, which hardly anybody has
	}
	kind := strings.ToLower(e.text("REDIS_TYPE"))
	if kind == "single" && e.text("REDIS_SOCKET_TYPE") != "tcp" {
		e.note("Redis is left alone, as it is behind a Unix socket: counts stay in memory; use REDIS_SOCKET_TYPE=tcp "+
			"and host:port", "REDIS_URL", "REDIS_SOCKET_TYPE")
		return
	}
	r.URL = e.redisURL(kind)
	e.redis = r.URL
	if e.flag("REDIS_TLS") {
		r.CAFile, r.CertFile = e.text("REDIS_TLS_CACERT"), e.text("REDIS_TLS_CLIENT_CERT")
		r.KeyFile = e.text("REDIS_TLS_CLIENT_KEY")
	}
}

// redisURL returns the variables as a URL of node.Redis.
func (e *ratelimitEnv) redisURL(kind string) string {
	scheme, path := "redis", ""
	if e.flag("REDIS_TLS") {
		scheme = "rediss"
	}
	hosts := strings.Split(e.text("REDIS_URL"), ",")
	switch kind {
	case "single":
		hosts = hosts[:1]
	case "cluster":
		scheme += "+cluster"
	case "sentinel": // the name of the master, then the Sentinels
		if len(hosts) < 2 {
			e.fail("REDIS_URL", "want the name of the master and the Sentinels, as in mymaster,host:26379")
		}
		scheme, path, hosts = scheme+"+sentinel", "/"+url.PathEscape(hosts[0]), hosts[1:]
	default:
		e.fail("REDIS_TYPE", "want SINGLE, SENTINEL or CLUSTER")
	}
	var login string
	for i, host := range hosts { // each may be a URL, with a password of its own
		_, host, isURL := strings.Cut(host, "://")
		if !isURL {
			continue
		}
		at := strings.LastIndexByte(host, '@')
		if at >= 0 && login == "" {
			login = host[:at+1]
		}
		host, db, _ := strings.Cut(host[at+1:], "/")
		if hosts[i] = host; db != "" && kind == "single" {
			path = "/" + db
		}
	}
	if auth := e.text("REDIS_AUTH"); auth != "" {
		user, password, both := strings.Cut(auth, ":")
		if !both {
			user, password = "", auth
		}
		login = url.PathEscape(user) + ":" + escapePassword(password) + "@"
	}
	return scheme + "://" + login + strings.Join(hosts, ",") + path
}

// escapePassword escapes what has a meaning in a URL.
func escapePassword(password string) string {
	return strings.NewReplacer(":", "%3A", "@", "%40").Replace(url.PathEscape(password))
}

// settleRedis leaves a Redis alone that the node cannot share safely without a key file. It is called when the flags
// are read.
func (e *ratelimitEnv) settleRedis(cfg *node.Config) {
	if cfg.Redis.URL == "" || cfg.Redis.URL != e.redis || cfg.Gossip.KeyFile != "" {
		return // there is none, a flag names another one, or it is safe
	}
	const keyFile = "counts stay in memory; make a key file with edgelimit keygen, and name it with --key-file on " +
		"every node"
	switch {
	case e.text("CACHE_KEY_PREFIX") != "":
		e.note("Redis is left alone, as only a key file of its own keeps a deployment's counts apart from others in "+
			"the same Redis: "+keyFile, "CACHE_KEY_PREFIX", "REDIS_URL")
	case cfg.Redis.BeyondLoopback():
		e.note("Redis is left alone, as a Redis beyond loopback needs a key file: "+keyFile, "REDIS_URL")
	default:
		return
	}
	cfg.Redis = node.Redis{MinFill: cfg.Redis.MinFill, MinWindow: cfg.Redis.MinWindow}
}
