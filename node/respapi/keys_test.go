package respapi

import (
	"strings"
	"testing"
	"time"
)

// dialogue is what a client says, one command a line, and what it is answered.
type dialogue struct{ say, want string }

// hold holds a server to a dialogue, each command on a connection of its own unless they are one text.
func hold(t *testing.T, s *Server, lines []dialogue) {
	t.Helper()
	for _, d := range lines {
		if got := strings.Join(replies(t, converse(s, d.say+"\n")), "\n"); got != d.want {
			t.Errorf("%q:\n got %s\nwant %s", d.say, got, d.want)
		}
	}
}

func TestKeys(t *testing.T) {
	b := newBank()
	s := New(b, quiet())
	hold(t, s, []dialogue{
		{"EXISTS k\nTTL k\nPTTL k\nTYPE k\nDEL k\nEXPIRE k 10\nPEXPIRE k 0", "0\n-2\n-2\n+none\n0\n0\n0"},
		{"cl.throttle k 15 30 60 16", "[0 16 0 -1 32]"},
		{"EXISTS k k other\nTTL k\nPTTL k\nTYPE k", "2\n32\n32000\n+string"},
		{"EXPIRE k 32\nPEXPIRE k 32000\nEXPIRE k 9223372036854775807\nTTL k", "1\n1\n1\n32"},
		{"EXPIRE k 31", "-" + expiresEarly},
		{"PEXPIRE k 31999", "-" + expiresEarly},
		{"EXPIRE k soon", "-ERR value is not an integer or out of range"},
		{"EXPIRE k 1 NX", "-ERR wrong number of arguments for 'expire' command"},
		{"DEL", "-ERR wrong number of arguments for 'del' command"},
	})
	b.now.Add(int64(1600 * time.Millisecond))
	hold(t, s, []dialogue{
		{"TTL k\nPTTL k", "30\n30400"},
		{"cl.throttle other 15 30 60\nDEL k missing other\nEXISTS k other", "[0 16 15 -1 2]\n2\n0"},
		{"cl.throttle k 15 30 60\nUNLINK k\nTYPE k", "[0 16 15 -1 2]\n1\n+none"},
		{"cl.throttle k 15 30 60\nEXPIRE k 0\nEXISTS k", "[0 16 15 -1 2]\n1\n0"},
		{"cl.throttle k 15 30 60\nPEXPIRE k -5\nEXISTS k", "[0 16 15 -1 2]\n1\n0"},
		{"cl.throttle k 15 30 60", "[0 16 15 -1 2]"},
	})
	b.now.Add(int64(2 * time.Second))
	hold(t, s, []dialogue{{"EXISTS k", "0"}})
}

// Each database has keys of its own, which a key of another cannot spell.
func TestDatabases(t *testing.T) {
	s := New(newBank(), quiet())
	hold(t, s, []dialogue{
		{"cl.throttle k 0 1 60", "[0 1 0 -1 60]"},
		{"SELECT 1\ncl.throttle k 0 1 60\nEXISTS k\nDEL k\nSELECT 0\nEXISTS k", "+OK\n[0 1 0 -1 60]\n1\n1\n+OK\n1"},
		{"SELECT 1\ncl.throttle k 0 1 60", "+OK\n[0 1 0 -1 60]"},
		{`EXISTS "\x00\x01k" "\x00\x00k" "\x01k"`, "0"},
		{"SELECT 1\nRESET\nDEL k\nSELECT 1\nEXISTS k", "+OK\n+RESET\n1\n+OK\n1"},
		{"SELECT 1\nSELECT 16\nEXISTS k", "+OK\n-ERR DB index is out of range\n1"},
	})
}

// throttlecrab's replies are allowed, limit, remaining, reset_after, retry_after; its keys are CL.THROTTLE's.
func TestThrottleOfThrottlecrab(t *testing.T) {
	b := newBank()
	s := New(b, quiet())
	hold(t, s, []dialogue{
		{"THROTTLE k 10 100 60", "[1 10 9 5 0]"},
		{"throttle k 10 100 60 9", "[1 10 0 10 0]"},
		{"throttle k 10 100 60", "[0 10 0 10 0]"},
		{"throttle k 10 100 60 5", "[0 10 0 10 3]"},
		{"throttle k 10 100 60 0", "[1 10 0 10 0]"},
		{"cl.throttle k 9 100 60", "[1 10 0 1 6]"},
		{"throttle k 10 100 60 20", "[0 10 0 10 12]"},
		{"throttle k 5 100 60 0", "[0 5 0 7 3]"},
		{"throttle new 1 1 60", "[1 1 0 0 0]"},
		{"throttle new 1 1 60", "[0 1 0 0 60]"},
		{"throttle k x 100 60", "-ERR invalid max_burst"},
		{"throttle k 10 x 60", "-ERR invalid count_per_period"},
		{"throttle k 10 100 x", "-ERR invalid period"},
		{"throttle k 10 100 60 x", "-ERR invalid quantity"},
		{"throttle k 10 100 60 -1", "-ERR negative quantity: -1"},
		{"throttle k 0 100 60", "-ERR invalid rate limit parameters"},
		{"throttle k 10 0 60", "-ERR invalid rate limit parameters"},
		{"throttle k 10 100 -1", "-ERR invalid rate limit parameters"},
		{"throttle k 10 100", "-ERR wrong number of arguments for 'throttle' command"},
	})
	if got := s.Stats(); got.Allowed != 3 || got.Denied != 5 {
		t.Errorf("%+v", got)
	}
}

// A client learns that nothing may be cached before it caches anything.
func TestTracking(t *testing.T) {
	hold(t, New(newBank(), quiet()), []dialogue{
		{"CLIENT TRACKING ON OPTIN\nclient tracking off", "+OK\n+OK"},
		{"CLIENT TRACKING ON", "-" + noCaching},
		{"CLIENT TRACKING ON BCAST", "-" + noCaching},
		{"CLIENT TRACKING ON OPTIN REDIRECT 5", "-" + noCaching},
		{"CLIENT TRACKING maybe", "-ERR syntax error"},
		{"CLIENT TRACKING", "-ERR unknown subcommand 'TRACKING'. Try CLIENT HELP."},
		{"CLIENT CACHING YES", "-" + noCaching},
	})
}
