package respapi

import (
	"bytes"
	"fmt"
	"strings"
)

// command is what can be asked of the door. It is run with its words, its name the first of them, of which there are at least min and at
// most max.
type command struct {
	min, max int
	anybody  bool // may ask, also before the password
	run      func(c *session, words [][]byte) outcome
}

const anyNumber = maxWords

// commands are those that there are, by their names in lower case.
var commands = map[string]command{
	"cl.throttle": {5, 6, false, (*session).throttle},
	"ping":        {1, 2, false, (*session).ping},
	"echo":        {2, 2, false, (*session).echo},
	"select":      {2, 2, false, (*session).selectDB},
	"client":      {2, anyNumber, false, (*session).client},
	"command":     {1, anyNumber, false, (*session).command},
	"info":        {1, anyNumber, false, (*session).info},
	"hello":       {1, anyNumber, true, (*session).hello},
	"auth":        {2, 3, true, (*session).auth},
	"reset":       {1, 1, true, (*session).resetAll},
	"quit":        {1, anyNumber, true, (*session).quit},
}

// longestName is how long names of commands and of what belongs to them may be.
const longestName = 32

// lower writes a name in lower case into room; empty, if it is longer than any.
func lower(name []byte, room *[longestName]byte) []byte {
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

// run runs a command of at least one word.
func (c *session) run(words [][]byte) outcome {
	var room [longestName]byte
	name := lower(words[0], &room)
	cmd, known := commands[string(name)]
	switch {
	case known && len(words) >= cmd.min && len(words) <= cmd.max && (c.trusted || cmd.anybody):
		return cmd.run(c, words)
	case !known && (string(name) == "post" || string(name) == "host:"):
		// A browser, made to send what another wants: nothing of it is to be taken for commands.
		c.server.totals.malformed.Add(1)
		c.quitting = true
		return failed
	case !known:
		return c.unknown(words)
	case len(words) < cmd.min || len(words) > cmd.max:
		return c.wrongNumber(string(name))
	}
	return c.fail("NOAUTH Authentication required.")
}

func (c *session) fail(text string) outcome {
	c.error(text)
	return failed
}

// fails is fail with what the client sent in it: no more than 128 bytes of each.
func (c *session) fails(format string, said ...any) outcome {
	for i, s := range said {
		if b, ok := s.([]byte); ok {
			said[i] = string(b[:min(len(b), 128)])
		}
	}
	return c.fail(fmt.Sprintf(format, said...))
}

func (c *session) wrongNumber(name string) outcome {
	return c.fails("ERR wrong number of arguments for '%s' command", name)
}

func (c *session) unknown(words [][]byte) outcome {
	var with strings.Builder
	for _, w := range words[1:] {
		if with.Len() >= 128 {
			break
		}
		fmt.Fprintf(&with, "'%s' ", w[:min(len(w), 128-with.Len())])
	}
	return c.fails("ERR unknown command '%s', with args beginning with: %s", words[0], with.String())
}

func (c *session) ok() outcome {
	c.status("OK")
	return other
}

func (c *session) ping(words [][]byte) outcome {
	if len(words) == 1 {
		c.status("PONG")
		return other
	}
	return c.echo(words)
}

func (c *session) echo(words [][]byte) outcome {
	c.bulk(words[1])
	return other
}

// selectDB selects the only database that there is.
func (c *session) selectDB(words [][]byte) outcome {
	switch n, ok := integer(words[1]); {
	case !ok:
		return c.fail("ERR value is not an integer or out of range")
	case n != 0:
		return c.fail("ERR DB index is out of range")
	}
	return c.ok()
}

func (c *session) client(words [][]byte) outcome {
	var room [longestName]byte
	sub := string(lower(words[1], &room))
	want, known := map[string]int{"id": 2, "getname": 2, "setname": 3, "setinfo": 4}[sub]
	switch {
	case !known:
		return c.fails("ERR unknown subcommand '%s'. Try CLIENT HELP.", words[1])
	case len(words) != want:
		return c.wrongNumber("client|" + sub)
	}
	switch sub {
	case "id":
		c.integer(c.id)
	case "getname":
		if c.name == "" {
			c.null()
		} else {
			c.bulk([]byte(c.name))
		}
	case "setname":
		return c.setName(words[2])
	case "setinfo":
		return c.setInfo(words[2], words[3])
	}
	return other
}

// longestClient is how long the name that a client gives itself may be.
const longestClient = 256

func (c *session) setName(name []byte) outcome {
	switch {
	case len(name) > longestClient:
		return c.fails("ERR Client names cannot be longer than %d bytes.", longestClient)
	case !isWord(name):
		return c.fail("ERR Client names cannot contain spaces, newlines or special characters.")
	}
	c.name = string(name)
	return c.ok()
}

// setInfo takes note of the client's library, which nobody asks for.
func (c *session) setInfo(what, value []byte) outcome {
	var room [longestName]byte
	name := string(lower(what, &room))
	switch {
	case name != "lib-name" && name != "lib-ver":
		return c.fails("ERR Unrecognized option '%s'", what)
	case !isWord(value):
		return c.fails("ERR %s cannot contain spaces, newlines or special characters.", name)
	}
	return c.ok()
}

// isWord reports whether all bytes can be printed, and none is a space.
func isWord(b []byte) bool {
	return bytes.IndexFunc(b, func(r rune) bool { return r < '!' || r > '~' }) < 0
}

// command has nothing to tell: clients need it for the keys of commands, to find the right node of a cluster.
func (c *session) command(words [][]byte) outcome {
	var room [longestName]byte
	sub := ""
	if len(words) > 1 {
		sub = string(lower(words[1], &room))
	}
	switch sub {
	case "count":
		c.integer(0)
	case "docs":
		c.pairs(0)
	case "", "info", "list":
		c.array(0)
	default:
		return c.fails("ERR unknown subcommand '%s'. Try COMMAND HELP.", words[1])
	}
	return other
}

// redisVersion is the version whose words are spoken, as some clients look at it.
const redisVersion = "7.0.0"

func (c *session) info([][]byte) outcome {
	c.bulk(fmt.Appendf(nil, "# Server\r\nserver_name:edgelimit\r\nredis_version:%s\r\nredis_mode:standalone\r\n"+
		"\r\n# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\n", redisVersion, c.server.Stats().Connections, c.server.opt.MaxConnections))
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
