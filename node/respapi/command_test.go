package respapi

import (
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	introduction := func(proto string) string {
		return `"server" "edgelimit" "version" "7.0.0" "proto" ` + proto +
			` "id" 1 "mode" "standalone" "role" "master" "modules" []`
	}
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		say  string
		want string // replies, one a line
	}{
		{"PING", "+PONG"},
		{"ping hello", `"hello"`},
		{"PING a b", "-ERR wrong number of arguments for 'ping' command"},
		{`ECHO "a b"`, `"a b"`},
		{"ECHO", "-ERR wrong number of arguments for 'echo' command"},
		{"SELECT 0", "+OK"},
		{"SELECT 15", "+OK"},
		{"SELECT 16", "-ERR DB index is out of range"},
		{"SELECT -1", "-ERR DB index is out of range"},
		{"SELECT x", "-ERR value is not an integer or out of range"},
		{"CLIENT SETNAME me\nclient getname", "+OK\n\"me\""},
		{"CLIENT GETNAME", "null"},
		{"HELLO 3\nCLIENT GETNAME", "{" + introduction("3") + "}\nnull"},
		{`CLIENT SETNAME "a b"`, "-ERR Client names cannot contain spaces, newlines or special characters."},
		{"CLIENT SETNAME " + long, "-ERR Client names cannot be longer than 256 bytes."},
		{"CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command"},
		{"CLIENT SETINFO lib-name go-redis\nCLIENT SETINFO LIB-VER 9", "+OK\n+OK"},
		{`CLIENT SETINFO lib-name "a b"`, "-ERR lib-name cannot contain spaces, newlines or special characters."},
		{"CLIENT SETINFO x y", "-ERR Unrecognized option 'x'"},
		{"CLIENT ID", "1"},
		{"CLIENT KILL x", "-ERR unknown subcommand 'KILL'. Try CLIENT HELP."},
		{"COMMAND", "[]"},
		{"COMMAND COUNT", "0"},
		{"COMMAND DOCS", "[]"},
		{"HELLO 3\nCOMMAND DOCS cl.throttle", "{" + introduction("3") + "}\n{}"},
		{"COMMAND GETKEYS get x", "-ERR unknown subcommand 'GETKEYS'. Try COMMAND HELP."},
		{"QUIT\nPING", "+OK"},
		{"\n\nPING", "+PONG"},
		{"HELLO", "[" + introduction("2") + "]"},
		{"HELLO 2", "[" + introduction("2") + "]"},
		{"HELLO 3 SETNAME me\nCLIENT GETNAME\nHELLO 2\nHELLO", "{" + introduction("3") + "}\n\"me\"\n[" +
			introduction("2") + "]\n[" + introduction("2") + "]"},
		{"HELLO 3 AUTH default whatever", "{" + introduction("3") + "}"},
		{"HELLO 1", "-NOPROTO unsupported protocol version"},
		{"HELLO 4", "-NOPROTO unsupported protocol version"},
		{"HELLO x", "-ERR Protocol version is not an integer or out of range"},
		{"HELLO 3 AUTH a", "-ERR Syntax error in HELLO option 'AUTH'"},
		{"HELLO 3 NONSENSE", "-ERR Syntax error in HELLO option 'NONSENSE'"},
		{`HELLO 3 SETNAME "a b"` + "\nCOMMAND DOCS",
			"-ERR Client names cannot contain spaces, newlines or special characters.\n[]"},
		{"HELLO 3\nCLIENT SETNAME me\nRESET\nCLIENT GETNAME\nCOMMAND DOCS", "{" + introduction("3") +
			"}\n+OK\n+RESET\nnull\n[]"},
		{"AUTH x",
			"-ERR AUTH <password> called without any password configured for the default user. Are you sure your " +
				"configuration is correct?"},
		{"AUTH default x", "+OK"},
		{"WATCH a", "-ERR unknown command 'WATCH', with args beginning with: 'a' "},
		{"GET a", "-ERR unknown command 'GET', with args beginning with: 'a' "},
		{`"a\r\n+OK" "\x00\x7f"`, "-ERR unknown command 'a  +OK', with args beginning with: '  ' "},
		{long, "-ERR unknown command '" + long[:128] + "', with args beginning with: "},
		{"x " + long + " y", "-ERR unknown command 'x', with args beginning with: '" + long[:128] + "' "},
		{"PING\nPOST / HTTP/1.1\nPING", "+PONG"},
		{"host: x\nPING", ""},
		{"PING\n*1\r\n$x\r\nPING", "+PONG\n-ERR Protocol error: invalid bulk length"},
	} {
		s := New(newBank(), quiet())
		if got := strings.Join(replies(t, converse(s, tt.say+"\n")), "\n"); got != tt.want {
			t.Errorf("%.60q:\n got %s\nwant %s", tt.say, got, tt.want)
		}
	}
}

func TestInfo(t *testing.T) {
	opt := quiet()
	opt.MaxConnections = 77
	got := replies(t, converse(New(newBank(), opt), "INFO server\n"))[0]
	for _, want := range []string{"redis_version:7.0.0", "server_name:edgelimit", "maxclients:77",
		"connected_clients:"} {
		if !strings.Contains(got, want+`\r\n`) && !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}

// Whoever has not said the password can do nothing but say it, and learns nothing.
func TestPassword(t *testing.T) {
	const noAuth, wrong = "-NOAUTH Authentication required.",
		"-WRONGPASS invalid username-password pair or user is disabled."
	for _, tt := range []struct{ say, want string }{
		{"PING\nCL.THROTTLE k 1 1 1\nCLIENT ID\nINFO\nCOMMAND\nSELECT 0\nECHO x", strings.Repeat(noAuth+"\n", 6) +
			noAuth},
		{"AUTH secret\nPING", "+OK\n+PONG"},
		{"AUTH default secret\nPING", "+OK\n+PONG"},
		{"AUTH other secret\nPING", wrong + "\n" + noAuth},
		{"AUTH secre\nPING", wrong + "\n" + noAuth},
		{"AUTH secrets\nPING", wrong + "\n" + noAuth},
		{`AUTH ""` + "\nPING", wrong + "\n" + noAuth},
		{"AUTH a b c", "-ERR wrong number of arguments for 'auth' command"},
		{"AUTH secret\nAUTH wrong\nPING", "+OK\n" + wrong + "\n+PONG"},
		{"AUTH secret\nRESET\nPING", "+OK\n+RESET\n" + noAuth},
		{"HELLO 3 AUTH default wrong\nPING", wrong + "\n" + noAuth},
		{"QUIT", "+OK"},
		{"x", "-ERR unknown command 'x', with args beginning with: "},
	} {
		opt := quiet()
		opt.Password = "secret"
		if got := strings.Join(replies(t, converse(New(newBank(), opt), tt.say+"\n")), "\n"); got != tt.want {
			t.Errorf("%q:\n got %s\nwant %s", tt.say, got, tt.want)
		}
	}
	opt := quiet()
	opt.Password = "secret"
	got := replies(t,
		converse(New(newBank(), opt), "HELLO 3\nHELLO 3 AUTH default secret SETNAME me\nCLIENT GETNAME\n"))
	if len(got) != 3 || !strings.HasPrefix(got[0], "-NOAUTH HELLO must be called") ||
		!strings.HasPrefix(got[1], `{"server"`) ||
		got[2] != `"me"` {
		t.Errorf("HELLO: %q", got)
	}
}
