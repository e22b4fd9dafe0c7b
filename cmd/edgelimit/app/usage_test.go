package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/client"
)

// What is wrong with a command line is one line on standard error: what, what was meant, and where help is.
func TestUsageErrors(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"serv", `unknown command "serv": did you mean edgelimit serve? See edgelimit --help`},
		{"start", `unknown command "start": did you mean edgelimit serve? See edgelimit --help`},
		{"unblock", `unknown command "unblock": did you mean edgelimit bans remove? See edgelimit --help`},
		{"unban", `unknown command "unban": did you mean edgelimit bans remove? See edgelimit --help`},
		{"validate r.yaml", `unknown command "validate": did you mean edgelimit rules validate? See edgelimit --help`},
		{"rules valid", `unknown command "valid": did you mean edgelimit rules validate? See edgelimit rules --help`},
		{"rules nonsense",
			`unknown command "nonsense": want one of validate, list, explain, diff, push, history, rollback, pull, ` +
				`schema; ` +
				`see edgelimit rules --help`},
		{"--http :1", "unknown flag --http: did you mean edgelimit serve --http? See edgelimit --help"},
		{"--nonsense", "unknown flag --nonsense; see edgelimit --help"},
		{"-v", "unknown flag --v: did you mean --version? See edgelimit --help"},
		{"serve --htp :1", "unknown flag --htp: did you mean --http? See edgelimit serve --help"},
		{"serve --listen :1", "unknown flag --listen: did you mean --http? See edgelimit serve --help"},
		{"serve --port=1", "unknown flag --port: did you mean --http? See edgelimit serve --help"},
		{"serve --gossip_wan :1", "unknown flag --gossip_wan: did you mean --gossip-wan? See edgelimit serve --help"},
		{"serve --print", "unknown flag --print: did you mean --print-config? See edgelimit serve --help"},
		{"serve --zzz", "unknown flag --zzz; see edgelimit serve --help"},
		{"serve --interval 1", "--interval 1: want a duration such as 100ms; see edgelimit serve --help"},
		{"serve --interval=", "--interval : want a duration such as 100ms; see edgelimit serve --help"},
		{"serve --shadow=perhaps", "--shadow perhaps: want true or false; see edgelimit serve --help"},
		{"serve --memory 64MB", "--memory 64MB: want SIZE, as in --memory 256MiB; see edgelimit serve --help"},
		{"serve --log-level loud", "--log-level loud: want debug, info, warn or error; see edgelimit serve --help"},
		{"serve --http", "--http wants a value: ADDRESS, as in --http 127.0.0.1:8080; see edgelimit serve --help"},
		{"serve --rules --http :1", "--rules wants a value: FILE, as in --rules FILE; see edgelimit serve --help"},
		{"serve rules.yaml", `serve takes no arguments, got "rules.yaml"; see edgelimit serve --help`},
		{"check --addr http://127.0.0.1:1", "unknown flag --addr: did you mean --url? See edgelimit check --help"},
		{"check --rule r --ip 192.0.2.1", "unknown flag --ip: did you mean --identity? See edgelimit check --help"},
		{"check --rule r --cost -1", "--cost -1: want a whole number such as 1; see edgelimit check --help"},
		{"check remote_address",
			`descriptor "remote_address": want KEY=VALUE, several separated by commas; see edgelimit check --help`},
		{"check", "say what to check: --rule and --identity, or descriptors; see edgelimit check --help"},
		{"check --rule r --url ftp://x", "--url ftp://x: want a URL such as http://127.0.0.1:8080, or unix:/path; " +
			"see " +
			"edgelimit check --help"},
		{"health --url ::", "--url ::: want a URL such as http://127.0.0.1:7948/readyz, or unix:/path; see edgelimit " +
			"health --help"},
		{"health extra", `health takes no arguments, got "extra"; see edgelimit health --help`},
		{"bans remove", "say whom: RULE and IDENTITY, or --descriptor; see edgelimit bans remove --help"},
		{"bans add login joe", "say how long the ban lasts, as --for 1h; see edgelimit bans add --help"},
		{"bans add a b c", `want RULE and IDENTITY, got "c" as well; see edgelimit bans add --help`},
		{"bans remove a --descriptor b=c", "--descriptor stands in place of rule, identity and key; see " +
			"edgelimit bans remove --help"},
		{"keygen --file x", "unknown flag --file: did you mean --out? See edgelimit keygen --help"},
		{"demo --regions few", "--regions few: want a whole number such as 3; see edgelimit demo --help"},
	} {
		r := edgelimit(t, strings.Fields(test.args)...)
		if want := (result{2, "", "edgelimit: " + test.want + "\n"}); r != want {
			t.Errorf("edgelimit %s:\n got %+v\nwant %+v", test.args, r, want)
		}
	}
	t.Setenv("EDGELIMIT_INTERVAL", "1")
	edgelimit(t, "serve").says(t, 2, "edgelimit: EDGELIMIT_INTERVAL=1: want a duration such as 100ms; see edgelimit "+
		"serve --help\n")
	t.Setenv("EDGELIMIT_ADDR", "http://127.0.0.1:1")
	edgelimit(t, "check", "--rule", "r").says(t, 2, "edgelimit: EDGELIMIT_ADDR is called EDGELIMIT_URL now; see "+
		"edgelimit check --help\n")
}

