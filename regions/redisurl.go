package regions

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// ParseRedisURL returns the default configuration for the Redis that a URL names:
//
//	redis://[user:password@]host[:6379][/db]
//	redis+sentinel://[user:password@]host[:26379][,host...]/master[/db]
//	redis+cluster://[user:password@]host[:6379][,host...]
//
// With rediss instead of redis TLS is spoken. Characters that have a meaning in a URL are escaped (%40 for @). A user
// may come without a password, which then has to be set before OpenRedis. Errors name no password.
func ParseRedisURL(raw string) (RedisConfig, error) {
	c, err := parseRedisURL(raw)
	if err != nil {
		return RedisConfig{}, fmt.Errorf("redis URL: %w", err)
	}
	complete := c
	complete.Password = cmp.Or(c.Password, "to come")
	return c, complete.Validate()
}

func parseRedisURL(raw string) (RedisConfig, error) {
	c := DefaultRedisConfig()
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return c, errors.New("it has no scheme, want redis://host:port")
	}
	kind, known := strings.CutPrefix(scheme, "redis")
	if after, secure := strings.CutPrefix(kind, "s"); secure {
		kind, c.TLS = after, &RedisTLS{}
	}
	port := "6379"
	switch {
	case known && kind == "":
	case known && kind == "+cluster":
		c.Cluster = true
	case known && kind == "+sentinel":
		port = "26379"
	default:
		return c, fmt.Errorf("unknown scheme %q, want redis or rediss, with +sentinel or +cluster if it is that",
			scheme)
	}
	if strings.ContainsAny(rest, "?#") {
		return c, errors.New("it takes no ? and no #; escape them in a password as %3F and %23")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path, "@") { // part of a password is on both sides: no error may quote either
		return c, errors.New("there is a / before the @; escape it in a password as %2F")
	}
	at := strings.LastIndexByte(authority, '@')
	if at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		var err1, err2 error
		c.Username, err1 = url.PathUnescape(user)
		c.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil { // they would quote what they could not read
			return c, errors.New("the user or the password is not escaped well: % stands before two hexadecimal digits")
		}
	}
	for host := range strings.SplitSeq(authority[at+1:], ",") {
		addr := withPort(host, port)
		if at < 0 && !validAddr(addr) { // where the @ was forgotten, a password stands in the host's place
			return c, errors.New("its host is not host:port; if it begins with a user and a password, an @ comes " +
				"after them")
		}
		c.Addrs = append(c.Addrs, addr)
	}
	if kind == "+sentinel" {
		var err error
		name, db, _ := strings.Cut(path, "/")
		if c.MasterName, err = url.PathUnescape(name); err != nil || name == "" {
			return c, errors.New("it names no master, want redis+sentinel://host:port/master")
		}
		path = db
	}
	if path != "" {
		var err error
		if c.DB, err = strconv.Atoi(path); err != nil {
			return c, errors.New("the database is not a number") // not quoted: it may be part of a password
		}
	}
	return c, nil
}

// withPort adds the port where a host comes without.
func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}
