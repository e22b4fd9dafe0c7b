package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// nodeFile writes a configuration with the rules of a file, and returns its name.
func nodeFile(t *testing.T, rules, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "node.yaml")
	testkit.Must(t, os.WriteFile(name, []byte("rules: ["+rules+"]\n"+text), 0o600))
	return name
}

const (
	addressOnly = "requests: {domain: edge, descriptors: [{remote_address: client}]}\n"
	behindProxy = "requests:\n  trusted_proxies: [10.0.0.0/8]\n  client_header: forwarded\n  original_headers: " +
		"x-original\n"
)

func TestRulesValidateWarns(t *testing.T) {
	file := ruleFile(t, validRules)
	const never = "rule login is never met by /v1/auth: "
	bad := nodeFile(t, file, addressOnly)
	const needs = "requests.descriptors sends (remote_address) only; it would need (path, remote_address), " +
		"or say from in the rule"
	edgelimit(t, "rules", "validate", "--config", bad).says(t, 0, "valid: 2 rules\nwarning: "+never+needs+"\n")
	edgelimit(t, "rules", "validate", "--config", bad, "--strict").says(t, 1, "warning: "+never, "warnings: 1")
	good := nodeFile(t, file, behindProxy)
	if r := edgelimit(t, "rules", "validate", "--config", good, "--strict"); r.out != "valid: 2 rules\n" ||
		r.code != 0 {
		t.Errorf("%+v", r)
	}
	edgelimit(t, "rules", "validate", file).says(t, 0, "valid: 2 rules\nhint: "+never,
		"requests.trusted_proxies is empty")
	edgelimit(t, "rules", "validate", "--strict", file).says(t, 0, "hint: ")
	edgelimit(t, "rules", "validate", "--config", good, ruleFile(t, strings.Replace(validRules, "domain: edge",
		"domain: egde", 1))).says(t, 0,
		`warning: requests.domain: no rule is in domain "edge": /v1/auth allows everything; did you mean "egde"?`)

	var answer struct {
		Valid    bool
		Warnings []node.Warning
	}
	r := edgelimit(t, "rules", "validate", "--json", "--strict", "--config", bad)
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || r.code != 1 || !answer.Valid ||
		len(answer.Warnings) != 1 ||
		answer.Warnings[0].Hint || answer.Warnings[0].Rules[0] != "login" {
		t.Errorf("%v: %+v", err, r)
	}
	edgelimit(t, "rules", "validate", "--json", "--config", good).says(t, 0, `"warnings": []`)
	withEnvoy := nodeFile(t, file, addressOnly+"grpc: 127.0.0.1:8081\n")
	edgelimit(t, "rules", "validate", "--config", withEnvoy).says(t, 0, "valid: 2 rules\nhint: "+never+needs+"\n")

	edgelimit(t, "rules", "validate", "--config", "/nowhere.yaml").says(t, 2, "no such file")
	edgelimit(t, "rules", "validate", "--config", nodeFile(t, file, "memory: 1KiB\n")).says(t, 2, "memory: 1KiB")
	edgelimit(t, "rules", "validate", "--config", nodeFile(t, ruleFile(t, invalidRules), "")).says(t, 1, "1 problem")
	edgelimit(t, "rules", "validate", "--config", nodeFile(t, file,
		"default_algorithm: fixed_window\nregion: here\n")).says(t, 0, "valid: 2 rules")
}

// With a reverse proxy an HTTP request is explained by the routes that it meets there.
func TestRulesExplainARoute(t *testing.T) {
	file := ruleFile(t, validRules)
	config := nodeFile(t, file, `
requests: {domain: edge, descriptors: [{remote_address: client}]}
proxy:
  listen: 127.0.0.1:8080
  upstreams: [http://127.0.0.1:3000]
  routes:
    - {path: /other}
    - {path: /login, method: POST, descriptors: [{path: path, remote_address: client}, {key: header X-Key}]}
    - {host: "*.b.example", descriptors: [{key: header X-Key, on_missing: deny}]}
`)
	explain := func(args ...string) result {
		return edgelimit(t, append([]string{"rules", "explain", "--config", config, "--request"}, args...)...)
	}
	r := explain("POST https://shop.example/login?a=1", "--client", "2001:db8::1")
	r.says(t, 0, "route 2:\npath=/login,remote_address=2001:db8::1\n", "=> login (edge/path=/login/remote_address)",
		"(key)\n  the request lacks one of: header X-Key\n  => not sent")
	if strings.Contains(r.out, "=> per_ip") || strings.Contains(r.out, "no route") {
		t.Errorf("it says %s", r.out)
	}
	explain("GET /login").says(t, 0, "no route:\nremote_address=", "=> per_ip")
	explain("POST /x/..;/login").says(t, 0, "no route:\nremote_address=", "route 2:\n",
		"path=/login,remote_address=", "=> login")
	explain("GET /other", "--json").says(t, 0, `"route": "route 1"`)
	explain("http://a.b.example/").says(t, 2, "the proxy denies the request whatever the rules are: descriptor 1 needs")
}

