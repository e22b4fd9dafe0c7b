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
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return RedisConfig{}, errors.New("it has no scheme, want redis://host:port")
	}
	c := DefaultRedisConfig()
	base, kind, _ := strings.Cut(scheme, "+")
	port := "6379"
	switch {
	case base == "redis" && kind == "", base == "rediss" && kind == "":
	case (base == "redis" || base == "rediss") && kind == "cluster":
		c.Cluster = true
	case (base == "redis" || base == "rediss") && kind == "sentinel":
		port = "26379"
	default:
		return c, fmt.Errorf("unknown scheme %q, want redis or rediss, with +sentinel or +cluster if it is that",
			scheme)
	}
	if base == "rediss" {
		c.TLS = &RedisTLS{}
	}
	if strings.ContainsAny(rest, "?#") {
		return c, errors.New("it takes no ? and no #; escape them in a password as %3F and %23")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path, "@") { // part of a password is on both sides: no error may quote either
		return c, errors.New("there is a / before the @; escape it in a password as %2F")
	}
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		if err := c.setUser(authority[:at]); err != nil {
			return c, err
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr := withPort(host, port)
		if hosts == authority && !validAddr(addr) {
			return c, errHost
		}
		c.Addrs = append(c.Addrs, addr)
	}
	return c, c.setPath(path, kind == "sentinel")
}

// errHost quotes nothing: where the @ was forgotten, a password stands in the host's place.
var errHost = errors.New("its host is not host:port; if it begins with a user and a password, an @ comes after them")

func (c *RedisConfig) setUser(info string) error {
	user, password, _ := strings.Cut(info, ":")
	var err1, err2 error
	c.Username, err1 = url.PathUnescape(user)
	c.Password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil { // they would quote what they could not read
		return errors.New("the user or the password is not escaped well: % stands before two hexadecimal digits")
	}
	return nil
}

// withPort adds the port where a host comes without.
func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

func (c *RedisConfig) setPath(path string, sentinel bool) error {
	if sentinel {
		name, db, _ := strings.Cut(path, "/")
		master, err := url.PathUnescape(name)
		if err != nil || master == "" {
			return errors.New("it names no master, want redis+sentinel://host:port/master")
		}
		c.MasterName, path = master, db
	}
	if path == "" {
		return nil
	}
	db, err := strconv.Atoi(path)
	if err != nil {
		return errors.New("the database is not a number") // not quoted, as in errHost
	}
	c.DB = db
	return nil
}