// Flags may stand behind arguments; behind "--" nothing is a flag.
func TestFlagsAnywhere(t *testing.T) {
	file := ruleFile(t, validRules)
	edgelimit(t, "rules", "validate", file, "--json").says(t, 0, `"valid": true`)
	edgelimit(t, "rules", "validate", "--", file, "--json").says(t, 2, "--json: no such file")
	edgelimit(t, "rules", "explain", "remote_address=192.0.2.1", "-rules="+file).says(t, 0, "per_ip")
}

// What is wrong with a configuration file or a rule file is shown with its line when a node starts.
func TestServeShowsThePlace(t *testing.T) {
	config := written(t, "c.yaml", "region: here\ngossip:\n  inteval: 5ms\n")
	r := edgelimit(t, "serve", "--config", config)
	if want := (result{2, "", "edgelimit: " + config + `:3:3: unknown setting "inteval": did you mean "interval"?` +
		"\n    inteval: 5ms\n    ^\n"}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	broken := ruleFile(t, strings.Replace(validRules, "unit: minute", "unit: minuet", 1))
	edgelimit(t, "serve", "--rules", broken).says(t, 2, "edgelimit: "+broken+":7:60: unknown unit",
		"per_ip, unit: minuet, requests", "\n"+strings.Repeat(" ", 61)+"^\n")
}

// Help fits a terminal of 80 columns, shows an example, and no text is lost in it.
func TestHelpFits(t *testing.T) {
	var look func(parents []string, commands []*cli.Command)
	look = func(parents []string, commands []*cli.Command) {
		for _, c := range commands {
			path := append(parents[:len(parents):len(parents)], c.Name)
			help := edgelimit(t, append(path, "--help")...)
			for line := range strings.Lines(help.out) {
				if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 ||
					strings.TrimRight(line, " \n")+"\n" != line {
					t.Errorf("%v --help: %d columns: %q", path, utf8.RuneCountInString(line)-1, line)
				}
			}
			said := strings.Join(strings.Fields(help.out), " ")
			for word := range strings.FieldsSeq(c.Description) {
				if !strings.Contains(said, word) {
					t.Errorf("%v --help lacks %q", path, word)
				}
			}
			if example := "edgelimit " + strings.Join(path, " ") + " "; len(c.Subcommands) == 0 &&
				c.Name != "version" &&
				strings.Count(said, example) < 2 {
				t.Errorf("%v --help has no example", path)
			}
			look(path, c.Subcommands)
		}
	}
	look(nil, New().Commands)
}

// The words that a shell completes are commands, or flags behind a dash.
func TestCompletion(t *testing.T) {
	for _, test := range []struct{ args, has, lacks string }{
		{"|", "serve", "--version"},
		{"se|", "serve", "validate"},
		{"-|", "--version", "serve"},
		{"rules||", "validate", "serve"},
		{"rules|explain|--|", "--identity", "explain"},
		{"serve|--http|:80|--j|", "--join", "serve"},
	} {
		args := append(strings.Split(strings.TrimSuffix(test.args, "|"), "|"), completionFlag)
		r := edgelimit(t, args...)
		words := strings.Fields(r.out)
		if r.code != 0 || !slices.Contains(words, test.has) || slices.Contains(words, test.lacks) {
			t.Errorf("%q: %+v, want %s and not %s", args, r, test.has, test.lacks)
		}
	}
	edgelimit(t, "completion").says(t, 0, "complete -o default -F _edgelimit edgelimit", completionFlag)
}

func TestWrap(t *testing.T) {
	for _, test := range []struct{ text, indent, want string }{
		{"", "  ", ""},
		{"a b", "  ", "  a b"},
		{"eins zwei drei", "", "eins zwei\ndrei"},
		{"eins zwei drei", "  ", "  eins\n  zwei\n  drei"},
		{"überlänge x", "", "überlänge\nx"},
		{"longer-than-the-width x", "", "longer-than-the-width\nx"},
	} {
		if got := wrap(test.text, test.indent, 10); got != test.want {
			t.Errorf("%q in %q: %q, want %q", test.text, test.indent, got, test.want)
		}
	}
}

// A removal asks the admin listener, and says what was lifted, for whom that holds and what stays.
func TestBansRemoveCommand(t *testing.T) {
	var asked string
	answer, status := client.RemovedBans{}, 200
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		asked = fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header.Get("Content-Type"), " ", body)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	t.Setenv("EDGELIMIT_ADMIN_URL", s.URL)

	answer = client.RemovedBans{Lifted: 1, Interval: 100 * time.Millisecond, Rules: []client.RemovedBan{
		{Rule: "login", Scope: "global", Banned: 90 * time.Second, RetryAfter: 7 * time.Second}, {Rule: "wide",
			Scope: "region"}, {Rule: "own", Scope: "node"}}}
	r := edgelimit(t, "bans", "remove", "login", "192.0.2.1")
	if want := (result{0, "login: lifted, of 90 s that were left; still over its limit: a request within 7 s is " +
		"denied, and may ban it again\n" +
		"wide: this node knew of no ban; scope region: the nodes of this region alone\n" +
		"own: this node knew of no ban; scope node: this node alone, ask each of them\n" +
		"lifted on 1 of 3 rules with bans; all nodes follow within 100 ms\n", ""}); r != want {
		t.Errorf("%+v\nwant %+v", r, want)
	}
	if want := "POST /api/bans/remove application/json map[identity:192.0.2.1 rule:login]"; asked != want {
		t.Errorf("it asks %s, want %s", asked, want)
	}
	edgelimit(
		t, "bans", "remove", "--descriptor", "path=/login,remote_address=192.0.2.1", "--json",
	).says(t, 0, `"lifted": 1`, `"banned_ms": 90000`)
	if want := "POST /api/bans/remove application/json map[descriptors:[[map[key:path value:/login] " +
		"map[key:remote_address " +
		"value:192.0.2.1]]]]"; asked != want {
		t.Errorf("it asks %s, want %s", asked, want)
	}
	answer.Lifted, answer.Rules = 0, answer.Rules[1:2]
	if r := edgelimit(t, "bans", "remove", "wide"); r.code != 0 || !strings.Contains(r.out, "not banned") ||
		strings.Contains(r.out, "lifted on") {
		t.Errorf("without a ban: %+v", r)
	}
	answer.Rules[0].Around = []string{"192.0.2.0/24"}
	if r := edgelimit(t, "bans", "remove", "wide", "192.0.2.1"); r.code != 1 || strings.Contains(r.out, "not banned") ||
		!strings.Contains(r.err, "banned by 192.0.2.0/24: remove that: edgelimit bans remove wide 192.0.2.0/24") {
		t.Errorf("under a banned prefix: %+v", r)
	}
	edgelimit(t, "bans", "remove", "wide", "192.0.2.1", "--json").says(t, 1, `"around": [`)
	status = 404
	edgelimit(t, "bans", "remove", "x").says(t, 2, "does not answer like an edgelimit node")
	edgelimit(t, "bans", "remove", "x", "--url", "http://"+free(t)).says(t, 2, "no answer", "serve --admin")
}

