package respapi

import (
	"bytes"
	"fmt"
	"strings"
)

// command runs with its arguments, min to max of them; its name is the first.
type command struct {
	min, max int
	flags    commandFlags
	run      func(c *session, args [][]byte) outcome
}

type commandFlags uint8

const (
	noAuth  commandFlags = 1 << iota // allowed before authentication
	noQueue                          // runs at once between MULTI and EXEC
)

const anyNumber = maxArgs

// commands are keyed by their names in lower case.
var commands = map[string]command{
	"cl.throttle": {1, anyNumber, 0, (*session).throttle},
	"throttle":    {5, 6, 0, (*session).crabThrottle},
	"del":         {2, anyNumber, 0, (*session).del},
	"unlink":      {2, anyNumber, 0, (*session).del},
	"exists":      {2, anyNumber, 0, (*session).exists},
	"ttl":         {2, 2, 0, (*session).ttl},
	"pttl":        {2, 2, 0, (*session).pttl},
	"type":        {2, 2, 0, (*session).typeOf},
	"expire":      {3, 3, 0, (*session).expire},
	"pexpire":     {3, 3, 0, (*session).expire},
	"eval":        {3, anyNumber, 0, (*session).eval},
	"evalsha":     {3, anyNumber, 0, (*session).eval},
	"script":      {2, anyNumber, 0, (*session).script},
	"multi":       {1, 1, noQueue, (*session).multi},
	"exec":        {1, 1, noQueue, (*session).exec},
	"discard":     {1, 1, noQueue, (*session).discard},
	"ping":        {1, 2, 0, (*session).ping},
	"echo":        {2, 2, 0, (*session).echo},
	"select":      {2, 2, 0, (*session).selectDB},
	"client":      {2, anyNumber, 0, (*session).client},
	"command":     {1, anyNumber, 0, (*session).command},
	"info":        {1, anyNumber, 0, (*session).info},
	"hello":       {1, anyNumber, noAuth, (*session).hello},
	"auth":        {2, 3, noAuth, (*session).auth},
	"reset":       {1, 1, noAuth | noQueue, (*session).resetAll},
	"quit":        {1, anyNumber, noAuth | noQueue, (*session).quit},
}

// maxName is the longest name of a command, in bytes.
const maxName = 32

// lower writes a name in lower case into room; nil if it is longer than any.
func lower(name []byte, room *[maxName]byte) []byte {
	if len(name) > len(room) {
		return nil
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		room[i] = c
	}
	return room[:len(name)]
}

// run runs a command of at least one argument, or queues it for EXEC.
func (c *session) run(args [][]byte) outcome {
	var room [maxName]byte
	name := lower(args[0], &room)
	cmd, known := commands[string(name)]
	switch {
	case known && len(args) >= cmd.min && len(args) <= cmd.max && (c.authenticated || cmd.flags&noAuth != 0):
		if c.transaction.open && cmd.flags&noQueue == 0 {
			return c.enqueue(cmd.run, args)
		}
		return cmd.run(c, args)
	case !known && (string(name) == "post" || string(name) == "host:"):
		// A browser that another site makes send HTTP: none of its lines may pass for a command.
		c.server.totals.malformed.Add(1)
		c.quitting = true
		return failed
	}
	c.transaction.broken = c.transaction.open
	switch {
	case !known:
		return c.unknown(args)
	case len(args) < cmd.min || len(args) > cmd.max:
		return c.wrongNumber(string(name))
	}
	return c.fail("NOAUTH Authentication required.")
}

func (c *session) fail(text string) outcome {
	c.error(text)
	return failed
}

// failf formats at most 128 bytes of each part that the client sent.
func (c *session) failf(format string, parts ...any) outcome {
	for i, s := range parts {
		if b, ok := s.([]byte); ok {
			parts[i] = string(b[:min(len(b), 128)])
		}
	}
	return c.fail(fmt.Sprintf(format, parts...))
}

func (c *session) wrongNumber(name string) outcome {
	return c.failf("ERR wrong number of arguments for '%s' command", name)
}

func (c *session) unknown(args [][]byte) outcome {
	var with strings.Builder
	for _, w := range args[1:] {
		if with.Len() >= 128 {
			break
		}
		fmt.Fprintf(&with, "'%s' ", w[:min(len(w), 128-with.Len())])
	}
	return c.failf("ERR unknown command '%s', with args beginning with: %s", args[0], with.String())
}