// An HTTP request is explained by the layers that /v1/auth makes of it, and the warnings about them.
func TestRulesExplainARequest(t *testing.T) {
	file := ruleFile(t, validRules)
	r := edgelimit(t, "rules", "explain", "--config", nodeFile(t, file, behindProxy), "--request",
		"POST https://shop.example//login?a=1", "--client", "2001:db8::1")
	r.says(t, 0, "remote_address=2001:db8::1\n", "=> per_ip (edge/remote_address)",
		"path=/login,remote_address=2001:db8::1\n",
		"=> login (edge/path=/login/remote_address): 5 in 10 s")
	if strings.Contains(r.out, "warning") || strings.Contains(r.out, "not sent") {
		t.Errorf("it says %q", r.out)
	}
	edgelimit(t, "rules", "explain", "--config", nodeFile(t, file, addressOnly), "--request", "/login").says(t, 0,
		"remote_address=192.0.2.1\n", "warning: rule login is never met by /v1/auth")
	edgelimit(t, "rules", "explain", "--rules", file, "--request", "/login").says(t, 0, // the default trusts nobody
		"(path, remote_address)\n  requests.descriptors has (path, remote_address), which only trusted proxies can "+
			"ask about, and requests.trusted_proxies is empty\n"+
			"  => not sent: limits nothing\n", "hint: rule login is never met")
	socket := nodeFile(t, file,
		"http: unix:/tmp/x\nrequests: {descriptors: [{remote_address: client}, {all: text x}]}\n")
	edgelimit(t, "rules", "explain", "--config", socket, "--request", "/login").says(t, 0,
		"(remote_address)\n  requests.descriptors has (remote_address), but who connects has no address",
		"all=x\n", "no descriptor here has this key")
	key := nodeFile(
		t,
		file,
		"requests: {trusted_proxies: [10.0.0.1], client_header: x-real-ip, descriptors: [{remote_address: client}, "+
			"{key: header X-Api-Key}]}\n",
	)
	edgelimit(t, "rules", "explain", "--config", key, "--request", "GET /", "--header", "X-Api-Key: abc").says(t, 0,
		"key=abc\n", "remote_address=192.0.2.1")
	edgelimit(t, "rules", "explain", "--config", key, "--request", "GET /").says(t, 0,
		"(key)\n  the request lacks one of: header X-Api-Key\n  => not sent")

	r = edgelimit(t, "rules", "explain", "--rules", file, "--json", "--request", "/login")
	var answer struct {
		Layers   []explained
		Warnings []node.Warning
	}
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || len(answer.Layers) != 2 ||
		!answer.Layers[1].NotSent || len(answer.Warnings) != 1 {
		t.Errorf("%v: %s", err, r.out)
	}
	for _, wrong := range [][]string{
		{"--request", ":"}, {"--request", "GET /", "--client", "x"}, {"--request", "/", "--header", "x"},
		{"--request", "/", "path=/"},
	} {
		edgelimit(t, append([]string{"rules", "explain", "--rules", file}, wrong...)...).says(t, 2, "--")
	}
}

// Of descriptors that are given, the warnings are told that concern the rules which they meet, or nearly meet.
func TestRulesExplainWarns(t *testing.T) {
	file := ruleFile(t, validRules)
	bad := nodeFile(t, file, addressOnly)
	edgelimit(t, "rules", "explain", "--config", bad, "path=/login,remote_address=192.0.2.1").says(t, 0,
		"=> login",
		"warning: rule login is never met by /v1/auth")
	edgelimit(t, "rules", "explain", "--config", bad, "path=/login").says(t, 0,
		"the nearest rule is login: it needs (path=/login, remote_address)",
		"=> no rule: allowed", "warning: ")
	if r := edgelimit(t, "rules", "explain", "--config", bad, "remote_address=192.0.2.1"); strings.Contains(r.out,
		"warning") {
		t.Errorf("it warns of another rule: %q", r.out)
	}
	edgelimit(t, "rules", "explain", "--rules", file, "remote_adress=192.0.2.1").says(t, 0,
		`did you mean "remote_address"?`, "the nearest rule is per_ip")
	edgelimit(t, "rules", "explain", "--rules", file, "--domain", "egde", "path=/").says(t, 0,
		`no file has domain "egde": did you mean "edge"?`)
}