// A list is a table of 80 columns, and what a ban of one's own began is said.
func TestBansListAndAddCommands(t *testing.T) {
	var asked, answer string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		asked = fmt.Sprint(r.Method, " ", r.URL, " ", body)
		_, _ = io.WriteString(w, answer)
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	t.Setenv("EDGELIMIT_ADMIN_URL", s.URL)
	t.Setenv("SSH_CONNECTION", "192.0.2.5 50000 192.0.2.1 22")

	ends := time.Now().Add(25*time.Hour + 30*time.Minute).UTC().Format(time.RFC3339)
	record := `{"rule":"edge/path=/a-long-path/remote_address","scope":"node","address":"ffff:ffff:ffff:ffff::/64",` +
		`"began":"2026-01-02T03:04:05Z","ends":"` + ends + `","manual":true,"by":"somebody.long",` +
		`"reason":"a reason of several words\\u001b[31m"}`
	answer = `{"bans":[` + record + `,` + "\n" + `{"rule":"login","scope":"global","key":"00000000000000ff",` +
		`"began":"2026-01-02T03:04:05Z","ends":"2026-01-02T03:04:05Z","manual":false}]}`
	r := edgelimit(t, "bans", "list", "lo gin")
	want := "RULE                                   BANNED                    ENDS IN      BY             REASON\n" +
		"edge/path=/a-long-path/remote_address  ffff:ffff:ffff:ffff::/64  25 h 29 min  somebody.long  a reason of " +
		"several words\\u001b[31m\n" +
		"login                                  #00000000000000ff         0 s          rule           the limit\n"
	if r.out != want || r.code != 0 {
		t.Errorf("%+v\nwant %s", r, want)
	}
	if asked != "GET /api/bans?rule=lo+gin map[]" {
		t.Errorf("it asks %s", asked)
	}
	edgelimit(t, "bans", "list", "--json").says(t, 0, `"key": "00000000000000ff"`, `\u001b[31m`)
	answer = answer[:len(answer)-20]
	edgelimit(t, "bans", "list").says(t, 2, "read the node's answer")
	answer = `{"bans":[]}`
	edgelimit(t, "bans", "list").says(t, 0, "nobody is banned")

	answer = `{"bans":[` + record + `],"warnings":["mind this"],"interval_ms":100}`
	edgelimit(t, "bans", "add", "per_ip", "198.51.100.0/24", "--for", "1h", "--reason", "x y").
		says(t, 0, "ffff:ffff:ffff:ffff::/64 is banned until 20", "scope node", "warning: mind this", "within 100 ms")
	if asked != "POST /api/bans map[for_ms:3.6e+06 identity:198.51.100.0/24 reason:x y rule:per_ip]" {
		t.Errorf("it asks %s", asked)
	}
	asked = ""
	if edgelimit(t, "bans", "add", "per_ip", "192.0.2.0/24", "--for", "1h").
		says(t, 2, "from which you are logged in", "--force"); asked != "" {
		t.Errorf("it asks %s", asked)
	}
	edgelimit(t, "bans", "add", "per_ip", "192.0.2.0/24", "--for", "1h", "--force").says(t, 0, "is banned until")
}