func (c *session) ok() outcome {
	c.status("OK")
	return other
}

func (c *session) ping(args [][]byte) outcome {
	if len(args) == 1 {
		c.status("PONG")
		return other
	}
	return c.echo(args)
}

func (c *session) echo(args [][]byte) outcome {
	c.bulk(args[1])
	return other
}

func (c *session) client(args [][]byte) outcome {
	sub := strings.ToLower(string(args[1]))
	want, known := map[string]int{"id": 2, "getname": 2, "setname": 3, "setinfo": 4}[sub]
	switch {
	case sub == "tracking" && len(args) > 2:
		return c.tracking(args[2:])
	case sub == "caching" && len(args) == 3:
		return c.fail(noCaching)
	case !known:
		return c.failf("ERR unknown subcommand '%s'. Try CLIENT HELP.", args[1])
	case len(args) != want:
		return c.wrongNumber("client|" + sub)
	}
	switch {
	case sub == "setname":
		return c.setName(args[2])
	case sub == "setinfo":
		return c.setInfo(args[2], args[3])
	case sub == "id":
		c.integer(c.id)
	case c.name == "": // and sub is getname
		c.null()
	default:
		c.bulk([]byte(c.name))
	}
	return other
}

// maxClientName is the longest name in CLIENT SETNAME, in bytes.
const maxClientName = 256

func (c *session) setName(name []byte) outcome {
	switch {
	case len(name) > maxClientName:
		return c.failf("ERR Client names cannot be longer than %d bytes.", maxClientName)
	case !isPlain(name):
		return c.fail("ERR Client names cannot contain spaces, newlines or special characters.")
	}
	c.name = string(name)
	return c.ok()
}

// setInfo checks the client's library and forgets it: no command returns it.
func (c *session) setInfo(what, value []byte) outcome {
	name := strings.ToLower(string(what))
	switch {
	case name != "lib-name" && name != "lib-ver":
		return c.failf("ERR Unrecognized option '%s'", what)
	case !isPlain(value):
		return c.failf("ERR %s cannot contain spaces, newlines or special characters.", name)
	}
	return c.ok()
}

const noCaching = "ERR client-side caching is not supported: no reply may be cached"

// tracking is CLIENT TRACKING ON|OFF [option ...]. With OPTIN, Redis tracks no key until CLIENT CACHING YES, which is
// refused here: so the promise to invalidate what the client caches is kept. Clients that begin every connection with
// it (rueidis, valkey-go) would not start without.
func (c *session) tracking(args [][]byte) outcome {
	optIn := false
	for _, option := range args[1:] {
		if !strings.EqualFold(string(option), "optin") {
			return c.fail(noCaching)
		}
		optIn = true
	}
	switch mode := strings.ToLower(string(args[0])); {
	case mode == "off" || mode == "on" && optIn:
		return c.ok()
	case mode == "on":
		return c.fail(noCaching)
	}
	return c.fail("ERR syntax error")
}

// isPlain reports whether b is printable ASCII without spaces.
func isPlain(b []byte) bool {
	return bytes.IndexFunc(b, func(r rune) bool { return r < '!' || r > '~' }) < 0
}

// command replies with no commands: clients ask for their keys, to find the right node of a cluster.
func (c *session) command(args [][]byte) outcome {
	args = append(args, []byte("list"))
	switch strings.ToLower(string(args[1])) {
	case "count":
		c.integer(0)
	case "docs":
		c.pairs(0)
	case "info", "list":
		c.array(0)
	default:
		return c.failf("ERR unknown subcommand '%s'. Try COMMAND HELP.", args[1])
	}
	return other
}

// redisVersion is the version that the server claims: some clients look at it.
const redisVersion = "7.0.0"

func (c *session) info([][]byte) outcome {
	c.bulk(fmt.Appendf(nil, "# Server\r\nserver_name:edgelimit\r\nredis_version:%s\r\nredis_mode:standalone\r\n\r\n"+
		"# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\n",
		redisVersion, c.server.Stats().Connections, c.server.opt.MaxConnections))
	return other
}

func (c *session) resetAll([][]byte) outcome {
	c.reset()
	c.status("RESET")
	return other
}

func (c *session) quit([][]byte) outcome {
	c.quitting = true
	return c.ok()
}
