package respapi

const (
	wrongPass = "WRONGPASS invalid username-password pair or user is disabled."
	// user is the only one.
	user = "default"
)

// auth is AUTH [user] password.
func (c *session) auth(words [][]byte) outcome {
	if len(words) == 2 && !c.server.secret.set {
		return c.fail("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	}
	name := []byte(user)
	if len(words) == 3 {
		name = words[1]
	}
	if !c.believes(name, words[len(words)-1]) {
		return c.fail(wrongPass)
	}
	return c.ok()
}

// believes reports whether the password is right, and trusts the client from then on. Where there is none, every one is.
func (c *session) believes(name, password []byte) bool {
	right := c.server.secret.is(password) || !c.server.secret.set
	if !right || string(name) != user {
		return false
	}
	c.trusted = true
	return true
}

// hello is HELLO [version [AUTH user password] [SETNAME name]]. Either all of it takes hold, or nothing.
func (c *session) hello(words [][]byte) outcome {
	version := int64(c.version)
	if len(words) > 1 {
		var ok bool
		if version, ok = integer(words[1]); !ok {
			return c.fail("ERR Protocol version is not an integer or out of range")
		}
		if version != 2 && version != 3 {
			return c.fail("NOPROTO unsupported protocol version")
		}
	}
	var login, name [][]byte
	for rest := words[min(len(words), 2):]; len(rest) > 0; {
		var room [longestName]byte
		switch option := string(lower(rest[0], &room)); {
		case option == "auth" && len(rest) >= 3:
			login, rest = rest[1:3], rest[3:]
		case option == "setname" && len(rest) >= 2:
			name, rest = rest[1:2], rest[2:]
		default:
			return c.fails("ERR Syntax error in HELLO option '%s'", rest[0])
		}
	}
	if name != nil && (!isWord(name[0]) || len(name[0]) > longestClient) {
		return c.setName(name[0]) // says what is wrong with it
	}
	if login != nil && !c.believes(login[0], login[1]) {
		return c.fail(wrongPass)
	}
	if !c.trusted {
		return c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option " +
			"can be used to authenticate the client and select the RESP protocol version at the same time")
	}
	if name != nil {
		c.name = string(name[0])
	}
	c.version = int(version)
	c.introduce()
	return other
}

// introduce tells who serves, in the form of a Redis.
func (c *session) introduce() {
	c.pairs(7)
	for _, pair := range [][2]string{{"server", "edgelimit"}, {"version", redisVersion}} {
		c.bulk([]byte(pair[0]))
		c.bulk([]byte(pair[1]))
	}
	c.bulk([]byte("proto"))
	c.integer(int64(c.version))
	c.bulk([]byte("id"))
	c.integer(c.id)
	for _, pair := range [][2]string{{"mode", "standalone"}, {"role", "master"}} {
		c.bulk([]byte(pair[0]))
		c.bulk([]byte(pair[1]))
	}
	c.bulk([]byte("modules"))
	c.array(0)
}
